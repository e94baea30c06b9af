"""Find the columns of tables: between upright rulings, or between gaps that hardly any line crosses."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dsocr.document import Line
from dsocr.registers.rulings import Floats, Ruling, Rulings

MIN_COLUMNS = 3
MIN_ROWS = 3
"""Rows of a table that have text in two columns."""
_LONG = 0.5
"""Share of the longest upright ruling that those between columns have."""
_STRONG = 0.5
"""Share of the ink of the best rulings that those between columns have."""
_DARK = 0.33
"""Share of the darkness of the third darkest ruling below which one shows through from the other side of the paper."""
_MAX_CROSSED = 0.6
"""Lines over a ruling, by the number of levels, from which it is none but letters that line up."""
_NARROW = 1.5
"""Heights below which a column without text is the space between the two parts of a ruling."""
_BEGINS = 0.5
"""Heights before the end of a narrow column at which lines begin that are in it, too."""
_FRAME = 6.0
"""Heights below which a column at a side without text is between the table's frame and the edge of the paper."""
_WHOLE = 0.8
"""Share of a table's width that its first level ruling has."""
_OUTSIDE = 0.4
"""Share of the levels that have text outside the outermost rulings, if that is a column."""
_GUTTER = 0.6
"""Heights that are free of text between two columns without rulings, and between lines that are side by side."""
_BORDER = 1.5
"""Lines that a border without a ruling must part, as many more than it cuts."""
_PRECISION, _CUT = 0.25, 0.3
"""Heights between places that a border may be at, and on both sides of it that a line is on, if it cuts it."""
_SIMILAR, _SIMILAR_FREE = 0.15, 0.4
"""Difference of widths up to which the columns of two pages are the same, with rulings and without."""
_FOLD = 0.07
"""Share of an opening's width from its middle in which its gutter is."""

Edge = Callable[[float], float]
"""Where a border of a column is across, at a place along it."""

Columns = tuple[list[Edge], list[Ruling | None], float, float]
"""Borders of columns, those of them that are rulings, and where the table begins and ends."""


@dataclass(frozen=True, slots=True)
class Item:
    """A line in the frame: where it begins and ends, and the middle of its letters."""

    line: Line
    left: float
    right: float
    middle: float

    @property
    def centre(self) -> float:
        """The middle of the line from left to right."""
        return (self.left + self.right) / 2

    @property
    def width(self) -> float:
        """From end to end."""
        return self.right - self.left


def ruled_columns(items: Sequence[Item], rulings: Rulings, height: float) -> Columns | None:
    """Return the columns between upright rulings, and those outside them where text is."""
    longest = max((ruling.length for ruling in rulings.upright), default=0.0)
    long = [ruling for ruling in rulings.upright if ruling.length >= _LONG * longest]
    inked = [ruling.coverage(ruling.begin, ruling.end) for ruling in long]
    best = float(np.mean(sorted(inked)[-3:])) if inked else 0.0
    strong = [ruling for ruling, ink in zip(long, inked, strict=True) if ink >= _STRONG * best]
    darkest = sorted(ruling.strength for ruling in strong)[-3:]
    strong = [ruling for ruling in strong if ruling.strength >= _DARK * darkest[0]]
    if len(strong) < 2:
        return None
    top, bottom = _ends(strong)
    middle = (top + bottom) / 2
    kept: list[Ruling] = []
    for ruling in sorted(strong, key=lambda ruling: ruling.at(middle)):
        if kept and ruling.at(middle) - kept[-1].at(middle) < 0.7 * height:  # a double ruling, found as two
            kept[-1] = max(kept[-1], ruling, key=lambda each: each.length)
        else:
            kept.append(ruling)
    inside = [item for item in items if top <= item.middle <= bottom]
    levels = max(len(group_levels(inside, height)), 1)
    kept = [
        ruling for ruling in kept if sum(crosses(item, ruling.at, height) for item in inside) <= _MAX_CROSSED * levels
    ]
    for place in range(len(kept) - 1, 0, -1):
        begin, end = kept[place - 1].at, kept[place].at
        is_narrow = end(middle) - begin(middle) < _NARROW * height
        if is_narrow and not _has_text(inside, begin, end, height):
            del kept[place - 1 if place > 1 else place]
    if len(kept) < 2:
        return None
    uprights: list[Ruling | None] = [*kept]
    edges: list[Edge] = [ruling.at for ruling in kept]
    left = [item for item in inside if item.centre < edges[0](item.middle)]
    right = [item for item in inside if item.centre > edges[-1](item.middle)]
    if _is_column(left, (edges[0](middle) + edges[1](middle)) / 2, rulings, levels):
        edges.insert(0, _constant(min(item.left for item in left) - height))
        uprights.insert(0, None)
    if _is_column(right, (edges[-2](middle) + edges[-1](middle)) / 2, rulings, levels):
        edges.append(_constant(max(item.right for item in right) + height))
        uprights.append(None)
    for side in (0, -1):
        places = [edge(middle) for edge in (edges[:3] if side == 0 else edges[:-4:-1])]
        centres = [(first + second) / 2 for first, second in pairwise(places)]
        is_ruled = len(edges) > MIN_COLUMNS + 1 and uprights[side] is not None
        if is_ruled and _is_reached(centres[0], centres[1], rulings) is False:
            del edges[side], uprights[side]
            top, bottom = _ends([ruling for ruling in uprights if ruling])
    top = _below_title(edges, inside, rulings, top, height)
    first, last = _without_frame(edges, inside, middle, height)
    return edges[first:last], uprights[first:last], top, bottom


