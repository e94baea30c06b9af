"""Error rates agree with jiwer, and each metric and text normalisation counts exactly what it should."""

import math
from itertools import pairwise

import jiwer
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dsocr
from dsocr.evaluation.metrics import (
    ErrorRate,
    align,
    character_errors,
    format_change_interval,
    format_difference,
    has_new_loop,
    is_in_wrong_script,
    is_over_long,
    profile_rates,
    profiles,
    separate_punctuation,
    word_errors,
)
from dsocr.text import TextPolicy, comparable
from tests.raising import raises_code

TEXTS = st.text(alphabet="абйёеЁ \u0306\u0308\u00a0\n.-", max_size=20) | st.text(max_size=12)


def distance(one: str | list[str], other: str | list[str]) -> int:
    """The plain dynamic program, a row at a time."""
    row = list(range(len(other) + 1))
    for place, left in enumerate(one, start=1):
        above, row = row, [place]
        for (diagonal, up), right in zip(pairwise(above), other, strict=True):
            row.append(min(diagonal + (left != right), up + 1, row[-1] + 1))
    return row[-1]


@given(TEXTS, TEXTS)
@settings(deadline=None)
def test_jiwer_and_a_plain_program_count_the_same(reference: str, prediction: str) -> None:
    pair = comparable(reference), comparable(prediction)
    assert character_errors(reference, prediction).errors == distance(*pair)
    for ours, theirs in (
        (character_errors(reference, prediction), jiwer.process_characters(*pair)),
        (word_errors(reference, prediction), jiwer.process_words(*pair)),
    ):
        edits = theirs.substitutions + theirs.deletions + theirs.insertions
        assert ours == ErrorRate(edits, theirs.hits + theirs.substitutions + theirs.deletions)


@given(st.lists(st.tuples(TEXTS, TEXTS).filter(lambda pair: comparable(pair[0]) != ""), min_size=1, max_size=5))
@settings(deadline=None)
def test_public_rates_are_pooled_as_jiwer_pools_them(pairs: list[tuple[str, str]]) -> None:
    references, predictions = ([comparable(text) for text in side] for side in zip(*pairs, strict=True))
    assert dsocr.cer(references, predictions) == pytest.approx(jiwer.cer(references, predictions))
    assert dsocr.wer(references, predictions) == pytest.approx(jiwer.wer(references, predictions))
    assert dsocr.cer(*pairs[0]) == pytest.approx(jiwer.cer(references[0], predictions[0]))


@pytest.mark.parametrize(("references", "predictions"), [(["а"], ["а", "б"]), ([], ["а"]), ("а", ["а"]), (["а"], "а")])
def test_public_rates_need_a_prediction_per_reference(references: list[str], predictions: list[str]) -> None:
    for rate in (dsocr.cer, dsocr.wer):
        with raises_code("pair-mismatch"):
            rate(references, predictions)
        with raises_code("no-lines"):
            rate([], [])


def test_an_empty_reference_has_a_rate_but_never_nan() -> None:
    assert ErrorRate().rate == 0.0
    assert ErrorRate(3, 0).rate == math.inf
    assert sum([ErrorRate(3, 0), ErrorRate(0, 6)], ErrorRate()).rate == 0.5, "pooled insertions are ordinary errors"


@pytest.mark.parametrize(
    ("reference", "prediction", "over_long"),
    [
        pytest.param("ты", "ты" * 12, False, id="twice the reference plus 20"),
        pytest.param("ты", "ты" * 12 + "т", True, id="one more"),
        pytest.param("ты", " " * 99, False, id="white space is empty, not long"),
    ],
)
def test_over_long(reference: str, prediction: str, over_long: bool) -> None:
    assert is_over_long(reference, prediction) is over_long


def test_a_loop_is_new_if_the_reference_has_none() -> None:
    assert has_new_loop("ой, мороз", "ой " * 40)
    assert not has_new_loop("ой " * 40, "ой " * 39)


@pytest.mark.parametrize(
    ("reference", "prediction", "wrong"),
    [
        pytest.param("Милая Соня", "Mилая Coня", False, id="two Latin twins in a Cyrillic line"),
        pytest.param("Милая Соня", "Munaa Cona", True, id="Latin for Cyrillic"),
        pytest.param("Милая Соня", "亲爱的索尼娅", True, id="Chinese for Cyrillic"),
        pytest.param("читал Voltaire", "chital Voltaire", False, id="a script that the reference has too"),
        pytest.param("1914", "year", False, id="a reference without letters has no script"),
        pytest.param("Милая", "1914", False, id="digits have no script"),
        pytest.param("Милая", "", False, id="empty prediction"),
    ],
)
def test_wrong_script(reference: str, prediction: str, wrong: bool) -> None:
    assert is_in_wrong_script(reference, prediction) is wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("Да, я-то знаю!", ["Да", ",", "я", "-", "то", "знаю", "!"], id="punctuation"),
        pytest.param("№ 5+3 — «во»", ["№", "5", "+", "3", "—", "«", "во", "»"], id="symbols"),
        pytest.param("молоко\u0301 কি", ["молоко\u0301", "কি"], id="accents and vowel signs stay with their letters"),
    ],
)
def test_separated_punctuation_counts_as_words(text: str, words: list[str]) -> None:
    assert separate_punctuation(text).split() == words
    rates = profile_rates([text], [""], profiles()[:1])["raw"]
    assert rates.wer_punctuation_apart == ErrorRate(len(words), len(words))


