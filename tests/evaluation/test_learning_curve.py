"""Learning curves recover known curves, cover later measurements, and forecasts say what they cannot predict."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine, fit_learning_curve
from tests.raising import raises_code


@dataclass(frozen=True)
class PowerLaw:
    a: float
    b: float
    c: float
    n0: float = 0.0

    def __call__(self, count: float) -> float:
        return float(self.a * (count + self.n0) ** -self.b + self.c)


def similar_clusters(rates: list[float], clusters: int = 40, length: float = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Make errors and lengths of clusters that are all alike."""
    return np.repeat(np.array(rates)[:, None], clusters, axis=1) * length, np.full(clusters, length)


def test_a_curve_without_noise_is_recovered() -> None:
    truth = PowerLaw(a=2.0, b=0.5, c=0.03)
    counts = [25, 50, 100, 200, 400, 800]
    curve = fit_learning_curve(counts, *similar_clusters([truth(count) for count in counts]))
    for count in (100, 800, 1600):
        expected = curve.expect(count)
        assert expected.low < truth(count) < expected.high
        assert expected.rate == pytest.approx(truth(count), rel=0.05)
    needed = curve.needed(truth(1600))
    assert needed.low < 1600 < needed.high
    assert needed.count == pytest.approx(1600, rel=0.3)


def test_a_curve_from_a_base_is_recovered() -> None:
    truth = PowerLaw(a=5.0, b=0.7, c=0.0, n0=150)
    counts = [0, 25, 50, 100, 200, 400]
    errors, lengths = similar_clusters([truth(count) for count in counts])
    alone, from_base = fit_learning_curve(counts[1:], errors[1:], lengths), fit_learning_curve(counts, errors, lengths)
    for curve in (alone, from_base):
        for count in (800, 1600):
            expected = curve.expect(count)
            assert expected.low < truth(count) < expected.high
            assert expected.worthwhile > 0.9
        assert curve.expect(1600).rate == pytest.approx(truth(1600), rel=0.15)
    widths = [one.expect(1600).high / one.expect(1600).low for one in (from_base, alone)]
    assert widths[0] < widths[1], "the base tells something"


@pytest.mark.parametrize("base", [0.05, 0.2, 5.0])
def test_a_base_that_is_not_on_the_curve_changes_little(base: float) -> None:
    """A line recogniser's base has other letters, and a short training can make a base worse."""
    counts, rates = [0, 50, 100, 200, 400], [base, 0.30, 0.22, 0.17, 0.13]
    errors, lengths = similar_clusters(rates)
    alone, from_base = (fit_learning_curve(counts[n:], errors[n:], lengths).expect(800) for n in (1, 0))
    assert from_base.rate == pytest.approx(alone.rate, rel=0.05)


def test_a_curve_needs_three_sizes() -> None:
    with pytest.raises(ValueError, match="3 different sizes"):
        fit_learning_curve([100, 200, 200], *similar_clusters([0.2] * 3))
    with pytest.raises(ValueError, match="3 different sizes"):
        fit_learning_curve([0, 100, 200], *similar_clusters([0.2] * 3))


def test_extrapolation_and_fewer_clusters_are_less_certain() -> None:
    counts, rates = [50, 100, 200, 400], [0.30, 0.22, 0.17, 0.13]
    curve = fit_learning_curve(counts, *similar_clusters(rates))
    widths = [math.log(expected.high / expected.low) for expected in map(curve.expect, (400, 800, 1600, 4000))]
    assert widths == sorted(widths)
    difficulty = np.random.default_rng(3).lognormal(0, 0.4, 60)
    errors, lengths = similar_clusters(rates, 60)
    few, many = (fit_learning_curve(counts, errors[:, :n] * difficulty[:n], lengths[:n]).expect(800) for n in (6, 60))
    assert few.high / few.low > many.high / many.low


def test_intervals_have_the_noise_of_a_training_and_the_few_clusters_that_were_scored() -> None:
    counts = [50, 100, 200, 400]
    curve = fit_learning_curve(counts, *similar_clusters([0.30, 0.22, 0.17, 0.13]))
    low, high = np.quantile(curve.heights, [0.025, 0.975])
    expected = curve.expect(400)
    assert math.log(expected.high / expected.low) > 1.2 * math.log(high / low), "another training has other luck"
    rates = np.array([0.1, 0.2, 0.3])  # Student's t of two degrees of freedom: 0.2 with a standard error of 0.058
    few = fit_learning_curve(counts, np.tile(1000 * rates, (4, 1)), np.full(3, 1000)).expect(400)
    assert few.high / few.low > math.exp(2 * 4.3 * 0.058 / 0.2 * 0.7)


def test_a_flat_curve_never_reaches_a_lower_rate() -> None:
    curve = fit_learning_curve([50, 100, 200, 400], *similar_clusters([0.20, 0.21, 0.20, 0.21]))
    assert curve.expect(800).rate == pytest.approx(0.2, abs=0.02)
    needed = curve.needed(0.02)
    assert needed.count == math.inf
    assert needed.reached < 0.5


def test_no_errors_count_as_half_an_error() -> None:
    curve = fit_learning_curve([50, 100, 200], *similar_clusters([0.1, 0.01, 0.0], clusters=1))
    assert curve.expect(400).low >= 0


@settings(max_examples=25)
@given(
    rates=st.lists(st.floats(0, 3), min_size=3, max_size=7),
    clusters=st.integers(1, 9),
    ahead=st.integers(1, 100_000),
    target=st.floats(0, 1),
)
def test_any_measurements_give_a_rate_inside_its_interval(
    rates: list[float], clusters: int, ahead: int, target: float
) -> None:
    counts = [10 * 2**place for place in range(len(rates))]
    curve = fit_learning_curve(counts, *similar_clusters(rates, clusters, 100), draws=200)
    expected, needed = curve.expect(counts[-1] + ahead), curve.needed(target)
    assert 0 <= expected.low <= expected.rate <= expected.high < math.inf
    assert 0 < needed.low <= needed.count <= needed.high
    assert 0 <= needed.reached <= 1
    assert 0 <= expected.worthwhile <= 1


