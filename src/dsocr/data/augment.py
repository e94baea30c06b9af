"""Line images as they might have been written and scanned another time: for training, never for reading.

What is drawn depends on the generator alone, so that (seed, epoch, sample) gives the same picture on every machine and
in whatever process it is drawn.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from dsocr.errors import ConfigError
from dsocr.images import Colour, median_colour

Values = NDArray[np.float64]
Piece = tuple[tuple[int, int, int, int], tuple[float, ...]]

_STEPS = 256
"""Source places are rounded to this part of a pixel: machines differ in the last digit of a sine, pictures must not."""


def strip_mesh(edges: Values, tall: int, top: Values, bottom: Values, rise: Values, height: int) -> list[Piece]:
    """Narrow strips of a picture `tall` pixels high, as `Image.transform` takes them.

    The edge at `edges[i]` shows the source's line from (`top[i]`, `rise[i]`) to (`bottom[i]`, `rise[i]` + `height`).
    """
    low = rise + height
    return [
        (
            (int(edges[i]), 0, int(edges[j]), tall),
            (top[i], rise[i], bottom[i], low[i], bottom[j], low[j], top[j], rise[j]),
        )
        for i, j in pairwise(range(len(edges)))
    ]


def nodes(length: int, step: float) -> NDArray[np.int64]:
    """Where cells about `step` pixels long begin and end, from 0 to `length`."""
    return np.linspace(0, length, max(1, round(length / step)) + 1).round().astype(np.int64)


def bend(
    image: Image.Image, across: NDArray[np.int64], down: NDArray[np.int64], x: Values, y: Values, paper: Colour
) -> Image.Image:
    """The picture whose node (`across[j]`, `down[i]`) shows the source's point (`x[i, j]`, `y[i, j]`).

    It is as large as its last nodes say, and of the colour `paper` where it shows what lies beside the source.
    """
    x, y = np.round(x * _STEPS) / _STEPS, np.round(y * _STEPS) / _STEPS
    beyond = max(-x.min(), -y.min(), x.max() - image.width, y.max() - image.height, 0)
    # One pixel more, because a point between pixels takes something of four of them.
    frame = math.ceil(beyond) + 1
    x, y = x + frame, y + frame
    mesh = [
        (
            (int(across[j]), int(down[i]), int(across[j + 1]), int(down[i + 1])),
            (x[i, j], y[i, j], x[i + 1, j], y[i + 1, j], x[i + 1, j + 1], y[i + 1, j + 1], x[i, j + 1], y[i, j + 1]),
        )
        for i in range(len(down) - 1)
        for j in range(len(across) - 1)
    ]
    size = (int(across[-1]), int(down[-1]))
    return framed(image, frame, paper).transform(size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def framed(image: Image.Image, frame: int, paper: Colour) -> Image.Image:
    """The image with `frame` pixels of paper around it."""
    wide = Image.new(image.mode, (image.width + 2 * frame, image.height + 2 * frame), paper)
    wide.paste(image, (frame, frame))
    return wide


STRIP = 24
"""Width in pixels of the strips that move on their own, for an image 60 pixels high."""


def vary(image: Image.Image, rng: np.random.Generator, strength: float = 1.0) -> Image.Image:
    """The image slanted, stretched, wavering, in a thicker or thinner pen, in other light; text and order stay.

    `strength` 1 is what one writer's lines differ by, 0 changes nothing.
    """
    if strength == 0:
        return image
    image = _wavering(image, rng, strength)
    image = _another_pen(image, rng, strength)
    return _other_light(image, rng, strength)


def _wavering(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Slant, rise, waves and local stretching, as one mesh of narrow strips."""
    width, height = image.size
    wide = max(1, round(width * (1 + strength * rng.uniform(-0.14, 0.14))))
    tall = max(1, round(height * (1 + strength * rng.uniform(-0.1, 0.1))))
    step = max(4, STRIP * height // 60)
    edges = np.append(np.arange(0, wide, step), wide).astype(float)
    turn = 2 * math.pi * edges / (height * rng.uniform(3, 9))
    phase = rng.uniform(0, 2 * math.pi, 3)
    rise = (
        height
        * strength
        * (rng.normal(0, 0.02) * (2 * edges / wide - 1) + rng.normal(0, 0.025) * np.sin(turn + phase[0]))
    )
    sway = height * strength * rng.normal(0, 0.05) * np.sin(2.7 * turn + phase[1])
    lean = height / 2 * strength * (rng.normal(0, 0.13) + rng.normal(0, 0.05) * np.sin(1.9 * turn + phase[2]))
    along = edges * width / wide
    top, bottom = along + sway + lean, along + sway - lean
    # The mesh reads beyond the rim, where Pillow finds black; a frame of the image's own paper is found there instead.
    frame = height
    mesh = strip_mesh(edges, tall, top + frame, bottom + frame, rise + frame, height)
    source = framed(image, frame, _paper(image))
    return source.transform((wide, tall), Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def _another_pen(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Strokes a little thicker, thinner or softer."""
    radius = strength * max(image.height, 20) / 60 * rng.uniform(0, 0.9)
    kind = rng.random()
    if kind < 0.4:
        return image.filter(ImageFilter.GaussianBlur(radius))
    if kind < 0.7:
        soft = image.filter(ImageFilter.GaussianBlur(radius))
        extreme = ImageFilter.MinFilter(3) if rng.random() < 0.6 else ImageFilter.MaxFilter(3)
        return Image.blend(soft, image.filter(extreme), 0.5 * strength * rng.random())
    return image


def _other_light(image: Image.Image, rng: np.random.Generator, strength: float) -> Image.Image:
    """Contrast and brightness changed around the paper's shade."""
    gain, shift = 1 + strength * rng.uniform(-0.25, 0.25), strength * rng.uniform(-20, 20)
    paper = _paper(image)
    levels = np.arange(256, dtype=np.float32)
    table: list[int] = []
    for shade in (paper,) if isinstance(paper, int) else paper:
        # A level becomes the same whatever pixel it stands in, so 256 of them are computed and not all pixels.
        table += np.clip((levels - np.float32(shade)) * gain + shade + shift, 0, 255).astype(np.uint8).tolist()
    return image.point(table)


def _paper(image: Image.Image) -> Colour:
    return median_colour(image, step=2)


TALLEST_LINE = 128
"""Pixels; what is higher is taken for a line this high, so that pens and blurs keep the size of a pen."""


def line_height(image: Image.Image) -> int:
    """About how high one written line is, in pixels, at least 8: the unit of every length that is drawn.

    A picture that is not half as wide again as it is high is a page, and taken for lines a twentieth of its width high.
    """
    width, height = image.size
    tall = height if 2 * width >= 3 * height else width // 20
    return max(8, min(tall, height, TALLEST_LINE))


def around_zero(rng: np.random.Generator) -> float:
    """A number in -1..1, mostly near 0: as from a bell curve, but bounded, and from sums alone."""
    return float(rng.uniform(-1, 1, 3).sum()) / 3


def smooth_noise(rng: np.random.Generator, height: int, width: int, cell: int) -> NDArray[np.float32]:
    """Noise in about -1..1 that changes over about `cell` pixels, (height, width)."""
    small = rng.uniform(-1, 1, (max(2, height // cell + 2), max(2, width // cell + 2))).astype(np.float32)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def cloudy(rng: np.random.Generator, size: tuple[int, int], cell: int) -> Image.Image:
    """A mask of `size` (width, height) that changes over about `cell` pixels, about 128 on average."""
    width, height = size
    shape = (max(2, height // cell + 2), max(2, width // cell + 2))
    small = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def shaded(image: Image.Image, mask: Image.Image, taken: Sequence[float] | NDArray[np.float64]) -> Image.Image:
    """The image with a share of its red, green and blue `taken` away, 0..1, where the mask is 255; grey by the mean.

    Shares are multiplied, so dark letters stay dark letters whatever lies on them.
    """
    shares = list(taken) if image.mode == "RGB" else [sum(taken) / len(taken)]
    levels = np.arange(256)
    bands = [mask.point((255 - levels * share).round().astype(np.uint8).tolist()) for share in shares]
    return ImageChops.multiply(image, bands[0] if len(bands) == 1 else Image.merge("RGB", bands))


_DIRECTIONS = ((1, 0), (0, 1), (1, 1), (1, -1))


def lit(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Contrast and brightness changed around the paper's shade, by one table of levels."""
    gain, shift = 1 + min(amount, 1.2) * 0.3 * around_zero(rng), amount * 30 * around_zero(rng)
    paper = median_colour(image, step=2)
    levels = np.arange(256, dtype=np.float32)
    table: list[int] = []
    for shade in (paper,) if isinstance(paper, int) else paper:
        table += np.clip((levels - np.float32(shade)) * gain + shade + shift, 0, 255).astype(np.uint8).tolist()
    return image.point(table)


def shadowed(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Light that falls off to one side, and now and then the soft edge of a shadow."""
    across = np.linspace(-1, 1, image.width, dtype=np.float32)
    down = np.linspace(-1, 1, image.height, dtype=np.float32)[:, None]
    slope, fall = around_zero(rng), 0.16 * amount * around_zero(rng)
    place = across + slope * down * image.height / image.width
    darkness = abs(fall) - fall * place
    edge, soft, dark = float(rng.uniform(-1, 1)), float(rng.uniform(0.1, 0.6)), float(rng.uniform(0.1, 0.3))
    if rng.random() < 0.4:
        step = np.clip((place - edge) / soft + 0.5, 0, 1)
        darkness = darkness + min(amount, 1.2) * dark * step * step * (3 - 2 * step)
    mask = Image.fromarray((255 * np.clip(darkness, 0, 1)).astype(np.uint8))
    return shaded(image, mask, [1.0] * 3)


def moved(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Blur in one direction, by a thirtieth of the line's height at most."""
    side = 5 if line_height(image) * min(amount, 1.2) >= 90 else 3
    right, down = _DIRECTIONS[int(rng.integers(len(_DIRECTIONS)))]
    middle = side // 2
    kernel = np.zeros((side, side))
    for place in range(-middle, middle + 1):
        kernel[middle + down * place, middle + right * place] = 1
    strength = min(1.0, amount * float(rng.uniform(0.4, 1)))
    blurred = image.filter(ImageFilter.Kernel((side, side), kernel.ravel().tolist()))
    return Image.blend(image, blurred, strength)


def noisy(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Grain of a sensor in weak light."""
    most = max(1, round(min(amount, 1.5) * float(rng.uniform(2, 11))))
    size = (image.height, image.width)
    grain = rng.integers(-most, most + 1, size, dtype=np.int8) + rng.integers(-most, most + 1, size, dtype=np.int16)
    if image.mode == "RGB":
        grain = grain[..., None]
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def compressed(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Stored as a JPEG of low quality and opened again."""
    worst = round(90 - 55 * min(amount, 1.2))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=int(rng.integers(worst, 91)))
    with Image.open(file) as stored:
        stored.load()
        return stored.convert(image.mode)


_STRETCH, _SLANT = 0.18, 0.42
"""The most at amount 1: a share of the size, and a slope."""

_ELASTIC = (0.1, 0.035)
"""How far a point is moved along the line and across it, at most at amount 1; shares of a line's height."""

_TURN = math.radians(2)
"""The most a picture is turned, at any amount."""

_STEEPEST = 0.25
"""A turned line rises by no more than this share of its height: beyond, it would be shown too small to read."""

_INK = 20
"""What differs from the paper by so many levels of 255 is ink, and never leaves the canvas."""

_CELL = 3
"""Elasticity changes over this many cells of the mesh."""


def bent(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """The image scaled, slanted, turned and locally stretched; all of its ink is still there.

    The canvas is as large as the scaled image where that holds the ink, so that letters are shown about as large as
    those of an image that is not bent; else it grows.
    """
    unit, paper = line_height(image), median_colour(image, step=2)
    back = _draw_back(image, unit, rng, amount)
    # Every point may be shown this far from where the rest of the transform puts it.
    reach = np.array(_ELASTIC) * amount * unit
    start, end = _canvas(image.size, _ink_box(image, paper), np.asarray(np.linalg.inv(back)), reach)
    size = np.ceil(end - start).astype(int)
    across, down = nodes(size[0], 0.4 * unit), nodes(size[1], 0.4 * unit)
    columns, rows = np.meshgrid(across + start[0], down + start[1])
    x = back[0, 0] * columns + back[0, 1] * rows + reach[0] * _elastic(rng, columns.shape)
    y = back[1, 0] * columns + back[1, 1] * rows + reach[1] * _elastic(rng, columns.shape)
    return bend(image, across, down, x, y, paper)


def _draw_back(image: Image.Image, unit: int, rng: np.random.Generator, amount: float) -> Values:
    """The matrix (2, 2) that says which point of the source a point of the result shows."""
    wide, tall = (1 + amount * _STRETCH * around_zero(rng) for _ in range(2))
    slant = amount * _SLANT * around_zero(rng)
    turn = min(amount, 1) * min(_TURN, _STEEPEST * unit / image.width) * around_zero(rng)
    turned = np.array([[1, -turn], [turn, 1]])
    back: Values = np.linalg.inv(turned @ np.array([[wide, slant * tall], [0, tall]]))
    return back


def _ink_box(image: Image.Image, paper: Colour) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of all that is not paper; of an empty image all."""
    difference = ImageChops.difference(image, Image.new(image.mode, image.size, paper)).convert("L")
    box = difference.point([0] * _INK + [255] * (256 - _INK)).getbbox()
    return box or (0, 0, *image.size)


def _canvas(
    size: tuple[int, int], ink: tuple[int, int, int, int], forward: Values, reach: Values
) -> tuple[Values, Values]:
    """The corners, left top and right bottom, of the part of the plane that is shown."""
    middle = forward @ np.array(size) / 2
    half = np.array([forward[0, 0] * size[0], forward[1, 1] * size[1]]) / 2
    left, top, right, bottom = ink
    corners = forward @ np.array([[left, right, left, right], [top, top, bottom, bottom]])
    room = np.abs(forward) @ reach + 1
    return np.minimum(middle - half, corners.min(axis=1) - room), np.maximum(middle + half, corners.max(axis=1) + room)


def _elastic(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Smooth noise in -1..1 at the nodes."""
    return np.clip(smooth_noise(rng, shape[0], shape[1], _CELL), -1, 1).astype(np.float64)


_AGED = np.array([0.04, 0.09, 0.2])
_BLUE, _GREY, _VIOLET = (0.42, 0.24, 0.08), (0.3, 0.3, 0.3), (0.3, 0.36, 0.14)
_RULES = np.array([_BLUE, _GREY, _VIOLET])
_BACK = np.array([0.85, 1.0, 1.15])
"""The shares of red, green and blue that old paper, the ink of rules and ink seen through paper take away."""


def tinted(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Paper yellowed or greyed, with clouds and grain."""
    clouds = cloudy(rng, image.size, line_height(image))
    grain = cloudy(rng, image.size, 2)
    # Clouds lie between five eighths and the whole of what the sheet takes.
    mask = Image.blend(clouds, grain, 0.4).point((160 + np.arange(256) * 3 // 8).tolist())
    return shaded(image, mask, amount * (float(rng.random()) * _AGED + float(rng.uniform(0, 0.12))))


def ruled(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Lines or squares of a school notebook under the ink."""
    unit = line_height(image)
    squares = rng.random() < 0.5
    step = unit * float(rng.uniform(0.32, 0.6) if squares else rng.uniform(0.7, 1.3))
    slope, thickness = 0.008 * around_zero(rng), max(1.0, unit / 70)
    ink = _RULES[int(rng.integers(len(_RULES)))] * float(rng.uniform(0.4, 1.0)) * min(amount, 1.2)
    printed = _rules(image.size, step, float(rng.random()), thickness, slope)
    across = float(rng.random())
    if squares:
        upright = _rules((image.height, image.width), step, across, thickness, -slope)
        printed = ImageChops.lighter(printed, upright.transpose(Image.Transpose.TRANSPOSE))
    return shaded(image, printed, ink)


def _rules(size: tuple[int, int], step: float, phase: float, thickness: float, slope: float) -> Image.Image:
    """A mask of level rules, `step` pixels apart, that fall by `slope` pixels a pixel."""
    width, height = size
    room = int(abs(slope) * width) + 2
    place = np.arange(-room, height + room) + phase * step
    covered = np.clip(thickness / 2 + 0.5 - np.abs(place % step - step / 2), 0, 1)
    column = Image.fromarray(np.repeat((255 * covered).astype(np.uint8)[:, None], 3, axis=1))
    return column.transform(size, Image.Transform.AFFINE, (0, 0, 1.5, -slope, 1, room), Image.Resampling.BILINEAR)


def bled_through(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """The writing on the back of the sheet, mirrored and faint; this very line has to stand for it."""
    unit = line_height(image)
    faintness = min(amount, 1.3) * float(rng.uniform(0.06, 0.22))
    grey = image.convert("L").reduce(2 if min(image.size) > 4 else 1)
    paper = median_colour(grey)
    assert isinstance(paper, int)
    ink = grey.point(np.clip(255 - np.arange(256) * 255 // max(paper, 1), 0, 255).tolist())
    back = ink.transpose(Image.Transpose.FLIP_LEFT_RIGHT).filter(ImageFilter.GaussianBlur(unit / 80))
    back = ImageChops.offset(back, int(rng.integers(back.width)), int(rng.integers(-unit // 5, unit // 5 + 1)))
    return shaded(image, back.resize(image.size, Image.Resampling.BILINEAR), faintness * _BACK)


_PALEST = 0.5
"""Ink loses at most this share of its contrast: what nobody could read teaches guessing."""


def another_stroke(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Strokes up to a pixel thicker or thinner on either side; of small writing less."""
    pixels = np.asarray(image)
    thicker, share = rng.random() < 0.6, float(rng.random())
    extreme = np.minimum if thicker else np.maximum
    padded = np.pad(pixels, ((1, 1), (1, 1), *((0, 0),) * (pixels.ndim - 2)), mode="edge")
    spread = extreme(extreme(padded[:-2, 1:-1], padded[2:, 1:-1]), extreme(padded[1:-1, :-2], padded[1:-1, 2:]))
    # A hairline has nothing but its rim: thinned in full it would be gone.
    share *= min(1.0 if thicker else 0.4, amount * line_height(image) / (60 if thicker else 150))
    return Image.blend(image, Image.fromarray(extreme(pixels, spread)), share)


def faded(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Ink that runs dry and is dipped again: paler here and there, never too pale to read."""
    strongest = min(_PALEST, amount * float(rng.uniform(0.25, 0.6)))
    clouds = cloudy(rng, image.size, 2 * line_height(image))
    levels = (np.arange(256) * strongest).round().astype(np.uint8).tolist()
    paper = Image.new(image.mode, image.size, median_colour(image, step=2))
    return Image.composite(paper, image, clouds.point(levels))


def softened(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """Strokes with a softer edge, as of a pencil, or of a lens a little out of focus."""
    spread = min(amount, 1.5) * line_height(image) / 60 * float(rng.uniform(0.2, 0.8))
    # A box that spreads as a Gaussian of this deviation does, at a third of the cost.
    return image.filter(ImageFilter.BoxBlur((math.sqrt(12 * spread * spread + 1) - 1) / 2))


_STAMPS = np.array([(0.75, 0.65, 0.2), (0.6, 0.75, 0.25), (0.25, 0.75, 0.65)])
"""The shares of red, green and blue that a stamp's ink takes away: blue, violet, red."""

_FINE = 2
"""Stamps are drawn this much larger and shrunk, so that their edges are smooth."""


def stamped(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """A faint round stamp, no wider than a line and a half is high, over a few letters at most."""
    unit = line_height(image)
    side = max(8, round(unit * float(rng.uniform(0.8, 1.5))))
    ink = _STAMPS[int(rng.integers(len(_STAMPS)))] * min(amount, 1.2) * float(rng.uniform(0.25, 0.5))
    corner = (int(rng.integers(-side // 2, image.width)), int(rng.integers(-side // 2, image.height)))
    mask = Image.new("L", image.size)
    mask.paste(_seal(side, rng), corner)
    return shaded(image, mask, ink)


def _seal(side: int, rng: np.random.Generator) -> Image.Image:
    """A round stamp's mask: two rings and what looks like words, worn."""
    large = side * _FINE
    drawing = Image.new("L", (large, large))
    draw = ImageDraw.Draw(drawing)
    for rim, stroke in ((0.0, 0.035), (0.16, 0.02)):
        box = (rim * large, rim * large, (1 - rim) * large, (1 - rim) * large)
        draw.ellipse(box, outline=255, width=max(1, round(stroke * large)))
    for row in (0.38, 0.5, 0.62):
        left = 0.26
        while left < 0.7:
            right = left + float(rng.uniform(0.03, 0.09))
            draw.rectangle((left * large, row * large, right * large, (row + 0.045) * large), fill=255)
            left = right + 0.03
    seal = np.asarray(drawing.resize((side, side), Image.Resampling.BOX))
    worn = rng.integers(160, 256, (side, side), dtype=np.uint16)
    return Image.fromarray((seal * worn // 255).astype(np.uint8))


def beside_a_ruler(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """A clear ruler along the upper or the lower rim, an eighth of a line's height at most."""
    unit = line_height(image)
    height = min(image.height, max(1, round(unit * float(rng.uniform(0.06, 0.125)))))
    step, below = max(2.0, unit * float(rng.uniform(0.07, 0.12))), rng.random() < 0.5
    marks = np.arange(float(rng.uniform(0, step)), image.width, step).astype(int)
    ruler = np.full((height, image.width), 60, dtype=np.uint8)
    ruler[: max(1, height // 2), marks] = 255
    ruler[:, marks[int(rng.integers(5)) :: 5]] = 255
    mask = Image.new("L", image.size)
    mask.paste(Image.fromarray(ruler if below else ruler[::-1]), (0, image.height - height if below else 0))
    return shaded(image, mask, [0.45 * min(amount, 1.2)] * 3)


Operation = Callable[[Image.Image, np.random.Generator, float], Image.Image]


@dataclass(frozen=True, slots=True)
class Step:
    """An operation and how often each preset uses it, 0..1."""

    operation: Operation
    light: float
    medium: float
    strong: float


STEPS = (
    Step(bent, 1.0, 1.0, 1.0),
    Step(another_stroke, 0.3, 0.4, 0.5),
    Step(faded, 0.15, 0.25, 0.35),
    Step(tinted, 0.2, 0.35, 0.5),
    Step(ruled, 0.0, 0.12, 0.25),
    Step(bled_through, 0.0, 0.12, 0.25),
    Step(stamped, 0.0, 0.02, 0.06),
    Step(beside_a_ruler, 0.0, 0.02, 0.05),
    Step(shadowed, 0.1, 0.25, 0.4),
    Step(lit, 0.7, 0.7, 0.8),
    Step(softened, 0.2, 0.25, 0.3),
    Step(moved, 0.0, 0.06, 0.12),
    Step(noisy, 0.1, 0.2, 0.3),
    Step(compressed, 0.0, 0.15, 0.3),
)
"""In the order in which it happens to a sheet: written, printed on, laid down, lit, photographed, stored."""

AMOUNTS = {"light": 0.6, "medium": 1.0, "strong": 1.4}


def as_drawn(image: Image.Image, rng: np.random.Generator, preset: str) -> Image.Image:
    """The image after the steps of a preset, each used or not as drawn."""
    amount = AMOUNTS[preset]
    for step in STEPS:
        if rng.random() < getattr(step, preset):
            image = step.operation(image, rng, amount)
    return image


NONE = "none"

Augmentation = float | str
"""How much images are varied: `none`, `light`, `medium`, `strong`, or a number that scales one writer's own variation.

A preset takes in hand, pen, paper and camera; a number hand, pen and light: 1 is what one writer's lines differ by, 0
changes nothing.
"""


def changes(how: Augmentation) -> bool:
    """False of what leaves every image as it is."""
    return how not in (NONE, 0)


def augment(image: Image.Image, rng: np.random.Generator, how: Augmentation = 1.0) -> Image.Image:
    """The image, RGB or L, varied; its text and their order stay. Raises ConfigError for a name that is no preset."""
    if not changes(how):
        return image
    if isinstance(how, str):
        if how not in AMOUNTS:
            raise ConfigError(
                f"no augmentation {how!r}; there are {', '.join((NONE, *AMOUNTS))}, or a number from 0 to 2"
            )
        return as_drawn(image, rng, how)
    return vary(image, rng, how)


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Where the draws for one sample in one epoch come from."""
    return np.random.default_rng((seed, epoch, index))
