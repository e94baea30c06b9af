"""Things that lie on a sheet while it is scanned or were pressed upon it; letters are seen through all of them."""

import numpy as np
from PIL import Image, ImageDraw

from dsocr.data.augment.scale import line_height, shaded

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
