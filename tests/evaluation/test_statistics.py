"""Intervals have their coverage and give none where the data cannot; paired tests agree with enumeration and SciPy."""

import math
from collections.abc import Iterator
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dsocr.evaluation.decide import decide, signed_rank_test, typical_ratio
from dsocr.evaluation.statistics import (
    Clusters,
    Interval,
    PairedErrors,
    Quantity,
    clusters_of,
    difference_interval,
    interval_of,
    jackknife,
    linear_freedom,
    student_quantile,
)
from tests.evaluation.making_runs import Line


def writers(*of_line: int) -> Clusters:
    return Clusters("writer", np.array(of_line, dtype=np.intp))


def interval_over_writers(errors: list[int], length: int, of: Quantity = "characters") -> Interval:
    """Return the interval of one line per writer."""
    counts = np.array(errors, dtype=float)
    return interval_of(counts, np.full(len(errors), float(length)), writers(*range(len(errors))), of)


def bounds_of(interval: Interval) -> tuple[float, float]:
    assert interval.bounds is not None, interval.reason
    return interval.bounds


def test_student_quantiles_are_those_of_scipy() -> None:
    for freedom in (1, 2.5, 30, math.inf):
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-5)


@pytest.mark.parametrize(
    ("lines", "unit", "count"),
    [
        pytest.param([Line(f"w{n % 5}", f"p{n}") for n in range(20)], "writer", 5, id="five writers"),
        pytest.param([Line(f"w{n % 4}", f"p{n % 7}") for n in range(20)], "page", 7, id="four writers, seven pages"),
        pytest.param([Line("w", f"p{n % 2}") for n in range(20)], "line", 20, id="one writer, two pages"),
        pytest.param([Line(f"w{n % 6}" if n < 18 else None) for n in range(20)], "writer", 7, id="unnamed are one"),
        pytest.param([Line([None, "a", "b", "c", "d"][n % 5]) for n in range(20)], "line", 20, id="four and unnamed"),
        pytest.param([], "line", 0, id="no line"),
    ],
)
def test_lines_are_clustered_by_the_widest_known_unit(lines: list[Line], unit: str, count: int) -> None:
    clusters = clusters_of(lines)
    assert (clusters.unit, clusters.count) == (unit, count)


@pytest.mark.parametrize(
    ("errors", "of"),
    [
        pytest.param([1, 2, 3, 1], "characters", id="four writers"),
        pytest.param([0] * 8, "characters", id="no error"),
        pytest.param([2] * 8, "characters", id="no spread"),
        pytest.param([10] * 8, "lines", id="a share of all"),
    ],
)
def test_no_interval_is_given_without_evidence(errors: list[int], of: Quantity) -> None:
    interval = interval_over_writers(errors, 10, of)
    assert interval.bounds is None
    assert str(interval) == interval.reason


def test_intervals_keep_to_their_range() -> None:
    low, high = bounds_of(interval_over_writers([20, 35, 8, 12, 90, 14], 10))
    assert 0 < low < 179 / 60 < high < math.inf, "an error rate can exceed 1"
    low, high = bounds_of(interval_over_writers([9, 10, 10, 8, 10, 3], 10, "lines"))
    assert 0 < low < 50 / 60 < high <= 1, "a share cannot"
    assert str(Interval(0.1, 0.159, 0.95, "writer", 20)) == "95 % CI 10.0 to 15.9 %"


def test_the_jackknife_error_of_a_mean_is_its_standard_error() -> None:
    values = np.array([3.0, 5.0, 4.0, 9.0, 1.0, 2.0])
    error, _ = jackknife(values, np.ones(6), lambda part, whole: part / whole)
    assert error == pytest.approx(stats.sem(values))


def test_the_interval_of_a_rate_leans_towards_hard_writers() -> None:
    """A small set more often lacks a hard writer than it has one; where most words are wrong, easy ones are missing."""
    low, high = bounds_of(interval_over_writers([9, 12, 8, 14, 10, 11], 100))
    assert high - 64 / 600 > 1.2 * (64 / 600 - low)
    low, high = bounds_of(interval_over_writers([90, 88, 92, 91, 87, 90], 100, "words"))
    assert 538 / 600 - low > 1.2 * (high - 538 / 600)


counts = st.tuples(st.integers(0, 40), st.integers(0, 400), st.integers(0, 60))


