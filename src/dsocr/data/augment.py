"""Augment images of handwriting for training: another pen, sheet and camera, but the same text.

The random draws depend on the generator alone, so that (seed, epoch, sample) gives the same image on every machine and
in every process. Images are RGB or L, and keep their mode. All lengths are relative to the height of a line.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageFilter

from dsocr.errors import ConfigError
from dsocr.images import Colour, median_colour

Augmentation = float | str
"""How to augment: `none`, `light`, or a number that scales the variation of one writer.

`light` changes writing, pen, paper and camera; a number writing, pen and light. 1 is how much the lines of one writer
differ, 0 changes nothing.
"""

Values = NDArray[np.float64]
Operation = Callable[[Image.Image, np.random.Generator], Image.Image]
Quad = tuple[tuple[int, int, int, int], tuple[float, ...]]
"""A box of the result and the corners of the quadrilateral of the source that it shows, as `Image.transform` wants."""

MAX_LINE_HEIGHT = 128
"""Pixels; higher images are treated as lines this high, so that strokes and blurs keep the size of a pen."""
_AMOUNT = 0.6
"""Scale of every operation of `light`."""


def augment(image: Image.Image, rng: np.random.Generator, augmentation: Augmentation = 1.0) -> Image.Image:
    """Return the image augmented. Raises ConfigError for an unknown preset."""
    if not changes(augmentation):
        return image
    if not isinstance(augmentation, str):
        image = _change_pen(_wave(image, rng, augmentation), rng, augmentation)
        gain, shift = 1 + augmentation * rng.uniform(-0.25, 0.25), augmentation * rng.uniform(-20, 20)
        return _adjust_levels(image, gain, shift)
    if augmentation != "light":
        message = f"unknown augmentation {augmentation!r}: use none, light, or a number from 0 to 2"
        raise ConfigError(message, code="augmentation-unknown")
    for operation, probability in _LIGHT:
        if rng.random() < probability and operation:
            image = operation(image, rng)
    return image


def changes(augmentation: Augmentation) -> bool:
    """Whether an augmentation changes images at all."""
    return augmentation not in ("none", 0)


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random generator of one sample in one epoch."""
    return np.random.default_rng((seed, epoch, index))


def line_height(image: Image.Image) -> int:
    """Estimate the height of one written line in pixels, at least 8: the unit of all lengths.

    An image less than one and a half times as wide as high is a page, with lines a twentieth of its width high.
    """
    width, height = image.size
    line = height if 2 * width >= 3 * height else width // 20
    return max(8, min(line, height, MAX_LINE_HEIGHT))


# One writer's variation.

_STRIP = 24
"""Width in pixels of the strips that move on their own, in an image 60 pixels high."""


