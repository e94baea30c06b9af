"""Learning curves: fit a power law through trainings on increasing numbers of samples, and forecast further ones.

The error rate with n samples is a * (n + n0)^-b + c, where n0 is what the base already knew (Hernandez et al. 2021,
Scaling Laws for Transfer); a training from nothing has n0 = 0. All curves on a grid of exponents, floors and n0 are
weighted by how well they fit, and drawn with the uncertainty of the scored lines and of training; see
`fit_learning_curve`.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.errors import DataError, option
from dsocr.evaluation.metrics import ErrorRate, describe_ratios, finite_or_none, pool
from dsocr.evaluation.statistics import INTERVAL_QUANTILES, LEVEL, Clusters, ClusterUnit, Floats, clusters_of
from dsocr.text import percentage

MIN_SIZES = 3
"""Training sizes needed to fit a curve: any number of such curves go through two points."""

MAX_EXTRAPOLATION = 10
"""Multiple of the largest training size beyond which no forecast is given."""

WORTHWHILE = 0.1
"""More lines are worth their work if they save at least this share of the errors."""

_EXPONENTS = np.geomspace(0.1, 2.0, 15)
_FLOORS = np.linspace(0.0, 1.0, 11) ** 2
"""c as a share of the rate at the largest size."""
_HEAD_STARTS = np.array([0.0, 20, 60, 150, 400, 1000])
"""n0, in samples."""

_BASE_RANGE = math.log(10)
"""Where the base is not on the curve, its log rate may be anywhere in a range of this width."""

_NOISE_SHAPE, _NOISE_SCALE = 0.75, 0.05
"""The prior of the noise variance is an inverse gamma, worth one and a half residuals of 5 % each."""

_LARGEST_LOG = 50.0
"""Limit of log rates that are drawn: of two clusters some are so far out that their exponential would overflow."""

_DRAWS = 2000
_DRAWS_PER_BATCH = 250


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """The error rate expected with `count` samples: median and 95 % interval.

    `worthwhile` is the share of plausible curves that lose at least `WORTHWHILE` of the largest training's errors.
    """

    count: int
    rate: float
    low: float
    high: float
    worthwhile: float


@dataclass(frozen=True, slots=True)
class NeededSamples:
    """The number of samples needed for a target rate: median and 95 % interval, infinity if it is never reached.

    `reached` is the share of the drawn curves that reach the target at all.
    """

    target: float
    count: float
    low: float
    high: float
    reached: float


@dataclass(frozen=True, slots=True)
class LearningCurve:
    """Curves that fit trainings on up to `largest` samples: arrays of draws, one per entry."""

    largest: float
    heights: Floats = field(repr=False)
    floors: Floats = field(repr=False)
    exponents: Floats = field(repr=False)
    head_starts: Floats = field(repr=False)
    noise: Floats = field(repr=False)

    def expect(self, count: int) -> ExpectedRate:
        """Return the rate that a training with `count` samples would score, including its randomness."""
        shape = self._relative(count)
        low, rate, high = np.quantile(self.heights * shape * np.exp(self.noise), INTERVAL_QUANTILES).tolist()
        return ExpectedRate(count, rate, low, high, float(np.mean(1 - shape >= WORTHWHILE)))

    def expect_measured_fall(self, count: int) -> tuple[float, float, float]:
        """Return median and interval of the fall between two trainings, both with their randomness."""
        falls = 1 - self._relative(count) * np.exp(math.sqrt(2) * self.noise)
        low, median, high = np.quantile(falls, INTERVAL_QUANTILES).tolist()
        return median, low, high

    def _relative(self, count: float) -> Floats:
        share = (count + self.head_starts) / (self.largest + self.head_starts)
        return _shape(share, self.exponents, self.floors)

    def needed(self, target: float) -> NeededSamples:
        """Return how many samples bring the error rate down to a target."""
        share = (target / self.heights - self.floors) / np.maximum(1 - self.floors, 1e-12)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            further = (self.largest + self.head_starts) * np.power(np.maximum(share, 0), -1 / self.exponents)
            counts = np.where(share > 0, np.maximum(further - self.head_starts, 1.0), np.inf)
        low, count, high = np.quantile(counts, INTERVAL_QUANTILES, method="nearest").tolist()
        return NeededSamples(target, count, low, high, float(np.isfinite(counts).mean()))


def fit_learning_curve(
    counts: Sequence[int], errors: Floats, lengths: Floats, *, seed: int = 17, draws: int = _DRAWS
) -> LearningCurve:
    """Fit a learning curve through trainings with `counts` samples, 0 for the base before any training.

    `errors` (sizes, clusters) has the edits of each training in each cluster of scored lines, `lengths` (clusters) the
    reference characters. Each draw resamples the clusters, then draws a curve, its height and the noise of training
    from their posterior. A size without errors counts as half an error. A base may read worse or better than its
    trainings continue, so half of the prior is for curves on which it does not lie. Raises ValueError for fewer than
    three sizes of trainings.
    """
    if len(set(counts) - {0}) < MIN_SIZES:
        raise ValueError(f"a learning curve needs {MIN_SIZES} different sizes, not {len(set(counts) - {0})}")
    random = np.random.default_rng(seed)
    sizes, largest = np.asarray(counts, dtype=np.float64), float(max(counts))
    exponents, floors, head_starts = (
        grid.ravel() for grid in np.meshgrid(_EXPONENTS, _FLOORS, _HEAD_STARTS, indexing="ij")
    )
    trained = sizes > 0
    models = [_CurveModel(sizes, trained, exponents, floors, head_starts)]
    if not trained.all():
        started = head_starts > 0
        models.append(_CurveModel(sizes, sizes >= 0, exponents[started], floors[started], head_starts[started]))

    log_rates = np.log(_pooled_rates(errors, np.ones((1, lengths.size)), lengths))
    drawn = _resample(log_rates, errors, lengths, random, draws)
    curves = [
        _draw_curves(models, drawn[start : start + _DRAWS_PER_BATCH], random)
        for start in range(0, draws, _DRAWS_PER_BATCH)
    ]
    exponent, floor, head_start, height, noise = np.concatenate(curves, axis=1)

    return LearningCurve(largest, np.exp(height), floor, exponent, head_start, noise)


class _CurveModel:
    """Curves on a grid, to be fitted to the points that are `used`."""

    def __init__(
        self, sizes: Floats, used: NDArray[np.bool_], exponents: Floats, floors: Floats, head_starts: Floats
    ) -> None:
        self.used, self.grid = used, np.stack([exponents, floors, head_starts])
        shares = (sizes[used][:, None] + head_starts) / (sizes.max() + head_starts)
        shapes = np.log(_shape(shares, exponents, floors)).T
        # With a base, curves from a head start are fitted twice, with and without it.
        self._prior = np.where((head_starts > 0) & bool((sizes == 0).any()), 0.5, 1.0)
        self._mean, self._centered = shapes.mean(axis=1), shapes - shapes.mean(axis=1, keepdims=True)

    def residuals(self, log_rates: Floats) -> tuple[Floats, Floats]:
        """Return, for each row of points and each curve, the best log height and the sum of squared residuals."""
        points = log_rates[:, self.used]
        heights = points.mean(axis=1)[:, None] - self._mean
        points = points - points.mean(axis=1, keepdims=True)
        squares = (points**2).sum(axis=1)[:, None] + (self._centered**2).sum(axis=1) - 2 * points @ self._centered.T
        return heights, np.maximum(squares, 0)

    def evidence(self, squares: Floats) -> Floats:
        """Return the probability of each curve, up to a factor: its height and the noise's variance integrated out."""
        points, shape = int(self.used.sum()), self.noise_shape
        constant = math.gamma(shape) / math.sqrt(points * (2 * math.pi) ** (points - 1))
        constant /= _BASE_RANGE ** (self.used.size - points)
        return np.asarray(constant * self._prior * np.power(_NOISE_SHAPE * _NOISE_SCALE**2 + squares / 2, -shape))

    @property
    def noise_shape(self) -> float:
        """The shape of the posterior inverse gamma distribution of the variance of the noise."""
        return _NOISE_SHAPE + (int(self.used.sum()) - 1) / 2


