"""Make lines from the probabilities of a text detector, put them in reading order, and draw targets to train it.

The detector marks the middle of each line, without ascenders and descenders, and often in several pieces. Arrays of
probabilities are (rows, columns); lengths are in their pixels; `thickness`, of the mark, is about half a line's height.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dsocr.document import Box, Line, Outline, Region, bounds
from dsocr.errors import DataError
from dsocr.layout.pixels import components, windows
from dsocr.outlines import fill_polygon, pixels, quarter_turns, reading_blocks

Probabilities = NDArray[np.float32]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

TEXT, _CERTAIN = 0.3, 0.5
"""Least probability of a pixel of text, and least mean of a piece, as in PaddleOCR."""
_MIN_SIZE = 3
"""Pixels; a smaller piece is noise."""
SIDEWAYS = 3.0
"""Least height by width of a piece of text along the side of the page."""

# In thicknesses. Medians of 1,587 lines of eight collections (lab/verdicts.md, "Finding lines").
ABOVE, BELOW, BEYOND = 0.95, 1.15, 0.8
"""From the middle of a line to the upper and lower edge of its outline, and from its ends to the outline's."""
_BASELINE = 0.55
"""From the middle of a line to its baseline."""
SIDEWAYS_MARGIN = 0.5
"""Around a line along the side of the page, by the width of the mark."""
_MAX_GAP = 2.5
"""Between two pieces of a line."""
_MAX_STEP = 1.0
"""Most that a piece may be higher or lower than the one before it."""
_KNOT = 2.0
"""Between two corners of an outline."""

_MERGED = 2.0
"""Least thickness, by the usual one, of a piece that is several touching lines."""

_TO_NEIGHBOUR = 0.4
"""Share of the distance to the middle of the next line that the image of a line takes in."""
_MAX_REACH = 1.8
"""Thicknesses above and below its middle that it takes in at most."""


_LEAST = 2.0
"""Minimum thickness of a mark in pixels, so that a trained detector does not lose it."""
_SHORT = 0.5
"""Minimum share of a line's width that is marked, such as of a single figure."""
_APART = 0.4
"""Maximum thickness of a mark relative to the distance to the nearest line, so that marks do not touch."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text in neighbouring columns from `begin` on: the middle row and the thickness in each.

    `mask` has the rows from `top` on; `thickness` and `middle` are medians, `levels` the rows where it starts and ends.
    """

    begin: int
    rows: Floats
    heights: Floats
    mask: Mask
    top: int
    thickness: float
    middle: float
    levels: tuple[float, float]

    @property
    def end(self) -> int:
        return self.begin + len(self.rows)


def arrange_lines(outlines: Sequence[Outline], where: str) -> list[Line]:
    """Return lines with these outlines in reading order, their columns as regions. Raises DataError if there are none.

    `where` is the page's place in the source.
    """
    if not outlines:
        hint = "draw them in the workbench or in eScriptorium"
        raise DataError("page has no lines that can be found", code="no-lines-found", hint=hint)
    lines: list[Line] = []
    for number, block in enumerate(reading_blocks(outlines), start=1):
        region = Region(f"r{number}", Outline(bounds([point for outline in block for point in outline.polygon])))
        for outline in block:
            lines.append(Line("", f"{where}#{len(lines) + 1}", outline, region, len(lines)))
    return lines


def find_outlines(probabilities: Probabilities, size: tuple[int, int]) -> list[Outline]:
    """Return the outlines of the lines of a page of this size (width, height), in no order."""
    pieces, sideways = _find_pieces(probabilities)
    scale = (size[0] / probabilities.shape[1], size[1] / probabilities.shape[0])
    outlines = [_outline(line, scale, size) for line in _join_pieces(pieces)]
    for left, top, right, bottom in sideways:  # read upwards as a rule
        margin = SIDEWAYS_MARGIN * (right - left)
        polygon = _corners(left - margin, right + margin, top - margin, bottom + margin) * scale
        baseline = np.multiply([(right, bottom), (right, top)], scale)
        outlines.append(Outline.of_polygon(pixels(polygon, size), pixels(baseline, size)))
    return outlines


