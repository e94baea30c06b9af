"""What a workbench logs in its terminal."""

import logging

import pytest

from dsocr.workbench.window import _is_relevant


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        pytest.param(RuntimeError("No response returned."), False, id="a browser left before its image was ready"),
        pytest.param(RuntimeError("something else"), True, id="an error"),
        pytest.param(ValueError("No response returned."), True, id="another error"),
        pytest.param(None, True, id="a message"),
    ],
)
def test_errors_are_logged_but_not_browsers_that_left(error: Exception | None, is_logged: bool) -> None:
    info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "Exception in ASGI application", None, info)
    assert _is_relevant(record) is is_logged
