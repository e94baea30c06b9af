"""Change the rulings and cells of a table by hand.

`nodes_of` returns the points (x, y) where its rulings cross, an array (rows + 1, columns + 1, 2): a ruling between
columns is `nodes[:, place]`, one between rows `nodes[place]`. Cells keep their ids; new ones have none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dsocr.document import CellPlace, Outline, Point, Table, TableCell
from dsocr.errors import DataError
from dsocr.formats.table_regions import cell_corners
from dsocr.outlines import contains

Nodes = NDArray[np.float64]

Axis = Literal["row", "column"]
"""What the rulings are between."""

_LEAST_AREA = 1.0
"""Square pixels of a cell's corners, below which a moved ruling crosses the one beside it."""

Placed = tuple[TableCell, CellPlace]
"""A cell and its place in the changed table; those of one cell after the first are new."""


def nodes_of(table: Table) -> Nodes:
    """Return where the rulings of a table cross: the mean of the corners of the cells there.

    Where no cell has a corner, a ruling between columns is as far right as at the corners next to it along the ruling,
    and one between rows as far down.
    """
    rows, columns = table.size
    sums, counts = np.zeros((rows + 1, columns + 1, 2)), np.zeros((rows + 1, columns + 1))
    for cell in table.cells:
        if cell.outline:
            border, nodes = cell.outline.border, cell.place.corners
            np.add.at(sums, nodes, [border[corner] for corner in cell_corners(border)])
            np.add.at(counts, nodes, 1)
    known = counts > 0
    points = sums / np.maximum(counts, 1)[..., None]
    return np.stack([_filled(points[..., 0], known), _filled(points[..., 1].T, known.T).T], axis=-1)


def _filled(values: Nodes, known: NDArray[np.bool_]) -> Nodes:
    """Interpolate unknown values along their column, and columns without any between their neighbours."""
    filled, places = values.copy(), np.arange(len(values))
    has_any = np.flatnonzero(known.any(axis=0))
    for column in has_any:
        at = np.flatnonzero(known[:, column])
        filled[:, column] = np.interp(places, at, values[at, column])
    for other in set(range(values.shape[1])) - set(has_any.tolist()):
        filled[:, other] = [np.interp(other, has_any, row[has_any]) for row in filled]
    return filled


def cell_at(table: Table, x: float, y: float) -> int | None:
    """Return which cell of a table is around a point, counted from 0."""
    for number, cell in enumerate(table.cells):
        if cell.outline:
            left, top, right, bottom = cell.outline.box
            if left <= x <= right and top <= y <= bottom and contains(cell.outline.border, x, y):
                return number
    return None


def whole_outline(nodes: Nodes) -> Outline:
    """Return the outline of a table between its four corners."""
    return _outline_in(nodes, CellPlace(0, 0, len(nodes) - 1, nodes.shape[1] - 1))


def _outline_in(nodes: Nodes, place: CellPlace) -> Outline:
    return Outline.of_polygon(tuple((round(x), round(y)) for x, y in nodes[place.corners].tolist()))


def move_ruling(table: Table, axis: Axis, place: int, points: Sequence[Point]) -> Table:
    """Move the points of a ruling, one for each ruling that it crosses. Raises DataError if it would cross another."""
    before = _turned(nodes_of(table), axis)
    nodes = before.copy()
    nodes[:, place] = points
    turns = np.sign(np.median(_turns(before))) * _turns(nodes)[..., max(place - 1, 0) : place + 1]
    if (turns < _LEAST_AREA).any():
        hint = "remove the ruling between them first"
        raise DataError("the ruling would cross another ruling", code="edit-invalid", hint=hint)
    return _rebuilt(table, ((cell, cell.place) for cell in table.cells), _turned(nodes, axis))


def add_ruling(table: Table, axis: Axis, at: tuple[float, float]) -> Table:
    """Add a ruling through a point, as bent and skewed as those beside it; cells over several columns stay whole.

    Raises DataError if the point is outside the table or at another ruling.
    """
    nodes = _turned(nodes_of(table), axis)
    band, share = _band_at(nodes, at)
    between = nodes[:, band] + share * (nodes[:, band + 1] - nodes[:, band])
    cells = (
        (cell, _turned_place(part, axis))
        for cell in table.cells
        for part in _with_column(_turned_place(cell.place, axis), band)
    )
    return _rebuilt(table, cells, _turned(np.insert(nodes, band + 1, between, axis=1), axis))


def remove_ruling(table: Table, axis: Axis, place: int) -> Table:
    """Remove a ruling: cells beside it become one, an outer one takes its row or column. DataError for the last one."""
    nodes = _turned(nodes_of(table), axis)
    last = nodes.shape[1] - 1
    parts = [(cell, _without_column(_turned_place(cell.place, axis), place, last)) for cell in table.cells]
    cells = [(cell, _turned_place(part, axis)) for cell, part in parts if part.column_span]
    if last < 2 or not cells:
        hint = "remove the table, or move the ruling"
        raise DataError("a table has at least one row and one column", code="table-empty", hint=hint)
    return _rebuilt(table, _without_overlaps(cells), _turned(np.delete(nodes, place, axis=1), axis))


def join_cells(table: Table, area: CellPlace) -> Table:
    """Make one cell of those in an area. Raises DataError for fewer than two."""
    inside = [cell for cell in table.cells if cell.place.overlaps(area)]
    if len(inside) < 2:
        hint = "choose several with Shift and a click"
        raise DataError("two cells or more can be joined", code="edit-invalid", hint=hint)
    joined = _around(*(cell.place for cell in inside))
    cells = [(cell, joined if cell is inside[0] else cell.place) for cell in table.cells]
    return _rebuilt(table, _without_overlaps(cells), nodes_of(table))


