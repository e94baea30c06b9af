"""Find the rulings of a page: long straight thin lines, also faded, broken, skewed and a little bent.

A page is seen at a smaller scale and turned upright: `Frame` has both. A ruling is looked for in strips across it, so
that letters that touch it, gaps and a slow bend do no harm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.document import Point
from dsocr.layout.pixels import windows
from dsocr.outlines import pixels

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LONGEST = 1800
"""Pixels of the longer side of the page when rulings are looked for."""
_STEEPEST, _ANGLE_STEP = 4.5, 0.3
"""Largest skew of a page, and the steps between angles, in degrees."""
LEVEL = 0.5
"""Heights of lines within which places are on one level."""
_NEAR = 3
"""Pixels from the middle of a ruling within which ink is the ruling's; other lengths across it are multiples."""
_SMOOTHING = 3 * _NEAR
"""Pixels along a ruling over which its darkness is averaged, against the grain of the paper."""
_DARKER = 0.022
"""How much darker a ruling is than the paper on both sides, as a share of the page's light; pale blue ones have 0.03.
"""
_STRIP = 40
"""Pixels along a ruling in which it is found or not, and across in which it is compared with its surroundings."""
_CLEAR = 0.38
"""How much more of a strip a ruling covers than its surroundings; writing has strokes everywhere."""
_FOUND = 0.3
"""Minimum share of its strips in which a ruling is found, and how much clearer it is on average."""
_GAP = 8
"""Maximum number of strips in which a ruling may be missing."""
_MIN_STRIPS = 4
STRONG = 0.5
"""Minimum ink or darkness of rulings between columns or rows, relative to the best ones."""
OPEN = 0.4
"""A ruling is interrupted where it has less than this share of its usual ink: the cells on both sides are one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A page at a smaller scale, turned upright: columns `u` and rows `v` of the frame for points of the page."""

    scale: float
    angle: float

    def of_page(self, points: Sequence[Point] | Floats) -> Floats:
        """Return points (n, 2) of the page in the frame."""
        x, y = np.asarray(points, dtype=np.float64).reshape(-1, 2).T * self.scale
        sine, cosine = math.sin(self.angle), math.cos(self.angle)
        return np.stack([x * cosine + y * sine, y * cosine - x * sine], axis=1)

    def to_page(self, points: Sequence[tuple[float, float]], size: tuple[int, int]) -> tuple[Point, ...]:
        """Return points of the frame on a page of this size."""
        u, v = np.asarray(points, dtype=np.float64).reshape(-1, 2).T
        sine, cosine = math.sin(self.angle), math.cos(self.angle)
        return pixels(np.stack([u * cosine - v * sine, u * sine + v * cosine], axis=1) / self.scale, size)


@dataclass(frozen=True, slots=True)
class Ruling:
    """A ruling in a frame: where it is across (`at`) at some places along it, and where its ink is."""

    along: Floats
    across: Floats
    ink: Mask = field(repr=False)
    """For each pixel along the frame from `first` on, whether there is ink of the ruling."""
    first: int
    strength: float
    """How much darker it is than the paper, as a share of the page's light (median)."""

    @classmethod
    def undrawn(cls, place: float) -> "Ruling":
        """Return a border without ink."""
        return cls(np.zeros(1), np.array([place]), np.zeros(0, dtype=np.bool_), 0, 0.0)

    @property
    def is_drawn(self) -> bool:
        """Whether it has ink."""
        return len(self.ink) > 0

    @property
    def begin(self) -> float:
        """Where it begins."""
        return float(self.along[0])

    @property
    def end(self) -> float:
        """Where it ends."""
        return float(self.along[-1])

    @property
    def length(self) -> float:
        """From end to end."""
        return self.end - self.begin

    def at(self, place: float) -> float:
        """Return where it is across at a place along; beyond its ends where it ended."""
        return float(np.interp(place, self.along, self.across))

    def coverage(self, begin: float, end: float) -> float:
        """Return the share of a stretch that it has ink on."""
        start, stop = max(round(begin) - self.first, 0), max(round(end) - self.first, 0)
        return float(self.ink[start:stop].sum() / max(round(end) - round(begin), 1))

    def is_interrupted(self, begin: float, end: float) -> bool:
        """Whether a stretch has hardly any of its usual ink."""
        begin, end = begin + _NEAR, end - _NEAR  # without the ink of crossing rulings
        return begin < end and self.coverage(begin, end) < OPEN * self.coverage(self.begin, self.end)


