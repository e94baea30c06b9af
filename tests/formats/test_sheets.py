"""Workbooks as tables, and files of office programs that are not read."""

import time
import zipfile
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from dsocr.data.prepare import prepare
from dsocr.data.sources import open_source
from dsocr.document import Note
from dsocr.formats.tables import read_rows, read_sheet
from dsocr.io.budget import Budget
from tests.data.making import picture, write
from tests.raising import raises_code


def workbook(path: Path, *sheets: list[list[Any]]) -> Path:
    book = Workbook()
    book.remove(book.worksheets[0])
    for rows in sheets:
        sheet = book.create_sheet()
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("a", "a", id="text"),
        pytest.param(1905, "1905", id="a year"),
        pytest.param(1905.0, "1905", id="a year as spreadsheets keep numbers"),
        pytest.param(2.5, "2.5", id="a fraction"),
        pytest.param(datetime(1999, 5, 7), "1999-05-07", id="a date"),
        pytest.param(date(1999, 5, 7), "1999-05-07", id="a day"),
        pytest.param(None, "", id="nothing"),
        pytest.param("'=1+1", "'=1+1", id="an apostrophe"),
    ],
)
def test_cells_are_texts(value: object, text: str, tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", [["image", "text", "end"], [], ["a.png", value, "end"]])
    assert read_rows(path, {})[1] == [(3, {"image": "a.png", "text": text, "end": "end"})]


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
    monkeypatch.setattr("dsocr.formats.tables.MAX_TEXT_BYTES", 2**20)
    path = workbook(tmp_path / "t.xlsx", [["image", "text"]])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", bytes(5 * 2**20))
    with raises_code("too-large"):
        read_sheet(path)


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
    monkeypatch.setattr("dsocr.formats.tables._MAX_SIGNS", 1_000_000)
    path, began = with_sheet(tmp_path / "t.xlsx", rows, f"xl/worksheets/sheet1.{suffix}"), time.process_time()
    with raises_code(code):
        read_sheet(path)
    assert time.process_time() - began < 3


def test_cells_beyond_the_budget_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "t.xlsx", [["a"] * 20] * 20)
    monkeypatch.setattr("dsocr.formats.tables.Budget", partial(Budget, elements=200))
    with raises_code("too-large"):
        read_sheet(path)


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
