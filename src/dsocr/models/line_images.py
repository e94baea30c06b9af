"""How a line recogniser sees a line: its height, its width in steps, and its pixels. Needs no torch."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HEIGHT = 48
"""Height of a line image in pixels."""

PIXELS_PER_STEP = 8
"""Width in pixels of one step of the output."""

WIDTH_MULTIPLE = 32
"""Images are padded to a multiple of this width: more lines are then equally wide and can be read together."""


def prepare_line(image: Image.Image, stretch: float = 1.0) -> NDArray[Any]:
    """Scale a line image to height 48, and its width by `stretch` in addition; return uint8 BGR `(48, W, 3)`."""
    width = max(PIXELS_PER_STEP, round(image.width * HEIGHT / image.height * stretch))
    resized = image.convert("RGB").resize((width, HEIGHT), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(resized)[:, :, ::-1])


def count_steps(text: Sequence[str] | Sequence[int]) -> int:
    """Return the fewest steps for a text, or its classes: CTC needs a blank between repeated characters."""
    return len(text) + sum(first == second for first, second in pairwise(text))
