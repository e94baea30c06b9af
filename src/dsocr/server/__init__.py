"""An HTTP server that reads images for other programs. Importing it loads neither FastAPI nor torch."""

import re
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import READING, RunFolder

BASE = "base"
"""The model name of the base without an adapter."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def adapter_folder(path: Path) -> Path:
    """The adapter of a run folder, or the folder itself if it is an adapter."""
    return path if (path / READING).is_file() else RunFolder.open(path).adapter


def adapter_name(path: Path) -> str:
    """The name that clients use for an adapter: that of its run folder."""
    path = path.resolve()
    return path.parent.name if path.name == "adapter" else path.name


def check_adapter_name(name: str) -> None:
    """Raise RunError if `name` cannot be the name of an adapter."""
    if name == BASE or not _NAME.fullmatch(name):
        hint = "use letters, digits, dots, dashes and underscores; `base` is reserved for the base model"
        raise RunError(f"{name!r} is not a valid adapter name", code="adapter-name-invalid", hint=hint)
