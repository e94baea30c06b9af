"""What the window shows, the letters to type, and what is expected of further checking."""

import logging
from pathlib import Path

import pytest
from lxml import html

from dsocr.evaluation.metrics import ErrorRate
from dsocr.text import TextPolicy
from dsocr.workbench.line_field import GAPS, MARKS, load_keyboard
from dsocr.workbench.page_view import highlighted_html
from dsocr.workbench.serving import _is_relevant
from dsocr.workbench.session import Outlook, estimate_outlook
from tests.raising import raises_code


@pytest.mark.parametrize(
    ("text", "characters", "marked"),
    [
        pytest.param('<img src=x onerror="alert(1)">', (), [], id="no probabilities"),
        pytest.param("<b>&amp;", (0.99,) * 8, [], id="all likely"),
        pytest.param("a<b", (0.99, 0.2, 0.99), ["<"], id="a doubtful letter"),
    ],
)
def test_a_text_is_escaped_and_its_doubtful_letters_marked(
    text: str, characters: tuple[float, ...], marked: list[str]
) -> None:
    shown = html.fragment_fromstring(highlighted_html(text, characters), create_parent="div")
    assert shown.text_content() == text
    assert [element.text for element in shown.iterdescendants()] == marked


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        pytest.param(RuntimeError("No response returned."), False, id="a browser left before its image was ready"),
        pytest.param(RuntimeError("something else"), True, id="an error"),
        pytest.param(ValueError("No response returned."), True, id="another error"),
        pytest.param(None, True, id="no error"),
    ],
)
def test_only_browsers_that_left_early_are_not_logged(error: Exception | None, is_logged: bool) -> None:
    info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "message", None, info)
    assert _is_relevant(record) is is_logged


def test_sets_come_with_the_program(tmp_path: Path) -> None:
    english, russian = load_keyboard(tmp_path, "en"), load_keyboard(tmp_path, "ru")
    assert "ѣ" in english.sets["Pre-reform Russian"]
    assert [*english.sets.values()] == [*russian.sets.values()]
    assert english.shorthands["\\e"] == "ѣ"
    assert all(key and not key.isspace() for keys in english.sets.values() for key in keys)


def test_a_file_adds_to_them(tmp_path: Path) -> None:
    own = "sets:\n  - {name: Mine, keys: a b}\nshorthands: {'\\e': э, dsq: dominus}\n"
    (tmp_path / "keyboards.yaml").write_text(own, encoding="utf-8")
    keyboard = load_keyboard(tmp_path, "en")
    assert keyboard.sets["Mine"] == ("a", "b")
    assert (keyboard.shorthands["\\e"], keyboard.shorthands["dsq"], keyboard.shorthands["\\i"]) == ("э", "dominus", "і")


@pytest.mark.parametrize("text", ["sets: 3", "sets: [{name: a}]", "other: 1", "shorthands: {'': x}"])
def test_an_invalid_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "keyboards.yaml").write_text(text, encoding="utf-8")
    with raises_code("keyboard-invalid"):
        load_keyboard(tmp_path, "en")


def test_the_text_policy_knows_the_marks() -> None:
    strict = TextPolicy(struck="strip", unclear="drop-line")
    before, after = MARKS["mark_struck"]
    assert strict.apply(f"один {before}два{after} три") == "один три"
    for mark in (MARKS["mark_doubtful"][1], *GAPS.values()):
        assert strict.revise(f"один {mark} три").dropped == "unclear"


def test_errors_are_expected_where_the_model_doubts() -> None:
    waiting = [(True, 0.5, 100), (False, 0.9, 50), (False, 0.8, 50), (False, None, 100)]
    outlook = estimate_outlook([], waiting)
    assert outlook.expected == pytest.approx((10, 5))
    assert outlook.cer == pytest.approx(15 / 200)


def test_confidences_are_corrected_by_what_was_found() -> None:
    waiting = [(False, 0.9, 100)]
    judged = [(0.9, ErrorRate(2, 10))] * 20  # one error in ten was expected, two were found
    assert estimate_outlook(judged[:19], waiting).cer == pytest.approx(0.1)
    assert estimate_outlook(judged, waiting).cer == pytest.approx(0.2)
    assert estimate_outlook([(0.9, ErrorRate(90, 10))] * 20, waiting).cer == 1.0


def test_the_most_doubtful_lines_come_first() -> None:
    outlook = Outlook((5.0, 3.0, 1.0, 1.0), 100)
    assert [outlook.lines_until(cer) for cer in (0.2, 0.1, 0.05, 0.02, 0.0)] == [0, 0, 1, 2, 4]
