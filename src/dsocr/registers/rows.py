"""Find the rows of a table: between level rulings, at the numbers of entries, or at each line.

`height` is the median height of the page's lines, `unit` how far they usually are below each other.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dsocr.registers.columns import Edge, Item, crosses, group_levels
from dsocr.registers.rulings import Ruling, Rulings

MIN_LINES = 6
"""Lines below which a page or a part of it is no table."""
_NUMBER = 3.5
"""Heights up to which a line is a number, a day or an age."""
_FIGURE = 2.0
"""Heights up to which a line is a number that has no second line."""
_KEYED = 0.12
"""Share of the levels from which a number at the left begins the rows."""
_ACROSS = 0.45
"""Share of the table's width from which a level ruling is between rows."""
OPEN = 0.4
"""Share of a ruling's usual ink below which it is interrupted, so that cells on both sides are one."""
_INDENT = 0.06
"""Share of a column's width by which a line is farther in than nine of ten others, if it is a row of its own."""
_GUIDE = 0.5
"""Share of the darkness of the darkest level rulings below which a ruling is a line to write on."""
_THROUGH, _WRITTEN = 0.25, 0.5
"""Heights from the middle of a line to a ruling through it, and the share of a ruling, from which it is but letters."""
_HEADING = 4.5
"""Heights up to which a band above the body is its heading."""
_TALL_HEADING, _HEADED = 9.0, 0.7
"""The same, if this share of the columns has text in it."""
_FREE_HEADING = 3
"""Rows by lines that the heading of a table without rulings is, at most."""
_BETWEEN = 0.4
"""Heights between the middles of lines of a heading, from which they are on different levels."""
_ROW = 0.9
"""Distances between lines within which numbers are those of a row."""
_NUMBERED = 0.8
"""Share of the rows with a number in the first column, from which all have one."""
_STRAY = 0.05
"""Second numbers by rows up to which they are of the rows above or below, if all rows have one in the first column."""
_FULL = 0.6
"""Share of the columns that the starts of rows have text in, which a second number of a row needs beside it."""
_LIKELY = 1.0
"""Log odds from which a level without a number in the first column begins a row, as all others with one do."""
_MARK, _MARK_ABOVE = 0.5, 1.5
"""Heights below which what stands alone is a mark, and up to which it is above its number."""
_CLOSE = 0.8
"""By how much nearer than lines rows may begin below each other: an entry of one line may be squeezed in."""
_NEARER = 0.85
"""Share of the distance to the level below from which one is a row of its own; a nearer one belongs to that above."""
_SECTIONS = 0.15
"""Share of the levels up to which those of a line in the middle are rows of their own, as names of villages."""
_CENTRED = 0.1
"""Share of the table's width up to which the middle of a line is from that of the table, if it is in the middle."""
_APART = 1.5
"""Distances between lines above and below a line that is a row of its own."""
_TITLE = 0.4
"""Share of the columns that a title and the number of the page beside it have text in, if it stands apart from the rows
or has no number though they have."""
_MATCHING = 0.85
"""Share of the bands between faint rulings with one start of a row, from which they are rows."""


class Group(NamedTuple):
    """A heading over several columns: the first and the last, its lowest line and the highest below it, its middle."""

    first: int
    last: int
    above: float
    below: float
    centre: float
    crosses: bool
    """Whether it is over a border between them."""


@dataclass(slots=True)
class Grid:
    """A table: borders of its columns and rows, which rulings are borders, and what is in it."""

    edges: list[Edge]
    rows: list[float]
    rulings: list[Ruling | None]
    level: list[Ruling]
    bend: Callable[[float], float]
    heading_rows: int = 0
    groups: list[Group] = field(default_factory=list)
    items: dict[tuple[int, int], list[Item]] = field(default_factory=dict)

    def row_of(self, item: Item) -> int:
        """Return the row of a line; -1 above and the number of rows below the table."""
        return int(np.searchsorted(self.rows, item.middle - self.bend(item.centre))) - 1

    def is_in_middle(self, item: Item) -> bool:
        """Whether the middle of a line is near that of the table."""
        left, right = self.edges[0](item.middle), self.edges[-1](item.middle)
        return abs(item.centre - (left + right) / 2) < _CENTRED * (right - left)

    def column_of(self, item: Item) -> int:
        """Return the column that the middle of a line is in."""
        return sum(edge(item.middle) <= item.centre for edge in self.edges) - 1


