"""How an image fills a canvas of fixed size: padded, squashed, in tiles, wrapped into rows, or cut to its writing.

Pillow and NumPy only. A line of handwriting is ten to twenty times as wide as high; wrapped, it is cut where there is
least ink into rows that fill a square canvas.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

Layout = Literal["wrap", "pad", "squash"]

Grid = tuple[int, int]
"""Columns and rows of tiles; (1, 1) for an image without tiles."""

UNTILED: Grid = (1, 1)

PAD_COLOUR = 127
"""The grey around an image on its canvas: int(0.5 * 255), as published networks pad."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """Close-ups of an image larger than one tile: `fewest` to `most` square tiles of `size` pixels."""

    size: int
    fewest: int
    most: int

    def grid(self, width: int, height: int) -> Grid:
        """Return the grid with the aspect ratio nearest to the image's, as the authors' `dynamic_preprocess` does.

        Of two equally near the larger one wins if the image can fill half of it.
        """
        if width <= self.size and height <= self.size:
            return UNTILED
        best, smallest, sides = UNTILED, float("inf"), range(1, self.most + 1)
        grids = [(i, j) for i in sides for j in sides if self.fewest <= i * j <= self.most]
        for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
            difference = abs(width / height - columns / rows)
            half_filled = width * height > 0.5 * self.size * self.size * columns * rows
            if difference < smallest or (difference == smallest and half_filled):
                best, smallest = (columns, rows), difference
        return best


@dataclass(frozen=True, slots=True)
class Resolution:
    """One way to show an image: on a canvas `size` pixels wide, filled by `layout`, and in tiles with a `tiling`.

    `pad` keeps the aspect ratio and centres the image on the colour `fill`; `squash` does not keep it (as the authors'
    tiny and small do); `wrap` cuts a line image into rows of at most `max_row_height` pixels. `token_pixels` is the
    side of the square of pixels that becomes one vision token. With `row_ends` each row of tokens ends with a slot of
    its own, and tiles are stitched into one picture; without, tiles follow each other. The canvas is square unless it
    has a `height`; only a square one wraps or has tiles.
    """

    name: str
    size: int
    layout: Layout
    token_pixels: int = 1
    max_row_height: int = 0
    tiling: Tiling | None = None
    row_ends: bool = True
    height: int | None = None
    fill: int = PAD_COLOUR
    resample: Image.Resampling = Image.Resampling.BICUBIC

    @property
    def shape(self) -> tuple[int, int]:
        """Width and height of the canvas in pixels."""
        return self.size, self.height or self.size

    def grid(self, width: int, height: int) -> Grid:
        """Return the grid of tiles for an image of this size, shown beside the whole."""
        return UNTILED if self.tiling is None else self.tiling.grid(width, height)

    def slots(self, grid: Grid = UNTILED) -> int:
        """Count the image slots in the input ids: one per vision token and row end, and one after the last view."""
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
        """Return the vertical stretch of letters in the most detailed view; 1 is undistorted."""
        grid = self.grid(width, height)
        if grid != UNTILED:
            return (grid[1] / height) / (grid[0] / width)
        shown_width, shown_height = self.shape
        return (shown_height * width) / (shown_width * height) if self.layout == "squash" else 1.0

    def draw(self, image: Image.Image) -> Image.Image:
        """Draw the whole image on the canvas."""
        if self.layout == "wrap":
            return wrap(image, self.size, self.max_row_height)
        if self.layout == "squash":
            return image.resize(self.shape, self.resample)
        return ImageOps.pad(image, self.shape, self.resample, color=(self.fill,) * 3)

    def shown_scale(self, width: int, height: int) -> float:
        """Return the scale of the most detailed view, in the direction in which it reduces the image less."""
        shown_width, shown_height = self.shape
        if self.layout == "wrap":
            rows, _ = wrapped_size(width, height, self.size, self.max_row_height)
            return (self.size // rows) / height
        scales = (shown_width / width, shown_height / height)
        shown = max(scales) if self.layout == "squash" else min(scales)
        columns, rows = self.grid(width, height)
        if self.tiling is None or (columns, rows) == UNTILED:
            return shown
        return max(shown, self.tiling.size * columns / width, self.tiling.size * rows / height)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Reduce an image that is far larger than it will be shown; one that would get other tiles stays as it is."""
        small = shrink_to(image, self.shown_scale(*image.size))
        return small if self.grid(*small.size) == self.grid(*image.size) else image


