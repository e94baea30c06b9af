"""Two readings of the same lines: the interval of the difference of their rates, and a test that there is one.

Both go by clusters: the lines of a writer are left out, or swapped, together. The interval is made as that of a rate in
`intervals.py`, except that it is not taken of a logarithm, since a difference may be of either sign, and that what is
usual depends on how much the two readings differ: they go wrong on the same lines, so most of what makes one hand
harder than another is no difference between them. `benchmarks/intervals.py` compares it with the percentile bootstrap.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dsocr.evaluation.intervals import (
    FEWEST,
    Clusters,
    Interval,
    Numbers,
    Usual,
    between,
    effective,
    freedom_of_one,
    jackknife,
    lean,
    moderate,
    student,
    too_few,
)

_USUAL = Usual(hands=0.55, weight=0.5)

_ALIKE = 0.9
"""How two readings of a cluster are usually correlated."""

_OF_ONE = 1.02
"""Up to so many times the freedom that a single cluster leaves, it alone makes the spread: the squares of all others
add up to a hundredth of its own. Where it makes half of the difference too, the size of that is not known."""

_MOST_GROUPS = 1000
"""Clusters that are swapped one by one; more are first put together at random, which changes nothing one could see."""

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


def difference_interval(paired: Paired, *, level: float = 0.95) -> Interval:
    """The interval of the second's pooled rate less the first's, in fractions; below zero the second is better."""
    clusters = paired.clusters

    def none(reason: str) -> Interval:
        return Interval(None, None, level, clusters.unit, clusters.count, reason)

    if clusters.count < FEWEST:
        return none(too_few(clusters))
    change, length = clusters.sums(paired.second - paired.first), clusters.sums(paired.lengths)
    if not length.sum():
        return none("the references are empty")
    if not change.any():
        return none("both have as many errors everywhere")
    spread, freedom = jackknife(change, length, _ratio)
    if not spread:
        return none(f"all {clusters.count} {clusters.unit}s differ alike, which tells no spread")
    first, second = paired.first.sum() / length.sum(), paired.second.sum() / length.sum()
    difference, many = float(second - first), effective(length)
    if freedom < _OF_ONE * freedom_of_one(clusters.count) and spread > abs(difference) / 2:
        return none(f"the size of the difference hangs on one of {clusters.count} {clusters.unit}s")
    size = math.sqrt(difference**2 + 2 * (1 - _ALIKE) * first * second)
    error = moderate(spread, freedom, size**2 * _USUAL.variance(clusters) / many, _USUAL.weight)
    reach = student(level, between(freedom, clusters) + _USUAL.weight) * error
    middle = difference + lean(difference / size, many, level) * error  # the harder the hand, the more is gained
    return Interval(middle - reach, middle + reach, level, clusters.unit, clusters.count)


def swap_test(paired: Paired, *, seed: int = 0, repeats: int = 10_000) -> SwapTest:
    """Whether it could as well be the other way round: the readings of whole clusters are swapped at random.

    Were both readers alike, every swap would be as likely as what was seen. All swaps are tried where there are few
    clusters, else `repeats` random ones, what was seen counting as one more (Phipson and Smyth 2010).
    """
    random = np.random.default_rng(seed)
    changes = _grouped(paired, random)
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


def _grouped(paired: Paired, random: np.random.Generator) -> Numbers:
    """The change in errors of each cluster, or of random groups of clusters where there are many."""
    change = paired.clusters.sums(paired.second - paired.first)
    if len(change) <= _MOST_GROUPS:
        return change
    return Clusters("line", random.permutation(len(change)) % _MOST_GROUPS).sums(change)


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    return part / whole