def find_rows(
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
    level = [ruling for ruling in level if not _is_writing(ruling, items, height)]
    inside = [
        item
        for item in items
        if edges[0](item.middle) <= item.centre <= edges[-1](item.middle)
        and top - 0.3 * height <= item.middle <= bottom + 0.3 * height
    ]
    if len(inside) < MIN_LINES:
        return None
    grid = Grid(edges, [], uprights, level, bend)
    flat = [replace(item, middle=item.middle - bend(item.centre)) for item in inside]
    unit = min(height, _pitch(flat, grid, height))
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
        first, last = max(after, begin + 0.7 * unit), end - 0.7 * unit
        inner = [start for start in starts if first <= start < last and not is_heading]
        rows += [begin, *_unique(inner, _CLOSE * unit)]
    grid.heading_rows = sum(len(band) > 0 for band in bands[:-1]) if len(bands) == 2 else 0
    grid.rows = _with_heading_rows([*rows, borders[-1]], strong, grid, height)
    return grid


def _is_writing(ruling: Ruling, items: Sequence[Item], height: float) -> bool:
    """Whether a level ruling is through the middle of lines over most of its length: their letters, found as one."""
    places = np.arange(ruling.begin, ruling.end)
    across = np.interp(places, ruling.along, ruling.across)
    written = np.zeros(len(places), dtype=bool)
    for item in items:
        on = slice(*np.searchsorted(places, [item.left, item.right]))
        written[on] |= np.abs(across[on] - item.middle) < _THROUGH * height
    return bool(written.mean() >= _WRITTEN)


def _is_heading(band: Sequence[Item], deep: float, grid: Grid, height: float) -> bool:
    """Whether a band above the body is low, or has text in most columns, as a heading of several lines has."""
    filled = {grid.column_of(item) for item in band}
    is_filled = len(filled) >= _HEADED * (len(grid.edges) - 1)
    return deep < (_TALL_HEADING if is_filled else _HEADING) * height


def drop_ends(grid: Grid, items: Sequence[Item]) -> None:
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
        is_numbered = sum(0 in columns for columns in filled.values()) >= _NUMBERED * len(filled)
        while first < last - 1:
            share, gap = len(filled.get(first, ())) / count, grid.rows[first + 1] - grid.rows[first]
            stands_apart = gap > 1.3 * usual or (is_numbered and 0 not in filled.get(first, ()))
            if share > (_TITLE if stands_apart else 0.2):
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
    pieces = sorted(((flat_place(ruling, bend), ruling) for ruling in level), key=lambda pair: pair[0])
    groups: list[list[tuple[float, Ruling]]] = []
    for piece in pieces:
        if groups and piece[0] - groups[-1][0][0] < 0.35 * height:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    crossing = [
        float(np.mean([place for place, _ in group]))
        for group in groups
        if covered_share([ruling for _, ruling in group], left, right) >= _ACROSS
    ]
    crossing = [place for place in crossing if top - 0.8 * height < place < bottom + 0.8 * height]
    ends = [] if crossing and crossing[0] - top < 0.8 * height else [top]
    ends += [] if crossing and bottom - crossing[-1] < 0.8 * height else [bottom]
    return _unique([*crossing, *ends], height)


def flat_place(ruling: Ruling, bend: Edge) -> float:
    """Return where a level ruling is, on average, without the bend of the page."""
    return float(np.mean([across - bend(along) for along, across in zip(ruling.along, ruling.across, strict=True)]))


def covered_share(rulings: Sequence[Ruling], left: float, right: float) -> float:
    """Return the share of a stretch that any of the rulings has ink on."""
    width = max(int(right - left), 1)
    ink = np.zeros(width, dtype=bool)
    for ruling in rulings:
        start = ruling.first - int(left)
        begin, end = max(start, 0), min(start + len(ruling.ink), width)
        if begin < end:
            ink[begin:end] |= ruling.ink[begin - start : end - start]
    return float(ink.mean())


def is_interrupted(ruling: Ruling, begin: float, end: float) -> bool:
    """Whether a stretch of a ruling has hardly any of its usual ink."""
    return ruling.coverage(begin, end) < OPEN * ruling.coverage(ruling.begin, ruling.end)


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
        place = flat_place(ruling, grid.bend)
        if begin + 0.7 * height < place < end - 0.7 * height:
            borders = [edge(place) for edge in grid.edges]
            crossed = [
                ruling.coverage(first, last) >= 0.6 for first, last in pairwise(borders) if last - first > height
            ]
            if any(first and second for first, second in pairwise(crossed)):
                grid.heading_rows = max(grid.heading_rows + 1, 2)
                return [begin, place, *rows[1:]]
    return rows


def divide_heading(grid: Grid, items: Sequence[Item], height: float) -> None:
    """Find the headings over several columns, and make two rows of the heading if no ruling divides it."""
    inside = [item for item in items if 0 <= grid.column_of(item) < len(grid.edges) - 1]
    flat = [(grid.row_of(item), replace(item, middle=item.middle - grid.bend(item.centre))) for item in inside]
    if grid.heading_rows > 1:
        band = [item for row, item in flat if 0 <= row < 2]
        grid.groups = _heading_groups(grid, band, height)
        return
    most = 2 if any(grid.rulings) else _FREE_HEADING
    for rows in range(1, min(most, len(grid.rows) - 2) + 1):
        groups = _groups_of_rows(grid, [item for row, item in flat if 0 <= row < rows], height)
        if not groups:
            continue
        above, below = max(group.above for group in groups), min(group.below for group in groups)
        is_ruled = rows == 2 and above < grid.rows[1] < below
        if rows == 2 and any(grid.rulings) and not is_ruled:
            return
        grid.rows[: rows + 1] = [grid.rows[0], grid.rows[1] if is_ruled else (above + below) / 2, grid.rows[rows]]
        grid.heading_rows = 2
        grid.groups = groups
        return


def _groups_of_rows(grid: Grid, items: Sequence[Item], height: float) -> list[Group]:
    """Return the headings over several columns, if the rows are two of a heading.

    Beside both are the headings of other columns, the middle of which is between them.
    """
    groups = _heading_groups(grid, items, height)
    if not groups:
        return []
    above, below = max(group.above for group in groups), min(group.below for group in groups)
    grouped = {column for group in groups for column in range(group.first, group.last + 1)}
    beside = [item.middle for item in items if grid.column_of(item) not in grouped]
    reach = _BETWEEN * height
    is_beside = any(above + reach < middle < below - reach for middle in beside) and max(beside) < below - reach
    return groups if above < below and (is_beside or all(group.crosses for group in groups)) else []


def _heading_groups(grid: Grid, items: Sequence[Item], height: float) -> list[Group]:
    """Return the headings over several columns, each of which has a heading of its own below."""
    inner = grid.edges[1:-1]
    over = [(item, [place for place, edge in enumerate(inner) if crosses(item, edge, height)]) for item in items]
    columns: dict[int, list[Item]] = {}
    for item, crossed in over:
        if not crossed:
            columns.setdefault(grid.column_of(item), []).append(item)
    groups: list[Group] = []
    for item, crossed in sorted((pair for pair in over if pair[1]), key=lambda pair: pair[0].left):
        first, last, above = min(crossed), max(crossed) + 1, item.middle
        if groups and groups[-1].last >= first:
            before = groups.pop()
            first, last, above = before.first, max(before.last, last), max(before.above, above)
        below = [
            [other.middle for other in columns.get(place, []) if other.middle > above + _BETWEEN * height]
            for place in range(first, last + 1)
        ]
        if all(below):
            groups.append(Group(first, last, above, min(map(min, below)), (item.left + item.right) / 2, crosses=True))
    known = {column for group in groups for column in range(group.first, group.last + 1)}
    for column in sorted(columns.keys() - known):
        group = _group_over(column, columns, known, height)
        if not group:
            continue
        if groups and groups[-1].last >= group.first and not groups[-1].crosses:
            before = groups[-1]
            shared = range(group.first, before.last + 1)
            middles = [(grid.edges[place](group.below) + grid.edges[place + 1](group.below)) / 2 for place in shared]
            nearer = sum(abs(middle - before.centre) <= abs(middle - group.centre) for middle in middles)
            groups[-1] = before._replace(last=group.first + nearer - 1)
            group = group._replace(first=group.first + nearer)
        groups.append(group)
    return [group for group in groups if group.first < group.last]


def _group_over(
    column: int, columns: Mapping[int, Sequence[Item]], known: Container[int], height: float
) -> Group | None:
    """Return the group whose heading is in a column: those beside it begin level with a lower line of it."""
    lines = sorted(columns[column], key=lambda item: item.middle)
    tops = {place: min(item.middle for item in members) for place, members in columns.items() if place not in known}
    for line, lower in pairwise(lines):
        if lower.middle - line.middle < _BETWEEN * height:
            continue
        first = last = column
        while abs(tops.get(first - 1, math.inf) - lower.middle) < _BETWEEN * height:
            first -= 1
        while abs(tops.get(last + 1, math.inf) - lower.middle) < _BETWEEN * height:
            last += 1
        if first < last:
            below = min(lower.middle, *(tops[place] for place in range(first, last + 1) if place != column))
            return Group(first, last, line.middle, below, line.centre, crosses=False)
    return None


def _starts(items: Sequence[Item], grid: Grid, height: float, unit: float) -> list[float]:
    """Return where rows begin: at the numbers on their left if there are any, else at each level."""
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
    begins, are_numbered = _key_levels(levels, keys, grid, unit)
    if len(begins) < max(2, _KEYED * len(levels)):
        begins, are_numbered = set(range(len(levels))), False
    narrow = {column for column, width in widths.items() if width <= _FIGURE * height}
    alone = {
        place
        for place, level in enumerate(levels)
        if _stands_alone(levels, place, unit)
        or (_is_section(level, items, grid, height) and not _is_nearer_above(levels, place))
    }
    if not any(grid.rulings):
        alone |= _sections(levels, begins, grid)
    after = {place + 1 for place in alone if place + 1 < len(levels)}
    flourishes = {
        place
        for place in after
        if place + 1 < len(levels) and levels[place][0].width <= _FIGURE * height and _is_mark(levels, place, unit)
    }
    begins |= {0} | alone | (after - flourishes)
    columns = [{grid.column_of(item) for item in level} for level in levels]
    least = _FULL * float(np.median([len(columns[place]) for place in begins]))
    numbers = [level & narrow - keys if len(level) >= least else set[int]() for level in columns]
    second = _second_numbers(numbers, begins)
    if not are_numbered or len(second) > _STRAY * len(begins):
        begins |= second
    starts = []
    for place in sorted(begins):
        before = max((item.middle for item in levels[place - 1]), default=0.0) if place else None
        first = min(item.middle for item in levels[place])
        starts.append(first - 0.7 * height if before is None else max((before + first) / 2, first - height))
    return starts


def _second_numbers(columns: Sequence[set[int]], begins: set[int]) -> set[int]:
    """Return the levels with a second number of a row that has begun, from those of each level; a number has one line.

    Rows begin there too.
    """
    second, known = set[int](), set[int]()
    for place, numbers in enumerate(columns):
        if known & numbers and place not in begins:
            second.add(place)
        if place in begins or place in second:
            known = set()
        known |= numbers
    return second


def _pitch(items: Sequence[Item], grid: Grid, height: float) -> float:
    """Return how far a line usually is below the one before it in its column."""
    columns: dict[int, list[float]] = {}
    for item in items:
        columns.setdefault(grid.column_of(item), []).append(item.middle)
    steps = [step for middles in columns.values() for step in np.diff(sorted(middles)).tolist() if step > 0.3 * height]
    return float(np.percentile(steps, 25)) if steps else height


def _key_levels(levels: Sequence[Sequence[Item]], keys: set[int], grid: Grid, unit: float) -> tuple[set[int], bool]:
    """Return the levels that rows with numbers on the left begin at, and whether all have one in the first column.

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
    columns = [{grid.column_of(item) for item in level} for level in levels]
    begins = []
    for group in groups:
        places = {place for place, _ in group.values()}
        if 0 in group and len(columns[group[0][0]]) > 1:  # its day may stand beside lines of another row
            places = {group[0][0]}
        begins.append(max(places, key=lambda place: (len(columns[place]), -place)))
    are_numbered = sum(0 in group for group in groups) >= _NUMBERED * len(groups)
    if are_numbered:
        numbered = {place for place, group in zip(begins, groups, strict=True) if 0 in group}
        begins = [place for place in begins if place in numbered or _is_like(columns, numbered, place, grid)]
        begins = [place for place in begins if place + 1 not in numbered or not _is_mark(levels, place, unit)]
    return set(begins), are_numbered


def _is_mark(levels: Sequence[Sequence[Item]], place: int, unit: float) -> bool:
    """Whether what stands alone on a level is no number but a mark above that of the next level."""
    if len(levels[place]) != 1:
        return False
    (item,) = levels[place]
    near = _MARK_ABOVE if item.width < _MARK * unit else 1.0
    return min(other.middle for other in levels[place + 1]) - item.middle < near * unit


def _is_like(columns: Sequence[set[int]], begins: set[int], place: int, grid: Grid) -> bool:
    """Whether a level without a number has text in such columns as those that rows begin at, rather than as others.

    Naive Bayes, with half a level of either kind added.
    """
    odds = 0.0
    others = set(range(len(columns))) - begins
    for column in range(1, len(grid.edges) - 1):
        shares = [
            (sum(column in columns[other] for other in group) + 0.5) / (len(group) + 1) for group in (begins, others)
        ]
        if column not in columns[place]:
            shares = [1 - share for share in shares]
        odds += math.log(shares[0] / shares[1])
    return odds > _LIKELY


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


def _is_nearer_above(levels: Sequence[Sequence[Item]], place: int) -> bool:
    """Whether a level is nearer to that above than to that below it, as the second line of an entry is."""
    if not 0 < place < len(levels) - 1:
        return False
    above, below = max(item.middle for item in levels[place - 1]), min(item.middle for item in levels[place + 1])
    middle = float(np.mean([item.middle for item in levels[place]]))
    return middle - above < _NEARER * (below - middle)


def _stands_alone(levels: Sequence[Sequence[Item]], place: int, unit: float) -> bool:
    """Whether a level is a single line with more space above and below it than lines have."""
    if len(levels[place]) != 1 or not 0 < place < len(levels) - 1:
        return False
    middle = levels[place][0].middle
    above, below = max(item.middle for item in levels[place - 1]), min(item.middle for item in levels[place + 1])
    return min(middle - above, below - middle) >= _APART * unit


def _sections(levels: Sequence[Sequence[Item]], begins: set[int], grid: Grid) -> set[int]:
    """Return the levels of a single line in the middle of the table, as far from those above and below as rows are.

    Second lines are nearer to the first; where they are not, there is no telling them apart.
    """
    tops = [min(item.middle for item in level) for level in levels]
    usual = float(np.median([tops[place] - tops[place - 1] for place in begins if place] or [0.0]))
    apart = {
        place
        for place in set(range(1, len(levels) - 1)) - begins
        if len(levels[place]) == 1
        and grid.is_in_middle(levels[place][0])
        and min(tops[place] - tops[place - 1], tops[place + 1] - tops[place]) >= _ROW * usual
    }
    return apart if len(apart) <= _SECTIONS * len(levels) else set()


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
        opened = [is_interrupted(ruling, begin, end) for ruling in rulings]
        return len(opened) >= 2 and sum(opened) >= 0.7 * len(opened)
    if any(crosses(item, edge, height) for edge in grid.edges[1:-1]):
        return True
    column = grid.column_of(item)
    lefts = [other.left for other in others if other is not item and grid.column_of(other) == column]
    if len(lefts) < 3 or not 0 <= column < len(grid.edges) - 1:
        return False
    width = grid.edges[column + 1](item.middle) - grid.edges[column](item.middle)
    return item.left - float(np.percentile(lefts, 90)) > max(height, _INDENT * width)
