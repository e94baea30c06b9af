"""Workbooks as tables, and files of office programs that are not read."""

import zipfile
from datetime import datetime, time
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.styles import Font

from dsocr.data.prepare import prepare
from dsocr.data.sources import open_source
from dsocr.document import Note, Page
from dsocr.formats import detect_format
from dsocr.formats.tables import read_rows, read_table
from dsocr.io.budget import Budget
from tests.data.making import picture, write
from tests.formats.making_sources import make_coco, make_page, make_pairs, make_table
from tests.formats.reading import pages, read, texts
from tests.raising import raises_code


def workbook(path: Path, *sheets: list[list[Any]], titles: str = "") -> Path:
    book = Workbook()
    book.remove(book.worksheets[0])
    for rows, title in zip_longest(sheets, titles[: len(sheets)]):
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    book.save(path)
    return path


def test_a_workbook_is_a_table(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["image", "text", "writer", None]]
    rows += [[f"{number}.png", f"строка {number}", "Анна", None] for number in range(3)]
    workbook(tmp_path / "s" / "lines.xlsx", [], rows)
    for number in range(3):
        picture(tmp_path / "s" / "scans" / f"{number}.png", colour=(255, 255, number))
    dataset = prepare(tmp_path / "s", tmp_path / "out", split="1/0/0", split_by="text")
    assert [(sample.text, sample.writer) for sample in dataset] == [(f"строка {number}", "Анна") for number in range(3)]
    assert [sample.source for sample in dataset] == [f"lines.xlsx:{number + 2}" for number in range(3)]


def struck_through(text: str) -> TextBlock:
    return TextBlock(InlineFont(strike=True), text)


@pytest.mark.parametrize(
    ("value", "code", "text"),
    [
        pytest.param("a", "General", "a", id="text"),
        pytest.param("'=1+1", "General", "'=1+1", id="an apostrophe"),
        pytest.param("a_x000D_\nb", "@", "a\r\nb", id="a line break of Windows"),
        pytest.param("0,5", "0000", "0,5", id="a text among numbers"),
        pytest.param(None, "0000", "", id="nothing"),
        pytest.param(1905.0, "General", "1905", id="a year as spreadsheets keep numbers"),
        pytest.param(2.5, "General", "2.5", id="a fraction"),
        pytest.param(1, "0000", "0001", id="leading zeros"),
        pytest.param(0.05, "0%", "5%", id="per cent"),
        pytest.param(0.125, "0.0%", "12.5%", id="parts of per cent"),
        pytest.param(3.1, "0.00", "3.10", id="two decimals"),
        pytest.param(1.005, "0.00", "1.01", id="half a hundredth"),
        pytest.param(-5, '"№ "0', "-№ 5", id="a negative number"),
        pytest.param(-5, "0;[Red](0)", None, id="a negative number in brackets"),
        pytest.param(7, '"л. "0\\ "об."', "л. 7 об.", id="words around a number"),
        pytest.param(5, "#,##0[$₽-419]", None, id="a currency"),
        pytest.param(datetime(1905, 5, 12), "DD.MM.YYYY", "12.05.1905", id="a date"),
        pytest.param(datetime(1905, 5, 2), 'd.m.yy" г."', "2.5.05 г.", id="a short date"),
        pytest.param(datetime(1905, 5, 12, 10, 5), "[$-419]yyyy-mm-dd hh:mm;@", "1905-05-12 10:05", id="with time"),
        pytest.param(time(10, 30), "H:MM", "10:30", id="a time"),
        pytest.param(time(9, 5, 7), "hh:mm:ss;@", "09:05:07", id="a time with seconds"),
        pytest.param(datetime(1905, 5, 12), 'd" мм hh: "m', "12 мм hh: 5", id="words in a date"),
        pytest.param(datetime(1905, 5, 12), "[$-F800]d.m.yyyy", None, id="a system's format"),
        pytest.param(time(0, 9, 5), "mm:ss", None, id="minutes without hours"),
        pytest.param(datetime(1905, 5, 12), "dd\\.mm\\.yyyy;@", "12.05.1905", id="a date as Excel writes its format"),
        pytest.param(True, "General", "TRUE", id="a logical value"),
        pytest.param(1234567.891234, "General", None, id="digits that may be cut"),
        pytest.param(12345678901234567890, "0", None, id="digits that are lost"),
        pytest.param(1861, "#,##0", None, id="a separator of thousands"),
        pytest.param(0.5, "# ?/?", None, id="a fraction with a bar"),
        pytest.param(5, "[>3]0;0.0", None, id="a condition"),
        pytest.param(datetime(1905, 5, 12), "mm-dd-yy", None, id="a date as the computer has it"),
        pytest.param(datetime(1905, 5, 12), "dd/mm/yyyy", None, id="a separator as the computer has it"),
        pytest.param(datetime(1905, 5, 12), "d mmmm yyyy", None, id="the name of a month"),
        pytest.param(datetime(1900, 2, 1), "dd.mm.yyyy", None, id="a day that Excel counts in another way"),
        pytest.param("12", '"л. "@', None, id="words around a text"),
        pytest.param("=A1&B1", "General", None, id="a formula without a result"),
    ],
)
def test_a_cell_is_what_it_shows(value: Any, code: str, text: str | None, tmp_path: Path) -> None:
    book = Workbook()
    book.worksheets[0].append(["image", "text", "end"])
    book.worksheets[0].append(["a.png", value, "end"])
    book.worksheets[0]["B2"].number_format = code
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx", {})
    assert table.rows == ([(2, {"image": "a.png", "text": text, "end": "end"})] if text is not None else [])
    assert [f"{number} {reason[:2]}" for number, reason in table.skipped] == ([] if text is not None else ["2 B2"])


