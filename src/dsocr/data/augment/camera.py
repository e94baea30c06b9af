"""Another camera or scanner: light, shadow, movement, noise, and how the file was stored."""

import io

import numpy as np
from PIL import Image, ImageFilter

from dsocr.data.augment.scale import around_zero, line_height, shaded
from dsocr.data.colours import median_colour

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