def test_two_clusters_that_differ_much_give_a_rate() -> None:
    errors, lengths = np.array([[40.0, 1], [30, 1], [24, 0], [20, 0]]), np.array([40.0, 8])
    curve = fit_learning_curve([0, 8, 16, 32], errors, lengths)
    assert 0 <= curve.expect(64).low < curve.expect(64).high < math.inf
    assert curve.needed(0.01).count > 0


def test_intervals_cover_later_measurements() -> None:
    """Sixty simulated forecasts with writers of different legibility and random runs."""
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


def point(samples: int, cer: float, lines: int = 40, *, writers: int | None = None) -> CurvePoint:
    """Make a run whose errors are spread evenly over lines of a thousand characters."""
    names = [None if writers is None else f"w{number % writers}" for number in range(lines)]
    scored = [ScoredLine(f"l{number}", round(1000 * cer), 1000, names[number]) for number in range(lines)]
    return CurvePoint(samples, samples // 4, scored)


FALLING = [point(100, 0.30), point(200, 0.22), point(400, 0.165), point(800, 0.125)]


def test_a_forecast_as_text_and_json() -> None:
    forecast = Forecast.compute("validation", FALLING[::-1], more=[300, 800], targets=[0.1])
    more, further, target, fall = forecast.sentences
    assert fall.startswith("check: 24 % fewer errors than with 400 lines")
    assert forecast.measured_fall == pytest.approx(1 - 0.125 / 0.165)
    assert forecast.fall_inside
    for sentence, lines, tenths in ((more, "300", 8), (further, "800", 10)):
        assert sentence.startswith(f"{tenths} of 10 plausible curves lose at least 10 % of their errors with {lines} ")
    assert target.startswith("a CER of 10.0 % takes about ")
    assert not {"->", "+-", "-0"} & set(" ".join(forecast.sentences).split())
    assert forecast.more[1].low < 0.095 < forecast.more[1].high
    written = json.loads(json.dumps(forecast.to_dict(), allow_nan=False))
    assert [one["in_range"] for one in (*written["more"], *written["targets"])] == [True] * 3
    assert Forecast.compute("validation", FALLING, more=[300, 800], targets=[0.1]).to_dict() == forecast.to_dict()


@pytest.mark.parametrize(
    ("points", "more", "targets", "sentence"),
    [
        pytest.param(FALLING[:2], [300], [0.1], "3 training sizes, not 2", id="two sizes"),
        pytest.param(FALLING, [90_000], [], "no forecast beyond 10 times", id="far beyond what was measured"),
        pytest.param(FALLING, [], [0.001], "no forecast; ", id="a target that hardly any curve reaches"),
        pytest.param(FALLING, [], [0.2], "is reached: 12.5 % with 800 lines", id="a target already reached"),
    ],
)
def test_an_unpredictable_curve_is_an_error(
    points: list[CurvePoint], more: list[int], targets: list[float], sentence: str
) -> None:
    forecast = Forecast.compute("validation", points, more=more, targets=targets)
    assert sentence in " ".join(forecast.sentences)
    written = json.loads(json.dumps(forecast.to_dict(), allow_nan=False))
    assert [one["in_range"] for one in written["more"]] in ([], [False])


def test_a_wrong_prediction_of_the_largest_training_is_reported() -> None:
    wrong = Forecast.compute("test", [*FALLING[:3], point(800, 0.6)], more=[], targets=[])
    check = wrong.to_dict()["check"]
    assert not check["inside"]
    assert check["measured"] < check["low"] < check["expected"]
    (sentence,) = wrong.sentences
    assert "OUTSIDE" in sentence
    assert sentence.startswith("check: 264 % more errors")
    assert Forecast.compute("test", FALLING[:3], more=[], targets=[]).expected_fall is None


def test_a_curve_at_its_floor_is_not_worth_more_lines() -> None:
    flat = Forecast.compute(
        "test", [point(n, 0.1 + 3 / n) for n in (100, 200, 400, 800, 1600)], more=[1600], targets=[]
    )
    assert flat.more[0].worthwhile < 0.1
    assert flat.sentences[0].startswith(("0 of 10", "1 of 10"))


def test_the_base_is_a_point_of_the_forecast() -> None:
    forecast = Forecast.compute("validation", [*FALLING, point(0, 0.5)], more=[800], targets=[0.1])
    assert [one["samples"] for one in forecast.to_dict()["points"]] == [0, 100, 200, 400, 800]
    assert forecast.fall_inside
    few = Forecast.compute("validation", [*FALLING[:2], point(0, 0.5)], more=[], targets=[])
    assert few.curve is None


def test_writers_are_resampled_if_there_are_enough() -> None:
    for writers, resampled in ((8, ("writer", 8)), (3, ("line", 40))):
        points = [point(samples, 0.2, writers=writers) for samples in (10, 20, 40)]
        forecast = Forecast.compute("validation", points, more=[], targets=[])
        assert (forecast.unit, forecast.clusters) == resampled


def test_trainings_scored_on_different_lines_are_not_compared() -> None:
    for points, code in (([*FALLING[:2], point(400, 0.1, 39)], "lines-differ"), ([point(1, 0.1, 0)], "no-lines")):
        with raises_code(code):
            Forecast.compute("validation", points, more=[], targets=[])
