"""How an image enters a model: the names of its resolutions, their sizes, and the image slots they need.

Knows nothing about weights; `views.py` turns an image into pixels at one of these resolutions. The published numbers
are those of the authors' `infer` and of their vLLM configuration.
"""

from dataclasses import dataclass
from typing import Literal

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
