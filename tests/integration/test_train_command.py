"""`dsocr train`, its dry run and its checks."""

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.calling import Call


@pytest.fixture
def shifted(small_dataset: Path, tmp_path: Path) -> Path:
    """The small dataset, each training image with the transcription of the next."""
    dataset = Path(shutil.copytree(small_dataset, tmp_path / "shifted"))
    table = dataset / "train" / "metadata.jsonl"
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
    texts = [row["text"] for row in rows]
    moved = [{**row, "text": text} for row, text in zip(rows, [*texts[1:], texts[0]], strict=True)]
    table.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in moved), encoding="utf-8")
    return dataset


def write_config(folder: Path, dataset: Path) -> Path:
    config = folder / "config.yaml"
    config.write_text(f"dataset: {dataset.as_posix()}\noutput: {(folder / 'run').as_posix()}\n", encoding="utf-8")
    return config


def test_swapped_images_are_found_before_anything_is_trained(
    shifted: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    code, _, err = call("train", write_config(tmp_path, shifted), *quick)
    assert (code, "pairs" in err) == (2, True)
    assert not (tmp_path / "run").exists()


def test_a_training_that_resumes_is_not_said_to_be_tried(
    small_dataset: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    config = write_config(tmp_path, small_dataset)
    (tmp_path / "run" / "checkpoints" / "step-0000001").mkdir(parents=True)
    shutil.copy(config, tmp_path / "run")
    code, out, err = call("train", config, *quick)
    assert (code, "other settings" in err, "checking first" in out) == (2, True, False)


def test_a_dry_run_names_the_reason_and_the_remedy(
    small_dataset: Path, tmp_path: Path, quick: list[str], call: Call
) -> None:
    arguments = ["train", write_config(tmp_path, small_dataset), *quick, "--dry-run"]
    arguments += ["--set", "training.max_text_tokens=5"]
    code, out, _ = call(*arguments)
    assert code == 1
    assert "error    dataset:" in out
    code, out, _ = call(*arguments, "--json")
    assert (code, json.loads(out)["ready"], json.loads(out)["errors"]) == (1, False, ["dataset"])
