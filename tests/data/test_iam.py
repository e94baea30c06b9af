"""IAM as it is published: lists of lines and forms, images in folders of their form."""

from pathlib import Path

import pytest

from dsocr.data.prepare import prepare
from dsocr.data.sources.iam import find_iam, read_iam
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage
from tests.data.making import picture, write

HEAD = "#--- lines.txt ---#\n# a01-000u-00  -> line id for form a01-000u\n"
ROW = 'a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE|to|stop|Mr.|Gaitskell|"from"\n'


def read(folder: Path, rows: str) -> list[SourceImage | LeftOut]:
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
    assert isinstance(item, SourceImage)
    assert (item.lines[0].text, item.where) == (text, "ascii/lines.txt:3")
    assert (item.name, item.page, item.writer) == ("lines/a01/a01-000u/a01-000u-00", "a01-000u", None)


def test_forms_tell_the_writer(tmp_path: Path) -> None:
    picture(tmp_path / "lines" / "a01-000u-00.png")
    write(tmp_path / "ascii" / "forms.txt", "# head\na01-000u 000 2 prt 7 5 52 36\n")
    (item,) = read(tmp_path, ROW)
    assert isinstance(item, SourceImage)
    assert item.writer == "000"


@pytest.mark.parametrize(
    ("images", "row", "reason"),
    [
        pytest.param([], ROW, Reason.NO_IMAGE, id="no image"),
        pytest.param(["a/a01-000u-00.png", "b/a01-000u-00.png"], ROW, Reason.NO_IMAGE, id="two images"),
        pytest.param(["a01-000u-00.png"], "a01-000u-00 ok 154 A|MOVE\n", Reason.BAD_SOURCE, id="a row cut short"),
        pytest.param(["a01-000u-00.png"], "../x-1-2 ok 1 2 3 4 5 6 A\n", Reason.BAD_SOURCE, id="a path for a name"),
    ],
)
def test_what_cannot_be_used_is_left_out(tmp_path: Path, images: list[str], row: str, reason: Reason) -> None:
    for image in images:
        picture(tmp_path / image)
    last = read(tmp_path, "z99-000-00 ok 1 2 3 4 5 6 Z\n" + row)[-1]
    assert isinstance(last, LeftOut)
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
    assert (card.source_format, card.split_by, card.left_out) == ("iam", "writer", {})
    assert [part.samples for part in card.splits.values()] == [2, 2, 2]
