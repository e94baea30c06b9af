"""Sentences about more lines: what is said, and when it is said that nobody can tell."""

import json

import pytest

from dsocr.errors import DataError
from dsocr.evaluation.learning_curve import Forecast, Point, ScoredLine


def point(samples: int, cer: float, lines: int = 40, *, writers: int | None = None) -> Point:
    """A training whose errors are spread alike over lines of a thousand characters."""
    names = [None if writers is None else f"w{number % writers}" for number in range(lines)]
    scored = [ScoredLine(f"l{number}", round(1000 * cer), 1000, names[number]) for number in range(lines)]
    return Point(samples, samples // 4, scored)


FALLING = [point(100, 0.30), point(200, 0.22), point(400, 0.165), point(800, 0.125)]


def test_more_lines_and_a_target_are_answered_in_a_sentence() -> None:
    forecast = Forecast.of("validation", FALLING, more=[300, 800], targets=[0.1])
    more, further, target, held = forecast.sentences()
    assert more.startswith("about 300 more lines -> CER 11.")
    assert " +- " in more
    assert more.endswith(" fewer errors")
    assert further.startswith("about 800 more lines -> CER ")
    assert target.startswith("a CER of 10.0% -> about ")
    assert held.startswith("held out: 800 lines score 12.5%; from the smaller trainings 13.")
    assert held.endswith("inside its interval")
    expected = forecast.more[1]
    assert expected.low < 0.095 < expected.high


@pytest.mark.parametrize(
    ("points", "more", "targets", "said"),
    [
        pytest.param(FALLING[:2], [300], [0.1], "cannot tell: 2 sizes are no curve, 3 are the fewest", id="two sizes"),
        pytest.param(FALLING, [90_000], [], "cannot tell, that is over 10 times", id="far beyond what was measured"),
        pytest.param(FALLING, [], [0.001], "cannot tell; ", id="a target that no curve tells of"),
        pytest.param(FALLING, [], [0.2], "is reached: 12.5% with 800 lines", id="a target that is behind"),
    ],
)
def test_what_cannot_be_told_is_said(points: list[Point], more: list[int], targets: list[float], said: str) -> None:
    forecast = Forecast.of("validation", points, more=more, targets=targets)
    assert said in " ".join(forecast.sentences())
    told = forecast.to_dict()
    assert [one["told"] for one in told["more"]] in ([], [False])
    json.dumps(told, allow_nan=False)


def test_the_largest_is_foretold_from_the_others_and_a_miss_is_said_aloud() -> None:
    missed = Forecast.of("test", [*FALLING[:3], point(800, 0.6)], more=[], targets=[])
    assert missed.held_out is not None
    assert not missed.held_out.inside
    assert missed.held_out.error < -0.3
    assert "OUTSIDE" in missed.sentences()[-1]
    assert Forecast.of("test", FALLING[:3], more=[], targets=[]).held_out is None


@pytest.mark.parametrize(
    ("writers", "unit", "clusters"),
    [
        pytest.param(8, "writer", 8, id="enough writers"),
        pytest.param(3, "line", 40, id="a few writers tell less than lines"),
        pytest.param(None, "line", 40, id="nobody known"),
    ],
)
def test_what_is_drawn_anew_for_the_interval(writers: int | None, unit: str, clusters: int) -> None:
    points = [point(samples, 0.2, writers=writers) for samples in (10, 20, 40)]
    forecast = Forecast.of("validation", points, more=[], targets=[])
    assert (forecast.unit, forecast.clusters) == (unit, clusters)


def test_trainings_scored_on_different_lines_are_not_compared() -> None:
    with pytest.raises(DataError, match="not scored on the same lines"):
        Forecast.of("validation", [*FALLING[:2], point(400, 0.1, 39)], more=[], targets=[])
