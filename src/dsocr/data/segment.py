"""Find the text lines of a handwritten page, ruled or not, scanned upright or nearly so, without a network.

Ink is separated from paper, the page is deskewed, lines are ridges of the blurred ink, and seams through the least ink
separate neighbouring lines. Pages are arrays of booleans (rows, columns), True where there is ink; `pitch` is the
distance between lines in rows.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from scipy.ndimage import (
    binary_dilation,
    binary_erosion,
    binary_fill_holes,
    binary_opening,
    label,
    maximum_filter1d,
    minimum_filter1d,
    uniform_filter1d,
)
from scipy.signal import find_peaks

from dsocr.document import Outline, Point, Region, bounds
from dsocr.errors import DataError

Ink = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_SIDE = 1600
"""Longer side in pixels at which a page is segmented: letters are visible, and memory stays below 60 MB."""
_MAX_INK = 0.25
"""Share of ink above which a page is a picture or a negative."""
_MIN_INK = 60
"""Pixels of ink on a page with any writing."""
_STEP = 2
"""Columns between two points of a line's outline while it is being found."""
_REACH = 1.1
"""Pitches above and below its middle at which a line without neighbours may have ink."""
_FAINT_LINE = 0.3
"""Lines with a smaller share of the page's median ink per length are remains of rules, or shine through."""
_MIN_HEIGHT = 0.12
"""Pitches; what is lower all along is a rule or a stroke, not writing."""
_MARGIN = 0.08
"""Pitches between a line's ink and its outline."""
_KNOT = 0.5
"""Pitches between two corners of an outline."""


@dataclass(frozen=True, slots=True)
class SegmentedLine:
    """A line found on a page, in pixels of the page, and the column it is in."""

    outline: Outline
    region: Region


@dataclass(frozen=True, slots=True)
class _Shape:
    """Polygon and baseline of a line, both (points, 2) of column and row; `density` is its ink per length."""

    polygon: Floats
    baseline: Floats
    density: float


def segment(page: Image.Image) -> list[SegmentedLine]:
    """Find the lines of a page, column by column from the top. Raises DataError if there are none."""
    scale = min(_MAX_SIDE / max(page.size), 1.0)
    size = (max(round(page.width * scale), 1), max(round(page.height * scale), 1))
    grey = page.convert("L").resize(size, Image.Resampling.BOX) if scale < 1 else page.convert("L")
    ink = find_ink(_fill_borders(grey))
    amount = int(ink.sum())
    if amount < _MIN_INK:
        raise DataError("page is blank, or its writing too faint", code="page-blank")
    if amount > _MAX_INK * ink.size:
        raise DataError("page is dark all over, so lines cannot be separated from the background", code="page-dark")
    straight, shifts = deskew(ink, find_skew(ink))
    pitch = find_pitch(straight)
    found: list[SegmentedLine] = []
    for number, (begin, end) in enumerate(find_columns(straight, pitch), start=1):
        shapes = _find_lines(straight[:, begin:end], pitch)
        outlines = [_to_page(shape, begin, shifts, scale, page.size) for shape in shapes]
        if outlines:
            region = Region(f"r{number}", Outline(bounds([point for outline in outlines for point in outline.polygon])))
            found += [SegmentedLine(outline, region) for outline in outlines]
    if not found:
        hint = "draw them in eScriptorium, or try --segmenter kraken"
        raise DataError("page has no lines that can be found", code="lines-missing", hint=hint)
    return found


def _to_page(shape: _Shape, begin: int, shifts: Ints, scale: float, size: tuple[int, int]) -> Outline:
    """The outline on the original page: not deskewed, at its own size."""

    def points(corners: Floats) -> tuple[Point, ...]:
        across = corners[:, 0] + begin
        rows = corners[:, 1] - shifts[np.clip(across.astype(np.int64), 0, len(shifts) - 1)]
        xs = np.clip(np.round(across / scale), 0, size[0] - 1).astype(int)
        ys = np.clip(np.round(rows / scale), 0, size[1] - 1).astype(int)
        return tuple(zip(xs.tolist(), ys.tolist(), strict=True))

    return Outline.of_polygon(points(shape.polygon), points(shape.baseline))


# Borders.

