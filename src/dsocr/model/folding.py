"""Folding: a long line image becomes rows on a square canvas, cut where there is least ink.

A line of handwriting is ten to twenty times as wide as high; padded to a square it is too small to read, squeezed into
one it is distorted. Folded, it looks like a small paragraph and keeps its letters' shape. Knows nothing about models.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PAD_COLOUR = 127
"""The grey around an image on its canvas: int(0.5 * 255), as the authors of DeepSeek-OCR pad."""

_SHORTEST_ROW = 0.6
"""A row is cut no earlier than this share of the canvas width, so that few rows are needed."""

_FILL = 0.87
"""Share of the canvas a folded line may fill: rows end at gaps, and without room cuts would go through letters."""

_GAP = 0.045
"""Width of the gap a cut looks for, as a share of the canvas width: about half a letter."""


@dataclass(frozen=True, slots=True)
class Folding:
    """Where a line image was cut: `edges` are row boundaries in pixels of the line scaled to `row_height`."""

    row_height: int
    scaled_width: int
    edges: tuple[int, ...]


def plan_folding(grey: NDArray[np.uint8], size: int, tallest_row: int) -> Folding:
    """The cuts for a line image, given its grey values (height, width).

    Rows are `tallest_row` pixels high while the line fits on the canvas so, else lower, all of one height. A line too
    wide even for rows of an eighth of the canvas is narrowed to fit them.
    """
    height, width = grey.shape
    rows, scaled_width = folded_size(width, height, size, tallest_row)
    return Folding(size // rows, scaled_width, _edges(_ink(grey, scaled_width), size, rows))


def folded_size(width: int, height: int, size: int, tallest_row: int) -> tuple[int, int]:
    """The rows that a line image of this size is cut into, and how wide it is before that."""
    most_rows = max(8, size // tallest_row)
    for rows in range(size // tallest_row, most_rows + 1):
        scaled_width = max(1, round(width * (size // rows) / height))
        if scaled_width <= size or scaled_width <= _FILL * rows * size:
            return rows, scaled_width
    return most_rows, int(_FILL * most_rows * size)


def fold(image: Image.Image, size: int, tallest_row: int) -> Image.Image:
    """A line image as rows on a grey canvas of `size` x `size`, first row on top."""
    plan = plan_folding(np.asarray(image.convert("L")), size, tallest_row)
    strip = image.resize((plan.scaled_width, plan.row_height), Image.Resampling.BICUBIC)
    canvas = Image.new(image.mode, (size, size), PAD_COLOUR if image.mode == "L" else (PAD_COLOUR,) * 3)
    for row, (left, right) in enumerate(pairwise(plan.edges)):
        canvas.paste(strip.crop((left, 0, right, plan.row_height)), (0, row * plan.row_height))
    return canvas


def _ink(grey: NDArray[np.uint8], columns: int) -> NDArray[np.float64]:
    """Darkness of each of `columns` columns relative to the paper; works for light ink on dark paper as well."""
    shade = np.abs(grey.astype(np.float64) - np.median(grey)).mean(axis=0)
    position = np.linspace(0, len(shade) - 1, columns)
    return np.asarray(np.interp(position, np.arange(len(shade)), shade))


def _edges(ink: NDArray[np.float64], size: int, rows: int) -> tuple[int, ...]:
    """Row boundaries from 0 to the full width: each row at most `size` wide, cut where the gap is emptiest."""
    width = len(ink)
    gap = max(1, round(_GAP * size))
    smooth = np.convolve(ink, np.full(gap, 1 / gap), mode="same")
    edges = [0]
    while width - edges[-1] > size:
        rows_after = rows - len(edges)
        latest = edges[-1] + size
        earliest = max(edges[-1] + round(_SHORTEST_ROW * size), width - rows_after * size)
        window = smooth[earliest:latest]
        # Among gaps equally empty the last one wins: fuller rows.
        emptiest = np.flatnonzero(window <= window.min() + 0.02 * (smooth.max() + 1e-9))[-1] if len(window) else 0
        edges.append(int(earliest + emptiest))
    return (*edges, width)
