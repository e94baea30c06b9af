"""Pixels of an image at a resolution, in Pillow and NumPy: what training and transcription both show the model.

Shapes: `S` side of the canvas, `s` side of a tile, `n` tiles. Pixels stay bytes until a batch is on its device, where
`collating.py` makes numbers of them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from dsocr.model.folding import PAD_COLOUR, fold, folded_size
from dsocr.model.resolution import UNTILED, Grid, Resolution, Tiling

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
