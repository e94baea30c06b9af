"""Two readings of the same lines: the interval of the difference of their rates, and a test that there is one.

Both go by clusters, as `intervals.py` says: the lines of a writer are drawn, or swapped, together. The interval is a
studentised bootstrap (Efron and Tibshirani 1993, chapter 12), alike to both sides and as wide as the jackknife asks;
`benchmarks/intervals.py` compares it with the percentile bootstrap, which is far too narrow below fifty writers.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.evaluation.intervals import FEWEST, Clusters, Interval, Numbers, jackknife, student, too_few

_MOST_GROUPS = 1000
"""Clusters that are drawn one by one; more are first put together at random, which changes nothing one could see."""

_EXACT = 16
"""Clusters of which all swaps are tried: 65,536."""

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Paired:
    """Errors of two readings of each line, the line's length, and which lines belong together."""

    first: Numbers
    second: Numbers
    lengths: Numbers
    clusters: Clusters


@dataclass(frozen=True, slots=True)
class SwapTest:
    """How often chance alone makes as large a difference: `p`; `exact` where all swaps of clusters were tried.

    `least` is the smallest p that so few clusters could give.
    """

    p: float
    least: float
    exact: bool

    def as_dict(self) -> dict[str, Any]:
        """The test as JSON holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The test that `as_dict` wrote."""
        return cls(**values)


def difference_interval(paired: Paired, *, seed: int = 0, repeats: int = 2000, level: float = 0.95) -> Interval:
    """The interval of the second's pooled rate less the first's, in fractions; below zero the second is better."""
    clusters = paired.clusters

    def none(reason: str) -> Interval:
        return Interval(None, None, level, clusters.unit, clusters.count, reason)

    if clusters.count < FEWEST:
        return none(too_few(clusters))
    random = np.random.default_rng(seed)
    (change, length), count = _grouped(paired, random), clusters.count
    if not length.sum():
        return none("the references are empty")
    if not change.any():
        return none("both have as many errors everywhere")
    spread, _ = jackknife(change, length, _ratio)
    if not spread:
        return none(f"all {count} {clusters.unit}s differ alike, which tells no spread")
    middle = float(change.sum() / length.sum())
    times = float(np.quantile(_studentised(change, length, repeats, random), level, method="inverted_cdf"))
    if times > student(level, 1):  # Student's for two: no more than that many make the difference
        return none(f"the size of the difference hangs on one or two of {count} {clusters.unit}s")
    return Interval(middle - times * spread, middle + times * spread, level, clusters.unit, count)


def swap_test(paired: Paired, *, seed: int = 0, repeats: int = 10_000) -> SwapTest:
    """Whether it could as well be the other way round: the readings of whole clusters are swapped at random.

    Were both readers alike, every swap would be as likely as what was seen. All swaps are tried where there are few
    clusters, else `repeats` random ones, what was seen counting as one more (Phipson and Smyth 2010).
    """
    random = np.random.default_rng(seed)
    changes, _ = _grouped(paired, random)
    changes = changes[changes != 0]
    seen = abs(changes.sum()) * (1 - 1e-12)
    if len(changes) <= _EXACT:
        swaps = _all_signs(len(changes))
        return SwapTest(float(np.mean(np.abs(swaps @ changes) >= seen)), 2.0 ** (1 - max(len(changes), 1)), exact=True)
    large = 0
    for start in range(0, repeats, _AT_ONCE):
        signs = random.integers(0, 2, (min(_AT_ONCE, repeats - start), len(changes))) * 2 - 1
        large += int(np.sum(np.abs(signs @ changes) >= seen))
    return SwapTest((large + 1) / (repeats + 1), 1 / (repeats + 1), exact=False)


def sign_test(better: int, worse: int) -> float:
    """How often so many tosses of a coin are at least as one-sided; beyond 1,000 by the normal distribution."""
    tosses, fewer = better + worse, min(better, worse)
    if tosses > 1000:
        return math.erfc(max(abs(better - worse) - 1, 0) / math.sqrt(2 * tosses))
    return float(min(1, 2 * sum(math.comb(tosses, count) for count in range(fewer + 1)) / 2**tosses))


def _all_signs(count: int) -> NDArray[np.int64]:
    """Every way to give a sign to so many numbers, a row each."""
    return (np.arange(2**count)[:, None] >> np.arange(count) & 1) * 2 - 1


def _grouped(paired: Paired, random: np.random.Generator) -> tuple[Numbers, Numbers]:
    """The change in errors and the length of each cluster, or of random groups of clusters where there are many."""
    change = paired.clusters.sums(paired.second - paired.first)
    length = paired.clusters.sums(paired.lengths)
    if len(change) <= _MOST_GROUPS:
        return change, length
    groups = Clusters("line", random.permutation(len(change)) % _MOST_GROUPS)
    return groups.sums(change), groups.sums(length)


def _studentised(change: Numbers, length: Numbers, repeats: int, random: np.random.Generator) -> Numbers:
    """How many of its own standard errors each resampled difference lies from the one that was seen."""
    middle, count = change.sum() / length.sum(), len(change)
    distances = []
    for start in range(0, repeats, _AT_ONCE):
        drawn = random.integers(count, size=(min(_AT_ONCE, repeats - start), count))
        changes, lengths = change[drawn], length[drawn]
        whole = lengths.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = changes.sum(axis=1) / whole
            errors = np.sqrt(((changes - rate[:, None] * lengths) ** 2).sum(axis=1)) / whole
            distances.append(np.abs(rate - middle) / errors)
    # Where neither differs, or nothing but empty references was drawn, there is no distance to speak of.
    found: Numbers = np.concatenate(distances)
    return np.where(np.isnan(found), 0.0, found)


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    return part / whole