def split_cells(table: Table, area: CellPlace) -> Table:
    """Make one cell for each row and column of the cells in an area. Raises DataError if all cover one of each."""
    cells: list[Placed] = []
    for cell in table.cells:
        if cell.place.overlaps(area):
            heading = cell.place.is_heading
            cells += [
                (cell, CellPlace(row, column, is_heading=heading))
                for row in cell.place.rows
                for column in cell.place.columns
            ]
        else:
            cells.append((cell, cell.place))
    if len(cells) == len(table.cells):
        hint = "add a ruling through it"
        raise DataError("the cell is in one row and one column", code="edit-invalid", hint=hint)
    return _rebuilt(table, cells, nodes_of(table))


def _turned(nodes: Nodes, axis: Axis) -> Nodes:
    """Nodes whose second axis is that of the rulings."""
    return nodes if axis == "column" else nodes.transpose(1, 0, 2)


def _turned_place(place: CellPlace, axis: Axis) -> CellPlace:
    if axis == "column":
        return place
    return CellPlace(place.column, place.row, place.column_span, place.row_span, place.is_heading)


def _turns(nodes: Nodes) -> Nodes:
    """The areas (4, rows, columns) between the two sides at each corner of a cell; their sign is the way round it."""
    corners = np.stack([nodes[:-1, :-1], nodes[1:, :-1], nodes[1:, 1:], nodes[:-1, 1:]])
    sides = np.roll(corners, -1, axis=0) - corners
    return _cross(sides, np.roll(sides, -1, axis=0))


def _cross(first: Nodes, second: Nodes) -> Nodes:
    return np.asarray(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0])


def _band_at(nodes: Nodes, at: tuple[float, float]) -> tuple[int, float]:
    """The two rulings around a point, by the first of them, and the share of the way between them."""
    for row, band in np.ndindex(len(nodes) - 1, nodes.shape[1] - 1):
        sides = nodes[row : row + 2, band], nodes[row : row + 2, band + 1]
        if contains([*map(tuple, sides[0]), *map(tuple, sides[1][::-1])], *at):
            first, second = (
                abs(float(_cross(end - begin, at - begin) / max(np.hypot(*(end - begin)), 1))) for begin, end in sides
            )
            if min(first, second) >= 1:
                return band, first / (first + second)
    hint = "click inside the table, between two rulings"
    raise DataError("there is no room for a ruling", code="edit-invalid", hint=hint)


def _with_column(place: CellPlace, band: int) -> list[CellPlace]:
    """The cells that a cell becomes when the column `band` is divided."""
    if place.columns.stop <= band:
        return [place]
    if place.column > band:
        return [replace(place, column=place.column + 1)]
    if place.column_span > 1:
        return [replace(place, column_span=place.column_span + 1)]
    return [place, replace(place, column=band + 1)]


def _without_column(place: CellPlace, ruling: int, last: int) -> CellPlace:
    """Return the place of a cell after a ruling (0 to `last`) is removed; no columns if its only one goes."""
    kept = [column - (column >= ruling > 0) - (ruling == 0) for column in (place.column, place.columns.stop - 1)]
    begin, end = max(kept[0], 0), min(kept[1], last - 2) + 1
    return replace(place, column=begin, column_span=max(end - begin, 0))


def _without_overlaps(cells: Iterable[Placed]) -> list[Placed]:
    """Join cells that overlap; the first of them stays."""
    ordered = sorted(cells, key=lambda placed: (placed[1].row, placed[1].column))
    size = max(place.rows.stop for _, place in ordered), max(place.columns.stop for _, place in ordered)
    owners = np.full(size, -1)
    kept: dict[int, Placed] = {}
    for number, (cell, place) in enumerate(ordered):
        key = number
        while hit := set(np.unique(owners[_slices(place)]).tolist()) - {-1, key}:
            key = min(hit | {key})
            cell = kept[key][0] if key in kept else cell
            place = _around(place, *(kept.pop(other)[1] for other in hit))
            owners[np.isin(owners, list(hit))] = key
        owners[_slices(place)] = key
        kept[key] = (cell, place)
    return list(kept.values())


def _slices(place: CellPlace) -> tuple[slice, slice]:
    return slice(place.row, place.rows.stop), slice(place.column, place.columns.stop)


def _around(*places: CellPlace) -> CellPlace:
    """The smallest place around several; it is a heading if all of them are."""
    row, column = min(place.row for place in places), min(place.column for place in places)
    bottom, right = max(place.rows.stop for place in places), max(place.columns.stop for place in places)
    return CellPlace(row, column, bottom - row, right - column, all(place.is_heading for place in places))


def _rebuilt(table: Table, cells: Iterable[Placed], nodes: Nodes) -> Table:
    """Give a table other cells and rulings; a cell keeps its outline while its corners stay."""
    before = nodes_of(table)

    def changed() -> Iterator[TableCell]:
        kept: set[str] = set()
        for cell, place in cells:
            is_new = cell.id in kept
            stays = not is_new and np.array_equal(before[cell.place.corners], nodes[place.corners])
            yield TableCell("" if is_new else cell.id, cell.outline if stays else _outline_in(nodes, place), place)
            kept.add(cell.id)

    ordered = sorted(changed(), key=lambda cell: (cell.place.row, cell.place.column))
    return Table(table.id, whole_outline(nodes), tuple(ordered))
