"""How far an error rate may be from what other writers' lines would give: 95 % intervals over clusters of lines.

Lines of one hand, or of one page, go wrong together, so not lines but whole clusters are taken for independent. Which
of the usual intervals then cover what they say was measured (`benchmarks/intervals.py`): percentile bootstraps do not
before there are some fifty writers; the one here does. It is a Student interval of the jackknife over clusters: each
cluster is left out once, the spread of what remains is the spread of the rate (Efron 1982, chapter 3), and the degrees
of freedom are Satterthwaite's, from how unevenly the clusters take part in it. Nothing is drawn, so there is no seed.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.evaluation.metrics import ErrorRate

Unit = Literal["writer", "page", "line"]
Numbers = NDArray[np.float64]
_Scale = Callable[[Any, Any], Any]

FEWEST = 5
"""Clusters below which no interval is given: with four it would be right, but reach from a third to three times."""

_USELESS = math.log(100)
"""A reach from a hundredth of the rate to a hundred times it tells nothing."""


class Placed(Protocol):
    """A line of which may be known who wrote it, and on which page."""

    @property
    def writer(self) -> str | None: ...  # noqa: D102
    @property
    def page(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Clusters:
    """Which lines belong together: for each line the number of its cluster, the first being 0."""

    unit: Unit
    of_line: NDArray[np.intp]

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.of_line.max()) + 1 if self.of_line.size else 0

    def sums(self, values: Numbers) -> Numbers:
        """What the lines of each cluster have together."""
        return np.bincount(self.of_line, weights=values, minlength=self.count).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, as fractions; both None where none can honestly be given, which `reason` says."""

    low: float | None
    high: float | None
    level: float
    unit: Unit
    clusters: int
    reason: str | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return self.reason or "no interval"
        return f"{100 * self.level:.0f} % CI {100 * self.low:.1f} to {100 * self.high:.1f} %"

    def as_dict(self) -> dict[str, Any]:
        """The interval as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The interval that `as_dict` wrote."""
        return cls(**values)


def clusters_of(lines: Sequence[Placed]) -> Clusters:
    """Writers where at least five are known, else pages, else every line by itself.

    Lines that name no writer, or no page, count as one writer or page together: taken for several, they would make
    the interval too narrow.
    """
    for unit, names in (("writer", [line.writer for line in lines]), ("page", [line.page for line in lines])):
        if len(set(names) - {None}) >= FEWEST:
            return Clusters("writer" if unit == "writer" else "page", _numbered(names))
    return Clusters("line", np.arange(len(lines)))


def interval_of(
    rates: Sequence[ErrorRate], clusters: Clusters, *, level: float = 0.95, share: bool = False
) -> Interval:
    """The interval of the pooled rate of lines, which may go over 1; in a `share`, as of exact lines, none can."""
    errors = np.fromiter((rate.errors for rate in rates), float, len(rates))
    lengths = np.fromiter((rate.length for rate in rates), float, len(rates))
    return interval_of_sums(errors, lengths, clusters, level=level, share=share)


def interval_of_sums(
    parts: Numbers, wholes: Numbers, clusters: Clusters, *, level: float = 0.95, share: bool = False
) -> Interval:
    """The interval of sum(parts) / sum(wholes), given per line: for a mean over lines, the wholes are ones."""
    part, whole = clusters.sums(parts), clusters.sums(wholes)

    def none(reason: str) -> Interval:
        return Interval(None, None, level, clusters.unit, clusters.count, reason)

    if clusters.count < FEWEST:
        return none(too_few(clusters))
    if not whole.sum():
        return none("the references are empty")
    if not part.sum():
        return none("there is no error to tell a spread from")
    if share and part.sum() >= whole.sum():
        return none("it is so for all, which tells no spread")
    least = min(0.5, float(part[part > 0].min()) / 2)  # stands for none where a logarithm is taken
    scale, back = (_logit(least), _from_logit) if share else (_log(least), math.exp)
    spread, freedom = jackknife(part, whole, scale)
    if not spread:
        return none(f"all {clusters.count} {clusters.unit}s are alike, which tells no spread")
    middle = float(scale(part.sum(), whole.sum()))
    reach = student(level, freedom) * spread
    if reach > _USELESS and not share:
        return none(f"the rate hangs on one or two of {clusters.count} {clusters.unit}s")
    return Interval(back(middle - reach), back(middle + reach), level, clusters.unit, clusters.count)


def too_few(clusters: Clusters) -> str:
    """Why there is no interval."""
    named = f"{clusters.count} {clusters.unit}{'' if clusters.count == 1 else 's'}"
    return f"{named} {'is' if clusters.count == 1 else 'are'} too few to tell"


def jackknife(part: Numbers, whole: Numbers, scale: _Scale) -> tuple[float, float]:
    """The standard error of a scaled ratio of sums, and its degrees of freedom, given the sums of each cluster.

    The freedom is (sum of v)^2 / (sum of v^2) where v is what a cluster adds to the variance: as many as there are
    clusters where all add the same, and one where a single cluster makes the whole spread.
    """
    kept = np.ones(len(part), bool)
    if (whole >= whole.sum()).any():  # without the only cluster that has text, nothing would remain
        kept = whole < whole.sum()
    without = scale(part.sum() - part[kept], whole.sum() - whole[kept])
    shares = (without - without.mean()) ** 2
    if shares.sum() <= 1e-24 * max(1.0, float(without.mean() ** 2)):  # no more than rounding
        return 0.0, 1.0
    count = len(shares)
    return math.sqrt((count - 1) / count * shares.sum()), float(shares.sum() ** 2 / (shares**2).sum())


@lru_cache(maxsize=4096)
def student(level: float, freedom: float) -> float:
    """How many standard errors to either side hold this share of Student's t with real degrees of freedom, from 1 on.

    With t = sqrt(f) tan(a) the density over the angle a is proportional to cos(a)^(f - 1), which is summed up. Beyond
    2,000 degrees nothing changes in the third decimal.
    """
    freedom = min(max(freedom, 1.0), 2000.0)
    angles = np.linspace(0, math.pi / 2, 20001)
    density = np.cos(angles) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(level, below / below[-1], angles)))


def _numbered(names: Sequence[Hashable]) -> NDArray[np.intp]:
    places: dict[Hashable, int] = {}
    return np.fromiter((places.setdefault(name, len(places)) for name in names), np.intp, len(names))


def _log(least: float) -> _Scale:
    return lambda part, whole: np.log(np.maximum(part, least) / whole)


def _logit(least: float) -> _Scale:
    return lambda part, whole: np.log(np.maximum(part, least) / np.maximum(whole - part, least))


def _from_logit(value: float) -> float:
    return 1 / (1 + math.exp(-max(value, -700)))
