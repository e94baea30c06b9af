"""How an error rate falls with the number of training samples: CER = a * n^-b + c, and what that leaves open.

Plain numbers in and out: knows nothing about samples, trainings or files.

A handful of points does not determine three numbers, so no single curve is believed. Every curve of a grid over b
and c (a >= 0, c >= 0) is weighed by how well it passes through the points, as logarithms, its height being in closed
form; then curves are drawn by their weights. Each draw first draws the scored clusters anew (a bootstrap over writers,
pages or lines, the same ones at every point), so that the spread of the draws holds what the scored split, the
trainings and the unknown curve leave open. Noise of the trainings has a weak prior of about 5 %, because two or three
residuals say little about it. Of all this, docs/experiments.md has the coverage in simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST = 3
"""Sizes below which nothing is fitted: two points lie on any number of such curves."""
LEVEL = 0.95
_EXPONENTS = np.geomspace(0.1, 2.0, 30)
_FLOORS = np.linspace(0.0, 1.0, 26)
"""c as a share of the rate at the largest size."""
_PRIOR_SHAPE, _PRIOR_NOISE = 0.75, 0.05
"""The prior of the noise's variance is an inverse gamma: worth one and a half residuals of 5 % each."""
_DRAWS = 4000


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """One curve: a * n^-b + c, as a fraction."""

    a: float
    b: float
    c: float

    def __call__(self, count: float) -> float:
        """The error rate with so many samples."""
        return float(self.a * count**-self.b + self.c)


@dataclass(frozen=True, slots=True)
class Expected:
    """The error rate expected with so many samples: the middle of what was drawn, and a 95 % interval.

    `fall` is the part of the errors of today's largest training that is gone then, with `least_fall` and `most_fall`:
    it is known better than the rate, because which lines are scored matters less to it.
    """

    count: int
    rate: float
    low: float
    high: float
    fall: float
    least_fall: float
    most_fall: float


@dataclass(frozen=True, slots=True)
class Needed:
    """How many samples a target takes: median and 95 % interval; infinite where a curve never reaches it.

    `reached` is the share of the drawn curves that reach it at all.
    """

    target: float
    count: float
    low: float
    high: float
    reached: float


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """The curves that agree with the points: `best` passes nearest; the arrays hold draws, one an entry."""

    counts: tuple[int, ...]
    rates: tuple[float, ...]
    best: PowerLaw
    _largest: float
    _height: Floats = field(repr=False)
    _floor: Floats = field(repr=False)
    _exponent: Floats = field(repr=False)
    _noise: Floats = field(repr=False)

    def expect(self, count: int) -> Expected:
        """What a training with so many samples would score, its own luck included."""
        shape = _shape(count / self._largest, self._exponent, self._floor)
        low, rate, high = _quantiles(self._height * shape * np.exp(self._noise))
        least, fall, most = _quantiles(1 - shape)
        return Expected(count, rate, low, high, fall, least, most)

    def needed(self, target: float) -> Needed:
        """How many samples bring the error rate down to a target."""
        share = (target / self._height - self._floor) / np.maximum(1 - self._floor, 1e-12)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            counts = np.where(share > 0, self._largest * np.power(np.maximum(share, 0), -1 / self._exponent), np.inf)
        low, count, high = (float(np.quantile(counts, share, method="nearest")) for share in _SHARES)
        return Needed(target, count, low, high, float(np.isfinite(counts).mean()))


_SHARES = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)


