"""An HTTP server that reads images for other programs. Importing it loads neither FastAPI nor torch."""

import re
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import RunFolder

BASE = "base"
"""The model name of the base without an adapter."""

_NAME = re.compile(r"[^\W_][\w. -]{0,63}")


def adapter_folder(path: Path) -> Path:
    """The folder of weights of a run, of an adapter, or of a shipped base that reads as it is."""
    return RunFolder.to_read_with(path).adapter


def adapter_name(path: Path) -> str:
    """The name that clients use for an adapter: that of its run folder."""
    path = path.resolve()
    return path.parent.name if path.name == "adapter" else path.name


def check_adapter_name(name: str) -> None:
    """Raise RunError if `name` cannot be the name of an adapter; letters may be of any script."""
    if name == BASE or not _NAME.fullmatch(name):
        hint = "rename its folder: letters, digits, dots, dashes, underscores and spaces; `base` means the base model"
        raise RunError(f"{name!r} cannot be the name of a model", code="adapter-name-invalid", hint=hint)
