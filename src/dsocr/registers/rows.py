"""Find the rows of a table between level rulings, at the numbers of entries or at each line, and divide its heading.

`unit` is how far lines usually are below each other in their column, at most the usual height of lines.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dsocr.registers.columns import BESIDE, CENTRED, MOST, NUMBER, Columns, Item, group_levels, median_width
from dsocr.registers.rulings import LEVEL, STRONG, Ruling, Rulings, covered_share, group

_HEADING_LEVELS = 6
"""Levels of lines that a heading has at most."""
_ACROSS = 0.45
"""Minimum share of the table's width that a level ruling between rows covers."""
_HEADING = 9.0
"""The band above the body is its heading if it is at most this many heights high and half of its columns have text."""
_ROW = 0.9
"""Numbers that are fewer line distances apart belong to one row."""
_STRAY = 0.05
"""If all rows are numbered and at most this share has a second number, those begin no rows."""
_TITLE = 0.4
"""Share of the columns up to which a row at the top of a table without rulings is a title."""
_FULL = 0.6
"""A second number needs text in this share of the columns that are filled where rows begin."""
_APART = 1.5
"""A single line is a row of its own if lines above and below are this many line distances away."""


@dataclass(slots=True)
class Grid:
    """A table: borders of its columns and rows, and the lines in its cells by row and column."""

    columns: Columns
    bend: Callable[[float], float]
    """How much lower than average rows are at a place."""
    height: float
    level: list[Ruling] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)
    heading_rows: int = 0
    headings: list[tuple[int, int]] = field(default_factory=list)
    """First and last column of headings over several."""
    items: dict[tuple[int, int], list[Item]] = field(default_factory=dict)

    @property
    def inner(self) -> list[Ruling]:
        """The borders between columns."""
        return self.columns.borders[1:-1]

    @property
    def is_drawn(self) -> bool:
        """Whether any border of a column is a ruling."""
        return any(border.is_drawn for border in self.columns.borders)

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return len(self.rows) - 1, len(self.columns.borders) - 1

    def cell_of(self, item: Item) -> tuple[int, int] | None:
        """Return the row and column of a line; None outside the table."""
        row = int(np.searchsorted(self.rows, item.middle - self.bend(item.centre))) - 1
        column = self.columns.column_of(item)
        return (row, column) if 0 <= row < self.size[0] and 0 <= column < self.size[1] else None

    def by_column(self, items: Iterable[Item]) -> dict[int, list[Item]]:
        """Return the lines of each column."""
        columns: dict[int, list[Item]] = {}
        for item in items:
            columns.setdefault(self.columns.column_of(item), []).append(item)
        return columns

    def filled(self, items: Iterable[Item]) -> dict[int, set[int]]:
        """Return the columns with text of each row that has any."""
        rows: dict[int, set[int]] = {}
        for row, column in filter(None, map(self.cell_of, items)):
            rows.setdefault(row, set()).add(column)
        return rows

    def is_in_middle(self, item: Item) -> bool:
        """Whether the middle of a line is near that of the table."""
        left, right = self.columns.borders[0].at(item.middle), self.columns.borders[-1].at(item.middle)
        return abs(item.centre - (left + right) / 2) < CENTRED * (right - left)

    def flat(self, ruling: Ruling) -> float:
        """Return where a level ruling is on average, without the bend of the page."""
        return float(np.mean(ruling.across - [self.bend(along) for along in ruling.along]))


def find_rows(columns: Columns, items: Sequence[Item], rulings: Rulings) -> Grid | None:
    """Return the grid of a table with its rows; None without lines."""
    left, *_, right = columns.places()
    grid = Grid(columns, _bend(rulings.level, left, right, items[0].height), items[0].height)
    inside = [item for item in items if columns.contains(item)]
    if not inside:
        return None
    flat = [replace(item, middle=item.middle - grid.bend(item.centre)) for item in inside]
    unit = min(grid.height, _pitch(flat, grid))
    starts = _starts(flat, grid, unit)
    # Where no rulings are between columns, level ones are strokes and lines to write on.
    level = [ruling for ruling in rulings.level if grid.is_drawn and ruling.end > left and ruling.begin < right]
    strongest = max(ruling.strength for ruling in (*level, *columns.borders))
    # Lines to write on are fainter than those between rows.
    grid.level = [ruling for ruling in level if ruling.strength >= STRONG * strongest]
    borders = _borders(grid, left, right)
    bands = [[item for item in flat if begin <= item.middle < end] for begin, end in pairwise(borders)]
    if 2 * sum(len(band) > 0 for band in bands) >= len(starts):
        grid.rows = borders
        return grid
    body = max(range(len(bands)), key=lambda place: len(bands[place]))
    for place, ((begin, end), band) in enumerate(zip(pairwise(borders), bands, strict=True)):
        # The first row of a band begins with the band; rulings divide the heading, which is the band above the body.
        is_headed = 2 * len(grid.by_column(band)) >= len(columns.borders) - 1
        is_heading = place < body and is_headed and end - begin < _HEADING * grid.height
        after = max(min((item.middle for item in band), default=end), begin + _ROW * unit)
        inner = [start for start in starts if after <= start < end - BESIDE * unit and not is_heading]
        grid.rows += [begin, *_unique(inner, BESIDE * unit)]
    grid.rows.append(borders[-1])
    grid.heading_rows = sum(len(band) > 0 for band in bands[:-1]) if len(bands) == 2 else 0
    return grid


