"""Ten annotated pages of French registers, and how well their columns are found."""

from pathlib import Path

import pytest
from lxml import etree
from PIL import Image

from dsocr.document import Page
from dsocr.formats import parse_xml_page
from dsocr.formats.page import page_document, parse_page
from dsocr.formats.xml import serialize
from dsocr.registers import find_tables

REGISTERS = Path(__file__).parent / "registers"
PAGES = sorted(REGISTERS.glob("*.xml"))
assert len(PAGES) == 10


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_cells_fill_the_table_once_and_are_written_and_read_equal(path: Path) -> None:
    page = parse_xml_page(path)
    (table,) = page.tables
    rows, columns = table.size
    places = [(row, column) for cell in table.cells for row in cell.place.rows for column in cell.place.columns]
    assert sorted(places) == [(row, column) for row in range(rows) for column in range(columns)]
    assert columns == 7
    with Image.open(path.with_suffix(".jpg")) as image:
        assert image.size == page.size
    written = Page(Path(page.image or ""), "p", "p", tuple(page.lines), size=page.size, tables=tuple(page.tables))
    again = parse_page(etree.fromstring(serialize(page_document(written)[0])))
    assert list(again.tables) == list(page.tables)
    assert [(line.text, line.region and line.region.id) for line in again.lines] == [
        (line.text, line.region and line.region.id) for line in page.lines
    ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if "07646" in path.stem else pytest.mark.slow)
        for path in PAGES
        if "0187" not in path.stem
    ],
)
def test_columns_are_not_taken_from_the_other_side_of_the_paper_or_its_edge(path: Path) -> None:
    """Rulings show through, paper has edges, and frames are double: all were columns once."""
    page = parse_xml_page(path)
    with Image.open(path.with_suffix(".jpg")) as image:
        _, (table,) = find_tables(image.convert("RGB"), page.lines)
    assert table.size[1] == page.tables[0].size[1]
