"""Which characters and words count as right, and confidences that are fitted until they are reliable."""

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from dsocr.document import Sample, Split
from dsocr.errors import RunError
from dsocr.evaluation.calibration import (
    CalibrationReport,
    JudgedLine,
    Kind,
    Outcomes,
    fit_calibration,
    fit_scale,
)
from dsocr.evaluation.metrics import character_errors
from dsocr.inference.confidence import PLAIN, Calibration, Scale
from dsocr.inference.review import share_for
from dsocr.models.generation import ScoredText, TokenScore
from dsocr.runs import CALIBRATION


def with_scores(text: str, probability: float = 0.9) -> ScoredText:
    """Make a text whose every character, and the end, is a token of this probability."""
    places = [*((n, n + 1) for n in range(len(text))), (len(text), len(text))]
    return ScoredText(text, tuple(TokenScore(start, end, math.log(probability)) for start, end in places))


@pytest.mark.parametrize(
    ("reference", "text", "characters", "words"),
    [
        pytest.param("мир труд", "мир труд", "++++++++", "++", id="all right"),
        pytest.param("мир труд", "мир трут", "+++++++-", "+-", id="substitution"),
        pytest.param("мир труд", "мирр труд", None, "-+", id="insertion, ambiguous which"),
        pytest.param("мир труд", "мр труд", "+++++++", "-+", id="deletion inside a word"),
        pytest.param("мир труд", "ми труд", "+++++++", "-+", id="deletion at the end of a word"),
        pytest.param("мир труд", "ир труд", "+++++++", "-+", id="deletion at the start of a line"),
        pytest.param("мир труд", "миртруд", "+++++++", "-", id="two words run together"),
        pytest.param("мир труд", "мир тр уд", "++++++-++", "+--", id="a word split"),
        pytest.param("мир", "", "", "", id="empty prediction"),
        pytest.param("", "мир", "---", "-", id="empty reference"),
    ],
)
def test_which_characters_and_words_are_right(reference: str, text: str, characters: str | None, words: str) -> None:
    line = JudgedLine.compute(with_scores(text), reference)
    assert "".join("-+"[right] for right in line.words) == words
    if characters is not None:
        assert "".join("-+"[right] for right in line.characters) == characters


@given(st.text("аб в", max_size=12), st.text("аб в", max_size=12))
def test_errors_are_those_of_the_cer(reference: str, text: str) -> None:
    reference, text = " ".join(reference.split()), " ".join(text.split())
    line = JudgedLine.compute(with_scores(text), reference)
    assert (line.errors, line.length) == (character_errors(reference, text).errors, len(reference))
    assert sum(line.characters) <= len(reference)


def outcomes_of(pairs: list[tuple[float, float]]) -> Outcomes:
    return Outcomes(*np.array(pairs).reshape(-1, 2).T)


@pytest.mark.parametrize(
    "scale", [Scale(0.4, 0.0), Scale(1.6, -0.7), PLAIN], ids=["overconfident", "underconfident", "right"]
)
def test_a_fitted_scale_makes_confidences_reliable(scale: Scale) -> None:
    draw = np.random.default_rng(5)
    confidence = draw.beta(4, 1, 4000)
    outcomes = Outcomes(confidence, np.array([draw.random() < scale(one) for one in confidence], dtype=float))
    fitted = fit_scale(outcomes)
    assert fitted is not None
    assert fitted.slope == pytest.approx(scale.slope, abs=0.15)
    assert fitted.offset == pytest.approx(scale.offset, abs=0.2)
    scaled = Outcomes(np.array([fitted(one) for one in confidence]), outcomes.accuracy)
    assert scaled.calibration_error() <= 1.6 * scaled.chance_error()


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([(0.9, 1.0)] * 5, id="all right"),
        pytest.param([(0.9, 0.0)] * 5, id="all wrong"),
        pytest.param([(0.2, 1.0), (0.9, 0.0)], id="the more confident the worse"),
        pytest.param([(1.0, 1.0), (0.0, 0.0)], id="absolutely certain"),
        pytest.param([], id="nothing"),
    ],
)
def test_little_data_gives_a_reasonable_scale(pairs: list[tuple[float, float]]) -> None:
    scale = fit_scale(outcomes_of(pairs))
    assert scale is not None
    assert 0 <= scale.slope < 20
    assert 0 < scale(0.5) < 1
    assert scale(0.2) <= scale(0.9)


