"""Find the columns of tables: between upright rulings, or between gaps that hardly any line crosses."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsocr.document import Line
from dsocr.registers.rulings import LEVEL, STRONG, Floats, Ruling, Rulings, group, runs

BESIDE = 0.6
"""Minimum gap between lines side by side, and how far a line that crosses a border extends beyond it, in heights."""
MOST = 0.8
"""Share that counts as nearly all."""
NUMBER = 4.0
"""Maximum width of a number, day or age in heights; sums and counts are at most half as wide."""
CENTRED = 0.1
"""Maximum distance from the middle of a width, as a share of it, to be in the middle."""
MIN_COLUMNS = MIN_ROWS = 3
"""Minimum number of columns, and of rows with text in two of them."""
_DARK = 0.33
"""Rulings below this share of the third darkest one's darkness show through from the other side of the paper."""
_MAX_CROSSED = 0.6
"""A ruling crossed by more lines than this share of the levels is letters that line up."""
_NARROW = 1.5
"""A narrower column without text, in heights, is the gap of a double ruling."""
_BORDER = 1.5
"""How many more lines a border without a ruling must separate than it cuts."""


@dataclass(frozen=True, slots=True)
class Item:
    """A line in the frame: where it begins and ends, the middle of its letters, and the usual height of lines."""

    line: Line
    left: float
    right: float
    middle: float
    height: float

    @property
    def centre(self) -> float:
        """The middle of the line from left to right."""
        return (self.left + self.right) / 2

    @property
    def width(self) -> float:
        """From end to end."""
        return self.right - self.left

    def crosses(self, border: Ruling) -> bool:
        """Whether it is on both sides of a border."""
        place, reach = border.at(self.middle), BESIDE * self.height
        return self.left < place - reach and self.right > place + reach


class Columns(NamedTuple):
    """The borders of a table's columns, rulings or undrawn, and where the table begins and ends."""

    borders: list[Ruling]
    top: float
    bottom: float

    def column_of(self, item: Item) -> int:
        """Return the column of the middle of a line; -1 on the left of the table."""
        return sum(border.at(item.middle) <= item.centre for border in self.borders) - 1

    def contains(self, item: Item) -> bool:
        """Whether the middle of a line is in the table."""
        begin, end = self.borders[0].at(item.middle), self.borders[-1].at(item.middle)
        return begin <= item.centre <= end and self.top <= item.middle <= self.bottom

    def places(self) -> list[float]:
        """Return where the borders are in the middle of the table."""
        return [border.at((self.top + self.bottom) / 2) for border in self.borders]


def group_levels(items: Sequence[Item], unit: float) -> list[list[Item]]:
    """Group lines that are at the same height."""
    return [[items[place] for place in places] for places in group([item.middle for item in items], LEVEL * unit)]


def median_width(items: Sequence[Item]) -> float:
    """Return the median width of lines."""
    return float(np.median([item.width for item in items]))


