"""Sheets: several line images of one hand on one canvas, top to bottom, as large as all of them allow.

A line that is padded into a square leaves most of it empty; a sheet looks like the pages the base has learnt, at a
part of the vision work. Where a resolution folds lines into rows, each line is folded, and a gap tells where the next
begins. Knows nothing about whose lines they are. Sizes are (width, height).
"""

from collections.abc import Sequence

from PIL import Image

from dsocr.errors import ConfigError
from dsocr.model.folding import PAD_COLOUR, cut_rows, rows_needed
from dsocr.model.resolution import Resolution

Size = tuple[int, int]


def demand_sheets(resolution: Resolution) -> None:
    """Raises ConfigError where sheets cannot be shown at a resolution."""
    if resolution.tiling is not None:
        raise ConfigError(
            f"input.lines_per_sheet: {resolution.name} shows close-ups of parts, and a sheet would be cut into them",
            hint="set input.resolution to one without tiles, such as base, or lines_per_sheet to 1",
        )


def sheet_height(resolution: Resolution) -> int:
    """The room of a sheet, in the pixels that `line_height` counts."""
    return resolution.size - 2 * _margin(resolution) + _gap(resolution)


def line_height(size: Size, resolution: Resolution) -> int:
    """The room that a line takes at the least size at which its ink is legible, with the gap below it."""
    return _height(size, resolution, resolution.legible_row) + _gap(resolution)


def row_height(sizes: Sequence[Size], resolution: Resolution) -> int:
    """The height of rows on the sheet of these lines: the greatest at which all fit, no more than for one line.

    It is legible where their `line_height` sums to no more than `sheet_height`. A line too wide for it is lower, where
    lines are not folded.
    """
    tallest = resolution.tallest_row or 2 * resolution.legible_row
    heights = range(tallest, 1, -1)
    return next((height for height in heights if _fits(sizes, resolution, height)), 1)


def draw_sheet(images: Sequence[Image.Image], resolution: Resolution, paper: tuple[int, int, int]) -> Image.Image:
    """An RGB canvas of the resolution's size with the lines from top to bottom, on paper or, folded, on grey."""
    folds, margin = resolution.layout == "fold", _margin(resolution)
    height = row_height([image.size for image in images], resolution)
    # Grey, as around the one folded line: paper would join the end of a row to the row below.
    colour = (PAD_COLOUR,) * 3 if folds else paper
    canvas = Image.new("RGB", (resolution.size, resolution.size), colour)
    top = margin
    for image in images:
        rows = cut_rows(image, resolution.size, height) if folds else [_scaled(image, resolution, height)]
        for row in rows:
            canvas.paste(row, (margin, top))
            top += row.height
        top += _gap(resolution)
    return canvas


def _fits(sizes: Sequence[Size], resolution: Resolution, height: int) -> bool:
    room = sum(_height(size, resolution, height) + _gap(resolution) for size in sizes)
    return room <= sheet_height(resolution)


def _height(size: Size, resolution: Resolution, row: int) -> int:
    """What a line takes of the canvas, in rows of this height."""
    if resolution.layout == "fold":
        return row * rows_needed(*size, resolution.size, row)
    return _scaled_size(size, resolution, row)[1]


def _scaled(image: Image.Image, resolution: Resolution, height: int) -> Image.Image:
    return image.resize(_scaled_size(image.size, resolution, height), Image.Resampling.BICUBIC)


def _scaled_size(size: Size, resolution: Resolution, height: int) -> Size:
    """A line's size at this height, or lower where it would be wider than the canvas."""
    scale = min(height / size[1], (resolution.size - 2 * _margin(resolution)) / size[0])
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def _gap(resolution: Resolution) -> int:
    # One patch of the first encoder, which sees four of them in each direction for a token.
    return resolution.token_pixels // 4


def _margin(resolution: Resolution) -> int:
    return 0 if resolution.layout == "fold" else _gap(resolution)
