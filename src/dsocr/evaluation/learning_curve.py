"""A learning curve through a few runs on growing shares of the lines, and the error rate to expect from more lines.

Log error rates fall on a straight line over log numbers of lines (a power law), fitted by least squares and extended.
The interval adds the choice of scored lines (jackknife over writers, pages or lines) and the luck of every run.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dsocr.errors import DataError, option
from dsocr.evaluation.decide import is_better
from dsocr.evaluation.metrics import ErrorRate, pool
from dsocr.evaluation.statistics import LEVEL, Clusters, Floats, clusters_of, student_quantile
from dsocr.html import Plot, run_colour
from dsocr.text import percentage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LUCK = 0.05
"""Standard deviation of the log rate between runs on the same lines."""
_CURVE_POINTS = 60


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
    """A run: its number of training samples and optimizer steps, and its scored lines."""

    samples: int
    steps: int
    scored: Sequence[ScoredLine]

    @property
    def cer(self) -> float:
        """The CER, pooled over the scored lines."""
        return pool(ErrorRate(line.errors, line.length) for line in self.scored).rate


@dataclass(frozen=True, slots=True)
class ExpectedRate:
    """The CER to expect from a run on `samples` lines, with its 95 % interval."""

    samples: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Runs on growing shares of the lines, and the CER to expect with `more` lines than the last.

    `helped` is whether the last run is better than the one before it.
    """

    points: Sequence[CurvePoint]
    more: int
    clusters: Clusters
    helped: bool

    @classmethod
    def compute(cls, points: Sequence[CurvePoint], more: int) -> Self:
        """Forecast from at least two sizes. Raises DataError if the points were not scored on the same lines."""
        points = sorted(points, key=lambda point: point.samples)
        if not points[0].scored:
            raise DataError("there are no scored lines to forecast from", code="no-lines")
        for point in points:
            if [line.id for line in point.scored] != [line.id for line in points[0].scored]:
                message = f"runs on {points[0].samples} and {point.samples} samples were scored on different lines"
                hint = f"give {option('overwrite')} to score all of them again"
                raise DataError(message, code="lines-differ", hint=hint)
        before, after = ([line.errors for line in point.scored] for point in points[-2:])
        scored = points[-1].scored
        return cls(points, more, clusters_of(scored), is_better(scored, before, after))

    def expect(self, samples: int) -> ExpectedRate:
        """Return the CER to expect from a run on so many lines."""
        sizes = np.log([point.samples for point in self.points])
        offsets = sizes - sizes.mean()
        weights = 1 / sizes.size + (np.log(samples) - sizes.mean()) * offsets / (offsets @ offsets)
        errors = np.stack([self._sums([line.errors for line in point.scored]) for point in self.points])
        lengths = self._sums([line.length for line in self.points[0].scored])
        without = weights @ _log_rates(errors.sum(axis=1, keepdims=True) - errors, lengths.sum() - lengths)
        others = max(self.clusters.count - 1, 1)
        of_lines = others / (others + 1) * float(((without - without.mean()) ** 2).sum())
        variance = of_lines + _LUCK**2 * float(1 + weights @ weights)
        # Satterthwaite: only the spread of the clusters is estimated.
        reach = student_quantile(variance**2 * others / max(of_lines**2, 1e-12)) * variance**0.5
        middle = float(weights @ _log_rates(errors.sum(axis=1), lengths.sum()))
        low, rate, high = np.exp(np.clip([middle - reach, middle, middle + reach], -50, 50)).tolist()
        return ExpectedRate(samples, rate, low, high)

    def _sums(self, values: Sequence[int]) -> Floats:
        return self.clusters.sums(np.array(values, dtype=np.float64))

    @property
    def expected(self) -> ExpectedRate:
        """The CER to expect with `more` lines."""
        return self.expect(self.points[-1].samples + self.more)

    def __str__(self) -> str:
        expected, previous, last = self.expected, *self.points[-2:]
        helped = "helped" if self.helped else "did not clearly help"
        return (
            f"With {self.more:,} more lines ({expected.samples:,} in all), expect a CER of "
            f"{percentage(expected.rate, 1)} ({100 * LEVEL:.0f} % interval {100 * expected.low:.1f} to "
            f"{percentage(expected.high, 1)}) instead of {percentage(last.cer, 1)}; "
            f"the last {last.samples - previous.samples:,} lines {helped}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON; rates are fractions."""
        points = [{"samples": point.samples, "steps": point.steps, "cer": point.cer} for point in self.points]
        return {
            "points": points,
            "scored_lines": len(self.points[0].scored),
            "interval": {"level": LEVEL, "unit": self.clusters.unit, "clusters": self.clusters.count},
            "more": self.more,
            "expected": asdict(self.expected),
            "helped": self.helped,
            "sentence": str(self),
        }


def forecast_plot(forecast: Forecast) -> Plot:
    """Plot the scored runs as dots, and the curve up to the forecast with its 95 % band."""

    def paint(axes: "Axes") -> None:
        sizes = np.geomspace(forecast.points[0].samples, forecast.expected.samples, _CURVE_POINTS)
        band = [forecast.expect(round(size)) for size in sizes.tolist()]
        low, high = ([100 * getattr(expected, end) for expected in band] for end in ("low", "high"))
        axes.fill_between(sizes, low, high, color=run_colour(1), alpha=0.15, linewidth=0, label="95 % interval")
        axes.plot(sizes, [100 * expected.rate for expected in band], color=run_colour(1), label="expected")
        x, y = zip(*((point.samples, 100 * point.cer) for point in forecast.points), strict=True)
        axes.plot(x, y, "o", color=run_colour(0), label="trained and scored")
        axes.set(xlabel="training lines", ylabel="CER on the validation split, %")
        axes.set_ylim(bottom=0)
        axes.legend()

    return Plot("CER on the validation split over training lines", paint, (6.4, 3.2))


def _log_rates(errors: Floats, lengths: "Floats | float") -> Floats:
    """Return log error rates; no error counts as half an error."""
    return np.asarray(np.log(np.maximum(errors, 0.5) / np.maximum(lengths, 1.0)), dtype=np.float64)
