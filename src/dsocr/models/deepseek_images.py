"""How an image enters a model: the names of its resolutions, their sizes, and the image slots they need.

Knows nothing about weights; `views.py` turns an image into pixels at one of these resolutions. The published numbers
are those of the authors' `infer` and of their vLLM configuration.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dsocr.errors import ConfigError

Layout = Literal["fold", "pad", "squash"]

Grid = tuple[int, int]
"""Columns and rows of tiles; (1, 1) is an image without tiles."""

UNTILED: Grid = (1, 1)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Close-ups of an image that is larger than one tile: `fewest` to `most` square tiles of `size` pixels."""

    size: int
    fewest: int
    most: int

    def grid(self, width: int, height: int) -> Grid:
        """The grid whose shape is nearest the image's; of two equally near the later, if the image can fill half of it.

        This is `dynamic_preprocess` of the authors, for images of which one side is longer than a tile.
        """
        if width <= self.size and height <= self.size:
            return UNTILED
        best, smallest = UNTILED, float("inf")
        for columns, rows in self._grids():
            difference = abs(width / height - columns / rows)
            half_filled = width * height > 0.5 * self.size * self.size * columns * rows
            if difference < smallest or (difference == smallest and half_filled):
                best, smallest = (columns, rows), difference
        return best

    def _grids(self) -> list[Grid]:
        sides = range(1, self.most + 1)
        grids = [(i, j) for i in sides for j in sides if self.fewest <= i * j <= self.most]
        return sorted(grids, key=lambda grid: grid[0] * grid[1])


@dataclass(frozen=True, slots=True)
class Resolution:
    """One way to show an image: on a square canvas of `size` pixels, filled by `layout`, and in tiles with a `tiling`.

    `pad` keeps the aspect ratio and centres the image on grey; `squash` does not keep it (what the authors' tiny and
    small do); `fold` cuts a line image into rows of at most `tallest_row` pixels. `token_pixels` is the side of the
    square of pixels that becomes one vision token. With `row_ends` each row of tokens ends with a slot of its own, and
    tiles are stitched to one picture; without, tiles come one after another.
    """

    name: str
    size: int
    layout: Layout
    token_pixels: int
    tallest_row: int = 0
    tiling: Tiling | None = None
    row_ends: bool = True

    def grid(self, width: int, height: int) -> Grid:
        """The tiles an image of this size is shown in, beside the whole."""
        return UNTILED if self.tiling is None else self.tiling.grid(width, height)

    def slots(self, grid: Grid = UNTILED) -> int:
        """Image slots in the input ids: one a vision token, one at each row's end, one after the last view."""
        side = self.size // self.token_pixels
        slots = self._slots(side, side) + 1
        if grid != UNTILED and self.tiling is not None:
            columns, rows = grid
            tile_side = self.tiling.size // self.token_pixels
            slots += self._slots(tile_side * columns, tile_side * rows)
        return slots

    def _slots(self, columns: int, rows: int) -> int:
        return rows * (columns + 1 if self.row_ends else columns)

    def distortion(self, width: int, height: int) -> float:
        """How much taller than true letters are shown, of the view that shows the most detail; 1 is undistorted."""
        grid = self.grid(width, height)
        if grid != UNTILED:
            return (grid[1] / height) / (grid[0] / width)
        return width / height if self.layout == "squash" else 1.0


_SQUASHED = [Resolution("tiny", 512, "squash", 64), Resolution("small", 640, "squash", 64)]
_BASE = Resolution("base", 1024, "pad", 64)
# Not one of the authors': a line as a small paragraph, at the size of their `small`.
_FOLD = Resolution("fold", 640, "fold", 64, tallest_row=128)

_RESOLUTIONS_BY_FAMILY = {
    "deepseek_ocr": [
        *_SQUASHED,
        _BASE,
        Resolution("large", 1280, "pad", 64),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 9)),
        # The authors' vLLM configuration, and vLLM's own, stop at six tiles.
        Resolution("gundam_vllm", 1024, "pad", 64, tiling=Tiling(640, 2, 6)),
        _FOLD,
    ],
    "unlimited_ocr": [*_SQUASHED, _BASE, Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 32)), _FOLD],
    "deepseek_ocr_2": [
        Resolution("small", 768, "squash", 64, row_ends=False),
        Resolution("base", 1024, "pad", 64, row_ends=False),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(768, 2, 6), row_ends=False),
        Resolution("fold", 768, "fold", 64, tallest_row=128, row_ends=False),
    ],
    "nano": [Resolution("fold", 256, "fold", 32, tallest_row=64)],
}
_DEFAULT_BY_FAMILY = {"deepseek_ocr": "base", "unlimited_ocr": "base", "deepseek_ocr_2": "base", "nano": "fold"}

Family = Literal["deepseek_ocr", "unlimited_ocr", "deepseek_ocr_2", "nano"]
"""Base models that are prepared for alike; `nano` is DeepSeek-OCR's network with small numbers."""