def fit_learning_curve(
    counts: Sequence[int], errors: Floats, lengths: Floats, *, seed: int = 17, draws: int = _DRAWS
) -> LearningCurve:
    """The learning curve through trainings with so many samples each.

    `errors` is (sizes, clusters): the edits of each training in each cluster of scored lines; `lengths` is (clusters):
    the reference characters there. A size whose readings have no error counts as half an error. Raises ValueError for
    fewer than three different sizes.
    """
    if len(set(counts)) < FEWEST:
        raise ValueError(f"a learning curve needs {FEWEST} sizes, not {len(set(counts))}")
    random = np.random.default_rng(seed)
    sizes, largest = np.asarray(counts, dtype=np.float64), float(max(counts))
    rates = _rates(errors, np.ones((1, lengths.size)), lengths)[0]
    exponents, floors = (grid.ravel() for grid in np.meshgrid(_EXPONENTS, _FLOORS, indexing="ij"))
    shapes = np.log(_shape(sizes[:, None] / largest, exponents, floors)).T

    logs = np.log(rates) + _scatter(errors, lengths, random, draws)
    heights, squares = _distances(logs, shapes)
    drawn = _choose(
        -(_PRIOR_SHAPE + (sizes.size - 1) / 2) * np.log(_PRIOR_SHAPE * _PRIOR_NOISE**2 + squares / 2), random
    )
    rows = np.arange(draws)
    shape = _PRIOR_SHAPE + (sizes.size - 1) / 2
    variance = (_PRIOR_SHAPE * _PRIOR_NOISE**2 + squares[rows, drawn] / 2) / random.gamma(shape, size=draws)
    height = heights[rows, drawn] + random.normal(size=draws) * np.sqrt(variance / sizes.size)
    noise = random.normal(size=draws) * np.sqrt(variance)

    height_of_best, square = _distances(np.log(rates)[None], shapes)
    nearest = int(np.argmin(square[0]))
    top, floor, exponent = math.exp(height_of_best[0, nearest]), float(floors[nearest]), float(exponents[nearest])
    return LearningCurve(
        counts=tuple(counts),
        rates=tuple(map(float, rates)),
        best=PowerLaw(top * (1 - floor) * largest**exponent, exponent, top * floor),
        _largest=largest,
        _height=np.exp(height),
        _floor=floors[drawn],
        _exponent=exponents[drawn],
        _noise=noise,
    )


def _shape(share: "Floats | float", exponent: Floats, floor: Floats) -> Floats:
    """The curve at a share of the largest size, as a multiple of its value there."""
    return np.asarray((1 - floor) * np.power(share, -exponent) + floor, dtype=np.float64)


def _rates(errors: Floats, weights: Floats, lengths: Floats) -> Floats:
    """Pooled rates, (draws, sizes), of clusters taken `weights` (draws, clusters) times."""
    taken = np.maximum(weights @ lengths, 1)[:, None]
    return np.asarray(np.maximum(weights @ errors.T, 0.5) / taken, dtype=np.float64)


def _scatter(errors: Floats, lengths: Floats, random: np.random.Generator, draws: int) -> Floats:
    """How far the logarithms of the rates move, (draws, sizes), where the scored clusters are drawn anew.

    Few clusters scatter less when they are drawn from themselves than new ones would, and the scatter itself is
    uncertain; both are put right as Student's t does for a mean.
    """
    clusters = lengths.size
    if clusters < 2:
        return np.zeros((draws, len(errors)))
    weights = random.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    moved = np.log(_rates(errors, weights, lengths)) - np.log(_rates(errors, np.ones((1, clusters)), lengths))
    wider = np.sqrt(clusters / random.chisquare(clusters - 1, size=draws))
    return np.asarray(moved * wider[:, None], dtype=np.float64)


def _distances(logs: Floats, shapes: Floats) -> tuple[Floats, Floats]:
    """For each row of points and each shape: the log height that fits best, and the squares that are left."""
    heights = logs.mean(axis=1)[:, None] - shapes.mean(axis=1)[None]
    logs, shapes = logs - logs.mean(axis=1, keepdims=True), shapes - shapes.mean(axis=1, keepdims=True)
    squares = (logs**2).sum(axis=1)[:, None] + (shapes**2).sum(axis=1)[None] - 2 * logs @ shapes.T
    return heights, np.maximum(squares, 0)


def _choose(log_weights: Floats, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """A column for each row, drawn by the weights (the largest of Gumbel's numbers)."""
    return np.asarray(np.argmax(log_weights + random.gumbel(size=log_weights.shape), axis=1), dtype=np.intp)


def _quantiles(values: Floats) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, _SHARES)
    return float(low), float(middle), float(high)
