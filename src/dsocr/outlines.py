"""Compare and fill outlines, turn baselines, outline lines by their baselines, and find the reading order of lines."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dsocr.document import Box, Line, Outline, Page, Point, bounds, bounds_of_boxes
from dsocr.errors import DataError

_TOLERANCE = 0.25
"""Distance from the polygon, in its heights, up to which a baseline may be outside."""
_MAX_OUTSIDE = 0.6
"""Share of a baseline that may be farther outside.

Between the 91 wrong outlines on four pages of JosephHookerHTR (0.7 and more) and the other 8,200 lines of that dataset
and of copiste (0.56 at most).
"""
_SAMPLES = 41
"""Points of a baseline that are compared."""
_ABOVE, _BELOW = 0.7, 0.3
"""Share of the distance between baselines that a line takes above and below its own."""
_OVERHANG = 0.25
"""Share of its height by which a line extends beyond the ends of its baseline."""
_MIN_PITCH = 8.0
"""Pixels; closer baselines belong to one line, or to cells of one row."""
_MIN_MATCHING = 3
"""The height of a page's lines is known with at least this many matching outlines."""
_MIN_COLUMN = 3
"""Lines that a column of text has."""
_NOTE = 0.5
"""Width, by that of the widest line, below which a line beside all others is a margin note."""
_WORD_GAP = 2.5
"""Heights between two words of a row at most."""
_MOST = 0.75
"""Share of the lines that must run from right to left on a page upside down."""
_CLEAR = 0.4
"""Least surplus of the steps in one direction, from line to line, that says how a page lies."""
_MAX_CROSSINGS = 2_000_000
"""Places at which a polygon crosses a row of pixels; detailed outlines of a line have some 10,000."""

Points = NDArray[np.float64]
Rows = NDArray[np.int64]


def clip_outline(outline: Outline, side: Callable[[Point], float]) -> Outline | None:
    """Return the part of an outline where `side`, the distance from a line, is not negative; None without an area.

    Sutherland-Hodgman clipping (1974).
    """
    left, top, right, bottom = outline.box
    corners = outline.polygon or ((left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1))
    polygon = _clip(corners, [side(point) for point in corners], is_closed=True)
    baseline = _clip(outline.baseline, [side(point) for point in outline.baseline], is_closed=False)
    return Outline.of_polygon(polygon, baseline if len(baseline) >= 2 else ()) if len(polygon) >= 3 else None


def _clip(points: Sequence[Point], sides: Sequence[float], *, is_closed: bool) -> tuple[Point, ...]:
    ends = list(zip(points, sides, strict=True))
    kept: list[Point] = []
    for (point, side), (other, other_side) in pairwise([*ends, *ends[:1]] if is_closed else ends):
        if side >= 0:
            kept.append(point)
        if (side >= 0) != (other_side >= 0):
            share = side / (side - other_side)
            x, y = (begin + share * (end - begin) for begin, end in zip(point, other, strict=True))
            kept.append((round(x), round(y)))
    if not is_closed and ends and ends[-1][1] >= 0:
        kept.append(ends[-1][0])
    return tuple(dict.fromkeys(kept))


def pixels(points: Points, size: tuple[int, int]) -> tuple[Point, ...]:
    """Return points (n, 2) as whole pixels of an image of this size."""
    return tuple((x, y) for x, y in np.clip(points.round(), 0, np.subtract(size, 1)).astype(int).tolist())


def is_off_baseline(outline: Outline) -> bool:
    """Whether most of a line's baseline is outside its polygon; False if either is missing."""
    if len(outline.polygon) < 3 or len(set(outline.baseline)) < 2:
        return False
    polygon, baseline = np.array(outline.polygon, dtype=float), np.array(outline.baseline, dtype=float)
    lengths = _lengths(baseline)
    points = _along(baseline, lengths, np.linspace(0, lengths[-1], _SAMPLES))
    area = abs(np.sum(polygon[:, 0] * np.roll(polygon[:, 1], -1) - polygon[:, 1] * np.roll(polygon[:, 0], -1))) / 2
    height = max(area / float(lengths[-1]), 1.0)
    far = ~_inside(points, polygon) & (_distances(points, polygon) > _TOLERANCE * height)
    return bool(far.mean() > _MAX_OUTSIDE)


def is_backward(outline: Outline) -> bool:
    """Whether a line across the page has a baseline from right to left."""
    return bool(outline.baseline) and not _is_steep(outline) and outline.baseline[0][0] > outline.baseline[-1][0]


def reverse_baseline(outline: Outline) -> Outline:
    """Return the outline of a line that is read in the other direction."""
    return replace(outline, baseline=outline.baseline[::-1])


