"""`dsocr train`, its dry run and its checks."""

import json
import shutil
from pathlib import Path

from tests.integration.calling import Call


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


def test_a_dry_run_names_the_reason_and_the_remedy(
    small_dataset: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    arguments = ["train", write_config(tmp_path, small_dataset), *quick, "--dry-run"]
    arguments += ["--set", "training.max_text_tokens=5"]
    assert "error    dataset:" in call(*arguments, code=1)[0]
    found = json.loads(call(*arguments, "--json", code=1)[0])
    assert (found["ready"], found["errors"]) == (False, ["dataset"])