def _draw_curves(models: Sequence[_CurveModel], log_rates: Floats, random: np.random.Generator) -> Floats:
    """Draw a curve for each row of log rates: its exponent, floor, head start, log height and noise, as five rows."""
    fits = [model.residuals(log_rates) for model in models]
    evidence = [model.evidence(squares) for model, (_, squares) in zip(models, fits, strict=True)]
    cumulative = np.cumsum(np.concatenate(evidence, axis=1), axis=1)
    rows = np.arange(len(log_rates))
    chosen = (cumulative < cumulative[:, -1:] * random.random((len(rows), 1))).sum(axis=1)
    grid = np.concatenate([model.grid for model in models], axis=1)[:, chosen]
    heights, squares = (np.concatenate([fit[part] for fit in fits], axis=1)[rows, chosen] for part in (0, 1))
    of_model = np.searchsorted(np.cumsum([model.grid.shape[1] for model in models]), chosen, side="right")
    shapes = np.array([model.noise_shape for model in models])[of_model]
    variance = (_NOISE_SHAPE * _NOISE_SCALE**2 + squares / 2) / random.gamma(shapes)
    points = np.array([model.used.sum() for model in models])[of_model]
    height = heights + random.normal(size=len(rows)) * np.sqrt(variance / points)
    noise = random.normal(size=len(rows)) * np.sqrt(variance)
    return np.stack([*grid, *np.clip([height, noise], -_LARGEST_LOG, _LARGEST_LOG)])


