"""Intervals: right against published quantiles and a simulation, honest where nothing can be said."""

import json
import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.statistics import (
    Clusters,
    Interval,
    Of,
    clusters_of,
    effective,
    freedom_of_one,
    interval_of,
    interval_of_sums,
    jackknife,
    lean,
    moderate,
    student,
)


@dataclass(frozen=True)
class Line:
    writer: str | None = None
    page: str | None = None


def writers(*of_line: int) -> Clusters:
    return Clusters("writer", np.array(of_line, dtype=np.intp))


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [
        pytest.param(1, 12.706205, id="one degree, Cauchy's distribution"),
        pytest.param(2, 4.302653, id="two"),
        pytest.param(5, 2.570582, id="five"),
        pytest.param(30, 2.042272, id="thirty"),
        pytest.param(math.inf, 1.959964, id="the normal distribution"),
    ],
)
def test_students_quantiles_are_those_of_the_tables(freedom: float, quantile: float) -> None:
    assert student(0.95, freedom) == pytest.approx(quantile, rel=1e-6)


@pytest.mark.parametrize(
    ("lines", "unit", "count"),
    [
        pytest.param([Line(f"w{n % 5}", f"p{n}") for n in range(20)], "writer", 5, id="five writers"),
        pytest.param([Line(f"w{n % 4}", f"p{n % 7}") for n in range(20)], "page", 7, id="four writers, seven pages"),
        pytest.param([Line("w", f"p{n % 2}") for n in range(20)], "line", 20, id="one writer, two pages"),
        pytest.param([Line() for _ in range(20)], "line", 20, id="nothing is known"),
        pytest.param(
            [Line(f"w{n % 6}" if n < 18 else None) for n in range(20)], "writer", 7, id="the unnamed count as one"
        ),
        pytest.param([], "line", 0, id="no line"),
    ],
)
def test_lines_are_clustered_by_the_widest_unit_that_is_known(lines: list[Line], unit: str, count: int) -> None:
    clusters = clusters_of(lines)
    assert (clusters.unit, clusters.count) == (unit, count)


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        pytest.param([1, 2, 3], "3 writers are too few to tell", id="three writers"),
        pytest.param([1], "1 writer is too few to tell", id="one"),
        pytest.param([0] * 8, "there is no error to tell a spread from", id="no error"),
        pytest.param([0] * 20 + [9], "the rate hangs on one or two of 21 writers", id="one has all the errors"),
        pytest.param([2] * 8, "all 8 writers are alike, which tells no spread", id="no spread"),
    ],
)
def test_where_nothing_can_be_told_a_sentence_stands_for_the_interval(errors: list[int], reason: str) -> None:
    interval = interval_of([ErrorRate(count, 10) for count in errors], writers(*range(len(errors))))
    assert (interval.low, interval.high, str(interval)) == (None, None, reason)


def test_rates_over_one_have_an_interval_around_them() -> None:
    interval = interval_of([ErrorRate(count, 10) for count in (20, 35, 8, 12, 90, 14)], writers(*range(6)))
    assert interval.low is not None
    assert interval.high is not None
    assert 0 < interval.low < 179 / 60 < interval.high < math.inf


def test_a_share_stays_between_none_and_all() -> None:
    interval = interval_of([ErrorRate(count, 10) for count in (9, 10, 10, 8, 10, 3)], writers(*range(6)), of="lines")
    assert interval.low is not None
    assert interval.high is not None
    assert 0 < interval.low < 50 / 60 < interval.high < 1


@pytest.mark.parametrize(("spread", "freedom"), [(0.1, 1.5), (0.9, 1.5), (0.9, 40.0)])
def test_a_moderate_error_lies_between_what_was_found_and_what_is_usual(spread: float, freedom: float) -> None:
    error = moderate(spread, freedom, 0.3**2, weight=1)
    assert min(spread, 0.3) < error < max(spread, 0.3)
    assert error**2 == pytest.approx((freedom * spread**2 + 0.09) / (freedom + 1))


@pytest.mark.parametrize("count", [5, 6, 20, 1000])
def test_one_cluster_that_makes_the_whole_spread_leaves_the_freedom_of_one(count: int) -> None:
    part = np.zeros(count)
    part[3] = 70
    _, freedom = jackknife(part, np.full(count, 10.0), lambda some, all_: some / all_)
    assert freedom == pytest.approx(freedom_of_one(count))


