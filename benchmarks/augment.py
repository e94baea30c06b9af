"""How long varying one line takes, by preset and by operation, on one core.

    python benchmarks/augment.py

Processor time, the least of five rounds of 40 draws each, on a line of 1600 x 100 pixels with strokes and paper grain.
"""

import os
import platform
import time
from collections.abc import Callable

import numpy as np
from PIL import Image

from dsocr.data.augment import AMOUNTS, OPERATIONS, Augmentation, augment, generator
from measuring import processor, versions

DRAWS, ROUNDS = 40, 5


def line(mode: str) -> Image.Image:
    """A line of 1600 x 100 pixels: dark strokes on grainy paper."""
    rng = np.random.default_rng(0)
    pixels = np.full((100, 1600, 3), (240, 235, 220)) + rng.normal(0, 5, (100, 1600, 1))
    pixels[33:66, 10::12] = (40, 40, 70)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).convert(mode)


def milliseconds(draw: Callable[[np.random.Generator], object]) -> float:
    """What one draw costs."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for index in range(DRAWS):
            draw(generator(17, 0, index))
        rounds.append((time.process_time() - start) / DRAWS)
    return 1000 * min(rounds)


def main() -> None:
    """Prints a line for each preset and each operation."""
    images = [line("RGB"), line("L")]
    wanted: list[Augmentation] = [1.0, *AMOUNTS]
    print(f"{'1600 x 100 pixels':<20}{'RGB ms':>8}{'grey ms':>9}")
    for how in wanted:
        costs = [milliseconds(lambda rng, image=image, how=how: augment(image, rng, how)) for image in images]  # type: ignore[misc]
        print(f"{how!s:<20}{costs[0]:>8.1f}{costs[1]:>9.1f}")
    for operation in OPERATIONS:
        costs = [milliseconds(lambda rng, image=image, apply=operation: apply(image, rng, 1.0)) for image in images]  # type: ignore[misc]
        print(f"  {operation.__name__:<18}{costs[0]:>8.1f}{costs[1]:>9.1f}")
    found = versions()
    print(f"machine  {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, {found}")


if __name__ == "__main__":
    main()
