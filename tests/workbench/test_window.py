"""What a window shows of a text, and what its server logs."""

import logging

import pytest
from lxml import html

from dsocr.workbench.page_view import highlighted_html
from dsocr.workbench.serving import _is_relevant


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
