"""Preparing a dataset folder from a source: complete, with balanced splits, and reporting what it skips."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare
from dsocr.document import SkipReason, Split
from dsocr.errors import DataError
from dsocr.text import TextPolicy
from tests.data.making import alto, alto_line, pair, picture, write, write_pages
from tests.raising import raises_code

WRITERS = [f"{writer}_{page}" for writer in ("анна", "boris", "vera", "gleb") for page in (1, 2)]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "source", WRITERS)


def splits_by(dataset: Path, column: str) -> dict[str, set[str]]:
    """Value of a column -> the splits it stands in."""
    found: dict[str, set[str]] = {}
    for path in dataset.glob("*/metadata.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            found.setdefault(json.loads(line)[column], set()).add(path.parent.name)
    return found


def test_a_source_becomes_a_dataset(pages: Path, tmp_path: Path) -> None:
    report = prepare(pages, tmp_path / "out", writer="(.+)_", split="0.5/0.25/0.25")
    card = report.card
    assert (card.source, card.source_format, card.split_by, card.writer) == ("source", "alto", "writer", "(.+)_")
    assert {split: part.samples for split, part in card.splits.items()} == {"train": 12, "validation": 6, "test": 6}
    assert {split: part.writers for split, part in card.splits.items()} == {"train": 2, "validation": 1, "test": 1}
    assert {split: part.pages for split, part in card.splits.items()} == {"train": 4, "validation": 2, "test": 2}
    assert card.crossing == {"writers": 0, "documents": 0, "pages": 0, "texts": 0}
    assert sum(part.characters for part in card.splits.values()) == sum(len(f"{page} строка 0") * 3 for page in WRITERS)
    assert (report.report.skipped, report.report.unmatched) == ([], {})


def test_rows_tell_everything_about_a_sample(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", writer="(.+)_", split="1/0/0")
    rows = [json.loads(line) for line in (tmp_path / "out/train/metadata.jsonl").read_text("utf-8").splitlines()]
    assert rows[0] == {
        "file_name": "images/boris_1_0001.png",
        "text": "boris_1 строка 0",
        "writer": "boris",
        "page": "boris_1",
        "document": "",
        "source": "boris_1.xml:6",
        "bbox": [10, 10, 61, 31],
        "polygon": "10,10 60,10 60,30 10,30",
        "baseline": "10,25 60,25",
    }
    assert all((tmp_path / "out/train" / row["file_name"]).is_file() for row in rows)


def test_a_dataset_folder_holds_nothing_else(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", writer="(.+)_", split="0.5/0/0.5")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dataset.json",
        "sources.jsonl",
        "test",
        "train",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_files_hold_no_path_of_this_machine_and_no_carriage_return(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out")
    for path in [tmp_path / "out/dataset.json", *tmp_path.glob("out/*/metadata.jsonl")]:
        content = path.read_bytes()
        assert tmp_path.name.encode() not in content
        assert b"\r" not in content


@pytest.mark.parametrize(
    ("options", "column", "unit"),
    [
        pytest.param({"writer": "(.+)_"}, "writer", "writer", id="by writer where it is known"),
        pytest.param({}, "page", "page", id="else by page"),
        pytest.param({"writer": "(.+)_", "split_by": "page"}, "page", "page", id="by page where that is asked for"),
        pytest.param({"split_by": "text"}, "text", "text", id="by text where that is asked for"),
    ],
)
def test_no_unit_is_in_two_splits(pages: Path, tmp_path: Path, options: dict[str, str], column: str, unit: str) -> None:
    report = prepare(pages, tmp_path / "out", split="0.5/0.25/0.25", **options)  # type: ignore[arg-type]
    assert report.card.split_by == unit
    assert all(len(splits) == 1 for splits in splits_by(tmp_path / "out", column).values())


def test_without_writer_and_page_the_same_text_stays_together(tmp_path: Path) -> None:
    for number in range(30):
        pair(tmp_path / "s", f"{number}", f"город  {number % 5}", colour=(number, 0, 0))
    report = prepare(tmp_path / "s", tmp_path / "out", split="0.6/0.2/0.2")
    assert (report.card.split_by, report.card.crossing["texts"]) == ("text", 0)
    assert len(splits_by(tmp_path / "out", "text")) == 5


def test_the_same_seed_gives_the_same_bytes(pages: Path, tmp_path: Path) -> None:
    first, second, other = (
        prepare(pages, tmp_path / name, seed=seed).card.splits for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == second != other


def test_given_splits_are_kept(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        pair(tmp_path / "s" / split, f"anna_{split}", split, colour=(len(split), 0, 0))
    report = prepare(tmp_path / "s", tmp_path / "out", writer="anna")
    assert splits_by(tmp_path / "out", "text") == {"train": {"train"}, "valid": {"validation"}, "test": {"test"}}
    assert (report.card.split_by, report.card.fractions, report.card.seed) == ("given", None, None)
    assert report.card.crossing == {"writers": 1, "documents": 0, "pages": 0, "texts": 0}


def test_rows_without_a_split_are_skipped(tmp_path: Path) -> None:
    rows = []
    for place, split in enumerate(("train", "test1", "test")):
        picture(tmp_path / f"s/{split}.png", colour=(place, 0, 0))
        rows.append(f"{split}.png\t{split}\t{split}")
    write(tmp_path / "s/t.tsv", "image\ttext\tsplit\n" + "\n".join(rows))
    report = prepare(tmp_path / "s", tmp_path / "out")
    assert [(item.reason, item.where) for item in report.report.skipped] == [(SkipReason.NO_SPLIT, "t.tsv:3")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["test", "train"]


def test_one_named_split_alone_is_no_given_split(tmp_path: Path) -> None:
    for number in range(6):
        pair(tmp_path / "s" / "train", str(number), str(number), colour=(number, 0, 0))
    assert prepare(tmp_path / "s", tmp_path / "out").card.split_by == "text"


def test_writer_and_page_can_be_columns(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / f"s/{number}.png", colour=(number, 0, 0))
    rows = [f"{number}.png\tтекст {number}\tрука {number % 2}\tлист {number}" for number in range(4)]
    write(tmp_path / "s/t.tsv", "image\ttext\thand1\tlist\n" + "\n".join(rows))
    report = prepare(tmp_path / "s", tmp_path / "out", writer="hand1", page="list", split="0.5/0/0.5")
    assert set(splits_by(tmp_path / "out", "writer")) == {"рука 0", "рука 1"}
    assert set(splits_by(tmp_path / "out", "page")) == {f"лист {number}" for number in range(4)}
    assert report.card.split_by == "writer"


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
    prepare(tmp_path / "s", tmp_path / "out", writer=pattern, split="0.5/0/0.5")
    assert set(splits_by(tmp_path / "out", "writer")) == writers


def test_a_name_the_pattern_does_not_match_is_reported(pages: Path, tmp_path: Path) -> None:
    write_pages(pages, ["unknown"])
    report = prepare(pages, tmp_path / "out", writer="(.+)_")
    assert report.report.unmatched == {"writer": ["unknown"]}
    assert report.card.unmatched["writer"].model_dump() == {"count": 1, "examples": ["unknown"]}
    with raises_code("pattern-unmatched"):
        prepare(pages, tmp_path / "strict", writer="(.+)_", strict=True)


def spoil(source: Path) -> None:
    """A broken image, a broken XML, an image that is not there, and a line without text, on four more pages."""
    write_pages(source, ["bad_image", "bad_xml", "no_image"])
    (source / "bad_image.png").write_bytes(b"\x89PNG")
    (source / "bad_xml.xml").write_text("<alto><cut off", encoding="utf-8")
    (source / "no_image.png").unlink()
    picture(source / "blank.png")
    write(source / "blank.xml", alto(alto_line("") + alto_line("\u200b") + alto_line("есть"), image="blank.png"))


def test_skipped_items_are_counted_and_listed(pages: Path, tmp_path: Path) -> None:
    spoil(pages)
    report = prepare(pages, tmp_path / "out")
    assert {reason: part.count for reason, part in report.card.skipped.items()} == {
        "source cannot be read": 1,
        "image not found": 1,
        "no text": 2,
        "image cannot be read": 3,
    }
    assert report.card.skipped["no text"].examples[0].startswith("blank.xml:")
    assert sum(part.samples for part in report.card.splits.values()) == 25


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        pytest.param("bad_image", "bad-image", id="image"),
        pytest.param("bad_xml", "bad-source", id="XML"),
        pytest.param("no_image", "no-image", id="missing image"),
    ],
)
def test_strict_stops_at_a_fault(pages: Path, tmp_path: Path, keep: str, message: str) -> None:
    spoil(pages)
    for name in {"bad_image", "bad_xml", "no_image"} - {keep}:
        (pages / f"{name}.xml").unlink()
    with raises_code(message) as error:
        prepare(pages, tmp_path / "out", strict=True)
    assert str(error.value).startswith(f"{keep}.xml:")
    assert not (tmp_path / "out").exists()


def test_all_that_is_skipped_is_in_a_file_line_by_line(pages: Path, tmp_path: Path) -> None:
    spoil(pages)
    dataset = prepare(pages, tmp_path / "out")
    rows = [json.loads(row) for row in (tmp_path / "out/skipped.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == sum(part.count for part in dataset.card.skipped.values()) == len(dataset.report.skipped)
    assert [row["where"].partition(":")[0] for row in rows if row["reason"] == "image cannot be read"] == [
        "bad_image.xml"
    ] * 3
    assert prepare(pages, tmp_path / "out", overwrite=True).card.skipped == dataset.card.skipped


def test_strict_lets_untranscribed_lines_be(tmp_path: Path) -> None:
    write_pages(tmp_path / "s", ["a", "b", "c"])
    picture(tmp_path / "s/blank.png")
    write(tmp_path / "s/blank.xml", alto(alto_line("") + alto_line("есть"), image="blank.png"))
    assert len(prepare(tmp_path / "s", tmp_path / "out", strict=True).report.skipped) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"split": "0.8/0.1"}, "the split '0.8/0.1'", id="split"),
        pytest.param({"writer": "("}, "is not a regular expression", id="pattern"),
        pytest.param({"writer": "xyz"}, "matches no file name", id="pattern that matches nothing"),
        pytest.param({"writer": "^(.)[^_]+$"}, "matches no file name", id="pattern that matches no name"),
        pytest.param({"split_by": "given"}, "cannot split by 'given'.*known are: page, text", id="no given split"),
        pytest.param({"split_by": "writer"}, "cannot split by 'writer'", id="no writer"),
        pytest.param({"writer": "[a-zа]", "split_by": "line"}, "cannot split by 'line'", id="never by line"),
        pytest.param({"format": "docx"}, "unknown source format", id="format"),
    ],
)
def test_settings_that_cannot_be_used_are_errors(
    pages: Path, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        prepare(pages, tmp_path / "out", **options)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_quotes_that_a_shell_hands_over_are_reported(pages: Path, tmp_path: Path) -> None:
    with raises_code("pattern-matches-nothing") as error:
        prepare(pages, tmp_path / "out", writer=r"'(\w)'")
    assert "double quotes" in str(error.value.hint)


def test_too_few_writers_are_an_error_that_says_so(tmp_path: Path) -> None:
    write_pages(tmp_path / "s", ["anna_1", "anna_2"])
    with raises_code("too-few-groups"):
        prepare(tmp_path / "s", tmp_path / "out", writer="anna")


def test_nothing_left_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    write(tmp_path / "s/p.xml", alto(alto_line("т")))
    with raises_code("no-samples"):
        prepare(tmp_path / "s", tmp_path / "out")


@pytest.mark.parametrize("line", [alto_line(""), ""], ids=["an empty line", "no line"])
def test_an_untranscribed_source_gets_a_hint_with_commands(tmp_path: Path, line: str) -> None:
    picture(tmp_path / "s/p.png")
    write(tmp_path / "s/p.xml", alto(line))
    with raises_code("not-transcribed") as error:
        prepare(tmp_path / "s", tmp_path / "out")
    assert all(command in str(error.value.hint) for command in ("transcribe", "suggest"))


def test_images_that_cannot_be_opened_are_named(pages: Path, tmp_path: Path) -> None:
    for name in ("phone.HEIC", "raw/1.nef", "book.djvu"):
        write(pages / name, "")
    skipped = prepare(pages, tmp_path / "out").report.skipped
    assert sorted(item.where for item in skipped) == ["book.djvu", "phone.HEIC", "raw/1.nef"]


@pytest.mark.skipif(os.name == "nt", reason="file names are UTF-16 there")
def test_file_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    write_pages(tmp_path / "s", ["a_1", "a_2", "a_3", "a_4"])
    for path in (tmp_path / "s").glob("*.xml"):
        path.unlink()
    table = write(tmp_path / "s/t.tsv", "image\ttext\na_3.png\tда\na_4.png\tнет\n")
    table.rename(tmp_path / "s" / "\udccf\udce8_1.tsv")
    (tmp_path / "s/a_1.png").rename(tmp_path / "s" / "\udccf\udce8_1.heic")
    dataset = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0")
    assert [sample.source for sample in dataset] == ["\\udccf\\udce8_1.tsv:2", "\\udccf\\udce8_1.tsv:3"]
    assert dataset.report.skipped[0].where == "\\udccf\\udce8_1.heic"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_are_not_read(pages: Path, tmp_path: Path) -> None:
    os.mkfifo(pages / "pipe.xml")
    os.mkfifo(pages / "pipe.png")
    assert prepare(pages, tmp_path / "out").card.skipped == {}
    with raises_code("source-special"):
        prepare(pages / "pipe.xml", tmp_path / "other")


def test_unknown_writers_are_noted_with_patterns_that_find_them(pages: Path, tmp_path: Path) -> None:
    note = next(note for note in prepare(pages, tmp_path / "out").card.notes if "writers are unknown" in note)
    pattern = re.findall(r"--writer '([^ ]+)' would find 4: boris, gleb, vera, ", note)[0]
    dataset = prepare(pages, tmp_path / "out", writer=pattern, overwrite=True)
    assert not any("writers are unknown" in note for note in dataset.card.notes)
    assert dataset.report.names["writer"] == {"анна": 2, "boris": 2, "vera": 2, "gleb": 2}


def test_a_column_of_split_names_and_one_of_pages_are_guessed(tmp_path: Path) -> None:
    rows = [
        f"{number}.png\tт{number}\t{split}\tscan{number}.jpg" for number, split in enumerate(("train", "val", "test"))
    ]
    for number in range(3):
        picture(tmp_path / f"s/{number}.png", colour=(number, 0, 0))
    write(tmp_path / "s/t.tsv", "\n".join(["image\ttext\tsample\tsource_img", *rows]))
    dataset = prepare(tmp_path / "s", tmp_path / "out")
    assert (dataset.card.split_by, list(dataset.card.splits)) == ("given", list(Split))
    assert "sample" in dataset.card.notes[0]
    assert [sample.page for sample in dataset] == ["scan0.jpg", "scan1.jpg", "scan2.jpg"]


def test_the_text_policy_is_applied_and_recorded(tmp_path: Path) -> None:
    pair(tmp_path / "s", "a", "и\u0306  од \n")
    for name, policy, text in (("nfc", TextPolicy(), "й од"), ("raw", TextPolicy("keep", "keep"), "и\u0306  од \n")):
        report = prepare(tmp_path / "s", tmp_path / name, split="1/0/0", text_policy=policy)
        assert report.card.text_policy == policy.as_dict()
        assert Dataset.open(tmp_path / name).samples(Split.TRAIN)[0].text == text


def test_progress_is_reported_after_each_image(pages: Path, tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    prepare(pages, tmp_path / "out", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 8) for done in range(1, 9)]


def test_pages_of_the_same_name_in_two_folders_stay_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_pages(tmp_path / "s" / folder, ["1", "2"])
    report = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0")
    assert report.card.splits[Split.TRAIN].pages == 4
    assert set(splits_by(tmp_path / "out", "page")) == {"a/1", "a/2", "b/1", "b/2"}


def test_a_dataset_can_be_a_source(pages: Path, tmp_path: Path) -> None:
    first = prepare(pages, tmp_path / "first").card
    second = prepare(tmp_path / "first", tmp_path / "second").card
    assert second.split_by == "given"
    assert [part.samples for part in second.splits.values()] == [part.samples for part in first.splits.values()]


def test_whole_documents_go_to_a_split_where_that_is_asked_for(tmp_path: Path) -> None:
    write_pages(tmp_path / "s", [f"{document}_{page}" for document in "abcd" for page in (1, 2)])
    report = prepare(
        tmp_path / "s", tmp_path / "out", document="(.)_", page="_(.)", split_by="document", split="0.5/0.25/0.25"
    )
    assert all(len(splits) == 1 for splits in splits_by(tmp_path / "out", "document").values())
    assert {split: (part.documents, part.pages) for split, part in report.card.splits.items()} == {
        "train": (2, 4),
        "validation": (1, 2),
        "test": (1, 2),
    }, "page 1 of one document is not page 1 of another"
    assert (report.card.document, report.card.crossing["pages"]) == ("(.)_", 0)


def test_overwriting_with_more_data_leaves_every_writer_where_it_was(pages: Path, tmp_path: Path) -> None:
    def writers() -> dict[str, set[str]]:
        return splits_by(tmp_path / "out", "writer")

    prepare(pages, tmp_path / "out", writer="(.+)_")
    before = writers()
    write_pages(pages, [f"new{number}_1" for number in range(20)])
    report = prepare(pages, tmp_path / "out", writer="(.+)_", overwrite=True)
    assert writers().items() >= before.items()
    assert report.card.like == "out"
    assert ("4 groups" in report.card.notes[0], "20 are new" in report.card.notes[0]) == (True, True)
    fresh = prepare(pages, tmp_path / "out", writer="(.+)_", seed=3, overwrite=True)
    assert fresh.card.like is None, "another seed is another draw"
    other = prepare(pages, tmp_path / "other", writer="(.+)_", like=tmp_path / "out", seed=4)
    assert (other.card.like, splits_by(tmp_path / "other", "writer")) == ("out", writers())


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        pytest.param({}, {}, True, id="the same settings"),
        pytest.param({}, {"text_policy": TextPolicy(struck="strip")}, True, id="other texts of the same writers"),
        pytest.param({"stratify": False}, {}, True, id="an older dataset, which was not drawn alike"),
        pytest.param({}, {"stratify": False}, False, id="no longer drawn alike"),
        pytest.param({"fixed": True}, {}, False, id="no longer by a list"),
        pytest.param({}, {"fixed": True}, True, id="but for what a list says"),
        pytest.param({}, {"seed": 2}, False, id="another seed"),
        pytest.param({}, {"split": "0.5/0.25/0.25"}, False, id="other fractions"),
        pytest.param({}, {"split_by": "page"}, False, id="another unit"),
    ],
)
def test_overwriting_keeps_the_splits_of_a_dataset_made_in_the_same_way(
    pages: Path, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], stays: bool
) -> None:
    names = write(tmp_path / "list.txt", "vera\tvalidation\n")
    for options in (before, after):
        given = {**options, "fixed": names} if "fixed" in options else options
        card = prepare(pages, tmp_path / "out", writer="(.+)_", overwrite=True, **given).card
    assert (card.like is not None) is stays


def test_a_dataset_that_cannot_be_read_can_be_overwritten(pages: Path, tmp_path: Path) -> None:
    prepare(pages, tmp_path / "out", writer="(.+)_")
    write(tmp_path / "out/train/metadata.jsonl", "{cut off")
    report = prepare(pages, tmp_path / "out", writer="(.+)_", overwrite=True)
    assert report.card.like is None


def test_a_list_of_fixed_names_is_recorded(pages: Path, tmp_path: Path) -> None:
    names = write(tmp_path / "published.txt", "анна\nvera\tvalidation\n")
    report = prepare(pages, tmp_path / "out", writer="(.+)_", fixed=names)
    splits = splits_by(tmp_path / "out", "writer")
    assert (splits["анна"], splits["vera"]) == ({"test"}, {"validation"})
    assert report.card.fixed is not None
    assert (report.card.fixed.file, report.card.fixed.names) == ("published.txt", 2)


def test_a_plain_locale_makes_no_difference(pages: Path, tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from dsocr.data.prepare import prepare; "
    code += "prepare(Path(sys.argv[1]), Path(sys.argv[2])); print(sorted({'torch', 'datasets'} & set(sys.modules)))"
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHONUTF8"))}
    done = subprocess.run(
        [sys.executable, "-c", code, str(pages), str(tmp_path / "out")],
        env={**plain, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]", "reading a source needs neither torch nor datasets"
    assert prepare(pages, tmp_path / "again").card.splits == Dataset.open(tmp_path / "out").card.splits
