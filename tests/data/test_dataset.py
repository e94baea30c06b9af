"""Dataset folders: read with errors that name file and line, regrouped by fold, and never written over by mistake."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.config import RunConfig
from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset, nested_order, training_samples, use_whole_writers
from dsocr.data.prepare import prepare
from dsocr.data.splits import split_of_fold
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from tests.data.making import write, write_pages
from tests.raising import raises_code


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pages(tmp_path_factory.mktemp("pages") / "source", ["anna_1", "boris_1", "vera_1"], lines=1)


@pytest.fixture(scope="module")
def prepared(pages: Path) -> Path:
    return prepare(pages, pages.with_name("prepared"), writer="(.+)_").folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "out")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        pytest.param('{"file_name": "a.png"', "bad-metadata", id="cut off"),
        pytest.param("[]", "bad-metadata", id="no object"),
        pytest.param('{"text": "т"}', "bad-metadata", id="no file name"),
        pytest.param('{"file_name": "a.png"}', "bad-metadata", id="no text"),
        pytest.param('{"file_name": "a.png", "text": 1}', "bad-metadata", id="number as text"),
        pytest.param('{"file_name": "a.png", "text": "т", "bbox": ["1"]}', "bad-metadata", id="words as box"),
        pytest.param('{"file_name": "../../a.png", "text": "т"}', "path-outside", id="path out of the folder"),
        pytest.param('{"file_name": "/etc/passwd", "text": "т"}', "path-outside", id="absolute path"),
        pytest.param('{"file_name": "C:\\\\a.png", "text": "т"}', "path-outside", id="drive"),
        pytest.param('{"file_name": "a\\u0000.png", "text": "т"}', "path-outside", id="NUL"),
    ],
)
def test_an_unusable_row_is_named(folder: Path, row: str, code: str) -> None:
    path = folder / "train" / "metadata.jsonl"
    write(path, path.read_text(encoding="utf-8") + "\n" + row + "\n")
    with raises_code(code, f"{path}:3"):
        Dataset.open(folder).samples(Split.TRAIN)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"format_version": 2}, "format-version", id="from the future"),
        pytest.param({"format": "other"}, "bad-card", id="another format"),
        pytest.param({"splits": {"dev": {}}}, "bad-card", id="a split of another name"),
        *(pytest.param(card, "bad-card", id=f"broken: {card}") for card in ("", "[]", "{", "null")),
    ],
)
def test_an_unusable_card_is_an_error(folder: Path, change: dict[str, object] | str, code: str) -> None:
    card = folder / "dataset.json"
    write(card, change if isinstance(change, str) else json.dumps(json.loads(card.read_text("utf-8")) | change))
    with raises_code(code):
        Dataset.open(folder)


def test_missing_files_are_errors_and_not_empty_splits(folder: Path, tmp_path: Path) -> None:
    (folder / "train/metadata.jsonl").unlink()
    with raises_code("metadata-missing"):
        Dataset.open(folder).samples(Split.TRAIN)
    with raises_code("not-a-dataset"):
        Dataset.open(tmp_path)


@pytest.mark.parametrize("fold", [None, 1])
def test_a_split_that_lost_samples_is_an_error(pages: Path, tmp_path: Path, fold: int | None) -> None:
    folder = prepare(pages, tmp_path / "folded", folds=3).folder
    dataset = Dataset.open(folder, fold=fold)
    whole = {split: dataset.samples(split) for split in Split}
    lost = folder / "train/metadata.jsonl"
    write(lost, "")
    with raises_code("metadata-short", f"{lost}"):
        list(dataset)
    with raises_code("metadata-short"):
        dataset.samples(Split.VALIDATION if fold else Split.TRAIN)
    # A few samples that are known by their ids need not be all.
    kept = whole[Split.TEST][0].id if not fold else "test/none"
    assert [sample.id for sample in dataset.samples(Split.TEST, {kept})] == ([] if fold else [kept])


def test_a_dataset_is_overwritten_only_when_asked_and_only_by_a_whole_one(pages: Path, tmp_path: Path) -> None:
    def seed() -> Any:
        return json.loads((tmp_path / "out/dataset.json").read_text("utf-8"))["seed"]

    (tmp_path / "out").mkdir()
    prepare(pages, tmp_path / "out", seed=1)
    with raises_code("output-exists"):
        prepare(pages, tmp_path / "out")
    with pytest.raises(DataError):
        prepare(pages, tmp_path / "out", seed=2, split_by="given", overwrite=True)
    assert seed() == 1
    prepare(pages, tmp_path / "out", seed=2, overwrite=True)
    assert (seed(), [path.name for path in tmp_path.iterdir()]) == (2, ["out"])


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        pytest.param("out/letter.txt", "дорогая", "output-occupied", id="a folder of the user's"),
        pytest.param("out/dataset.json", "{}", "output-occupied", id="a card of somebody else's"),
        pytest.param("out/train/metadata.jsonl", "", "output-occupied", id="a dataset without card"),
        pytest.param("out", "", "output-occupied", id="a file"),
    ],
)
def test_what_is_not_a_dataset_is_never_touched(
    pages: Path, tmp_path: Path, file: str, content: str, code: str
) -> None:
    kept = write(tmp_path / file, content)
    with raises_code(code):
        prepare(pages, tmp_path / "out", overwrite=True)
    assert kept.read_text(encoding="utf-8") == content


def test_a_dataset_inside_its_source_is_not_read_again(pages: Path, tmp_path: Path) -> None:
    pages = shutil.copytree(pages, tmp_path / "source")
    first = prepare(pages, pages / "dataset").card
    assert prepare(pages, pages / "dataset", overwrite=True).card.splits == first.splits


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four folds of two writers each, a line a writer."""
    folder = tmp_path_factory.mktemp("folds")
    source = write_pages(folder / "source", [f"{writer}_1" for writer in "abcdefgh"], lines=1)
    return prepare(source, folder / "out", writer="(.)_", folds=4).folder


