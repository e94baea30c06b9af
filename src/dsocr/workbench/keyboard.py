"""Letters that no keyboard has: sets to click, shorthands to type, and marks for what is doubtful on the page."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsocr.errors import ConfigError
from dsocr.workbench.interface_texts import Language

FILE = "keyboards.yaml"
_MAX_BYTES = 1 << 20

MARKS: Mapping[str, tuple[str, str]] = {
    "mark_doubtful": ("", "[?]"),
    "mark_struck": ("~~", "~~"),
    "mark_inserted": ("\\", "/"),
}
"""What stands before and after the selected text; those that `prepare --struck` and `--unclear` know."""
GAPS: Mapping[Language, str] = {"en": "[unclear]", "ru": "[нрзб]"}


class _Set(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | dict[Language, str]
    keys: str


Shorthand = Annotated[str, Field(min_length=1, max_length=20)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sets: list[_Set] = []
    shorthands: dict[Shorthand, str] = {}


@dataclass(frozen=True, slots=True)
class Keyboard:
    """Sets of letters by name, and what shorthands stand for."""

    sets: Mapping[str, tuple[str, ...]]
    shorthands: Mapping[str, str]


def load_keyboard(work: Path, language: Language) -> Keyboard:
    """The letters that come with the program and those of `keyboards.yaml` in a work folder, which count more.

    Raises ConfigError if that file is not valid.
    """
    sets: dict[str, tuple[str, ...]] = {}
    shorthands: dict[str, str] = {}
    for path in (Path(__file__).with_name(FILE), work / FILE):
        if not path.is_file():
            continue
        held = _read(path)
        for one in held.sets:
            name = one.name if isinstance(one.name, str) else one.name.get(language) or next(iter(one.name.values()))
            sets[name] = tuple(unicodedata.normalize("NFC", one.keys).split())
        shorthands |= held.shorthands
    return Keyboard(sets, shorthands)


def label_of(key: str) -> str:
    """What a key is labelled with: a combining sign needs a letter to stand on."""
    return f"◌{key}" if unicodedata.combining(key[0]) else key


def _read(path: Path) -> _File:
    hint = "see the guide of the workbench for an example"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is larger than 1 MiB")
        return _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{place}: {first['msg']}", code="keyboard-invalid", where=path, hint=hint) from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot be read: {error}", code="keyboard-invalid", where=path, hint=hint) from error
