"""The tables of a page as they are stored: their cells, and where their rulings cross.

A table is the regions whose `cell` names it. `nodes` is an array (rows + 1, columns + 1, 2) of the points (x, y) where
its rulings cross, in pixels of the page: a ruling between columns is `nodes[:, place]`, between rows `nodes[place]`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dsocr.document import Outline, Table, TableCell
from dsocr.formats.table_regions import cell_corners
from dsocr.workbench.stored_lines import CellPlace, StoredLine, StoredRegion, contains

Nodes = NDArray[np.float64]

MAX_NODES = 40_000
"""Crossings of a table that can be shown and changed; those of a larger one stay as their file has them."""
_LETTERS = 0.3
"""Share of a line's height from its baseline up to the middle of its letters."""


@dataclass(frozen=True, slots=True)
class GridTable:
    """A table of a page. `nodes` are where its rulings cross, `version` changes with every change of a cell."""

    id: str
    cells: tuple[StoredRegion, ...]
    nodes: Nodes = field(compare=False)

    @property
    def version(self) -> int:
        """The highest version of its cells."""
        return max(cell.version for cell in self.cells)

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return len(self.nodes) - 1, self.nodes.shape[1] - 1

    @property
    def outline(self) -> Outline:
        """The outline between the four corners."""
        rows, columns = self.size
        return outline_in(self.nodes, CellPlace(self.id, 0, 0, rows, columns))

    def cell_at(self, line: StoredLine) -> StoredRegion | None:
        """The cell that the middle of a line's letters is in."""
        x, y = middle_of(line)
        return self.cell_around(x, y)

    def cell_around(self, x: float, y: float) -> StoredRegion | None:
        """The cell around a point."""
        for cell in self.cells:
            left, top, right, bottom = cell.outline.box
            if left <= x <= right and top <= y <= bottom and contains(cell.outline.border, x, y):
                return cell
        return None


def place_of(cell: StoredRegion) -> CellPlace:
    """The place of a region that is a cell."""
    assert cell.cell is not None
    return cell.cell


def tables_of(regions: Iterable[StoredRegion]) -> list[GridTable]:
    """The tables among the regions of a page, in the order of their first cells."""
    by_table: dict[str, list[StoredRegion]] = {}
    for region in regions:
        if region.cell:
            by_table.setdefault(region.cell.table, []).append(region)
    return [GridTable(id_, _in_order(cells), nodes_of(cells)) for id_, cells in by_table.items()]


def _in_order(cells: Sequence[StoredRegion]) -> tuple[StoredRegion, ...]:
    return tuple(sorted(cells, key=lambda cell: (place_of(cell).row, place_of(cell).column)))


def is_editable(cells: Sequence[tuple[CellPlace, Outline | None]]) -> bool:
    """Whether a table of a file can be shown as a grid: all its cells have outlines, and it is not too large."""
    rows = max(place.row + place.rows for place, _ in cells)
    columns = max(place.column + place.columns for place, _ in cells)
    return all(outline for _, outline in cells) and (rows + 1) * (columns + 1) <= MAX_NODES


def nodes_of(cells: Sequence[StoredRegion]) -> Nodes:
    """Where the rulings of a table cross: the mean of the corners of the cells there.

    Where no cell has a corner, a ruling between columns is as far right as at the corners next to it along the ruling,
    and one between rows as far down.
    """
    rows = max(place_of(cell).row + place_of(cell).rows for cell in cells)
    columns = max(place_of(cell).column + place_of(cell).columns for cell in cells)
    sums, counts = np.zeros((rows + 1, columns + 1, 2)), np.zeros((rows + 1, columns + 1))
    for cell in cells:
        border, place = cell.outline.border, place_of(cell)
        for corner, (row, column) in zip(cell_corners(border), _corner_nodes(place), strict=True):
            sums[row, column] += border[corner]
            counts[row, column] += 1
    known = counts > 0
    points = sums / np.maximum(counts, 1)[..., None]
    return np.stack([_filled(points[..., 0], known), _filled(points[..., 1].T, known.T).T], axis=-1)


def _corner_nodes(place: CellPlace) -> tuple[tuple[int, int], ...]:
    """Row and column of the nodes of a cell's corners: upper left, lower left, lower right, upper right."""
    bottom, right = place.row + place.rows, place.column + place.columns
    return (place.row, place.column), (bottom, place.column), (bottom, right), (place.row, right)


def _filled(values: Nodes, known: NDArray[np.bool_]) -> Nodes:
    """Fill in what is not known along each column, and columns of which nothing is known from their neighbours."""
    filled, places = values.copy(), np.arange(len(values))
    has_any = np.flatnonzero(known.any(axis=0))
    for column in has_any:
        at = np.flatnonzero(known[:, column])
        filled[:, column] = np.interp(places, at, values[at, column])
    for other in set(range(values.shape[1])) - set(has_any.tolist()):
        filled[:, other] = [np.interp(other, has_any, row[has_any]) for row in filled]
    return filled


def outline_in(nodes: Nodes, place: CellPlace) -> Outline:
    """The outline of a cell between rulings."""
    points = (nodes[row, column] for row, column in _corner_nodes(place))
    return Outline.of_polygon(tuple((round(x), round(y)) for x, y in points))


def refitted(cell: StoredRegion, place: CellPlace, old: Nodes, new: Nodes) -> StoredRegion:
    """A cell at its place in a changed table; it keeps the outline that it has, if its corners stay."""
    before = [old[node] for node in _corner_nodes(place_of(cell))]
    after = [new[node] for node in _corner_nodes(place)]
    if np.array_equal(before, after):
        return replace(cell, cell=place)
    return replace(cell, cell=place, outline=outline_in(new, place))


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


def as_tables(regions: Iterable[StoredRegion]) -> tuple[Table, ...]:
    """The tables of a page as formats write them."""
    return tuple(
        Table(
            table.id,
            table.outline,
            tuple(
                TableCell(
                    region_id(cell), cell.outline, place.row, place.column, place.rows, place.columns, place.is_heading
                )
                for cell in table.cells
                for place in [place_of(cell)]
            ),
        )
        for table in tables_of(regions)
    )


def overlapping(first: CellPlace, second: CellPlace) -> bool:
    """Whether two cells of a table have a place in common."""
    return (
        first.row < second.row + second.rows
        and second.row < first.row + first.rows
        and first.column < second.column + second.columns
        and second.column < first.column + first.columns
    )


def around(*places: CellPlace) -> CellPlace:
    """The smallest place around several; it is a heading if all of them are."""
    row, column = min(place.row for place in places), min(place.column for place in places)
    bottom = max(place.row + place.rows for place in places)
    right = max(place.column + place.columns for place in places)
    is_heading = all(place.is_heading for place in places)
    return CellPlace(places[0].table, row, column, bottom - row, right - column, is_heading)
