"""Pens: how a writer's tracks are slanted, disturbed and drawn, and how pictures of text are deformed alike.

Lengths are in x-heights, y upwards from the baseline, until something is drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter
from scipy import ndimage

Floats = NDArray[np.float64]
Mask = NDArray[np.float32]

STEP = 0.04
"""Distance of the points of a track when it is drawn."""

_SMOOTHING = 2
"""Pixels drawn for one of the mask, along each side."""


@dataclass(frozen=True)
class Written:
    """Drawn text: how much ink, 0 to 1, `(height, width)`; the row of the baseline; the x-height in pixels."""

    ink: Mask
    baseline: int
    x_height: float


@dataclass(frozen=True)
class Style:
    """A writer's manner and pen. `slant` is a tangent; `ascent`, `descent` and `width` are factors."""

    slant: float
    width: float
    ascent: float
    descent: float
    pen: float
    pressure: float
    smooth: float
    drift: float
    growth: float
    elastic: float
    space: float
    tilt: float
    x_height: float
    flood: int
    """Width in pixels of the mask of what ink fills, an odd number; 0 fills nothing."""


def random_style(rng: np.random.Generator) -> Style:
    """Draw a style; most writers lean to the right."""
    return Style(
        slant=math.tan(math.radians(float(np.clip(rng.normal(18, 16), -18, 50)))),
        width=math.exp(rng.normal(0.12, 0.3)),
        ascent=math.exp(rng.normal(0, 0.22)),
        descent=math.exp(rng.normal(0, 0.24)),
        pen=math.exp(rng.normal(math.log(0.085), 0.4)),
        pressure=float(rng.choice([0, rng.uniform(0.2, 1.8)], p=[0.35, 0.65])),
        smooth=float(rng.uniform(0, 0.09) if rng.random() < 0.8 else rng.uniform(0.09, 0.15)),
        drift=float(rng.uniform(0, 0.18)),
        growth=float(rng.uniform(0, 0.11)),
        elastic=float(rng.uniform(0, 0.075)),
        space=float(rng.uniform(0.5, 1.4)),
        tilt=float(rng.normal(0, 0.012)),
        x_height=float(rng.uniform(14, 28)),
        flood=int(rng.choice([0, 3, 5, 7, 9], p=[0.6, 0.1, 0.12, 0.1, 0.08])),
    )


