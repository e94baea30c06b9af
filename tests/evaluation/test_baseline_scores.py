"""Baselines are scored as the competition cBAD does."""

import pytest

from dsocr.document import Outline, Point
from dsocr.evaluation.baseline_scores import BaselineRates, average_rates, score_baselines
from dsocr.evaluation.layout_scores import LayoutScores, LineCounts, PageLines


def line(*points: Point) -> Outline:
    return Outline((0, 0, 1, 1), (), points)


# Two lines 100 pixels apart: their tolerance is a quarter of that, 25, and what is 75 away does not cover them.
DRAWN = [line((0, 100), (400, 100)), line((0, 200), (400, 200))]

# The first example of the authors' tool. Expected values are what its version 0.1.3 prints, to four digits.
SKEWED = [
    line((29, 85), (1321, 93)),
    line((9, 220), (506, 220), (684, 204), (1139, 211)),
    line((32, 334), (537, 345), (621, 325), (1322, 336)),
    line((1399, 104), (2342, 103), (2611, 130)),
    line((1402, 220), (2259, 211), (2599, 229)),
    line((1395, 344), (2228, 326), (2661, 347)),
]


def moved(lines: list[Outline], across: int, down: int) -> list[Outline]:
    return [line(*((x + across, y + down) for x, y in outline.baseline)) for outline in lines]


@pytest.mark.parametrize(
    ("found", "precision", "recall"),
    [
        pytest.param(DRAWN, 1, 1, id="the same"),
        pytest.param(moved(DRAWN, 0, 25), 1, 1, id="as far as the tolerance"),
        # The upper line is 50 from the drawn one, (75 - 50) / (2 * 25); so is the lower one. The second drawn line is
        # 50 from each of them.
        pytest.param(moved(DRAWN, 0, 50), 0.5, 0.5, id="two tolerances"),
        pytest.param(moved(DRAWN, 0, -175), 0, 0, id="three tolerances"),
        pytest.param(DRAWN[:1], 1, 0.5, id="a line is missing"),
        pytest.param([*DRAWN, line((0, 900), (400, 900))], 2 / 3, 1, id="a line too many"),
        pytest.param(
            [line((0, 100), (200, 100)), line((202, 100), (400, 100)), DRAWN[1]], 2 / 3, 1, id="a line in two pieces"
        ),
        pytest.param([*DRAWN, DRAWN[0]], 2 / 3, 1, id="a line twice"),
        pytest.param([line((400, 100), (0, 100)), DRAWN[1]], 1, 1, id="from right to left"),
        pytest.param([], 1, 0, id="nothing"),
    ],
)
def test_rates_computed_by_hand(found: list[Outline], precision: float, recall: float) -> None:
    rates = score_baselines(DRAWN, found)
    assert rates is not None
    assert (rates.precision, rates.recall) == pytest.approx((precision, recall))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(moved(SKEWED, 0, 40), (0.7461, 0.7461), id="40 lower"),
        pytest.param(moved(SKEWED, 60, -35), (0.806, 0.8077), id="aside and higher"),
        pytest.param([line((29, 85), (700, 95), (2611, 130)), *SKEWED[1:]], (0.9194, 1.0), id="two columns joined"),
        pytest.param([line((500, 60), (510, 400)), *SKEWED[:2]], (0.766, 0.3471), id="a line that crosses others"),
    ],
)
def test_rates_of_the_authors_tool(found: list[Outline], expected: tuple[float, float]) -> None:
    rates = score_baselines(SKEWED, found)
    assert rates is not None
    assert (round(rates.precision, 4), round(rates.recall, 4)) == expected


def test_lines_without_a_baseline() -> None:
    bare = Outline((0, 0, 400, 30))
    assert score_baselines([bare], DRAWN) is None
    assert score_baselines([], []) == BaselineRates(1, 1)
    assert score_baselines([], DRAWN) == BaselineRates(0, 1)
    assert score_baselines([*DRAWN, bare], [*DRAWN, bare]) == BaselineRates(1, 1)
    assert BaselineRates(0, 0).f1 == 0


def test_a_line_alone_and_a_dot_have_tolerances() -> None:
    assert score_baselines(DRAWN[:1], moved(DRAWN[:1], 0, 62)) == BaselineRates(1, 1)  # a quarter of 250 pixels
    dot = line((10, 10))
    assert score_baselines([dot], [dot]) == BaselineRates(1, 1)


def test_scores_average_the_rates_of_pages() -> None:
    pages = [
        PageLines("p1", "d", LineCounts(2, 2, 2), LineCounts(2, 0, 0), BaselineRates(1, 0.5), BaselineRates(1, 0)),
        PageLines("p2", "d", LineCounts(1, 1, 1), LineCounts(1, 1, 1), None, None),
        PageLines("p3", "d", LineCounts(2, 2, 2), LineCounts(2, 2, 2), BaselineRates(0.6, 0.3), BaselineRates(1, 1)),
    ]
    scores = LayoutScores("run", "data", "test", pages).to_dict()
    assert scores["baselines"] == pytest.approx({"precision": 0.8, "recall": 0.4, "f1": 0.64 / 1.2})
    assert scores["documents"]["d"]["base"]["baselines"] == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3})
    assert scores["pages"]["p2"]["baselines"] is None
    assert average_rates([]) is None