def test_a_fit_reaches_the_optimum_where_confidences_say_nothing() -> None:
    """Letters that a language model chose have odds from nearly none on, and are right all the same."""
    outcomes = Outcomes(expit(np.linspace(-14, 4, 100)), np.tile([1.0, 1.0, 0.0], 100)[:100])
    scale = fit_scale(outcomes)
    assert scale is not None
    assert scale.slope == pytest.approx(0, abs=0.01)
    assert scale(0.5) == pytest.approx(0.64, abs=0.03), "two of three are right"
    scaled = np.array([scale(confidence) for confidence in outcomes.confidence])
    right = outcomes.accuracy == 1
    assert -np.log(np.where(right, scaled, 1 - scaled)).sum() < 66.5, "an unrestricted optimum has 65.9"


def test_confidences_that_cannot_be_fitted_stay_and_are_named() -> None:
    assert fit_scale(outcomes_of([(math.nan, 1.0), (0.5, 0.0)])) is None
    calibration = fit_calibration([replace(line, accuracy=math.nan) for line in judged()])
    assert calibration.unfitted == ("line",)
    assert calibration.line == PLAIN != calibration.word
    assert "lines" in (calibration.problem or "")
    assert fit_calibration(judged()).problem is None


@given(st.floats(0, 5), st.floats(-5, 5), st.floats(0, 1), st.floats(0, 1))
def test_a_scale_keeps_the_order(slope: float, offset: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= Scale(slope, offset)(low) <= Scale(slope, offset)(high) <= 1


def test_few_words_move_a_scale_less_than_many() -> None:
    """A free fit on a dozen words is worse than none; see lab/verdicts.md."""

    def fitted(count: int) -> float:
        scale = fit_scale(outcomes_of([(0.9, 0.0)] * count))
        assert scale is not None
        return scale(0.9)

    few, some, many = (0.9 - fitted(count) for count in (3, 12, 400))
    assert few < some < many
    assert few < 0.5
    assert many > 0.85


def test_perfect_confidences_show_the_error_of_chance() -> None:
    draw = np.random.default_rng(5)
    confidence = draw.beta(6, 1, 400)
    drawn = (draw.random((400, 400)) < confidence).astype(np.float64)
    shown = [Outcomes(confidence, right).calibration_error() for right in drawn]
    assert Outcomes(confidence, confidence).chance_error() == pytest.approx(float(np.mean(shown)), rel=0.05)
    assert outcomes_of([]).chance_error() == 0


def test_the_calibration_error_is_the_mean_distance() -> None:
    outcomes = outcomes_of([(0.95, 1.0), (0.95, 1.0), (0.25, 1.0), (0.25, 0.0)])
    assert outcomes.calibration_error() == pytest.approx((2 * 0.05 + 2 * 0.25) / 4)
    assert outcomes_of([(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)]).calibration_error() == pytest.approx(1 / 3)
    assert outcomes_of([]).calibration_error() == 0


def judged() -> list[JudgedLine]:
    draw, lines = np.random.default_rng(3), []
    for _ in range(60):
        probability = float(draw.uniform(0.5, 1))
        text = "".join("а" if draw.random() < probability else "x" for _ in range(30))
        lines.append(JudgedLine.compute(with_scores(text, probability), "а" * 30))
    return lines


def test_the_estimated_cer_counts_letters_not_lines() -> None:
    """Numbers and names on lines of their own are read worse than long lines."""
    lines = [JudgedLine.compute(with_scores(text), "а" * len(text)) for text in ["а" * 60, "ббб"] * 30]
    report = report_on(lines)
    assert report.cer == pytest.approx(3 / 63)
    assert report.estimated_budget[0].rest == pytest.approx(report.cer, rel=0.1)


@pytest.mark.parametrize(
    ("writers", "expected"),
    [
        pytest.param(["a", "b", "c"], 0.9, id="few writers: new ones are read no better than by the base"),
        pytest.param(["a", "b", "c", "d", "e"], 1.0, id="as many as stand for others"),
        pytest.param([None], 0.9, id="one page"),
    ],
)
def test_few_hands_do_not_raise_confidences(writers: list[str | None], expected: float) -> None:
    base = Calibration(line=Scale(0.9, -0.7), word=Scale(0.9, -0.7), character=Scale(0.9, -0.7), lines=99)
    lines = [JudgedLine.compute(with_scores("мир труд", 0.95), "мир труд") for _ in range(60)]
    sample = Sample("id", Path(), "мир труд", Split.VALIDATION, page="1")
    samples = [replace(sample, writer=writers[n % len(writers)]) for n in range(60)]
    fitted = fit_calibration(lines, base, samples)
    assert fitted.few_hands == (expected < 1)
    for kind in get_args(Kind):
        scale = getattr(fitted, kind)
        assert scale.slope == 0.9, "a few lines do not tell it"
        assert scale(0.95) == pytest.approx(base.line(0.95)) if expected < 1 else scale(0.95) > 0.97


def test_a_verdict_says_where_confidences_promise_too_much() -> None:
    assert report_on(judged()).verdict is None
    assert report_on(judged()[:19], Calibration(line=Scale(1, 3))).verdict is None, "too few to say"
    assert "of the real errors" in (report_on(judged(), Calibration(line=Scale(1, 3))).verdict or "")


def report_on(lines: list[JudgedLine], calibration: Calibration | None = None) -> CalibrationReport:
    fitted = calibration or fit_calibration(lines)
    return CalibrationReport.compute(fitted, lines, dataset="letters", split=Split.TEST)


def test_checking_the_least_confident_first_leaves_fewer_errors() -> None:
    report = report_on(judged())
    budget, whole = report.budget, report.cer
    assert (budget[0].rest, budget[-1].rest, budget[-1].errors_found) == (whole, 0, 1)
    assert budget[len(budget) // 2].rest < 0.6 * whole, "in random order it would be the whole"
    assert 0 < share_for(budget, whole / 2) <= 0.6
    assert [point.share for point in report.estimated_budget] == [point.share for point in budget]
    assert report.estimated_budget[0].rest == pytest.approx(whole, rel=0.1), "it was fitted on these lines"


def test_correct_lines_need_no_checking() -> None:
    report = report_on([JudgedLine.compute(with_scores("мир"), "мир")] * 3)
    assert [point.errors_found for point in report.budget] == [1, 1, 1, 1]
    assert report.to_dict()["summary"] == report.summary
    assert report.estimate_summary


def test_lines_without_scores_have_no_confidence() -> None:
    lines = [JudgedLine.compute(scored, scored.text) for scored in (with_scores("мир труд"), ScoredText("май"))]
    counts = {kind: len(Outcomes.of(kind, lines).confidence) for kind in get_args(Kind)}
    assert counts == {"character": 8, "word": 2, "line": 1}


def test_a_saved_calibration_knows_lines_of_another_distribution(tmp_path: Path) -> None:
    assert Calibration.load(tmp_path) == Calibration()
    calibration = fit_calibration(judged())
    calibration.save(tmp_path)
    assert Calibration.load(tmp_path) == calibration
    draw = np.random.default_rng(4)
    similar, unlike = ([calibration.line(float(one)) for one in draw.uniform(low, 1, 40)] for low in (0.5, 0.95))
    for confidences, expected in ((similar, False), (unlike, True), (unlike[:3], False)):
        assert calibration.is_unlike(confidences) == expected
    narrow = Calibration(lines=60, line_quantiles=(0.4, 0.5, 0.6))
    assert narrow.is_unlike([0.1] * 5), "all below"
    assert narrow.is_unlike([0.9] * 5), "all above"
    assert not calibration.is_unlike([])
    assert not Calibration(lines=60).is_unlike(unlike), "it was fitted without any"


@pytest.mark.parametrize(
    ("mean", "lines", "expected"),
    [
        pytest.param(0.6, 20, True, id="half the letters are wrong"),
        pytest.param(0.75, 20, False, id="a difficult hand"),
        pytest.param(0.6, 5, False, id="too few lines"),
        pytest.param(None, 0, False, id="nothing was read"),
    ],
)
def test_unfamiliar_hands_are_known_by_their_mean_confidence(mean: float | None, lines: int, expected: bool) -> None:
    usual = Calibration(lines=60, line_quantiles=(0.8, 0.85, 0.9))
    assert usual.is_unfamiliar(mean, lines) is expected
    difficult = Calibration(lines=60, line_quantiles=(0.5, 0.65, 0.8))
    assert not difficult.is_unfamiliar(mean, lines), "its own collection is read no better"
    assert not Calibration().is_unfamiliar(mean, lines)


def test_the_lines_of_a_page_count_one_by_one() -> None:
    page = JudgedLine.compute(with_scores("мир\nтруд"), "мир\nтруд")
    fitted = fit_calibration([page])
    assert fitted.lines == 1
    assert fitted.line_quantiles == pytest.approx([0.9] * 21)


@pytest.mark.parametrize("content", ["{", '{"word": {"slope": -1}}', '{"words": {}}', '{"word": {"slope": NaN}}'])
def test_an_invalid_calibration_is_rejected(content: str, tmp_path: Path) -> None:
    (tmp_path / CALIBRATION).write_text(content, encoding="utf-8")
    with pytest.raises(RunError) as caught:
        Calibration.load(tmp_path)
    assert "--calibrate" in caught.value.render()
