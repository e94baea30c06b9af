"""Scans of lines that nobody transcribed."""

from pathlib import Path

import pytest

from tests.conftest import TEXTS, draw_line


def true_text(number: int) -> str:
    return f"{TEXTS[number % len(TEXTS)]} {number}"


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty lines, more than are read."""
    folder = tmp_path_factory.mktemp("scans")
    for number in range(40):
        draw_line(folder / f"scan-{number:02d}.png", true_text(number))
    return folder
