"""Where an export may be written: an empty folder or an earlier export, and nothing that it is made from.

Needs no torch, so that an unsuitable folder can be reported at once.
"""

from collections.abc import Iterable
from pathlib import Path

from dsocr.errors import ConfigError, option

CARD = "README.md"

_PLAIN = {".json", ".txt", ".jinja", ".model"}  # sentencepiece's, a protocol buffer
_IN_EVERY_EXPORT = {CARD, "reading.json"}
_OTHER_FOLDER = "choose another folder"


def require_free_target(out: Path, *, overwrite: bool) -> None:
    """Raise ConfigError if the folder holds anything that must not be replaced."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError("A file of this name exists", code="target-is-file", where=out, hint=_OTHER_FOLDER)
    present = {path.name for path in out.iterdir()}
    if present and not present >= _IN_EVERY_EXPORT:
        raise ConfigError(
            "Folder is not empty and not an export", code="target-occupied", where=out, hint=_OTHER_FOLDER
        )
    if present and not overwrite:
        hint = f"{_OTHER_FOLDER}, or give {option('overwrite')}"
        raise ConfigError("Folder holds an export already", code="target-exists", where=out, hint=hint)
    if other := sorted(path.name for path in out.iterdir() if not (is_plain(path) or path.suffix == ".safetensors")):
        message = f"Folder holds files that are not an export's: {', '.join(other[:5])}"
        raise ConfigError(message, code="target-occupied", where=out, hint=f"move them, or {_OTHER_FOLDER}")


def is_plain(path: Path) -> bool:
    """Whether a file is neither weights nor code: config, tokenizer, settings, card, licence."""
    return path.is_file() and (path.suffix in _PLAIN or path.name == CARD or path.name.startswith("LICENSE"))


def require_separate(out: Path, sources: Iterable[Path]) -> None:
    """Raise ConfigError if the export would be inside a folder that it is made from, or contain one."""
    target = out.resolve()
    for folder in sources:
        source = folder.resolve()
        if target.is_relative_to(source) or source.is_relative_to(target):
            message = f"Folder overlaps {folder}, which the export is made from"
            raise ConfigError(message, code="target-overlaps-source", where=out, hint=_OTHER_FOLDER)
