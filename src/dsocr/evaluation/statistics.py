"""Confidence intervals of error rates, and tests for the difference between two systems that read the same lines.

Errors in lines of one writer, or of one page, are correlated, so whole clusters of lines are treated as independent
rather than single lines. Intervals are computed without random draws:

- The spread of a rate is estimated by the jackknife: each cluster is left out once (Efron 1982, The Jackknife, the
  Bootstrap and Other Resampling Plans, chapter 3), on a scale on which rates are nearly symmetric: the cube root
  (Wilson and Hilferty 1931), for shares of lines the arcsine of the square root.
- Degrees of freedom of Student's t are Satterthwaite's (1946), from how unevenly the clusters contribute.
- The interval is shifted towards the long tail, where hard writers and loops are, because a small test set more often
  lacks them than has them (Johnson 1978, Modified t Tests and Confidence Intervals for Asymmetrical Populations).

Lines of a cross-validation were read by several models, and all writers of a fold share the chance of one training. By
how much more the folds differ than their writers explain is added to the variance.

`benchmarks/intervals.py` measures their coverage; percentile bootstraps cover too little below about fifty writers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dsocr.html import counted

ClusterUnit = Literal["writer", "page", "line"]
Quantity = Literal["characters", "words", "lines"]
"""The unit of a rate. Character error rates can exceed 1, word error rates hardly do, a share of lines cannot."""

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Confidence level of all intervals."""

MIN_CLUSTERS = 5
"""Clusters needed for an interval: with four, coverage drops to 91 % when writers differ a lot."""


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

    def sums(self, values: Floats | Sequence[float]) -> Floats:
        """Sum values of lines within each cluster."""
        return np.bincount(self.of_line, weights=values, minlength=self.count).astype(np.float64)

    def __str__(self) -> str:
        return counted(self.count, self.unit)


def clusters_of(lines: Sequence[ClusteredLine], at_least: int = MIN_CLUSTERS) -> Clusters:
    """Cluster lines by writer if so many are known, else by page, else each line by itself.

    Lines without a writer, or page, form one cluster together: as several, they would make the interval too narrow.
    """
    units: tuple[tuple[ClusterUnit, list[str | None]], ...] = (
        ("writer", [line.writer for line in lines]),
        ("page", [line.page for line in lines]),
    )
    for unit, names in units:
        if len(set(names) - {None}) >= at_least:
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

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Low and high, or None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def ends(self) -> str:
        """Low and high in percent; empty if there is no interval."""
        return "{:.1f} to {:.1f} %".format(*(100 * end for end in self.bounds)) if self.bounds else ""

    def __str__(self) -> str:
        return f"{100 * self.level:.0f} % CI {self.ends}" if self.bounds else self.reason or "no interval"


def withheld_interval(new_writers: int) -> Interval:
    """Return that there is no interval: one over the pages of few new writers would not hold for the next one."""
    reason = f"{counted(new_writers, 'new writer')} only, where an interval needs {MIN_CLUSTERS}"
    return Interval(None, None, LEVEL, "writer", new_writers, reason)


def interval_of(
    errors: Floats,
    lengths: Floats,
    clusters: Clusters,
    of: Quantity = "characters",
    *,
    folds: NDArray[np.intp] | None = None,
) -> Interval:
    """Return the interval of sum(errors) / sum(lengths), both given per line; for a share of lines, lengths are 1.

    `folds` are the numbers, from 0, of the models that read the lines, if there were several.
    """
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count)
    part, whole = clusters.sums(errors), clusters.sums(lengths)
    if reason := _no_evidence(part, whole, clusters):
        return interval(None, None, reason=reason if part.any() or of != "lines" else "it holds for no line")

    def scale(part: Any, whole: Any) -> Any:
        ratio = np.divide(part, whole)
        return np.arcsin(np.sqrt(np.clip(ratio, 0, 1))) if of == "lines" else np.cbrt(ratio)

    error, freedom = jackknife(part, whole, scale)
    if not error:
        return interval(None, None, reason=f"all {clusters} are alike, so there is no spread to estimate")
    rate, effective = float(part.sum() / whole.sum()), effective_count(whole)
    skew = 1.0
    if of != "characters":
        # Words and lines are right or wrong. Extremes on both sides make a Student interval wide rather than wrong.
        skew, freedom = max(-1.0, 1 - 2 * rate), math.sqrt(freedom * (clusters.count - 1))
    middle = float(scale(part.sum(), whole.sum())) + skew_shift(skew, effective) * error
    if folds is not None:
        groups = Clusters("line", folds)
        fold_error, fold_freedom = jackknife(groups.sums(errors), groups.sums(lengths), scale)
        if (chance := fold_error**2 - error**2) > 0:  # of training; degrees of freedom by Satterthwaite (1946)
            freedom = fold_error**4 / (error**4 / freedom + chance**2 / fold_freedom)
            error = fold_error
    reach = student_quantile(freedom) * error
    low, high = max(0.0, middle - reach), middle + reach
    if of == "lines":
        return interval(math.sin(low) ** 2, math.sin(min(high, math.pi / 2)) ** 2)
    return interval(low**3, high**3)


def _no_evidence(part: Floats, whole: Floats, clusters: Clusters) -> str | None:
    """Return why there is no interval of a ratio; None if there is one."""
    if clusters.count < MIN_CLUSTERS:
        return f"{clusters} {'is' if clusters.count == 1 else 'are'} too few for an interval"
    if not whole.sum():
        return "the references are empty"
    if part.any():
        return None
    # Were the share higher, clusters without any would be this many in fewer than 1 of 20 cases.
    most = 1 - (1 - LEVEL) ** (1 / clusters.count)
    return (
        f"no errors on {clusters}, so at most {100 * most:.0f} % of all {clusters.unit}s have any "
        f"(exact bound at {100 * LEVEL:.0f} %)"
    )