LINES = [["image", "text"], ["a.png", "раз"], ["b.png", "два"]]
RUSSIAN = [["Фонд 12, опись 3"], [], ["№", "Имя файла", "Расшифровка"], [7, "c.png", "три"]]
READ = {"2": "раз", "3": "два"}


@pytest.mark.parametrize(
    ("sheets", "lines", "notes"),
    [
        pytest.param([LINES, RUSSIAN], {"A!2": "раз", "A!3": "два", "B!4": "три"}, ["row 3 ", "'№'"], id="two tables"),
        pytest.param([[["Пишите строку за строкой"]], LINES], READ, ["'A'"], id="an instruction"),
        pytest.param([LINES, [["c.png", "три"]]], READ, ["'B'"], id="a sheet without headings"),
        pytest.param([LINES[1:], [["c.png", "три"]]], {"A!1": "раз", "A!2": "два", "B!1": "три"}, [], id="no headings"),
        pytest.param([[["image", "text", "Text"], ["c.png", "1", "2"]]], {}, [], id="two texts"),
        pytest.param([[[*row, "?"] for row in LINES[1:]]], {}, [], id="columns that nothing tells apart"),
        pytest.param([[*LINES, ["c.png", None, "?"]]], READ | {"4": ""}, ["columns C "], id="a column without heading"),
        pytest.param([[["image", 1], *LINES]], {"3": "раз", "4": "два"}, ["row 2 "], id="a row above the headings"),
        pytest.param([[*LINES, ["c.png", True]]], READ | {"4": "ИСТИНА"}, ["its own words"], id="a Russian's Excel"),
    ],
)
def test_sheets_with_columns_are_read_and_the_rest_is_named(
    sheets: Any, lines: dict[str, str], notes: list[str], tmp_path: Path
) -> None:
    workbook(tmp_path / "t.xlsx", *sheets, titles="ABC")
    for name in "abc":
        picture(tmp_path / f"{name}.png")
    items = read("table", tmp_path)
    assert {page.where.removeprefix("t.xlsx:"): page.lines[0].text for page in pages(items)} == lines
    messages = [item.message for item in items if isinstance(item, Note)]
    assert len(messages) == len(notes)
    assert all(note in message for note, message in zip(notes, messages, strict=True))


def test_a_merged_cell_holds_for_its_rows_and_a_merged_text_for_none(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    rows: list[list[Any]] = [["image", "text"], ["a.png", "раз"], [None, "два"], ["b.png", "три"], [None, None]]
    rows += [["c.png", "трое"], ["d.png"], ["e.png", "e"], [None, None]]
    book = load_workbook(workbook(path, rows))
    for merged in ("A2:A3", "A4:A5", "B4:B5", "B6:B7", "A8:A9", "C1:D1", "A1:A1"):
        book.worksheets[0].merge_cells(merged)
    book.save(path)
    table = read_table(path, {})
    assert [(number, *cells.values()) for number, cells in table.rows] == [
        *[(2, "a.png", "раз"), (3, "a.png", "два"), (4, "b.png", "три"), (8, "e.png", "e"), (9, "e.png", "")],
    ]
    assert [(number, reason.split()[0]) for number, reason in table.skipped] == [(6, "B6:B7"), (7, "B6:B7")]


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        pytest.param(CellRichText("раз, ", struck_through("два")), "раз,", id="a part"),
        pytest.param(CellRichText(struck_through("раз"), ", два"), ", два", id="a part before"),
        pytest.param("раз", None, id="a cell"),
        pytest.param(1905, None, id="a number"),
        pytest.param(CellRichText(TextBlock(InlineFont(b=True), "раз"), ", два"), "раз", id="all but a part"),
    ],
)
def test_struck_out_text_obeys_the_policy(cell: Any, kept: str | None, tmp_path: Path) -> None:
    book = Workbook()
    for row in LINES:
        book.worksheets[0].append(row)
    book.worksheets[0]["B3"] = cell
    if not isinstance(cell, CellRichText) or (isinstance(cell[1], str) and kept == "раз"):
        book.worksheets[0]["B3"].font = Font(strike=True)
    picture(tmp_path / "s" / "a.png")
    picture(tmp_path / "s" / "b.png", colour="red")
    book.save(tmp_path / "s" / "t.xlsx")
    for action, left in (("keep", ["раз", str(cell)]), ("strip", ["раз", kept]), ("drop-line", ["раз"])):
        dataset = prepare(
            tmp_path / "s", tmp_path / action, split="1/0/0", split_by="text", text_policy=[f"struck={action}"]
        )
        assert [sample.text for sample in dataset] == [text for text in left if text is not None]


