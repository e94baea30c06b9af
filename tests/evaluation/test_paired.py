"""Paired readings: the difference, its interval, and what chance alone would make."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.statistics import Clusters, Paired, difference_interval, sign_test, swap_test


def paired(first: list[float], second: list[float], of_line: list[int] | None = None) -> Paired:
    """Lines of ten characters, each of a writer of its own unless it is said whose they are."""
    places = np.array(range(len(first)) if of_line is None else of_line, dtype=np.intp)
    return Paired(np.array(first), np.array(second), np.full(len(first), 10.0), Clusters("writer", places))


def test_a_difference_has_an_interval_around_it() -> None:
    interval = difference_interval(paired([5, 4, 6, 3, 5, 4, 7, 5], [2, 3, 3, 1, 2, 2, 3, 3]))
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < -20 / 80 < interval.high < 0


def test_the_same_seed_gives_the_same_test() -> None:
    random = np.random.default_rng(1)
    both = paired([*random.integers(0, 9, 2500)], [*random.integers(0, 7, 2500)])
    assert swap_test(both, seed=3) == swap_test(both, seed=3)


readings = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 7)), min_size=5, max_size=40)


@given(readings)
def test_the_other_way_round_the_interval_is_the_same_with_its_sign_turned(rows: list[tuple[int, int, int]]) -> None:
    first, second, names = zip(*rows, strict=True)
    places = [sorted(set(names)).index(name) for name in names]
    there = difference_interval(paired([*map(float, first)], [*map(float, second)], places))
    back = difference_interval(paired([*map(float, second)], [*map(float, first)], places))
    assert there.reason == back.reason
    if there.low is not None and there.high is not None:
        assert there.low <= (sum(second) - sum(first)) / (10 * len(rows)) <= there.high
        assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-9)


def test_hands_that_happen_to_gain_alike_do_not_make_the_interval_narrow() -> None:
    """From five that gain nearly the same one cannot know that all would; from two hundred one can."""
    few, many = (difference_interval(paired([5.0, 5.0, 6.0, 5.0, 5.0] * times, [2.0] * 5 * times)) for times in (1, 40))
    assert few.low is not None
    assert few.high is not None
    assert few.high - few.low > 0.3
    assert many.low is not None
    assert many.high is not None
    assert many.high - many.low < 0.03


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        pytest.param([1, 2, 3, 4], [0, 0, 0, 0], "4 writers are too few to tell", id="four writers"),
        pytest.param([1.0] * 6, [1.0] * 6, "both have as many errors everywhere", id="nothing differs"),
        pytest.param([2.0] * 6, [1.0] * 6, "all 6 writers differ alike, which tells no spread", id="no spread"),
        pytest.param(
            [5.0] + [0.0] * 19,
            [0.0] * 20,
            "the size of the difference hangs on one of 20 writers",
            id="one differs",
        ),
        pytest.param(
            [900.0] + [5.0, 4.0, 6.0] * 4,
            [3.0] * 13,
            "the size of the difference hangs on one of 13 writers",
            id="one loops",
        ),
    ],
)
def test_where_nothing_can_be_told_a_sentence_stands_for_the_interval(
    first: list[float], second: list[float], reason: str
) -> None:
    interval = difference_interval(paired(first, second))
    assert (interval.low, interval.high, interval.reason) == (None, None, reason)


@pytest.mark.parametrize(
    ("first", "second", "p", "least"),
    [
        pytest.param([5, 5, 5, 5, 5], [1, 2, 3, 1, 2], 2 / 32, 2 / 32, id="five of five better: the least there is"),
        pytest.param([1, 5], [5, 1], 1.0, 0.5, id="one up, one down"),
        pytest.param([5, 5, 5], [1, 5, 5], 1.0, 1.0, id="a single one differs"),
        pytest.param([1, 1], [1, 1], 1.0, 1.0, id="nothing differs"),
    ],
)
def test_chance_is_counted_exactly_where_there_are_few(
    first: list[float], second: list[float], p: float, least: float
) -> None:
    tested = swap_test(paired(first, second))
    assert (tested.p, tested.least, tested.exact) == (p, least, True)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_the_exact_test_is_the_count_over_all_swaps(rows: list[tuple[int, int]]) -> None:
    changes = [second - first for first, second in rows]
    swaps = [sum(s * c for s, c in zip(signs, changes, strict=True)) for signs in product((1, -1), repeat=len(rows))]
    expected = sum(abs(value) >= abs(sum(changes)) for value in swaps) / len(swaps)
    tested = swap_test(paired([float(first) for first, _ in rows], [float(second) for _, second in rows]))
    assert tested.p == pytest.approx(expected)


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        pytest.param(0, 0, 1.0, id="no toss"),
        pytest.param(5, 5, 1.0, id="even"),
        pytest.param(5, 0, 2 / 32, id="five of five"),
        pytest.param(1, 9, 22 / 1024, id="one of ten"),
        pytest.param(540, 470, 0.0299, id="many"),
    ],
)
def test_a_coin_is_as_one_sided(better: int, worse: int, p: float) -> None:
    assert sign_test(better, worse) == pytest.approx(p, rel=0.01)


def test_lines_of_one_writer_are_swapped_together() -> None:
    """Twenty better lines are strong evidence by themselves and none at all when one hand wrote them."""
    first, second = [5.0] * 20, [1.0, 2.0] * 10
    assert swap_test(paired(first, second)).p < 0.001
    assert swap_test(paired(first, second, [0] * 20)).p == 1.0


def test_alike_readers_are_called_different_one_time_in_twenty() -> None:
    random = np.random.default_rng(8)
    found = 0
    for _ in range(400):
        hands = random.lognormal(0, 0.6, 10)
        first, second = random.poisson(8 * hands), random.poisson(8 * hands)
        found += swap_test(paired([*first.astype(float)], [*second.astype(float)])).p <= 0.05
    assert found / 400 <= 0.07


def test_ninety_five_of_a_hundred_intervals_hold_the_true_difference() -> None:
    random = np.random.default_rng(9)
    held = given = 0
    for _ in range(400):
        lines = 1 + random.negative_binomial(2, 0.1, 12)
        of_line = np.repeat(np.arange(12), lines)
        lengths = random.integers(12, 60, of_line.size).astype(float)
        rates = (0.2 * np.exp(0.6 * random.normal(size=12) - 0.18))[of_line] * lengths
        better = (0.5 * np.exp(0.3 * random.normal(size=12) - 0.045))[of_line]
        first, second = random.poisson(rates).astype(float), random.poisson(rates * better).astype(float)
        interval = difference_interval(Paired(first, second, lengths, Clusters("writer", of_line)))
        if interval.low is not None and interval.high is not None:
            given += 1
            held += interval.low <= -0.1 <= interval.high
    assert given >= 380
    assert 0.92 <= held / given <= 0.98
