"""Another sheet: its tint and grain, printed rules, and what is written on its back."""

import numpy as np
from PIL import Image, ImageChops, ImageFilter

from dsocr.data.augment.scale import around_zero, cloudy, line_height, shaded
from dsocr.data.colours import median_colour

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