def ruled_columns(items: Sequence[Item], rulings: Rulings) -> Columns | None:
    """Return the columns between upright rulings, and those outside them where text is."""
    inked = [ruling.coverage(ruling.begin, ruling.end) for ruling in rulings.upright]
    best = float(np.mean(sorted(inked)[-3:])) if inked else 0.0
    strong = [ruling for ruling, ink in zip(rulings.upright, inked, strict=True) if ink >= STRONG * best]
    darkest = sorted(ruling.strength for ruling in strong)[-3:]
    strong = [ruling for ruling in strong if ruling.strength >= _DARK * darkest[0]]
    if len(strong) < 2:
        return None
    height = items[0].height
    top, bottom = _ends(strong)
    middle = (top + bottom) / 2
    # Double rulings are found as two.
    doubles = group([ruling.at(middle) for ruling in strong], LEVEL * height)
    kept = [max((strong[place] for place in places), key=lambda ruling: ruling.length) for places in doubles]
    inside = [item for item in items if top <= item.middle <= bottom]
    levels = len(group_levels(inside, height))
    kept = [ruling for ruling in kept if sum(item.crosses(ruling) for item in inside) <= _MAX_CROSSED * levels]
    for place in range(len(kept) - 1, 0, -1):
        begin, end = kept[place - 1], kept[place]
        if end.at(middle) - begin.at(middle) < _NARROW * height and not _has_text(inside, begin, end):
            del kept[place - 1 if place > 1 else place]
    if len(kept) < 2:
        return None
    places = [ruling.at(middle) for ruling in kept]
    left = [item for item in inside if item.centre < kept[0].at(item.middle)]
    right = [item for item in inside if item.centre > kept[-1].at(item.middle)]
    if _is_column(left, (places[0] + places[1]) / 2, rulings, levels):
        kept.insert(0, Ruling.undrawn(min(item.left for item in left) - height))
    if _is_column(right, (places[-2] + places[-1]) / 2, rulings, levels):
        kept.append(Ruling.undrawn(max(item.right for item in right) + height))
    for side in (0, -1):
        places = [border.at(middle) for border in (kept[:3] if side == 0 else kept[:-4:-1])]
        centres = [(first + second) / 2 for first, second in pairwise(places)]
        is_ruled = len(kept) > MIN_COLUMNS + 1 and kept[side].is_drawn
        if is_ruled and _is_reached(centres[0], centres[1], rulings) is False:
            del kept[side]
            top, bottom = _ends([border for border in kept if border.is_drawn])
    top = _below_title(kept, inside, rulings, top)
    first, last = _without_frame(kept, inside, middle)
    return Columns(kept[first:last], top, bottom)


def _has_text(items: Sequence[Item], begin: Ruling, end: Ruling) -> bool:
    """Whether lines are in a narrow column, or begin in it where a detector joined them with the next column's."""
    if any(begin.at(item.middle) <= item.centre <= end.at(item.middle) for item in items):
        return True
    starts = [(item, item.left + LEVEL * item.height) for item in items]
    return sum(begin.at(item.middle) <= start <= end.at(item.middle) for item, start in starts) >= MIN_ROWS


def _is_column(outside: Sequence[Item], inner: float, rulings: Rulings, levels: int) -> bool:
    """Whether text outside the outermost upright rulings is in the table: level ones reach it, or most rows have it."""
    if len(outside) < MIN_ROWS:
        return False
    reached = _is_reached(float(np.median([item.centre for item in outside])), inner, rulings)
    return 2 * len(outside) >= levels if reached is None else reached


def _is_reached(place: float, inner: float, rulings: Rulings) -> bool | None:
    """Whether a level ruling of the column inside it goes as far as a place; None if it has none."""
    dark = rulings.strong_level()
    longest = max((ruling.length for ruling in dark), default=0.0)
    wide = [ruling for ruling in dark if 2 * ruling.length >= longest and ruling.begin <= inner <= ruling.end]
    return any(ruling.begin <= place <= ruling.end for ruling in wide) if wide else None


def _below_title(borders: Sequence[Ruling], items: Sequence[Item], rulings: Rulings, top: float) -> float:
    """Return where a table begins: at its first level ruling, if a title over several columns is above it."""
    left, right = borders[0].at(top), borders[-1].at(top)
    whole = [ruling for ruling in rulings.strong_level() if ruling.length >= MOST * (right - left)]
    if not whole:
        return top
    first = min(ruling.at((left + right) / 2) for ruling in whole)
    above = [item for item in items if item.middle < first]
    over = [item for item in above if sum(item.crosses(border) for border in borders) > 1]
    return first if above and 2 * len(over) >= len(above) else top


def _without_frame(borders: Sequence[Ruling], items: Sequence[Item], middle: float) -> tuple[int, int]:
    """Return the first border and the one after the last, without narrow empty columns at the sides."""

    def is_frame(place: int) -> bool:
        begin, end = borders[place], borders[place + 1]
        is_narrow = end.at(middle) - begin.at(middle) < 2 * NUMBER * items[0].height
        return is_narrow and not any(is_in(item, begin.at(item.middle), end.at(item.middle)) for item in items)

    def is_in(item: Item, begin: float, end: float) -> bool:
        # A detector may have joined it with text of the next column.
        return begin <= item.centre <= end or min(item.right, end) - max(item.left, begin) >= item.height

    first, last = 0, len(borders)
    while last - first > MIN_COLUMNS and is_frame(first):
        first += 1
    while last - first > MIN_COLUMNS and is_frame(last - 2):
        last -= 1
    return first, last