def resample(points: Floats, step: float = STEP) -> Floats:
    """Place the points of a polyline at equal distances."""
    length = np.concatenate([[0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    if length[-1] < 1e-6:
        return points[:1]
    places = np.linspace(0, length[-1], max(2, int(length[-1] / step) + 1))
    return np.stack([np.interp(places, length, points[:, 0]), np.interp(places, length, points[:, 1])], axis=1)


class _Field:
    """Smooth disturbances along a line: height, size, and an elastic shift of every place."""

    def __init__(self, width: float, style: Style, rng: np.random.Generator) -> None:
        along = ndimage.gaussian_filter1d(rng.normal(size=(2, int(width / 1.2) + 4)), 1, axis=1)
        self.drift, self.growth = style.drift * along[0], style.growth * along[1]
        shift = rng.normal(size=(2, int(width / 0.5) + 8, 14)) * style.elastic
        self.shift = 2 * ndimage.gaussian_filter(shift, (0, 0.7, 0.7))

    def along(self, values: Floats, x: Floats) -> Floats:
        return np.interp(x / 1.2 + 1, np.arange(len(values)), values)

    def elastic(self, axis: int, x: Floats, y: Floats) -> Floats:
        found: Floats = ndimage.map_coordinates(self.shift[axis], [x / 0.5 + 2, y / 0.5 + 6], order=1, mode="nearest")
        return found


def deform(strokes: Sequence[Floats], style: Style, rng: np.random.Generator) -> list[Floats]:
    """Give strokes the proportions, the slant and the unsteadiness of a writer."""
    strokes = [resample(np.asarray(stroke, dtype=np.float64)) for stroke in strokes if len(stroke)]
    left = min(float(stroke[:, 0].min()) for stroke in strokes)
    field = _Field(max(float(stroke[:, 0].max()) for stroke in strokes) - left + 2, style, rng)
    deformed = []
    for stroke in strokes:
        x, y = stroke[:, 0] - left, stroke[:, 1]
        y = np.where(y > 1, 1 + (y - 1) * style.ascent, np.where(y < 0, y * style.descent, y))
        right, up = field.elastic(0, x, y), field.elastic(1, x, y)
        y = y * (1 + field.along(field.growth, x))
        slanted = (x + right) * style.width + style.slant * y
        points = np.stack([slanted, y + up + field.along(field.drift, x) + style.tilt * x], axis=1)
        if style.smooth > 0.01 and len(points) > 8:
            ends = points[[0, -1]].copy()
            points = ndimage.gaussian_filter1d(points, style.smooth / STEP, axis=0, mode="nearest")
            points[0], points[-1] = ends
        deformed.append(points)
    return deformed


def draw_strokes(strokes: Sequence[Floats], style: Style, rng: np.random.Generator) -> Written:
    """Draw deformed strokes; the pen is wider where it goes down, and never quite the same."""
    points = np.concatenate(list(strokes))
    low, high = points.min(0) - 0.5, points.max(0) + 0.5
    scale = style.x_height * _SMOOTHING
    width, height = int((high[0] - low[0]) * scale) + 4, int((high[1] - low[1]) * scale) + 4
    image = Image.new("L", (width, height), 0)
    pen = ImageDraw.Draw(image)
    for stroke in strokes:
        x, y = (stroke[:, 0] - low[0]) * scale, (high[1] - stroke[:, 1]) * scale
        widths = _widths(stroke, style, rng) * scale
        radii = np.maximum(widths, 1.3) / 2
        for place in range(len(stroke) - 1):
            corners = [float(x[place]), float(y[place]), float(x[place + 1]), float(y[place + 1])]
            pen.line(corners, fill=255, width=max(1, round(2 * radii[place])))
            _dot(pen, corners[0], corners[1], float(radii[place]))
        _dot(pen, float(x[-1]), float(y[-1]), float(radii[-1]))
    if style.flood:
        # Ink fills what is narrow: small loops and the corners between strokes.
        image = image.filter(ImageFilter.MaxFilter(style.flood)).filter(ImageFilter.MinFilter(style.flood))
    image = image.resize((width // _SMOOTHING, height // _SMOOTHING), Image.Resampling.BOX)
    ink = np.asarray(image, dtype=np.float32) / np.float32(255)
    return Written(ink, int(high[1] * scale / _SMOOTHING), style.x_height)


def _dot(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float) -> None:
    if radius > 0.8:
        pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)


def _widths(stroke: Floats, style: Style, rng: np.random.Generator) -> Floats:
    if len(stroke) < 2:
        return np.array([1.4 * style.pen])
    direction = np.gradient(stroke, axis=0)
    down = np.clip(-direction[:, 1] / (np.hypot(*direction.T) + 1e-6), 0, 1)
    width = style.pen * (1 + style.pressure * (ndimage.gaussian_filter1d(down**1.5, 2) - 0.25))
    width = width * (1 + 0.45 * ndimage.gaussian_filter1d(rng.normal(size=len(stroke)), 6, mode="nearest"))
    clipped: Floats = np.clip(width, 0.25 * style.pen, 3 * style.pen)
    return clipped


def warp(written: Written, style: Style, rng: np.random.Generator, *, real: bool = False) -> Written:
    """Deform a picture of text as `deform` deforms tracks; make strokes that are not real thicker or thinner."""
    ink, size, out = written.ink, written.x_height, style.x_height
    above, below = 2.6 * style.ascent + 1.2, 1.6 * style.descent + 0.8
    margin = 1.5 + 3 * abs(style.slant)
    width = int((ink.shape[1] / size * style.width + 2 * margin) * out)
    rows, columns = np.mgrid[: int((above + below) * out), :width].astype(np.float64)
    x, y = columns / out - margin, above - rows / out
    field = _Field(width / out, style, rng)
    along = columns[0] / out
    y = y - field.along(field.drift, along) - style.tilt * x
    y = y / (1 + field.along(field.growth, along))
    grid_x, grid_y = along[None, :] + 0 * y, np.clip(y, -2.5, 4)
    source_x = (x - style.slant * y) / style.width + 0.8 * field.elastic(0, grid_x, grid_y)
    source_y = np.where(y > 1, 1 + (y - 1) / style.ascent, np.where(y < 0, y / style.descent, y))
    source_y = source_y + 0.8 * field.elastic(1, grid_x, grid_y)
    places = [written.baseline - source_y * size, source_x * size]
    moved = ndimage.map_coordinates(ink, places, order=1, mode="constant")
    if real:
        return Written(np.clip(moved, 0, 1).astype(np.float32), int(above * out), out)
    blurred = ndimage.gaussian_filter(moved, rng.uniform(0.5, 1.2))
    # Hairlines are as pale as they are thin now, and must not vanish.
    inked = blurred[blurred > 0.05]
    blurred /= max(0.1, float(np.percentile(inked, 90)) if len(inked) else 1.0)
    thicker = np.clip((blurred - rng.uniform(0.25, 0.6)) * 3 + 0.5, 0, 1)
    return Written(thicker.astype(np.float32), int(above * out), out)


def middle_line(ink: Mask, rng: np.random.Generator) -> Mask:
    """Draw the middle lines of a picture of text with another pen; how much of its thick and thin stays is random."""
    middle = thin(ink > 0.35)
    if not middle.any():
        return ink
    distance, places = ndimage.distance_transform_edt(~middle, return_indices=True)
    thickness = ndimage.distance_transform_edt(ink > 0.35)[places[0], places[1]]
    kept, radius = rng.uniform(0, 0.7), rng.uniform(0.03, 0.1) * 40
    drawn: Mask = np.clip(radius * (1 - kept) + kept * thickness - distance + 0.5, 0, 1).astype(np.float32)
    return drawn


def _thinning_tables() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each neighbourhood of eight pixels, whether Zhang and Suen (1984) delete the pixel, in both half steps."""
    codes = np.arange(256)
    pixels = [(codes >> place) & 1 for place in range(8)]  # north, then clockwise
    count = sum(pixels)
    changes = sum((pixels[place] == 0) & (pixels[(place + 1) % 8] == 1) for place in range(8))
    usual = (count >= 2) & (count <= 6) & (changes == 1)
    north, east, south, west = pixels[0], pixels[2], pixels[4], pixels[6]
    first = usual & (north * east * south == 0) & (east * south * west == 0)
    second = usual & (north * east * west == 0) & (north * south * west == 0)
    return first, second


_THINNING = _thinning_tables()
_AROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def thin(shape: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The middle lines of a shape, one pixel wide and as connected as it is."""
    padded = np.pad(shape, 1)
    for _ in range(100):
        before = int(padded.sum())
        for table in _THINNING:
            rows, columns = np.nonzero(padded)
            code = np.zeros(len(rows), dtype=np.int64)
            for bit, (down, right) in enumerate(_AROUND):
                code |= padded[rows + down, columns + right].astype(np.int64) << bit
            deleted = table[code]
            padded[rows[deleted], columns[deleted]] = False
        if int(padded.sum()) == before:
            break
    return padded[1:-1, 1:-1]
