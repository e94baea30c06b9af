"""Another run of the hand and another place on the scanner: size, slant, a turn, and a little elasticity.

The canvas grows where that is needed to hold all letters.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops

from dsocr.data.augment.mesh import Values, bend, nodes
from dsocr.data.augment.scale import around_zero, line_height, smooth_noise
from dsocr.data.colours import Colour, median_colour

_STRETCH, _SLANT = 0.18, 0.42
"""The most at amount 1: a share of the size, and a slope."""

_ELASTIC = (0.1, 0.035)
"""How far a point is moved along the line and across it, at most at amount 1; shares of a line's height."""

_TURN = math.radians(2)
"""The most a picture is turned, at any amount."""

_STEEPEST = 0.25
"""A turned line rises by no more than this share of its height: beyond, it would be shown too small to read."""

_INK = 20
"""What differs from the paper by so many levels of 255 is ink, and never leaves the canvas."""

_CELL = 3
"""Elasticity changes over this many cells of the mesh."""


def bent(image: Image.Image, rng: np.random.Generator, amount: float) -> Image.Image:
    """The image scaled, slanted, turned and locally stretched; all of its ink is still there.

    The canvas is as large as the scaled image where that holds the ink, so that letters are shown about as large as
    those of an image that is not bent; else it grows.
    """
    unit, paper = line_height(image), median_colour(image, step=2)
    back = _draw_back(image, unit, rng, amount)
    # Every point may be shown this far from where the rest of the transform puts it.
    reach = np.array(_ELASTIC) * amount * unit
    start, end = _canvas(image.size, _ink_box(image, paper), np.asarray(np.linalg.inv(back)), reach)
    size = np.ceil(end - start).astype(int)
    across, down = nodes(size[0], 0.4 * unit), nodes(size[1], 0.4 * unit)
    columns, rows = np.meshgrid(across + start[0], down + start[1])
    x = back[0, 0] * columns + back[0, 1] * rows + reach[0] * _elastic(rng, columns.shape)
    y = back[1, 0] * columns + back[1, 1] * rows + reach[1] * _elastic(rng, columns.shape)
    return bend(image, across, down, x, y, paper)


def _draw_back(image: Image.Image, unit: int, rng: np.random.Generator, amount: float) -> Values:
    """The matrix (2, 2) that says which point of the source a point of the result shows."""
    wide, tall = (1 + amount * _STRETCH * around_zero(rng) for _ in range(2))
    slant = amount * _SLANT * around_zero(rng)
    turn = min(amount, 1) * min(_TURN, _STEEPEST * unit / image.width) * around_zero(rng)
    turned = np.array([[1, -turn], [turn, 1]])
    back: Values = np.linalg.inv(turned @ np.array([[wide, slant * tall], [0, tall]]))
    return back


def _ink_box(image: Image.Image, paper: Colour) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of all that is not paper; of an empty image all."""
    difference = ImageChops.difference(image, Image.new(image.mode, image.size, paper)).convert("L")
    box = difference.point([0] * _INK + [255] * (256 - _INK)).getbbox()
    return box or (0, 0, *image.size)


def _canvas(
    size: tuple[int, int], ink: tuple[int, int, int, int], forward: Values, reach: Values
) -> tuple[Values, Values]:
    """The corners, left top and right bottom, of the part of the plane that is shown."""
    middle = forward @ np.array(size) / 2
    half = np.array([forward[0, 0] * size[0], forward[1, 1] * size[1]]) / 2
    left, top, right, bottom = ink
    corners = forward @ np.array([[left, right, left, right], [top, top, bottom, bottom]])
    room = np.abs(forward) @ reach + 1
    return np.minimum(middle - half, corners.min(axis=1) - room), np.maximum(middle + half, corners.max(axis=1) + room)


def _elastic(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Smooth noise in -1..1 at the nodes."""
    return np.clip(smooth_noise(rng, shape[0], shape[1], _CELL), -1, 1).astype(np.float64)
