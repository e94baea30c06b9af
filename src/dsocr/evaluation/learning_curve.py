"""A learning curve through a few runs on growing shares of the lines, and the error rate to expect from more lines.

Log error rates fall on a straight line over log numbers of lines (a power law), fitted by least squares and extended.
The interval adds the choice of scored lines (jackknife over writers, pages or lines) and the luck of every run.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsocr.evaluation.decide import is_better
from dsocr.evaluation.metrics import ErrorRate, pool
from dsocr.evaluation.statistics import LEVEL, Clusters, Floats, clusters_of, student_quantile
from dsocr.text import percentage

_LUCK = 0.05
"""Standard deviation of the log rate between runs on the same lines."""


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A line of the scored split: its edits, the characters of its reference, its writer and page."""

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
    """Runs on growing shares of the lines, scored on the same lines, and the CER with `more` lines than the last."""

    points: Sequence[CurvePoint]
    more: int

    @property
    def clusters(self) -> Clusters:
        """The writers, pages or lines that the interval is over."""
        return clusters_of(self.points[-1].scored)

    @property
    def helped(self) -> bool:
        """Whether the last run is better than the one before it."""
        before, after = ([line.errors for line in point.scored] for point in self.points[-2:])
        return is_better(self.points[-1].scored, before, after)

    @property
    def expected(self) -> ExpectedRate:
        """The CER to expect with `more` lines."""
        return self.expect(self.points[-1].samples + self.more)

    def expect(self, samples: int) -> ExpectedRate:
        """Return the CER to expect from a run on this many lines."""
        clusters = self.clusters
        sizes = np.log([point.samples for point in self.points])
        offsets = sizes - sizes.mean()
        weights = 1 / sizes.size + (np.log(samples) - sizes.mean()) * offsets / (offsets @ offsets)
        errors = np.stack([clusters.sums([line.errors for line in point.scored]) for point in self.points])
        lengths = clusters.sums([line.length for line in self.points[0].scored])
        without = weights @ _log_rates(errors.sum(axis=1, keepdims=True) - errors, lengths.sum() - lengths)
        others = max(clusters.count - 1, 1)
        of_lines = others / (others + 1) * float(((without - without.mean()) ** 2).sum())
        variance = of_lines + _LUCK**2 * float(1 + weights @ weights)
        # Satterthwaite: only the spread of the clusters is estimated.
        reach = student_quantile(variance**2 * others / max(of_lines**2, 1e-12)) * variance**0.5
        middle = float(weights @ _log_rates(errors.sum(axis=1), lengths.sum()))
        low, rate, high = np.exp(np.clip([middle - reach, middle, middle + reach], -50, 50)).tolist()
        return ExpectedRate(samples, rate, low, high)

    def __str__(self) -> str:
        expected, previous, last = self.expected, *self.points[-2:]
        return (
            f"With {self.more:,} more lines ({expected.samples:,} in all), expect a CER of "
            f"{percentage(expected.rate, 1)} ({100 * LEVEL:.0f} % interval {100 * expected.low:.1f} to "
            f"{percentage(expected.high, 1)}) instead of {percentage(last.cer, 1)}; the last "
            f"{last.samples - previous.samples:,} lines {'helped' if self.helped else 'did not clearly help'}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON; rates are fractions."""
        clusters = self.clusters
        return {
            "points": [{"samples": point.samples, "steps": point.steps, "cer": point.cer} for point in self.points],
            "scored_lines": len(self.points[0].scored),
            "interval": {"level": LEVEL, "unit": clusters.unit, "clusters": clusters.count},
            "more": self.more,
            "expected": asdict(self.expected),
            "helped": self.helped,
            "sentence": str(self),
        }


def _log_rates(errors: Floats, lengths: "Floats | float") -> Floats:
    """Return log error rates; no error counts as half an error."""
    return np.asarray(np.log(np.maximum(errors, 0.5) / np.maximum(lengths, 1.0)), dtype=np.float64)
