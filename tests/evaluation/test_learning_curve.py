"""Forecasts recover known curves, cover later measurements, and compare runs on the same lines only."""

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine


def point(samples: int, cer: float, lines: int = 40) -> CurvePoint:
    """Make a run whose errors are spread evenly over long lines, so that their rounding does not matter."""
    scored = [ScoredLine(round(100_000 * cer), 100_000, f"w{number % 8}") for number in range(lines)]
    return CurvePoint(samples, samples // 4, scored)


FALLING = [point(200, 0.22), point(400, 0.165), point(800, 0.125)]


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.7])
def test_a_power_law_is_recovered(exponent: float) -> None:
    def truth(samples: float) -> float:
        return float(0.3 * (samples / 200) ** -exponent)

    forecast = Forecast([point(samples, truth(samples)) for samples in (200, 400, 800)], 800)
    assert forecast.expected.samples == 1600
    assert forecast.expected.low < truth(1600) < forecast.expected.high
    assert forecast.expected.rate == pytest.approx(truth(1600), rel=0.05)
    nearer = forecast.expect(900)
    assert nearer.high / nearer.low < forecast.expected.high / forecast.expected.low


@settings(max_examples=25)
@given(rates=st.lists(st.floats(0, 3), min_size=3, max_size=5), lines=st.integers(1, 9), ahead=st.integers(1, 3000))
def test_any_measurements_give_a_rate_inside_its_interval(rates: list[float], lines: int, ahead: int) -> None:
    points = [point(10 * 2**place, rate, lines) for place, rate in enumerate(rates)]
    expected = Forecast(points, ahead).expected
    assert 0 < expected.low <= expected.rate <= expected.high < math.inf


def simulated(random: np.random.Generator, sizes: Sequence[int]) -> list[CurvePoint]:
    """Make runs scored on twenty writers of different legibility, with the luck of each run."""
    a, b, c = random.uniform(0.5, 2), random.uniform(0.2, 0.8), random.uniform(0, 0.1)
    lengths, hard = random.integers(300, 1500, 20), random.lognormal(0, 0.35, 20)
    points = []
    for samples in sizes:
        errors = random.poisson((a * samples**-b + c) * random.lognormal(0, 0.05) * hard * lengths).tolist()
        lines = zip(errors, lengths.tolist(), strict=True)
        points.append(CurvePoint(samples, 1, [ScoredLine(*line, f"w{n}") for n, line in enumerate(lines)]))
    return points


def test_intervals_cover_later_measurements() -> None:
    random, inside = np.random.default_rng(5), 0
    for _ in range(60):
        *points, later = simulated(random, (80, 160, 320, 640))
        expected = Forecast(points, 320).expected
        inside += expected.low <= later.cer <= expected.high
    assert inside >= 54


def test_a_forecast_as_text_and_json() -> None:
    forecast = Forecast(FALLING, 800)
    assert forecast.helped
    assert "800 more lines (1,600 in all)" in str(forecast)
    written = json.loads(json.dumps(forecast.to_dict(), allow_nan=False))
    assert [point["samples"] for point in written["points"]] == [200, 400, 800]
    assert written["interval"] == {"level": 0.95, "unit": "writer", "clusters": 8}
    assert written["expected"]["low"] < 0.095 < written["expected"]["high"]
    assert not Forecast([*FALLING[:2], point(800, 0.165)], 800).helped, "as many errors are no gain"
