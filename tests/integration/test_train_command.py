"""`dsocr train`, its dry run and its checks."""

import json
import shutil
from pathlib import Path

import pytest

from dsocr.config import load_config
from dsocr.recipes import find_recipe
from tests.integration.calling import Call, Fail


def write_config(folder: Path, dataset: Path) -> Path:
    config = folder / "config.yaml"
    config.write_text(f"dataset: {dataset.as_posix()}\noutput: {(folder / 'run').as_posix()}\n", encoding="utf-8")
    return config


def test_a_training_that_resumes_is_not_said_to_be_tried(
    small_dataset: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    config = write_config(tmp_path, small_dataset)
    (tmp_path / "run" / "checkpoints" / "step-0000001").mkdir(parents=True)
    shutil.copy(config, tmp_path / "run")
    out, err = call("train", config, *quick, code=2)
    assert ("other settings" in err, "checking first" in out) == (True, False)


def test_a_recipe_is_known_by_its_name_and_written_to_edit(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, fail: Fail
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "deepseek_ocr" in str(fail("init", "deepseek").hint)
    call("init", "copiste_nano")
    (recipe,) = tmp_path.iterdir()
    assert load_config(recipe) == load_config(find_recipe("copiste_nano") or "")
    assert fail("init", "copiste_nano").code == "output-exists"
    settings = ["--set", f"dataset={small_dataset.as_posix()}", "--set", "generation.max_new_tokens=0"]
    for name in ("copiste_nano", "configs/copiste_nano.yaml", recipe):
        assert fail("train", name, "--dry-run", *settings).code == "config-invalid"
    assert fail("train", "no_recipe", "--dry-run").code == "input-missing"
    (tmp_path / "demo").mkdir()
    assert find_recipe("demo") is None


def test_a_dry_run_names_the_reason_and_the_remedy(
    small_dataset: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    arguments = ["train", write_config(tmp_path, small_dataset), *quick, "--dry-run"]
    arguments += ["--set", "training.max_text_tokens=5"]
    assert "error    dataset:" in call(*arguments, code=1)[0]
    found = json.loads(call(*arguments, "--json", code=1)[0])
    assert (found["ready"], found["errors"]) == (False, ["dataset"])