def turn_baselines(page: Page) -> tuple[Page, list[Line]]:
    """Turn around the baselines that run against the reading; also return their lines.

    Lines across a page run from left to right, unless the page is upside down: then nearly all run from right to left,
    each is above the one before it, and polygons do not say otherwise. Lines along the side of a page run as they are
    drawn; on a page that has mainly such lines, they run as their order is unless their polygons say otherwise.
    """
    lines = list(page.lines)
    outlines = {place: line.outline for place, line in enumerate(lines) if line.outline and _has_baseline(line.outline)}
    steep = {place: outline for place, outline in outlines.items() if _is_steep(outline)}
    backward = {place: outline for place, outline in outlines.items() if is_backward(outline)}
    across = len(outlines) - len(steep)
    is_upside_down = len(backward) >= _MOST * across and _order([*backward.values()]) > _CLEAR
    is_upside_down &= 2 * sum(map(_is_below, backward.values())) <= len(backward)
    turned = set() if is_upside_down else set(backward)
    if len(steep) > across:
        upwards = {place for place, outline in steep.items() if outline.baseline[0][1] > outline.baseline[-1][1]}
        order = _order([reverse_baseline(outline) if place in upwards else outline for place, outline in steep.items()])
        against = upwards if order > _CLEAR else set(steep) - upwards if order < -_CLEAR else set()
        turned |= {place for place in against if not steep[place].polygon or _is_below(steep[place])}
    for place in turned:
        lines[place] = replace(lines[place], outline=reverse_baseline(outlines[place]))
    return replace(page, lines=tuple(lines)), [lines[place] for place in sorted(turned)]


def _is_below(outline: Outline) -> bool:
    """Whether most of a polygon is below its baseline, where no letters are if that runs as it is read."""
    above, below = _extent(outline) if outline.polygon else (0.0, 0.0)
    return above < below


def _is_steep(outline: Outline) -> bool:
    (x0, y0), (x1, y1) = outline.baseline[0], outline.baseline[-1]
    return abs(y1 - y0) > 2 * abs(x1 - x0)


def _order(outlines: Sequence[Outline]) -> float:
    """1 if each line is below the one before it, as their baselines run, -1 if it is above, 0 if that is not clear."""
    baselines = [np.array(outline.baseline, dtype=float) for outline in outlines]
    distances = [float(_project(other, baseline)[1].mean()) for baseline, other in pairwise(baselines)]
    steps = [-np.sign(distance) for distance in distances if abs(distance) > _MIN_PITCH]
    return float(np.mean(steps)) if len(steps) > 1 else 0.0


def outline_by_baselines(page: Page) -> tuple[Page, list[Line]]:
    """Outline the lines of a page by their baselines if their own outline is missing or off; also return these lines.

    The height comes from the other outlines of the page, else from the distance between baselines; if neither is known,
    the page stays as it is.
    """
    outlines = {
        place: line.outline
        for place, line in enumerate(page.lines)
        if line.outline and _has_baseline(line.outline, page.size)
    }
    with_polygon = [outline for outline in outlines.values() if len(outline.polygon) >= 3]
    matching = [outline for outline in with_polygon if not is_off_baseline(outline)]
    if 2 * len(matching) < len(with_polygon):
        # If most outlines are on another scale, the others match by chance.
        matching = []
    kept = set(matching)
    wrong = {
        place: outline
        for place, outline in outlines.items()
        if outline not in kept and (outline.polygon or has_only_baseline(outline))
    }
    heights = _line_heights(matching, list(outlines.values())) if wrong else None
    if heights is None:
        return page, []
    lines = list(page.lines)
    for place, outline in wrong.items():
        polygon = _band(np.array(outline.baseline, dtype=float), *heights)
        lines[place] = replace(lines[place], outline=Outline.of_polygon(polygon, outline.baseline))
    return replace(page, lines=tuple(lines)), [lines[place] for place in wrong]


def outline_of_baseline(baseline: tuple[Point, ...], others: Sequence[Outline]) -> Outline:
    """Outline a line by its baseline, as high as the other lines of its page."""
    with_baseline = [outline for outline in others if _has_baseline(outline)]
    matching = [outline for outline in with_baseline if len(outline.polygon) >= 3 and not is_off_baseline(outline)]
    heights = _line_heights(matching, with_baseline)
    if heights is None:
        length = float(np.linalg.norm(np.subtract(baseline[-1], baseline[0])))
        height = statistics.median(
            [outline.box[3] - outline.box[1] for outline in others] or [max(length / 15, 2 * _MIN_PITCH)]
        )
        heights = _ABOVE * height, _BELOW * height
    return Outline.of_polygon(_band(np.array(baseline, dtype=float), *heights), baseline)


