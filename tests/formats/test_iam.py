"""IAM as it is published: lists of lines and forms, images in folders of their form."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.document import Item, Note, SkipReason, Split
from tests.data.making import picture, write
from tests.formats.reading import pages, read, skipped
from tests.raising import raises_code

HEAD = "#--- lines.txt ---#\n# a01-000u-00  -> line id for form a01-000u\n"
ROW = 'a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to|stop|Mr.|Gaitskell|"from"\n'
TEXT = 'A MOVE to stop Mr. Gaitskell "from"'


def read_iam(folder: Path, rows: str) -> list[Item]:
    write(folder / "ascii" / "lines.txt", HEAD + rows)
    return read("iam", folder)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param(ROW, TEXT, id="bars are spaces"),
        pytest.param(ROW.replace(" ok ", " err "), TEXT, id="err is about the words"),
        pytest.param(ROW.replace("\n", "\r\n"), TEXT, id="Windows' line ends"),
        pytest.param("a01-000u-00 ok 1 2 -1 4 5 6 B B|C D\n", "B B C D", id="spaces in the text"),
    ],
)
@pytest.mark.parametrize(
    ("forms", "writer"), [("", None), ("# head\na01-000u 000 2 prt 7 5 52 36\n", "000")], ids=["no forms", "forms"]
)
def test_a_row_is_read(tmp_path: Path, row: str, text: str, forms: str, writer: str | None) -> None:
    picture(tmp_path / "lines" / "a01" / "a01-000u" / "a01-000u-00.png")
    write(tmp_path / "ascii" / "forms.txt", forms)
    (item,) = pages(read_iam(tmp_path, row))
    assert (item.lines[0].text, item.where) == (text, "ascii/lines.txt:3")
    assert (item.name, item.page, item.writer) == ("lines/a01/a01-000u/a01-000u-00", "a01-000u", writer)


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
    items = read_iam(tmp_path, "z99-000-00 ok 1 2 3 4 5 6 Z\n" + row)
    assert skipped(items)[-1] == (reason, "ascii/lines.txt:4")


def four_lines(folder: Path) -> str:
    """Rows of two lines of each of two forms, their images written."""
    rows = ""
    for form in ("a01-000u", "b02-000"):
        for line in ("00", "01"):
            picture(folder / "lines" / f"{form}-{line}.png")
            rows += f"{form}-{line} ok 1 2 3 4 5 6 text|{form}|{line}\n"
    return rows


TRAIN, VALIDATION, TEST = Split


@pytest.mark.parametrize(
    ("lists", "kind", "splits"),
    [
        pytest.param(
            {"trainset.txt": "a01-000u-00\na01-000u-01\n", "validationset1.txt": "b02-000-00", "testset.txt": ""},
            "the official task",
            [TRAIN, TRAIN, VALIDATION],
            id="official, by line; what is in no list is skipped",
        ),
        pytest.param(
            {"validationset2.txt": "a01-000u-00", "validationset1.txt": "a01-000u-01", "testset.txt": "b02-000-00"},
            "the official task",
            [VALIDATION, VALIDATION, TEST],
            id="both validation sets are one",
        ),
        pytest.param(
            {"train.uttlist": "a01-000u\r\n", "validation.uttlist": "", "test.uttlist": "b02-000"},
            "Aachen (uttlist)",
            [TRAIN, TRAIN, TEST, TEST],
            id="Aachen, by form",
        ),
        pytest.param(
            {"tr.lst": "a01-000u-00", "va.lst": "a01-000u-01", "te.lst": "b02-000-00\nb02-000-01"},
            "lists of lines (lst)",
            [TRAIN, VALIDATION, TEST, TEST],
            id="lists of papers",
        ),
        pytest.param(
            {"train.ln": "lines/a01-000u-00.png\na01-000u-01.png\n", "test.ln": "b02-000-00.png"},
            "lists of lines (ln)",
            [TRAIN, TRAIN, TEST],
            id="lists of images",
        ),
    ],
)
def test_published_lists_give_the_splits(tmp_path: Path, lists: dict[str, str], kind: str, splits: list[Split]) -> None:
    rows = four_lines(tmp_path)
    for name, content in lists.items():
        write(tmp_path / "splits" / name, content)
    note, *items = read_iam(tmp_path, rows)
    assert isinstance(note, Note)
    assert f"{kind}: splits/" in note.message
    assert [page.split for page in pages(items)] == splits
    assert [reason for reason, _ in skipped(items)] == [SkipReason.NO_SPLIT] * (4 - len(splits))


@pytest.mark.parametrize(
    ("second", "content", "code"),
    [
        pytest.param("aachen/test.uttlist", "a01-000u", "splits-ambiguous", id="two published splits"),
        pytest.param("testset.txt", "a01-000u-00", "splits-conflict", id="a line in two lists"),
    ],
)
def test_contradicting_lists_are_an_error(tmp_path: Path, second: str, content: str, code: str) -> None:
    rows = four_lines(tmp_path)
    write(tmp_path / "trainset.txt", "a01-000u-00")
    write(tmp_path / second, content)
    with raises_code(code):
        read_iam(tmp_path, rows)


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