@dataclass(frozen=True, slots=True)
class Rulings:
    """The rulings of a page, those from top to bottom and those from left to right, in order, and their frame."""

    frame: Frame
    upright: list[Ruling]
    level: list[Ruling]

    def strong_level(self) -> list[Ruling]:
        """Return the level rulings that are as dark as upright ones, without lines to write on."""
        darkest = max((ruling.strength for ruling in (*self.level, *self.upright)), default=0.0)
        return [ruling for ruling in self.level if ruling.strength >= STRONG * darkest]


def find_rulings(page: Image.Image, baselines: Floats) -> Rulings:
    """Find the rulings of a page; `baselines` are points (n, 2) of its lines' baselines, in heights of lines."""
    scale = min(1.0, _LONGEST / max(page.size))
    size = max(round(page.width * scale), 1), max(round(page.height * scale), 1)
    grey = np.asarray(page.convert("L").resize(size, Image.Resampling.BOX), dtype=np.float32)
    light = float(np.median(grey)) or 1.0
    down, across = (_thin_points(part / light) for part in (grey, grey.T))
    upright, level = (part[:2].astype(np.float64) for part in (down, across[[1, 0, 2]]))
    angle = _find_skew([(-upright[0], upright[1]), (level[1], level[0]), tuple(baselines.T / LEVEL)])
    sine, cosine = math.sin(angle), math.cos(angle)
    return Rulings(
        Frame(scale, angle),
        _chain(upright[1] * cosine + upright[0] * sine, upright[0] * cosine - upright[1] * sine, down[2]),
        _chain(level[0] * cosine - level[1] * sine, level[1] * cosine + level[0] * sine, across[2]),
    )


def _thin_points(light: NDArray[np.float32]) -> Floats:
    """Return rows and columns of the darkest pixels between paper left and right, and how much darker they are."""
    smooth = windows(light, _SMOOTHING).mean(-1)
    darker = np.full_like(smooth, -1)
    for side in (_NEAR, 2 * _NEAR):
        beside = np.minimum(smooth[:, : -2 * side], smooth[:, 2 * side :])
        inner = darker[:, side:-side]
        np.maximum(inner, beside - smooth[:, side:-side], out=inner)
    peaks = (darker > _DARKER) & (darker >= windows(darker, 2 * _NEAR + 1, axis=1).max(-1))
    rows, columns = np.nonzero(peaks)
    return np.stack([rows, columns, darker[rows, columns]]).astype(np.float64)