_SHORTEST_ROW = 0.6
"""A row is cut no earlier than at this share of the canvas width, so that few rows are needed."""

_FILL = 0.87
"""Share of the canvas a wrapped line may fill: rows end at gaps, and without room cuts would go through letters."""

_GAP = 0.045
"""Width of the gap a cut looks for, as a share of the canvas width: about half a letter."""


def wrapped_size(width: int, height: int, size: int, max_row_height: int) -> tuple[int, int]:
    """Return the number of rows for a line image of this size, and its width in pixels before it is cut."""
    most_rows = max(8, size // max_row_height)
    for rows in range(size // max_row_height, most_rows + 1):
        scaled_width = max(1, round(width * (size // rows) / height))
        if scaled_width <= size or scaled_width <= _FILL * rows * size:
            return rows, scaled_width
    return most_rows, int(_FILL * most_rows * size)


def wrap(image: Image.Image, size: int, max_row_height: int) -> Image.Image:
    """Draw a line image as rows on a grey canvas of `size` x `size`, the first row on top.

    Rows are `max_row_height` pixels high if the line then fits on the canvas, else lower, all of one height. A line too
    wide even for rows of an eighth of the canvas is narrowed to fit them.
    """
    rows, width = wrapped_size(*image.size, size, max_row_height)
    height, edges = size // rows, find_cuts(np.asarray(image.convert("L")), width, size, rows)
    strip = image.resize((width, height), Image.Resampling.BICUBIC)
    canvas = Image.new(image.mode, (size, size), PAD_COLOUR if image.mode == "L" else (PAD_COLOUR,) * 3)
    for row, (left, right) in enumerate(pairwise(edges)):
        canvas.paste(strip.crop((left, 0, right, height)), (0, row * height))
    return canvas


_STRIP_PIXELS = 1_000_000


def _ink(grey: NDArray[np.uint8], columns: int) -> NDArray[np.float64]:
    """Return how much each of `columns` columns differs from the paper, for dark and light ink alike."""
    paper, shade = np.median(grey), np.zeros(grey.shape[1])
    rows = max(1, _STRIP_PIXELS // grey.shape[1])
    for top in range(0, grey.shape[0], rows):  # as one array, 40 megapixels would take a gigabyte
        shade += np.abs(grey[top : top + rows].astype(np.float64) - paper).sum(axis=0)
    shade /= grey.shape[0]
    position = np.linspace(0, len(shade) - 1, columns)
    return np.asarray(np.interp(position, np.arange(len(shade)), shade))


def find_cuts(grey: NDArray[np.uint8], width: int, size: int, rows: int) -> tuple[int, ...]:
    """Return row boundaries from 0 to the scaled `width`: rows at most `size` wide, cut where there is least ink."""
    ink = _ink(grey, width)
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


LINE_HEIGHT = 48
"""Height in pixels at which networks see a line, unless their checkpoint says otherwise."""

PIXELS_PER_STEP = 8
"""Width in pixels of one step of the output of networks that read lines from left to right."""

SPARE = 1.5
"""How many times the shown size an image keeps when it is shrunk.

On 43 lines of about 2031 x 134 pixels nano's canvas changed by 0.4 grey levels of 255 (median), and augmenting a line
took 4.4 ms instead of 11.0; with twice the shown size 8.5 ms.
"""

_WORTH_SHRINKING = 0.75


_PROFILE_HEIGHT = 64
"""Pixels; the height at which strokes are looked for."""
_STROKE = (2, 4)
"""Pixels at that height: a stroke is darker than the paper so far to its left and right."""
_FAINTEST = 6
"""Grey levels by which it is darker."""
_WRITING = 0.8
"""Share of the strokes that is the writing; ascenders and flourishes are among the rest."""
_SHARE = 0.315
"""Share of the height of a line image that the rows of the writing take in at least."""
_TALL = 0.1
"""Share of the columns with strokes that may be cut: a flourish is in few of them, ascenders are in many."""
_LEAST = 0.25
"""Share of an image that stays at least: a thin line of writing may be a rule."""
_LONGEST = 60
"""Width by height to which cutting may bring an image."""
_SMALLEST = 8
"""Pixels; a lower image is not cut."""
_MOST_UNCUT = 0.97
"""Cutting down to this share of an image or more is not worth it."""


def cut_to_writing(image: Image.Image) -> Image.Image:
    """Cut off rows above and below a line's writing where one tall letter or flourish made its image high.

    Depends on nothing but the image, so that a line is read alone as in a batch. Paper, the colour around an
    outline, ruled lines and the edges of outlines are no strokes.
    """
    width = min(max(round(image.width * _PROFILE_HEIGHT / image.height), 1), 50 * _PROFILE_HEIGHT)
    reach = max(_STROKE)
    if width <= 2 * reach or image.height < _SMALLEST:
        return image
    grey = np.asarray(image.convert("L").resize((width, _PROFILE_HEIGHT), Image.Resampling.BOX), dtype=np.int16)
    sides = [
        np.minimum(grey[:, reach - k : width - reach - k], grey[:, reach + k : width - reach + k]) for k in _STROKE
    ]
    darker = np.max(sides, axis=0) - grey[:, reach:-reach]
    strokes = darker > max(np.percentile(darker, 99) / 2, _FAINTEST)
    strokes[:, strokes.mean(axis=0) > 0.5] = False  # ruled lines down the page
    so_far = strokes.sum(axis=1).cumsum()
    if not so_far[-1]:
        return image
    tail = (1 - _WRITING) / 2
    top, bottom = np.interp((tail, 1 - tail), so_far / so_far[-1], np.arange(1, _PROFILE_HEIGHT + 1)) / _PROFILE_HEIGHT
    middle = (top + bottom) / 2
    least = max((bottom - top) / _SHARE, _LEAST, image.width / image.height / _LONGEST)
    for share in np.arange(least, _MOST_UNCUT, 0.05):
        edges = [min(max(middle + side * share / 2, 0), 1) for side in (-1, 1)]
        first, last = (round(edge * _PROFILE_HEIGHT) for edge in edges)
        beyond = strokes[:first].any(axis=0) | strokes[last:].any(axis=0)
        if beyond.sum() <= _TALL * strokes.any(axis=0).sum():
            first, last = (round(edge * image.height) for edge in edges)
            return image.crop((0, first, image.width, last))
    return image


@dataclass(frozen=True, slots=True)
class LineCanvas:
    """How a network that reads a line from left to right sees it: its height, and how many times as wide as it is.

    PaddleOCR's networks see a line cut to its writing, in BGR order and in -1..1, kraken's all of it in RGB order and
    in 0..1, with 0 for white and for `MARGIN` columns at both ends.
    """

    height: int = LINE_HEIGHT
    stretch: float = 1.0
    grey: bool = False
    is_krakens: bool = False

    def draw(self, image: Image.Image, wider: float = 1.0) -> NDArray[np.uint8]:
        """Return a line `(height, W, 3)` in the network's order of colours, drawn `wider` times as wide as usual."""
        image = image.convert("L") if self.grey else image
        image = image if self.is_krakens else cut_to_writing(image)
        width = image.width * self.height / image.height * self.stretch * wider
        size = (max(PIXELS_PER_STEP, int(width) if self.is_krakens else round(width)), self.height)
        if not self.is_krakens:
            resized = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
            return np.ascontiguousarray(np.asarray(resized)[:, :, ::-1])
        resized = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        return np.pad(np.asarray(resized), ((0, 0), (MARGIN, MARGIN), (0, 0)), constant_values=255)

    def shown(self, line: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a drawn line in RGB order."""
        return line if self.is_krakens else line[:, :, ::-1]

    def values(self, line: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return a drawn line as numbers for the network."""
        values = line.astype(np.float32)
        return 1 - values / np.float32(255) if self.is_krakens else values / np.float32(127.5) - 1

    def columns(self, line: NDArray[np.uint8]) -> int:
        """Return how many columns of pixels belong to a drawn line; PaddleOCR's networks see whole steps."""
        width: int = line.shape[1]
        return width if self.is_krakens else -(-width // PIXELS_PER_STEP) * PIXELS_PER_STEP

    def count_steps(self, width: int, height: int) -> int:
        """Return about how many steps a line image of this size has."""
        margins = 2 * MARGIN if self.is_krakens else 0
        return math.ceil((width * self.height / height * self.stretch + margins) / PIXELS_PER_STEP)

    def shrink(self, image: Image.Image) -> Image.Image:
        """Cut a line as it will be drawn, and reduce it to twice the height."""
        image, height = image if self.is_krakens else cut_to_writing(image), 2 * self.height
        if image.height <= height * 1.3:
            return image
        return image.resize((max(1, round(image.width * height / image.height)), height), Image.Resampling.BICUBIC)


MARGIN = 16
"""White columns that kraken puts before and after a line."""


def steps_of(columns: Any) -> Any:
    """Return steps from columns, of tensors too: convolutions halve and round up twice, the pooling rounds down."""
    return (columns + 3) // 4 // 2


def shrink_to(image: Image.Image, shown_scale: float) -> Image.Image:
    """Reduce an image to `SPARE` times the scale at which it will be shown, unless that is hardly smaller."""
    scale = SPARE * shown_scale
    if scale > _WORTH_SHRINKING:
        return image
    height = math.ceil(image.height * scale)
    # From the height, a line's shorter side: rounding both would change its shape.
    return image.resize((max(1, round(image.width * height / image.height)), height), Image.Resampling.BICUBIC)


def show(image: Image.Image, resolution: Resolution) -> dict[str, NDArray[np.uint8]]:
    """Return the pixels of an upright image as the network takes them.

    `pixel_values` (1, 3, H, W) is the whole, `pixel_values_local` (n, 3, s, s) the tiles row by row, if it has any.
    """
    image = image.convert("RGB")
    whole = np.ascontiguousarray(np.asarray(resolution.draw(image)).transpose(2, 0, 1))
    images, (columns, rows) = {"pixel_values": whole[None]}, resolution.grid(*image.size)
    if resolution.tiling is not None and (columns, rows) != UNTILED:  # resized to fill the grid, whatever its shape
        side = resolution.tiling.size
        pixels = np.asarray(image.resize((side * columns, side * rows), Image.Resampling.BICUBIC))
        tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
        images["pixel_values_local"] = np.ascontiguousarray(tiles.reshape(rows * columns, 3, side, side))
    return images


def draw_views(whole: NDArray[np.uint8], tiles: NDArray[np.uint8] | None, grid: Grid) -> NDArray[np.uint8]:
    """Draw the whole image (3, H, W) and, below it, the tiles in their grid with a gap between them, (H, W, 3)."""
    whole = whole.transpose(1, 2, 0)
    if tiles is None:
        return whole
    columns, rows = grid
    side, size = tiles.shape[-1], whole.shape[0]
    step = side + side // 40
    top = size + side // 40
    canvas = np.full((top + rows * step, max(size, columns * step), 3), 255, dtype=np.uint8)
    canvas[:size, :size] = whole
    for place, tile in enumerate(tiles):
        row, column = divmod(place, columns)
        y, x = top + row * step, column * step
        canvas[y : y + side, x : x + side] = tile.transpose(1, 2, 0)
    return canvas