def _wave(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Slant, raise, wave and stretch the line, as one mesh of narrow strips."""
    width, height = image.size
    wide = max(1, round(width * (1 + strength * rng.uniform(-0.14, 0.14))))
    tall = max(1, round(height * (1 + strength * rng.uniform(-0.1, 0.1))))
    step = max(4, _STRIP * height // 60)
    edges = np.append(np.arange(0, wide, step), wide).astype(float)
    turn = 2 * math.pi * edges / (height * rng.uniform(3, 9))
    phase = rng.uniform(0, 2 * math.pi, 3)
    slope, wave = rng.normal(0, 0.02), rng.normal(0, 0.025)
    rise = height * strength * (slope * (2 * edges / wide - 1) + wave * np.sin(turn + phase[0]))
    sway = height * strength * rng.normal(0, 0.05) * np.sin(2.7 * turn + phase[1])
    lean = height / 2 * strength * (rng.normal(0, 0.13) + rng.normal(0, 0.05) * np.sin(1.9 * turn + phase[2]))
    along = edges * width / wide
    top, bottom = along + sway + lean, along + sway - lean
    # The mesh reads beyond the edges, where Pillow would return black; a frame of paper is there instead.
    frame = height
    rise = rise + frame
    mesh = grid_mesh(edges, (0, tall), np.stack([top, bottom]) + frame, np.stack([rise, rise + height]))
    source = _add_frame(image, frame, _paper(image))
    return source.transform((wide, tall), Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def _change_pen(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Make strokes a little thicker, thinner or softer."""
    radius = strength * max(image.height, 20) / 60 * rng.uniform(0, 0.9)
    kind = rng.random()
    if kind < 0.4:
        return image.filter(ImageFilter.GaussianBlur(radius))
    if kind < 0.7:
        soft = image.filter(ImageFilter.GaussianBlur(radius))
        extreme = ImageFilter.MinFilter(3) if rng.random() < 0.6 else ImageFilter.MaxFilter(3)
        return Image.blend(soft, image.filter(extreme), 0.5 * strength * rng.random())
    return image


# Geometry.

_MAX_STRETCH, _MAX_SLANT = 0.18, 0.42
"""A share of the size, and a slope, before they are scaled."""
_MAX_SHIFT = (0.1, 0.035)
"""Elastic shift of a point along the line and across it, in line heights, before it is scaled."""
_MAX_ROTATION = math.radians(2)
_MAX_RISE = 0.25
"""Rise of a rotated line as a share of its height: a steeper one would be shown too small to read."""
_MIN_INK_CONTRAST = 20
"""Grey levels; ink differs from the paper by more than this, and never leaves the canvas."""
_ELASTIC_CELL = 3
"""Mesh cells over which elastic shifts change."""
_SUBPIXEL = 256
"""Source positions are rounded to this fraction of a pixel: machines differ in the last digit of a sine."""


def warp(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Scale, slant, rotate and locally stretch the image without losing ink.

    The canvas has the size of the scaled image if that holds all ink, so that letters appear about as large as in an
    image that is not warped; otherwise it grows.
    """
    unit, paper = line_height(image), _paper(image)
    wide, tall = (1 + _AMOUNT * _MAX_STRETCH * _bell(rng) for _ in range(2))
    slant = _AMOUNT * _MAX_SLANT * _bell(rng)
    angle = _AMOUNT * min(_MAX_ROTATION, _MAX_RISE * unit / image.width) * _bell(rng)
    rotation = np.array([[1, -angle], [angle, 1]])
    # From points of the result to points of the source.
    inverse: Values = np.linalg.inv(rotation @ np.array([[wide, slant * tall], [0, tall]]))
    # Every point may be shown this far from where the affine transform puts it.
    shift = np.array(_MAX_SHIFT) * _AMOUNT * unit
    difference = ImageChops.difference(image, Image.new(image.mode, image.size, paper)).convert("L")
    is_ink = [0] * _MIN_INK_CONTRAST + [255] * (256 - _MIN_INK_CONTRAST)
    ink = difference.point(is_ink).getbbox() or (0, 0, *image.size)
    start, end = _canvas(image.size, ink, np.asarray(np.linalg.inv(inverse)), shift)
    size = np.ceil(end - start).astype(int)
    # Nodes of a mesh with cells of about this many pixels.
    cell = 0.4 * unit
    across, down = (np.linspace(0, side, max(1, round(side / cell)) + 1).round().astype(np.int64) for side in size)
    columns, rows = np.meshgrid(across + start[0], down + start[1])
    noise = [smooth_noise(rng, len(rows), len(across), _ELASTIC_CELL) for _ in range(2)]
    elastic = [reach * np.clip(part, -1, 1).astype(np.float64) for reach, part in zip(shift, noise, strict=True)]
    x, y = (row[0] * columns + row[1] * rows + part for row, part in zip(inverse, elastic, strict=True))
    return _transform_mesh(image, across, down, x, y, paper)


def _canvas(
    size: tuple[int, int], ink: tuple[int, int, int, int], forward: Values, shift: Values
) -> tuple[Values, Values]:
    """The top left and bottom right corner of the part of the plane that the result shows."""
    middle = forward @ np.array(size) / 2
    half = np.array([forward[0, 0] * size[0], forward[1, 1] * size[1]]) / 2
    left, top, right, bottom = ink
    corners = forward @ np.array([[left, right, left, right], [top, top, bottom, bottom]])
    room = np.abs(forward) @ shift + 1
    return np.minimum(middle - half, corners.min(axis=1) - room), np.maximum(middle + half, corners.max(axis=1) + room)


def _transform_mesh(
    image: Image.Image, across: NDArray[np.int64], down: NDArray[np.int64], x: Values, y: Values, paper: Colour
) -> Image.Image:
    """Show the source's point (`x[i, j]`, `y[i, j]`) at node (`across[j]`, `down[i]`), and paper beyond the source."""
    x, y = np.round(x * _SUBPIXEL) / _SUBPIXEL, np.round(y * _SUBPIXEL) / _SUBPIXEL
    beyond = max(-x.min(), -y.min(), x.max() - image.width, y.max() - image.height, 0)
    # One more pixel, because a point between pixels takes something of four of them.
    frame = math.ceil(beyond) + 1
    x, y = x + frame, y + frame
    size = (int(across[-1]), int(down[-1]))
    source = _add_frame(image, frame, paper)
    return source.transform(size, Image.Transform.MESH, grid_mesh(across, down, x, y), Image.Resampling.BILINEAR)


def grid_mesh(
    across: Sequence[int] | NDArray[Any], down: Sequence[int] | NDArray[Any], x: Values, y: Values
) -> list[Quad]:
    """A mesh that shows the source's point (`x[i, j]`, `y[i, j]`) at node (`across[j]`, `down[i]`)."""
    return [
        (
            (int(across[j]), int(down[i]), int(across[j + 1]), int(down[i + 1])),
            (x[i, j], y[i, j], x[i + 1, j], y[i + 1, j], x[i + 1, j + 1], y[i + 1, j + 1], x[i, j + 1], y[i, j + 1]),
        )
        for i in range(len(down) - 1)
        for j in range(len(across) - 1)
    ]


def change_stroke_width(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Make strokes up to a pixel thicker or thinner on either side; less for small writing."""
    pixels = np.asarray(image)
    thicker, share = rng.random() < 0.6, float(rng.random())
    extreme = np.minimum if thicker else np.maximum
    padded = np.pad(pixels, ((1, 1), (1, 1), *((0, 0),) * (pixels.ndim - 2)), mode="edge")
    spread = extreme(extreme(padded[:-2, 1:-1], padded[2:, 1:-1]), extreme(padded[1:-1, :-2], padded[1:-1, 2:]))
    # A hairline is nothing but edge: thinned fully it would be gone.
    share *= min(1.0 if thicker else 0.4, _AMOUNT * line_height(image) / (60 if thicker else 150))
    return Image.blend(image, Image.fromarray(extreme(pixels, spread)), share)


def fade_ink(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Fade ink here and there, like a pen that runs dry and is dipped again."""
    strongest = _AMOUNT * float(rng.uniform(0.25, 0.6))
    clouds = _clouds(rng, image.size, 2 * line_height(image))
    levels = (np.arange(256) * strongest).round().astype(np.uint8).tolist()
    paper = Image.new(image.mode, image.size, _paper(image))
    return Image.composite(paper, image, clouds.point(levels))


_AGED_PAPER = np.array([0.04, 0.09, 0.2])
"""Shares of red, green and blue that it takes away."""


def tint_paper(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Yellow or grey the paper, with clouds and grain."""
    clouds = _clouds(rng, image.size, line_height(image))
    grain = _clouds(rng, image.size, 2)
    # Clouds take between five eighths and all of the tint.
    mask = Image.blend(clouds, grain, 0.4).point((160 + np.arange(256) * 3 // 8).tolist())
    return _shade(image, mask, _AMOUNT * (float(rng.random()) * _AGED_PAPER + float(rng.uniform(0, 0.12))))


def cast_shadow(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Let light fall off to one side, and now and then cast the soft edge of a shadow."""
    across = np.linspace(-1, 1, image.width, dtype=np.float32)
    down = np.linspace(-1, 1, image.height, dtype=np.float32)[:, None]
    slope, fall = _bell(rng), 0.16 * _AMOUNT * _bell(rng)
    place = across + slope * down * image.height / image.width
    darkness = abs(fall) - fall * place
    edge, soft, dark = float(rng.uniform(-1, 1)), float(rng.uniform(0.1, 0.6)), float(rng.uniform(0.1, 0.3))
    if rng.random() < 0.4:
        step = np.clip((place - edge) / soft + 0.5, 0, 1)
        darkness = darkness + _AMOUNT * dark * step * step * (3 - 2 * step)
    mask = Image.fromarray((255 * np.clip(darkness, 0, 1)).astype(np.uint8))
    return _shade(image, mask, [1.0] * 3)


def change_light(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Change contrast and brightness."""
    return _adjust_levels(image, 1 + _AMOUNT * 0.3 * _bell(rng), _AMOUNT * 30 * _bell(rng))


def soften(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Soften the edges of strokes, as of a pencil or of a lens a little out of focus."""
    deviation = _AMOUNT * line_height(image) / 60 * float(rng.uniform(0.2, 0.8))
    # A box that blurs like a Gaussian of this deviation, at a third of the cost.
    return image.filter(ImageFilter.BoxBlur((math.sqrt(12 * deviation * deviation + 1) - 1) / 2))


def add_noise(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Add the grain of a sensor in weak light."""
    most = max(1, round(_AMOUNT * float(rng.uniform(2, 11))))
    size = (image.height, image.width)
    grain = rng.integers(-most, most + 1, size, dtype=np.int8) + rng.integers(-most, most + 1, size, dtype=np.int16)
    if image.mode == "RGB":
        grain = grain[..., None]
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


_LIGHT: Sequence[tuple[Operation | None, float]] = (
    (warp, 1.0),
    (change_stroke_width, 0.3),
    (fade_ink, 0.15),
    (tint_paper, 0.2),
    *[(None, 0.0)] * 4,
    (cast_shadow, 0.1),
    (change_light, 0.7),
    (soften, 0.2),
    (None, 0.0),
    (add_noise, 0.1),
)
"""Operations and their probabilities, in the order in which they happen to a sheet of paper.

Removed operations still take their draw, so that a seed gives the images with which the recipe was measured.
"""


# Shared by the operations.


def smooth_noise(rng: np.random.Generator, height: int, width: int, cell: int) -> NDArray[np.float32]:
    """Noise (height, width) in about -1..1 that changes over about `cell` pixels."""
    small = rng.uniform(-1, 1, (height // cell + 2, width // cell + 2)).astype(np.float32)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def _clouds(rng: np.random.Generator, size: tuple[int, int], cell: int) -> Image.Image:
    """A mask of `size` (width, height) that changes over about `cell` pixels, about 128 on average."""
    width, height = size
    small = Image.fromarray(rng.integers(0, 256, (height // cell + 2, width // cell + 2), dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def _bell(rng: np.random.Generator) -> float:
    """A number in -1..1, mostly near 0, from sums alone, so that every machine draws the same."""
    return float(rng.uniform(-1, 1, 3).sum()) / 3


def _paper(image: Image.Image) -> Colour:
    return median_colour(image, step=2)


def _add_frame(image: Image.Image, frame: int, paper: Colour) -> Image.Image:
    """The image with `frame` pixels of paper around it."""
    framed = Image.new(image.mode, (image.width + 2 * frame, image.height + 2 * frame), paper)
    framed.paste(image, (frame, frame))
    return framed


def _adjust_levels(image: Image.Image, gain: float, shift: float) -> Image.Image:
    """Change contrast around the paper's shade by a factor, and brightness by grey levels, in one lookup table."""
    paper = _paper(image)
    levels = np.arange(256, dtype=np.float32)
    table: list[int] = []
    for shade in (paper,) if isinstance(paper, int) else paper:
        table += np.clip((levels - np.float32(shade)) * gain + shade + shift, 0, 255).astype(np.uint8).tolist()
    return image.point(table)


def _shade(image: Image.Image, mask: Image.Image, shares: Sequence[float] | Values) -> Image.Image:
    """Darken by a share (0..1) of red, green and blue, of grey their mean, where the mask is 255."""
    taken = list(shares) if image.mode == "RGB" else [sum(shares) / len(shares)]
    levels = np.arange(256)
    bands = [mask.point((255 - levels * share).round().astype(np.uint8).tolist()) for share in taken]
    return ImageChops.multiply(image, bands[0] if len(bands) == 1 else Image.merge("RGB", bands))
