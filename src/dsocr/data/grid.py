"""Find tables on a page: columns between rulings or gutters, rows between rulings or by baselines, and their cells.

Everything is measured in the upright frame of `rulings.Frame`, with `height` the median height of the page's lines.
Prose has no tables: there are three columns with text, or two ruled ones that are filled side by side.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from PIL import Image

from dsocr.data.rulings import Frame, Ruling, Rulings, find_rulings
from dsocr.data.table_columns import (
    MIN_COLUMNS,
    MIN_ROWS,
    Edge,
    Item,
    columns_of_pages,
    crosses,
    free_columns,
    group_levels,
    ruled_columns,
)
from dsocr.document import Line, Outline, Point, Region, Table, TableCell
from dsocr.outlines import quarter_turns

_MIN_LINES = 6
_FILLED_ROWS = 0.4
"""Share of the rows that have it."""
_SHORT_LINE = 7.0
"""Heights up to which lines are those of a table; half of the columns without rulings have such."""
_NUMBER = 3.5
"""Heights up to which a line is a number, a day or an age."""
_FIGURE = 2.0
"""Heights up to which a line is a number that has no second line."""
_KEYED = 0.12
"""Share of the levels from which a number at the left begins the rows."""
_UNBROKEN = 0.75
"""Share of a ruling with ink from which a gap in it means that cells are one, even if no text is across."""
_ACROSS = 0.45
"""Share of the table's width from which a level ruling is between rows."""
_OPEN = 0.4
"""Share of a ruling's usual ink below which it is interrupted, so that cells on both sides are one."""
_INDENT = 0.06
"""Share of a column's width by which a line is farther in than nine of ten others, if it is a row of its own."""
_GUIDE = 0.5
"""Share of the darkness of the darkest level rulings below which a ruling is a line to write on."""
_HEADING = 4.5
"""Heights up to which a band above the body is its heading."""
_ROW = 0.9
"""Distances between lines within which numbers are those of a row."""
_NUMBERED = 0.8
"""Share of the rows with a number in the first column, from which all have one."""
_APART = 1.5
"""Distances between lines above and below a line that is a row of its own."""
_OVERHANG, _END = 1.5, 0.12
"""Heights, and the share of its length, up to which a line may run over a ruling."""
_TALL_HEADING, _HEADED = 9.0, 0.7
"""The same, if this share of the columns has text in it."""
_MATCHING = 0.85
"""Share of the bands between faint rulings with one start of a row, from which they are rows."""


@dataclass(slots=True)
class Grid:
    """A table: borders of its columns and rows, which rulings are borders, and what is in it."""

    edges: list[Edge]
    rows: list[float]
    rulings: list[Ruling | None]
    level: list[Ruling]
    bend: Callable[[float], float]
    heading_rows: int = 0
    items: dict[tuple[int, int], list[Item]] = field(default_factory=dict)

    def row_of(self, item: Item) -> int:
        """Return the row of a line; -1 above and the number of rows below the table."""
        return int(np.searchsorted(self.rows, item.middle - self.bend(item.centre))) - 1

    def column_of(self, item: Item) -> int:
        """Return the column that the middle of a line is in."""
        return sum(edge(item.middle) <= item.centre for edge in self.edges) - 1


def find_tables(page: Image.Image, lines: Sequence[Line], *, split: bool = True) -> tuple[list[Line], list[Table]]:
    """Return the lines of a page, those of tables in the regions of their cells and cell by cell, and the tables.

    With `split` a line over several cells is cut where the column ends; without it the lines keep their number and
    order, for files that are filled in.
    """
    upright = [line for line in lines if line.outline and line.outline.baseline and not quarter_turns(line.outline)]
    if len(upright) < _MIN_LINES:
        return list(lines), []
    rulings = find_rulings(page, _slope(upright))
    frame = rulings.frame
    height = float(np.median([_height(line.outline) for line in upright if line.outline])) * frame.scale
    items = [_item(line, frame, height) for line in upright]
    tables: list[Table] = []
    parts: Parts = {}
    for number, grid in enumerate(_grids(items, rulings, height, page.size), start=1):
        spans = _place(grid, items, height, frame, split=split)
        tables.append(_table(grid, spans, number, frame, page.size))
        _collect(grid, spans, tables[-1], number, parts)
    return (_arrange(lines, parts, keep_order=not split) if tables else list(lines)), tables


