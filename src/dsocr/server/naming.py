"""What the models of a server are called, and where they lie; loads none of them."""

import re
from pathlib import Path

from dsocr.errors import RunError
from dsocr.runs import READING, RunFolder

BASE = "base"
"""The name under which the base reads alone."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def adapter_folder(path: Path) -> Path:
    """The adapter in a run folder, or the folder itself where it is one."""
    return path if (path / READING).is_file() else RunFolder.open(path).adapter


def adapter_name(path: Path) -> str:
    """What an adapter is called by its folder: as its run is."""
    path = path.resolve()
    return path.parent.name if path.name == "adapter" else path.name


def demand_name(name: str) -> None:
    """Raises RunError for what cannot be the name of an adapter."""
    if name == BASE or not _NAME.fullmatch(name):
        hint = "letters, digits, dots, dashes and underscores; `base` is the base's own"
        raise RunError(f"{name!r} cannot be the name of an adapter", hint=hint)
