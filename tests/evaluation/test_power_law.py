"""Curves through a few points: what they find, what they leave open, and how often they are right."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.learning_curve import PowerLaw, fit_learning_curve


def scored(rates: list[float], clusters: int = 40, length: float = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Errors and lengths of clusters that are all alike."""
    return np.repeat(np.array(rates)[:, None], clusters, axis=1) * length, np.full(clusters, length)


def test_a_curve_without_noise_is_found_again() -> None:
    truth = PowerLaw(a=2.0, b=0.5, c=0.03)
    counts = [25, 50, 100, 200, 400, 800]
    curve = fit_learning_curve(counts, *scored([truth(count) for count in counts]))
    assert curve.rates == pytest.approx([truth(count) for count in counts])
    for count in (100, 800, 1600):
        assert curve.best(count) == pytest.approx(truth(count), rel=0.03)
        expected = curve.expect(count)
        assert expected.low < truth(count) < expected.high
        assert expected.rate == pytest.approx(truth(count), rel=0.05)
    needed = curve.needed(truth(1600))
    assert needed.low < 1600 < needed.high
    assert needed.count == pytest.approx(1600, rel=0.3)


def test_the_same_points_give_the_same_curve() -> None:
    data = scored([0.3, 0.2, 0.15])
    assert fit_learning_curve([1, 2, 4], *data).expect(8) == fit_learning_curve([1, 2, 4], *data).expect(8)


@pytest.mark.parametrize("counts", [[], [100], [100, 200], [100, 200, 200]])
def test_fewer_than_three_sizes_are_no_curve(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="3 sizes"):
        fit_learning_curve(counts, *scored([0.2] * len(counts)))


def test_farther_ahead_is_less_certain() -> None:
    curve = fit_learning_curve([50, 100, 200, 400], *scored([0.30, 0.22, 0.17, 0.13]))
    widths = [math.log(expected.high / expected.low) for expected in map(curve.expect, (400, 800, 1600, 4000))]
    assert widths == sorted(widths)


def test_fewer_clusters_are_less_certain() -> None:
    random = np.random.default_rng(3)
    hard = random.lognormal(0, 0.4, 60)
    errors, lengths = scored([0.30, 0.22, 0.17, 0.13], 60)
    few, many = (fit_learning_curve([50, 100, 200, 400], errors[:, :n] * hard[:n], lengths[:n]) for n in (6, 60))
    assert few.expect(800).high / few.expect(800).low > many.expect(800).high / many.expect(800).low


def test_a_curve_that_does_not_fall_is_level_and_never_reaches_less() -> None:
    curve = fit_learning_curve([50, 100, 200, 400], *scored([0.20, 0.21, 0.20, 0.21]))
    assert curve.expect(800).rate == pytest.approx(0.2, abs=0.02)
    needed = curve.needed(0.02)
    assert needed.count == math.inf
    assert needed.reached < 0.5


def test_no_error_at_all_is_half_an_error() -> None:
    curve = fit_learning_curve([50, 100, 200], *scored([0.1, 0.01, 0.0], clusters=1))
    assert curve.rates[-1] == 0.5 / 1000
    assert curve.expect(400).low >= 0


@given(
    rates=st.lists(st.floats(0, 3), min_size=3, max_size=7),
    clusters=st.integers(1, 9),
    ahead=st.integers(1, 100_000),
    target=st.floats(0, 1),
)
def test_whatever_was_measured_the_answer_is_a_rate_inside_its_interval(
    rates: list[float], clusters: int, ahead: int, target: float
) -> None:
    counts = [10 * 2**place for place in range(len(rates))]
    curve = fit_learning_curve(counts, *scored(rates, clusters, 100), draws=200)
    expected, needed = curve.expect(counts[-1] + ahead), curve.needed(target)
    assert 0 <= expected.low <= expected.rate <= expected.high < math.inf
    assert 0 < needed.low <= needed.count <= needed.high
    assert 0 <= needed.reached <= 1
    assert curve.best.a >= 0
    assert curve.best.c >= 0


def test_the_interval_holds_what_is_measured_later() -> None:
    """Sixty simulated forecasts with writers of different legibility and lucky trainings: nearly all come true."""
    random = np.random.default_rng(5)
    inside = 0
    for repeat in range(60):
        truth = PowerLaw(a=random.uniform(0.5, 2), b=random.uniform(0.2, 0.8), c=random.uniform(0, 0.1))
        counts = np.array([40, 80, 160, 320, 640])
        lengths = random.integers(300, 1500, 20).astype(float)
        hard = random.lognormal(0, 0.35, 20)
        rates = np.array([truth(count) for count in counts]) * random.lognormal(0, 0.06, 5)
        errors = random.poisson(rates[:, None] * hard * lengths).astype(float)
        expected = fit_learning_curve(counts[:-1].tolist(), errors[:-1], lengths, seed=repeat, draws=500).expect(640)
        inside += expected.low <= errors[-1].sum() / lengths.sum() <= expected.high
    assert inside >= 54
