"""DSOCR-HW: teach DeepSeek-OCR to read a particular handwriting."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Scorecard": "dsocr.evaluation.scorecard",
    "cer": "dsocr.evaluation.metrics",
    "wer": "dsocr.evaluation.metrics",
}
"""Public names and the modules that define them, imported on first use."""


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]
