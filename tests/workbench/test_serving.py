"""What a workbench says in the terminal it runs in."""

import logging

import pytest

from dsocr.workbench.app import _is_of_interest


@pytest.mark.parametrize(
    ("error", "is_told"),
    [
        pytest.param(RuntimeError("No response returned."), False, id="somebody left before a picture was made"),
        pytest.param(RuntimeError("something else"), True, id="a fault"),
        pytest.param(ValueError("No response returned."), True, id="another fault"),
        pytest.param(None, True, id="a remark"),
    ],
)
def test_faults_are_told_and_visitors_who_left_are_not(error: Exception | None, is_told: bool) -> None:
    told = None if error is None else (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "Exception in ASGI application", None, told)
    assert _is_of_interest(record) is is_told