def _slope(lines: Sequence[Line]) -> float:
    """Return the angle of baselines, long ones counting more."""
    ends = [(line.outline.baseline[0], line.outline.baseline[-1]) for line in lines if line.outline]
    steps = np.array([(end[0] - begin[0], end[1] - begin[1]) for begin, end in ends], dtype=np.float64)
    slopes, weights = steps[:, 1] / np.maximum(steps[:, 0], 1), np.maximum(steps[:, 0], 0)
    order = np.argsort(slopes)
    middle = int(np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2))
    return float(np.arctan(slopes[order][min(middle, len(order) - 1)]))


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
    for between in (ruled_columns(items, rulings, height), free_columns(items, height)):
        grids = []
        for edges, uprights, top, bottom in columns_of_pages(between, items, height, size, rulings.frame.scale):
            grid = _rows(edges, uprights, top, bottom, items, rulings, height)
            if grid:
                _drop_ends(grid, items)
            if grid and _is_table(grid, items, height):
                grids.append(grid)
        if grids:
            yield from grids
            return


def _rows(
    edges: list[Edge],
    uprights: list[Ruling | None],
    top: float,
    bottom: float,
    items: Sequence[Item],
    rulings: Rulings,
    height: float,
) -> Grid | None:
    """Return the grid of a table with its rows."""
    middle = (top + bottom) / 2
    left, right = edges[0](middle), edges[-1](middle)
    bend = _bend(rulings.level, left, right)
    # Where no rulings are between columns, level ones are strokes and lines to write on.
    level = [ruling for ruling in rulings.level if any(uprights) and ruling.end > left and ruling.begin < right]
    inside = [
        item
        for item in items
        if edges[0](item.middle) <= item.centre <= edges[-1](item.middle)
        and top - 0.3 * height <= item.middle <= bottom + 0.3 * height
    ]
    if len(inside) < _MIN_LINES:
        return None
    grid = Grid(edges, [], uprights, level, bend)
    borders = _borders(level, bend, left, right, top, bottom, height)
    flat = [replace(item, middle=item.middle - bend(item.centre)) for item in inside]
    unit = min(height, _pitch(flat, grid, height)) if flat else height
    starts = _starts(flat, grid, height, unit)
    strongest = max((ruling.strength for ruling in (*level, *filter(None, uprights))), default=0.0)
    strong = [ruling for ruling in level if ruling.strength >= _GUIDE * strongest]
    for rulings_of_rows, is_faint in ((strong, False), (level, True)):
        borders = _borders(rulings_of_rows, bend, left, right, top, bottom, height)
        bands = [band for band in _bands(borders, flat) if band]
        single = sum(
            sum(begin <= start + 0.4 * height < end for start in starts) == 1
            for begin, end in pairwise(borders)
            if any(begin <= item.middle < end for item in flat)
        )
        # Lines to write on are fainter than those between rows, and an entry has several.
        is_ruled = single >= _MATCHING * len(bands) if is_faint else len(bands) <= 1.3 * len(starts)
        if is_ruled and len(bands) >= 0.6 * len(starts):
            grid.level = rulings_of_rows
            grid.rows = _with_heading_rows(borders, grid.level, grid, height)
            return grid
    grid.level = strong
    borders = _borders(strong, bend, left, right, top, bottom, height)
    bands = _bands(borders, flat)
    rows = []
    body = max(range(len(bands)), key=lambda place: len(bands[place]))
    for place, ((begin, end), band) in enumerate(zip(pairwise(borders), bands, strict=True)):
        # The first row of a band begins with the band; rulings divide the heading, which is the band above the body.
        after = min((item.middle for item in band), default=end)
        is_heading = place < body and _is_heading(band, end - begin, grid, height)
        inner = [start for start in starts if after < start < end - 0.7 * unit and not is_heading]
        rows += _unique([begin, *inner], unit)
    grid.heading_rows = sum(len(band) > 0 for band in bands[:-1]) if len(bands) == 2 else 0
    grid.rows = _with_heading_rows([*rows, borders[-1]], strong, grid, height)
    if grid.heading_rows == 1 and _is_heading(bands[0], borders[1] - borders[0], grid, height):
        divided = _divide_heading(grid.rows[:2], flat, grid, height)
        grid.heading_rows += len(divided) - 2
        grid.rows[:2] = divided
    return grid


