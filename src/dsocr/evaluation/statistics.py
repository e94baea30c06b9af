"""Confidence intervals of error rates, and tests for the difference between two systems that read the same lines.

Errors in lines of one writer, or of one page, are correlated, so whole clusters of lines are treated as independent
rather than single lines. Intervals are computed without random draws, in four steps:

- The spread of the rate is estimated by the jackknife: each cluster is left out once (Efron 1982, The Jackknife, the
  Bootstrap and Other Resampling Plans, chapter 3).
- The degrees of freedom are Satterthwaite's (1946), from how unevenly the clusters contribute to that spread.
- The spread is shrunk towards a `Prior`, the more the fewer degrees of freedom there are (Smyth 2004, Linear Models
  and Empirical Bayes Methods, section 3: a moderated t): five writers who happen to be alike do not make all writers
  alike.
- The interval is shifted towards the long tail, where hard writers and loops are, because a small test set more often
  lacks them than has them (Johnson 1978, Modified t Tests and Confidence Intervals for Asymmetrical Populations).

Lines of a cross-validation were read by several models, and all writers of a fold share the chance of one training. By
how much more the folds differ than their writers explain is added to the variance.

`benchmarks/intervals.py` measures the coverage of these intervals, by which the constants were chosen; percentile
bootstraps cover too little with fewer than about fifty writers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

ClusterUnit = Literal["writer", "page", "line"]
IntervalMethod = Literal["moderated Student", "CR2"]
"""`interval_of` and `difference_interval` return the first, `cr2_interval` and `cr2_difference` the second."""

Quantity = Literal["characters", "words", "lines"]
"""What a rate counts. Character error rates can exceed 1, word error rates hardly do, a share of lines cannot."""

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Confidence level of all intervals."""

INTERVAL_QUANTILES = ((1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2)
"""Quantiles of drawn values: the lower end of an interval, the middle, the upper end."""

MIN_CLUSTERS = 5
"""Clusters needed for an interval: with four, coverage drops to 91 % when writers differ a lot."""

_MAX_REACH = math.log(100)
"""Intervals wider than a factor of a hundred either way are not reported."""

_MIN_WORD_ROOM = 0.2
"""When most words are wrong, writers cannot differ by more than the rest of the words; loops still add some."""

_PAIR_CORRELATION = 0.9
"""The usual correlation between two systems' errors in a cluster."""

_ONE_CLUSTER_MARGIN = 1.02
"""Up to this multiple of `freedom_of_one_cluster`, a single cluster makes the whole spread: the squared contributions
of all others add up to a hundredth of its own."""

_MAX_SWAPPED_GROUPS = 1000
"""Clusters that are swapped one by one; more are first merged at random into this many groups."""

_MAX_EXACT_CLUSTERS = 16
"""Clusters for which all swaps are enumerated: 65,536."""

_MAX_EXACT_RANKS = 50

_SWAPS = 10_000
_SWAPS_PER_BATCH = 1000


class ClusteredLine(Protocol):
    """A line whose writer and page may be known."""

    @property
    def writer(self) -> str | None: ...  # noqa: D102
    @property
    def page(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Clusters:
    """A cluster number for each line, counting from 0."""

    unit: ClusterUnit
    of_line: NDArray[np.intp]

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.of_line.max()) + 1 if self.of_line.size else 0

    def sums(self, values: Floats) -> Floats:
        """Sum values of lines within each cluster."""
        return np.bincount(self.of_line, weights=values, minlength=self.count).astype(np.float64)

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'' if self.count == 1 else 's'}"


