"""Another pen: thicker or thinner, running dry, softer."""

import math

import numpy as np
from PIL import Image, ImageFilter

from dsocr.data.augment.scale import cloudy, line_height
from dsocr.data.colours import median_colour

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
