"""IAM as it is published: lists of lines and forms, images in folders of their form."""

import re
from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Item, Note, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.iam import find_iam, read_iam
from tests.data.making import picture, write

HEAD = "#--- lines.txt ---#\n# a01-000u-00  -> line id for form a01-000u\n"
ROW = 'a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to|stop|Mr.|Gaitskell|"from"\n'


def read(folder: Path, rows: str) -> list[Item]:
    write(folder / "ascii" / "lines.txt", HEAD + rows)
    return list(read_iam(folder))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param(ROW, 'A MOVE to stop Mr. Gaitskell "from"', id="bars are spaces"),
        pytest.param(ROW.replace(" ok ", " err "), 'A MOVE to stop Mr. Gaitskell "from"', id="err is about the words"),
        pytest.param(ROW.replace("\n", "\r\n"), 'A MOVE to stop Mr. Gaitskell "from"', id="Windows' line ends"),
        pytest.param("a01-000u-00 ok 1 2 -1 4 5 6 B B|C D\n", "B B C D", id="spaces in the text"),
    ],
)
def test_a_row_is_read(tmp_path: Path, row: str, text: str) -> None:
    picture(tmp_path / "lines" / "a01" / "a01-000u" / "a01-000u-00.png")
    (item,) = read(tmp_path, row)
    assert isinstance(item, Page)
    assert (item.lines[0].text, item.where) == (text, "ascii/lines.txt:3")
    assert (item.name, item.page, item.writer) == ("lines/a01/a01-000u/a01-000u-00", "a01-000u", None)


def test_forms_tell_the_writer(tmp_path: Path) -> None:
    picture(tmp_path / "lines" / "a01-000u-00.png")
    write(tmp_path / "ascii" / "forms.txt", "# head\na01-000u 000 2 prt 7 5 52 36\n")
    (item,) = read(tmp_path, ROW)
    assert isinstance(item, Page)
    assert item.writer == "000"


@pytest.mark.parametrize(
    ("images", "row", "reason"),
    [
        pytest.param([], ROW, SkipReason.NO_IMAGE, id="no image"),
        pytest.param(["a/a01-000u-00.png", "b/a01-000u-00.png"], ROW, SkipReason.NO_IMAGE, id="two images"),
        pytest.param(["a01-000u-00.png"], "a01-000u-00 ok 154 A|MOVE\n", SkipReason.BAD_SOURCE, id="a row cut short"),
        pytest.param(["a01-000u-00.png"], "../x-1-2 ok 1 2 3 4 5 6 A\n", SkipReason.BAD_SOURCE, id="a path for a name"),
    ],
)
def test_unusable_entries_are_skipped(tmp_path: Path, images: list[str], row: str, reason: SkipReason) -> None:
    for image in images:
        picture(tmp_path / image)
    last = read(tmp_path, "z99-000-00 ok 1 2 3 4 5 6 Z\n" + row)[-1]
    assert isinstance(last, Skipped)
    assert (last.reason, last.where) == (reason, "ascii/lines.txt:4")


def test_another_list_of_lines_is_not_iam(tmp_path: Path) -> None:
    write(tmp_path / "lines.txt", "first line\nsecond line\n")
    assert find_iam(tmp_path) == []


def test_a_dataset_is_split_by_writers(tmp_path: Path) -> None:
    rows = forms = ""
    for writer in range(3):
        form = f"a01-{writer:03d}"
        forms += f"{form} {writer:03d} 1 all 2 2 9 9\n"
        for line in range(2):
            picture(tmp_path / "iam" / "lines" / form / f"{form}-{line:02d}.png", colour=(255, writer, line))
            rows += f"{form}-{line:02d} ok 1 2 3 4 5 6 text|{writer}|{line}\n"
    write(tmp_path / "iam" / "ascii" / "lines.txt", HEAD + rows)
    write(tmp_path / "iam" / "ascii" / "forms.txt", forms)
    card = prepare(tmp_path / "iam", tmp_path / "out").card
    assert (card.source_format, card.split_by, card.skipped) == ("iam", "writer", {})
    assert [part.samples for part in card.splits.values()] == [2, 2, 2]


