"""Expect an error by its code, which stays the same when its wording improves."""

import pytest
from _pytest.raises import RaisesExc

from dsocr.errors import DsocrError


def raises_code(code: str, where: str | None = None) -> RaisesExc[DsocrError]:
    """Like `pytest.raises`, for an error of this package with the given code and a place that ends with `where`."""
    return pytest.raises(
        DsocrError, check=lambda error: error.code == code and str(error.where or "").endswith(where or "")
    )
