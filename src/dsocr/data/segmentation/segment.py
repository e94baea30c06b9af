"""From a page to its lines: polygons around their ink, baselines under it, in reading order."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.data.segmentation.ink import Ink, find_ink
from dsocr.data.segmentation.ridges import Ridge, find_ridges
from dsocr.data.segmentation.seams import find_seam
from dsocr.data.segmentation.straight import columns_of, lean_of, levelled, pitch_of
from dsocr.data.sources.layout import Outline, Point, Region, bounds
from dsocr.errors import DataError

_LONGEST = 1600
"""Pixels of the longer side that a page is worked on at: letters are seen well, and memory stays below 60 MB."""
_MOST_INK = 0.25
"""Of a page that may be ink; a page with more is a picture, or a negative."""
_LEAST_INK = 60
"""Pixels of ink on a page that anything is written on."""
_STEP = 2
_REACH = 1.1
"""Pitches above and below its middle that a line's ink may stand at where no other line is near."""
_FAINT = 0.3
"""Of the ink that lines of a page usually have; what has less is left of rules, or shines through."""
_THIN = 0.12
"""Pitches; what is lower all along is a rule or a struck-out nothing, not writing."""
_AROUND = 0.08
"""Pitches around a line's ink that its outline takes in."""
_KNOT = 0.5
"""Pitches between two corners of an outline."""


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line that was found, in pixels of the page, and the column it stands in."""

    outline: Outline
    region: Region


def segment(page: Image.Image) -> list[FoundLine]:
    """The lines of a page, column by column, from the top. Raises DataError where no lines can be told."""
    scale = min(_LONGEST / max(page.size), 1.0)
    size = (max(round(page.width * scale), 1), max(round(page.height * scale), 1))
    ink = find_ink(page.convert("L").resize(size, Image.Resampling.BOX) if scale < 1 else page.convert("L"))
    amount = int(ink.sum())
    if amount < _LEAST_INK:
        raise DataError("no writing is found on the page: it is blank, or too faint")
    if amount > _MOST_INK * ink.size:
        raise DataError("the page is dark all over, so lines cannot be told from its ground")
    straight, fall = levelled(ink, lean_of(ink))
    pitch = pitch_of(straight)
    found: list[FoundLine] = []
    for number, (begin, end) in enumerate(columns_of(straight, pitch), start=1):
        drawn = _lines(straight[:, begin:end], pitch)
        moved = [_placed(line, begin, fall, scale, page.size) for line in drawn]
        if moved:
            corners = [point for outline in moved for point in outline.polygon]
            region = Region(f"r{number}", Outline(bounds(corners)))
            found += [FoundLine(outline, region) for outline in moved]
    if not found:
        raise DataError("no lines are found on the page", hint="draw them in eScriptorium, or try --segmenter kraken")
    return found


@dataclass(frozen=True, slots=True)
class Drawn:
    """Polygon and baseline of a line, both `points x 2`, column and row; `density` is its ink by length."""

    polygon: NDArray[np.float64]
    baseline: NDArray[np.float64]
    density: float


def _lines(ink: Ink, pitch: float) -> list[Drawn]:
    ridges = find_ridges(ink, pitch)
    columns = np.arange(0, ink.shape[1], _STEP)
    middles = [ridge.at(columns) for ridge in ridges]
    spans = [_span(ridge, columns, pitch) for ridge in ridges]
    tops = [middle - _REACH * pitch for middle in middles]
    bottoms = [middle + _REACH * pitch for middle in middles]
    for upper, lower in _neighbours(middles, spans):
        both = spans[upper] & spans[lower]
        seam = find_seam(ink, columns[both], middles[upper][both], middles[lower][both])
        bottoms[upper][both] = np.minimum(bottoms[upper][both], seam)
        tops[lower][both] = np.maximum(tops[lower][both], seam)
    parts = zip(middles, spans, tops, bottoms, strict=True)
    drawn = [
        _drawn(ink, columns[span], middle[span], top[span], bottom[span], pitch) for middle, span, top, bottom in parts
    ]
    lines = [line for line in drawn if line is not None]
    usual = float(np.median([line.density for line in lines])) if lines else 0.0
    return [line for line in lines if line.density >= _FAINT * usual]


def _span(ridge: Ridge, columns: NDArray[np.int64], pitch: float) -> NDArray[np.bool_]:
    """The columns that a line may have ink at: a letter beyond where its ridge was seen, as the blur takes ends off."""
    return (columns >= ridge.columns[0] - 1.5 * pitch) & (columns <= ridge.columns[-1] + 1.5 * pitch)


def _neighbours(middles: list[NDArray[np.float64]], spans: list[NDArray[np.bool_]]) -> list[tuple[int, int]]:
    """Pairs of lines that stand above each other somewhere with no third between them, the upper one first."""
    if not middles:
        return []
    rows = np.where(np.stack(spans), np.stack(middles), np.inf)
    order = np.argsort(rows, axis=0)
    pairs: set[tuple[int, int]] = set()
    for place in range(len(middles) - 1):
        upper, lower = order[place], order[place + 1]
        there = np.isfinite(np.take_along_axis(rows, lower[None], axis=0)[0])
        pairs |= set(zip(upper[there].tolist(), lower[there].tolist(), strict=True))
    return sorted(pairs)


def _drawn(
    ink: Ink,
    columns: NDArray[np.int64],
    middle: NDArray[np.float64],
    top: NDArray[np.float64],
    bottom: NDArray[np.float64],
    pitch: float,
) -> Drawn | None:
    """The outline around a line's ink between its seams, and its baseline; None where there is hardly any."""
    height = ink.shape[0]
    first = np.clip(np.round(top).astype(np.int64), 0, height)
    last = np.clip(np.round(bottom).astype(np.int64), 0, height)
    base = int(first.min())
    band = ink[base : int(last.max()) + 1][:, columns].copy()
    rows = np.arange(base, base + band.shape[0])[:, None]
    band &= (rows >= first) & (rows < last)
    # Ends without ink are no part of the line; a speck is no ink.
    busy = np.flatnonzero(band.sum(axis=0) > 0)
    if len(busy) < 0.4 * pitch / _STEP or band.sum() < 1.5 * pitch / _STEP:
        return None
    begin, end = int(busy[0]), int(busy[-1]) + 1
    knots = max(round((end - begin) * _STEP / (_KNOT * pitch)), 2)
    edges = np.linspace(begin, end, knots + 1).round().astype(np.int64)
    upper, lower, middles = [], [], []
    for left, right in pairwise(edges):
        there = np.flatnonzero(band[:, left : max(right, left + 1)].any(axis=1))
        at = float(middle[left : max(right, left + 1)].mean())
        upper.append(min(float(rows[there[0], 0]), at) if len(there) else np.nan)
        lower.append(max(float(rows[there[-1], 0]) + 1, at) if len(there) else np.nan)
        middles.append(at)
    if np.nanmedian(np.array(lower) - np.array(upper)) < _THIN * pitch:
        return None
    high, low = _bridged(upper), _bridged(lower)
    # As people draw them: not around each letter, and not quite as close.
    high, low = _widest(high, np.minimum) - _AROUND * pitch, _widest(low, np.maximum) + _AROUND * pitch
    across = columns[np.clip((edges[:-1] + edges[1:]) // 2, 0, len(columns) - 1)].astype(np.float64)
    across[0], across[-1] = columns[begin], columns[end - 1] + _STEP
    polygon = np.concatenate([np.stack([across, high], 1), np.stack([across, low], 1)[::-1]])
    baseline = np.stack([across[[0, -1]], _baseline(band, rows, edges, np.array(middles), pitch)], 1)
    return Drawn(polygon, baseline, float(band.sum()) / (end - begin))


def _widest(values: NDArray[np.float64], of: np.ufunc) -> NDArray[np.float64]:
    """Each value or its neighbours', whichever goes further out."""
    padded = np.pad(values, 1, mode="edge")
    widest: NDArray[np.float64] = of(of(padded[:-2], padded[2:]), values)
    return widest


def _bridged(values: list[float]) -> NDArray[np.float64]:
    """Values with gaps filled from both sides."""
    known = np.array(values)
    there = np.isfinite(known)
    places = np.arange(len(known))
    bridged: NDArray[np.float64] = np.interp(places, places[there], known[there])
    return bridged


def _baseline(
    band: NDArray[np.bool_],
    rows: NDArray[np.int64],
    edges: NDArray[np.int64],
    middles: NDArray[np.float64],
    pitch: float,
) -> NDArray[np.float64]:
    """Rows at both ends of the straight line that the letters stand on: below it there is a fifth of a knot's ink."""
    feet = []
    for left, right, middle in zip(edges[:-1], edges[1:], middles, strict=True):
        counts = band[:, left : max(right, left + 1)].sum(axis=1)
        total = counts.sum()
        feet.append(float(rows[int(np.searchsorted(np.cumsum(counts), 0.85 * total)), 0]) if total else middle)
    places = np.arange(len(feet), dtype=np.float64)
    if len(feet) < 3:
        return np.full(2, float(np.median(feet)))
    slope, start = np.polyfit(places, np.array(feet), 1)
    return np.array([start, start + slope * places[-1]])


def _placed(
    line: Drawn,
    begin: int,
    fall: NDArray[np.int64],
    scale: float,
    size: tuple[int, int],
) -> Outline:
    """The line on the page as it came: not levelled, in its own pixels."""

    def back(points: NDArray[np.float64]) -> tuple[Point, ...]:
        across = points[:, 0] + begin
        rows = points[:, 1] - fall[np.clip(across.astype(np.int64), 0, len(fall) - 1)]
        xs = np.clip(np.round(across / scale), 0, size[0] - 1).astype(int)
        ys = np.clip(np.round(rows / scale), 0, size[1] - 1).astype(int)
        return tuple(zip(xs.tolist(), ys.tolist(), strict=True))

    return Outline.of_polygon(back(line.polygon), back(line.baseline))
