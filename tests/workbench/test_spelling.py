"""Unknown words are found, and what a word could be instead."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.workbench.spelling import WordList, counterpart, read_words, variants, word_at

WORDS = [f"слово{'абвгдежзик'[n % 10]}{'абвгдежзик'[n // 10 % 10]}{'абв'[n // 100]}" for n in range(300)]


def test_words_of_accepted_texts_and_of_the_list_are_known(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("Москва\nрѣка\n", encoding="utf-8")
    words = WordList([" ".join(WORDS)], read_words(tmp_path))
    text = "москва, реку рѣка 25"
    assert [text[start:end] for start, end in words.unknown(text)] == ["реку"]
    assert words.similar("рѣку") == ["рѣка"]
    assert read_words(tmp_path / "none") == []


def test_nothing_is_unknown_to_a_short_list() -> None:
    assert WordList(WORDS[:299]).unknown("что угодно") == []


def test_frequent_words_come_first() -> None:
    assert WordList(["кот кит", "кит"]).similar("кат") == ["кит", "кот"]


def test_doubtful_letters_are_replaced() -> None:
    found = variants("дом,", (0.99, 0.4, 0.99, 0.9), WordList(["дым"]), ["о", "у", "."])
    assert found[0] == "дым,"
    assert {"дм,", "дум,", "дом", "дом."} <= set(found)
    assert "дом," not in found
    assert variants("дом", (0.99, 0.98, 0.97), WordList([]), ["у"]) == []


@pytest.mark.parametrize(
    ("text", "caret", "word"),
    [("раз два", 3, "раз"), ("раз два", 4, "два"), ("раз два", 7, "два"), ("раз  два", 4, None), ("", 0, None)],
)
def test_the_word_at_the_cursor(text: str, caret: int, word: str | None) -> None:
    span = word_at(text, caret)
    assert (text[slice(*span)] if span else None) == word


@pytest.mark.parametrize(
    ("text", "other", "word", "expected"),
    [
        ("une ile de", "une île de", "ile", "île"),
        ("dans le nord", "dans la nord", "le", "la"),
        ("abc def", "abc", "def", ""),
        ("premier mot", "premiers mot", "premier", "premiers"),
        ("mot a mot", "motamot", "a", "motamot"),
    ],
)
def test_the_same_word_is_found_in_another_reading(text: str, other: str, word: str, expected: str) -> None:
    start = text.index(word)
    assert other[slice(*counterpart(text, other, start, start + len(word)))] == expected


@given(st.text("ab ", max_size=12), st.text("ab ", max_size=12), st.data())
def test_a_counterpart_is_within_the_other_text(text: str, other: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    begin, stop = counterpart(text, other, start, end)
    assert 0 <= begin <= stop <= len(other)
    if text == other and start < end:
        assert begin <= start
        assert end <= stop
