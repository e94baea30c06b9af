"""What `light`, `medium` and `strong` mean: how much of each operation, and how often.

Held back on purpose are operations that change what is written or teach guessing: mirroring, cuts through letters,
turns beyond 2 degrees, patches that hide words.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from dsocr.data.augment.camera import compressed, lit, moved, noisy, shadowed
from dsocr.data.augment.geometry import bent
from dsocr.data.augment.paper import bled_through, ruled, tinted
from dsocr.data.augment.pen import another_stroke, faded, softened
from dsocr.data.augment.things import beside_a_ruler, stamped

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
