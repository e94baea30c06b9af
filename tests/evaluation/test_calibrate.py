"""A run's confidences are fitted on its validation split and measured on its test split."""

import json
import shutil
from pathlib import Path

import pytest

from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.evaluation.calibrate import calibrate
from dsocr.inference.confidence import UNCALIBRATED, Calibration, Scale
from dsocr.inference.generation import Generation
from dsocr.models.adapters import attach_adapter, save_adapter
from dsocr.models.loading import load_base
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy


@pytest.fixture
def run(small_dataset: Path, tmp_path: Path) -> RunFolder:
    """A finished run whose adapter is fresh, so it reads as the base does."""
    run = RunFolder(tmp_path / "run")
    run.adapter.mkdir(parents=True)
    run.config.write_text(f"dataset: {small_dataset.as_posix()}\noutput: here\n", encoding="utf-8")
    model = attach_adapter(
        load_base("nano").network, base="nano", revision=None, target_modules="decoder", r=2, alpha=4
    )
    save_adapter(model, run.adapter)
    generation = Generation(max_new_tokens=16).as_dict()
    ReadingSettings("nano", None, "<image>\nFree OCR.", "fold", TextPolicy(), generation).save(run.adapter)
    return run


def test_a_run_is_calibrated_on_validation_and_measured_on_test(run: RunFolder) -> None:
    told: list[tuple[int, int]] = []
    report = calibrate(run, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 8) for done in range(1, 9)]
    assert (report.split, report.lines, report.calibration.lines) == (Split.TEST, 4, 4)
    assert (
        report.origin == "fitted on 4 lines of the validation split, measured on 4 lines of the test split of dataset"
    )
    assert Calibration.load(run.adapter) == report.calibration != UNCALIBRATED
    kept = json.loads(run.confidence.read_text(encoding="utf-8"))
    assert kept["kinds"].keys() == {"character", "word", "line"}
    assert len(kept["budget"]) == 5
    assert "4 lines of the test split" in run.confidence_page.read_text(encoding="utf-8")
    # What was fitted before is not fitted upon.
    assert calibrate(run).calibration == report.calibration


def without_validation(dataset: Path, folder: Path) -> Path:
    """The dataset's test split alone, as `dsocr prepare --split 0/0/1` leaves one."""
    (folder / "test").parent.mkdir(parents=True)
    shutil.copytree(dataset / "test", folder / "test")
    card = json.loads((dataset / "dataset.json").read_text(encoding="utf-8"))
    card["splits"] = {"test": card["splits"]["test"]}
    (folder / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    return folder


def test_a_dataset_with_a_test_split_alone_measures_what_is_kept(
    run: RunFolder, small_dataset: Path, tmp_path: Path
) -> None:
    more = without_validation(small_dataset, tmp_path / "more")
    with pytest.raises(DataError, match="no validation split"):
        calibrate(run, dataset=more)
    kept = Calibration(Scale(1.5, -0.1), Scale(0.9, 0.2), Scale(1.0, 0.5), lines=12)
    kept.save(run.adapter)
    report = calibrate(run, dataset=more)
    assert (report.calibration, report.dataset, report.lines) == (kept, "more", 4)
    assert Calibration.load(run.adapter) == kept
    kept_one = "the run's own calibration, fitted earlier on 12 lines, is measured on 4 lines of the test split of more"
    assert report.origin == f"nothing was fitted, as more has no validation split: {kept_one}"
    assert "4 lines of the test split of more" in run.confidence_page.read_text(encoding="utf-8")


def test_without_lines_to_fit_on_nothing_is_said(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        calibrate(run, dataset=tmp_path)
    assert Calibration.load(run.adapter) == UNCALIBRATED