def _ends(uprights: Sequence[Ruling]) -> tuple[float, float]:
    """Return where a table with at least two upright rulings begins and ends."""
    # Cells that span columns interrupt rulings at their ends, and the shadow of a fold is longer than the table.
    outliers = max(1, len(uprights) // 4)
    begins, ends = sorted(ruling.begin for ruling in uprights), sorted(ruling.end for ruling in uprights)
    return begins[outliers], ends[-1 - outliers]


def free_columns(items: Sequence[Item]) -> Columns | None:
    """Return the columns that separate text side by side, between borders that hardly any line crosses."""
    height = items[0].height
    width = max(item.right for item in items) - min(item.left for item in items)
    levels = group_levels([item for item in items if 2 * item.width < width], height)
    # Titles and headings over several columns are above the first row that has text in several columns.
    full = [place for place, level in enumerate(levels) if len(level) >= MIN_COLUMNS]
    if len(full) < MIN_ROWS:
        return None
    beside = [item for level in levels[full[0] :] if len(level) > 1 for item in level]
    begin, end = min(item.left for item in beside) - height, max(item.right for item in beside) + height
    places = [begin, *_separating_borders(levels[full[0] :], begin, end, height), end]
    if len(places) <= MIN_COLUMNS:
        return None
    middles = [item.middle for level in levels for item in level if begin <= item.centre <= end]
    return Columns([Ruling.undrawn(place) for place in places], min(middles) - height, max(middles) + height)


def _separating_borders(levels: Sequence[Sequence[Item]], begin: float, end: float, height: float) -> list[float]:
    """Return the borders between columns that cost least, by dynamic programming.

    A column costs as many lines as are side by side in it, a border the lines that it cuts and `_BORDER`.
    """
    places = np.arange(begin, end, LEVEL / 2 * height)
    before = np.stack([_count_before(level, places) for level in levels], axis=1)
    lines = [item for level in levels for item in level]
    lefts, rights = np.array([item.left for item in lines]), np.array([item.right for item in lines])
    reach = BESIDE * height
    cut = ((lefts[:, None] < places - reach) & (rights[:, None] > places + reach)).sum(axis=0)

    def cost(first: slice | int, last: slice | int) -> Floats:
        """The lines side by side between two places."""
        beside: Floats = np.maximum(before[last] - before[first] - 1, 0).sum(axis=-1, dtype=np.float64)
        return beside

    least, origins = np.zeros(len(places)), np.zeros(len(places), dtype=np.intp)
    for place in range(1, len(places)):
        costs = least[:place] + cost(slice(place), place)
        origins[place] = np.argmin(costs)
        least[place] = costs[origins[place]] + cut[place] + _BORDER
    chosen = [len(places) - 1]
    while chosen[-1]:
        chosen.append(int(origins[chosen[-1]]))
    chosen.reverse()

    def centre(movable: Sequence[int]) -> None:
        """Move borders to the middle of the widest space that costs least."""
        for place in range(1, len(chosen) - 1):
            if chosen[place] in movable:
                first, second = chosen[place - 1], chosen[place + 1]
                between = slice(first + 1, second)
                costs = cost(first, between) + cost(between, second) + cut[between]
                best = np.flatnonzero(costs == costs.min()) + first + 1
                chosen[place] = int(np.median(max(runs(best), key=len)))

    centre(chosen)
    separating = list(chosen)
    accompanied = [item for level in levels if len(level) > 1 for item in level]
    for first, last in pairwise(separating):
        inside = [item for item in accompanied if places[first] <= item.centre < places[last]]
        chosen += [int(np.searchsorted(places, middle)) for middle in _wide_gaps(inside)]
    chosen.sort()
    centre(separating)
    counts = before.sum(axis=1)
    chosen = [chosen[0], *(place for place, after in pairwise(chosen[1:]) if counts[place] < counts[after]), chosen[-1]]
    return [float(places[place]) for place in chosen[1:-1]]


def _count_before(level: Sequence[Item], places: Floats) -> NDArray[np.intp]:
    """Return how many lines of a level have their middle left of each place; parts of a line count once."""
    parts: list[list[Item]] = []
    for item in sorted(level, key=lambda item: item.left):
        if parts and item.left - max(other.right for other in parts[-1]) < BESIDE * item.height:
            parts[-1].append(item)
        else:
            parts.append([item])
    centres = [(part[0].left + max(item.right for item in part)) / 2 for part in parts]
    return np.searchsorted(centres, places)


def _wide_gaps(items: Sequence[Item]) -> list[float]:
    """Return the middles of gaps in a column that are wider than lines on either side are scattered.

    Those are two columns that have text in other rows, as numbers of men and of women; a heading may be over both.
    """
    ordered = sorted(items, key=lambda item: item.left)
    width, middle = max((_widest_gap(ordered, over) for over in (None, *ordered)), default=(0.0, 0.0))
    if not width:
        return []
    sides = [item for item in items if item.centre < middle], [item for item in items if item.centre >= middle]
    return [*_wide_gaps(sides[0]), middle, *_wide_gaps(sides[1])]


def _widest_gap(items: Sequence[Item], over: Item | None) -> tuple[float, float]:
    """Return the width and the middle of the widest such gap; below a line over it both columns have a heading."""
    widest, reach = (0.0, 0.0), -math.inf
    ordered = [item for item in items if item is not over]
    for place, (before, item) in enumerate(pairwise(ordered), start=1):
        reach = max(reach, before.right)
        gap, near = item.left - reach, LEVEL * item.height
        scatter = max(before.left - ordered[0].left, ordered[-1].left - item.left)
        if not 2 <= place <= len(ordered) - 2 or gap <= max(scatter, widest[0], BESIDE * item.height):
            continue
        first, second = (min(line.middle for line in side) for side in (ordered[:place], ordered[place:]))
        if over is None or (over.middle < first and abs(first - second) < near):
            widest = gap, (item.left + reach) / 2
    return widest


def columns_of_pages(columns: Columns, items: Sequence[Item], gutter: float | None) -> Iterator[Columns]:
    """Yield the tables of an opening with a gutter: one over both pages without it, or one on each."""
    borders, top, bottom = columns
    places = columns.places()
    if gutter is None or len(borders) < MIN_COLUMNS + 1:
        yield columns
        return
    near = 2 * CENTRED * gutter
    inside = [item for item in items if top <= item.middle <= bottom]
    empty = [
        place
        for place, (begin, end) in enumerate(pairwise(places))
        if abs((begin + end) / 2 - gutter) < near
        # A title over both pages is not in the gutter, and its shadow is no text.
        and (
            end - begin < _NARROW * items[0].height
            or sum(begin < item.centre < end and (item.left > begin or item.right < end) for item in inside) <= 1
        )
    ]
    half = len(borders) // 2
    is_drawn = any(border.is_drawn for border in borders)
    if is_drawn and empty and empty[0] > 0 and empty[-1] + 2 < len(borders):
        first, second = borders[: empty[0] + 1], borders[empty[-1] + 1 :]
        if len(first) != len(second) or len(first) < MIN_COLUMNS:
            # The gutter belongs to the column on its left.
            yield Columns(first + second[1:], top, bottom)
            return
    # The outer columns and those at the gutter end where their text does.
    elif len(borders) % 2 and half > MIN_COLUMNS and not is_drawn and abs(places[half] - gutter) < near:
        first, second = borders[: half + 1], borders[half:]
    else:
        yield columns
        return
    yield Columns(first, top, bottom)
    yield Columns(second, top, bottom)
