"""Hides the packages of the extras from Python, in every process that has this folder in PYTHONPATH."""

from importlib.machinery import PathFinder
from typing import Any

HIDDEN = (
    *("accelerate", "filelock", "huggingface_hub", "matplotlib", "onnxscript", "peft", "scipy", "tensorboard"),
    *("torch", "transformers", "pyarrow", "pypdfium2", "pikepdf", "openpyxl", "docx", "fontTools", "pillow_heif"),
    *("onnx", "sympy", "tokenizers"),
)

_find = PathFinder.find_spec


def _find_unhidden(name: str, *more: Any) -> Any:
    return None if name.partition(".")[0] in HIDDEN else _find(name, *more)


PathFinder.find_spec = staticmethod(_find_unhidden)  # type: ignore[method-assign, assignment]