def _has_text(items: Sequence[Item], begin: Edge, end: Edge, height: float) -> bool:
    """Whether lines are in a narrow column, or begin in it where a detector joined them with the next column's."""
    if any(begin(item.middle) <= item.centre <= end(item.middle) for item in items):
        return True
    reach = _BEGINS * height
    joined = [item for item in items if begin(item.middle) - reach <= item.left <= end(item.middle) - reach]
    return len(joined) >= MIN_ROWS


def _is_column(outside: Sequence[Item], inner: float, rulings: Rulings, levels: int) -> bool:
    """Whether text outside the outermost upright rulings is in the table: level ones reach it, or most rows have it."""
    if len(outside) < MIN_ROWS:
        return False
    reached = _is_reached(float(np.median([item.centre for item in outside])), inner, rulings)
    return len(outside) >= _OUTSIDE * levels if reached is None else reached


def _is_reached(place: float, inner: float, rulings: Rulings) -> bool | None:
    """Whether a level ruling of the column inside it goes as far as a place; None if it has none."""
    dark = _dark(rulings)
    longest = max((ruling.length for ruling in dark), default=0.0)
    wide = [ruling for ruling in dark if ruling.length >= _LONG * longest and ruling.begin <= inner <= ruling.end]
    if not wide:
        return None
    return any(ruling.begin <= place <= ruling.end for ruling in wide)


def _below_title(edges: Sequence[Edge], items: Sequence[Item], rulings: Rulings, top: float, height: float) -> float:
    """Return where a table begins: at its first level ruling, if what is above that is a title over several columns."""
    left, right = edges[0](top), edges[-1](top)
    wide = [ruling.at((left + right) / 2) for ruling in _dark(rulings) if ruling.length >= _WHOLE * (right - left)]
    if not wide:
        return top
    above = [item for item in items if top <= item.middle < min(wide)]
    over = [item for item in above if sum(crosses(item, edge, height) for edge in edges) > 1]
    return min(wide) if above and 2 * len(over) >= len(above) else top


def _dark(rulings: Rulings) -> list[Ruling]:
    """Return the level rulings that are as dark as upright ones: lines of writing are found as faint ones, too."""
    darkest = max((ruling.strength for ruling in (*rulings.level, *rulings.upright)), default=0.0)
    return [ruling for ruling in rulings.level if ruling.strength >= _STRONG * darkest]


def _without_frame(edges: Sequence[Edge], items: Sequence[Item], middle: float, height: float) -> tuple[int, int]:
    """Return the first border and the one after the last, without narrow empty columns at the sides."""

    def is_frame(place: int) -> bool:
        begin, end = edges[place], edges[place + 1]
        is_narrow = end(middle) - begin(middle) < _FRAME * height
        return is_narrow and not any(is_in(item, begin(item.middle), end(item.middle)) for item in items)

    def is_in(item: Item, begin: float, end: float) -> bool:
        # A detector may have joined it with what is in the next column.
        return begin <= item.centre <= end or min(item.right, end) - max(item.left, begin) >= height

    first, last = 0, len(edges)
    while last - first > MIN_COLUMNS and is_frame(first):
        first += 1
    while last - first > MIN_COLUMNS and is_frame(last - 2):
        last -= 1
    return first, last