@given(st.lists(counts, max_size=40), st.sampled_from(get_args(Quantity)))
def test_an_interval_contains_its_rate_or_has_a_reason(rows: list[tuple[int, int, int]], of: Quantity) -> None:
    writer, errors, lengths = np.array(rows, dtype=float).reshape(-1, 3).T
    errors = np.minimum(errors, lengths) if of == "lines" else errors
    interval = interval_of(errors, lengths, clusters_of([Line(f"w{name}") for name in writer]), of)
    if interval.bounds is None:
        assert interval.reason
    else:
        low, high = interval.bounds
        rate = errors.sum() / lengths.sum()
        assert low <= rate * (1 + 1e-9)
        assert rate * (1 - 1e-9) <= high < math.inf


def simulate(seed: int, repeats: int) -> Iterator[tuple[Clusters, np.ndarray, np.ndarray, np.random.Generator]]:
    """Draw twelve writers with uneven numbers of lines: clusters, lengths of the lines, and relative error rates."""
    random = np.random.default_rng(seed)
    for _ in range(repeats):
        of_line = np.repeat(np.arange(12), 1 + random.negative_binomial(2, 0.1, 12))
        lengths = random.integers(12, 60, of_line.size)
        yield Clusters("writer", of_line), lengths, np.exp(0.6 * random.normal(size=12) - 0.18), random


def test_intervals_have_their_coverage() -> None:
    """`benchmarks/intervals.py` has the long table."""
    covered, truth = [], 0.12
    for clusters, lengths, writer_rates, random in simulate(5, 1000):
        errors = random.poisson(truth * writer_rates[clusters.of_line] * lengths)
        interval = interval_of(errors.astype(float), lengths.astype(float), clusters)
        if interval.bounds is not None:
            covered.append(interval.bounds[0] <= truth <= interval.bounds[1])
    assert len(covered) >= 990
    assert 0.92 <= np.mean(covered) <= 0.97


def test_intervals_over_folds_know_that_trainings_differ() -> None:
    """Five models read the folds of thirty writers; all writers of a fold share the luck of its run."""
    random, truth = np.random.default_rng(5), 0.1
    clusters, lengths = Clusters("writer", np.repeat(np.arange(30), 10)), np.full(300, 40.0)
    folds = clusters.of_line % 5
    covered: dict[float, list[bool]] = {0.0: [], 0.35: []}
    unaware = []
    for chance, found in covered.items():
        for _ in range(400):
            of_writer = np.exp(0.5 * random.normal(size=30) - 0.125)[clusters.of_line]
            of_training = np.exp(chance * random.normal(size=5) - chance**2 / 2)[folds]
            errors = random.poisson(truth * of_writer * of_training * lengths).astype(float)
            low, high = bounds_of(interval_of(errors, lengths, clusters, folds=folds))
            found.append(low <= truth <= high)
            if chance:
                low, high = bounds_of(interval_of(errors, lengths, clusters))
                unaware.append(low <= truth <= high)
    assert 0.92 <= np.mean(covered[0.0]) <= 0.98
    assert 0.90 <= np.mean(covered[0.35]) <= 0.97
    assert np.mean(unaware) < 0.87


def paired(first: list[float], second: list[float], of_line: list[int] | None = None) -> PairedErrors:
    """Pair lines of ten characters, each by a different writer unless given."""
    clusters = writers(*(range(len(first)) if of_line is None else of_line))
    return PairedErrors(np.array(first), np.array(second), np.full(len(first), 10.0), clusters)


pairs = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 7)), min_size=5, max_size=40)


@given(pairs)
def test_exchanging_the_systems_negates_the_interval(rows: list[tuple[int, int, int]]) -> None:
    first, second, names = ([*map(float, column)] for column in zip(*rows, strict=True))
    places = [sorted(set(names)).index(name) for name in names]
    there, back = difference_interval(paired(first, second, places)), difference_interval(paired(second, first, places))
    assert there.reason == back.reason
    if there.bounds is not None:
        low, high = there.bounds
        assert low <= (sum(second) - sum(first)) / (10 * len(rows)) <= high
        assert back.bounds == pytest.approx((-high, -low), abs=1e-9)


def test_the_interval_of_a_difference_leans_towards_large_gains() -> None:
    """The harder the writer, the larger the gain."""
    low, high = bounds_of(difference_interval(paired([10, 8, 12, 6, 9, 11, 7, 10], [4, 3, 5, 3, 3, 4, 2, 5])))
    assert low < -44 / 80 < high < 0
    assert (low + high) / 2 < -44 / 80 - 0.01


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param([1, 2, 3, 4], [0, 0, 1, 0], id="four writers"),
        pytest.param([1.0] * 6, [1.0] * 6, id="no difference"),
        pytest.param([2.0] * 6, [1.0] * 6, id="no spread"),
    ],
)
def test_no_interval_of_a_difference_is_given_without_evidence(first: list[float], second: list[float]) -> None:
    interval = difference_interval(paired(first, second))
    assert interval.bounds is None
    assert interval.reason


