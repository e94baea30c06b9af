"""Bases with random weights that several files read; tests must not change their folders."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.making_models import write_first, write_second
from tests.models.chat_models import small_processors, write_chat_model


@pytest.fixture(autouse=True, scope="package")
def _small_processors() -> Iterator[None]:
    with small_processors():
        yield


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory, copied_bases: set[Path]) -> dict[str, str]:
    """What to give as `base:` for each kind of DeepSeek-OCR."""
    folder = tmp_path_factory.mktemp("bases")
    first, second = write_first(folder / "first"), write_second(folder / "second")
    copied_bases |= {first, second}
    return {"deepseek_ocr": str(first), "deepseek_ocr_2": str(second), "nano": "nano"}


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model as Qwen3-VL is published."""
    return write_chat_model(tmp_path_factory.mktemp("chat") / "qwen", "qwen3_vl")
