"""Another run of the hand and another place on the scanner: size, slant, a turn, and a little elasticity.

The canvas grows to hold all of the picture: no letter leaves it.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsocr.data.augment.mesh import Values, bend, nodes
from dsocr.data.augment.scale import around_zero, line_height, smooth_noise
from dsocr.data.colours import median_colour

_STRETCH, _SLANT = 0.18, 0.42
"""The most at amount 1: a share of the size, and a slope."""

_ELASTIC = (0.1, 0.05)
"""How far a point is moved along the line and across it, at most at amount 1; shares of a line's height."""

_TURN = math.radians(2)
"""The most a picture is turned, at any amount."""

_STEEPEST = 0.3
"""A turned line rises by no more than this share of its height: beyond, it would be shown too small to read."""

_CELL = 3
"""Elasticity changes over this many cells of the mesh."""


def bent(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """The image scaled, slanted, turned and locally stretched; all of it is still there, on a canvas that fits."""
    unit = line_height(image)
    back = _draw_back(image, unit, rng, amount)
    left, top, right, bottom = _bounds(image, back)
    # Every point may be shown this far from where the rest of the transform puts it.
    reach = np.array(_ELASTIC) * amount * unit
    room = np.ceil(np.abs(np.linalg.inv(back)) @ reach) + 1
    across = nodes(math.ceil(right - left + 2 * room[0]), 0.4 * unit)
    down = nodes(math.ceil(bottom - top + 2 * room[1]), 0.4 * unit)
    columns, rows = np.meshgrid(across + left - room[0], down + top - room[1])
    x = back[0, 0] * columns + back[0, 1] * rows + reach[0] * _elastic(rng, columns.shape)
    y = back[1, 0] * columns + back[1, 1] * rows + reach[1] * _elastic(rng, columns.shape)
    return bend(image, across, down, x, y, median_colour(image, step=2))


def _draw_back(image: Image.Image, unit: int, rng: np.random.Generator, amount: float) -> Values:
    """The matrix (2, 2) that says which point of the source a point of the result shows."""
    wide, tall = (1 + amount * _STRETCH * around_zero(rng) for _ in range(2))
    slant = amount * _SLANT * around_zero(rng)
    turn = min(amount, 1) * min(_TURN, _STEEPEST * unit / image.width) * around_zero(rng)
    turned = np.array([[1, -turn], [turn, 1]])
    return np.linalg.inv(turned @ np.array([[wide, slant * tall], [0, tall]]))


def _bounds(image: Image.Image, back: Values) -> tuple[float, float, float, float]:
    """Where the corners of the image are shown: left, top, right, bottom."""
    width, height = image.size
    corners = np.linalg.inv(back) @ np.array([[0, width, 0, width], [0, 0, height, height]])
    return corners[0].min(), corners[1].min(), corners[0].max(), corners[1].max()


def _elastic(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Smooth noise in -1..1 at the nodes."""
    return np.clip(smooth_noise(rng, shape[0], shape[1], _CELL), -1, 1).astype(np.float64)
