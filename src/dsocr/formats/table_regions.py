"""Regions of PAGE XML with their tables: as its schema of 2019 has them, and as Transkribus writes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import cast

from lxml import etree

from dsocr.document import (
    CellPlace,
    Line,
    Outline,
    Page,
    Point,
    Table,
    TableCell,
    bounds_of_boxes,
    format_points,
    parse_points,
)
from dsocr.formats import xml
from dsocr.formats.xml import add_element

TABLE_ID = "table"
"""Begins the id of a table that has no valid one."""

HEADING = "heading"
"""Type in `custom` of Transkribus' cells that are headings, which its schema has no attribute for."""


def parse_tables(page: etree._Element) -> Iterator[Table]:
    """Yield the tables of a page that say the rows and columns of their cells."""
    for element in page.iter("{*}TableRegion"):
        cells = [cell for _, cell in parse_cells(element)]
        if cells:
            cells.sort(key=lambda cell: (cell.place.row, cell.place.column))
            region = xml.parse_region(element, {})
            yield Table(region.id, region.outline, tuple(cells))


def parse_cells(table: etree._Element) -> Iterator[tuple[etree._Element, TableCell]]:
    """Yield the elements of a table that say their row and column, each with its cell."""
    for child in table.iterchildren("{*}TableCell", "{*}TextRegion"):
        if (place := xml.cell_place(child)) is not None:
            region, role = xml.parse_region(child, {}), child.find("{*}Roles/{*}TableCellRole")
            is_heading = role is not None and role.get("header") in {"true", "1"}
            is_heading |= xml.custom_value(child, "structure", "type") == HEADING
            yield child, TableCell(region.id, region.outline, CellPlace(*place, is_heading))


def cells_together(page: Page) -> list[Line]:
    """Return the lines of a page, those of a table together, cell by cell, where its first line is."""
    cells, first = page.cells, dict[tuple[str, str], int]()

    def rank(numbered: tuple[int, Line]) -> tuple[int, int, int]:
        place, line = numbered
        table, cell = cells.get(line.region.id if line.region else "", (None, None))
        if table is None or cell is None:
            return place, place, place
        return first.setdefault(("table", table.id), place), first.setdefault(("cell", cell.id), place), place

    return [line for _, line in sorted(enumerate(page.lines), key=rank)]


@dataclass(slots=True)
class TableWriter:
    """Adds the tables of a page to a document; `roles` is the schema's way, otherwise cells are Transkribus'."""

    page: Page
    parent: etree._Element
    taken: set[str]
    roles: bool
    _elements: dict[str, etree._Element] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)

    def name(self, table: Table) -> str:
        """Return the id of a table in the document; it is added where it is named first."""
        if table.id not in self._elements:
            id_ = xml.take_id(table.id, TABLE_ID, self.taken)
            outline = table.outline or _around(table, self.page)
            element = add_outlined(self.parent, "TableRegion", id_, len(self._elements), outline)
            for key, number in table_size(table).items() if self.roles else ():
                element.set(key, number)
            self._elements[table.id] = element
        return self._elements[table.id].get("id") or ""

    def add_cell(self, cell: TableCell, table: Table, id_: str, index: int, outline: Outline) -> etree._Element:
        """Add a cell, without its lines."""
        self._written.add(cell.id)
        self.name(table)
        name = "TextRegion" if self.roles else "TableCell"
        element = add_outlined(self._elements[table.id], name, id_, index, outline)
        placed = add_element(add_element(element, "Roles", {}), "TableCellRole", {}) if self.roles else element
        for key, number in cell_numbers(cell.place, is_old=not self.roles).items():
            placed.set(key, number)
        if cell.place.is_heading and self.roles:
            placed.set("header", "true")
        elif cell.place.is_heading:
            element.set("custom", f"{element.get('custom')} {xml.custom_kind(HEADING)}")
        return element

    def finish(self) -> None:
        """Add the cells without lines, and the corners of Transkribus' cells."""
        for table in self.page.tables:
            self.name(table)
            for cell in table.cells:
                if cell.id not in self._written:
                    outline = cell.outline or table.outline or _around(table, self.page)
                    id_ = xml.take_id(cell.id, f"{TABLE_ID}_{cell.place.row}_{cell.place.column}", self.taken)
                    self.add_cell(cell, table, id_, len(self._elements[table.id]), outline)
        for element in self._elements.values():
            for child in element.iterchildren("{*}TableCell"):
                points = parse_points(next(child.iterchildren("{*}Coords")).get("points"))
                add_element(child, "CornerPts", {}, " ".join(map(str, cell_corners(points))))


def table_size(table: Table) -> dict[str, str]:
    """Return the attributes of a table's size."""
    return dict(zip(("rows", "columns"), map(str, table.size), strict=True))


def cell_numbers(cell: CellPlace, *, is_old: bool) -> dict[str, str]:
    """Return the attributes of a cell's place: of Transkribus' TableCell, or of the role that a cell has since 2017."""
    names = ("row", "col") if is_old else ("rowIndex", "columnIndex")
    return dict(zip((*names, "rowSpan", "colSpan"), map(str, astuple(cell)), strict=False))


def add_outlined(
    parent: etree._Element, name: str, id_: str, index: int, outline: Outline | None, size: tuple[int, int] = (1, 1)
) -> etree._Element:
    """Add a region or a line with its polygon, else with the outermost pixels of its box or of the image."""
    kind = "image" if outline is None else "" if outline.polygon else "box"
    custom = f"readingOrder {{index:{index};}}" + (f" outline {{type:{kind};}}" if kind else "")
    element = add_element(parent, name, {"id": id_, "custom": custom})
    left, top, right, bottom = outline.box if outline else (0, 0, *size)
    corners = (left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1)
    polygon = outline.polygon if outline else ()
    add_element(element, "Coords", {"points": drawable_points(polygon or corners)})
    return element


def drawable_points(points: Iterable[Point]) -> str:
    """Format points as PAGE allows them: none negative, and at least two."""
    moved = [(max(x, 0), max(y, 0)) for x, y in points]
    return format_points(moved * 2 if len(moved) == 1 else moved)


def _around(table: Table, page: Page) -> Outline:
    boxes = [cell.outline.box for cell in table.cells if cell.outline]
    return Outline(bounds_of_boxes(boxes or [(0, 0, *cast("tuple[int, int]", page.size))]))


def cell_corners(points: Sequence[Point]) -> list[int]:
    """Return which points of a cell are its corners: upper left, lower left, lower right, upper right."""
    ways = ((1, 1), (1, -1), (-1, -1), (-1, 1))
    places = range(len(points))
    return [min(places, key=lambda place: across * points[place][0] + down * points[place][1]) for across, down in ways]