def _is_heading(band: Sequence[Item], deep: float, grid: Grid, height: float) -> bool:
    """Whether a band above the body is low, or has text in most columns, as a heading of several lines has."""
    filled = {grid.column_of(item) for item in band}
    is_filled = len(filled) >= _HEADED * (len(grid.edges) - 1)
    return deep < (_TALL_HEADING if is_filled else _HEADING) * height


def _drop_ends(grid: Grid, items: Sequence[Item]) -> None:
    """Drop rows without text above and below all others, and titles above a table without rulings."""
    count, rows = len(grid.edges) - 1, len(grid.rows) - 1
    filled: dict[int, set[int]] = {}
    for item in items:
        row, column = grid.row_of(item), grid.column_of(item)
        if 0 <= row < rows and 0 <= column < count:
            filled.setdefault(row, set()).add(column)
    if not filled:
        return
    first, last = min(filled), max(filled)
    if not any(grid.rulings):
        usual = float(np.median(np.diff(grid.rows)))
        while first < last - 1:
            share, gap = len(filled.get(first, ())) / count, grid.rows[first + 1] - grid.rows[first]
            if share > (0.4 if gap > 1.3 * usual else 0.2):
                break
            first += 1
    grid.heading_rows = max(grid.heading_rows - first, 0)
    grid.rows = grid.rows[first : last + 2]


def _bands(borders: Sequence[float], items: Sequence[Item]) -> list[list[Item]]:
    """Return the lines between each two borders."""
    return [[item for item in items if begin <= item.middle < end] for begin, end in pairwise(borders)]


def _bend(level: Sequence[Ruling], left: float, right: float) -> Callable[[float], float]:
    """Return how far rows are lower at a place than on average, as level rulings show it."""
    wide = [ruling for ruling in level if min(ruling.end, right) - max(ruling.begin, left) > 0.8 * (right - left)]
    if not wide:
        return lambda _: 0.0
    places = np.linspace(left, right, 24)
    shifts = np.array([[ruling.at(place) for place in places] for ruling in wide])
    shape = np.median(shifts - shifts.mean(axis=1, keepdims=True), axis=0)
    return lambda place: float(np.interp(place, places, shape))


def _borders(
    level: Sequence[Ruling], bend: Edge, left: float, right: float, top: float, bottom: float, height: float
) -> list[float]:
    """Return where level rulings cross most of the table, and its upper and lower end."""
    pieces = sorted(((_flat(ruling, bend), ruling) for ruling in level), key=lambda pair: pair[0])
    groups: list[list[tuple[float, Ruling]]] = []
    for piece in pieces:
        if groups and piece[0] - groups[-1][0][0] < 0.35 * height:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    crossing = [
        float(np.mean([place for place, _ in group]))
        for group in groups
        if _covered([ruling for _, ruling in group], left, right) >= _ACROSS
    ]
    crossing = [place for place in crossing if top - 0.8 * height < place < bottom + 0.8 * height]
    ends = [] if crossing and crossing[0] - top < 0.8 * height else [top]
    ends += [] if crossing and bottom - crossing[-1] < 0.8 * height else [bottom]
    return _unique([*crossing, *ends], height)


def _flat(ruling: Ruling, bend: Edge) -> float:
    return float(np.mean([across - bend(along) for along, across in zip(ruling.along, ruling.across, strict=True)]))


def _covered(rulings: Sequence[Ruling], left: float, right: float) -> float:
    """Return the share of a stretch that any of the rulings has ink on."""
    width = max(int(right - left), 1)
    ink = np.zeros(width, dtype=bool)
    for ruling in rulings:
        start = ruling.first - int(left)
        begin, end = max(start, 0), min(start + len(ruling.ink), width)
        if begin < end:
            ink[begin:end] |= ruling.ink[begin - start : end - start]
    return float(ink.mean())


