"""Words are found and replaced on all pages; words that are known to be right, and what a doubtful one could be."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Outline
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import State, StoredLine
from dsocr.workbench.words import Hit, Query, WordList, counterpart, read_words, replace_all, search, variants, word_at
from tests.raising import raises_code


def found(store: CorrectionStore, query: Query) -> list[str]:
    return [one.line.text[start:end] for one in search(store, query) for start, end in one.spans]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(Query("СТРОКА"), ["строка", "строка"], id="any case"),
        pytest.param(Query("СТРОКА", match_case=True), [], id="this case"),
        pytest.param(Query("строк"), ["строк", "строк"], id="inside a word"),
        pytest.param(Query("строк", whole_words=True), [], id="whole words"),
        pytest.param(Query("the  third"), ["the third"], id="any white space"),
        pytest.param(Query("."), [], id="no pattern"),
        pytest.param(Query("строка", page=2), [], id="one page"),
        pytest.param(Query("№", whole_words=True), ["№"], id="a sign"),
    ],
)
def test_what_is_found(store: CorrectionStore, query: Query, expected: list[str]) -> None:
    assert found(store, query) == expected


def test_letters_are_found_however_they_are_composed(store: CorrectionStore) -> None:
    store.replace_texts([(store.lines()[0], "и\u0306од")], who="anna")
    assert found(store, Query("йод")) == ["и\u0306од"]
    store.replace_texts([(store.lines()[0], "йод")], who="anna")
    assert found(store, Query("и\u0306од")) == ["йод"]


def test_an_empty_query_is_an_error(store: CorrectionStore) -> None:
    with raises_code("edit-invalid"):
        list(search(store, Query("  ")))


def test_everything_is_replaced_or_nothing(store: CorrectionStore) -> None:
    before = store.lines()
    hits = list(search(store, Query("строка")))
    store.review(store.lines()[1], "другая строка", State.ACCEPTED, who="boris")
    with pytest.raises(StaleError):
        replace_all(store, hits, "линия", who="anna")
    assert store.lines()[0] == before[0]
    assert replace_all(store, list(search(store, Query("строка"))), "линия", who="anna") == 2
    assert [line.text for line in store.lines()[:2]] == ["первая линия", "другая линия"]
    assert store.lines()[1].state is State.ACCEPTED
    store.undo("anna")
    assert store.lines()[0].text == before[0].text


@given(st.text("aab ", max_size=30), st.text("ab", min_size=1, max_size=3))
def test_replacing_is_that_of_strings(text: str, wanted: str) -> None:
    line = replace(StoredLine(1, 1, 0, Outline((0, 0, 1, 1))), text=text)
    spans = tuple(match.span() for match in Query(wanted).pattern().finditer(text))
    assert Hit(line, spans).replaced("x") == text.replace(wanted, "x")


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
