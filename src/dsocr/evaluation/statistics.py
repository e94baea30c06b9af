"""How far an error rate may be from what other writers' lines would give: 95 % intervals over clusters of lines.

Lines of one hand, or of one page, go wrong together, so not lines but whole clusters are taken for independent. Nothing
is drawn, so there is no seed. The interval has four parts:

- each cluster is left out once, and the spread of what remains is the spread of the rate (Efron 1982, The Jackknife,
  the Bootstrap and Other Resampling Plans, chapter 3);
- the degrees of freedom are Satterthwaite's (1946), from how unevenly the clusters take part in that spread;
- the spread is drawn to what is `Usual`, the more the fewer degrees stand behind it (Smyth 2004, Linear Models and
  Empirical Bayes Methods, section 3: a moderated t): five hands that happen to be alike do not make hands alike;
- it reaches farther to the side where the hard hands and the loops are, which a small test rather lacks than has
  (Johnson 1978, Modified t Tests and Confidence Intervals for Asymmetrical Populations).

How often such intervals hold the truth, and how that was chosen, is measured in `benchmarks/intervals.py`; percentile
bootstraps cover too little before there are some fifty writers.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dsocr.evaluation.metrics import ErrorRate

Unit = Literal["writer", "page", "line"]
Of = Literal["characters", "words", "lines"]
"""Errors per character and per word may go over 1, words hardly; a share of lines, as of exact ones, cannot."""

Numbers = NDArray[np.float64]
_Scale = Callable[[Any, Any], Any]

FEWEST = 5
"""Clusters below which no interval is given: with four, 91 of 100 instead of 95 hold where hands are very unlike."""

_USELESS = math.log(100)
"""A reach from a hundredth of the rate to a hundred times it tells nothing."""


@dataclass(frozen=True, slots=True)
class Usual:
    """How unlike clusters are before any is seen, in terms of the rate, and how many clusters' worth that is."""

    hands: float
    """The standard deviation between clusters of many lines. To it comes what the luck of lines does: that of one line
    is taken for as large as the rate, and goes down with the lines of a cluster."""
    weight: float

    def variance(self, clusters: "Clusters") -> float:
        """Of the rate of one cluster, relative to the rate squared."""
        return self.hands**2 + clusters.count / clusters.of_line.size


_USUAL = Usual(hands=0.4, weight=1)

_LEAST_ROOM = 0.2
"""Where most words are wrong hands can differ no more, as shares near 1 cannot; loops still add some."""


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
    rates: Sequence[ErrorRate], clusters: Clusters, *, level: float = 0.95, of: Of = "characters"
) -> Interval:
    """The interval of the pooled rate of lines: of wrong characters or words, or of the lines that are counted."""
    errors = np.fromiter((rate.errors for rate in rates), float, len(rates))
    lengths = np.fromiter((rate.length for rate in rates), float, len(rates))
    return interval_of_sums(errors, lengths, clusters, level=level, of=of)


def interval_of_sums(
    parts: Numbers, wholes: Numbers, clusters: Clusters, *, level: float = 0.95, of: Of = "characters"
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
    if of == "lines" and part.sum() >= whole.sum():
        return none("it is so for all, which tells no spread")
    least = min(0.5, float(part[part > 0].min()) / 2)  # stands for none where a logarithm is taken
    scale, back = (_logit(least), special.expit) if of == "lines" else (_log(least), math.exp)
    spread, freedom = jackknife(part, whole, scale)
    if not spread:
        return none(f"all {clusters.count} {clusters.unit}s are alike, which tells no spread")
    middle, many, rate = float(scale(part.sum(), whole.sum())), effective(whole), float(part.sum() / whole.sum())
    room = max(_LEAST_ROOM, 1 - rate) if of == "words" else 1.0
    error = moderate(spread, freedom, room**2 * _USUAL.variance(clusters) / many, _USUAL.weight)
    degrees = (freedom if of == "characters" else between(freedom, clusters)) + _USUAL.weight
    reach = student(level, degrees) * error
    if reach > _USELESS and of != "lines":
        return none(f"the rate hangs on one or two of {clusters.count} {clusters.unit}s")
    # Characters have the long tail of loops and hard hands; shares have the binomial's skew, which their logit undoes.
    skew = {"characters": 1.0, "words": max(-1.0, 1 - 2 * rate), "lines": 0.0}[of]
    middle += lean(skew, many, level) * error
    return Interval(float(back(middle - reach)), float(back(middle + reach)), level, clusters.unit, clusters.count)


def too_few(clusters: Clusters) -> str:
    """Why there is no interval."""
    named = f"{clusters.count} {clusters.unit}{'' if clusters.count == 1 else 's'}"
    return f"{named} {'is' if clusters.count == 1 else 'are'} too few to tell"


def jackknife(part: Numbers, whole: Numbers, scale: _Scale) -> tuple[float, float]:
    """The standard error of a scaled ratio of sums, and its degrees of freedom, given the sums of each cluster.

    The freedom is (sum of v)^2 / (sum of v^2) where v is what a cluster adds to the variance: as many as there are
    clusters where all add the same, and `freedom_of_one` where a single cluster makes the whole spread.
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


def freedom_of_one(count: int) -> float:
    """What `jackknife` finds where a single cluster makes the whole spread: 1.54 of five, 1 of very many."""
    return count * (count - 1) / (count**2 - 3 * count + 3)


def effective(whole: Numbers) -> float:
    """How many clusters of equal size would tell as much: (sum of w)^2 / (sum of w^2)."""
    return float(whole.sum() ** 2 / (whole**2).sum())


def moderate(spread: float, freedom: float, variance: float, weight: float) -> float:
    """A standard error between what was found and what is usual (Smyth 2004, equation for s tilde)."""
    return math.sqrt((freedom * spread**2 + weight * variance) / (freedom + weight))


def between(freedom: float, clusters: Clusters) -> float:
    """Degrees of freedom where either tail may be the long one: the geometric mean of Satterthwaite's and of all.

    Extremes on both sides make a Student interval wide rather than wrong, so fewer degrees would be too few.
    """
    return math.sqrt(freedom * (clusters.count - 1))


def lean(skew: float, many: float, level: float) -> float:
    """By how many standard errors an interval of a mean of so many goes to the side of the long tail (Johnson 1978)."""
    return skew * (1 + 2 * student(level, math.inf) ** 2) / (6 * math.sqrt(many))


@lru_cache(maxsize=4096)
def student(level: float, freedom: float) -> float:
    """Two-sided quantile of Student's t: the central `level` lies within this many standard errors.

    Degrees of freedom may be fractional and are taken as at least 1; infinity gives the normal distribution.
    """
    return float(special.stdtrit(max(freedom, 1.0), (1 + level) / 2))


def _numbered(names: Sequence[Hashable]) -> NDArray[np.intp]:
    places: dict[Hashable, int] = {}
    return np.fromiter((places.setdefault(name, len(places)) for name in names), np.intp, len(names))


def _log(least: float) -> _Scale:
    return lambda part, whole: np.log(np.maximum(part, least) / whole)


def _logit(least: float) -> _Scale:
    return lambda part, whole: np.log(np.maximum(part, least) / np.maximum(whole - part, least))


_USUAL_PAIRED = Usual(hands=0.55, weight=0.5)

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
    error = moderate(spread, freedom, size**2 * _USUAL_PAIRED.variance(clusters) / many, _USUAL_PAIRED.weight)
    reach = student(level, between(freedom, clusters) + _USUAL_PAIRED.weight) * error
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