def resolutions(family: Family) -> list[Resolution]:
    """Every resolution of a family."""
    return list(_RESOLUTIONS_BY_FAMILY[family])


def find_resolution(family: Family, name: str | None) -> Resolution:
    """The family's resolution of that name, its default for None. Raises ConfigError listing the names."""
    resolutions = {resolution.name: resolution for resolution in _RESOLUTIONS_BY_FAMILY[family]}
    chosen = resolutions.get(name or _DEFAULT_BY_FAMILY[family])
    if chosen is None:
        raise ConfigError(
            f"input.resolution: this base has no resolution {name!r}", hint=f"it has {', '.join(resolutions)}"
        )
    return chosen


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


SPARE = 1.5
"""How many times the size shown `shrunk` leaves.

On 43 lines of about 2031 x 134 pixels the canvas of nano changed by 0.4 grey levels of 255 (median), and varying a line
took 4.4 ms in place of 11.0; with twice the size 8.5.
"""

_WORTH_SHRINKING = 0.75


@dataclass(frozen=True, slots=True)
class Views:
    """What the model sees of one image: the `whole`, (3, S, S) bytes, and its `tiles`, (n, 3, s, s), row by row.

    `grid` is the columns and rows of the tiles, (1, 1) where there are none.
    """

    whole: NDArray[np.uint8]
    tiles: NDArray[np.uint8] | None = None
    grid: Grid = UNTILED

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels."""
        return self.whole.nbytes + (0 if self.tiles is None else self.tiles.nbytes)


def show(image: Image.Image, resolution: Resolution) -> Views:
    """The views of an image. Expects the upright RGB or grey image that `open_image` gives."""
    image = image.convert("RGB")
    whole = _channels_first(_canvas(image, resolution))
    grid = resolution.grid(*image.size)
    if grid == UNTILED or resolution.tiling is None:
        return Views(whole)
    return Views(whole, _tiles(image, resolution.tiling, grid), grid)


def shrunk(image: Image.Image, resolution: Resolution) -> Image.Image:
    """The image at about `SPARE` times the size at which it will be shown, where it is far larger than that.

    For work on the image that comes before `show`. An image whose tiles would be others at that size stays as it is.
    """
    scale = SPARE * shown_scale(image.size, resolution)
    height = math.ceil(image.height * scale)
    # From the height, because it is a line's shorter side: rounding both would change its shape.
    size = (round(image.width * height / image.height), height)
    if scale > _WORTH_SHRINKING or resolution.grid(*size) != resolution.grid(*image.size):
        return image
    return image.resize(size, Image.Resampling.BICUBIC)


def shown_scale(image_size: tuple[int, int], resolution: Resolution) -> float:
    """By how much the view with the most detail scales an image, in the direction that it scales less down."""
    width, height = image_size
    side = resolution.size
    if resolution.layout == "fold":
        rows, _ = folded_size(width, height, side, resolution.tallest_row)
        return (side // rows) / height
    scales = (side / width, side / height)
    shown = max(scales) if resolution.layout == "squash" else min(scales)
    columns, rows = resolution.grid(width, height)
    if resolution.tiling is None or (columns, rows) == UNTILED:
        return shown
    return max(shown, resolution.tiling.size * columns / width, resolution.tiling.size * rows / height)


def _canvas(image: Image.Image, resolution: Resolution) -> Image.Image:
    size = (resolution.size, resolution.size)
    if resolution.layout == "fold":
        return fold(image, resolution.size, resolution.tallest_row)
    if resolution.layout == "squash":
        return image.resize(size, Image.Resampling.BICUBIC)
    return ImageOps.pad(image, size, Image.Resampling.BICUBIC, color=(PAD_COLOUR,) * 3)


def _tiles(image: Image.Image, tiling: Tiling, grid: Grid) -> NDArray[np.uint8]:
    """The tiles of an image resized to fill the grid, whatever that does to its shape."""
    columns, rows = grid
    side = tiling.size
    pixels = np.asarray(image.resize((side * columns, side * rows), Image.Resampling.BICUBIC))
    tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(rows * columns, 3, side, side))


def _channels_first(image: Image.Image) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


_MOST_DISTORTED = 2.0
"""How much taller or wider than true letters may be shown; lines squeezed into a square are not legible."""


def another_resolution(
    image_size: tuple[int, int], current: Resolution, others: Iterable[Resolution]
) -> Resolution | None:
    """The resolution that shows an image of (width, height) next larger than `current` does, else next smaller.

    None of them takes tiles, whose tokens may be many more, or distorts the image. None where there is no other.
    """
    scales = {
        other: shown_scale(image_size, other)
        for other in others
        if other != current
        and other.tiling is None
        and 1 / _MOST_DISTORTED <= other.distortion(*image_size) <= _MOST_DISTORTED
    }
    now = shown_scale(image_size, current)
    larger = [other for other, scale in scales.items() if scale > now]
    return min(larger, key=scales.__getitem__) if larger else max(scales, key=scales.__getitem__, default=None)