def _bend(level: Sequence[Ruling], left: float, right: float, height: float) -> Callable[[float], float]:
    """Return how much lower than average rows are at a place, measured on level rulings."""
    wide = [ruling for ruling in level if min(ruling.end, right) - max(ruling.begin, left) > MOST * (right - left)]
    if not wide:
        return lambda _: 0.0
    places = np.arange(left, right, height)
    shifts = np.array([[ruling.at(place) for place in places] for ruling in wide])
    shape = np.median(shifts - shifts.mean(axis=1, keepdims=True), axis=0)
    return lambda place: float(np.interp(place, places, shape))


def _borders(grid: Grid, left: float, right: float) -> list[float]:
    """Return where level rulings cross most of the table, and its upper and lower end."""
    near = LEVEL * grid.height
    flat = [grid.flat(ruling) for ruling in grid.level]
    crossing = [
        float(np.mean([flat[place] for place in places]))
        for places in group(flat, near)
        if covered_share([grid.level[place] for place in places], left, right) >= _ACROSS
    ]
    top, bottom = grid.columns.top, grid.columns.bottom
    crossing = [place for place in crossing if top - near < place < bottom + near]
    ends = [end for end in (top, bottom) if all(abs(place - end) >= near for place in crossing)]
    return _unique([*crossing, *ends], BESIDE * grid.height)


def _unique(places: Sequence[float], near: float) -> list[float]:
    """Return places in order, without those too near the one before for a line between them."""
    kept: list[float] = []
    for place in sorted(places):
        if not kept or place - kept[-1] >= near:
            kept.append(place)
    return kept


def _starts(items: Sequence[Item], grid: Grid, unit: float) -> list[float]:
    """Return where rows begin: at the numbers on their left if there are any, else at each level."""
    levels = _heading_levels(group_levels(items, unit), grid)
    widths = {column: median_width(members) for column, members in grid.by_column(items).items()}
    keys: set[int] = set()
    for column in range(len(grid.columns.borders) - 1):
        if widths.get(column, math.inf) > (NUMBER / 2 if column else NUMBER) * grid.height:
            break
        keys.add(column)
    begins, are_numbered = _key_levels(levels, keys, grid, unit)
    if len(begins) < 2:
        begins, are_numbered = set(range(len(levels))), False
    narrow = {column for column, width in widths.items() if 2 * width <= NUMBER * grid.height}
    alone = set()
    for place, level in enumerate(levels):
        middle = float(np.mean([item.middle for item in level]))
        above = middle - max(item.middle for item in levels[place - 1]) if place else math.inf
        below = min(item.middle for item in levels[place + 1]) - middle if place + 1 < len(levels) else math.inf
        is_apart = len(level) == 1 and _APART * unit <= min(above, below) and max(above, below) < math.inf
        # The second line of an entry is nearer to the first.
        if is_apart or (not above < MOST * below < math.inf and _is_section(level, items, grid)):
            alone.add(place)
    if not grid.is_drawn:
        alone |= _sections(levels, begins, grid)
    after = {place + 1 for place in alone if place + 1 < len(levels)}
    flourishes = {
        place
        for place in after
        if place + 1 < len(levels)
        and 2 * levels[place][0].width <= NUMBER * grid.height
        and _is_mark(levels, place, unit)
    }
    begins |= {0} | alone | (after - flourishes)
    columns = [set(grid.by_column(level)) for level in levels]
    least = _FULL * float(np.median([len(columns[place]) for place in begins]))
    numbers = [level & narrow - keys if len(level) >= least else set[int]() for level in columns]
    second = _second_numbers(numbers, begins)
    if not are_numbered or len(second) > _STRAY * len(begins):
        begins |= second
    starts = []
    for place in sorted(begins):
        first = min(item.middle for item in levels[place])
        before = max(item.middle for item in levels[place - 1]) if place else -math.inf
        starts.append(max((before + first) / 2, first - grid.height))
    return starts


