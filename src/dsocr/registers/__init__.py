"""Find tables on a page: columns between rulings or gutters, rows between rulings or by baselines, and their cells.

Everything is measured in the upright frame of `rulings.Frame`, with `height` the median height of the page's lines.
Prose has no tables: there are three columns with text, or two ruled ones that are filled side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image
from scipy.ndimage import uniform_filter1d

from dsocr.document import CellPlace, Line, Outline, Point, Region, Table, TableCell
from dsocr.outlines import quarter_turns
from dsocr.registers.cells import Span, cut_at_rulings, place_lines
from dsocr.registers.columns import MIN_COLUMNS, MIN_ROWS, Item, columns_of_pages, free_columns, ruled_columns
from dsocr.registers.rows import MIN_LINES, Grid, divide_heading, drop_ends, find_rows
from dsocr.registers.rulings import STEEPEST, Frame, Rulings, find_rulings

_FILLED_ROWS = 0.4
"""Share of the rows that have it."""
_SHORT_LINE = 7.0
"""Heights up to which lines are those of a table; half of the columns without rulings have such."""
_ANGLE_STEP = 0.1
"""Degrees between the angles that a page may be turned by."""
_LEVEL = 0.15
"""Heights in which baselines are on a level."""


def find_tables(page: Image.Image, lines: Sequence[Line], *, split: bool = True) -> tuple[list[Line], list[Table]]:
    """Return the lines of a page, those of tables in the regions of their cells and cell by cell, and the tables.

    With `split` a line over several cells is cut where the column ends; without it the lines keep their number and
    order, for files that are filled in.
    """
    numbered = [replace(line, index=number) for number, line in enumerate(lines)]
    upright = [line for line in numbered if line.outline and line.outline.baseline and not quarter_turns(line.outline)]
    if len(upright) < MIN_LINES:
        return list(lines), []
    rulings = find_rulings(page, _slope(upright))
    frame = rulings.frame
    height = float(np.median([_height(line.outline) for line in upright if line.outline])) * frame.scale
    items = [_item(line, frame, height) for line in upright]
    tables: list[Table] = []
    parts: Parts = {}
    for number, grid in enumerate(_grids(items, rulings, height, page.size), start=1):
        spans = place_lines(grid, items, height, frame, split=split)
        tables.append(_table(grid, spans, number, frame, page.size))
        _collect(grid, spans, tables[-1], number, parts)
    if not tables:
        return list(lines), []
    if split:
        return _arrange(numbered, parts), tables
    kept = (parts[number][0][1] if number in parts else line for number, line in enumerate(lines))
    return [replace(line, index=first.index) for line, first in zip(kept, lines, strict=True)], tables


def _slope(lines: Sequence[Line]) -> float:
    """Return the angle at which the baselines of a page are level with themselves and with those beside them.

    The baselines of short lines, as numbers, are not exact enough by themselves.
    """
    baselines = [np.array(line.outline.baseline, dtype=np.float64) for line in lines if line.outline]
    height = float(np.median([_height(line.outline) for line in lines if line.outline]))
    parts = []
    for baseline in baselines:
        left, right = baseline[[0, -1], 0]
        across = np.linspace(left, right, max(round(abs(right - left) / height), 1) + 1)
        order = np.argsort(baseline[:, 0])
        parts.append(np.stack([across, np.interp(across, *baseline[order].T)], axis=1))
    x, y = np.concatenate(parts).T
    angles = np.radians(np.arange(-STEEPEST, STEEPEST + _ANGLE_STEP / 2, _ANGLE_STEP))
    unit = _LEVEL * height
    scores = []
    for angle in angles:
        places = (y * np.cos(angle) - x * np.sin(angle)) / unit
        counts = np.bincount((places - places.min()).astype(np.int64)).astype(np.float64)
        scores.append(float((uniform_filter1d(counts, 3, mode="constant") ** 2).sum()))
    return float(angles[int(np.argmax(scores))])


def _height(outline: Outline) -> float:
    """Return how high a line is: its area by its length."""
    points = np.array(outline.border, dtype=np.float64)
    x, y = points.T
    area = abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2
    return area / max(float(np.ptp(x)), 1.0)


def _item(line: Line, frame: Frame, height: float) -> Item:
    assert line.outline
    points = frame.of_page(line.outline.baseline)
    return Item(line, float(points[:, 0].min()), float(points[:, 0].max()), float(points[:, 1].mean()) - 0.3 * height)


def _grids(items: Sequence[Item], rulings: Rulings, height: float, size: tuple[int, int]) -> Iterator[Grid]:
    """Yield the tables of a page."""
    for is_ruled in (True, False):
        between = ruled_columns(items, rulings, height) if is_ruled else free_columns(items, height)
        grids = []
        for edges, uprights, top, bottom in columns_of_pages(between, items, height, size, rulings.frame.scale):
            # A detector joins numbers over a ruling, which are those of rows only one by one.
            parts = [part for item in items for part in cut_at_rulings(item, edges, uprights, height, rulings.frame)]
            grid = find_rows(edges, uprights, top, bottom, parts, rulings, height)
            if grid:
                drop_ends(grid, parts)
                divide_heading(grid, parts, height)
            if grid and _is_table(grid, parts, height):
                grids.append(grid)
        if grids:
            yield from grids
            return


def _is_table(grid: Grid, items: Sequence[Item], height: float) -> bool:
    """Whether enough columns have text, side by side in enough rows."""
    filled: dict[int, set[int]] = {}
    widths: dict[int, list[float]] = {}
    count = len(grid.edges) - 1
    for item in items:
        row, column = grid.row_of(item), grid.column_of(item)
        if 0 <= row < len(grid.rows) - 1 and 0 <= column < count:
            filled.setdefault(row, set()).add(column)
            widths.setdefault(column, []).append(item.width)
    used = [column for column, lengths in widths.items() if len(lengths) >= 2]
    beside = sum(len(columns) >= 2 for columns in filled.values())
    if beside < max(MIN_ROWS, _FILLED_ROWS * len(filled)):
        return False
    is_ruled = any(grid.rulings)
    if is_ruled:
        inner = sum(ruling is not None for ruling in grid.rulings)
        is_list = len(used) == 2 and inner >= 3 and beside >= 0.6 * len(filled)
        return is_list or (len(used) >= MIN_COLUMNS and inner >= 2)
    short = sum(float(np.median(widths[column])) <= _SHORT_LINE * height for column in used)
    return len(used) >= MIN_COLUMNS and 2 * short >= len(used)


def _table(grid: Grid, spans: Sequence[Span], number: int, frame: Frame, size: tuple[int, int]) -> Table:
    def corners(row: int, column: int, deep: int, width: int) -> tuple[Point, ...]:
        sides = grid.edges[column], grid.edges[column + width]
        places = []
        for side, down in ((0, 0), (0, 1), (1, 1), (1, 0)):
            v = grid.rows[row + deep * down]
            u = sides[side](v)
            places.append((sides[side](v + grid.bend(u)), v + grid.bend(u)))
        return frame.to_page(places, size)

    cells = tuple(
        TableCell(
            f"t{number}r{row + 1}c{column + 1}",
            Outline.of_polygon(corners(row, column, deep, width)),
            CellPlace(row, column, deep, width, row + deep <= grid.heading_rows),
        )
        for row, column, deep, width in spans
    )
    whole = corners(0, 0, len(grid.rows) - 1, len(grid.edges) - 1)
    return Table(f"t{number}", Outline.of_polygon(whole), cells)


Parts = dict[int, list[tuple[tuple[int, ...], Line]]]
"""The parts of each line by its number, each with its place among the lines of tables."""


def _collect(grid: Grid, spans: Sequence[Span], table: Table, number: int, parts: Parts) -> None:
    """Add the lines of a table's cells."""
    regions = {(cell.place.row, cell.place.column): Region(cell.id, cell.outline) for cell in table.cells}
    for row, column, _, _ in spans:
        for order, item in enumerate(
            sorted(grid.items.get((row, column), ()), key=lambda item: (item.middle, item.left))
        ):
            line = replace(item.line, region=regions[row, column])
            assert item.line.index is not None
            parts.setdefault(item.line.index, []).append(((number, row, column, order), line))


def _arrange(lines: Sequence[Line], parts: Parts) -> list[Line]:
    """Return all lines: those of tables by cells, where the first of them was."""
    in_tables = [
        line for _, line in sorted((part for group in parts.values() for part in group), key=lambda part: part[0])
    ]
    arranged: list[Line] = []
    for line in lines:
        if line.index not in parts:
            arranged.append(line)
        elif in_tables:
            arranged += in_tables
            in_tables = []
    return [replace(line, index=number) for number, line in enumerate(arranged)]
