import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.text import TextPolicy, comparable, is_blank

TEXTS = st.text(alphabet="ёйе \u0306\u0308\u00a0\u2003\u2028\t\r\nа.-", max_size=20) | st.text(max_size=20)


@pytest.mark.parametrize(
    ("policy", "text", "stored"),
    [
        pytest.param(TextPolicy(), "и\u0306од", "йод", id="composed"),
        pytest.param(TextPolicy(unicode="keep"), "и\u0306од", "и\u0306од", id="decomposed kept on request"),
        pytest.param(TextPolicy(), "  а\u00a0 \tб ", "а б", id="no-break spaces and tabs are spaces"),
        pytest.param(TextPolicy(), "а \n\n б\r\nв", "а\nб\nв", id="line breaks stay, blank lines go"),
        pytest.param(TextPolicy(spaces="keep"), " а  б\n", " а  б\n", id="spaces kept on request"),
        pytest.param(TextPolicy(), "Ёлка № 5…", "Ёлка № 5…", id="nothing else is folded"),
    ],
)
def test_policy_applies(policy: TextPolicy, text: str, stored: str) -> None:
    assert policy.apply(text) == stored


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        pytest.param(" а\n\u2003б ", "а б", id="a line break counts as a space"),
        pytest.param("е\u0308ж", "ёж", id="decomposed"),
        pytest.param("Еж № ½", "Еж № ½", id="case, compatibility characters and ё/е stay"),
        pytest.param("привет", "привет", id="Cyrillic is not punctuation"),
    ],
)
def test_comparable_text(text: str, seen: str) -> None:
    assert comparable(text) == seen


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        pytest.param("", True, id="nothing"),
        pytest.param(" \u00a0\n", True, id="white space"),
        pytest.param("\u200b\ufeff\u00ad", True, id="zero-width and soft hyphen"),
        pytest.param("-", False, id="a dash can be read"),
    ],
)
def test_blank_text(text: str, blank: bool) -> None:
    assert is_blank(text) is blank


@given(TEXTS)
@settings(deadline=None)
def test_doing_it_twice_changes_nothing(text: str) -> None:
    assert TextPolicy().apply(TextPolicy().apply(text)) == TextPolicy().apply(text)
    assert comparable(comparable(text)) == comparable(text)


@given(TEXTS)
@settings(deadline=None)
def test_storing_a_text_does_not_change_what_it_is_compared_as(text: str) -> None:
    assert comparable(TextPolicy().apply(text)) == comparable(text)