def clusters_of(lines: Sequence[ClusteredLine]) -> Clusters:
    """Cluster lines by writer if at least five are known, else by page, else each line by itself.

    Lines without a writer, or page, form one cluster together: as several, they would make the interval too narrow.
    """
    units: tuple[tuple[ClusterUnit, list[str | None]], ...] = (
        ("writer", [line.writer for line in lines]),
        ("page", [line.page for line in lines]),
    )
    for unit, names in units:
        if len(set(names) - {None}) >= MIN_CLUSTERS:
            numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
            return Clusters(unit, np.array([numbers[name] for name in names], dtype=np.intp))
    return Clusters("line", np.arange(len(lines)))


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval in fractions; `low` and `high` are None if there is none, for the `reason` given."""

    low: float | None
    high: float | None
    level: float
    unit: ClusterUnit
    clusters: int
    reason: str | None = None
    method: IntervalMethod = "moderated Student"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Low and high, or None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return self.reason or "no interval"
        return f"{100 * self.level:.0f} % CI {100 * self.low:.1f} to {100 * self.high:.1f} %"


def withheld_interval(new_writers: int) -> Interval:
    """Return that there is no interval: one over the pages of few new writers would not hold for the next one."""
    reason = f"{new_writers} new writer{'' if new_writers == 1 else 's'} only, where an interval needs {MIN_CLUSTERS}"
    return Interval(None, None, LEVEL, "writer", new_writers, reason)


@dataclass(frozen=True, slots=True)
class Prior:
    """How much clusters usually differ, relative to the rate, and how many clusters this assumption is worth."""

    between_writers: float
    """Standard deviation between clusters of many lines. To it is added the chance of single lines, whose standard
    deviation is taken to equal the rate and which averages out over the lines of a cluster."""
    weight: float

    def moderate(self, spread: float, freedom: float, clusters: Clusters, size: float, effective: float) -> float:
        """Return a standard error shrunk towards the prior's, for a rate of this size (Smyth 2004, s tilde)."""
        relative = self.between_writers**2 + clusters.count / clusters.of_line.size
        variance = size**2 * relative / effective
        return math.sqrt((freedom * spread**2 + self.weight * variance) / (freedom + self.weight))


RATE_PRIOR = Prior(between_writers=0.4, weight=1)
DIFFERENCE_PRIOR = Prior(between_writers=0.55, weight=0.5)
"""Set by hand from simulations, not estimated: see docs/lab/experiments.md, "Can the prior be estimated?"."""


def interval_of(
    errors: Floats,
    lengths: Floats,
    clusters: Clusters,
    of: Quantity = "characters",
    *,
    prior: Prior = RATE_PRIOR,
    folds: NDArray[np.intp] | None = None,
) -> Interval:
    """Return the interval of sum(errors) / sum(lengths), both given per line; for a share of lines, lengths are 1.

    `folds` are the numbers, from 0, of the trainings whose models read the lines, if there were several.
    """
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count)
    part, whole = clusters.sums(errors), clusters.sums(lengths)
    if clusters.count < MIN_CLUSTERS:
        return interval(None, None, reason=_too_few(clusters))
    if not whole.sum():
        return interval(None, None, reason="the references are empty")
    if not part.sum():
        return interval(None, None, reason="it holds for no line" if of == "lines" else _no_errors(clusters))
    if of == "lines" and part.sum() >= whole.sum():
        return interval(None, None, reason="it holds for all lines, so there is no spread to estimate")
    least = min(0.5, float(part[part > 0].min()) / 2)  # stands for zero in logarithms

    def scale(part: Any, whole: Any) -> Any:
        """Return the logarithm of a rate, or the log odds of a share."""
        return np.log(np.maximum(part, least) / (np.maximum(whole - part, least) if of == "lines" else whole))

    spread, freedom = jackknife(part, whole, scale)
    if not spread:
        return interval(None, None, reason=f"all {clusters} are alike, so there is no spread to estimate")
    effective, rate = effective_count(whole), float(part.sum() / whole.sum())
    room = max(_MIN_WORD_ROOM, 1 - rate) if of == "words" else 1.0
    error = prior.moderate(spread, freedom, clusters, room, effective)
    degrees = (freedom if of == "characters" else _two_tailed(freedom, clusters)) + prior.weight
    reach = student_quantile(degrees) * error
    if folds is not None:
        groups = Clusters("line", folds)
        fold_spread, fold_freedom = jackknife(groups.sums(errors), groups.sums(lengths), scale)
        if (chance := fold_spread**2 - spread**2) > 0:  # of trainings; degrees of freedom by Satterthwaite (1946)
            variance = error**2 + chance
            degrees = variance**2 / (error**4 / degrees + chance**2 / fold_freedom)
            reach = student_quantile(degrees) * math.sqrt(variance)
    if reach > _MAX_REACH and of != "lines":
        return interval(None, None, reason=f"the rate depends on one or two of {clusters}")
    # Characters have the long tail of loops and hard writers; shares have the binomial's skew, which the logit undoes.
    skew = {"characters": 1.0, "words": max(-1.0, 1 - 2 * rate), "lines": 0.0}[of]
    middle = float(scale(part.sum(), whole.sum())) + skew_shift(skew, effective) * error
    inverse = special.expit if of == "lines" else math.exp
    return interval(float(inverse(middle - reach)), float(inverse(middle + reach)))


