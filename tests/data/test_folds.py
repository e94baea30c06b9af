"""A dataset with folds is one folder, and every fold is the test once."""

import json
from collections import Counter
from pathlib import Path

import pytest

from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.data.splits import split_of_fold
from dsocr.document import Split
from tests.data.making import write, write_pages
from tests.raising import raises_code


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four folds of two writers each, two lines a writer."""
    folder = tmp_path_factory.mktemp("folds")
    source = write_pages(folder / "source", [f"{writer}_1" for writer in "abcdefgh"], lines=2)
    return prepare(source, folder / "out", writer="(.)_", folds=4).folder


@pytest.mark.parametrize(
    ("tested", "splits"),
    [
        pytest.param(1, ["test", "validation", "train", "train"], id="first"),
        pytest.param(3, ["train", "train", "test", "validation"], id="in the middle"),
        pytest.param(4, ["validation", "train", "train", "test"], id="the last is validated by the first"),
    ],
)
def test_the_fold_after_the_tested_one_validates(tested: int, splits: list[str]) -> None:
    assert [split_of_fold(fold, tested, 4) for fold in (1, 2, 3, 4)] == splits


def test_every_sample_is_tested_once_and_no_writer_crosses(folded: Path) -> None:
    tested: Counter[str] = Counter()
    for fold in range(1, 5):
        dataset = Dataset.open(folded, fold=fold)
        writers = {split: {sample.writer for sample in dataset.samples(split)} for split in Split}
        assert [len(writers[split]) for split in Split] == [4, 2, 2]
        assert len(set.union(*writers.values())) == 8
        tested.update(sample.id for sample in dataset.samples(Split.TEST))
        assert {sample.fold for sample in dataset.samples(Split.TEST)} == {fold}
    assert (len(tested), set(tested.values())) == (16, {1})


def test_regrouped_samples_keep_their_ids_images_and_places(folded: Path) -> None:
    plain, regrouped = (
        {sample.id: (where, sample.image) for split in Split for where, sample in dataset.numbered(split)}
        for dataset in (Dataset.open(folded), Dataset.open(folded, fold=3))
    )
    assert plain == regrouped


def test_the_folders_are_split_by_the_first_fold(folded: Path) -> None:
    plain, first = Dataset.open(folded), Dataset.open(folded, fold=1)
    assert (plain.card.folds, plain.card.fractions) == (4, {"train": 0.5, "validation": 0.25, "test": 0.25})
    for split in Split:
        assert plain.samples(split) == first.samples(split)


def test_a_fold_is_checked_by_its_own_splits_and_its_files_have_not_changed(folded: Path) -> None:
    for fold in range(1, 5):
        codes = {finding.code for finding in check_dataset(Dataset.open(folded, fold=fold))}
        assert not codes & {"writer-crosses", "hash-differs"}


@pytest.mark.parametrize("fold", [0, 5])
def test_a_missing_fold_is_an_error(folded: Path, fold: int) -> None:
    with raises_code("bad-fold"):
        Dataset.open(folded, fold=fold)


def test_a_dataset_without_folds_says_so(tmp_path: Path) -> None:
    out = prepare(write_pages(tmp_path / "s", ["a", "b", "c"]), tmp_path / "out").folder
    assert "fold" not in json.loads((out / "train/metadata.jsonl").read_text("utf-8").splitlines()[0])
    with raises_code("no-folds"):
        Dataset.open(out, fold=2)


def test_a_row_without_fold_is_named(folded: Path, tmp_path: Path) -> None:
    out = prepare(write_pages(tmp_path / "s", ["a", "b", "c"], lines=1), tmp_path / "out", folds=3).folder
    write(out / "test/metadata.jsonl", '{"file_name": "images/a.png", "text": "т"}')
    with raises_code("bad-fold"):
        Dataset.open(out, fold=2).samples(Split.TRAIN)
