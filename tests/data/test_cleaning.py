"""Texts are put right only where it is certain what was meant, and what is right is left alone."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.check.text_checks import clean, invisible, look_alikes
from tests.data.test_letters import CLEAN


def cleaned(text: str) -> str:
    steps = clean(text)
    return steps[-1].after if steps else text


@pytest.mark.parametrize(
    ("text", "after", "code"),
    [
        pytest.param("сло\u00adво", "слово", "invisible-characters", id="a soft hyphen inside a line is not seen"),
        pytest.param("сло\u00ad", "сло-", "invisible-characters", id="at its end it is seen as a hyphen"),
        pytest.param("сло\u00ad\nво", "сло-\nво", "invisible-characters", id="at the end of a line of a page too"),
        pytest.param("5\u00a0кг", "5 кг", "invisible-characters", id="no-break space"),
        pytest.param("5 \u00a0\u202f кг", "5 кг", "invisible-characters", id="no second space is made"),
        pytest.param("\ufeffслово", "слово", "invisible-characters", id="byte order mark"),
        pytest.param("сло\u200bво\u2060", "слово", "invisible-characters", id="zero-width"),
        pytest.param("да\tнет", "да нет", "invisible-characters", id="tab"),
        pytest.param("да\x07\x00", "да", "invisible-characters", id="controls"),
        pytest.param("и\u0306од", "йод", "decomposed-characters", id="two characters for one"),
        pytest.param("мaма", "мама", "look-alikes", id="a Latin letter in a Cyrillic word"),
        pytest.param("Lоndоn", "London", "look-alikes", id="Cyrillic letters in a Latin word"),
        pytest.param("он a она", "он а она", "look-alikes", id="a word of one letter"),
    ],
)
def test_what_is_certain_is_put_right(text: str, after: str, code: str) -> None:
    (step,) = clean(text)
    assert (step.code, step.before, step.after) == (code, text, after)
    assert clean(after) == []


@pytest.mark.parametrize(
    "text",
    [
        *CLEAN,
        pytest.param("аaос", id="every letter is of both scripts"),
        pytest.param("Иc", id="as many of one as of the other"),
        pytest.param("DVDшка", id="letters that do not look alike"),
        pytest.param("\u200b\ufeff", id="nothing would be left"),
        pytest.param("значок \ue000", id="a private letter"),
        pytest.param("می\u200cخواهم", id="a joiner that its script needs"),
        pytest.param("строка\nстрока", id="lines of a page"),
    ],
)
def test_what_is_not_certain_is_left_alone(text: str) -> None:
    assert clean(text) == []


def test_several_steps_follow_each_other() -> None:
    first, second, third = clean("и\u0306од\u200b мaма")
    assert (first.after, second.before) == ("йод\u200b мaма", "йод\u200b мaма")
    assert (third.code, third.after) == ("look-alikes", "йод мама")


ANY_TEXT = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("аaоoсc \u00ad\u00a0\u200b\n\t"))
)


@given(ANY_TEXT)
def test_what_was_cleaned_is_clean(text: str) -> None:
    after = cleaned(text)
    assert clean(after) == []
    if after != text:
        assert unicodedata.is_normalized("NFC", after)
        assert all(unicodedata.category(character) == "Co" for character in invisible(after))


@given(st.text("абвгдежз abcdefz.,-"))
def test_only_letters_that_look_alike_are_replaced(text: str) -> None:
    after = cleaned(text)
    assert len(after) == len(text)
    assert {(old, new) for old, new in zip(text, after, strict=True) if old != new} <= {
        ("a", "а"),
        ("c", "с"),
        ("e", "е"),
        ("а", "a"),
        ("е", "e"),
    }
    assert len(list(look_alikes(after))) <= len(list(look_alikes(text)))