def fill_polygon(corners: Sequence[tuple[float, float]], size: tuple[int, int]) -> Image.Image:
    """Return a mask of what the border of a polygon goes round, also twice or crosswise (nonzero winding rule).

    Four corners in a crosswise order are a quadrilateral. Raises DataError if the border crosses too many rows.
    """
    start = np.array(corners, dtype=np.float64)
    if len(start) == 4:
        x, y = (start - start.mean(axis=0)).T
        around = start[np.argsort(np.arctan2(y, x))]
        sides = np.roll(around, -1, axis=0) - around
        if (sides[:, 0] * np.roll(sides[:, 1], -1) > sides[:, 1] * np.roll(sides[:, 0], -1)).all():  # it is convex
            start, corners = around, [*map(tuple, around.tolist())]
    run, rise = (np.roll(start, -1, axis=0) - start).T
    top, bottom = np.ceil(np.sort([start[:, 1], start[:, 1] + rise], axis=0)).clip(0, size[1]).astype(np.int64)
    counts = bottom - top
    if counts.sum() > _MAX_CROSSINGS:
        message = (
            f"the outline crosses {counts.sum():,} rows of pixels, and the limit is {_MAX_CROSSINGS:,}: draw it again"
        )
        raise DataError(message, code="too-large")
    mask = Image.new("1", size)
    pen = ImageDraw.Draw(mask)
    pen.polygon(corners, fill=1, outline=1)
    edge = np.repeat(np.arange(len(start)), counts)
    row = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts - top, counts)
    across = start[edge, 0] + (row - start[edge, 1]) / rise[edge] * run[edge]
    order = np.lexsort((across, row))
    row, across, winding = row[order], across[order], np.cumsum(np.sign(rise)[edge][order])
    # Pillow leaves out what the border goes round an even number of times.
    for place in np.flatnonzero((winding != 0) & (winding % 2 == 0)).tolist():
        pen.line([(across[place], row[place]), (across[place + 1], row[place])], fill=1)
    return mask


def contains(polygon: Sequence[Point], x: float, y: float) -> bool:
    """Whether a point is inside a polygon."""
    return bool(_inside(np.array([[x, y]], dtype=float), np.array(polygon, dtype=float))[0])


def has_only_baseline(outline: Outline) -> bool:
    """Whether the box of a line is just the extent of its baseline, with its last pixels or without."""
    if outline.polygon or len(outline.baseline) < 2:
        return False
    return max(abs(side - other) for side, other in zip(outline.box, bounds(outline.baseline), strict=True)) <= 1


def quarter_turns(outline: Outline) -> int:
    """Counterclockwise quarter turns (-1, 0 or 1) that make a sideways line upright, by its baseline."""
    if len(set(outline.baseline)) < 2:
        return 0
    left, top, right, bottom = outline.box
    if not _is_steep(outline) or bottom - top <= right - left:
        return 0
    return 1 if outline.baseline[-1][1] > outline.baseline[0][1] else -1


def _has_baseline(outline: Outline, size: tuple[int, int] | None = None) -> bool:
    """Whether the outline has a baseline of two points or more, all of them on the page."""
    on_page = size is None or all(0 <= x <= size[0] and 0 <= y <= size[1] for x, y in outline.baseline)
    return on_page and len(set(outline.baseline)) > 1


def _line_heights(matching: Sequence[Outline], outlines: Sequence[Outline]) -> tuple[float, float] | None:
    """Pixels that lines take above and below their baselines: of the matching outlines, or by the pitch of all."""
    if len(matching) >= _MIN_MATCHING:
        above, below = zip(*(_extent(outline) for outline in matching), strict=True)
        return statistics.median(above), statistics.median(below)
    if pitches := _pitches(outlines):
        pitch = statistics.median(pitches)
        return _ABOVE * pitch, _BELOW * pitch
    return None


def _extent(outline: Outline) -> tuple[float, float]:
    """How far a polygon typically extends above and below its baseline."""
    _, offsets = _project(np.array(outline.polygon, dtype=float), np.array(outline.baseline, dtype=float))
    sides = (offsets[offsets > 0], -offsets[offsets < 0])
    above, below = (float(np.percentile(side, 75)) if len(side) else 0.0 for side in sides)
    return above, below