def four_lines(folder: Path) -> str:
    """Rows of two lines of each of two forms, their images written."""
    rows = ""
    for form in ("a01-000u", "b02-000"):
        for line in ("00", "01"):
            picture(folder / "lines" / f"{form}-{line}.png")
            rows += f"{form}-{line} ok 1 2 3 4 5 6 text|{form}|{line}\n"
    return rows


@pytest.mark.parametrize(
    ("lists", "kind", "splits"),
    [
        pytest.param(
            {"trainset.txt": "a01-000u-00\na01-000u-01\n", "validationset1.txt": "b02-000-00", "testset.txt": ""},
            "the official task",
            [Split.TRAIN, Split.TRAIN, Split.VALIDATION, None],
            id="official, by line; what is in no list is left out",
        ),
        pytest.param(
            {"validationset2.txt": "a01-000u-00", "validationset1.txt": "a01-000u-01", "testset.txt": "b02-000-00"},
            "the official task",
            [Split.VALIDATION, Split.VALIDATION, Split.TEST, None],
            id="both validation sets are one",
        ),
        pytest.param(
            {"train.uttlist": "a01-000u\r\n", "validation.uttlist": "", "test.uttlist": "b02-000"},
            r"Aachen \(uttlist\)",
            [Split.TRAIN, Split.TRAIN, Split.TEST, Split.TEST],
            id="Aachen, by form",
        ),
        pytest.param(
            {"tr.lst": "a01-000u-00", "va.lst": "a01-000u-01", "te.lst": "b02-000-00\nb02-000-01"},
            r"lists of lines \(lst\)",
            [Split.TRAIN, Split.VALIDATION, Split.TEST, Split.TEST],
            id="lists of papers",
        ),
        pytest.param(
            {"train.ln": "lines/a01-000u-00.png\na01-000u-01.png\n", "test.ln": "b02-000-00.png"},
            r"lists of lines \(ln\)",
            [Split.TRAIN, Split.TRAIN, Split.TEST, None],
            id="lists of images",
        ),
    ],
)
def test_published_lists_give_the_splits(
    tmp_path: Path, lists: dict[str, str], kind: str, splits: list[Split | None]
) -> None:
    rows = four_lines(tmp_path)
    for name, content in lists.items():
        write(tmp_path / "splits" / name, content)
    remark, *items = read(tmp_path, rows)
    assert isinstance(remark, Note)
    assert re.match(f"the splits are those of {kind}: splits/", remark.message)
    assert [item.split if isinstance(item, Page) else None for item in items] == splits
    skipped = [item for item in items if isinstance(item, Skipped)]
    assert {item.reason for item in skipped} <= {SkipReason.NO_SPLIT}
    assert all(re.search(f"is in none of {kind}", item.message) for item in skipped)


def test_two_published_splits_are_a_question(tmp_path: Path) -> None:
    rows = four_lines(tmp_path)
    write(tmp_path / "trainset.txt", "a01-000u-00")
    write(tmp_path / "aachen" / "test.uttlist", "a01-000u")
    with pytest.raises(DataError, match=r"more than one split: Aachen \(uttlist\) \(test.uttlist\); the official task"):
        read(tmp_path, rows)


def test_a_line_in_two_lists_is_an_error(tmp_path: Path) -> None:
    rows = four_lines(tmp_path)
    write(tmp_path / "trainset.txt", "a01-000u-00")
    write(tmp_path / "testset.txt", "a01-000u-00")
    with pytest.raises(DataError, match="a01-000u-00 is in the test and in the train list"):
        read(tmp_path, rows)


def test_the_card_says_which_published_split_it_is(tmp_path: Path) -> None:
    write(tmp_path / "iam" / "lines.txt", HEAD + four_lines(tmp_path / "iam"))
    write(tmp_path / "iam" / "train.uttlist", "a01-000u")
    write(tmp_path / "iam" / "test.uttlist", "b02-000")
    card = prepare(tmp_path / "iam", tmp_path / "out").card
    assert card.split_by == "given"
    published, missing = card.notes
    assert published == "the splits are those of Aachen (uttlist): test.uttlist, train.uttlist"
    assert "no validation split" in missing
    assert {split: part.samples for split, part in card.splits.items()} == {Split.TRAIN: 2, Split.TEST: 2}