def _unique(places: Sequence[float], height: float) -> list[float]:
    """Return places in order, without those too near the one before for a line between them."""
    kept: list[float] = []
    for place in sorted(places):
        if not kept or place - kept[-1] >= 0.7 * height:
            kept.append(place)
    return kept


def _with_heading_rows(rows: list[float], level: Sequence[Ruling], grid: Grid, height: float) -> list[float]:
    """Add rulings that divide a heading under the heading of several columns."""
    if len(rows) < 2:
        return rows
    begin, end = rows[:2]
    for ruling in level:
        place = _flat(ruling, grid.bend)
        if begin + 0.7 * height < place < end - 0.7 * height:
            borders = [edge(place) for edge in grid.edges]
            crossed = [
                ruling.coverage(first, last) >= 0.6 for first, last in pairwise(borders) if last - first > height
            ]
            if any(first and second for first, second in pairwise(crossed)):
                grid.heading_rows = max(grid.heading_rows + 1, 2)
                return [begin, place, *rows[1:]]
    return rows


def _divide_heading(ends: Sequence[float], items: Sequence[Item], grid: Grid, height: float) -> list[float]:
    """Return the borders of heading rows: what is over several columns is above what is in each of them."""
    begin, end = ends
    inside = [item for item in items if begin <= item.middle < end]
    above, below = list[float](), list[float]()
    for place, edge in enumerate(grid.edges[1:-1], start=1):
        over = [item.middle for item in inside if crosses(item, edge, height)]
        if not over:
            continue
        under = [item for item in inside if item.middle > max(over) + 0.4 * height]
        sides = [[item.middle for item in under if grid.column_of(item) == side] for side in (place - 1, place)]
        if all(sides):
            above.append(max(over))
            below.append(min(map(min, sides)))
    if not above or max(above) >= min(below):
        return [begin, end]
    return [begin, (max(above) + min(below)) / 2, end]


def _starts(items: Sequence[Item], grid: Grid, height: float, unit: float) -> list[float]:
    """Return where rows begin: at the numbers on their left if there are any, else at each level.

    `unit` is how far lines usually are below each other.
    """
    if not items:
        return []
    levels = _heading_levels(group_levels(items, unit), grid, unit)
    by_column: dict[int, list[Item]] = {}
    for item in items:
        by_column.setdefault(grid.column_of(item), []).append(item)
    widths = {column: float(np.median([item.width for item in members])) for column, members in by_column.items()}
    keys: set[int] = set()
    for column in range(len(grid.edges) - 1):
        if widths.get(column, math.inf) > (_FIGURE if column else _NUMBER) * height:
            break
        keys.add(column)
    begins = _key_levels(levels, keys, grid, unit)
    if len(begins) < max(2, _KEYED * len(levels)):
        begins = set(range(len(levels)))
    narrow = {column for column, width in widths.items() if width <= _FIGURE * height}
    starts, own_row = list[float](), False
    numbers: set[int] = set()
    """Columns of numbers that the row has text in; a number has one line."""
    for place, level in enumerate(levels):
        is_section = _is_section(level, items, grid, height) or _stands_alone(levels, place, unit)
        numbers_of_level = {grid.column_of(item) for item in level} & narrow
        if place in begins or is_section or own_row or place == 0 or (numbers & numbers_of_level - keys):
            numbers = set()
            before = max((item.middle for item in levels[place - 1]), default=0.0) if place else None
            first = min(item.middle for item in level)
            starts.append(first - 0.7 * height if before is None else max((before + first) / 2, first - height))
        own_row = is_section
        numbers |= numbers_of_level
    return starts


def _pitch(items: Sequence[Item], grid: Grid, height: float) -> float:
    """Return how far a line usually is below the one before it in its column."""
    columns: dict[int, list[float]] = {}
    for item in items:
        columns.setdefault(grid.column_of(item), []).append(item.middle)
    steps = [step for middles in columns.values() for step in np.diff(sorted(middles)).tolist() if step > 0.3 * height]
    return float(np.percentile(steps, 25)) if steps else height


