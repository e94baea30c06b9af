"""`dsocr train`, its dry run and its checks, and the curves of `dsocr report`."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from dsocr.cli import main
from dsocr.runs import RunFolder

SETTINGS = ["training.epochs=null", "training.max_steps=2", "training.batch_size=4", "training.micro_batch_size=4"]
SETTINGS += ["validation.every_steps=2", "validation.max_samples=2", "guard.lines=2", "generation.max_new_tokens=24"]


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


def dsocr(patch: pytest.MonkeyPatch, *arguments: object) -> int:
    patch.setattr(sys, "argv", ["dsocr", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def write_config(folder: Path, dataset: Path) -> list[object]:
    """The arguments with which a configuration in the folder is given, settings included."""
    config = folder / "config.yaml"
    config.write_text(f"dataset: {dataset.as_posix()}\noutput: {(folder / 'run').as_posix()}\n", encoding="utf-8")
    return [config, *(word for setting in SETTINGS for word in ("--set", setting))]


def test_swapped_images_are_refused_before_anything_is_trained(
    shifted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write_config(tmp_path, shifted)
    assert dsocr(monkeypatch, "train", *arguments, "--dry-run", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ready"]
    assert "pairs" in found["errors"]
    assert "overfit" not in {check["name"] for check in found["checks"]}

    assert dsocr(monkeypatch, "train", *arguments) == 2
    error = capsys.readouterr().err
    assert "pairs" in error
    assert not (tmp_path / "run").exists()


def test_a_sound_training_is_tried_then_trained_and_its_curves_are_drawn(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write_config(tmp_path, small_dataset)
    assert dsocr(monkeypatch, "train", *arguments) == 0
    shown = capsys.readouterr().out
    assert "checking first that it learns" in shown
    assert shown.count("step 2: validation CER") == 1
    assert "preflight: ok, overfit:" in RunFolder(tmp_path / "run").log.read_text("utf-8")

    out = tmp_path / "curves.html"
    assert dsocr(monkeypatch, "report", tmp_path / "run", "--curves", "-o", out) == 0
    assert "run: 2 steps, best validation CER" in capsys.readouterr().out
    assert "validation CER" in out.read_text(encoding="utf-8")


def test_a_training_that_goes_on_is_not_said_to_be_tried(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = write_config(tmp_path, small_dataset)
    (tmp_path / "run" / "checkpoints" / "step-0000001").mkdir(parents=True)
    shutil.copy(tmp_path / "config.yaml", tmp_path / "run")
    assert dsocr(monkeypatch, "train", *arguments) == 2
    shown = capsys.readouterr()
    assert "step-0000001" in shown.err
    assert "checking first" not in shown.out


def test_an_error_names_the_reason_and_the_remedy(
    small_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*write_config(tmp_path, small_dataset), "--set", "training.max_text_tokens=5"]
    assert dsocr(monkeypatch, "train", *arguments, "--dry-run") == 1
    shown = capsys.readouterr().out
    assert "error    dataset:" in shown
    assert "-> " in shown
    assert "would not train: dataset" in shown