def _pitches(outlines: Sequence[Outline]) -> list[float]:
    """The distance of each baseline from the nearest one above or below it."""
    baselines = [np.array(outline.baseline, dtype=float) for outline in outlines]
    pitches = []
    for baseline in baselines:
        length = float(np.linalg.norm(baseline[-1] - baseline[0]))
        distances = [
            abs(float(offsets.mean()))
            for along, offsets in (_project(other, baseline) for other in baselines)
            if min(along.max(), length) - max(along.min(), 0) > 0.3 * min(length, along.max() - along.min())
        ]
        pitches += sorted(distance for distance in distances if distance > _MIN_PITCH)[:1]
    return pitches


def _project(points: Points, baseline: Points) -> tuple[Points, Points]:
    """Positions of points along the line through both ends of a baseline, and their distances above it."""
    direction = baseline[-1] - baseline[0]
    direction = direction / max(float(np.linalg.norm(direction)), 1e-9)
    relative = points - baseline[0]
    return relative @ direction, relative @ np.array([direction[1], -direction[0]])


def _band(baseline: Points, above: float, below: float) -> tuple[Point, ...]:
    """The polygon around a baseline that is `above` pixels high above it and `below` pixels below."""
    # Its direction is seen over a line's height, so that close points do not turn it.
    lengths = _lengths(baseline)
    ahead, behind = (_along(baseline, lengths, lengths + reach) for reach in (above + below, -above - below))
    steps = ahead - behind
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-9)
    up = np.stack([steps[:, 1], -steps[:, 0]], axis=1)
    # Baselines often begin under the first letter, and end under the last.
    overhang = _OVERHANG * (above + below)
    baseline = np.concatenate(
        [[baseline[0] - overhang * steps[0]], baseline[1:-1], [baseline[-1] + overhang * steps[-1]]]
    )
    corners = np.concatenate([baseline + above * up, (baseline - below * up)[::-1]])
    return tuple((int(x), int(y)) for x, y in np.maximum(corners.round(), 0))


def _lengths(baseline: Points) -> Points:
    return np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(baseline, axis=0), axis=1))])


def _along(baseline: Points, lengths: Points, places: Points) -> Points:
    return np.stack([np.interp(places, lengths, baseline[:, axis]) for axis in (0, 1)], axis=1)


def _inside(points: Points, polygon: Points) -> NDArray[np.bool_]:
    """Whether a polygon goes round points, by the edges to their right (nonzero winding rule)."""
    x, y = points[:, :1], points[:, 1:]
    start, end = polygon, np.roll(polygon, -1, axis=0)
    crosses = (start[:, 1] > y) != (end[:, 1] > y)
    rise = np.where(end[:, 1] == start[:, 1], 1, end[:, 1] - start[:, 1])
    at = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    inside: NDArray[np.bool_] = (np.sign(end[:, 1] - start[:, 1]) * (crosses & (x < at))).sum(axis=1) != 0
    return inside


def _distances(points: Points, polygon: Points) -> Points:
    """Distance of points from the nearest edge of a polygon."""
    start, edge = polygon, np.roll(polygon, -1, axis=0) - polygon
    to_point = points[:, None] - start
    along = np.clip((to_point * edge).sum(axis=2) / np.maximum((edge**2).sum(axis=1), 1e-9), 0, 1)
    distances: Points = np.linalg.norm(to_point - along[..., None] * edge, axis=2).min(axis=1)
    return distances


def reading_blocks(outlines: Sequence[Outline]) -> list[list[Outline]]:
    """Return the outlines of lines in reading order, by columns; first those of the text, then of its margins."""
    parts = [part for part in _split_margins(list(outlines)) if part] if outlines else []
    return [block for part in parts for block in _order_columns(part)]


def reading_rows(boxes: Sequence[Box], *, are_words: bool = False, from_right: bool = False) -> list[list[int]]:
    """Return the places of boxes in reading order, row by row; a row has several boxes only if they `are_words`.

    Words and columns follow each other from left to right, or `from_right` to left.
    """
    if from_right:
        boxes = [(-right, top, -left, bottom) for left, top, right, bottom in boxes]
    rows = _join_words(boxes) if are_words and boxes else [[place] for place in range(len(boxes))]
    outlines = [Outline(bounds_of_boxes(boxes[place] for place in row)) for row in rows]
    by_outline = {id(outline): row for outline, row in zip(outlines, rows, strict=True)}
    return [by_outline[id(outline)] for block in reading_blocks(outlines) for outline in block]


