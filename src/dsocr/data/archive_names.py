"""The names inside a zip archive: made readable, and refused where not every system can hold them."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from zipfile import ZipInfo

from dsocr.data.file_names import is_reserved
from dsocr.data.paths import inside, is_hidden
from dsocr.errors import DataError

_UTF8_FLAG = 0x800
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
_LONGEST = 255
"""Bytes of UTF-8 that a file name may have."""


def name_of(entry: ZipInfo) -> str:
    """The entry's name with forward slashes, in NFC.

    Archives made by Windows in Russian write names in cp866, those of a Mac in UTF-8, and neither says so. Letters
    decide: what is Russian words and nothing else in cp866 is read as that (`тап` would be Braille in UTF-8), else what
    is UTF-8, else what is Cyrillic for the most part in cp866, else cp437, as the format demands.
    """
    name = entry.orig_filename
    if not entry.flag_bits & _UTF8_FLAG and not name.isascii():
        name = _guessed(name.encode("cp437"))
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _guessed(raw: bytes) -> str:
    russian = raw.decode("cp866")
    if _is_plain_russian(russian):
        return russian
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        pass
    return russian if _is_russian(russian) else raw.decode("cp437")


def _is_plain_russian(name: str) -> bool:
    """True where all but ASCII is Cyrillic, in words as they are written; what is UTF-8 has boxes or wild capitals."""
    words = [word for word in re.findall(r"[^\W\d_]+", name) if not word.isascii()]
    boxes = [character for character in name if not character.isalpha() and not character.isascii()]
    written = all(word.islower() or word.istitle() or word.isupper() for word in words)
    return not boxes and written and all(re.fullmatch("[а-яё]+", word, re.IGNORECASE) for word in words)


def _is_russian(name: str) -> bool:
    """True where words with other letters than ASCII are Cyrillic for the most part: `ёж`, but not `cafВ`, a café."""
    words = [word for word in re.findall(r"[^\W\d_]+", name) if not word.isascii()]
    cyrillic = len(re.findall("[а-яё]", "".join(words), re.IGNORECASE))
    return 2 * cyrillic > sum(map(len, words))


def is_of_the_system(name: str) -> bool:
    """True of what a Mac adds and of hidden files, which no source is read from."""
    return any(is_hidden(part) and part != ".." for part in PurePosixPath(name).parts)


def check_name(name: str, folder: Path) -> None:
    """An error where the name leads out of `folder`, or cannot be a file's name on every system."""
    inside(folder, name)
    for part in PurePosixPath(name).parts:
        if _FORBIDDEN.search(part) or part.endswith((" ", ".")) or is_reserved(part):
            raise DataError(f"Windows cannot hold a file called {name!r}")
        if len(part.encode("utf-8")) > _LONGEST:
            raise DataError(f"a name is longer than {_LONGEST} bytes: {name[:60]!r}...")


def check_collisions(files: Iterable[str]) -> None:
    """An error where two files would be one where upper and lower case are the same, or a file would be a folder."""
    taken: dict[str, str] = {}
    folders: dict[str, str] = {}
    for name in files:
        key = name.casefold()
        if key in taken:
            raise DataError(f"two files would have one name: {taken[key]!r} and {name!r}")
        taken[key] = name
        for parent in PurePosixPath(name).parents:
            folders.setdefault(str(parent).casefold(), name)
    for key, name in taken.items():
        if key in folders:
            raise DataError(f"{name!r} would be a file and a folder: {folders[key]!r}")
