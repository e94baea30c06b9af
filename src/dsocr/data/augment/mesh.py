"""Pictures bent by a mesh: which piece of the source each rectangle of the result shows."""

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.data.colours import Colour

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
