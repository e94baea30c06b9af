"""What trainings on ever more samples say about still more: points, the curve through them, and plain sentences.

Knows nothing about how the trainings were made.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from dsocr.errors import DataError
from dsocr.evaluation.intervals import Clusters, Unit, clusters_of
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.power_law import FEWEST, LEVEL, Expected, LearningCurve, Needed, fit_learning_curve

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
    unit: Unit
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

    def as_dict(self) -> dict[str, Any]:
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