def _key_levels(levels: Sequence[Sequence[Item]], keys: set[int], grid: Grid, unit: float) -> set[int]:
    """Return the levels that rows with numbers on the left begin at.

    The numbers of a row may be a little higher or lower than its text, so they are grouped first. Where nearly all
    groups have a number in the first column, the others are second lines of a date.
    """
    groups: list[dict[int, tuple[int, float]]] = []
    """Of each row with numbers, the level and the height of that of each column."""
    for place, level in enumerate(levels):
        for item in sorted(level, key=lambda item: item.middle):
            column = grid.column_of(item)
            if column not in keys:
                continue
            group = groups[-1] if groups else {}
            first = min((middle for _, middle in group.values()), default=-math.inf)
            if column in group or item.middle - first > _ROW * unit:
                groups.append({})
            groups[-1][column] = place, item.middle
    numbered = [group for group in groups if 0 in group]
    if len(numbered) >= _NUMBERED * len(groups):
        groups = numbered
    filled = [len({grid.column_of(item) for item in level}) for level in levels]
    return {max((place for place, _ in group.values()), key=lambda place: (filled[place], -place)) for group in groups}


def _heading_levels(levels: list[list[Item]], grid: Grid, height: float) -> list[list[Item]]:
    """Join levels at the top that are less than a line apart and in other columns, as headings in the middle are."""
    joined: list[list[Item]] = []
    for place, level in enumerate(levels):
        before = joined[-1] if joined else []
        near = bool(before) and min(item.middle for item in level) - max(item.middle for item in before) < 0.95 * height
        columns = {grid.column_of(item) for item in level}
        if place < 6 and near and not columns & {grid.column_of(item) for item in before}:
            joined[-1] = before + level
        else:
            joined.append(level)
    return joined


def _stands_alone(levels: Sequence[Sequence[Item]], place: int, unit: float) -> bool:
    """Whether a level is a single line with more space above and below it than lines have."""
    if len(levels[place]) != 1 or not 0 < place < len(levels) - 1:
        return False
    middle = levels[place][0].middle
    above, below = max(item.middle for item in levels[place - 1]), min(item.middle for item in levels[place + 1])
    return min(middle - above, below - middle) >= _APART * unit


def _is_section(level: Sequence[Item], others: Sequence[Item], grid: Grid, height: float) -> bool:
    """Whether a line is a row of its own, as the name of a month or a village over all columns.

    Rulings are interrupted for it; without rulings it is over two columns, or far from where its column begins.
    """
    if len(level) != 1:
        return False
    (item,) = level
    rulings = [ruling for ruling in grid.rulings[1:-1] if ruling]
    if rulings:
        begin, end = item.middle - 0.35 * height, item.middle + 0.35 * height
        opened = [ruling.coverage(begin, end) < _OPEN * ruling.coverage(ruling.begin, ruling.end) for ruling in rulings]
        return len(opened) >= 2 and sum(opened) >= 0.7 * len(opened)
    if any(crosses(item, edge, height) for edge in grid.edges[1:-1]):
        return True
    column = grid.column_of(item)
    lefts = [other.left for other in others if other is not item and grid.column_of(other) == column]
    if len(lefts) < 3 or not 0 <= column < len(grid.edges) - 1:
        return False
    width = grid.edges[column + 1](item.middle) - grid.edges[column](item.middle)
    return item.left - float(np.percentile(lefts, 90)) > max(height, _INDENT * width)


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


Span = tuple[int, int, int, int]
"""Row, column, row span and column span."""


