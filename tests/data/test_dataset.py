"""Reading dataset folders; errors name the file and line."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, nested_order, training_samples, use_whole_writers
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from tests.data.making import pair, write, write_pages
from tests.raising import raises_code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = write_pages(tmp_path / "source", ["anna_1", "boris_1", "vera_1"], lines=1)
    return prepare(source, tmp_path / "out", writer="(.+)_").folder


def test_samples_match_the_prepared_source(folder: Path) -> None:
    samples = [sample for split in Split for sample in Dataset.open(folder).samples(split)]
    assert sorted(sample.writer or "" for sample in samples) == ["anna", "boris", "vera"]
    anna = next(sample for sample in samples if sample.writer == "anna")
    assert anna == Sample(
        id=f"{anna.split}/images/anna_1_0001.png",
        image=folder / anna.split / "images" / "anna_1_0001.png",
        text="anna_1 строка 0",
        split=anna.split,
        writer="anna",
        page="anna_1",
        source="anna_1.xml:6",
        geometry={
            "bbox": [10, 10, 61, 31],
            "polygon": [[10, 10], [60, 10], [60, 30], [10, 30]],
            "baseline": [[10, 25], [60, 25]],
        },
    )


def test_some_samples_are_found_by_their_ids(folder: Path) -> None:
    dataset = Dataset.open(folder)
    samples = dataset.samples(Split.TRAIN)
    assert dataset.samples(Split.TRAIN, {samples[-1].id, "test/none.png"}) == [samples[-1]]
    assert dataset.samples(Split.TRAIN, set()) == []


def test_a_split_the_dataset_does_not_have_is_empty(tmp_path: Path) -> None:
    pair(tmp_path / "s", "a", "а")
    dataset = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0")
    assert dataset.samples(Split.TEST) == []
    assert dataset.samples(Split.TRAIN)[0].geometry == {}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param('{"file_name": "a.png"', "bad-metadata", id="cut off"),
        pytest.param("[]", "bad-metadata", id="no object"),
        pytest.param('{"text": "т"}', "bad-metadata", id="no file name"),
        pytest.param('{"file_name": "a.png"}', "bad-metadata", id="no text"),
        pytest.param('{"file_name": "a.png", "text": 1}', "bad-metadata", id="number as text"),
        pytest.param('{"file_name": "a.png", "text": null}', "bad-metadata", id="null as text"),
        pytest.param('{"file_name": "a.png", "text": "т", "bbox": ["1"]}', "bad-metadata", id="words as box"),
        pytest.param('{"file_name": "../../a.png", "text": "т"}', "path-outside", id="path out of the folder"),
        pytest.param('{"file_name": "/etc/passwd", "text": "т"}', "path-outside", id="absolute path"),
        pytest.param('{"file_name": "C:\\\\a.png", "text": "т"}', "path-outside", id="drive"),
        pytest.param('{"file_name": "a\\u0000.png", "text": "т"}', "path-outside", id="path-outside"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(folder: Path, row: str, message: str) -> None:
    path = folder / "train" / "metadata.jsonl"
    write(path, path.read_text(encoding="utf-8") + "\n" + row + "\n")
    with raises_code(message) as error:
        Dataset.open(folder).samples(Split.TRAIN)
    assert str(error.value).startswith(f"{path}:3: ")


def test_columns_of_the_user_are_ignored(folder: Path) -> None:
    write(folder / "train/metadata.jsonl", '{"file_name": "a.png", "text": "т", "mood": "good"}')
    (sample,) = Dataset.open(folder).samples(Split.TRAIN)
    assert (sample.text, sample.writer) == ("т", None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"format_version": 2}, "format-version", id="from the future"),
        pytest.param({"format": "other"}, "bad-card", id="another format"),
        pytest.param({"splits": {"dev": {}}}, "bad-card", id="a split of another name"),
    ],
)
def test_a_card_that_cannot_be_used_is_an_error(folder: Path, change: dict[str, object], message: str) -> None:
    card = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
    write(folder / "dataset.json", json.dumps(card | change))
    with raises_code(message):
        Dataset.open(folder)


@pytest.mark.parametrize("card", ["", "[]", "{", "null"])
def test_a_broken_card_is_an_error(folder: Path, card: str) -> None:
    write(folder / "dataset.json", card)
    with raises_code("bad-card"):
        Dataset.open(folder)


def test_a_folder_without_card_is_no_dataset(tmp_path: Path) -> None:
    with raises_code("not-a-dataset"):
        Dataset.open(tmp_path)


def test_missing_metadata_is_an_error_and_not_an_empty_split(folder: Path) -> None:
    (folder / "train/metadata.jsonl").unlink()
    with raises_code("metadata-missing"):
        Dataset.open(folder).samples(Split.TRAIN)


def samples(writers: Sequence[str | None]) -> list[Sample]:
    return [
        Sample(f"{place}", Path("a.png"), "text", Split.TRAIN, writer=writer, page=f"p{place % 4}")
        for place, writer in enumerate(writers)
    ]


@given(st.lists(st.sampled_from(["anna", "boris", None]), min_size=1, max_size=60), st.booleans(), st.integers(0, 99))
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


def test_of_whole_writers_one_follows_another() -> None:
    lines = samples([f"w{place % 9}" for place in range(90)])
    names = [lines[place].writer for place in nested_order(lines, whole_writers=True, seed=1)]
    assert len([1 for first, second in pairwise(names) if first != second]) == 8
    assert names[0] != names[10]


@pytest.mark.parametrize(
    ("training", "validation", "whole"),
    [
        pytest.param([f"w{place}" for place in range(8)], ["new"], True, id="many, and others are read"),
        pytest.param([f"w{place}" for place in range(7)], ["new"], False, id="too few"),
        pytest.param([f"w{place}" for place in range(8)], ["w0", "new"], False, id="known hands are read"),
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
