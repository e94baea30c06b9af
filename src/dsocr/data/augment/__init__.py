"""Line images as they might have been written and scanned another time: for training, never for reading.

What is drawn depends on the generator alone, so that (seed, epoch, sample) gives the same picture on every machine and
in whatever process it is drawn.
"""

import numpy as np
from PIL import Image

from dsocr.data.augment.hand import vary
from dsocr.data.augment.presets import AMOUNTS, as_drawn
from dsocr.errors import ConfigError

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