def _place(grid: Grid, items: Sequence[Item], height: float, frame: Frame, *, split: bool) -> list[Span]:
    """Put lines into cells, cutting those over several, and return the cells."""
    count, rows = len(grid.edges) - 1, len(grid.rows) - 1
    joined: set[tuple[int, int]] = set()
    """Cells that are one with the cell on their right."""
    inside = [(grid.row_of(item), item) for item in items]
    inside = [(row, item) for row, item in inside if 0 <= row < rows and 0 <= grid.column_of(item) < count]
    for row, item in inside:
        for place in range(1, count):
            is_over = row == 0 and grid.heading_rows > 1  # which is how the heading was found to have two rows
            if crosses(item, grid.edges[place], height) and (is_over or _is_open(grid, row, place)):
                joined.add((row, place - 1))
    filled = {(row, grid.column_of(item)) for row, item in inside}
    for row in range(rows):
        for place in range(1, count):
            ruling = grid.rulings[place]
            is_whole = ruling is not None and ruling.coverage(ruling.begin, ruling.end) >= _UNBROKEN
            if is_whole and not {(row, place - 1), (row, place)} <= filled and _is_open(grid, row, place):
                joined.add((row, place - 1))
    for row in range(rows):
        opened = [place for place in range(1, count) if grid.rulings[place] and _is_open(grid, row, place)]
        ruled = sum(ruling is not None for ruling in grid.rulings[1:-1])
        if ruled >= 2 and len(opened) >= 0.7 * ruled and sum(other == row for other, _ in inside) <= 1:
            joined |= {(row, place - 1) for place in opened}
    for row, item in inside:
        for part in _cut(item, grid, row, joined, height, frame) if split else [item]:
            column = min(max(grid.column_of(part), 0), count - 1)
            while (row, column - 1) in joined:
                column -= 1
            grid.items.setdefault((row, column), []).append(part)
    return list(_spans(grid, joined, height))


def _is_open(grid: Grid, row: int, place: int) -> bool:
    """Whether the ruling between two columns is interrupted in a row."""
    ruling = grid.rulings[place]
    if ruling is None:
        return True
    shift = grid.bend(ruling.at((grid.rows[row] + grid.rows[row + 1]) / 2))
    begin, end = grid.rows[row] + shift + 3, grid.rows[row + 1] + shift - 3
    if begin >= end:
        return False
    return ruling.coverage(begin, end) < _OPEN * ruling.coverage(ruling.begin, ruling.end)


def _cut(item: Item, grid: Grid, row: int, joined: set[tuple[int, int]], height: float, frame: Frame) -> Iterator[Item]:
    """Yield the parts of a line in each cell that it is in."""
    places = [
        edge(item.middle)
        for place, edge in enumerate(grid.edges[1:-1])
        if (row, place) not in joined and crosses(item, edge, height) and not _runs_over(item, edge, height)
    ]
    rest = item
    for place in sorted(places):
        parts = [_part(rest, place, frame, keep_left=keep_left) for keep_left in (True, False)]
        if parts[0] is None or parts[1] is None:
            continue
        yield parts[0]
        rest = parts[1]
    yield rest


def _runs_over(item: Item, edge: Edge, height: float) -> bool:
    """Whether only the end of a long line is in the next column, as that of a word without room."""
    place = edge(item.middle)
    return min(place - item.left, item.right - place) < min(_OVERHANG * height, _END * item.width)


def _part(item: Item, place: float, frame: Frame, *, keep_left: bool) -> Item | None:
    """Return the part of a line on one side of a place of the frame; None if nothing of it remains."""
    outline = item.line.outline
    assert outline
    polygon = clip_points(outline.border, frame, place, keep_left=keep_left, is_closed=True)
    baseline = clip_points(outline.baseline, frame, place, keep_left=keep_left, is_closed=False)
    if len(polygon) < 3 or len(baseline) < 2:
        return None
    name = f"{item.line.where}{'' if keep_left else '+'}"
    line = replace(item.line, outline=Outline.of_polygon(polygon, baseline), where=name, id="")
    left, right = (item.left, place) if keep_left else (place, item.right)
    return replace(item, line=line, left=left, right=right)


