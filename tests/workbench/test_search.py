"""Texts are found on all pages and replaced in one change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.document import Outline
from dsocr.workbench.archive import Archive
from dsocr.workbench.search import Hit, Query, replace_all, search
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import State, StoredLine
from tests.raising import raises_code


@pytest.fixture
def store(empty_store: CorrectionStore, archive: Archive) -> CorrectionStore:
    """The lines of two pages."""
    return empty_store


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
        pytest.param(Query("строка", pages=frozenset({2})), [], id="one page"),
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
    with raises_code("search-empty"):
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
    assert Hit(line, spans).replaced("x", only=()) == text
