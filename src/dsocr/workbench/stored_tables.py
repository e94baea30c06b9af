"""The tables of a page as they are stored: a table is the regions with its id."""

from collections.abc import Callable, Iterable, Sequence

from dsocr.document import Table, TableCell
from dsocr.registers.edits import nodes_of, whole_outline
from dsocr.workbench.stored_lines import StoredLine, StoredRegion

MAX_NODES = 40_000
"""Crossings of a table that can be shown and changed; those of a larger one stay as their file has them."""
_LETTERS = 0.3
"""Share of a line's height from its baseline up to the middle of its letters."""


def tables_of(regions: Iterable[StoredRegion], name: Callable[[StoredRegion], str] | None = None) -> list[Table]:
    """The tables among the regions of a page, in the order of their first cells.

    The id of a cell is the number of its region, or what `name` returns.
    """
    by_table: dict[str, list[TableCell]] = {}
    for region in regions:
        if region.cell:
            id_ = name(region) if name else str(region.number)
            by_table.setdefault(region.table, []).append(TableCell(id_, region.outline, region.cell))
    return [_table(id_, cells) for id_, cells in by_table.items()]


def _table(id_: str, cells: Sequence[TableCell]) -> Table:
    table = Table(id_, None, tuple(sorted(cells, key=lambda cell: (cell.place.row, cell.place.column))))
    return Table(id_, whole_outline(nodes_of(table)), table.cells)


def version_of(table: str, regions: Iterable[StoredRegion]) -> int | None:
    """The highest version of a table's cells, which changes with each of them; None if there is no such table."""
    return max((region.version for region in regions if region.cell and region.table == table), default=None)


def is_editable(cells: Sequence[TableCell]) -> bool:
    """Whether a table of a file can be shown as a grid: all its cells have outlines, and it is not too large."""
    rows, columns = Table("", None, tuple(cells)).size
    return all(cell.outline for cell in cells) and (rows + 1) * (columns + 1) <= MAX_NODES


def middle_of(line: StoredLine) -> tuple[float, float]:
    """The middle of a line's letters; its box's without a baseline."""
    left, top, right, bottom = line.outline.box
    if not line.outline.baseline:
        return (left + right) / 2, (top + bottom) / 2
    heights = [y for _, y in line.outline.baseline]
    return (left + right) / 2, max(top, sum(heights) / len(heights) - _LETTERS * (bottom - top))


def region_id(region: StoredRegion) -> str:
    """The id of a region in a file: that of the file it came from, else one by its number."""
    return region.name or f"region_{region.number}"