def _shape(share: "Floats | float", exponent: Floats, floor: Floats) -> Floats:
    """Return the curve at a share of the largest size, relative to its value there."""
    return np.asarray((1 - floor) * np.power(share, -exponent) + floor, dtype=np.float64)


def _pooled_rates(errors: Floats, weights: Floats, lengths: Floats) -> Floats:
    """Return pooled rates (draws, sizes) of clusters with `weights` (draws, clusters)."""
    characters = np.maximum(weights @ lengths, 1)[:, None]
    return np.asarray(np.maximum(weights @ errors.T, 0.5) / characters, dtype=np.float64)


def _resample(log_rates: Floats, errors: Floats, lengths: Floats, random: np.random.Generator, draws: int) -> Floats:
    """Return the log rates, (draws, sizes), with the scored clusters resampled.

    Resampling a few clusters underestimates their spread, and the spread itself is uncertain; both are corrected as in
    Student's t.
    """
    clusters = lengths.size
    if clusters < 2:
        return np.repeat(log_rates, draws, axis=0)
    weights = random.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(np.float64)
    shifts = np.log(_pooled_rates(errors, weights, lengths)) - log_rates
    correction = np.sqrt(clusters / random.chisquare(clusters - 1, size=draws))
    return np.asarray(log_rates + shifts * correction[:, None], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A line of the scored split: its edits, the characters of its reference, its writer and page."""

    id: str
    errors: int
    length: int
    writer: str | None = None
    page: str | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A training: its number of samples and optimizer steps, both 0 for the base alone, and its scored lines."""

    samples: int
    steps: int
    scored: Sequence[ScoredLine]

    @property
    def cer(self) -> float:
        """The CER, pooled over the scored lines."""
        return pool(ErrorRate(line.errors, line.length) for line in self.scored).rate


@dataclass(frozen=True, slots=True)
class Forecast:
    """Trainings, the curve through them, and what it predicts.

    Without a `curve`, `reason` says why. `unit` is what was resampled for the interval, `clusters` their number.
    `expected_fall` (median, low, high) is what the smaller trainings predict for `measured_fall`.
    """

    split: str
    unit: ClusterUnit
    clusters: int
    points: Sequence[CurvePoint]
    curve: LearningCurve | None
    more: Sequence[ExpectedRate]
    targets: Sequence[NeededSamples]
    expected_fall: tuple[float, float, float] | None
    reason: str | None

    @classmethod
    def compute(
        cls, split: str, points: Sequence[CurvePoint], *, more: Sequence[int], targets: Sequence[float]
    ) -> Self:
        """Forecast for numbers of samples added to the largest training, and for error rates to reach.

        A point without samples is the base, where the curve starts unless the trainings say otherwise.
        Raises DataError if the points were not scored on the same lines.
        """
        points = sorted(points, key=lambda point: point.samples)
        if not points or not points[0].scored:
            raise DataError("there are no scored lines to forecast from", code="no-lines")
        for point in points:
            if [line.id for line in point.scored] != [line.id for line in points[0].scored]:
                message = f"trainings on {points[0].samples} and {point.samples} samples were scored on different lines"
                raise DataError(
                    message, code="lines-differ", hint=f"give {option('overwrite')} to score all of them again"
                )
        clusters, largest = clusters_of(points[-1].scored), points[-1].samples
        curve = _fit(points, clusters)
        # The held-out training was scored on the same lines, so their choice adds no uncertainty: all are one cluster.
        smaller = _fit(points[:-1], Clusters(clusters.unit, np.zeros(len(points[-1].scored), dtype=np.intp)))
        return cls(
            split=split,
            unit=clusters.unit,
            clusters=clusters.count,
            points=tuple(points),
            curve=curve,
            more=[curve.expect(largest + number) for number in more] if curve else [],
            targets=[curve.needed(target) for target in targets] if curve else [],
            expected_fall=None if smaller is None else smaller.expect_measured_fall(largest),
            reason=None if curve else f"a forecast needs {MIN_SIZES} training sizes, not {len(_trained(points))}",
        )

    @property
    def largest(self) -> CurvePoint:
        """The training on the most samples."""
        return self.points[-1]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The forecasts in words, then how well the largest training was predicted."""
        if self.reason is not None:
            return [self.reason]
        sentences = [self._describe_more(expected) for expected in self.more]
        sentences += [self._describe_target(needed) for needed in self.targets]
        if self.expected_fall is not None:
            middle, low, high = (1 - fall for fall in self.expected_fall)
            sentences.append(
                f"check: {describe_ratios((1 - self.measured_fall,))} errors than with {self.points[-2].samples} "
                f"lines; the smaller trainings predict {describe_ratios((middle,))} (95 % interval "
                f"{describe_ratios((low, high))}): {'inside' if self.fall_inside else 'OUTSIDE'}"
            )
        return sentences

    @property
    def measured_fall(self) -> float:
        """The share of the second largest training's errors that the largest does not make; negative if it has more."""
        errors = [sum(line.errors for line in point.scored) for point in self.points[-2:]]
        return 1 - errors[1] / max(errors[0], 0.5)

    @property
    def fall_inside(self) -> bool | None:
        """Whether `measured_fall` is in the interval predicted for it; None without a prediction."""
        if self.expected_fall is None:
            return None
        _, low, high = self.expected_fall
        return low <= self.measured_fall <= high

    @property
    def explanation(self) -> str:
        """What the numbers include and assume."""
        return (
            f"Every training is scored on the same {len(self.largest.scored)} lines of the {self.split} split. "
            f"Plausible curves are all a * (lines + n0)^-b + c that fit about as well, with other scored lines "
            f"({self.clusters} {self.unit}s resampled) and the randomness of training. They stand for power laws, also "
            "from a base and broken ones; where errors fall in an S-shaped (logistic) or exponential curve instead, "
            "forecasts are less sure than they say. New lines are assumed to resemble the ones in the training split: "
            "the same writers, or others like them."
        )

    def _describe_more(self, expected: ExpectedRate) -> str:
        added = expected.count - self.largest.samples
        if not self._in_range(expected.count):
            return f"{added:,} more lines: no forecast beyond {MAX_EXTRAPOLATION} times the largest training"
        return (
            f"{10 * expected.worthwhile:.0f} of 10 plausible curves lose at least {percentage(WORTHWHILE, 0)} of their "
            f"errors with {added:,} more lines: CER {percentage(expected.rate, 1)} expected "
            f"({100 * expected.low:.1f} to {percentage(expected.high, 1)}), {percentage(self.largest.cer, 1)} now"
        )

    def _describe_target(self, needed: NeededSamples) -> str:
        largest, goal = self.largest.samples, f"a CER of {percentage(needed.target, 1)}"
        if self.largest.cer <= needed.target:
            return f"{goal} is reached: {percentage(self.largest.cer, 1)} with {largest:,} lines"
        if not self._in_range(needed.count):
            return (
                f"{goal}: no forecast; {percentage(1 - needed.reached, 0)} of the curves that fit never reach it, "
                f"and the others need {_round_lines(needed.low)} lines or more"
            )
        most = f"at most {_round_lines(needed.high)}" if self._in_range(needed.high) else "perhaps never"
        span = f"{_round_lines(needed.count)} in total; at least {_round_lines(needed.low)}, {most}"
        return f"{goal} takes about {_round_lines(max(needed.count - largest, 1))} more lines ({span})"

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON: rates are fractions, counts that are never reached are None.

        `in_range` is whether a forecast is within the largest training times `MAX_EXTRAPOLATION`.
        """
        largest, in_range = self.largest, self._in_range
        return {
            "split": self.split,
            "points": [
                {"samples": point.samples, "steps": point.steps, "cer": point.cer, "scored_lines": len(point.scored)}
                for point in self.points
            ],
            "interval": {"level": LEVEL, "unit": self.unit, "clusters": self.clusters},
            "more": [
                {"more": forecast.count - largest.samples, **asdict(forecast), "in_range": in_range(forecast.count)}
                for forecast in self.more
            ],
            "targets": [
                {name: finite_or_none(value) for name, value in asdict(needed).items()}
                | {"in_range": in_range(needed.count)}
                for needed in self.targets
            ],
            "check": self.expected_fall
            and {
                "measured": self.measured_fall,
                **dict(zip(("expected", "low", "high"), self.expected_fall, strict=True)),
                "inside": self.fall_inside,
            },
            "reason": self.reason,
            "sentences": self.sentences,
        }

    def _in_range(self, count: float) -> bool:
        return count <= MAX_EXTRAPOLATION * self.largest.samples


def _trained(points: Sequence[CurvePoint]) -> set[int]:
    """Return the different sizes of trainings, without the base."""
    return {point.samples for point in points} - {0}


def _fit(points: Sequence[CurvePoint], clusters: Clusters) -> LearningCurve | None:
    """Fit a curve through the points; None if they are too few."""
    if len(_trained(points)) < MIN_SIZES:
        return None
    lengths = clusters.sums(np.array([line.length for line in points[0].scored], dtype=np.float64))
    errors = [clusters.sums(np.array([line.errors for line in point.scored], dtype=np.float64)) for point in points]
    return fit_learning_curve([point.samples for point in points], np.stack(errors), lengths)


def _round_lines(count: float) -> str:
    """Round to the two digits that such a number has."""
    if not math.isfinite(count):
        return "infinitely many"
    step = 10 ** max(0, math.floor(math.log10(max(count, 1))) - 1)
    return f"{round(count / step) * step:,}"
