"""Rows of registers as CSV, Excel and Parquet."""

import csv
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from openpyxl import load_workbook

from dsocr.data.convert import convert
from dsocr.document import CellPlace, Line, Outline, Page, ProcessingStep, Region, Table, TableCell
from dsocr.formats import OUTPUT_FORMATS
from dsocr.formats.page import page_document
from dsocr.formats.registers import OWN_COLUMNS, register_rows
from dsocr.formats.xml import serialize
from tests.data.making import picture, write
from tests.raising import raises_code

STEP = ProcessingStep("dsocr", "1.2.3", "handwriting read", "", "2026-01-02T03:04:05+00:00")
FIRST = [["№", "Имена"], ["1", "Иванъ\nПетровъ"], ["2", "=1+1"]]
SECOND = [["3", "Анна"], ["4", "Марья"]]


def page_of(name: str, rows: list[list[str]], *, outside: str = "") -> Page:
    cells = list[TableCell]()
    lines = list[Line]()
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            box = Outline((100 * column, 40 * row, 100 * column + 90, 40 * row + 30))
            cell = TableCell(f"{row}-{column}", box, CellPlace(row, column))
            cells.append(cell)
            for part in text.split("\n") if text else []:
                prediction = {"confidence": 0.5 + 0.1 * row}
                lines.append(Line(part, f"{name}#{len(lines)}", box, Region(cell.id, box), prediction=prediction))
    if outside:
        lines.append(Line(outside, f"{name}#x", Outline((0, 500, 90, 530)), Region("note")))
    table = Table("t", None, tuple(cells))
    return Page(Path(f"{name}.jpg"), name, name, tuple(lines), size=(600, 600), tables=(table,))


PAGES = [page_of("a", FIRST, outside="подпись"), page_of("b", SECOND)]


def test_a_row_of_the_table_is_a_row_and_headings_hold_for_the_pages_after() -> None:
    rows = list(register_rows(PAGES))
    assert [row.cells for row in rows] == [
        {"№": "1", "Имена": "Иванъ\nПетровъ"},
        {"№": "2", "Имена": "=1+1"},
        {"outside": "подпись"},
        {"№": "3", "Имена": "Анна"},
        {"№": "4", "Имена": "Марья"},
    ]
    assert [(row.facts["page"], row.facts["table"], row.facts["row"]) for row in rows] == [
        ("a", 1, 1),
        ("a", 1, 2),
        ("a", None, None),
        ("b", 1, 1),
        ("b", 1, 2),
    ]
    assert (rows[0].facts["confidence"], rows[0].facts["box"]) == (0.6, "0,40 190,70")
    assert rows[0].facts["link"].startswith("file:///")
    assert rows[0].facts["link"].endswith("/a.jpg")


def test_a_title_over_all_columns_is_above_the_names_of_the_columns() -> None:
    page = page_of("a", [["Книга 5", "", ""], ["№", "Имена", "Лѣта"], ["1", "Иванъ", "20"], ["2", "Анна", "30"]])
    (table,) = page.tables
    cells = [cell for cell in table.cells if cell.place.row or not cell.place.column]
    cells[0] = replace(cells[0], place=CellPlace(0, 0, column_span=3))
    found = list(register_rows([replace(page, tables=(replace(table, cells=tuple(cells)),))]))
    assert [list(row.cells.values()) for row in found] == [["1", "Иванъ", "20"], ["2", "Анна", "30"]]
    assert all(name.endswith(end) for name, end in zip(found[0].cells, ["№", "Имена", "Лѣта"], strict=True))


def test_a_year_under_a_heading_without_a_ruling_is_no_heading() -> None:
    page = page_of("a", [["№", "Имена"], ["", "1908, іюль"], ["1", "Иванъ"], ["2", "Анна"]])
    (table,) = page.tables
    cells = [cell for cell in table.cells if (cell.place.row, cell.place.column) != (1, 0)]
    cells[0] = replace(cells[0], place=CellPlace(0, 0, row_span=2))
    found = list(register_rows([replace(page, tables=(replace(table, cells=tuple(cells)),))]))
    assert [row.cells["Имена"] for row in found] == ["1908, іюль", "Иванъ", "Анна"]