def _no_errors(clusters: Clusters) -> str:
    """Bound the share of clusters with errors: were it higher, none of these would be without in 19 of 20 cases."""
    most = 1 - (1 - LEVEL) ** (1 / clusters.count)
    return f"no errors on {clusters}, so at most {100 * most:.0f} % of all {clusters.unit}s have any (rule of three)"


def _too_few(clusters: Clusters) -> str:
    return f"{clusters} {'is' if clusters.count == 1 else 'are'} too few for an interval"


def cr2_interval(errors: Floats, lengths: Floats, clusters: Clusters) -> Interval:
    """Return the standard interval of sum(errors) / sum(lengths): its logarithm by `linearised`, Student's t."""
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count, method="CR2")
    part, whole = clusters.sums(errors), clusters.sums(lengths)
    if reason := _no_spread(part, whole, clusters):
        return interval(None, None, reason=reason)
    rate, error, freedom = linearised(part, whole)
    reach = student_quantile(freedom) * error / rate if rate else 0.0
    if not reach:
        return interval(None, None, reason="there is no spread to estimate")
    if reach > _MAX_REACH:
        return interval(None, None, reason=f"the rate depends on one or two of {clusters}")
    return interval(rate * math.exp(-reach), rate * math.exp(reach))


def _no_spread(part: Floats, whole: Floats, clusters: Clusters) -> str | None:
    """Return why `linearised` cannot be used; None if it can."""
    if clusters.count < MIN_CLUSTERS:
        return _too_few(clusters)
    if not whole.sum():
        return "the references are empty"
    if np.count_nonzero(whole) < 2:
        return f"only one of {clusters} has text"
    return None if part.any() else _no_errors(clusters)


def linearised(part: Floats, whole: Floats) -> tuple[float, float, float]:
    """Return the ratio of sums, its cluster-robust standard error CR2, and its degrees of freedom.

    The ratio is the weighted mean of the clusters' ratios, with `whole` as weights. For a mean, the bias-reduced
    linearisation of Bell and McCaffrey (2002) divides each squared residual by 1 - h, where h is the cluster's share of
    the weights, and Satterthwaite's degrees of freedom have a closed form under the working model that ratios vary
    inversely to their weights (Pustejovsky and Tipton 2018, equations 6 and 11).
    """
    total = whole.sum()
    share = whole[whole > 0] / total
    ratio = float(part.sum() / total)
    residuals = (part[whole > 0] - ratio * whole[whole > 0]) / total
    error = math.sqrt(float((residuals**2 / (1 - share)).sum()))
    pairs = share**2 / (1 - share)  # of every two clusters, the product is their squared covariance
    freedom = 1 / float((share**2).sum() + pairs.sum() ** 2 - (pairs**2).sum())
    return ratio, error, freedom


def jackknife(part: Floats, whole: Floats, scale: Callable[[Any, Any], Any]) -> tuple[float, float]:
    """Return the standard error of a scaled ratio of sums, and its degrees of freedom, from each cluster's sums.

    The degrees of freedom are (sum of v)^2 / (sum of v^2), where v is a cluster's contribution to the variance: the
    number of clusters if all contribute the same, `freedom_of_one_cluster` if one makes the whole spread.
    """
    kept = np.ones(len(part), bool)
    if (whole >= whole.sum()).any():  # the only cluster with text cannot be left out
        kept = whole < whole.sum()
    without = scale(part.sum() - part[kept], whole.sum() - whole[kept])
    contributions = (without - without.mean()) ** 2
    if contributions.sum() <= 1e-24 * max(1.0, float(without.mean() ** 2)):  # rounding errors
        return 0.0, 1.0
    count = len(contributions)
    spread = math.sqrt((count - 1) / count * contributions.sum())
    return spread, effective_count(contributions)


def freedom_of_one_cluster(count: int) -> float:
    """Return the degrees of freedom if one of `count` clusters makes the whole spread: 1.54 of five, near 1 of many."""
    return count * (count - 1) / (count**2 - 3 * count + 3)


