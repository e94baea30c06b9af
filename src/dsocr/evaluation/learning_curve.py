"""What trainings on ever more samples say about still more: points, the curve through them, and plain sentences.

Knows nothing about how the trainings were made.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.statistics import Clusters, ClusterUnit, clusters_of

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


FARTHEST = 10
"""Times the largest training beyond which nothing is told: no curve through these points knows that far."""


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """One line of the scored split: whose it is, its edits, and the characters of its reference."""

    id: str
    errors: int
    length: int
    writer: str | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One training: on how many samples, in how many optimizer steps, and what it scored."""

    samples: int
    steps: int
    scored: Sequence[ScoredLine]

    @property
    def cer(self) -> float:
        """Pooled over the scored lines."""
        return sum((ErrorRate(line.errors, line.length) for line in self.scored), ErrorRate()).rate


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The largest training, as the smaller ones alone would have foretold it for the same scored lines."""

    samples: int
    measured: float
    expected: Expected

    @property
    def error(self) -> float:
        """Foretold less measured, as a fraction of characters."""
        return self.expected.rate - self.measured

    @property
    def inside(self) -> bool:
        """True where the measured rate lies in the foretold interval."""
        return self.expected.low <= self.measured <= self.expected.high


@dataclass(frozen=True, slots=True)
class Forecast:
    """The points and what follows from them; without a `curve`, `cannot` says why in a sentence.

    `unit` is what was drawn anew for the interval (writer, page or line), `clusters` how many of them there are.
    """

    split: str
    unit: ClusterUnit
    clusters: int
    points: Sequence[Point]
    curve: LearningCurve | None
    more: Sequence[Expected]
    targets: Sequence[Needed]
    held_out: HeldOut | None
    cannot: str | None

    @classmethod
    def of(cls, split: str, points: Sequence[Point], *, more: Sequence[int], targets: Sequence[float]) -> Self:
        """The forecast for so many `more` samples than the largest training had, and for error rates to reach.

        Raises DataError where the points were not scored on the same lines.
        """
        points = sorted(points, key=lambda point: point.samples)
        _demand_the_same_lines(points)
        clusters = clusters_of(points[-1].scored)
        curve = _fit(points, clusters)
        largest = points[-1].samples
        held_out = None
        # It was scored on the very same lines, so other lines are no excuse: all of them are one cluster.
        together = Clusters(clusters.unit, np.zeros(len(points[-1].scored), dtype=np.intp))
        if (smaller := _fit(points[:-1], together)) is not None:
            held_out = HeldOut(largest, points[-1].cer, smaller.expect(largest))
        return cls(
            split=split,
            unit=clusters.unit,
            clusters=clusters.count,
            points=tuple(points),
            curve=curve,
            more=[curve.expect(largest + number) for number in more] if curve else [],
            targets=[curve.needed(target) for target in targets] if curve else [],
            held_out=held_out,
            cannot=None if curve else f"cannot tell: {len(points)} sizes are no curve, {FEWEST} are the fewest",
        )

    @property
    def largest(self) -> Point:
        """The training on the most samples."""
        return self.points[-1]

    def sentences(self) -> list[str]:
        """What was asked, answered in words; then how far to trust it."""
        if self.cannot is not None:
            return [self.cannot]
        told = [self._more(expected) for expected in self.more] + [self._target(needed) for needed in self.targets]
        if (held := self.held_out) is not None:
            told.append(
                f"held out: {held.samples} lines score {held.measured:.1%}; from the smaller trainings "
                f"{_spoken(held.expected)} was expected, {'inside' if held.inside else 'OUTSIDE'} its interval"
            )
        return told

    def _more(self, expected: Expected) -> str:
        ahead = expected.count - self.largest.samples
        if expected.count > FARTHEST * self.largest.samples:
            return f"{ahead:,} more lines: cannot tell, that is over {FARTHEST} times what was trained on"
        fall = f"{100 * max(expected.least_fall, 0):.0f} to {_share(max(expected.most_fall, 0))} fewer errors"
        return f"about {ahead:,} more lines -> CER {_spoken(expected)}; {self.largest.cer:.1%} now, {fall}"

    def _target(self, needed: Needed) -> str:
        largest = self.largest.samples
        goal = f"a CER of {needed.target:.1%}"
        if self.largest.cer <= needed.target:
            return f"{goal} is reached: {self.largest.cer:.1%} with {largest:,} lines"
        if needed.count > FARTHEST * largest:
            return (
                f"{goal}: cannot tell; {_share(1 - needed.reached)} of the curves that fit never reach it, "
                f"and the others take {_lines(needed.low)} lines or more"
            )
        ahead = max(needed.count - largest, 1)
        most = f"at most {_lines(needed.high)}" if needed.high <= FARTHEST * largest else "perhaps never"
        span = f"{_lines(needed.count)} in all; at least {_lines(needed.low)}, {most}"
        return f"{goal} -> about {_lines(ahead)} more lines ({span})"

    def to_dict(self) -> dict[str, Any]:
        """The forecast for programs: rates are fractions, and a count that is never reached is null."""
        return {
            "split": self.split,
            "points": [
                {"samples": point.samples, "steps": point.steps, "cer": point.cer, "scored_lines": len(point.scored)}
                for point in self.points
            ],
            "interval": {"level": LEVEL, "unit": self.unit, "clusters": self.clusters},
            "power_law": asdict(self.curve.best) if self.curve else None,
            "more": [
                {
                    "more": expected.count - self.largest.samples,
                    **asdict(expected),
                    "told": self._is_near(expected.count),
                }
                for expected in self.more
            ],
            "targets": [
                {
                    **{name: _finite(value) for name, value in asdict(needed).items()},
                    "told": self._is_near(needed.count),
                }
                for needed in self.targets
            ],
            "held_out": self.held_out
            and {**asdict(self.held_out), "error": self.held_out.error, "inside": self.held_out.inside},
            "cannot": self.cannot,
            "sentences": self.sentences(),
        }

    def _is_near(self, count: float) -> bool:
        return count <= FARTHEST * self.largest.samples


def _demand_the_same_lines(points: Sequence[Point]) -> None:
    for point in points:
        if [line.id for line in point.scored] != [line.id for line in points[0].scored]:
            raise DataError(
                f"the trainings on {points[0].samples} and {point.samples} samples were not scored on the same lines",
                hint="give --overwrite, so that all are scored again",
            )
    if not points or not points[0].scored:
        raise DataError("there is no scored line to make a forecast from")


def _fit(points: Sequence[Point], clusters: Clusters) -> LearningCurve | None:
    """The curve through the points; None where there are too few."""
    if len({point.samples for point in points}) < FEWEST:
        return None
    lengths = clusters.sums(np.array([line.length for line in points[0].scored], dtype=np.float64))
    errors = [clusters.sums(np.array([line.errors for line in point.scored], dtype=np.float64)) for point in points]
    return fit_learning_curve([point.samples for point in points], np.stack(errors), lengths)


def _spoken(expected: Expected) -> str:
    """For example `9.0 % +- 2.0 (7.2 to 11.3 %)`."""
    half = (expected.high - expected.low) / 2
    return f"{expected.rate:.1%} +- {100 * half:.1f} ({100 * expected.low:.1f} to {expected.high:.1%})"


def _lines(count: float) -> str:
    """Two digits are all that such a number knows."""
    if not math.isfinite(count):
        return "endless"
    step = 10 ** max(0, math.floor(math.log10(max(count, 1))) - 1)
    return f"{round(count / step) * step:,}"


def _share(share: float) -> str:
    return f"{share:.0%}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
