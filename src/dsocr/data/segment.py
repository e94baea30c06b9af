"""Finding the lines on a page of handwriting: ruled or clean, scanned upright or nearly so.

No network, no training: ink is told from paper, the page is set straight, lines are the ridges of blurred ink, and
seams through least ink part them. What lines cannot be found on is refused with a sentence.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from dsocr.document import Outline, Point, Region, bounds
from dsocr.errors import DataError

Ink = NDArray[np.bool_]

_BACKGROUND = 1 / 40
"""Radius of what is taken for paper around a pixel, as a part of the page's longer side."""
_LEAST_CONTRAST = 0.08
"""Parts of the paper's brightness that ink is darker by at least: fainter marks shine through or are noise."""
_OF_INK = 0.6
"""Of the contrast that ink usually has, above which everything is ink."""
_RULE = 1 / 12
"""Of the page's width: what runs on for so long without a turn was printed, not written."""
_RULE_HEIGHT = 4
"""Pixels; thicker strokes are no ruling."""
_UNBROKEN = 0.8
"""Of a rule that is seen: scans and pens break it."""
_EDGE = 0.6
"""Of a row or column near the page's edge that is dark: the scanner's lid, or the table the page lies on."""


def find_ink(page: Image.Image) -> Ink:
    """The ink of a small grey page."""
    radius = max(round(max(page.size) * _BACKGROUND), 3)
    # What is brightest around is paper, even under writing; blurred, it follows shadows and stains.
    small = page.resize((max(page.width // 4, 1), max(page.height // 4, 1)), Image.Resampling.BOX)
    bright = small.filter(ImageFilter.MaxFilter(2 * (radius // 8) + 3)).filter(ImageFilter.BoxBlur(radius / 4))
    paper = np.asarray(bright.resize(page.size, Image.Resampling.BILINEAR), dtype=np.float32)
    contrast = 1 - np.asarray(page, dtype=np.float32) / np.maximum(paper, 1)
    least = _otsu(contrast)
    # On a clean drawing there is nothing between ink and paper, and ink alone would be parted in two.
    if (dark := contrast[contrast > least]).size:
        least = min(least, _OF_INK * float(np.median(dark)))
    ink: Ink = contrast > max(least, _LEAST_CONTRAST)
    return _without_rules(_without_edges(ink))


def _otsu(contrast: NDArray[np.floating[Any]]) -> float:
    """The threshold that parts darker from lighter pixels best (Otsu 1979), among those that are not plain paper."""
    counts, edges = np.histogram(contrast, bins=160, range=(0.02, 1.0))
    total = counts.sum()
    if not total:
        return 1.0
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    mass = np.cumsum(counts * middle)
    above = total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = (mass[-1] * below / total - mass) ** 2 / (below * above)
    best = int(np.nanargmax(np.where(np.isfinite(apart), apart, -1)))
    return float(edges[best + 1])


def _without_edges(ink: Ink) -> Ink:
    height, width = ink.shape
    cleared = ink.copy()
    for axis, length in ((0, height), (1, width)):
        dark = ink.mean(axis=1 - axis) > _EDGE
        near = np.arange(length)
        near = np.minimum(near, length - 1 - near) < length // 12
        index = np.flatnonzero(dark & near)
        if axis == 0:
            cleared[index, :] = False
        else:
            cleared[:, index] = False
    frame = max(min(height, width) // 200, 1)
    cleared[:frame], cleared[-frame:], cleared[:, :frame], cleared[:, -frame:] = False, False, False, False
    return cleared


def _without_rules(ink: Ink) -> Ink:
    """The ink without long thin strokes along the page or down it."""
    along = max(round(ink.shape[1] * _RULE), 40)
    return _without_strokes(_without_strokes(ink, along).T, 2 * along).T


def _without_strokes(ink: Ink, length: int) -> Ink:
    """The ink without what is thin and part of a stroke along the rows of at least `length`, a few gaps forgiven."""
    # A rule that is not quite level steps from row to row, so rows are looked at three together.
    thick = ink.copy()
    thick[1:] |= ink[:-1]
    thick[:-1] |= ink[1:]
    full = _sums(thick, length) >= _UNBROKEN * length
    rule = _sums(full, length) > 0
    return ink & ~(rule & (_thickness(ink) <= _RULE_HEIGHT))


def _sums(mask: Ink, length: int) -> NDArray[np.int32]:
    """How many of the `length` pixels around each in its row are set."""
    half = length // 2
    sums = np.cumsum(np.pad(mask, ((0, 0), (half + 1, length - half - 1))), axis=1, dtype=np.int32)
    around: NDArray[np.int32] = sums[:, length:] - sums[:, :-length]
    return around


def _thickness(ink: Ink) -> NDArray[np.int32]:
    """The length of the run down the page that each ink pixel belongs to."""
    height = len(ink)
    rows = np.arange(1, height + 1, dtype=np.int32)[:, None]
    before = np.maximum.accumulate(np.where(ink, 0, rows), axis=0)
    after = np.minimum.accumulate(np.where(ink, height + 1, rows)[::-1], axis=0)[::-1]
    thickness: NDArray[np.int32] = np.where(ink, after - before - 1, 0).astype(np.int32)
    return thickness


_FAINT = 0.22
"""Of what is usual on a page that a ridge must be as high as."""
_APART = 0.6
"""Of the pitch: of two ridges that are closer the lower one is ascenders or descenders."""
_JUMP = 0.35
"""Of the pitch that a line may rise or fall by from one look to the next."""
_GAP = 4.0
"""Pitches without ink after which writing at the same height is another line."""


@dataclass(slots=True)
class Ridge:
    """The middle of a line: rows at columns, from left to right."""

    columns: list[int]
    rows: list[float]
    weight: float = 0.0

    def at(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Rows at columns; beyond its ends a line goes on level."""
        rows: NDArray[np.float64] = np.interp(columns, self.columns, self.rows)
        return rows


def find_ridges(ink: Ink, pitch: float) -> list[Ridge]:
    """The lines' middles, from the top."""
    blurred = _blurred(ink, pitch)
    step = max(round(pitch / 3), 2)
    looks = range(step // 2, ink.shape[1], step)
    found = [(column, _peaks(blurred[:, column], pitch)) for column in looks]
    heights = np.array([height for _, peaks in found for _, height in peaks])
    if not len(heights):
        return []
    least = _FAINT * float(np.percentile(heights, 80))
    ridges: list[Ridge] = []
    for column, peaks in found:
        _extend(ridges, column, [(row, height) for row, height in peaks if height >= least], pitch)
    smooth = [_smoothed(ridge) for ridge in _joined(ridges, pitch) if _is_writing(ridge, pitch)]
    return sorted(smooth, key=lambda ridge: float(np.median(ridge.rows)))


def _blurred(ink: Ink, pitch: float) -> NDArray[np.float32]:
    along, across = max(round(1.2 * pitch), 3), max(round(0.28 * pitch), 1)
    return _box(_box(_box(_box(ink.astype(np.float32), along, 1), along, 1), across, 0), across, 0)


def _box(values: NDArray[np.float32], size: int, axis: int) -> NDArray[np.float32]:
    """The mean over `size` neighbours along an axis, which is made odd; nothing lies beyond the edges."""
    half = size // 2
    widths = [(0, 0), (0, 0)]
    widths[axis] = (half + 1, half)
    sums = np.cumsum(np.pad(values, widths), axis=axis, dtype=np.float64)
    length = values.shape[axis]
    upper, lower = (slice(2 * half + 1, 2 * half + 1 + length), slice(0, length))
    picked = (sums[upper] - sums[lower]) if axis == 0 else (sums[:, upper] - sums[:, lower])
    mean: NDArray[np.float32] = (picked / (2 * half + 1)).astype(np.float32)
    return mean


def _peaks(profile: NDArray[np.float32], pitch: float) -> list[tuple[int, float]]:
    """Rows and heights of the peaks down a column, the weaker of two close ones left out."""
    inner = np.flatnonzero((profile[1:-1] > profile[:-2]) & (profile[1:-1] >= profile[2:]) & (profile[1:-1] > 0)) + 1
    kept: list[int] = []
    for row in sorted(inner.tolist(), key=lambda row: -float(profile[row])):
        if all(abs(row - other) >= _APART * pitch for other in kept):
            kept.append(row)
    return [(row, float(profile[row])) for row in sorted(kept)]


def _extend(ridges: list[Ridge], column: int, peaks: list[tuple[int, float]], pitch: float) -> None:
    """Goes on with the ridges that a column's peaks belong to, and begins others."""
    live = [ridge for ridge in ridges if column - ridge.columns[-1] <= _GAP * pitch]
    pairs = sorted(
        (abs(ridge.rows[-1] - row) + 0.1 * (column - ridge.columns[-1]), place, number)
        for place, ridge in enumerate(live)
        for number, (row, _) in enumerate(peaks)
        if abs(ridge.rows[-1] - row) <= _JUMP * pitch
    )
    used_ridges: set[int] = set()
    used_peaks: set[int] = set()
    for _, place, number in pairs:
        if place in used_ridges or number in used_peaks:
            continue
        used_ridges.add(place)
        used_peaks.add(number)
        row, height = peaks[number]
        live[place].columns.append(column)
        live[place].rows.append(float(row))
        live[place].weight += height
    ridges += [
        Ridge([column], [float(row)], height) for number, (row, height) in enumerate(peaks) if number not in used_peaks
    ]


def _joined(ridges: list[Ridge], pitch: float) -> list[Ridge]:
    """Ridges that go on where another ends, within the gap that words may have, made one."""
    joined: list[Ridge] = []
    for ridge in sorted(ridges, key=lambda ridge: ridge.columns[0]):
        before = [
            other
            for other in joined
            if 0 < ridge.columns[0] - other.columns[-1] <= _GAP * pitch
            and abs(_end(other) - _begin(ridge)) <= 0.5 * pitch
        ]
        if not before:
            joined.append(ridge)
            continue
        nearest = min(before, key=lambda other: abs(_end(other) - _begin(ridge)))
        nearest.columns += ridge.columns
        nearest.rows += ridge.rows
        nearest.weight += ridge.weight
    return joined


def _begin(ridge: Ridge) -> float:
    return float(np.median(ridge.rows[:5]))


def _end(ridge: Ridge) -> float:
    return float(np.median(ridge.rows[-5:]))


def _is_writing(ridge: Ridge, pitch: float) -> bool:
    return ridge.columns[-1] - ridge.columns[0] >= 0.8 * pitch


def _smoothed(ridge: Ridge) -> Ridge:
    """The ridge without the steps of single letters."""
    if len(ridge.rows) < 5:
        return ridge
    padded = np.pad(np.array(ridge.rows), 4, mode="edge")
    rows = np.convolve(padded, np.ones(9) / 9, mode="valid")
    return Ridge(ridge.columns, rows.tolist(), ridge.weight)


_STEPS = 24
"""Heights between two lines that a seam may take."""
_INK = 4.0
"""What crossing ink costs, against going off the middle all the way."""


def find_seam(
    ink: Ink, columns: NDArray[np.int64], upper: NDArray[np.float64], lower: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rows of the seam at `columns`, between the middles of the upper and the lower line there."""
    shares = np.linspace(0.08, 0.92, _STEPS)
    rows = upper + shares[:, None] * (lower - upper)
    crossed = ink[np.clip(np.round(rows).astype(np.int64), 0, ink.shape[0] - 1), columns]
    costs = _INK * crossed + ((shares - 0.5) ** 2 * 2)[:, None]
    total = costs[:, 0]
    steps = np.zeros((len(columns), _STEPS), dtype=np.int8)
    for place in range(1, len(columns)):
        padded = np.concatenate([[np.inf], total, [np.inf]])
        options = np.stack([padded[:-2], padded[1:-1], padded[2:]])
        best = options.argmin(axis=0)
        steps[place] = best - 1
        total = options[best, np.arange(_STEPS)] + costs[:, place]
    path = np.empty(len(columns), dtype=np.int64)
    path[-1] = int(total.argmin())
    for place in range(len(columns) - 1, 0, -1):
        path[place - 1] = path[place] + steps[place, path[place]]
    seam: NDArray[np.float64] = rows[path, np.arange(len(columns))]
    return seam


_STEEPEST = 5.0
"""Degrees that a page may lean by."""
_POINTS = 60_000
"""Ink pixels that are looked at to tell how a page leans."""


def lean_of(ink: Ink) -> float:
    """Rows that the lines fall by for each column, downwards positive: where the rows' ink differs most."""
    rows, columns = np.nonzero(ink)
    every = max(len(rows) // _POINTS, 1)
    rows, columns = rows[::every], columns[::every]
    best = 0.0
    for step, reach in ((0.5, _STEEPEST), (0.1, 0.5)):
        angles = np.degrees(np.arctan(best)) + np.arange(-reach, reach + step / 2, step)
        best = max(np.tan(np.radians(angles)), key=lambda lean: _sharpness(rows, columns, float(lean)))
    return float(best)


def _sharpness(rows: NDArray[np.int64], columns: NDArray[np.int64], lean: float) -> float:
    levelled = np.round(rows - lean * columns).astype(np.int64)
    counts = np.bincount(levelled - levelled.min()).astype(np.float64)
    return float(np.square(np.diff(counts)).sum())


def levelled(ink: Ink, lean: float) -> tuple[Ink, NDArray[np.int64]]:
    """The ink with each column moved so that lines are level, and how far down each was moved."""
    height, width = ink.shape
    fall = np.round(-lean * (np.arange(width) - width / 2)).astype(np.int64)
    fall -= fall.min()
    moved = np.zeros((height + int(fall.max()), width), dtype=bool)
    rows, columns = np.nonzero(ink)
    moved[rows + fall[columns], columns] = True
    return moved, fall


def pitch_of(ink: Ink) -> float:
    """How far lines are apart, in rows: where the page's ink repeats itself downwards."""
    height = len(ink)
    # In narrow strips, as lines of a hand wander over a whole page.
    strips = [part.sum(axis=1).astype(np.float64) for part in np.array_split(ink, 8, axis=1)]
    longest = min(height // 3, 400)
    alike = np.zeros(longest)
    for strip in strips:
        if not strip.any():
            continue
        # A printed head or a heavy stroke must not outweigh lines of writing.
        strip = np.minimum(strip, np.percentile(strip[strip > 0], 60))
        level = strip - strip.mean()
        spectrum = np.abs(np.fft.rfft(level, 2 * height)) ** 2
        repeats = np.fft.irfft(spectrum)[:longest]
        alike += repeats / max(repeats[0], 1e-9) * strip.sum()
    alike = np.convolve(alike, np.ones(3) / 3, mode="same")
    peaks = [lag for lag in range(8, longest - 1) if alike[lag] > alike[lag - 1] and alike[lag] >= alike[lag + 1]]
    strongest = max((alike[lag] for lag in peaks), default=0.0)
    if strongest <= 0.05 * max(alike[0], 1e-9):
        return _from_heights(ink)
    return float(next(lag for lag in peaks if alike[lag] >= 0.7 * strongest))


def _from_heights(ink: Ink) -> float:
    """Of a page with a line or two: twice the height that most of a line's ink takes."""
    rows = ink.sum(axis=1).astype(np.float64)
    busy = rows > 0.3 * rows.max()
    edges = np.flatnonzero(np.diff(np.concatenate([[0], busy.astype(np.int8), [0]])))
    heights = edges[1::2] - edges[::2]
    return float(max(2 * np.median(heights[heights >= 3]) if (heights >= 3).any() else 20, 12))


def columns_of(ink: Ink, pitch: float) -> list[tuple[int, int]]:
    """The columns of writing, left to right: parted where nothing is written from top to bottom of the writing."""
    width = ink.shape[1]
    across = ink.sum(axis=0)
    # A gutter may have specks in it.
    empty = np.convolve(across, np.ones(5), mode="same") <= 0.002 * ink.shape[0] * 5
    written = np.flatnonzero(~empty)
    if not len(written):
        return []
    gaps = np.flatnonzero(np.diff(written) > max(1.5 * pitch, 0.02 * width))
    begins = [int(written[0]), *(int(written[gap + 1]) for gap in gaps)]
    ends = [*(int(written[gap]) + 1 for gap in gaps), int(written[-1]) + 1]
    columns: list[tuple[int, int]] = []
    for begin, end in zip(begins, ends, strict=True):
        # What is narrow is a page number, a date or a margin, and belongs to what stands beside it.
        narrow = end - begin < 0.2 * width or ink[:, begin:end].sum() < 0.15 * ink.sum()
        if columns and (narrow or columns[-1][1] - columns[-1][0] < 0.2 * width):
            columns[-1] = (columns[-1][0], end)
        else:
            columns.append((begin, end))
    return columns


_LONGEST = 1600
"""Pixels of the longer side that a page is worked on at: letters are seen well, and memory stays below 60 MB."""
_MOST_INK = 0.25
"""Of a page that may be ink; a page with more is a picture, or a negative."""
_LEAST_INK = 60
"""Pixels of ink on a page that anything is written on."""
_STEP = 2
_REACH = 1.1
"""Pitches above and below its middle that a line's ink may stand at where no other line is near."""
_FAINT_LINE = 0.3
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
    return [line for line in lines if line.density >= _FAINT_LINE * usual]


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
