"""Where a base lies: in the package, a folder, or the Hub's cache.

Needs no torch, so that of a base that is nowhere can be told at once.
"""

from importlib import resources
from pathlib import Path

from dsocr.errors import ModelError
from dsocr.hub import is_hub_id
from dsocr.model.hub import cached, fetch

EMBEDDED = "nano"
"""The name of the base that ships with the package."""


def find_base(name: str, revision: str | None = None) -> tuple[Path, str | None]:
    """The folder of a base, and its commit if it is one of the Hub. Raises ModelError where it is nowhere."""
    if name == EMBEDDED:
        return Path(str(resources.files("dsocr") / "model" / "bases" / EMBEDDED)), None
    if Path(name).is_dir():
        return Path(name), None
    if is_hub_id(name):
        return fetch(name, revision)
    raise ModelError(
        f"no base model {name!r}: neither {EMBEDDED!r}, nor a folder here, nor a Hub id",
        hint="a Hub id reads owner/name, for example deepseek-ai/DeepSeek-OCR",
    )


def base_at_hand(name: str, revision: str | None = None) -> Path:
    """The folder of a base, which may lack weights still; the Hub is asked only for one that its cache does not hold.

    Enough to know what base it is. Raises ModelError where it is nowhere.
    """
    on_hub = name != EMBEDDED and not Path(name).is_dir() and is_hub_id(name)
    kept = cached(name, revision) if on_hub else None
    return kept or find_base(name, revision)[0]
