"""What all operations share: how large a line is, smooth noise, draws around zero, and shading.

Shades are masks of mode L: 255 where something lies, 0 where nothing does. In bytes they cost a tenth of what they
would as floats.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

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