def _second_numbers(columns: Sequence[set[int]], begins: set[int]) -> set[int]:
    """Return the levels where a column of numbers has a second one since the row began: numbers have one line."""
    second, known = set[int](), set[int]()
    for place, numbers in enumerate(columns):
        if known & numbers and place not in begins:
            second.add(place)
        if place in begins or place in second:
            known = set()
        known |= numbers
    return second


def _pitch(items: Sequence[Item], grid: Grid) -> float:
    """Return how far a line usually is below the one before it in its column."""
    columns = ([item.middle for item in members] for members in grid.by_column(items).values())
    steps = [step for middles in columns for step in np.diff(sorted(middles)) if step > LEVEL * grid.height]
    return float(np.percentile(steps, 25)) if steps else grid.height


def _key_levels(levels: Sequence[Sequence[Item]], keys: set[int], grid: Grid, unit: float) -> tuple[set[int], bool]:
    """Return the levels where numbered rows begin, and whether nearly all have a number in the first column.

    The numbers of a row may be a little higher or lower than its text, so they are grouped first. Where nearly all
    rows are numbered, the other groups are second lines of a date.
    """
    groups: list[dict[int, tuple[int, float]]] = []
    """Of each row with numbers, the level and the height of that of each column."""
    for place, level in enumerate(levels):
        for item in sorted(level, key=lambda item: item.middle):
            column = grid.columns.column_of(item)
            if column not in keys:
                continue
            known = groups[-1] if groups else {}
            first = min((middle for _, middle in known.values()), default=-math.inf)
            if column in known or item.middle - first > _ROW * unit:
                groups.append({})
            groups[-1][column] = place, item.middle
    columns = [set(grid.by_column(level)) for level in levels]
    begins = []
    for numbers in groups:
        places = {place for place, _ in numbers.values()}
        if 0 in numbers and len(columns[numbers[0][0]]) > 1:  # its day may stand beside lines of another row
            places = {numbers[0][0]}
        begins.append(max(places, key=lambda place: (len(columns[place]), -place)))
    are_numbered = sum(0 in numbers for numbers in groups) >= MOST * len(groups)
    if are_numbered:
        numbered = {place for place, numbers in zip(begins, groups, strict=True) if 0 in numbers}
        begins = [place for place in numbered if place + 1 not in numbered or not _is_mark(levels, place, unit)]
    return set(begins), are_numbered


def _is_mark(levels: Sequence[Sequence[Item]], place: int, unit: float) -> bool:
    """Whether the only item of a level is a mark above the number of the next level."""
    (item, *others), below = levels[place], min(other.middle for other in levels[place + 1])
    return not others and below - item.middle < unit


def _heading_levels(levels: list[list[Item]], grid: Grid) -> list[list[Item]]:
    """Join levels at the top that are less than a line apart and in other columns, as headings in the middle are."""
    joined: list[list[Item]] = []
    for place, level in enumerate(levels):
        before = joined[-1] if joined else []
        gap = min(item.middle for item in level) - max((item.middle for item in before), default=-math.inf)
        columns = set(grid.by_column(level))
        if place < _HEADING_LEVELS and gap < grid.height and not columns & grid.by_column(before).keys():
            joined[-1] = before + level
        else:
            joined.append(level)
    return joined


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
    return apart if len(apart) <= (1 - MOST) * len(levels) else set()


def _is_section(level: Sequence[Item], others: Sequence[Item], grid: Grid) -> bool:
    """Whether a line is a row of its own, as the name of a month or a village over all columns.

    Rulings are interrupted for it; without rulings it is over two columns, or far from where its column begins.
    """
    if len(level) != 1:
        return False
    (item,) = level
    rulings = [border for border in grid.inner if border.is_drawn]
    if rulings:
        reach = LEVEL * grid.height
        opened = [ruling.is_interrupted(item.middle - reach, item.middle + reach) for ruling in rulings]
        return len(opened) >= 2 and sum(opened) >= MOST * len(opened)
    if any(item.crosses(border) for border in grid.inner):
        return True
    column = grid.columns.column_of(item)
    lefts = [other.left for other in others if other is not item and grid.columns.column_of(other) == column]
    return bool(lefts) and item.left - max(lefts) > grid.height


class Group(NamedTuple):
    """A heading over several columns: the first and the last, its lowest line and the highest below it, its middle."""

    first: int
    last: int
    above: float
    below: float
    centre: float
    crosses: bool
    """Whether it is over a border between them."""


def drop_ends(grid: Grid, items: Sequence[Item]) -> None:
    """Drop rows without text above and below all others, and titles above a table without rulings."""
    filled = grid.filled(items)
    if not filled:
        return
    first, last = min(filled), max(filled)
    if not grid.is_drawn:
        while first < last - 1 and len(filled.get(first, ())) <= _TITLE * grid.size[1]:
            first += 1
    grid.heading_rows = max(grid.heading_rows - first, 0)
    grid.rows = grid.rows[first : last + 2]


