"""Training targets for the text detector: the pixels in the middle of lines, as `find_lines` expects them.

The inverse of the outlines that `dsocr.data.lines` draws around a detector's marks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import uniform_filter1d

from dsocr.data.lines import ABOVE, BELOW, BEYOND, SIDEWAYS, SIDEWAYS_MARGIN
from dsocr.document import Outline
from dsocr.outlines import quarter_turns

_LEAST = 2.0
"""Pixels that the middle of a line is thick at least, so that a trained detector does not lose it."""
_SHORT = 0.5
"""Least share of a line's width that is marked, such as of a single figure."""
_APART = 0.4
"""Most thickness of a line by the distance to the nearest one above or below, so that marks do not touch."""

Floats = NDArray[np.float64]


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
        pen.polygon([(x, y) for x, y in band.tolist()], fill=1)
    return np.asarray(drawn)


def _is_sideways(outline: Outline) -> bool:
    left, top, right, bottom = outline.box
    return bool(quarter_turns(outline)) or (not outline.baseline and bottom - top > SIDEWAYS * (right - left))


def _middle(outline: Outline, scale: Floats) -> _Middle:
    """Return where `find_lines` has the middle of a line with this outline."""
    columns, top, heights = _profile(np.array(outline.border) * scale)
    height = float(np.median(heights))
    middle = top + heights * ABOVE / (ABOVE + BELOW)
    baseline = np.array(outline.baseline, dtype=np.float64) * scale if len(set(outline.baseline)) > 1 else None
    if baseline is not None and (np.diff(baseline[:, 0]) > 0).all():
        # Outlines follow letters up and down, baselines the line.
        rows = np.interp(columns, baseline[:, 0], baseline[:, 1])
        return _Middle(columns, rows + np.median(middle - rows), height)
    return _Middle(columns, uniform_filter1d(middle, 2 * int(height) + 1, mode="nearest"), height)


def _profile(polygon: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the columns of a polygon, and its highest row and its height in each."""
    left, above = np.floor(polygon.min(axis=0)).astype(int)
    right, below = np.ceil(polygon.max(axis=0)).astype(int)
    drawn = Image.new("1", (right - left + 1, below - above + 1))
    ImageDraw.Draw(drawn).polygon([(x - left, y - above) for x, y in polygon.tolist()], fill=1, outline=1)
    mask = np.asarray(drawn)
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
    x0, x1, y0, y1 = left + margin, right - margin, top + margin, bottom - margin
    return np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)]) * scale
