"""What a writer makes of each letter: a shape, a lean, a width and loops that are the writer's own.

A letter is bent by a few slow waves, which a writer draws once for it and repeats with small changes, so that two
writers differ in every letter and one writer stays the same. Tracks are bent point by point, pictures of text pixel by
pixel, where the bending fades out towards the neighbours, so that joins stay whole. Lengths are in x-heights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from hands.pens import Floats, Written

_WAVES = 4


@dataclass(frozen=True)
class Shape:
    """How a letter differs from its model: waves `(2, waves, 4)` of two frequencies, a phase and a size; and factors.

    `shear` leans it, `above` and `below` stretch what is higher than the x-height and lower than the baseline, `loops`
    widens these parts.
    """

    waves: Floats
    shear: float
    width: float
    height: float
    above: float
    below: float
    loops: float

    def shift(self, axis: int, x: Floats, y: Floats) -> Floats:
        """How far points are moved to the right (axis 0) or up (axis 1)."""
        total = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))
        for along, up, phase, size in self.waves[axis]:
            total = total + size * np.sin(along * x + up * y + phase)
        return total

    def bend(self, points: Floats, middle: float) -> Floats:
        """Bend points `(n, 2)` of a letter whose middle is at `middle`."""
        x, y = points[:, 0], points[:, 1]
        wide = np.where((y > 1.05) | (y < -0.05), self.loops, 1.0)
        right = middle + (x - middle) * wide + self.shear * (y - 0.5) + self.shift(0, x, y)
        tall = np.where(y > 1, 1 + (y - 1) * self.above, np.where(y < 0, y * self.below, y))
        bent: Floats = np.stack([right * self.width, tall * self.height + self.shift(1, x, y)], axis=1)
        return bent


@dataclass
class Letters:
    """The letters of a writer, each drawn when it is first written. `bend` says how far they are from their models."""

    rng: np.random.Generator
    bend: float
    unsteady: float
    known: dict[object, Shape] = field(default_factory=dict)

    def shape(self, letter: object) -> Shape:
        """The shape of a letter, as it is written this time."""
        if letter not in self.known:
            self.known[letter] = self._draw(self.bend)
        usual = self.known[letter]
        rng, small = self.rng, self.unsteady
        waves = usual.waves.copy()
        waves[:, :, 2] += rng.normal(0, 2.5 * small, waves.shape[:2])
        waves[:, :, 3] *= np.exp(rng.normal(0, 2 * small, waves.shape[:2]))
        width, shear = usual.width * math.exp(rng.normal(0, small)), usual.shear + rng.normal(0, 0.5 * small)
        return replace(usual, waves=waves, width=width, shear=shear)

    def _draw(self, bend: float) -> Shape:
        rng = self.rng
        waves = np.empty((2, _WAVES, 4))
        # Waves of 1.2 to 5 x-heights: shorter ones are noise of the pen, not the shape of a letter.
        waves[:, :, :2] = rng.normal(0, 1, (2, _WAVES, 2)) * 2.2
        waves[:, :, 2] = rng.uniform(0, 2 * math.pi, (2, _WAVES))
        waves[:, :, 3] = rng.normal(0, bend / math.sqrt(_WAVES), (2, _WAVES))
        spread = np.exp(rng.normal(0, 1, 5) * bend * np.array([1.4, 0.8, 1.8, 1.8, 2.5]))
        width, height, above, below, loops = (float(factor) for factor in spread)
        return Shape(waves, float(rng.normal(0, 1.2 * bend)), width, height, above, below, loops)


def random_letters(rng: np.random.Generator) -> Letters:
    """Draw a writer's letters: from nearly those of the model to far from them."""
    return Letters(rng, float(rng.triangular(0.02, 0.1, 0.2)), float(rng.uniform(0.02, 0.12)))


@dataclass(frozen=True)
class Cell:
    """A letter of a picture of text, and where it begins and ends, in pixels."""

    letter: str
    start: float
    end: float


def bend_picture(written: Written, cells: Sequence[Cell], lean: float, letters: Letters) -> Written:
    """Bend every letter of a picture of text, which leans by `lean`; the result stands upright."""
    ink, size = written.ink, written.x_height
    rows = np.arange(ink.shape[0], dtype=np.float64)
    up = (written.baseline - rows) / size
    shapes = [letters.shape(cell.letter) for cell in cells]
    margin = round(max(0.0, lean) * 1.5 * size) + 4
    columns: list[NDArray[np.float64]] = []
    heights: list[NDArray[np.float64]] = []

    def add(start: float, end: float, count: int, shape: Shape | None) -> None:
        along = (np.arange(count) + 0.5) / count
        x = np.broadcast_to((start + along * (end - start))[None, :], (len(rows), count))
        y = np.broadcast_to(up[:, None], x.shape)
        if shape is not None:
            # What the letter is bent by fades to nothing at both of its sides.
            fade = np.sin(math.pi * along)[None, :] ** 0.7
            local = along[None, :] * (end - start) / size
            height = 1 + fade * (shape.height - 1)
            above, below = 1 + fade * (shape.above - 1), 1 + fade * (shape.below - 1)
            y = y - fade * shape.shift(1, local, y)
            y = y / height
            y = np.where(y > 1, 1 + (y - 1) / above, np.where(y < 0, y / below, y))
            x = x - size * fade * (shape.shear * (y - 0.5) + shape.shift(0, local, y))
        columns.append(x + lean * size * y)
        heights.append(written.baseline - y * size)

    if not cells:
        return written
    add(cells[0].start - margin, cells[0].start, margin, None)
    for cell, shape in zip(cells, shapes, strict=True):
        add(cell.start, cell.end, max(1, round((cell.end - cell.start) * shape.width)), shape)
    add(cells[-1].end, cells[-1].end + margin, margin, None)
    places = [np.concatenate(heights, axis=1), np.concatenate(columns, axis=1)]
    moved = ndimage.map_coordinates(ink, places, order=1, mode="constant")
    return Written(moved.astype(np.float32), written.baseline, size)