def damaged(path: Path) -> None:
    path.write_bytes(b"PK\3\4 and then nothing of the kind")


def locked(path: Path) -> None:
    path.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2048))


def no_workbook(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")


def not_xml(path: Path) -> None:
    with zipfile.ZipFile(workbook(path, [["image", "text"]])) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, b"<html>" if "sheet1" in name else content)


@pytest.mark.parametrize("make", [damaged, locked, no_workbook, not_xml])
def test_what_is_no_workbook_is_an_error(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "t.xlsx")
    with raises_code("table-unreadable", where="t.xlsx"):
        read_rows(tmp_path / "t.xlsx", {})


def test_an_empty_workbook_has_no_table(tmp_path: Path) -> None:
    with raises_code("table-empty"):
        read_rows(workbook(tmp_path / "t.xlsx", []), {})


def test_a_workbook_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.formats.sheets.MAX_TEXT_BYTES", 2**20)
    path = workbook(tmp_path / "t.xlsx", [["image", "text"]])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", bytes(5 * 2**20))
    with raises_code("too-large"):
        read_rows(path, {})


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
ROWS = b'<row r="1"><c r="A1"><v>1</v></c></row><row r="2000000000"><c r="A2"><v>1</v></c></row>'


def with_sheet(path: Path, rows: bytes, name: str) -> Path:
    """A workbook whose sheet has these rows, in a part of this name."""
    with zipfile.ZipFile(workbook(path, [["image", "text"]])) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    del parts["xl/worksheets/sheet1.xml"]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content.replace(b"xl/worksheets/sheet1.xml", name.encode()))
        archive.writestr(name, SHEET + rows + b"</sheetData></worksheet>")
    return path


@pytest.mark.parametrize(
    ("rows", "suffix", "code"),
    [
        pytest.param(b"<row/>" * 1_200_000, "bin", "too-large", id="a part of another kind"),
        pytest.param(ROWS, "xml", "table-unreadable", id="a row far below"),
        pytest.param(b"<row><c/></row>" * 400_000, "xml", "too-large", id="1,200,000 elements"),
    ],
)
def test_a_small_workbook_takes_little_time(
    rows: bytes, suffix: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.formats.sheets._MAX_SIGNS", 1_000_000)
    path, began = with_sheet(tmp_path / "t.xlsx", rows, f"xl/worksheets/sheet1.{suffix}"), process_time()
    with raises_code(code):
        read_rows(path, {})
    assert process_time() - began < 3


def test_cells_beyond_the_budget_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "t.xlsx", [["a"] * 20] * 20)
    monkeypatch.setattr("dsocr.formats.sheets.Budget", partial(Budget, elements=200))
    with raises_code("too-large"):
        read_rows(path, {})


@pytest.mark.parametrize("name", ["letters.docx", "letters.odt", "lines.xls", "lines.ods"])
def test_other_files_of_offices_get_a_sentence(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "s" / name, "PK")
    with raises_code("file-kind-unread", where=name):
        prepare(path, tmp_path / "out")
    picture(tmp_path / "s" / "a.png")
    with raises_code("no-format-found") as caught:
        prepare(tmp_path / "s", tmp_path / "out")
    assert name in str(caught.value.hint)
    with open_source(tmp_path / "s", tmp_path / "unpacked") as opened:
        assert [item for item in opened.items if isinstance(item, Note)]


@pytest.mark.parametrize("make", [make_page, make_pairs, make_coco, make_table])
def test_files_that_are_no_tables_are_named_and_do_not_stop_a_folder(make: Any, tmp_path: Path) -> None:
    expected = make(tmp_path / "s")
    strangers = {"опись.csv": "Опись;Листов\nЛетопись;20\n".encode("cp1251"), "пусто.csv": b"", "a.xlsx": b"PK"}
    strangers |= {"другая.tsv": "Опись\tЛистов\n1\t20\n".encode(), "~$a.xlsx": b"user"}
    for name, content in strangers.items():
        (tmp_path / "s" / name).write_bytes(content)
    with open_source(tmp_path / "s", tmp_path / "unpacked") as opened:
        items = [*opened.items, *detect_format(opened.path, None, {}).read(opened.path, {})]
    assert [text.strip() for text in texts(items)] == [text.strip() for text in expected]
    named = [item.message if isinstance(item, Note) else item.where for item in items if not isinstance(item, Page)]
    assert {name for name in strangers if any(message.startswith(name) for message in named)} == {*strangers}
