"""Confidences of characters, words and lines from token scores, and the order of review."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.inference.confidence import (
    PLAIN,
    Calibration,
    Prediction,
    Scale,
    character_confidences,
    line_confidence,
    words_of,
)
from dsocr.inference.review import mark_doubtful, write_review
from dsocr.models.generation import ScoredText, TokenScore


def scored(text: str, *tokens: tuple[int, int, float]) -> ScoredText:
    """A text with tokens of (start, end, probability)."""
    return ScoredText(text, tuple(TokenScore(start, end, math.log(share)) for start, end, share in tokens))


@pytest.mark.parametrize(
    ("text", "tokens", "confidences"),
    [
        pytest.param("ёж", [(0, 1, 0.8), (0, 1, 0.5), (1, 2, 0.9), (2, 2, 0.1)], [0.4, 0.9], id="a letter of two"),
        pytest.param("да", [(0, 2, 0.7), (2, 2, 1.0)], [0.7, 0.7], id="two letters in one"),
    ],
)
def test_a_letter_is_as_sure_as_all_its_tokens(text: str, tokens: list[Any], confidences: list[float]) -> None:
    assert character_confidences(scored(text, *tokens)) == pytest.approx(confidences)


@pytest.mark.parametrize(
    ("tokens", "confidences"),
    [
        pytest.param([(0, 2, 0.9), (2, 3, 0.8), (3, 6, 0.5), (6, 6, 0.7)], [0.9 * 0.8, 0.5 * 0.7], id="a space"),
        pytest.param([(0, 2, 0.9), (2, 6, 0.5), (6, 6, 0.8)], [0.9 * 0.5, 0.5 * 0.8], id="a space before a word"),
    ],
)
def test_a_word_is_as_sure_as_its_tokens_and_its_end(tokens: list[Any], confidences: list[float]) -> None:
    words = words_of(scored("да нет", *tokens))
    assert [(word.text, word.start, word.end) for word in words] == [("да", 0, 2), ("нет", 3, 6)]
    assert [word.confidence for word in words] == pytest.approx(confidences)


def test_a_line_is_as_sure_as_its_tokens_on_average() -> None:
    assert line_confidence(scored("да", (0, 1, 0.9), (1, 2, 0.6), (2, 2, 0.3))) == pytest.approx(0.6)


def test_nothing_is_said_where_nothing_is_known() -> None:
    text = ScoredText("да")
    assert (character_confidences(text), words_of(text), line_confidence(text)) == ([], (), None)


@given(st.text("аб \n", max_size=20), st.data())
def test_every_word_and_character_has_a_probability(text: str, data: st.DataObject) -> None:
    shares = data.draw(st.lists(st.floats(1e-9, 1), min_size=len(text) + 1, max_size=len(text) + 1))
    tokens = [(place, min(place + 1, len(text)), share) for place, share in enumerate(shares)]
    whole = scored(text, *tokens)
    words = words_of(whole, Scale(0.5, 1.0))
    assert [word.text for word in words] == text.split()
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(0 <= word.confidence <= 1 for word in words)
    assert len(character_confidences(whole)) == len(text)


def prediction(text: str, confidence: float | None) -> Prediction:
    whole = scored(text, *((place, place + 1, 0.9) for place in range(len(text))), (len(text), len(text), 1.0))
    parts = tuple(line_confidence(part) for part in whole.lines())
    return Prediction("a.png", text, len(text) + 1, False, confidence=confidence, words=words_of(whole), lines=parts)


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        pytest.param({}, (), id="nothing the matter"),
        pytest.param({"text": " "}, ("empty",), id="nothing read"),
        pytest.param({"truncated": True}, ("truncated",), id="no end"),
        pytest.param({"looping": True, "retried": True}, ("looping", "retried"), id="a loop twice"),
        pytest.param({"overruled": 2}, ("overruled",), id="the guard interfered"),
    ],
)
def test_flags_name_the_problem(options: dict[str, Any], flags: tuple[str, ...]) -> None:
    assert replace(prediction("да", 0.9), **options).flags == flags


def test_the_lines_of_a_page_have_their_own_words_and_confidence() -> None:
    page = prediction("да нет\n\nи так", 0.9)
    parts = page.split_lines()
    assert [part.text for part in parts] == ["да нет", "", "и так"]
    for part in parts:
        assert [part.text[word.start : word.end] for word in part.words] == part.text.split()
    assert parts[1].flags == ("empty",)
    assert [part.confidence for part in parts] == list(page.lines)


def test_the_most_doubtful_come_first_and_flagged_ones_before_them(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "sure", "text": "да", "confidence": 0.99, "flags": [], "words": []},
        {"id": "looping", "text": "да", "confidence": 0.999, "flags": ["looping"], "words": []},
        {"id": "doubtful", "text": "да", "confidence": 0.4, "flags": [], "words": []},
        {"id": "empty", "text": "", "confidence": None, "flags": ["empty"], "words": []},
        {"id": "unknown", "text": "да", "confidence": None, "flags": [], "words": []},
    ]
    assert len(write_review(rows, tmp_path / "review.txt")[0]) == 1 + 5
    seen = (tmp_path / "review.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[2] for line in seen] == ["empty", "looping", "unknown", "doubtful", "sure"]
    assert seen[0] == "\tempty\tempty\t"
    assert seen[3] == "0.400\t\tdoubtful\tда"


def test_doubtful_words_are_marked_where_they_stand() -> None:
    words = [
        {"start": 0, "end": 2, "confidence": 0.4},
        {"start": 3, "end": 6, "confidence": 0.9},
        {"start": 7, "end": 10, "confidence": 0.1},
    ]
    assert mark_doubtful("да нет так", words) == "⟦да⟧ нет ⟦так⟧"


def test_calibration_maps_confidence_to_observed_accuracy() -> None:
    assert Calibration().character is PLAIN
    assert PLAIN(0.3) == pytest.approx(0.3)
    assert Scale(0.5, 0.0)(0.9) == pytest.approx(0.75)
    assert 0 < Scale(3.0, -2.0)(0.0) < Scale(3.0, -2.0)(1.0) <= 1