def divide_heading(grid: Grid, items: Sequence[Item]) -> None:
    """Find the headings over several columns, and make two rows of the heading if no ruling divides it."""
    flat = [
        (cell[0], replace(item, middle=item.middle - grid.bend(item.centre)))
        for item in items
        if (cell := grid.cell_of(item))
    ]
    if grid.heading_rows > 1:
        groups = _heading_groups(grid, [item for row, item in flat if row < 2])
        grid.headings = [(group.first, group.last) for group in groups]
        return
    for rows in range(1, min(2 if grid.is_drawn else grid.size[0], grid.size[0] - 1) + 1):
        groups = _groups_of_rows(grid, [item for row, item in flat if row < rows])
        if not groups:
            continue
        above, below = max(group.above for group in groups), min(group.below for group in groups)
        is_ruled = rows == 2 and above < grid.rows[1] < below
        if rows == 2 and grid.is_drawn and not is_ruled:
            return
        grid.rows[: rows + 1] = [grid.rows[0], grid.rows[1] if is_ruled else (above + below) / 2, grid.rows[rows]]
        grid.heading_rows = 2
        grid.headings = [(group.first, group.last) for group in groups]
        return


def _groups_of_rows(grid: Grid, items: Sequence[Item]) -> list[Group]:
    """Return the headings over several columns, if the rows are two of a heading.

    Headings of other columns are beside both: their middle is between the two rows.
    """
    groups = _heading_groups(grid, items)
    if not groups:
        return []
    near = LEVEL * grid.height
    above, below = max(group.above for group in groups), min(group.below for group in groups)
    grouped = {column for group in groups for column in range(group.first, group.last + 1)}
    beside = [item.middle for item in items if grid.columns.column_of(item) not in grouped]
    is_beside = any(above + near < middle < below - near for middle in beside) and max(beside) < below - near
    return groups if above < below and (is_beside or all(group.crosses for group in groups)) else []


def _heading_groups(grid: Grid, items: Sequence[Item]) -> list[Group]:
    """Return the headings over several columns if each column has its own heading below."""
    over = [(item, [place for place, border in enumerate(grid.inner) if item.crosses(border)]) for item in items]
    columns = grid.by_column(item for item, crossed in over if not crossed)
    groups: list[Group] = []
    for item, crossed in sorted((pair for pair in over if pair[1]), key=lambda pair: pair[0].left):
        first, last, above = min(crossed), max(crossed) + 1, item.middle
        if groups and groups[-1].last >= first:
            before = groups.pop()
            first, last, above = before.first, max(before.last, last), max(before.above, above)
        below = [
            [other.middle for other in columns.get(place, []) if other.middle > above + LEVEL * grid.height]
            for place in range(first, last + 1)
        ]
        if all(below):
            groups.append(Group(first, last, above, min(map(min, below)), item.centre, crosses=True))
    known = {column for group in groups for column in range(group.first, group.last + 1)}
    for column in sorted(columns.keys() - known):
        group = _group_over(column, columns, known, LEVEL * grid.height)
        if not group:
            continue
        if groups and groups[-1].last >= group.first and not groups[-1].crosses:
            before = groups[-1]
            shared = range(group.first, before.last + 1)
            borders = [border.at(group.below) for border in grid.columns.borders]
            middles = [(borders[place] + borders[place + 1]) / 2 for place in shared]
            nearer = sum(abs(middle - before.centre) <= abs(middle - group.centre) for middle in middles)
            groups[-1] = before._replace(last=group.first + nearer - 1)
            group = group._replace(first=group.first + nearer)
        groups.append(group)
    return [group for group in groups if group.first < group.last]


def _group_over(column: int, columns: Mapping[int, Sequence[Item]], known: Container[int], near: float) -> Group | None:
    """Return the group whose heading is in a column: the columns beside it begin level with a lower line there."""
    lines = sorted(columns[column], key=lambda item: item.middle)
    tops = {place: min(item.middle for item in members) for place, members in columns.items() if place not in known}
    for line, lower in pairwise(lines):
        if lower.middle - line.middle < near:
            continue
        first = last = column
        while abs(tops.get(first - 1, math.inf) - lower.middle) < near:
            first -= 1
        while abs(tops.get(last + 1, math.inf) - lower.middle) < near:
            last += 1
        if first < last:
            below = min(lower.middle, *(tops[place] for place in range(first, last + 1) if place != column))
            return Group(first, last, line.middle, below, line.centre, crosses=False)
    return None
