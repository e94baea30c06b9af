"""Find tables on a page: columns between rulings or gutters, rows between rulings or by baselines, and their cells.

Everything is measured in the upright frame of `rulings.Frame`, with `height` the median height of the page's lines.
Prose has no tables: there are three columns with text, or two ruled ones that are filled side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from dsocr.document import CellPlace, Line, Outline, Region, Table, TableCell
from dsocr.images import decode_image
from dsocr.layout import DetectOutlines, FindLines
from dsocr.layout.lines import arrange_lines
from dsocr.outlines import quarter_turns
from dsocr.registers.cells import cut_at_rulings, place_lines
from dsocr.registers.columns import (
    MIN_COLUMNS,
    MIN_ROWS,
    NUMBER,
    Item,
    columns_of_pages,
    free_columns,
    median_width,
    ruled_columns,
)
from dsocr.registers.narrow_columns import complete_columns
from dsocr.registers.rows import Grid, divide_heading, drop_ends, find_rows
from dsocr.registers.rulings import Floats, Frame, Rulings, find_rulings

LETTERS = 0.3
"""Heights of a line from its baseline up to the middle of its letters."""

FindTables = Callable[..., tuple[list[Line], list[Table]]]
"""`find_tables`, or a partial application of it."""


def find_tables(
    page: Image.Image, lines: Sequence[Line], *, split: bool = True, detect: DetectOutlines | None = None
) -> tuple[list[Line], list[Table]]:
    """Return the lines of a page, those of tables in the regions of their cells and cell by cell, and the tables.

    With `split` a line over several cells is cut where the column ends; without it the lines keep their number and
    order, for files that are filled in. `detect` looks for lines again in narrow columns, enlarged.
    """
    outlines = [outline for _, outline in _upright(lines)]
    if len(outlines) < 2 * MIN_ROWS:
        return list(lines), []
    height = _median_height(outlines)
    rulings = find_rulings(page, _baseline_points(outlines, height) / height)
    placed, tables = _find_by_rulings(lines, rulings, page.size, split=split)
    if tables and detect and split:
        known = [line.outline for line in placed if line.outline]
        completed = complete_columns(page, known, tables, detect)
        if completed != known:
            lines = arrange_lines(completed, lines[0].where.rpartition("#")[0])
            return _find_by_rulings(lines, rulings, page.size, split=True)
    return placed, tables


def find_lines_of_tables(find_lines: FindLines, detect: DetectOutlines, content: bytes, where: str) -> Sequence[Line]:
    """Find the lines on the image in a file's content, also those in narrow columns of its tables."""
    return find_tables(decode_image(content, name=where).image, find_lines(content, where), detect=detect)[0]


def _find_by_rulings(
    lines: Sequence[Line], rulings: Rulings, size: tuple[int, int], *, split: bool
) -> tuple[list[Line], list[Table]]:
    numbered = [replace(line, index=number) for number, line in enumerate(lines)]
    upright, frame = _upright(numbered), rulings.frame
    height = _median_height([outline for _, outline in upright]) * frame.scale
    items = []
    for line, outline in upright:
        u, v = frame.of_page(outline.baseline).T
        items.append(Item(line, float(u.min()), float(u.max()), float(v.mean()) - LETTERS * height, height))
    tables: list[Table] = []
    in_cells: list[Line] = []
    for number, grid in enumerate(_grids(items, rulings, size), start=1):
        places = place_lines(grid, items, frame, split=split)
        tables.append(_table(grid, places, number, frame, size))
        for cell in tables[-1].cells:
            held = grid.items.get((cell.place.row, cell.place.column), ())
            ordered = sorted(held, key=lambda item: (item.middle, item.left))
            in_cells += [replace(item.line, region=Region(cell.id, cell.outline)) for item in ordered]
    if not tables:
        return list(lines), []
    known = {line.index or 0: line for line in reversed(in_cells)}
    if not split:
        return [replace(known.get(number, line), index=line.index) for number, line in enumerate(lines)], tables
    others, first = [line for line in numbered if line.index not in known], min(known, default=0)
    arranged = [*others[:first], *in_cells, *others[first:]]
    return [replace(line, index=number) for number, line in enumerate(arranged)], tables