def test_intervals_of_a_difference_have_their_coverage() -> None:
    covered = []
    for clusters, lengths, writer_rates, random in simulate(9, 400):
        rates = 0.2 * writer_rates[clusters.of_line] * lengths
        gains = (0.5 * np.exp(0.3 * random.normal(size=12) - 0.045))[clusters.of_line]
        first, second = random.poisson(rates).astype(float), random.poisson(rates * gains).astype(float)
        interval = difference_interval(PairedErrors(first, second, lengths.astype(float), clusters))
        if interval.bounds is not None:
            covered.append(interval.bounds[0] <= -0.1 <= interval.bounds[1])
    assert len(covered) >= 380
    assert 0.92 <= np.mean(covered) <= 0.98


def test_degrees_of_freedom_are_those_of_the_matrix_formulas() -> None:
    """Pustejovsky and Tipton (2018), equation 11, for a regression on a constant with one row per cluster."""
    whole = np.array([40.0, 50.0, 60.0, 300.0, 70.0, 10.0])
    weights, working, root = np.diag(whole), np.diag(1 / whole), np.diag(whole**-0.5)
    ones = np.ones((6, 1))
    bread = np.linalg.inv(ones.T @ weights @ ones)
    residual_maker = np.eye(6) - ones @ bread @ ones.T @ weights
    inner = np.diag(root @ residual_maker @ working @ residual_maker.T @ root)
    adjusted = np.diag(root) ** 2 / np.sqrt(inner) * whole * bread[0, 0]
    vectors = adjusted[:, None] * residual_maker
    gram = vectors @ working @ vectors.T
    assert linear_freedom(whole) == pytest.approx(np.trace(gram) ** 2 / (gram**2).sum())
    assert linear_freedom(np.full(6, 100.0)) == pytest.approx(5)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7))
def test_the_test_of_the_typical_writer_enumerates_all_signs(rows: list[tuple[int, int]]) -> None:
    first, second = ([*map(float, column)] for column in zip(*rows, strict=True))
    tested, (ratio, ends) = signed_rank_test(paired(first, second)), typical_ratio(paired(first, second))
    values = np.log((np.array(second) + 0.5) / (np.array(first) + 0.5))
    values = values[values != 0]
    ranks = stats.rankdata(np.round(np.abs(values), 9))
    signs = np.array(list(product((-1, 1), repeat=len(values))), dtype=float).reshape(2 ** len(values), len(values))
    observed = float(ranks @ np.sign(values))
    assert tested.p == pytest.approx(float(np.mean(np.abs(signs @ ranks) >= abs(observed) - 1e-9)))
    assert np.sign(tested.direction) == np.sign(round(observed, 6))
    assert ends is None or ends[0] <= ratio <= ends[1]


@pytest.mark.parametrize("count", [7, 50, 51, 300])
def test_the_test_of_the_typical_writer_is_that_of_scipy(count: int) -> None:
    random = np.random.default_rng(count)
    first, second = random.integers(10_000, 20_000, (2, count)).astype(float)
    both = PairedErrors(first, 0.95 * second, np.full(count, 1e6), writers(*range(count)))
    values = np.log((0.95 * second + 0.5) / (first + 0.5))
    method = "exact" if count <= 50 else "approx"
    assert signed_rank_test(both).p == pytest.approx(stats.wilcoxon(values, method=method, correction=True).pvalue)
    ratio, ends = typical_ratio(both)
    averages = np.add.outer(values, values)[np.triu_indices(count)] / 2
    assert ratio == pytest.approx(math.exp(np.median(averages)), rel=1e-4)
    assert ends is not None
    excluded = stats.wilcoxon(values - math.log(ends[0] * 0.9999), method=method, correction=True).pvalue
    assert excluded <= 0.05


def test_no_corrected_p_is_below_that_of_a_smaller_one() -> None:
    """Holm's procedure, of p values of 2/256 and twice 4/256."""
    first, mixed = [10.0] * 8, [5.0] * 7 + [11.0]
    decisions = decide([paired(first, mixed), paired(first, [5.0] * 8), paired(first, mixed)])
    assert [decision.corrected_p for decision in decisions] == pytest.approx([8 / 256, 6 / 256, 8 / 256])


def test_a_loop_moves_the_typical_ratio_little() -> None:
    first, second = [10.0] * 12, [7.0, 8.0] * 6
    without, looping = paired(first, second), paired(first, [5000.0, *second[1:]])
    assert typical_ratio(without)[0] == pytest.approx(typical_ratio(looping)[0], rel=0.05)
    assert signed_rank_test(looping).p < 0.05