@pytest.mark.parametrize(
    ("points", "text"),
    [
        pytest.param(-11.24, "11.2", id="one digit"),
        pytest.param(0.051, "0.1", id="rounded up"),
        pytest.param(0.04, "0.04", id="more, so that it does not look like zero"),
        pytest.param(-0.0004, "0.0004", id="many more"),
        pytest.param(-1e-15, "0.0", id="numerical noise"),
        pytest.param(math.inf, "inf", id="against an empty reference"),
    ],
)
def test_a_small_difference_does_not_look_like_zero(points: float, text: str) -> None:
    assert format_difference(points) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        pytest.param(-11.6, -5.8, "5.8 to 11.6", id="better"),
        pytest.param(5.8, 11.6, "5.8 to 11.6", id="worse"),
        pytest.param(-1.4, 0.6, "1.4 better to 0.6 worse", id="either"),
    ],
)
def test_an_interval_of_a_change_says_which_way_it_goes(low: float, high: float, text: str) -> None:
    assert format_change_interval(low, high) == text


def test_aligned_spans_alternate() -> None:
    assert [*align("Милая  Соня, 25", "Милая воня RR 25")] == [
        ("Милая ", "Милая "),
        ("С", "в"),
        ("оня", "оня"),
        (",", " RR"),
        (" 25", " 25"),
    ]


PROFILES = {profile.name: profile for profile in profiles()}
PROFILE_TEXTS = st.text("абё Ѣъі5٣.,—> <\u0306\n", max_size=20) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("name", "text", "normalized"),
    [
        pytest.param("raw", "Ёлка, №5", "Ёлка, №5", id="nothing"),
        pytest.param("without_case", "ЁЛКА Straße", "ёлка strasse", id="case, in every script"),
        pytest.param("without_punctuation", "«Да», — сказал он; как-то №5!", "Да сказал он както №5", id="punctuation"),
        pytest.param("without_punctuation", "नमस्ते। 你好。", "नमस्ते 你好", id="other scripts' stops, not their marks"),
        pytest.param("without_accents", "été à ёж, чай", "ete a ёж, чай", id="accents"),
        pytest.param("yo_as_e", "Ёлка ещё", "Елка еще", id="ё"),
        pytest.param("pre_reform", "Въ мірѣ Ѳеодоръ, сѵнодъ", "В мире Феодор, синод", id="old spelling"),
        pytest.param("pre_reform", "объѣздъ из-подъ ъ", "объезд из-под ъ", id="ъ inside a word stays"),
        pytest.param("digits_only", "5-го мая 1914 г.", "5 1914", id="numbers"),
        pytest.param("digits_only", "٣ и ½", "٣", id="digits of every script, no fractions"),
        pytest.param("without_struck", "это >того< было ~~не~~ там", "это было там", id="struck out"),
    ],
)
def test_profiles_normalize(name: str, text: str, normalized: str) -> None:
    assert PROFILES[name].apply(comparable(text)) == normalized


def test_struck_marks_can_be_chosen() -> None:
    marks = TextPolicy(struck_marks=(("{", "}"),)).struck_marks
    assert {profile.name: profile for profile in profiles(marks)}["without_struck"].apply("a {b} >c<") == "a >c<"


@given(st.lists(st.tuples(PROFILE_TEXTS, PROFILE_TEXTS), max_size=5))
def test_profile_rates_are_the_metrics_of_the_normalized_texts(pairs: list[tuple[str, str]]) -> None:
    references, predictions = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for name, rates in profile_rates(references, predictions, profiles()).items():
        normalized = [[PROFILES[name].apply(comparable(text)) for text in pair] for pair in pairs]
        separated = [[separate_punctuation(text) for text in pair] for pair in normalized]
        assert rates.cer == sum((character_errors(*pair) for pair in normalized), ErrorRate())
        assert rates.wer == sum((word_errors(*pair) for pair in normalized), ErrorRate())
        assert rates.wer_punctuation_apart == sum((word_errors(*pair) for pair in separated), ErrorRate())
