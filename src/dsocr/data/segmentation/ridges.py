"""Where the middle of each line of writing runs: along the ridges of ink, blurred more along lines than across."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsocr.data.segmentation.ink import Ink

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
