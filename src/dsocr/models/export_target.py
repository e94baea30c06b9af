"""Where an export may be written: never at the cost of anything but an earlier one; loads no network."""

from collections.abc import Iterable
from pathlib import Path

from dsocr.errors import ConfigError

CARD = "README.md"
_PLAIN = {".json", ".txt", ".jinja"}
_IN_EVERY_EXPORT = {CARD, "reading.json"}


def refuse_target(out: Path, *, overwrite: bool) -> None:
    """Raises ConfigError where something is in the way that is not to be replaced."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError("a file of this name is in the way", where=out, hint="name another folder")
    present = {path.name for path in out.iterdir()}
    if present and not present >= _IN_EVERY_EXPORT:
        message = "is not empty and not an earlier export, so it is not touched"
        raise ConfigError(message, where=out, hint="name another folder")
    if present and not overwrite:
        raise ConfigError("holds an export already", where=out, hint="name another folder, or give --overwrite")
    if strange := sorted(path.name for path in out.iterdir() if not (is_plain(path) or path.suffix == ".safetensors")):
        message = f"holds other files than an export's: {', '.join(strange[:5])}"
        raise ConfigError(message, where=out, hint="move them away, or name another folder")


def is_plain(path: Path) -> bool:
    """True for what lies beside weights and is neither weights nor code: config, tokenizer, settings, card, licence."""
    return path.is_file() and (path.suffix in _PLAIN or path.name == CARD or path.name.startswith("LICENSE"))


def demand_apart(out: Path, others: Iterable[Path]) -> None:
    """Raises ConfigError where the export would lie in a folder that it is made from, or around it."""
    here = out.resolve()
    for folder in others:
        there = folder.resolve()
        if here.is_relative_to(there) or there.is_relative_to(here):
            message = f"is, holds or lies in {folder}, which the export is made from"
            raise ConfigError(message, where=out, hint="name a folder of its own")
