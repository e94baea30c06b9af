"""How much a page leans, how far its lines are apart, and where its columns are."""

import numpy as np
from numpy.typing import NDArray

from dsocr.data.segmentation.ink import Ink

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