def test_a_table_of_another_width_takes_no_foreign_headings() -> None:
    rows = list(register_rows([PAGES[0], page_of("c", [["1", "2", "3"], ["4", "5", "6"]])]))
    assert list(rows[-1].cells) == ["column 1", "column 2", "column 3"]


def test_headings_over_columns_numbers_of_columns_and_names_that_occur_twice() -> None:
    rows = [["№", "Лѣта", ""], ["", "муж.", "муж."], ["1", "2", "3"], ["1", "20", "40"], ["2", "21", "41"]]
    page = page_of("a", rows)
    (table,) = page.tables
    cells = [cell for cell in table.cells if (cell.place.row, cell.place.column) != (0, 2)]
    cells[1] = replace(cells[1], place=CellPlace(0, 1, column_span=2))
    found = list(register_rows([replace(page, tables=(replace(table, cells=tuple(cells)),))]))
    assert [row.cells for row in found] == [
        {"№": "1", "Лѣта / муж.": "20", "Лѣта / муж. (3)": "40"},
        {"№": "2", "Лѣта / муж.": "21", "Лѣта / муж. (3)": "41"},
    ]


def test_csv_opens_in_excel_and_holds_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    OUTPUT_FORMATS["csv"].write_pages(PAGES, path, STEP)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == [*OWN_COLUMNS, "№", "Имена", "outside"]
    assert rows[1][-2] == "'=1+1"
    assert rows[2][3:] == ["", "", "", "", "", "подпись"]


def test_a_workbook_links_to_the_pictures_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    for name in ("one.xlsx", "two.xlsx"):
        OUTPUT_FORMATS["xlsx"].write_pages(PAGES, tmp_path / name, STEP)
    assert (tmp_path / "one.xlsx").read_bytes() == (tmp_path / "two.xlsx").read_bytes()
    sheet = load_workbook(tmp_path / "one.xlsx").worksheets[0]
    values = [[cell.value for cell in row] for row in sheet.iter_rows()]
    assert values[0] == ["page", "box", "table", "row", "confidence", "№", "Имена", "outside"]
    assert values[1][:6] == ["a", "0,40 190,70", 1, 1, 0.6, "1"]
    assert (values[2][6], sheet.cell(3, 7).data_type) == ("'=1+1", "s")
    link = sheet.cell(2, 1).hyperlink
    assert link
    assert link.target
    assert link.target.endswith("/a.jpg")


def test_parquet_has_the_texts_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    OUTPUT_FORMATS["parquet"].write_pages(PAGES, path, STEP)
    table = pq.read_table(path)
    assert table.column("Имена").to_pylist() == ["Иванъ\nПетровъ", "=1+1", None, "Анна", "Марья"]
    assert table.column("row").to_pylist() == [1, 2, None, 1, 2]


def test_pages_without_tables_are_an_error() -> None:
    with raises_code("no-tables"):
        list(register_rows([replace(PAGES[0], tables=())]))


def test_pages_of_page_xml_are_converted_to_rows(tmp_path: Path) -> None:
    for page in PAGES:
        picture(tmp_path / "in" / page.image.name, (600, 600))
        write(tmp_path / "in" / f"{page.name}.xml", serialize(page_document(page)[0]).decode())
    report = convert(tmp_path / "in", tmp_path / "out", to="csv")
    assert not [lost for lost in report.conversion.left_behind if "table" in lost]
    rows = (tmp_path / "out" / "transcription.csv").read_text(encoding="utf-8-sig").splitlines()
    assert rows[-1].endswith(",4,Марья,")
