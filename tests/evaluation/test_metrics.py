import math

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.evaluation.metrics import (
    ErrorRate,
    apart_word_errors,
    character_errors,
    is_caught_in_loop,
    is_empty,
    is_exact,
    is_in_wrong_script,
    is_runaway,
    spoken_points,
    with_words_apart,
    word_errors,
)
from dsocr.text import comparable

TEXTS = st.text(alphabet="абйёеЁ \u0306\u0308\u00a0\n.-", max_size=20) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("reference", "prediction", "errors"),
    [
        pytest.param("йод", "и\u0306од", 0, id="composed and decomposed й are equal"),
        pytest.param("ёлка", "елка", 1, id="ё and е differ unless the profile says so"),
        pytest.param("Петр", "петр", 1, id="case counts"),
        pytest.param("да, я", "да я", 1, id="punctuation counts"),
        pytest.param("чернила", "", 7, id="nothing read"),
        pytest.param("", "да", 2, id="nothing there to read"),
        pytest.param("привет", "пока", 5, id="Cyrillic is compared, not filtered out"),
        pytest.param("а б", "а  \n б", 0, id="amount and kind of white space do not count"),
        pytest.param("а б", "аб", 1, id="a missing space counts"),
        pytest.param("ты", "ты" * 50, 98, id="a loop is not clipped"),
    ],
)
def test_character_errors(reference: str, prediction: str, errors: int) -> None:
    assert character_errors(reference, prediction) == ErrorRate(errors, len(comparable(reference)))


@pytest.mark.parametrize(
    ("reference", "prediction", "expected"),
    [
        pytest.param("раз два три", "раз двa три", ErrorRate(1, 3), id="a Latin a inside a word is another word"),
        pytest.param("раз, два", "раз два", ErrorRate(1, 2), id="punctuation belongs to its word"),
        pytest.param("раз два", "раздва", ErrorRate(2, 2), id="two words run together"),
        pytest.param("", "", ErrorRate(0, 0), id="nothing on both sides"),
    ],
)
def test_word_errors(reference: str, prediction: str, expected: ErrorRate) -> None:
    assert word_errors(reference, prediction) == expected


@given(TEXTS, TEXTS)
@settings(deadline=None)
def test_jiwer_counts_the_same(reference: str, prediction: str) -> None:
    pair = comparable(reference), comparable(prediction)
    for ours, theirs in (
        (character_errors(reference, prediction), jiwer.process_characters(*pair)),
        (word_errors(reference, prediction), jiwer.process_words(*pair)),
    ):
        edits = theirs.substitutions + theirs.deletions + theirs.insertions
        assert ours == ErrorRate(edits, theirs.hits + theirs.substitutions + theirs.deletions)


@given(st.lists(st.tuples(TEXTS, TEXTS).filter(lambda pair: comparable(pair[0]) != ""), min_size=1, max_size=5))
@settings(deadline=None)
def test_jiwer_pools_the_same(pairs: list[tuple[str, str]]) -> None:
    references, predictions = ([comparable(text) for text in side] for side in zip(*pairs, strict=True))
    pooled = sum((character_errors(*pair) for pair in pairs), ErrorRate())
    assert pooled.rate == pytest.approx(jiwer.cer(references, predictions))


def test_a_long_line_weighs_more_than_a_short_one() -> None:
    lines = [
        character_errors("ты", "совсем не то"),
        character_errors("привет как дела у тебя", "привет как дела у тебя"),
    ]
    assert sum(lines, ErrorRate()).rate == pytest.approx(lines[0].errors / 24)
    assert lines[0].rate > 1


def test_an_empty_reference_has_a_rate_but_never_nan() -> None:
    assert ErrorRate().rate == 0.0
    assert ErrorRate(3, 0).rate == math.inf
    assert sum([ErrorRate(3, 0), ErrorRate(0, 6)], ErrorRate()).rate == 0.5, (
        "pooled, its insertions are ordinary errors"
    )


@pytest.mark.parametrize(
    ("reference", "prediction", "truncated", "runaway"),
    [
        pytest.param("ты", "ты", False, False, id="as long as it should be"),
        pytest.param("ты", "ты" * 12, False, False, id="twice the reference and 20 is still a line"),
        pytest.param("ты", "ты" * 12 + "т", False, True, id="one more is not"),
        pytest.param("ты", "ты", True, True, id="cut off before its end"),
        pytest.param("ты", " " * 99, False, False, id="white space alone is empty, not long"),
    ],
)
def test_runaway(reference: str, prediction: str, truncated: bool, runaway: bool) -> None:
    assert is_runaway(reference, prediction, truncated) is runaway


def test_empty_and_exact() -> None:
    assert is_empty("\u200b \n")
    assert not is_empty("-")
    assert is_exact("йод", "и\u0306од ")
    assert not is_exact("йод", "Йод")


@pytest.mark.parametrize(
    ("reference", "prediction", "wrong"),
    [
        pytest.param("Милая Соня", "Mилая Coня", False, id="two Latin twins in a Cyrillic line"),
        pytest.param("Милая Соня", "Munaa Cona", True, id="Latin for Cyrillic"),
        pytest.param("Милая Соня", "亲爱的索尼娅", True, id="Chinese for Cyrillic"),
        pytest.param("читал Voltaire", "chital Voltaire", False, id="a script that is in the reference too"),
        pytest.param("1914", "year", False, id="a reference without letters does not tell"),
        pytest.param("Милая", "1914", False, id="digits are of no script"),
        pytest.param("Милая", "", False, id="nothing read"),
    ],
)
def test_wrong_script(reference: str, prediction: str, wrong: bool) -> None:
    assert is_in_wrong_script(reference, prediction) is wrong


def test_a_loop_counts_only_where_the_text_has_none() -> None:
    assert is_caught_in_loop("ой, мороз", "ой " * 40)
    assert not is_caught_in_loop("ой " * 40, "ой " * 39)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("Да, я-то знаю!", ["Да", ",", "я", "-", "то", "знаю", "!"], id="every sign is a word"),
        pytest.param("№ 5+3 — «во»", ["№", "5", "+", "3", "—", "«", "во", "»"], id="symbols too"),
        pytest.param("молоко\u0301 কি", ["молоко\u0301", "কি"], id="accents and vowel signs stay with their letters"),
    ],
)
def test_words_with_punctuation_apart(text: str, words: list[str]) -> None:
    assert with_words_apart(text).split() == words
    assert apart_word_errors(text, "") == ErrorRate(len(words), len(words))


@pytest.mark.parametrize(
    ("points", "digits", "told"),
    [
        pytest.param(-11.24, 1, "-11.2", id="as many digits as are asked for"),
        pytest.param(0.04, 1, "+0.04", id="more, so that it is not told as none"),
        pytest.param(-0.0004, 2, "-0.0004", id="many more"),
        pytest.param(0.0, 2, "+0.00", id="none"),
        pytest.param(-1e-15, 1, "+0.0", id="the noise of computing"),
        pytest.param(math.inf, 1, "+inf", id="against an empty reference"),
    ],
)
def test_a_difference_is_told_from_none(points: float, digits: int, told: str) -> None:
    assert spoken_points(points, digits) == told