def _upright(lines: Sequence[Line]) -> list[tuple[Line, Outline]]:
    """Return the lines that are not along the side of the page, with their outlines."""
    outlined = [(line, line.outline) for line in lines if line.outline and line.outline.baseline]
    return [(line, outline) for line, outline in outlined if not quarter_turns(outline)]


def _baseline_points(outlines: Sequence[Outline], height: float) -> Floats:
    """Return points (n, 2) along the baselines of lines, a line's height from each other."""
    parts = []
    for outline in outlines:
        baseline = np.array(outline.baseline, dtype=np.float64)
        left, right = baseline[[0, -1], 0]
        across = np.linspace(left, right, max(round(abs(right - left) / height), 1) + 1)
        parts.append(np.stack([across, np.interp(across, *baseline[np.argsort(baseline[:, 0])].T)], axis=1))
    return np.concatenate(parts)


def _median_height(outlines: Sequence[Outline]) -> float:
    """Return the median height of lines: the area of each by its length."""
    heights = []
    for outline in outlines:
        x, y = np.array(outline.border, dtype=np.float64).T
        area = abs(float(x @ np.roll(y, 1) - y @ np.roll(x, 1))) / 2
        heights.append(area / max(float(np.ptp(x)), 1.0))
    return float(np.median(heights))


def _grids(items: Sequence[Item], rulings: Rulings, size: tuple[int, int]) -> Iterator[Grid]:
    for columns in (ruled_columns(items, rulings), free_columns(items)):
        grids = []
        gutter = size[0] * rulings.frame.scale / 2 if size[0] > size[1] else None
        for part in columns_of_pages(columns, items, gutter) if columns else ():
            # A detector joins numbers over a ruling, which are those of rows only one by one.
            cut = [piece for item in items for piece in cut_at_rulings(item, part, rulings.frame)]
            if grid := find_rows(part, cut, rulings):
                drop_ends(grid, cut)
                divide_heading(grid, cut)
                if _is_table(grid, cut):
                    grids.append(grid)
        if grids:
            yield from grids
            return


def _is_table(grid: Grid, items: Sequence[Item]) -> bool:
    """Whether enough columns have text, side by side in enough rows."""
    filled = grid.filled(items)
    by_column = grid.by_column(item for item in items if grid.cell_of(item))
    used = [members for members in by_column.values() if len(members) >= 2]
    beside = sum(len(columns) >= 2 for columns in filled.values())
    if beside < MIN_ROWS or 2 * beside < len(filled):
        return False
    if grid.is_drawn:
        drawn = sum(border.is_drawn for border in grid.columns.borders)
        return len(used) >= (2 if drawn >= MIN_COLUMNS else MIN_COLUMNS)
    short = sum(median_width(members) <= 2 * NUMBER * grid.height for members in used)
    return len(used) >= MIN_COLUMNS and 2 * short >= len(used)


def _table(grid: Grid, places: Sequence[CellPlace], number: int, frame: Frame, size: tuple[int, int]) -> Table:
    def outline(place: CellPlace) -> Outline:
        corners = []
        for row, column in zip(*place.corners, strict=True):
            border, v = grid.columns.borders[column], grid.rows[row]
            v += grid.bend(border.at(v))
            corners.append((border.at(v), v))
        return Outline.of_polygon(frame.to_page(corners, size))

    cells = (TableCell(f"t{number}r{place.row + 1}c{place.column + 1}", outline(place), place) for place in places)
    return Table(f"t{number}", outline(CellPlace(0, 0, *grid.size)), tuple(cells))