def test_the_fold_after_the_tested_one_validates() -> None:
    assert [split_of_fold(fold, 1, 4) for fold in (1, 2, 3, 4)] == ["test", "validation", "train", "train"]
    assert [split_of_fold(fold, 4, 4) for fold in (1, 2, 3, 4)] == ["validation", "train", "train", "test"]


def test_a_dataset_is_shown_in_a_line(folded: Path, prepared: Path) -> None:
    assert repr(Dataset.open(prepared)) == f"Dataset({prepared}: 1/1/1 lines)"
    assert repr(Dataset.open(folded, fold=2)) == f"Dataset({folded}: fold 2 of 8 lines)"


def test_every_sample_is_tested_once_and_no_writer_crosses(folded: Path) -> None:
    tested: Counter[str] = Counter()
    plain = {sample.id: sample.image for sample in Dataset.open(folded)}
    for fold in range(1, 5):
        dataset = Dataset.open(folded, fold=fold)
        assert {sample.id: sample.image for sample in dataset} == plain
        writers = {split: {sample.writer for sample in dataset.samples(split)} for split in Split}
        assert [len(writers[split]) for split in Split] == [4, 2, 2]
        assert len(set.union(*writers.values())) == 8
        tested.update(sample.id for sample in dataset.samples(Split.TEST))
        assert {sample.fold for sample in dataset.samples(Split.TEST)} == {fold}
        assert not {finding.code for finding in check_dataset(dataset)} & {"writer-crosses", "hash-differs"}
    assert (len(tested), set(tested.values())) == (8, {1})


def test_the_folders_are_split_by_the_first_fold(folded: Path) -> None:
    plain, first = Dataset.open(folded), Dataset.open(folded, fold=1)
    assert (plain.card.folds, plain.card.fractions) == (4, {"train": 0.5, "validation": 0.25, "test": 0.25})
    assert all(plain.samples(split) == first.samples(split) for split in Split)


def test_a_missing_fold_is_an_error(folded: Path, folder: Path, pages: Path, tmp_path: Path) -> None:
    for fold in (0, 5):
        with raises_code("bad-fold"):
            Dataset.open(folded, fold=fold)
    assert "fold" not in json.loads((folder / "train/metadata.jsonl").read_text("utf-8").splitlines()[0])
    with raises_code("no-folds"):
        Dataset.open(folder, fold=2)
    out = prepare(pages, tmp_path / "folds", folds=3).folder
    write(out / "test/metadata.jsonl", '{"file_name": "images/a.png", "text": "т"}')
    with raises_code("bad-fold"):
        Dataset.open(out, fold=2).samples(Split.TRAIN)


def samples(writers: Sequence[str | None]) -> list[Sample]:
    return [
        Sample(f"{place}", Path("a.png"), "text", Split.TRAIN, writer=writer, page=f"p{place % 4}")
        for place, writer in enumerate(writers)
    ]


@given(st.lists(st.sampled_from(["anna", "boris", None]), min_size=1, max_size=20), st.booleans(), st.integers(0, 9))
def test_every_sample_joins_once_in_an_order_that_the_seed_decides(
    writers: list[str | None], whole_writers: bool, seed: int
) -> None:
    lines = samples(writers)
    order = nested_order(lines, whole_writers=whole_writers, seed=seed)
    assert sorted(order) == list(range(len(lines)))
    assert order == nested_order(lines, whole_writers=whole_writers, seed=seed)


def test_any_first_part_has_its_share_of_each_writer() -> None:
    lines = samples(["anna"] * 60 + ["boris"] * 30)
    order = nested_order(lines, whole_writers=False, seed=1)
    for size in (9, 30, 60):
        counts = Counter(lines[place].writer for place in order[:size])
        assert counts["anna"] == pytest.approx(2 * size / 3, abs=1)


def test_whole_writers_follow_one_another() -> None:
    lines = samples([f"w{place % 9}" for place in range(90)])
    writers = [lines[place].writer for place in nested_order(lines, whole_writers=True, seed=1)]
    assert len([1 for first, second in pairwise(writers) if first != second]) == 8
    assert writers[0] != writers[10]


@pytest.mark.parametrize(
    ("training", "validation", "whole"),
    [
        pytest.param([f"w{place}" for place in range(8)], ["new"], True, id="many, and validation has others"),
        pytest.param([f"w{place}" for place in range(7)], ["new"], False, id="too few"),
        pytest.param([f"w{place}" for place in range(8)], ["w0", "new"], False, id="validation has known ones"),
        pytest.param([*(f"w{place}" for place in range(8)), None], ["new"], False, id="not all are known"),
    ],
)
def test_when_a_smaller_part_is_fewer_writers(
    training: Sequence[str | None], validation: Sequence[str | None], whole: bool
) -> None:
    assert use_whole_writers(samples(training), set(validation)) is whole


def test_fewer_training_samples_are_among_the_more(small_config: RunConfig) -> None:
    dataset = Dataset.open(small_config.dataset)

    def chosen(count: int | None) -> list[str]:
        training = small_config.training.model_copy(update={"max_samples": count})
        return [
            sample.id for sample in training_samples(dataset, small_config.model_copy(update={"training": training}))
        ]

    everything = chosen(None)
    assert chosen(99) == everything
    assert [len(chosen(count)) for count in (1, 4, 9)] == [1, 4, 9]
    assert set(chosen(4)) < set(chosen(9)) < set(everything)
    assert chosen(9) == [name for name in everything if name in set(chosen(9))]