def test_clusters_of_equal_size_all_count_and_one_large_one_counts_alone() -> None:
    assert effective(np.full(8, 30.0)) == pytest.approx(8)
    assert effective(np.array([1e6, 1, 1, 1])) == pytest.approx(1, abs=1e-4)


def test_an_interval_leans_as_johnson_says() -> None:
    """His shift of a mean of 25 with skewness 2 is 2 (1 + 2 x 1.96^2) / (6 x 5) standard errors."""
    assert lean(2, 25, 0.95) == pytest.approx(2 * (1 + 2 * 1.959964**2) / 30, rel=1e-6)


def test_hands_that_happen_to_be_alike_do_not_make_the_interval_narrow() -> None:
    """Five alike hands are no reason to think that all are; two hundred are."""
    few, many = (
        interval_of([ErrorRate(count, 100) for count in (10, 10, 11, 10, 10) * times], writers(*range(5 * times)))
        for times in (1, 40)
    )
    assert few.low is not None
    assert few.high is not None
    assert few.high / few.low > 2
    assert many.low is not None
    assert many.high is not None
    assert many.high / many.low < 1.1


def test_an_interval_reaches_farther_up_than_down() -> None:
    """What a small test lacks is rather a hard hand or a loop than an easy hand."""
    interval = interval_of([ErrorRate(count, 100) for count in (9, 12, 8, 14, 10, 11)], writers(*range(6)))
    assert interval.low is not None
    assert interval.high is not None
    assert interval.high / (64 / 600) > 1.2 * (64 / 600) / interval.low


def test_where_most_words_are_wrong_hands_can_differ_less() -> None:
    """Nine of ten words wrong in each hand leave no room for twice as many, as nine of ten characters would."""
    rates = [ErrorRate(count, 100) for count in (90, 88, 92, 91, 87, 90)]
    words, characters = (interval_of(rates, writers(*range(6)), of=of) for of in ("words", "characters"))
    assert words.high is not None
    assert characters.high is not None
    assert words.high < 1.3 < 1.8 < characters.high


def test_an_interval_survives_json_and_reads_as_a_sentence() -> None:
    interval = Interval(0.1, 0.159, 0.95, "writer", 20)
    assert Interval.from_dict(json.loads(json.dumps(interval.as_dict()))) == interval
    assert str(interval) == "95 % CI 10.0 to 15.9 %"


counts = st.tuples(st.integers(0, 40), st.integers(0, 400), st.integers(0, 60))


@given(st.lists(counts, max_size=40), st.sampled_from(get_args(Of)))
def test_an_interval_holds_its_rate_or_is_not_given(rows: list[tuple[int, int, int]], of: Of) -> None:
    lines = [ErrorRate(min(errors, length) if of == "lines" else errors, length) for _, errors, length in rows]
    clusters = clusters_of([Line(f"w{writer}") for writer, *_ in rows])
    interval = interval_of(lines, clusters, of=of)
    pooled = sum(lines, ErrorRate())
    if interval.low is None or interval.high is None:
        assert interval.reason
    else:
        assert interval.low <= pooled.rate * (1 + 1e-9)
        assert pooled.rate * (1 - 1e-9) <= interval.high < math.inf


def test_ninety_five_of_a_hundred_intervals_hold_the_truth() -> None:
    """Twelve writers, as uneven in their hands as in their lines; `benchmarks/intervals.py` has the long table."""
    random = np.random.default_rng(5)
    given = held = 0
    truth = 0.12
    for _ in range(1000):
        lines = 1 + random.negative_binomial(2, 0.1, 12)
        of_line = np.repeat(np.arange(12), lines)
        lengths = random.integers(12, 60, of_line.size)
        hands = truth * np.exp(0.6 * random.normal(size=12) - 0.18)
        errors = random.poisson(hands[of_line] * lengths)
        interval = interval_of_sums(errors.astype(float), lengths.astype(float), Clusters("writer", of_line))
        if interval.low is not None and interval.high is not None:
            given += 1
            held += interval.low <= truth <= interval.high
    assert given >= 990
    assert 0.92 <= held / given <= 0.97
