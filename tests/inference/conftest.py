"""What holds for all tests here."""

import math

import pytest

from dsocr.io import processes


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are opened in the tests' own process, however slow the machine is; a test that wants others says so."""
    monkeypatch.setattr(processes, "START_AFTER", math.inf)
