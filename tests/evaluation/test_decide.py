"""The judge of readings: whom it compares, and how often chance passes it."""

from collections.abc import Callable

import numpy as np
import pytest

from dsocr.evaluation.decide import is_better
from tests.evaluation.making_runs import Line

LINES = [Line() for _ in range(60)]
GAIN_OF_THREE = [3] * 57 + [0, 1, 2]
"""Three of sixty lines lose errors: a gain, and no more than chance gives."""


@pytest.mark.parametrize(
    ("lines", "before", "after", "expected"),
    [
        pytest.param(LINES, [3] * 60, [2] * 60, True, id="every line"),
        pytest.param(LINES, [2] * 60, [3] * 60, False, id="worse"),
        pytest.param(LINES, [3] * 60, [3] * 60, False, id="the same"),
        pytest.param(LINES, [3] * 60, GAIN_OF_THREE, False, id="three lines"),
        pytest.param(LINES[:5], [9] * 5, [0] * 5, False, id="five lines never decide"),
        pytest.param([Line(f"w{n % 6}") for n in range(60)], [3] * 60, [2] * 60, True, id="six writers"),
        pytest.param([Line(f"w{n // 10}") for n in range(60)], [3] * 60, [3] * 20 + [1] * 40, False, id="four of six"),
        pytest.param([Line("a", f"p{n // 10}") for n in range(60)], [3] * 60, [3] * 20 + [1] * 40, False, id="pages"),
        pytest.param([Line("a", f"p{n % 5}") for n in range(60)], [3] * 60, [2] * 60, True, id="lines of five pages"),
        pytest.param(LINES, [3] * 60, [2] * 59 + [90], False, id="a loop costs more than all lines gain"),
    ],
)
def test_better(lines: list[Line], before: list[int], after: list[int], expected: bool) -> None:
    assert is_better(lines, before, after) is expected


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda n: Line(), id="lines"),
        pytest.param(lambda n: Line(page=f"p{n // 5}"), id="pages"),
        pytest.param(lambda n: Line(writer=f"w{n // 10}"), id="writers"),
    ],
)
def test_chance_is_called_better_at_most_one_time_in_forty(place: Callable[[int], Line]) -> None:
    """Half of the false verdicts of a two-sided test at 5 % would be "worse"."""
    random, lines = np.random.default_rng(3), [place(n) for n in range(100)]
    found = 0
    for _ in range(400):
        rates = random.lognormal(0, 0.7, 100)
        found += is_better(lines, random.poisson(rates).tolist(), random.poisson(rates).tolist())
    assert found / 400 <= 0.045