def _find_pieces(probabilities: Probabilities) -> tuple[list[_Piece], list[Box]]:
    """Connected pixels of text, and the boxes of sideways text."""
    pieces: list[_Piece] = []
    tall: list[tuple[Mask, int, int]] = []
    for place, mask in components(probabilities > TEXT):
        if min(mask.shape) < _MIN_SIZE or probabilities[place][mask].mean() < _CERTAIN:
            continue
        top, left = place[0].start, place[1].start
        if mask.shape[0] > SIDEWAYS * mask.shape[1]:
            tall.append((mask, left, top))
        else:
            pieces.append(_piece(mask, left, top))
    usual = float(np.median([piece.thickness for piece in pieces])) if pieces else 0.0
    lines = [piece for piece in pieces if piece.thickness <= _MERGED * usual]
    tall += [(piece.mask, piece.begin, piece.top) for piece in pieces if piece.thickness > _MERGED * usual]
    sideways: list[Box] = []
    for mask, left, top in tall:
        if parts := _split_at_rows(mask, left, top, lines, usual):
            lines += parts
        elif mask.shape[0] > SIDEWAYS * mask.shape[1]:
            sideways.append((left, top, left + mask.shape[1], top + mask.shape[0]))
        else:
            lines.append(_piece(mask, left, top))
    return lines, sideways


def _piece(mask: Mask, left: int, top: int) -> _Piece:
    heights = mask.sum(axis=0).astype(np.float64)
    rows = (mask * np.arange(len(mask))[:, None]).sum(axis=0) / np.maximum(heights, 1) + top
    columns = np.flatnonzero(heights)
    used = slice(columns[0], columns[-1] + 1)
    rows, heights = rows[used], np.maximum(heights[used], 1)
    thickness, middle = float(np.median(heights)), float(np.median(rows))
    start = slice(int(2 * thickness) + 1)
    levels = float(rows[start].mean()), float(rows[::-1][start].mean())
    return _Piece(left + int(columns[0]), rows, heights, mask, top, thickness, middle, levels)


def _split_at_rows(mask: Mask, left: int, top: int, lines: Sequence[_Piece], usual: float) -> list[_Piece]:
    """Split a column of short lines that touch, such as dates, at the rows that the nearest column beside it shows.

    Returns nothing for a narrow column, such as text along the side of the page, or without two rows beside it.
    """
    height, width = mask.shape
    if width <= _MERGED * usual:
        return []
    beside: list[tuple[float, float]] = []
    for line in lines:
        gap = max(line.begin - left - width, left - line.end)
        if gap >= 0 and top <= line.middle < top + height:
            beside.append((gap, line.middle))
    nearest = min((gap for gap, _ in beside), default=0.0) + _MERGED * usual
    middles = sorted(middle for gap, middle in beside if gap <= nearest)
    rows = middles[:1] + [row for before, row in pairwise(middles) if row - before > usual]
    if len(rows) < 2:
        return []
    cuts = [0, *(round((row + following) / 2) - top for row, following in pairwise(rows)), height]
    pieces = []
    for begin, end in pairwise(cuts):
        band = mask[begin:end].copy()
        inked = np.flatnonzero(band.any(axis=1))
        if len(inked):
            # The middle half is as thick as a detector marks a line that does not touch the next.
            quarter = (inked[-1] + 1 - inked[0]) // 4
            middle = slice(inked[0] + quarter, inked[-1] + 1 - quarter)
            if band[middle].any():
                band[: middle.start] = band[middle.stop :] = False
            pieces.append(_piece(band, left, top + begin))
    return pieces


