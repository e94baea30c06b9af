"""Tables of PAGE XML: written, valid, and read back equal, by the schema and as Transkribus has them."""

from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from dsocr.data.convert import convert
from dsocr.document import CellPlace, Line, Outline, Page, Region, Table, TableCell
from dsocr.formats.page import NEWEST, TRANSKRIBUS, page_document, parse_page
from dsocr.formats.xml import serialize
from tests.data.making import picture, write

SCHEMA = Path(__file__).parent / "schemas" / "page-2019-lines.xsd"


def quad(left: int, top: int, right: int, bottom: int) -> Outline:
    """A box as a polygon, as Transkribus orders its corners."""
    return Outline.of_polygon(((left, top), (left, bottom), (right, bottom), (right, top)))


HEADING = TableCell("h", quad(10, 10, 210, 30), CellPlace(0, 0, 1, 2, is_heading=True))
CELLS = (
    HEADING,
    TableCell("a", quad(10, 30, 110, 90), CellPlace(1, 0, 2, 1)),
    TableCell("b", quad(110, 30, 210, 60), CellPlace(1, 1)),
    TableCell("empty", quad(110, 60, 210, 90), CellPlace(2, 1)),
)
TABLE = Table("t", quad(10, 10, 210, 90), CELLS)


def lines_of(*cells: TableCell) -> list[Line]:
    lines = []
    for number, cell in enumerate(cells):
        assert cell.outline
        region = Region(cell.id, cell.outline)
        lines.append(Line(f"слово {number}", "", quad(*cell.outline.box), region, id=f"l{number}"))
    return lines


def page_of(lines: list[Line], *tables: Table) -> Page:
    return Page(Path("p.png"), "p", "p", tuple(lines), size=(300, 200), tables=tables)


def read_back(page: Page, version: str) -> tuple[list[tuple[str, str, str]], list[Table]]:
    root = etree.fromstring(serialize(page_document(page, version)[0]))
    if version == NEWEST:
        etree.XMLSchema(etree.parse(SCHEMA)).assertValid(root)
    parsed = parse_page(root)
    return [(line.region.id if line.region else "", line.id, line.text) for line in parsed.lines], list(parsed.tables)


@pytest.mark.parametrize("version", [NEWEST, TRANSKRIBUS])
def test_a_table_is_read_as_it_was_written(version: str) -> None:
    page = page_of([*lines_of(*CELLS[:3])], TABLE)
    lines, tables = read_back(page, version)
    assert tables == [TABLE]
    assert lines == [("h", "l0", "слово 0"), ("a", "l1", "слово 1"), ("b", "l2", "слово 2")]


@pytest.mark.parametrize("version", [NEWEST, TRANSKRIBUS])
def test_two_tables_and_text_between_keep_their_order(version: str) -> None:
    second = Table("u", quad(10, 120, 60, 150), (TableCell("c", quad(10, 120, 60, 150), CellPlace(0, 0)),))
    note = Line("между", "", quad(10, 100, 60, 118), Region("n", quad(10, 100, 60, 118)), id="note")
    first, last = lines_of(*CELLS[:3]), [replace(lines_of(second.cells[0])[0], id="last")]
    # Lines of a table that are read after others are written with it: an element cannot be in two places.
    lines, tables = read_back(page_of([*first[:2], note, first[2], *last], TABLE, second), version)
    assert [line[0] for line in lines] == ["h", "a", "b", "n", "c"]
    assert tables == [TABLE, second]


def test_cells_are_the_elements_that_other_programs_look_for() -> None:
    page = page_of(lines_of(*CELLS[:3]), TABLE)
    of_schema, of_transkribus = (page_document(page, version)[0] for version in (NEWEST, TRANSKRIBUS))
    roles = [dict(role.attrib) for role in of_schema.iter("{*}TableCellRole")]
    assert roles[0] == {"rowIndex": "0", "columnIndex": "0", "rowSpan": "1", "colSpan": "2", "header": "true"}
    assert {(table.get("rows"), table.get("columns")) for table in of_schema.iter("{*}TableRegion")} == {("3", "2")}
    cells = list(of_transkribus.iter("{*}TableCell"))
    assert [(cell.get("row"), cell.get("col")) for cell in cells] == [("0", "0"), ("1", "0"), ("1", "1"), ("2", "1")]
    assert {cell.findtext("{*}CornerPts") for cell in cells} == {"0 1 2 3"}


@pytest.mark.parametrize("number", ["-1", "x", "", "99999999"])
def test_cells_without_a_usable_row_make_no_table_and_lose_no_line(number: str) -> None:
    root = page_document(page_of(lines_of(*CELLS[:3]), TABLE), TRANSKRIBUS)[0]
    for cell in root.iter("{*}TableCell"):
        cell.set("row", number)
    parsed = parse_page(root)
    assert list(parsed.tables) == []
    assert [line.text for line in parsed.lines] == ["слово 0", "слово 1", "слово 2"]


@pytest.mark.parametrize(("target", "lost"), [("page", []), ("page-2013", []), ("alto", ["tables: 1"])])
def test_conversion_keeps_tables_or_says_that_it_does_not(target: str, lost: list[str], tmp_path: Path) -> None:
    picture(tmp_path / "in" / "p.png", (300, 200))
    root = page_document(page_of(lines_of(*CELLS[:3]), TABLE))[0]
    write(tmp_path / "in" / "p.xml", serialize(root).decode())
    report = convert(tmp_path / "in", tmp_path / "out", to=target)
    assert report.conversion.left_behind == lost
    if not lost:
        (path,) = (tmp_path / "out").rglob("*.xml")
        assert list(parse_page(etree.parse(path).getroot()).tables) == [TABLE]
