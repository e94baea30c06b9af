"""Preparing a dataset folder from a source: complete, with balanced splits, and reporting what it skips."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import SkipReason
from dsocr.text import TextPolicy
from tests.data.making import alto, alto_line, pair, picture, write, write_pages
from tests.raising import raises_code

WRITERS = [f"{writer}_{page}" for writer in ("анна", "boris", "vera", "gleb") for page in (1, 2)]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "source", WRITERS, lines=1)


def splits_by(dataset: Dataset, column: str) -> dict[str, set[str]]:
    """Value of a column -> the splits it is in."""
    found: dict[str, set[str]] = {}
    for sample in dataset:
        found.setdefault(getattr(sample, column), set()).add(sample.split)
    return found


def table(folder: Path, header: str, *rows: str) -> Path:
    """A table whose first column names images, which are drawn."""
    for number, row in enumerate(rows):
        picture(folder / row.partition("\t")[0], colour=(number, 0, 0))
    write(folder / "t.tsv", "\n".join([header, *rows]))
    return folder


def test_a_source_becomes_a_dataset(pages: Path, tmp_path: Path) -> None:
    dataset = prepare(pages, tmp_path / "out", writer="(.+)_", split="0.5/0.25/0.25")
    card = dataset.card
    assert (card.source, card.source_format, card.split_by, card.writer) == ("source", "alto", "writer", "(.+)_")
    assert {split: (part.samples, part.writers, part.pages) for split, part in card.splits.items()} == {
        "train": (4, 2, 4),
        "validation": (2, 1, 2),
        "test": (2, 1, 2),
    }
    assert card.crossing == {"writers": 0, "documents": 0, "pages": 0, "texts": 0}
    assert sum(part.characters for part in card.splits.values()) == sum(len(f"{page} строка 0") for page in WRITERS)
    assert (dataset.report.skipped, dataset.report.unmatched) == ([], {})


def test_a_dataset_folder_has_rows_and_images_and_no_path_of_this_machine(pages: Path, tmp_path: Path) -> None:
    out = prepare(pages, tmp_path / "out", writer="(.+)_", split="0.5/0/0.5").folder
    assert sorted(path.name for path in out.iterdir()) == ["dataset.json", "sources.jsonl", "test", "train"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
    rows = [json.loads(line) for file in out.glob("*/metadata.jsonl") for line in file.read_text("utf-8").splitlines()]
    assert {
        "file_name": "images/boris_1_0001.png",
        "text": "boris_1 строка 0",
        "writer": "boris",
        "page": "boris_1",
        "document": "",
        "source": "boris_1.xml:6",
        "bbox": [10, 10, 61, 31],
        "polygon": "10,10 60,10 60,30 10,30",
        "baseline": "10,25 60,25",
    } in rows
    assert sorted(f"images/{path.name}" for path in out.glob("*/images/*")) == sorted(row["file_name"] for row in rows)
    for path in [out / "dataset.json", out / "sources.jsonl", *out.glob("*/metadata.jsonl")]:
        assert tmp_path.name.encode() not in path.read_bytes()
        assert b"\r" not in path.read_bytes()


@pytest.mark.parametrize(
    ("options", "unit"),
    [
        pytest.param({"writer": "(.+)_"}, "writer", id="by writer where it is known"),
        pytest.param({}, "page", id="else by page"),
        pytest.param({"writer": "(.+)_", "split_by": "page"}, "page", id="by page where that is asked for"),
        pytest.param({"split_by": "text"}, "text", id="by text where that is asked for"),
        pytest.param({"document": "(.+)_", "page": "_(.)", "split_by": "document"}, "document", id="by document"),
    ],
)
def test_no_unit_is_in_two_splits(pages: Path, tmp_path: Path, options: dict[str, Any], unit: str) -> None:
    dataset = prepare(pages, tmp_path / "out", split="0.5/0.25/0.25", **options)
    assert (dataset.card.split_by, dataset.card.crossing[f"{unit}s"]) == (unit, 0)
    assert all(len(splits) == 1 for splits in splits_by(dataset, unit).values())
    assert sum(part.pages for part in dataset.card.splits.values()) >= 8, "page 1 of two documents is two pages"


def test_rows_without_a_split_are_skipped(tmp_path: Path) -> None:
    rows = [f"{split}.png\t{split}\t{split}" for split in ("train", "test1", "test")]
    dataset = prepare(table(tmp_path / "s", "image\ttext\tsplit", *rows), tmp_path / "out")
    assert [(item.reason, item.where) for item in dataset.report.skipped] == [(SkipReason.NO_SPLIT, "t.tsv:3")]
    assert [(sample.split, sample.text) for sample in dataset] == [("train", "train"), ("test", "test")]


def test_writer_and_page_can_be_columns(tmp_path: Path) -> None:
    rows = [f"{number}.png\tтекст {number}\tрука {number % 2}\tлист {number}" for number in range(4)]
    source = table(tmp_path / "s", "image\ttext\thand1\tlist", *rows)
    dataset = prepare(source, tmp_path / "out", writer="hand1", page="list", split="0.5/0/0.5")
    assert splits_by(dataset, "writer").keys() == {"рука 0", "рука 1"}
    assert splits_by(dataset, "page").keys() == {f"лист {number}" for number in range(4)}
    assert dataset.card.split_by == "writer"


@pytest.mark.parametrize(("name", "split_by", "notes"), [("subset", "given", 0), ("sample", "page", 1)])
def test_columns_of_pages_are_guessed_and_those_of_split_names_too_or_noted(
    tmp_path: Path, name: str, split_by: str, notes: int
) -> None:
    rows = [f"{split}.png\tт{split}\t{split}\tscan {split}.jpg" for split in ("train", "val", "test")]
    dataset = prepare(table(tmp_path / "s", f"image\ttext\t{name}\tsource_img", *rows), tmp_path / "out")
    assert (dataset.card.split_by, sum(repr(name) in note for note in dataset.card.notes)) == (split_by, notes)
    assert {sample.page for sample in dataset} == {"scan train.jpg", "scan val.jpg", "scan test.jpg"}


@pytest.mark.parametrize(
    ("pattern", "writers"),
    [
        pytest.param("^w[0-9]+", {"w1", "w2"}, id="whole match"),
        pytest.param("^w([0-9]+)", {"1", "2"}, id="first group"),
        pytest.param("([^/]+)/[^/]+$", {"north", "south"}, id="with a slash, the folder"),
    ],
)
def test_writer_patterns(tmp_path: Path, pattern: str, writers: set[str]) -> None:
    pair(tmp_path / "s/north", "w1_a", "а", colour="red")
    pair(tmp_path / "s/south", "w2_b", "б", colour="blue")
    dataset = prepare(tmp_path / "s", tmp_path / "out", writer=pattern, split="0.5/0/0.5")
    assert splits_by(dataset, "writer").keys() == writers


def test_a_name_the_pattern_does_not_match_is_reported(pages: Path, tmp_path: Path) -> None:
    write_pages(pages, ["unknown"])
    dataset = prepare(pages, tmp_path / "out", writer="(.+)_")
    assert dataset.card.unmatched["writer"].model_dump() == {"count": 1, "examples": ["unknown"]}
    with raises_code("pattern-unmatched"):
        prepare(pages, tmp_path / "strict", writer="(.+)_", strict=True)


def spoil(source: Path, *names: str) -> None:
    """Pages with a broken image, a broken XML, an image that is not there, and lines without text."""
    write_pages(source, names)
    if "bad_image" in names:
        (source / "bad_image.png").write_bytes(b"\x89PNG")
    if "bad_xml" in names:
        (source / "bad_xml.xml").write_text("<alto><cut off", encoding="utf-8")
    if "no_image" in names:
        (source / "no_image.png").unlink()
    picture(source / "blank.png")
    write(source / "blank.xml", alto(alto_line("") + alto_line("\u200b") + alto_line("есть"), image="blank.png"))


def test_skipped_items_are_counted_and_all_listed_in_a_file(pages: Path, tmp_path: Path) -> None:
    spoil(pages, "bad_image", "bad_xml", "no_image")
    dataset = prepare(pages, tmp_path / "out")
    counts = {"source cannot be read": 1, "image not found": 1, "no text": 2, "image cannot be read": 3}
    assert {reason: part.count for reason, part in dataset.card.skipped.items()} == counts
    assert dataset.card.skipped["no text"].examples[0].startswith("blank.xml:")
    assert len(list(dataset)) == 9
    rows = [json.loads(row) for row in (tmp_path / "out/skipped.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == len(dataset.report.skipped) == sum(counts.values())
    assert {row["where"].partition(":")[0] for row in rows if row["reason"] == "image cannot be read"} == {
        "bad_image.xml"
    }
    assert prepare(pages, tmp_path / "out", overwrite=True).card.skipped == dataset.card.skipped


@pytest.mark.parametrize(
    ("name", "code"), [("bad_image", "bad-image"), ("bad_xml", "bad-source"), ("no_image", "no-image")]
)
def test_strict_stops_at_a_fault_but_not_at_untranscribed_lines(
    pages: Path, tmp_path: Path, name: str, code: str
) -> None:
    spoil(pages)
    assert len(prepare(pages, tmp_path / "strict", strict=True).report.skipped) == 2
    spoil(pages, name)
    with raises_code(code) as error:
        prepare(pages, tmp_path / "out", strict=True)
    assert str(error.value).startswith(f"{name}.xml:")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"document": "((a|aa)+)+[bc]$"}, "pattern-too-slow", id="pattern that takes for ever"),
        pytest.param({"writer": "^(.)[^_]+$"}, "pattern-matches-nothing", id="pattern that matches no name"),
        pytest.param({"document": "([^/]+)/[^/]+$"}, "pattern-matches-nothing", id="images in no folder"),
        pytest.param({"split_by": "given"}, "unit-unknown", id="no given split"),
        pytest.param({"split_by": "writer"}, "unit-unknown", id="no writer"),
        pytest.param({"writer": "_"}, "too-few-groups", id="too few writers"),
    ],
)
def test_unusable_settings_are_errors_and_leave_nothing(
    tmp_path: Path, options: dict[str, Any], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """See test_bad_inputs.py for more of them."""
    monkeypatch.setattr("dsocr.data.sources._PATTERN_SECONDS", 0.05)
    pair(tmp_path / "source", "a" * 40 + "_1", "да")
    with raises_code(code):
        prepare(tmp_path / "source", tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.skipif(os.name == "nt", reason="file names are UTF-16 there")
def test_file_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    source = table(tmp_path / "s", "image\ttext", "a_3.png\tда", "a_4.png\tнет")
    (source / "t.tsv").rename(source / "\udccf\udce8_1.tsv")
    picture(source / "a.png").rename(source / "\udccf\udce8_1.djvu")
    dataset = prepare(source, tmp_path / "out", split="1/0/0")
    assert [sample.source for sample in dataset] == ["\\udccf\\udce8_1.tsv:2", "\\udccf\\udce8_1.tsv:3"]
    assert dataset.report.skipped[0].where == "\\udccf\\udce8_1.djvu"


@pytest.mark.skipif(os.name == "nt", reason="file names are UTF-16 there")
def test_a_note_on_outlines_escapes_file_names_that_are_not_utf8(tmp_path: Path) -> None:
    picture(tmp_path / "s/p.png", size=(100, 200))
    off = alto_line("т", "10 110 60 110 60 130 10 130")
    file = write(tmp_path / "s/p.xml", alto(alto_line("а") + alto_line("б") + alto_line("в") + off, size=(100, 200)))
    file.rename(tmp_path / "s" / "\udccf.xml")
    (note,) = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0").report.notes[:1]
    assert " \\udccf.xml:" in note


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_are_not_read(pages: Path, tmp_path: Path) -> None:
    os.mkfifo(pages / "pipe.xml")
    os.mkfifo(pages / "pipe.png")
    assert prepare(pages, tmp_path / "out").card.skipped == {}
    with raises_code("file-special"):
        prepare(pages / "pipe.xml", tmp_path / "other")


def test_unknown_writers_are_noted(pages: Path, tmp_path: Path) -> None:
    assert any("writers are unknown" in note for note in prepare(pages, tmp_path / "out").card.notes)
    dataset = prepare(pages, tmp_path / "out", writer="^([^_-]+)[_-]", overwrite=True)
    assert not any("writers are unknown" in note for note in dataset.card.notes)
    assert dataset.report.names["writer"] == {"анна": 2, "boris": 2, "vera": 2, "gleb": 2}


def test_overwriting_with_more_data_leaves_every_writer_where_it_was(pages: Path, tmp_path: Path) -> None:
    before = splits_by(prepare(pages, tmp_path / "out", writer="(.+)_"), "writer")
    write_pages(pages, [f"new{number}_1" for number in range(7)], lines=1)
    grown = prepare(pages, tmp_path / "out", writer="(.+)_", overwrite=True)
    assert splits_by(grown, "writer").items() >= before.items()
    assert grown.card.like == "out"
    assert re.findall(r"\d+", grown.card.notes[0]) == ["4", "7"]
    other = prepare(pages, tmp_path / "other", writer="(.+)_", like=tmp_path / "out", seed=4)
    assert (other.card.like, splits_by(other, "writer")) == ("out", splits_by(grown, "writer"))


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        pytest.param({}, {}, True, id="the same settings"),
        pytest.param({}, {"text_policy": TextPolicy(struck="strip")}, True, id="other texts of the same writers"),
        pytest.param({"stratify": False}, {}, True, id="a dataset that was not stratified"),
        pytest.param({}, {"stratify": False}, False, id="no longer stratified"),
        pytest.param({"fixed": "list.txt"}, {}, False, id="no longer by a list"),
        pytest.param({}, {"fixed": "list.txt"}, True, id="but for what a list says"),
        pytest.param({}, {"seed": 2}, False, id="another seed"),
        pytest.param({}, {"split": "0.5/0.25/0.25"}, False, id="other fractions"),
        pytest.param({}, {"split_by": "page"}, False, id="another unit"),
    ],
)
def test_overwriting_keeps_the_splits_of_a_dataset_made_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], after: dict[str, Any], stays: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "list.txt", "vera\tvalidation\n")
    pages = write_pages(tmp_path / "source", ["anna_1", "boris_1", "vera_1"], lines=1)
    prepare(pages, "out", writer="(.+)_", **before)
    assert (prepare(pages, "out", writer="(.+)_", overwrite=True, **after).card.like is not None) is stays


def test_a_dataset_that_cannot_be_read_can_be_overwritten(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", writer="(.+)_")
    write(tmp_path / "out/train/metadata.jsonl", "{cut off")
    assert prepare(pages, tmp_path / "out", writer="(.+)_", overwrite=True).card.like is None


def test_a_list_of_fixed_names_is_followed_and_recorded(pages: Path, tmp_path: Path) -> None:
    names = write(tmp_path / "published.txt", "анна\nvera\tvalidation\n")
    dataset = prepare(pages, tmp_path / "out", writer="(.+)_", fixed=names)
    splits = splits_by(dataset, "writer")
    assert (splits["анна"], splits["vera"]) == ({"test"}, {"validation"})
    assert dataset.card.fixed is not None
    assert (dataset.card.fixed.file, dataset.card.fixed.names) == ("published.txt", 2)
