"""Read the regions of ALTO and PAGE files as a workbench stores them."""

from lxml import etree

from dsocr.document import CellPlace
from dsocr.formats.alto import parse_outline as parse_alto_outline
from dsocr.formats.page import parse_outline as parse_page_outline
from dsocr.formats.table_regions import TABLE_ID, parse_cells
from dsocr.formats.xml import (
    UNGROUPED_BLOCK,
    alto_kind,
    only_page,
    page_kind,
    parse_region,
    parse_xml_bytes,
    tag_labels,
)
from dsocr.workbench.stored_lines import StoredRegion, is_editable

CONTAINERS = ("TextRegion", "TableCell", "TextBlock")
"""Elements that lines are in; a region is known by its place among them."""


def read_regions(raw: bytes) -> list[tuple[StoredRegion, tuple[int, ...]]]:
    """The text regions and cells of an ALTO or PAGE file, in its own pixels, each with its lines, counted from 0.

    The block of lines without a region and regions without an outline are left out, and Transkribus' cells of tables
    that cannot be shown as a grid.
    """
    root = parse_xml_bytes(raw)
    page = only_page(root)
    is_alto = etree.QName(root).localname == "alto"
    labels = tag_labels(root)
    places = {line: place for place, line in enumerate(page.iter("{*}TextLine"))}
    cells = {} if is_alto else _read_cells(page)
    regions = []
    for element, container in enumerate(page.iter(*(f"{{*}}{name}" for name in CONTAINERS))):
        id_ = container.get("ID" if is_alto else "id") or ""
        parse = parse_alto_outline if is_alto else parse_page_outline
        outline = parse_region(container, "ID" if is_alto else "id", parse).outline
        table, cell = cells.get(container, ("", None))
        is_lost = cell is None and etree.QName(container).localname == "TableCell"
        if outline is None or id_ == UNGROUPED_BLOCK or is_lost:
            continue
        kind = alto_kind(container, labels) if is_alto else page_kind(container)
        lines = tuple(places[line] for line in container.iterchildren("{*}TextLine"))
        regions.append((StoredRegion(0, 0, outline, kind, id_, element, table=table, cell=cell), lines))
    return regions


def _read_cells(page: etree._Element) -> dict[etree._Element, tuple[str, CellPlace]]:
    """The table and place of cells in tables that can be shown as a grid; each table has an id of its own."""
    places: dict[etree._Element, tuple[str, CellPlace]] = {}
    taken: set[str] = set()
    for number, table in enumerate(page.iter("{*}TableRegion")):
        id_ = table.get("id") or ""
        id_ = id_ if id_ and id_ not in taken else f"{TABLE_ID}_{number}"
        taken.add(id_)
        cells = dict(parse_cells(table, parse_page_outline))
        if cells and is_editable(list(cells.values())):
            places |= {child: (id_, cell.place) for child, cell in cells.items()}
    return places