def jackknife(part: Floats, whole: Floats, scale: Callable[[Any, Any], Any]) -> tuple[float, float]:
    """Return the standard error of a scaled ratio of sums, and its degrees of freedom, from each cluster's sums.

    The degrees of freedom are (sum of v)^2 / (sum of v^2), where v is a cluster's contribution to the variance: the
    number of clusters if all contribute the same, near 1 if one makes the whole spread.
    """
    kept = whole < whole.sum()  # the only cluster with text cannot be left out
    without = scale(part.sum() - part[kept], whole.sum() - whole[kept])
    contributions = (without - without.mean()) ** 2
    if contributions.sum() <= 1e-24 * max(1.0, float(without.mean() ** 2)):  # rounding errors
        return 0.0, 1.0
    count = len(contributions)
    return math.sqrt((count - 1) / count * contributions.sum()), effective_count(contributions)


def linear_freedom(whole: Floats) -> float:
    """Return Satterthwaite's degrees of freedom of a ratio of sums, from the clusters' shares of the whole alone.

    A ratio is the mean of the clusters' ratios, weighted by `whole`; under the working model that they vary inversely
    to their weights there is a closed form (Bell and McCaffrey 2002; Pustejovsky and Tipton 2018, equation 11).
    """
    share = whole[whole > 0] / whole.sum()
    pairs = share**2 / (1 - share)  # of every two clusters, the product is their squared covariance
    return 1 / float((share**2).sum() + pairs.sum() ** 2 - (pairs**2).sum())


def effective_count(weights: Floats) -> float:
    """Return how many equal weights would count as much: (sum of w)^2 / (sum of w^2)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def skew_shift(skew: float, count: float) -> float:
    """Return the shift of a mean's interval towards the long tail, in standard errors (Johnson 1978)."""
    return skew * (1 + 2 * student_quantile(math.inf) ** 2) / (6 * math.sqrt(count))


def student_quantile(freedom: float) -> float:
    """Return the two-sided quantile of Student's t distribution; fractional degrees of freedom count as at least 1."""
    if math.isinf(freedom):
        return NormalDist().inv_cdf((1 + LEVEL) / 2)
    freedom = max(freedom, 1.0)
    return math.sqrt(freedom * (1 / beta_quantile(freedom / 2, 0.5, 1 - LEVEL) - 1))


@lru_cache
def beta_quantile(first: float, second: float, share: float) -> float:
    """Return the quantile of the beta distribution with these parameters, of at least 0.5, to 1e-6.

    Its density is summed over the angle whose squared sine is the quantile, where it has no poles.
    """
    angles = np.linspace(0, math.pi / 2, 20_001)
    middles = (angles[1:] + angles[:-1]) / 2
    density = (2 * first - 1) * np.log(np.sin(middles)) + (2 * second - 1) * np.log(np.cos(middles))
    mass = np.cumsum(np.exp(density - density.max()))
    return math.sin(float(np.interp(share * mass[-1], mass, angles[1:]))) ** 2


@dataclass(frozen=True, slots=True)
class PairedErrors:
    """Errors of two systems on each line, the lines' lengths, and their clusters."""

    first: Floats
    second: Floats
    lengths: Floats
    clusters: Clusters


def difference_interval(paired: PairedErrors) -> Interval:
    """Return the interval of the second system's pooled rate minus the first's; negative if the second is better."""
    clusters = paired.clusters
    interval = partial(Interval, level=LEVEL, unit=clusters.unit, clusters=clusters.count)
    first, second, length = (clusters.sums(values) for values in (paired.first, paired.second, paired.lengths))
    if reason := _no_evidence(first + second, length, clusters):
        return interval(None, None, reason=reason)
    error, _ = jackknife(second - first, length, np.divide)
    if not error:
        return interval(None, None, reason=f"all {clusters} differ alike, so there is no spread to estimate")
    difference = float((second - first).sum() / length.sum())
    # The harder the writer, the larger the gain.
    relative = float((second - first).sum() / max(first.sum(), second.sum()))
    middle = difference + skew_shift(relative, effective_count(length)) * error
    reach = student_quantile(linear_freedom(length)) * error
    return interval(middle - reach, middle + reach)


def fit_logistic(
    inputs: Floats,
    shares: Floats,
    *,
    prior: Floats,
    precision: Floats | float,
    bounds: Sequence[tuple[float | None, float | None]],
    weight: Floats | float = 1.0,
) -> Floats | None:
    """Fit a logistic regression of shares between 0 and 1 by maximum a posteriori; None if that fails.

    `prior` and `precision` are of the normal distribution of each column's coefficient, `bounds` its limits.
    """

    def loss(coefficients: Floats) -> tuple[float, Floats]:
        odds, distance = inputs @ coefficients, coefficients - prior
        value = (weight * (np.logaddexp(0, odds) - shares * odds)).sum() + (precision * distance**2).sum() / 2
        return float(value), inputs.T @ (weight * (1 / (1 + np.exp(-odds)) - shares)) + precision * distance

    from scipy import optimize

    # The loss is convex; Newton's steps, however short, went astray where confidences hardly predict accuracy.
    fitted = optimize.minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-12)
    return np.asarray(fitted.x, dtype=np.float64) if fitted.fun <= loss(prior)[0] else None
