"""How DeepSeek-OCR sees an image: the named resolutions and the pixels of each view.

The published sizes are those of the authors' `infer` and of their vLLM configuration.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.errors import ConfigError
from dsocr.models.canvas import UNTILED, Grid, Resolution, Tiling, draw_canvas

Variant = Literal["deepseek_ocr", "unlimited_ocr", "deepseek_ocr_2", "nano"]
"""Bases with the same image preparation; `nano` is DeepSeek-OCR's network with small numbers."""

_SQUASHED = [Resolution("tiny", 512, "squash", 64), Resolution("small", 640, "squash", 64)]
_BASE = Resolution("base", 1024, "pad", 64)
# Not one of the authors': a line as a small paragraph, at the size of their `small`.
_WRAP = Resolution("wrap", 640, "wrap", 64, max_row_height=128)

_RESOLUTIONS = {
    "deepseek_ocr": [
        *_SQUASHED,
        _BASE,
        Resolution("large", 1280, "pad", 64),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 9)),
        # The authors' vLLM configuration, and vLLM's own, stop at six tiles.
        Resolution("gundam_vllm", 1024, "pad", 64, tiling=Tiling(640, 2, 6)),
        _WRAP,
    ],
    "unlimited_ocr": [*_SQUASHED, _BASE, Resolution("gundam", 1024, "pad", 64, tiling=Tiling(640, 2, 32)), _WRAP],
    "deepseek_ocr_2": [
        Resolution("small", 768, "squash", 64, row_ends=False),
        Resolution("base", 1024, "pad", 64, row_ends=False),
        Resolution("gundam", 1024, "pad", 64, tiling=Tiling(768, 2, 6), row_ends=False),
        Resolution("wrap", 768, "wrap", 64, max_row_height=128, row_ends=False),
    ],
    "nano": [Resolution("wrap", 256, "wrap", 32, max_row_height=64)],
}
_DEFAULTS = {"deepseek_ocr": "base", "unlimited_ocr": "base", "deepseek_ocr_2": "base", "nano": "wrap"}


def resolutions(variant: Variant) -> list[Resolution]:
    """Return every resolution of a base."""
    return list(_RESOLUTIONS[variant])


def find_resolution(variant: Variant, name: str | None) -> Resolution:
    """Return the resolution of that name, or the default for None. Raises ConfigError listing the names."""
    known = {resolution.name: resolution for resolution in _RESOLUTIONS[variant]}
    name = name or _DEFAULTS[variant]
    chosen = known.get(name)
    if chosen is None:
        raise ConfigError(
            f"This base has no resolution {name!r} (input.resolution)",
            code="resolution-unknown",
            hint=f"it has {', '.join(known)}",
        )
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class Views:
    """The pixels of one image: the `whole` (3, S, S) as bytes, and its `tiles` (n, 3, s, s), row by row.

    `grid` is the columns and rows of the tiles, (1, 1) if there are none.
    """

    whole: NDArray[np.uint8]
    tiles: NDArray[np.uint8] | None = None
    grid: Grid = UNTILED

    @property
    def nbytes(self) -> int:
        """The bytes that all pixels take."""
        return self.whole.nbytes + (0 if self.tiles is None else self.tiles.nbytes)

    def __eq__(self, other: object) -> bool:
        """Whether all pixels are equal."""
        if not isinstance(other, Views) or self.grid != other.grid:
            return False
        pairs = [(self.whole, other.whole), (self.tiles, other.tiles)]
        return all(ours is theirs or np.array_equal(ours, theirs) for ours, theirs in pairs)  # type: ignore[arg-type]

    def picture(self) -> NDArray[np.uint8]:
        """Return the whole image and, below it, the tiles in their grid with a gap between them, (H, W, 3)."""
        whole = self.whole.transpose(1, 2, 0)
        if self.tiles is None:
            return whole
        columns, rows = self.grid
        side, size = self.tiles.shape[-1], whole.shape[0]
        step = side + side // 40
        top = size + side // 40
        canvas = np.full((top + rows * step, max(size, columns * step), 3), 255, dtype=np.uint8)
        canvas[:size, :size] = whole
        for place, tile in enumerate(self.tiles):
            row, column = divmod(place, columns)
            y, x = top + row * step, column * step
            canvas[y : y + side, x : x + side] = tile.transpose(1, 2, 0)
        return canvas


NO_VIEWS = Views(np.empty((3, 0, 0), dtype=np.uint8))
"""The views of a sample whose features have been computed."""


def show(image: Image.Image, resolution: Resolution) -> Views:
    """Return the views of an image, which must be upright and RGB or grey as `open_image` returns it."""
    image = image.convert("RGB")
    whole = _channels_first(draw_canvas(image, resolution))
    grid = resolution.grid(*image.size)
    if grid == UNTILED or resolution.tiling is None:
        return Views(whole)
    return Views(whole, _tiles(image, resolution.tiling, grid), grid)


def _tiles(image: Image.Image, tiling: Tiling, grid: Grid) -> NDArray[np.uint8]:
    """Cut an image into tiles after resizing it to fill the grid, without keeping its aspect ratio."""
    columns, rows = grid
    side = tiling.size
    pixels = np.asarray(image.resize((side * columns, side * rows), Image.Resampling.BICUBIC))
    tiles = pixels.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(tiles.reshape(rows * columns, 3, side, side))


def _channels_first(image: Image.Image) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
