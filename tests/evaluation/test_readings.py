"""What is named on the command line: runs, predictions, and the errors of both."""

import json
import shutil
from pathlib import Path

import pytest

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DsocrError
from dsocr.evaluation.predictions import Given, Readings, gather_readings
from dsocr.runs import RunFolder
from tests.evaluation.making_runs import make_evaluated_run, misread, read_better


@pytest.fixture
def run(small_dataset: Path, tmp_path: Path) -> RunFolder:
    return make_evaluated_run(tmp_path / "poor", small_dataset, {"base": misread, "adapter": misread})


@pytest.fixture
def better(small_dataset: Path, tmp_path: Path) -> RunFolder:
    return make_evaluated_run(tmp_path / "fair", small_dataset, {"base": misread, "adapter": read_better})


@pytest.fixture
def table(small_dataset: Path, tmp_path: Path) -> Path:
    """What another tool read of the test split."""
    path = tmp_path / "kraken.jsonl"
    rows = [{"id": sample.id, "text": sample.text[1:]} for sample in Dataset.open(small_dataset).samples(Split.TEST)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def names(found: Readings) -> list[str]:
    return [reading.name for reading in found.readings]


def test_a_run_alone_is_its_base_and_its_adapter(better: RunFolder) -> None:
    found = gather_readings([str(better.path)])
    assert names(found) == ["base", "adapter"]
    assert {line.id for line in found.readings[0].lines} == found.images.keys()
    assert found.about["split"] == "test"


def test_runs_and_predictions_stand_in_the_order_they_were_named_in(
    run: RunFolder, better: RunFolder, table: Path
) -> None:
    found = gather_readings([str(run.path), f"новая={better.path}", str(table)], base=True)
    assert names(found) == ["base", "poor", "новая", "kraken"]
    assert [line.cer.errors for line in found.readings[3].lines] == [1, 1, 1, 1]


def test_predictions_alone_need_a_dataset(table: Path, small_dataset: Path) -> None:
    with pytest.raises(DsocrError, match="nothing to score predictions against"):
        gather_readings([str(table), f"b={table}"])
    found = gather_readings([str(table), f"b={table}"], dataset=small_dataset)
    assert names(found) == ["kraken", "b"]


def test_a_name_is_what_stands_before_the_first_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "a=b").mkdir()
    assert Given.parse(str(tmp_path / "a=b")).name == "a=b"
    assert Given.parse("TrOCR large=out/x.v2.tsv") == Given(Path("out/x.v2.tsv"), "TrOCR large")
    assert Given.parse("out/x.v2.tsv").name == "x.v2"
    assert Given.parse("out=1/x.tsv") == Given(Path("1/x.tsv"), "out")
    assert Given.parse("some/out=1/x.tsv") == Given(Path("some/out=1/x.tsv"), "x")


def test_a_run_on_another_state_of_the_dataset_is_refused(run: RunFolder, better: RunFolder) -> None:
    card = json.loads(better.scorecard.read_text(encoding="utf-8"))
    card["dataset"]["test"] = "f" * 64
    better.scorecard.write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(DsocrError, match="was evaluated on another dataset: its test split has the hash ffffffffffff"):
        gather_readings([str(run.path), str(better.path)])


def test_runs_on_a_dataset_they_were_not_trained_on_are_compared(small_dataset: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(small_dataset, own)
    changed = json.loads((own / "dataset.json").read_text(encoding="utf-8"))
    changed["splits"]["test"]["sha256"] = "f" * 64
    (own / "dataset.json").write_text(json.dumps(changed), encoding="utf-8")
    runs = [
        make_evaluated_run(tmp_path / name, small_dataset, {"adapter": reader}, trained_on=own)
        for name, reader in (("a", misread), ("b", read_better))
    ]
    found = gather_readings([str(run.path) for run in runs])
    assert names(found) == ["a", "b"]
    assert (found.about["dataset"], len(found.images)) == (small_dataset.name, 4)


def test_runs_are_compared_whose_dataset_has_changed_since_and_predictions_of_it_are_refused(
    small_dataset: Path, table: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_dataset, copy)
    runs = [make_evaluated_run(tmp_path / name, copy, {"adapter": read_better}) for name in "ab"]
    card = json.loads((copy / "dataset.json").read_text(encoding="utf-8"))
    scored = card["splits"]["test"]["sha256"]
    card["splits"]["test"]["sha256"] = "f" * 64
    (copy / "dataset.json").write_text(json.dumps(card), encoding="utf-8")
    found = gather_readings([str(run.path) for run in runs])
    assert (names(found), found.about["sha256"]) == (["a", "b"], scored)
    with pytest.raises(DsocrError, match="was evaluated on another dataset"):
        gather_readings([str(runs[0].path), str(table)])


def test_a_run_on_another_split_is_refused_with_the_command_to_run(run: RunFolder) -> None:
    with pytest.raises(DsocrError, match="was evaluated on the test split, not on validation") as caught:
        gather_readings([str(run.path)], split=Split.VALIDATION)
    assert caught.value.hint == f"dsocr evaluate {run.path.as_posix()} --dataset {_dataset(run)} --split validation"


def _dataset(run: RunFolder) -> str:
    return run.config.read_text(encoding="utf-8").split()[1]


def test_a_run_that_was_not_evaluated_is_refused(run: RunFolder) -> None:
    run.scorecard.unlink()
    with pytest.raises(DsocrError, match="no such file") as caught:
        gather_readings([str(run.path)])
    assert caught.value.hint is not None
    assert "dsocr evaluate" in caught.value.hint


def test_a_run_that_was_evaluated_without_its_base_is_refused(small_dataset: Path, tmp_path: Path) -> None:
    run = make_evaluated_run(tmp_path / "r", small_dataset, {"adapter": misread})
    with pytest.raises(DsocrError, match="was evaluated without its base"):
        gather_readings([str(run.path)])


def test_runs_whose_dataset_is_gone_are_compared_without_pictures(small_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_dataset, copy)
    run = make_evaluated_run(tmp_path / "r", copy, {"base": misread, "adapter": read_better})
    shutil.rmtree(copy)
    found = gather_readings([str(run.path)])
    assert (names(found), found.images) == (["base", "adapter"], {})
    predictions = tmp_path / "a.jsonl"
    predictions.write_text('{"id": "a", "text": "b"}\n', encoding="utf-8")
    with pytest.raises(DsocrError, match="its dataset is not where the run was trained on it"):
        gather_readings([str(run.path), str(predictions)])


def test_the_base_of_no_run_cannot_be_asked_for(table: Path, small_dataset: Path) -> None:
    with pytest.raises(DsocrError, match="--base asks for the base of a run"):
        gather_readings([str(table)], base=True, dataset=small_dataset)
