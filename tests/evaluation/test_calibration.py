"""Which characters and words count as right, and confidences that are fitted until they come true."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Split
from dsocr.errors import RunError
from dsocr.evaluation.calibration import (
    KINDS,
    Judged,
    Pairs,
    best_order,
    budget_curve,
    errors_by_chance,
    fit_calibration,
    fit_scale,
    foretold_sentence,
    measured,
)
from dsocr.evaluation.metrics import character_errors
from dsocr.evaluation.report.pages import render_calibration
from dsocr.inference.confidence import PLAIN, Calibration, Scale, ScoredText, TokenScore
from dsocr.inference.review import foretold_curve, share_for
from dsocr.runs import CALIBRATION


def plainly(text: str, probability: float = 0.9) -> ScoredText:
    """A text whose every character is a token of this probability, and the end token."""
    score = math.log(probability)
    places = [TokenScore(place, place + 1, score) for place in range(len(text))]
    return ScoredText(text, (*places, TokenScore(len(text), len(text), score)))


@pytest.mark.parametrize(
    ("reference", "text", "characters", "words"),
    [
        pytest.param("мир труд", "мир труд", "++++++++", "++", id="all right"),
        pytest.param("мир труд", "мир трут", "+++++++-", "+-", id="a letter exchanged"),
        pytest.param("мир труд", "мирр труд", None, "-+", id="a letter too many, whichever of the two"),
        pytest.param("мир труд", "мр труд", "+++++++", "-+", id="a letter missing within"),
        pytest.param("мир труд", "ми труд", "+++++++", "-+", id="a letter missing at the end"),
        pytest.param("мир труд", "миртруд", "+++++++", "-", id="two words run together"),
        pytest.param("мир труд", "мир тр уд", "++++++-++", "+--", id="a word torn apart"),
        pytest.param("мир", "", "", "", id="nothing read"),
        pytest.param("", "мир", "---", "-", id="something read where nothing stands"),
    ],
)
def test_what_is_right_of_a_line(reference: str, text: str, characters: str | None, words: str) -> None:
    judged = Judged.of(plainly(text), reference)
    assert "".join("-+"[right] for right in judged.words) == words
    if characters is not None:
        assert "".join("-+"[right] for right in judged.characters) == characters


@given(st.text("аб в", max_size=12), st.text("аб в", max_size=12))
def test_errors_are_those_of_the_cer(reference: str, text: str) -> None:
    reference, text = " ".join(reference.split()), " ".join(text.split())
    judged = Judged.of(plainly(text), reference)
    assert (judged.errors, judged.length) == (character_errors(reference, text).errors, len(reference))
    assert sum(judged.characters) <= len(reference)


def drawn(scale: Scale, count: int = 4000) -> Pairs:
    """What an overconfident reader says, and what comes true of it as the scale tells."""
    draw = np.random.default_rng(5)
    said = draw.beta(4, 1, count)
    return Pairs(said, np.array([draw.random() < scale(one) for one in said], dtype=float))


@pytest.mark.parametrize("scale", [Scale(0.4, 0.0), Scale(1.6, -0.7), PLAIN], ids=["too sure", "too modest", "right"])
def test_a_fitted_scale_makes_confidences_come_true(scale: Scale) -> None:
    pairs = drawn(scale)
    fitted = fit_scale(pairs)
    assert fitted.slope == pytest.approx(scale.slope, abs=0.15)
    assert fitted.offset == pytest.approx(scale.offset, abs=0.2)
    assert pairs.scaled(fitted).calibration_error() <= 1.6 * errors_by_chance(pairs.scaled(fitted)).mean()


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([(0.9, 1.0)] * 5, id="all right"),
        pytest.param([(0.9, 0.0)] * 5, id="all wrong"),
        pytest.param([(0.2, 1.0), (0.9, 0.0)], id="the surer the worse"),
        pytest.param([(1.0, 1.0), (0.0, 0.0)], id="absolutely sure"),
        pytest.param([], id="nothing"),
    ],
)
def test_a_handful_gives_no_absurd_scale(pairs: list[tuple[float, float]]) -> None:
    scale = fit_scale(Pairs.of(pairs))
    assert 0 <= scale.slope < 20
    assert 0 < scale(0.5) < 1
    assert scale(0.2) <= scale(0.9)


@given(st.floats(0, 5), st.floats(-5, 5), st.floats(0, 1), st.floats(0, 1))
def test_a_scale_keeps_the_order(slope: float, offset: float, one: float, other: float) -> None:
    scale = Scale(slope, offset)
    low, high = sorted((one, other))
    assert 0 <= scale(low) <= scale(high) <= 1


def test_few_words_move_a_scale_less_than_many() -> None:
    """A free fit on a dozen words is worse than none; see docs/experiments.md."""
    moved = []
    for count in (3, 12, 400):
        scale = fit_scale(Pairs.of([(0.9, 0.0)] * count))
        moved.append(0.9 - scale(0.9))
    assert moved == sorted(moved)
    assert moved[0] < 0.5
    assert moved[-1] > 0.85
    assert fit_scale(Pairs.of([(0.9, 0.0)] * 3), prior=1e-2)(0.9) < 0.1, "unless it is let"


@pytest.mark.parametrize("scale", [PLAIN, Scale(0.8, -0.2)], ids=["perfect", "too sure"])
def test_the_debiased_error_is_nearer_to_the_truth(scale: Scale) -> None:
    draw = np.random.default_rng(11)
    many = draw.beta(4, 1, 5000)
    error = Pairs(many, np.array([scale(one) for one in many])).calibration_error()
    plain, debiased = [], []
    for _ in range(100):
        said = draw.beta(4, 1, 300)
        true = np.array([draw.random() < scale(one) for one in said], dtype=float)
        plain.append(Pairs(said, true).calibration_error())
        debiased.append(Pairs(said, true).debiased_error())
    assert np.mean(plain) > error
    assert abs(np.mean(debiased) - error) < 0.7 * (np.mean(plain) - error)


def test_bins_that_say_0_or_1_are_taken_at_their_word() -> None:
    pairs = Pairs.of([(1.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
    assert pairs.debiased_error() == pytest.approx(pairs.calibration_error()) == pytest.approx(1 / 3)
    assert Pairs.of([]).debiased_error() == 0


def test_the_calibration_error_is_the_mean_distance() -> None:
    pairs = Pairs.of([(0.95, 1.0), (0.95, 1.0), (0.25, 1.0), (0.25, 0.0)])
    assert pairs.calibration_error() == pytest.approx((2 * 0.05 + 2 * 0.25) / 4)


def lines() -> list[Judged]:
    draw = np.random.default_rng(3)
    made = []
    for number in range(60):
        probability = float(draw.uniform(0.5, 1))
        text = "".join("а" if draw.random() < probability else "x" for _ in range(30))
        made.append(Judged.of(plainly(text, probability), "а" * 30))
        assert len(made) == number + 1
    return made


def test_checking_the_doubtful_first_leaves_fewer_errors() -> None:
    report = measured(fit_calibration(lines()), "letters", Split.TEST, lines())
    whole = report.budget[0].rest
    assert report.budget[-1].rest == 0
    assert report.budget[-1].found == 1
    half = report.budget[len(report.budget) // 2]
    assert half.rest < 0.6 * whole, "in random order it would be the whole"
    assert all(best.rest <= point.rest + 1e-12 for best, point in zip(report.best_budget, report.budget, strict=True))
    assert 0 < share_for(report.budget, whole / 2) <= 0.6


def test_lines_without_errors_need_no_checking() -> None:
    right = [Judged.of(plainly("мир"), "мир")] * 3
    curve = budget_curve(right, best_order(right))
    assert [point.found for point in curve] == [1, 1, 1, 1]
    assert share_for(curve, 0.0) == 0
    assert foretold_sentence(curve, foretold_curve([(0.9, 3)] * 3)) == "The confidences alone foretell 10.0% CER."


def test_the_report_says_beside_the_truth_what_the_confidences_foretell() -> None:
    report = measured(fit_calibration(lines()), "letters", Split.TEST, lines())
    shares = [(true.share, said.share) for true, said in zip(report.budget, report.foretold_budget, strict=True)]
    assert all(true == said for true, said in shares)
    assert report.foretold_budget[0].rest == pytest.approx(report.cer, rel=0.1), "it was fitted on these lines"
    assert report.as_dict()["foretold"].startswith("The confidences alone foretell ")


def test_the_page_escapes_and_says_what_it_is_measured_on() -> None:
    fitted = fit_calibration(lines())
    page = render_calibration(measured(fitted, "letters", Split.TEST, lines()), "<b>run")
    assert "<b>run" not in page
    assert "60 lines of the test split of letters" in page
    assert "test split" in render_calibration(measured(fitted, "letters", Split.VALIDATION, lines()), "run")


def test_lines_without_scores_say_nothing() -> None:
    judged = [Judged.of(plainly("мир труд"), "мир труд"), Judged.of(ScoredText("май"), "май")]
    assert {kind: len(pairs(judged, PLAIN).said) for kind, pairs in KINDS.items()} == {
        "character": 8,
        "word": 2,
        "line": 1,
    }


def test_a_calibration_comes_back_and_none_is_plain(tmp_path: Path) -> None:
    assert Calibration.load(tmp_path) == Calibration()
    saved = Calibration(Scale(1.5, -0.1), Scale(0.9, 0.2), Scale(1.0, 0.0), lines=12)
    saved.save(tmp_path)
    assert Calibration.load(tmp_path) == saved


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("{", "cannot be read", id="not JSON"),
        pytest.param('{"word": {"slope": -1}}', "slope", id="a slope that turns the order round"),
        pytest.param('{"words": {}}', "words", id="an unknown key"),
        pytest.param('{"word": {"slope": NaN}}', "slope", id="not a number"),
    ],
)
def test_a_broken_calibration_is_told(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / CALIBRATION).write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=message) as told:
        Calibration.load(tmp_path)
    assert "dsocr calibrate" in str(told.value.hint)
