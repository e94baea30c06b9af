"""What stands beside a conversion, `conversion.json`: where it comes from, what is not in it, and which files it made.

By it an earlier conversion is known for one, so that it may be replaced, and everything else is left alone.
"""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dsocr import __version__
from dsocr.data.card import LeftOutCard
from dsocr.data.paths import is_dataset
from dsocr.data.writing import is_of_the_system, refuse_output
from dsocr.errors import DataError

CONVERSION_FILE = "conversion.json"


class Conversion(BaseModel):
    """A conversion's provenance and counts; `left_behind` says in sentences what the format has no place for."""

    model_config = ConfigDict(frozen=True)

    format: Literal["dsocr-conversion"] = "dsocr-conversion"
    dsocr_version: str = __version__
    source: str
    source_format: str
    target: str
    images: int
    lines: int
    splits: dict[str, int]
    left_behind: list[str]
    left_out: dict[str, LeftOutCard]
    unmatched: dict[str, LeftOutCard]
    remarks: list[str]
    files: list[str]

    def write(self, folder: Path) -> None:
        """Lays the card into the folder."""
        told = json.dumps(self.model_dump(), ensure_ascii=False, indent=2) + "\n"
        (folder / CONVERSION_FILE).write_bytes(told.encode("utf-8", "backslashreplace"))


def files_of(folder: Path) -> list[str]:
    """The files in a folder, as its card names them."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def refuse_conversion(out: Path, source: Path, *, overwrite: bool, called: str = "conversion") -> None:
    """An error where writing a conversion to `out` would lose something, or spoil the source.

    `called` is what the user knows it as.
    """
    if source.is_dir() and out.resolve().is_relative_to(source.resolve()):
        message = "the folder lies inside the source, which would hold everything twice then"
        raise DataError(message, where=out, hint="choose a folder beside the source")
    card = None if source.resolve().is_relative_to(out.resolve()) else _read(out)
    if card is None:
        if is_dataset(out):
            message = f"a dataset is there, which no {called} replaces"
            raise DataError(message, where=out, hint="choose another folder")
        refuse_output(out, source, overwrite=False)
        return
    if not overwrite:
        hint = "choose another folder, or give --overwrite"
        raise DataError(f"there is a {called} already", where=out, hint=hint)
    own = {CONVERSION_FILE, *card.files}
    strange = [name for name in files_of(out) if name not in own and not is_of_the_system(Path(name))]
    if strange:
        message = f"the folder holds files that no {called} made: {', '.join(strange[:5])}"
        raise DataError(message, where=out, hint="choose another folder")


def _read(folder: Path) -> Conversion | None:
    """The card of an earlier conversion; None where there is none that can be read."""
    try:
        return Conversion.model_validate_json((folder / CONVERSION_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