def _ends(uprights: Sequence[Ruling]) -> tuple[float, float]:
    """Return where a table begins and ends by its upright rulings, of which there are at least two."""
    # Cells that span columns interrupt rulings at their ends, and the shadow of a fold is longer than the table.
    outliers = max(1, len(uprights) // 4)
    return sorted(map(_begin, uprights))[outliers], sorted(map(_end, uprights))[-1 - outliers]


def _begin(ruling: Ruling) -> float:
    return ruling.begin


def _end(ruling: Ruling) -> float:
    return ruling.end


def _constant(place: float) -> Edge:
    return lambda _: place


def free_columns(items: Sequence[Item], height: float) -> Columns | None:
    """Return the columns that part what is side by side, between borders that hardly any line crosses."""
    left, right = min(item.left for item in items), max(item.right for item in items)
    levels = group_levels([item for item in items if item.width < 0.45 * (right - left)], height)
    # Titles and headings over several columns are above the first row that has text in several columns.
    full = [place for place, level in enumerate(levels) if len(level) >= MIN_COLUMNS]
    if len(full) < MIN_ROWS:
        return None
    levels, above = levels[full[0] :], levels[: full[0]]
    beside = [item for level in levels if len(level) > 1 for item in level]
    begin, end = min(item.left for item in beside) - height, max(item.right for item in beside) + height
    borders = [begin, *_parting_borders(levels, begin, end, height), end]
    if len(borders) <= MIN_COLUMNS:
        return None
    edges = [_constant(place) for place in borders]
    middles = [item.middle for level in (*above, *levels) for item in level if begin <= item.centre <= end]
    return edges, [None] * len(edges), min(middles) - height, max(middles) + height


def _parting_borders(levels: Sequence[Sequence[Item]], begin: float, end: float, height: float) -> list[float]:
    """Return the borders between columns that cost least, by dynamic programming.

    A column costs as many lines as are side by side in it, a border the lines that it cuts and `_BORDER`.
    """
    places = np.arange(begin, end, _PRECISION * height)
    before = np.stack([_count_before(level, places, height) for level in levels], axis=1)
    lines = [item for level in levels for item in level]
    lefts, rights = np.array([item.left for item in lines]), np.array([item.right for item in lines])
    reach = _CUT * height
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
                runs = np.split(best, np.flatnonzero(np.diff(best) > 1) + 1)
                chosen[place] = int(np.median(max(runs, key=len)))

    centre(chosen)
    parting = list(chosen)
    accompanied = [item for level in levels if len(level) > 1 for item in level]
    for first, last in pairwise(parting):
        inside = [item for item in accompanied if places[first] <= item.centre < places[last]]
        chosen += [int(np.searchsorted(places, middle)) for middle in _wide_gaps(inside, height)]
    chosen.sort()
    centre(parting)
    counts = before.sum(axis=1)
    chosen = [chosen[0], *(place for place, after in pairwise(chosen[1:]) if counts[place] < counts[after]), chosen[-1]]
    return [float(places[place]) for place in chosen[1:-1]]


def _count_before(level: Sequence[Item], places: Floats, height: float) -> NDArray[np.intp]:
    """Return how many lines of a level have their middle left of each place; parts of a line count once."""
    parts: list[list[Item]] = []
    for item in sorted(level, key=lambda item: item.left):
        if parts and item.left - max(other.right for other in parts[-1]) < _GUTTER * height:
            parts[-1].append(item)
        else:
            parts.append([item])
    centres = [(part[0].left + max(item.right for item in part)) / 2 for part in parts]
    return np.searchsorted(centres, places)


def _wide_gaps(items: Sequence[Item], height: float) -> list[float]:
    """Return the middles of gaps in a column that are wider than lines on either side are scattered.

    Those are two columns that have text in other rows, as numbers of men and of women; a heading may be over both.
    """
    ordered = sorted(items, key=lambda item: item.left)
    gaps = [_widest_gap(ordered, over, height) for over in (None, *ordered)]
    width, middle = max(gaps, default=(0.0, 0.0))
    if not width:
        return []
    sides = [item for item in items if item.centre < middle], [item for item in items if item.centre >= middle]
    return [*_wide_gaps(sides[0], height), middle, *_wide_gaps(sides[1], height)]


def _widest_gap(items: Sequence[Item], over: Item | None, height: float) -> tuple[float, float]:
    """Return the width and the middle of the widest such gap; below a line over it both columns have a heading."""
    widest, reach = (0.0, 0.0), -math.inf
    ordered = [item for item in items if item is not over]
    for place, (before, item) in enumerate(pairwise(ordered), start=1):
        reach = max(reach, before.right)
        gap = item.left - reach
        scatter = max(before.left - ordered[0].left, ordered[-1].left - item.left)
        if not 2 <= place <= len(ordered) - 2 or gap <= max(scatter, widest[0], _GUTTER * height):
            continue
        first, second = (min(line.middle for line in side) for side in (ordered[:place], ordered[place:]))
        if over is None or (over.middle < first and abs(first - second) < 0.5 * height):
            widest = gap, (item.left + reach) / 2
    return widest


def columns_of_pages(
    columns: Columns | None, items: Sequence[Item], height: float, size: tuple[int, int], scale: float
) -> Iterator[Columns]:
    """Yield the tables of an opening: one over both pages without the gutter between them, or one on each."""
    if columns is None:
        return
    edges, uprights, top, bottom = columns
    middle, centre, near = (top + bottom) / 2, size[0] * scale / 2, _FOLD * size[0] * scale
    places = [edge(middle) for edge in edges]
    if size[0] <= 1.05 * size[1] or len(edges) < 4:
        yield columns
        return
    inside = [item for item in items if top <= item.middle <= bottom]
    empty = [
        place
        for place, (begin, end) in enumerate(pairwise(places))
        if abs((begin + end) / 2 - centre) < near
        # A title over both pages is not in the gutter, and its shadow is no text.
        and (
            end - begin < _NARROW * height
            or sum(begin < item.centre < end and (item.left > begin or item.right < end) for item in inside) <= 1
        )
    ]
    sides = None
    if any(uprights) and empty and empty[0] > 0 and empty[-1] + 2 < len(edges):
        sides = slice(None, empty[0] + 1), slice(empty[-1] + 1, None)
        first, second = (np.diff(places[side]) for side in sides)
        if not _are_similar(first, second, _SIMILAR):
            # The gutter belongs to the column on its left.
            yield edges[sides[0]] + edges[sides[1]][1:], uprights[sides[0]] + uprights[sides[1]][1:], top, bottom
            return
    elif len(edges) % 2 and not any(uprights) and abs(places[len(edges) // 2] - centre) < near:
        # The outer columns and those at the gutter end where their text does.
        first, second = (widths[1:-1] for widths in np.split(np.diff(places), 2))
        if _are_similar(first, second, _SIMILAR_FREE):
            sides = slice(None, len(edges) // 2 + 1), slice(len(edges) // 2, None)
    if sides is None:
        yield columns
        return
    for side in sides:
        yield edges[side], uprights[side], top, bottom


def _are_similar(first: Floats, second: Floats, tolerance: float) -> bool:
    if len(first) != len(second) or len(first) < 2:
        return False
    shares, others = first / first.sum(), second / second.sum()
    return bool((np.abs(shares - others) <= tolerance * np.maximum(shares, 0.15)).all())


def group_levels(items: Sequence[Item], height: float) -> list[list[Item]]:
    """Group lines that are at the same height."""
    levels: list[list[Item]] = []
    for item in sorted(items, key=lambda item: item.middle):
        if levels and item.middle - float(np.mean([other.middle for other in levels[-1]])) < 0.5 * height:
            levels[-1].append(item)
        else:
            levels.append([item])
    return levels


def crosses(item: Item, edge: Edge, height: float) -> bool:
    """Whether a line is on both sides of a border."""
    place = edge(item.middle)
    return item.left < place - 0.6 * height and item.right > place + 0.6 * height