def _join_words(boxes: Sequence[Box]) -> list[list[int]]:
    """Rows of words, left to right: each continues the row that ends before it, at most one height off, in level."""
    rows: list[list[int]] = []
    ends, levels, widths = np.zeros((3, len(boxes)))
    height = statistics.median(bottom - top for _, top, _, bottom in boxes)
    for place in sorted(range(len(boxes)), key=lambda place: boxes[place][0]):
        left, top, right, bottom = boxes[place]
        gaps, steps = left - ends[: len(rows)], np.abs((top + bottom) / 2 - levels[: len(rows)])
        follows = (steps <= height / 2) & (gaps <= _WORD_GAP * height)
        follows &= gaps >= -0.5 * np.minimum(widths[: len(rows)], right - left)
        number = int(np.argmin(np.where(follows, steps, np.inf))) if follows.any() else len(rows)
        if number == len(rows):
            rows.append([])
        rows[number].append(place)
        ends[number], levels[number], widths[number] = right, (top + bottom) / 2, right - left
    return rows


def _split_margins(outlines: list[Outline]) -> list[list[Outline]]:
    """The text, and the short lines that are beside all of it, left and right."""
    extents = [_ends(outline) for outline in outlines]
    widest = max(abs(end - begin) for begin, end in extents)
    long = [place for place, (begin, end) in enumerate(extents) if end - begin >= _NOTE * widest]
    if len(long) < _MIN_COLUMN:
        return [outlines]
    left, right = (sorted(extents[place][side] for place in long) for side in (0, 1))
    # One long line in ten may begin in the margin.
    first, last = left[len(long) // 10], right[-1 - len(long) // 10]
    top, bottom = min(outlines[place].box[1] for place in long), max(outlines[place].box[3] for place in long)
    parts: list[list[Outline]] = [[], [], []]
    for outline, (begin, end) in zip(outlines, extents, strict=True):
        is_short = end - begin < _NOTE * widest and top <= (outline.box[1] + outline.box[3]) / 2 <= bottom
        parts[1 if is_short and end <= first else 2 if is_short and begin >= last else 0].append(outline)
    return parts


def _order_columns(outlines: list[Outline]) -> list[list[Outline]]:
    """Blocks of lines in reading order: columns from left to right where a gutter separates them, else from the top."""
    lines = sorted(outlines, key=lambda outline: _ends(outline)[0])
    if place := _gutter(_extents(lines)):
        return [block for column in (lines[:place], lines[place:]) for block in _order_columns(column)]
    rows = sorted(outlines, key=lambda outline: outline.box[1] + outline.box[3])
    # A heading above columns, or a signature below them, crosses the gutter.
    from_left = sorted(range(len(rows)), key=lambda place: _ends(rows[place])[0])
    extents, places = _extents([rows[place] for place in from_left]), np.array(from_left)
    for cut in range(1, len(rows) // 2 + 1):
        for place in (cut, len(rows) - cut):
            if _gutter(extents[places < place]) or _gutter(extents[places >= place]):
                return [block for part in (rows[:place], rows[place:]) for block in _order_columns(part)]
    for place in range(len(rows) - 1):
        line, other = rows[place : place + 2]
        if _ends(other)[1] <= _ends(line)[0] and other.box[1] < (line.box[1] + line.box[3]) / 2:
            rows[place : place + 2] = [other, line]
    return [rows]


def _gutter(extents: Rows) -> int:
    """Number of lines left of the widest gutter with enough lines side by side, 0 without one; sorted by begin."""
    if len(extents) < 2 * _MIN_COLUMN:
        return 0
    begins, ends, tops, bottoms = extents.T
    gaps = begins[1:] - np.maximum.accumulate(ends)[:-1]
    top, bottom = np.minimum.accumulate(tops)[:-1], np.maximum.accumulate(bottoms)[:-1]
    other_top = np.minimum.accumulate(tops[::-1])[-2::-1]
    other_bottom = np.maximum.accumulate(bottoms[::-1])[-2::-1]
    together = np.minimum(bottom, other_bottom) - np.maximum(top, other_top)
    wide = (gaps > 0) & (together >= 0.5 * np.minimum(bottom - top, other_bottom - other_top))
    wide[: _MIN_COLUMN - 1] = wide[len(wide) - _MIN_COLUMN + 1 :] = False
    return int(np.argmax(np.where(wide, gaps, 0))) + 1 if wide.any() else 0


def _extents(lines: Sequence[Outline]) -> Rows:
    return np.array([(*_ends(line), line.box[1], line.box[3]) for line in lines])


def _ends(outline: Outline) -> tuple[int, int]:
    """First and last column of a line's baseline, of its box where it has none."""
    if outline.baseline:
        return outline.baseline[0][0], outline.baseline[-1][0]
    return outline.box[0], outline.box[2]