def effective_count(weights: Floats) -> float:
    """Return how many equal weights would count as much: (sum of w)^2 / (sum of w^2)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def _two_tailed(freedom: float, clusters: Clusters) -> float:
    """Return degrees of freedom where either tail can be long: the geometric mean of Satterthwaite's and all.

    Extremes on both sides make a Student interval wide rather than wrong, so Satterthwaite's alone would be too few.
    """
    return math.sqrt(freedom * (clusters.count - 1))


def skew_shift(skew: float, count: float) -> float:
    """Return the shift of a mean's interval towards the long tail, in standard errors (Johnson 1978)."""
    return skew * (1 + 2 * student_quantile(math.inf) ** 2) / (6 * math.sqrt(count))


@lru_cache(maxsize=4096)
def student_quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's t distribution; fractional degrees of freedom count as at least 1."""
    return float(special.stdtrit(max(freedom, 1.0), (1 + LEVEL) / 2))


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """Errors of two systems on each line, the lines' lengths, and their clusters."""

    first: Floats
    second: Floats
    lengths: Floats
    clusters: Clusters


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Result of a paired permutation test.

    `smallest_p` is the smallest p value that this number of clusters can give; `exact` if all swaps were enumerated.
    """

    p: float
    smallest_p: float
    exact: bool


def difference_interval(paired: PairedErrors) -> Interval:
    """Return the interval of the second system's pooled rate minus the first's; negative if the second is better."""
    clusters = paired.clusters
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count)
    if clusters.count < MIN_CLUSTERS:
        return interval(None, None, reason=_too_few(clusters))
    change, length = clusters.sums(paired.second - paired.first), clusters.sums(paired.lengths)
    if not length.sum():
        return interval(None, None, reason="the references are empty")
    if not change.any():
        return interval(None, None, reason="both have the same number of errors everywhere")
    spread, freedom = jackknife(change, length, np.divide)
    if not spread:
        return interval(None, None, reason=f"all {clusters} differ alike, so there is no spread to estimate")
    first, second = paired.first.sum() / length.sum(), paired.second.sum() / length.sum()
    difference, effective = float(second - first), effective_count(length)
    one_makes_all = freedom < _ONE_CLUSTER_MARGIN * freedom_of_one_cluster(clusters.count)
    if one_makes_all and spread > abs(difference) / 2:
        return interval(None, None, reason=f"the size of the difference depends on one of {clusters}")
    size = math.sqrt(difference**2 + 2 * (1 - _PAIR_CORRELATION) * first * second)
    error = DIFFERENCE_PRIOR.moderate(spread, freedom, clusters, size, effective)
    reach = student_quantile(_two_tailed(freedom, clusters) + DIFFERENCE_PRIOR.weight) * error
    # The harder the writer, the larger the gain.
    middle = difference + skew_shift(difference / size, effective) * error
    return interval(middle - reach, middle + reach)


def cr2_difference(paired: PairedErrors) -> Interval:
    """Return the standard interval of the second system's pooled rate minus the first's, by `linearised`."""
    clusters = paired.clusters
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count, method="CR2")
    change, length = clusters.sums(paired.second - paired.first), clusters.sums(paired.lengths)
    if reason := _no_spread(change, length, clusters):
        return interval(None, None, reason=reason)
    difference, error, freedom = linearised(change, length)
    reach = student_quantile(freedom) * error
    return interval(difference - reach, difference + reach)


def permutation_test(paired: PairedErrors) -> PermutationTest:
    """Test whether the systems differ, by swapping their predictions for whole clusters.

    If the systems were equally good, every swap would be as likely as the observed assignment. All swaps are enumerated
    for few clusters; otherwise 10,000 random ones are drawn and the observed one counts as one more (Phipson and
    Smyth 2010).
    """
    random = np.random.default_rng(0)
    changes = paired.clusters.sums(paired.second - paired.first)
    if len(changes) > _MAX_SWAPPED_GROUPS:
        groups = Clusters("line", random.permutation(len(changes)) % _MAX_SWAPPED_GROUPS)
        changes = groups.sums(changes)
    changes = changes[changes != 0]
    observed = abs(changes.sum()) * (1 - 1e-12)
    if len(changes) <= _MAX_EXACT_CLUSTERS:
        signs = (np.arange(2 ** len(changes))[:, None] >> np.arange(len(changes)) & 1) * 2 - 1
        p = float(np.mean(np.abs(signs @ changes) >= observed))
        return PermutationTest(p, 2.0 ** (1 - max(len(changes), 1)), exact=True)
    extreme = 0
    for _ in range(_SWAPS // _SWAPS_PER_BATCH):
        signs = random.integers(0, 2, (_SWAPS_PER_BATCH, len(changes))) * 2 - 1
        extreme += int(np.sum(np.abs(signs @ changes) >= observed))
    return PermutationTest((extreme + 1) / (_SWAPS + 1), 1 / (_SWAPS + 1), exact=False)


@dataclass(frozen=True, slots=True)
class TypicalRatio:
    """How the second system changes the CER of a typical cluster, by the Wilcoxon signed-rank test.

    `ratio` is the second system's CER over the first's (Hodges and Lehmann 1963), `low` to `high` its 95 % interval by
    inversion of the test, None if the clusters are too few for one. `smallest_p` is as in `PermutationTest`.
    """

    ratio: float
    low: float | None
    high: float | None
    p: float
    smallest_p: float


def typical_ratio(paired: PairedErrors) -> TypicalRatio | None:
    """Test whether the second system changes the errors of a typical writer or page; None over single lines.

    Compared are the clusters' log ratios of errors, each count with half an error added. Each cluster counts the same
    however many lines it has, and a loop only moves the ratio of its own cluster.
    """
    clusters = paired.clusters
    kept = clusters.sums(paired.lengths) > 0
    if clusters.unit == "line" or not kept.any():
        return None
    first, second = (clusters.sums(errors)[kept] + 0.5 for errors in (paired.first, paired.second))
    values = np.log(second / first)

    def cross(start: float, end: float, is_before: Callable[[float], bool]) -> float:
        for _ in range(40):
            middle = (start + end) / 2
            start, end = (middle, end) if is_before(middle) else (start, middle)
        return (start + end) / 2

    least, most = float(values.min()) - 1e-9, float(values.max()) + 1e-9
    # Between the two middle means of pairs if their number is even.
    middles = (
        cross(least, most, lambda shift: _signed_ranks(values - shift)[0] > 0),
        cross(least, most, lambda shift: _signed_ranks(values - shift)[0] >= 0),
    )
    center = sum(middles) / 2
    p, smallest_p = _signed_ranks(values)[1], 2.0 ** (1 - max(1, int(np.count_nonzero(values))))
    if 2.0 ** (1 - len(values)) > 1 - LEVEL:
        return TypicalRatio(math.exp(center), None, None, p, smallest_p)
    low, high = (
        cross(center, end, lambda shift: _signed_ranks(values - shift)[1] > 1 - LEVEL) for end in (least, most)
    )
    return TypicalRatio(math.exp(center), math.exp(low), math.exp(high), p, smallest_p)


def _signed_ranks(values: Floats) -> tuple[float, float]:
    """Return the sum of the signed ranks, and Wilcoxon's two-sided p value: exact for up to 50 values, also with ties.

    Values of zero are left out; above 50, p is the normal approximation with its continuity correction.
    """
    values = np.round(values[values != 0], 12)  # log(2/3) and log(3/2) are a tie
    _, places, ties = np.unique(np.abs(values), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(ties) - ties + 1)[places]  # doubled, so that mean ranks are whole numbers
    total, signed = int(ranks.sum()), int(ranks @ np.sign(values))
    lower = (total - abs(signed)) // 2
    if len(ranks) > _MAX_EXACT_RANKS:
        return signed, min(1.0, 2 * float(special.ndtr((2 * lower + 2 - total) / math.sqrt(float(ranks @ ranks)))))
    ways = np.zeros(total + 1)
    ways[0] = 1
    for rank in ranks.tolist():
        ways[rank:] += ways[:-rank].copy()
    return signed, min(1.0, 2 * float(ways[: lower + 1].sum()) / 2.0 ** len(ranks))


def sign_test(better: int, worse: int) -> float:
    """Return the two-sided p value of the sign test."""
    return min(1.0, 2 * float(special.bdtr(min(better, worse), better + worse, 0.5)))