def _find_skew(groups: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the angle (radians) at which points (along, across) of each group are on the fewest levels."""
    angles = np.radians(np.arange(-_STEEPEST, _STEEPEST + _ANGLE_STEP / 2, _ANGLE_STEP))
    scores = np.zeros(len(angles))
    for along, across in groups:
        if len(along):
            levels = (across * math.cos(angle) - along * math.sin(angle) for angle in angles)
            peaks = [float((np.bincount((level - level.min()).astype(np.int64)) ** 2).sum()) for level in levels]
            scores += np.array(peaks) / np.median(peaks)
    return float(angles[int(np.argmax(scores))])


def _chain(across: Floats, along: Floats, dark: Floats) -> list[Ruling]:
    """Follow rulings from strip to strip; arguments are the places of thin dark points, and how dark they are."""
    if not len(across):
        return []
    low, origin = float(across.min()) - _NEAR, float(along.min())
    width, strips = int(across.max() - low) + 2 * _NEAR, int((along.max() - origin) / _STRIP) + 1
    strip, place = ((along - origin) / _STRIP).astype(np.int64), np.round(across - low).astype(np.int64)
    counts = np.bincount(strip * width + place, minlength=strips * width).reshape(strips, width)
    near = np.minimum(windows(counts / _STRIP, 3, axis=1).sum(-1), 1)
    clear = near - windows(near, _STRIP, axis=1).mean(-1)
    peaks = (2 * near >= 1) & (clear >= _CLEAR) & (near >= windows(near, 2 * _NEAR + 1, axis=1).max(-1))
    chains: list[list[tuple[int, float]]] = []
    for number in range(strips):
        free = [chain for chain in chains if number - chain[-1][0] <= _GAP]
        for middle in (float(run.mean()) for run in runs(np.flatnonzero(peaks[number]))):
            reachable = [
                (abs(middle - chain[-1][1]), chain)
                for chain in free
                if abs(middle - chain[-1][1]) <= _NEAR + number - chain[-1][0]
            ]
            if reachable:
                chain = min(reachable, key=lambda pair: pair[0])[1]
                chain.append((number, middle))
                free = [other for other in free if other is not chain]
            else:
                chains.append([(number, middle)])
    rulings = []
    order = np.argsort(place, kind="stable")
    sorted_place = place[order]
    for chain in chains:
        numbers, positions = np.array(chain, dtype=np.float64).T
        between = np.arange(chain[0][0], chain[-1][0] + 1)
        places = np.interp(between, numbers, positions).round().astype(np.int64)
        if len(chain) >= max(_MIN_STRIPS, _FOUND * len(between)) and clear[between, places].mean() >= _FOUND:
            middles = (numbers + 0.5) * _STRIP
            begin, end = chain[0][0] * _STRIP, (chain[-1][0] + 1) * _STRIP
            reach = positions.min() - _NEAR, positions.max() + _NEAR + 1
            close = order[slice(*np.searchsorted(sorted_place, reach))]
            where = along[close] - origin
            of_ruling = np.abs(place[close] - np.interp(where, middles, positions)) <= _NEAR
            rows = where[of_ruling].astype(np.int64)
            rows = rows[(rows >= begin - _STRIP) & (rows < end + _STRIP)]
            ink = np.zeros(end - begin + 2 * _STRIP, dtype=bool)
            ink[rows - begin + _STRIP] = True
            # The smoothing along a ruling lets it reach beyond its ends by half of it.
            inked = np.flatnonzero(ink) + begin - _STRIP + origin
            ends = np.array([inked[0] + _SMOOTHING / 2, *(middles + origin)[1:-1], inked[-1] - _SMOOTHING / 2])
            strength = float(np.median(dark[close[of_ruling]]))
            rulings.append(Ruling(ends, positions + low, ink, round(begin - _STRIP + origin), strength))
    return sorted(rulings, key=lambda ruling: float(np.median(ruling.across)))


def covered_share(rulings: Sequence[Ruling], left: float, right: float) -> float:
    """Return the share of a stretch that any of the rulings has ink on."""
    ink = np.zeros(max(int(right - left), 1), dtype=bool)
    for ruling in rulings:
        start = ruling.first - int(left)
        begin, end = max(start, 0), min(start + len(ruling.ink), len(ink))
        if begin < end:
            ink[begin:end] |= ruling.ink[begin - start : end - start]
    return float(ink.mean())


def group(values: Sequence[float], reach: float) -> list[list[int]]:
    """Group values that are nearer than `reach` to the mean of their group; in ascending order, by their places."""
    groups: list[list[int]] = []
    for place in np.argsort(values, kind="stable").tolist():
        if groups and values[place] - sum(values[other] for other in groups[-1]) / len(groups[-1]) < reach:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def runs(places: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split ascending places into runs of neighbours."""
    return np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