def _join_pieces(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Pieces of the same line, left to right: each continues the nearest line that ends before it at its height."""
    usual = float(np.median([piece.thickness for piece in pieces])) if pieces else 0.0
    lines: list[list[_Piece]] = []
    lasts = np.zeros((4, len(pieces)))  # of the last piece of each line
    for piece in sorted(pieces, key=lambda piece: piece.begin):
        end, level, thickness, length = lasts[:, : len(lines)]
        gap, step = piece.begin - end, np.abs(level - piece.levels[0])
        thinner, thicker = np.minimum(thickness, piece.thickness), np.maximum(thickness, piece.thickness)
        follows = (gap >= -0.5 * np.minimum(length, len(piece.rows))) & (
            step <= _MAX_STEP * np.minimum(thicker, 1.5 * usual)
        )
        follows &= gap <= _MAX_GAP * np.maximum(thinner, 0.6 * usual)
        number = len(lines)
        if follows.any():
            number = int(np.argmin(np.where(follows, step + 0.3 * np.maximum(gap, 0), math.inf)))
        else:
            lines.append([])
        lines[number].append(piece)
        lasts[:, number] = piece.end, piece.levels[1], piece.thickness, len(piece.rows)
    return lines


def _outline(line: list[_Piece], scale: tuple[float, float], size: tuple[int, int]) -> Outline:
    """A band around the middle of a line, and its baseline."""
    columns = np.concatenate([np.arange(piece.begin, piece.end) for piece in line])
    columns, first = np.unique(columns, return_index=True)
    rows = np.concatenate([piece.rows for piece in line])[first]
    thickness = float(np.median(np.concatenate([piece.heights for piece in line])))
    rows = windows(rows, 2 * int(2 * thickness) + 1, mode="edge").mean(-1)
    count = max(round(len(columns) / (_KNOT * thickness)), 2)
    knots = np.unique(np.linspace(0, len(columns) - 1, count).round().astype(np.int64))
    across, down = columns[knots].astype(np.float64), rows[knots]
    baseline = np.stack([across, down + _BASELINE * thickness], axis=1)
    across[0] -= BEYOND * thickness
    across[-1] += BEYOND * thickness
    upper = np.stack([across, down - ABOVE * thickness], axis=1)
    lower = np.stack([across, down + BELOW * thickness], axis=1)
    polygon = np.concatenate([upper, lower[::-1]])
    return Outline.of_polygon(pixels(polygon * scale, size), pixels(baseline * scale, size))


def reading_outlines(outlines: Sequence[Outline]) -> list[Outline]:
    """Return outlines to cut the images from that are read: taller than those of `find_outlines` where there is room.

    Letters reach beyond drawn outlines, and are read better whole. Outlines of other shapes stay as they are.
    """
    boxes = np.array([bounds(outline.baseline or outline.polygon) for outline in outlines]).reshape(-1, 4)
    return [_heighten(outline, outlines, boxes) for outline in outlines]


def _heighten(outline: Outline, others: Sequence[Outline], boxes: Rows) -> Outline:
    """Heighten an outline as far as the others, whose baselines have these boxes, leave room."""
    half = len(outline.polygon) // 2
    upper, lower = np.array(outline.polygon[:half]), np.array(outline.polygon[: half - 1 : -1])
    if half < 2 or upper.shape != lower.shape or (upper[:, 0] != lower[:, 0]).any() or len(outline.baseline) != half:
        return outline
    thickness = float(np.median(lower[:, 1] - upper[:, 1])) / (ABOVE + BELOW)
    samples = np.linspace(upper[0, 0], upper[-1, 0], 32)
    middle = np.interp(samples, upper[:, 0], upper[:, 1]) + ABOVE * thickness
    above = below = float("inf")
    # Others are only looked at where they can be near enough to matter.
    reach, level = _MAX_REACH / _TO_NEIGHBOUR * thickness, middle + _BASELINE * thickness
    left, top, right, bottom = boxes.T
    is_near = (left <= samples[-1]) & (right >= samples[0])
    is_near &= (top <= level.max() + reach) & (bottom >= level.min() - reach)
    for other in (others[number] for number in np.flatnonzero(is_near).tolist()):
        across, down = np.array(other.baseline).T
        beside = (samples >= across.min()) & (samples <= across.max())
        if other is outline or beside.sum() < len(samples) / 8 or across[0] >= across[-1]:
            continue
        # From middle to middle, as far below the baselines as each other.
        distance = np.interp(samples[beside], across, down) - _BASELINE * thickness - middle[beside]
        apart = float(np.median(distance)) / thickness
        if apart < -0.5:
            above = min(above, -apart)
        elif apart > 0.5:
            below = min(below, apart)
    rise = (min(max(_TO_NEIGHBOUR * above, ABOVE), _MAX_REACH) - ABOVE) * thickness
    fall = (min(max(_TO_NEIGHBOUR * below, BELOW), _MAX_REACH) - BELOW) * thickness
    polygon = [*(upper - (0, round(rise))).tolist(), *np.add(lower[::-1], (0, round(fall))).tolist()]
    return Outline.of_polygon(tuple((int(x), max(int(y), 0)) for x, y in polygon), outline.baseline)


@dataclass(frozen=True, slots=True)
class _Middle:
    """The middle rows of a line in neighbouring columns, and the height of its outline."""

    columns: Floats
    rows: Floats
    height: float


def draw_lines(outlines: Sequence[Outline], size: tuple[int, int], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels, (rows, columns) as in `shape`, that are in the middle of a line of a page of `size`."""
    drawn = Image.new("1", (shape[1], shape[0]))
    pen = ImageDraw.Draw(drawn)
    scale = np.array([shape[1] / size[0], shape[0] / size[1]])
    middles = [_middle(outline, scale) for outline in outlines if not _is_sideways(outline)]
    bands = [_band(middle, distance) for middle, distance in zip(middles, _distances(middles), strict=True)]
    bands += [_sideways_band(outline, scale) for outline in outlines if _is_sideways(outline)]
    for band in bands:
        pen.polygon(band.ravel().tolist(), fill=1)
    return np.asarray(drawn)


def _is_sideways(outline: Outline) -> bool:
    left, top, right, bottom = outline.box
    return bool(quarter_turns(outline)) or (not outline.baseline and bottom - top > SIDEWAYS * (right - left))


def _middle(outline: Outline, scale: Floats) -> _Middle:
    """Return where `find_outlines` has the middle of a line with this outline."""
    columns, top, heights = _profile(np.array(outline.border) * scale)
    height = float(np.median(heights))
    middle = top + heights * ABOVE / (ABOVE + BELOW)
    baseline = np.array(outline.baseline, dtype=np.float64) * scale if len(set(outline.baseline)) > 1 else None
    if baseline is not None and (np.diff(baseline[:, 0]) > 0).all():
        # Outlines follow letters up and down, baselines the line.
        rows = np.interp(columns, baseline[:, 0], baseline[:, 1])
        return _Middle(columns, rows + np.median(middle - rows), height)
    return _Middle(columns, windows(middle, 2 * int(height) + 1, mode="edge").mean(-1), height)


def _profile(polygon: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the columns of a polygon, and its highest row and its height in each."""
    left, above = np.floor(polygon.min(axis=0)).astype(int)
    right, below = np.ceil(polygon.max(axis=0)).astype(int)
    inside = [(x - left, y - above) for x, y in polygon.tolist()]
    mask = np.asarray(fill_polygon(inside, (right - left + 1, below - above + 1)))
    filled = np.flatnonzero(mask.any(axis=0))
    heights = mask.sum(axis=0)[filled].astype(np.float64)
    columns, top = (filled + left).astype(np.float64), (mask.argmax(axis=0)[filled] + above).astype(np.float64)
    return columns, top, heights


def _distances(middles: Sequence[_Middle]) -> list[float]:
    """Return how far the nearest line above or below each line is; infinite if there is none."""
    begin, end = (np.array([middle.columns[place] for middle in middles]) for place in (0, -1))
    level = np.array([np.median(middle.rows) for middle in middles])
    heights = np.array([middle.height for middle in middles])
    distances = []
    for place, middle in enumerate(middles):
        common = np.minimum(end, end[place]) - np.maximum(begin, begin[place])
        # Lines of one row, in pieces or drawn twice, are not above each other.
        apart = np.abs(level - level[place])
        beside = (common > 0) & (apart > middle.height / 4) & (apart < 3 * np.maximum(heights, middle.height))
        nearest = float("inf")
        for other in (middles[number] for number in np.flatnonzero(beside).tolist()):
            columns = middle.columns[(middle.columns >= other.columns[0]) & (middle.columns <= other.columns[-1])]
            if len(columns):
                rows = (np.interp(columns, line.columns, line.rows) for line in (middle, other))
                nearest = min(nearest, float(np.median(np.abs(np.subtract(*rows)))))
        distances.append(nearest)
    return distances


def _band(middle: _Middle, distance: float) -> Floats:
    """Return the corners of a line's mark."""
    thickness = max(min(middle.height / (ABOVE + BELOW), _APART * distance), _LEAST)
    inset = int(min(BEYOND * thickness, (1 - _SHORT) / 2 * len(middle.columns)))
    used = slice(inset, max(len(middle.columns) - inset, inset + 1))
    columns, rows = middle.columns[used], middle.rows[used]
    upper, lower = (np.stack([columns, rows + side * thickness / 2], axis=1) for side in (-1, 1))
    return np.concatenate([upper, lower[::-1]])


def _sideways_band(outline: Outline, scale: Floats) -> Floats:
    """Return the corners of the mark of a line along the side of the page."""
    left, top, right, bottom = outline.box
    margin = (right - left) * SIDEWAYS_MARGIN / (1 + 2 * SIDEWAYS_MARGIN)
    return _corners(left + margin, right - margin, top + margin, bottom - margin) * scale


def _corners(left: float, right: float, top: float, bottom: float) -> Floats:
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