_BORDER_SIDE = 400
"""Longer side in pixels at which borders are looked for."""
_BORDER_LEVEL = 0.5
"""Share of the paper's level below which a border is."""
_LETTER = 9
"""Pixels at that size: larger than strokes, which are not holes in the page."""
_MIN_BORDER, _MIN_PAGE = 0.02, 0.2
"""Shares of the scan below which nothing is filled."""


def _fill_borders(grey: Image.Image) -> Image.Image:
    """Fill dark borders around the page with the level of its paper; a scan without borders stays as it is."""
    factor = max(1, round(max(grey.size) / _BORDER_SIDE))
    small = np.asarray(grey.reduce(factor).filter(ImageFilter.MaxFilter(_LETTER)), dtype=np.float32)
    paper = float(np.percentile(small, 90))
    regions, count = label(small > _BORDER_LEVEL * paper)
    if not count:
        return grey
    largest = regions == np.argmax(np.bincount(regions.ravel())[1:]) + 1
    sheet = binary_erosion(binary_fill_holes(largest), iterations=_LETTER // 2 + 1, border_value=1)
    if 1 - largest.mean() < _MIN_BORDER or sheet.mean() < _MIN_PAGE:
        return grey
    mask = Image.fromarray(sheet.astype(np.uint8) * 255).resize(grey.size, Image.Resampling.NEAREST)
    level = int(np.median(np.asarray(grey)[np.asarray(mask) > 0]))
    return Image.composite(grey, Image.new("L", grey.size, level), mask)


# Ink.

_PAPER_RADIUS = 1 / 40
"""Radius around a pixel in which the brightest level is paper, as a share of the page's longer side."""
_MIN_CONTRAST = 0.08
"""Share of the paper's brightness by which ink is darker; fainter marks shine through or are noise."""
_INK_CONTRAST = 0.6
"""Share of the ink's median contrast above which everything is ink."""
_RULE_LENGTH = 1 / 12
"""Share of the page's width: what is this long without a turn was printed, not written."""
_RULE_HEIGHT = 4
"""Pixels; thicker strokes are not rules."""
_RULE_UNBROKEN = 0.8
"""Share of a rule that is visible: scans and pens interrupt it."""
_EDGE_INK = 0.6
"""Share of ink in a row or column near the edge that is the scanner's lid or the table under the page."""


def find_ink(page: Image.Image) -> Ink:
    """Find the ink of a small grey page, without rules and without dark edges."""
    radius = max(round(max(page.size) * _PAPER_RADIUS), 3)
    # The brightest level around a pixel is paper, even under writing; blurred, it follows shadows and stains.
    small = page.resize((max(page.width // 4, 1), max(page.height // 4, 1)), Image.Resampling.BOX)
    bright = small.filter(ImageFilter.MaxFilter(2 * (radius // 8) + 3)).filter(ImageFilter.BoxBlur(radius / 4))
    paper = np.asarray(bright.resize(page.size, Image.Resampling.BILINEAR), dtype=np.float32)
    contrast = 1 - np.asarray(page, dtype=np.float32) / np.maximum(paper, 1)
    threshold = _otsu_threshold(contrast)
    # A clean drawing has nothing between ink and paper, and Otsu's threshold would split the ink.
    if (dark := contrast[contrast > threshold]).size:
        threshold = min(threshold, _INK_CONTRAST * float(np.median(dark)))
    ink: Ink = contrast > max(threshold, _MIN_CONTRAST)
    return _remove_rules(_remove_edges(ink))


def _otsu_threshold(contrast: NDArray[np.floating[Any]]) -> float:
    """The threshold that separates darker from lighter pixels best (Otsu 1979), plain paper left out."""
    counts, edges = np.histogram(contrast, bins=160, range=(0.02, 1.0))
    total = counts.sum()
    if not total:
        return 1.0
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    mass = np.cumsum(counts * middle)
    above = total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (mass[-1] * below / total - mass) ** 2 / (below * above)
    best = int(np.nanargmax(np.where(np.isfinite(variance), variance, -1)))
    return float(edges[best + 1])


def _remove_edges(ink: Ink) -> Ink:
    """Remove dark rows and columns near the edges of the page, and its outermost pixels."""
    height, width = ink.shape
    cleared = ink.copy()
    for axis, view in ((0, cleared), (1, cleared.T)):
        length = len(view)
        place = np.arange(length)
        near_edge = np.minimum(place, length - 1 - place) < length // 12
        view[(ink.mean(axis=1 - axis) > _EDGE_INK) & near_edge] = False
    frame = max(min(height, width) // 200, 1)
    cleared[:frame], cleared[-frame:], cleared[:, :frame], cleared[:, -frame:] = False, False, False, False
    return cleared


def _remove_rules(ink: Ink) -> Ink:
    """Remove long thin strokes along the page and down it."""
    length = max(round(ink.shape[1] * _RULE_LENGTH), 40)
    return _remove_long_strokes(_remove_long_strokes(ink, length).T, 2 * length).T


def _remove_long_strokes(ink: Ink, length: int) -> Ink:
    """Remove what is thin and part of a horizontal stroke of at least `length` columns, a few gaps allowed."""
    # A rule that is not quite level steps from row to row, so three rows are looked at together.
    thick = binary_dilation(ink, np.ones((3, 1)))
    full = _count_along(thick, length) >= _RULE_UNBROKEN * length
    rule = _count_along(full, length) > 0
    kept: Ink = ink & (~rule | binary_opening(ink, np.ones((_RULE_HEIGHT + 1, 1))))
    return kept


def _count_along(mask: Ink, length: int) -> NDArray[np.int32]:
    """Number of set pixels among the `length` pixels around each pixel in its row."""
    half = length // 2
    sums = np.cumsum(np.pad(mask, ((0, 0), (half + 1, length - half - 1))), axis=1, dtype=np.int32)
    around: NDArray[np.int32] = sums[:, length:] - sums[:, :-length]
    return around


# Skew, pitch and columns.

_MAX_SKEW = 5.0
"""Degrees."""
_MIN_PITCH = 8
_SKEW_POINTS = 60_000
"""Ink pixels used to find the skew."""


def find_skew(ink: Ink) -> float:
    """The slope of the lines in rows per column, downwards positive: where the ink of rows differs most."""
    rows, columns = np.nonzero(ink)
    every = max(len(rows) // _SKEW_POINTS, 1)
    rows, columns = rows[::every], columns[::every]
    best = 0.0
    for step, reach in ((0.5, _MAX_SKEW), (0.1, 0.5)):
        angles = np.degrees(np.arctan(best)) + np.arange(-reach, reach + step / 2, step)
        best = max(np.tan(np.radians(angles)), key=lambda slope: _sharpness(rows, columns, float(slope)))
    return float(best)


def _sharpness(rows: Ints, columns: Ints, slope: float) -> float:
    level = np.round(rows - slope * columns).astype(np.int64)
    counts = np.bincount(level - level.min()).astype(np.float64)
    return float(np.square(np.diff(counts)).sum())


def deskew(ink: Ink, slope: float) -> tuple[Ink, Ints]:
    """Shift each column so that lines are level; also return how far down each column was shifted."""
    height, width = ink.shape
    shifts = np.round(-slope * (np.arange(width) - width / 2)).astype(np.int64)
    shifts -= shifts.min()
    level = np.zeros((height + int(shifts.max()), width), dtype=bool)
    rows, columns = np.nonzero(ink)
    level[rows + shifts[columns], columns] = True
    return level, shifts


def find_pitch(ink: Ink) -> float:
    """The distance between lines in rows, from the autocorrelation of the ink down the page."""
    height = len(ink)
    # In narrow strips, because handwritten lines wander over a whole page.
    strips = [part.sum(axis=1).astype(np.float64) for part in np.array_split(ink, 8, axis=1)]
    longest = min(height // 3, 400)
    correlation = np.zeros(longest)
    for strip in strips:
        if not strip.any():
            continue
        # A printed heading or a heavy stroke must not outweigh lines of writing.
        strip = np.minimum(strip, np.percentile(strip[strip > 0], 60))
        centred = strip - strip.mean()
        spectrum = np.abs(np.fft.rfft(centred, 2 * height)) ** 2
        repeats = np.fft.irfft(spectrum)[:longest]
        correlation += repeats / max(repeats[0], 1e-9) * strip.sum()
    correlation = np.convolve(correlation, np.ones(3) / 3, mode="same")
    peaks = find_peaks(correlation)[0]
    peaks = peaks[peaks >= _MIN_PITCH]
    strongest = correlation[peaks].max(initial=0.0)
    if strongest <= 0.05 * max(correlation[0], 1e-9):
        return _pitch_of_few_lines(ink)
    return float(peaks[correlation[peaks] >= 0.7 * strongest][0])


def _pitch_of_few_lines(ink: Ink) -> float:
    """For a page with a line or two: twice the height of most of a line's ink."""
    rows = ink.sum(axis=1).astype(np.float64)
    busy = rows > 0.3 * rows.max()
    edges = np.flatnonzero(np.diff(np.concatenate([[0], busy.astype(np.int8), [0]])))
    heights = edges[1::2] - edges[::2]
    return float(max(2 * np.median(heights[heights >= 3]) if (heights >= 3).any() else 20, 12))


def find_columns(ink: Ink, pitch: float) -> list[tuple[int, int]]:
    """First and last column of each text column, left to right, separated by gutters without writing."""
    width = ink.shape[1]
    across = ink.sum(axis=0)
    # A gutter may have specks.
    empty = np.convolve(across, np.ones(5), mode="same") <= 0.002 * ink.shape[0] * 5
    written = np.flatnonzero(~empty)
    if not len(written):
        return []
    gaps = np.flatnonzero(np.diff(written) > max(1.5 * pitch, 0.02 * width))
    begins = [int(written[0]), *(int(written[gap + 1]) for gap in gaps)]
    ends = [*(int(written[gap]) + 1 for gap in gaps), int(written[-1]) + 1]
    columns: list[tuple[int, int]] = []
    for begin, end in zip(begins, ends, strict=True):
        # A narrow one is a page number, a date or a margin, and belongs to the column beside it.
        narrow = end - begin < 0.2 * width or ink[:, begin:end].sum() < 0.15 * ink.sum()
        if columns and (narrow or columns[-1][1] - columns[-1][0] < 0.2 * width):
            columns[-1] = (columns[-1][0], end)
        else:
            columns.append((begin, end))
    return columns


# Ridges: the middles of lines.

_FAINT_RIDGE = 0.22
"""Share of a page's usual ridge height below which a peak is no ridge."""
_MIN_DISTANCE = 0.6
"""Pitches; the lower of two closer peaks is made of ascenders or descenders."""
_MAX_JUMP = 0.35
"""Pitches by which a line may rise or fall between two samples."""
_MAX_GAP = 4.0
"""Pitches without ink after which writing at the same height is another line."""


@dataclass(slots=True)
class _Ridge:
    """The middle of a line: rows at columns, left to right."""

    columns: list[int]
    rows: list[float]


def _find_ridges(ink: Ink, pitch: float) -> list[_Ridge]:
    """The middles of the lines, from the top."""
    blurred = ink.astype(np.float32)
    for size, axis in ((max(round(1.2 * pitch), 3), 1), (max(round(0.28 * pitch), 1), 0)):
        for _ in range(2):
            blurred = uniform_filter1d(blurred, 2 * (size // 2) + 1, axis, mode="constant")
    step = max(round(pitch / 3), 2)
    columns = range(step // 2, ink.shape[1], step)
    # The lower of two close peaks is dropped.
    peaks = [find_peaks(blurred[:, column], distance=max(_MIN_DISTANCE * pitch, 1))[0] for column in columns]
    heights = np.concatenate([blurred[rows, column] for column, rows in zip(columns, peaks, strict=True)])
    if not len(heights):
        return []
    threshold = _FAINT_RIDGE * float(np.percentile(heights, 80))
    ridges: list[_Ridge] = []
    for column, rows in zip(columns, peaks, strict=True):
        _extend_ridges(ridges, column, rows[blurred[rows, column] >= threshold].tolist(), pitch)
    long = [ridge for ridge in _join_ridges(ridges, pitch) if ridge.columns[-1] - ridge.columns[0] >= 0.8 * pitch]
    return sorted(map(_smooth, long), key=lambda ridge: float(np.median(ridge.rows)))


def _extend_ridges(ridges: list[_Ridge], column: int, peaks: list[int], pitch: float) -> None:
    """Extend the nearest ridges by a column's peaks, and begin new ones with the rest."""
    live = [ridge for ridge in ridges if column - ridge.columns[-1] <= _MAX_GAP * pitch]
    pairs = sorted(
        (abs(ridge.rows[-1] - row) + 0.1 * (column - ridge.columns[-1]), place, number)
        for place, ridge in enumerate(live)
        for number, row in enumerate(peaks)
        if abs(ridge.rows[-1] - row) <= _MAX_JUMP * pitch
    )
    used_ridges: set[int] = set()
    used_peaks: set[int] = set()
    for _, place, number in pairs:
        if place not in used_ridges and number not in used_peaks:
            used_ridges.add(place)
            used_peaks.add(number)
            live[place].columns.append(column)
            live[place].rows.append(float(peaks[number]))
    ridges += [_Ridge([column], [float(row)]) for number, row in enumerate(peaks) if number not in used_peaks]


def _join_ridges(ridges: list[_Ridge], pitch: float) -> list[_Ridge]:
    """Join ridges that continue each other after a gap that words may have."""
    joined: list[_Ridge] = []
    for ridge in sorted(ridges, key=lambda ridge: ridge.columns[0]):
        begin = np.median(ridge.rows[:5])
        before = [
            (abs(float(np.median(other.rows[-5:]) - begin)), place)
            for place, other in enumerate(joined)
            if 0 < ridge.columns[0] - other.columns[-1] <= _MAX_GAP * pitch
        ]
        step, nearest = min(before, default=(np.inf, 0))
        if step <= 0.5 * pitch:
            joined[nearest].columns += ridge.columns
            joined[nearest].rows += ridge.rows
        else:
            joined.append(ridge)
    return joined


def _smooth(ridge: _Ridge) -> _Ridge:
    """Average out the steps of single letters."""
    if len(ridge.rows) < 5:
        return ridge
    return _Ridge(ridge.columns, uniform_filter1d(np.array(ridge.rows), 9, mode="nearest").tolist())


# Outlines.

_SEAM_ROWS = 24
"""Heights between two lines that a seam may take."""
_INK_COST = 4.0
"""Cost of crossing ink, relative to leaving the middle between two lines."""


def _find_lines(ink: Ink, pitch: float) -> list[_Shape]:
    """The lines of one text column, from the top."""
    ridges = _find_ridges(ink, pitch)
    columns = np.arange(0, ink.shape[1], _STEP)
    middles = [np.interp(columns, ridge.columns, ridge.rows) for ridge in ridges]
    # The blur shortens ridges, so a line may have ink beyond the ends of its own.
    spans = [
        (columns >= ridge.columns[0] - 1.5 * pitch) & (columns <= ridge.columns[-1] + 1.5 * pitch) for ridge in ridges
    ]
    tops = [middle - _REACH * pitch for middle in middles]
    bottoms = [middle + _REACH * pitch for middle in middles]
    for upper, lower in _neighbours(middles, spans):
        both = spans[upper] & spans[lower]
        seam = _find_seam(ink, columns[both], middles[upper][both], middles[lower][both])
        bottoms[upper][both] = np.minimum(bottoms[upper][both], seam)
        tops[lower][both] = np.maximum(tops[lower][both], seam)
    shapes = [
        _outline(ink, columns[span], middle[span], top[span], bottom[span], pitch)
        for middle, span, top, bottom in zip(middles, spans, tops, bottoms, strict=True)
    ]
    lines = [shape for shape in shapes if shape is not None]
    usual = float(np.median([line.density for line in lines])) if lines else 0.0
    return [line for line in lines if line.density >= _FAINT_LINE * usual]


def _neighbours(middles: list[Floats], spans: list[NDArray[np.bool_]]) -> list[tuple[int, int]]:
    """Pairs of lines that are directly above each other in some column, the upper one first."""
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


def _find_seam(ink: Ink, columns: Ints, upper: Floats, lower: Floats) -> Floats:
    """Rows of the cheapest path between the middles of two lines, by dynamic programming over columns."""
    shares = np.linspace(0.08, 0.92, _SEAM_ROWS)
    rows = upper + shares[:, None] * (lower - upper)
    crossed = ink[np.clip(np.round(rows).astype(np.int64), 0, ink.shape[0] - 1), columns]
    costs = _INK_COST * crossed + ((shares - 0.5) ** 2 * 2)[:, None]
    total = costs[:, 0]
    steps = np.zeros((len(columns), _SEAM_ROWS), dtype=np.int8)
    for place in range(1, len(columns)):
        padded = np.concatenate([[np.inf], total, [np.inf]])
        options = np.stack([padded[:-2], padded[1:-1], padded[2:]])
        best = options.argmin(axis=0)
        steps[place] = best - 1
        total = options[best, np.arange(_SEAM_ROWS)] + costs[:, place]
    path = np.empty(len(columns), dtype=np.int64)
    path[-1] = int(total.argmin())
    for place in range(len(columns) - 1, 0, -1):
        path[place - 1] = path[place] + steps[place, path[place]]
    seam: Floats = rows[path, np.arange(len(columns))]
    return seam


def _outline(ink: Ink, columns: Ints, middle: Floats, top: Floats, bottom: Floats, pitch: float) -> _Shape | None:
    """The outline around a line's ink between its seams, and its baseline; None if there is hardly any ink."""
    height = ink.shape[0]
    first = np.clip(np.round(top).astype(np.int64), 0, height)
    last = np.clip(np.round(bottom).astype(np.int64), 0, height)
    base = int(first.min())
    band = ink[base : int(last.max()) + 1][:, columns].copy()
    rows = np.arange(base, base + band.shape[0])[:, None]
    band &= (rows >= first) & (rows < last)
    # Ends without ink do not belong to the line, and a speck is no line.
    busy = np.flatnonzero(band.sum(axis=0) > 0)
    if len(busy) < 0.4 * pitch / _STEP or band.sum() < 1.5 * pitch / _STEP:
        return None
    begin, end = int(busy[0]), int(busy[-1]) + 1
    knots = max(round((end - begin) * _STEP / (_KNOT * pitch)), 2)
    edges = np.linspace(begin, end, knots + 1).round().astype(np.int64)
    upper, lower, middles = [], [], []
    for left, right in pairwise(edges):
        inked = np.flatnonzero(band[:, left : max(right, left + 1)].any(axis=1))
        at = float(middle[left : max(right, left + 1)].mean())
        upper.append(min(float(rows[inked[0], 0]), at) if len(inked) else np.nan)
        lower.append(max(float(rows[inked[-1], 0]) + 1, at) if len(inked) else np.nan)
        middles.append(at)
    if np.nanmedian(np.array(lower) - np.array(upper)) < _MIN_HEIGHT * pitch:
        return None
    # As people draw them: not around each letter, and with a margin.
    high = minimum_filter1d(_fill_gaps(upper), 3, mode="nearest") - _MARGIN * pitch
    low = maximum_filter1d(_fill_gaps(lower), 3, mode="nearest") + _MARGIN * pitch
    across = columns[np.clip((edges[:-1] + edges[1:]) // 2, 0, len(columns) - 1)].astype(np.float64)
    across[0], across[-1] = columns[begin], columns[end - 1] + _STEP
    polygon = np.concatenate([np.stack([across, high], 1), np.stack([across, low], 1)[::-1]])
    baseline = np.stack([across[[0, -1]], _fit_baseline(band, rows, edges, middles)], 1)
    return _Shape(polygon, baseline, float(band.sum()) / (end - begin))


def _fill_gaps(values: list[float]) -> Floats:
    """Interpolate missing values (NaN)."""
    array = np.array(values)
    known = np.isfinite(array)
    places = np.arange(len(array))
    filled: Floats = np.interp(places, places[known], array[known])
    return filled


def _fit_baseline(band: Ink, rows: Ints, edges: Ints, middles: list[float]) -> Floats:
    """Rows at both ends of a straight line through the feet of the letters, where 85 % of a knot's ink is above."""
    feet = []
    for left, right, middle in zip(edges[:-1], edges[1:], middles, strict=True):
        counts = band[:, left : max(right, left + 1)].sum(axis=1)
        total = counts.sum()
        feet.append(float(rows[int(np.searchsorted(np.cumsum(counts), 0.85 * total)), 0]) if total else middle)
    if len(feet) < 3:
        return np.full(2, float(np.median(feet)))
    places = np.arange(len(feet), dtype=np.float64)
    slope, start = np.polyfit(places, np.array(feet), 1)
    return np.array([start, start + slope * places[-1]])