def clip_points(
    points: Sequence[Point], frame: Frame, place: float, *, keep_left: bool, is_closed: bool
) -> tuple[Point, ...]:
    """Return the part of a polygon or a polyline on one side of an upright line of the frame."""
    sides = (frame.of_page(points)[:, 0] - place) * (1 if keep_left else -1)
    kept: list[Point] = []
    ends = list(zip(points, sides, strict=True))
    pairs = [*pairwise(ends), (ends[-1], ends[0])] if is_closed else [*pairwise(ends)]
    for (point, side), (other, other_side) in pairs:
        if side <= 0:
            kept.append(point)
        if (side < 0) != (other_side < 0) and side != other_side:
            share = side / (side - other_side)
            kept.append(
                (round(point[0] + share * (other[0] - point[0])), round(point[1] + share * (other[1] - point[1])))
            )
    if not is_closed and ends[-1][1] <= 0:
        kept.append(ends[-1][0])
    return tuple(dict.fromkeys(kept))


def _spans(grid: Grid, joined: set[tuple[int, int]], height: float) -> Iterator[Span]:
    """Yield the cells of a grid, those that are one with the next once."""
    count, rows = len(grid.edges) - 1, len(grid.rows) - 1
    taken: set[tuple[int, int]] = set()
    for row in range(rows):
        for column in range(count):
            if (row, column) in taken:
                continue
            width = 1
            while (row, column + width - 1) in joined:
                width += 1
            deep = 1
            while row + deep < rows and width == 1 and _is_one_below(grid, row, column, deep, height, joined):
                deep += 1
            cells = {(row + down, column + across) for down in range(deep) for across in range(width)}
            taken |= cells
            for cell in sorted(cells - {(row, column)}):
                grid.items.setdefault((row, column), []).extend(grid.items.pop(cell, []))
            yield row, column, deep, width


def _is_one_below(grid: Grid, row: int, column: int, deep: int, height: float, joined: set[tuple[int, int]]) -> bool:
    """Whether no ruling is under a cell where the other columns have one, and only one of the two has text.

    Without rulings, the cells of a heading beside one over several columns reach down beside what is below that.
    """
    count = len(grid.edges) - 1
    over = {place + side for place in range(count) if (row, place) in joined for side in (0, 1)}
    if row + deep < grid.heading_rows and any(grid.rulings):
        return row == 0 and deep == 1 and bool(over) and column not in over
    if not any(grid.rulings):
        below = {place for place in range(count) if grid.items.get((row + deep, place))}
        is_group = row == 0 and deep == 1 and bool(over) and bool(below) and below <= over
        return is_group and column not in over
    place = grid.rows[row + deep]
    near = [ruling for ruling in grid.level if abs(_flat(ruling, grid.bend) - place) < 0.4 * height]
    borders = [edge(place) for edge in grid.edges]
    covered = [_covered(near, begin + 4, end - 4) for begin, end in pairwise(borders)]
    if covered[column] > _OPEN * max(covered) or sum(share >= 0.5 for share in covered) < 2:
        return False
    both = bool(grid.items.get((row, column))) and bool(grid.items.get((row + deep, column)))
    return not both


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
            row,
            column,
            deep,
            width,
            row + deep <= grid.heading_rows,
        )
        for row, column, deep, width in spans
    )
    whole = corners(0, 0, len(grid.rows) - 1, len(grid.edges) - 1)
    return Table(f"t{number}", Outline.of_polygon(whole), cells)


Parts = dict[int, list[tuple[tuple[int, ...], Line]]]
"""The parts of each line by its identity, each with its place among the lines of tables."""


def _collect(grid: Grid, spans: Sequence[Span], table: Table, number: int, parts: Parts) -> None:
    """Add the lines of a table's cells."""
    regions = {(cell.row, cell.column): Region(cell.id, cell.outline) for cell in table.cells}
    for row, column, _, _ in spans:
        for order, item in enumerate(
            sorted(grid.items.get((row, column), ()), key=lambda item: (item.middle, item.left))
        ):
            line = replace(item.line, region=regions[row, column])
            key = item.line.index if item.line.index is not None else -1
            parts.setdefault(key, []).append(((number, row, column, order), line))


def _arrange(lines: Sequence[Line], parts: Parts, *, keep_order: bool) -> list[Line]:
    """Return all lines: those of tables by cells, where the first of them was."""
    if keep_order:
        return [parts[line.index][0][1] if line.index in parts else line for line in lines]
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
