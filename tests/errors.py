"""Assertions about errors: their codes, never their words."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dsocr.errors import DsocrError


@contextmanager
def raises_code(code: str) -> Iterator[pytest.ExceptionInfo[DsocrError]]:
    """Like `pytest.raises` for an error of this package with the given code."""
    with pytest.raises(DsocrError) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
