"""Which files a folder holds, and that a name found in somebody's file never leads out of that folder."""

import os
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath

from dsocr.errors import DataError

CARD_FILE = "dataset.json"
FIXES_FILE = "fixes.jsonl"

_DRIVE = re.compile(r"^[A-Za-z]:")


def inside(root: Path, name: str) -> Path:
    """`name` under `root`, with either kind of slash; refused where it would lead anywhere else, links included."""
    problem = _problem(name)
    if problem:
        raise DataError(f"the path {name!r} {problem}", hint="paths must stay inside the folder they are named in")
    path = root.joinpath(*_parts(name))
    if not path.resolve().is_relative_to(_resolved(root)):
        raise DataError(f"the path {name!r} leads out of the folder", hint="copy the file into the folder")
    return path


@lru_cache(maxsize=64)
def _resolved(root: Path) -> Path:
    """Asked for every image of a dataset anew. Were the folder another one meanwhile, its images would be refused."""
    return root.resolve()


def _parts(name: str) -> tuple[str, ...]:
    return PurePosixPath(name.replace("\\", "/")).parts


def _problem(name: str) -> str | None:
    if not name.strip():
        return "is empty"
    if "\0" in name:
        return "holds a NUL character"
    if not _can_be_a_file_name(name):
        return "holds half of a character"
    if _DRIVE.match(name) or PureWindowsPath(name).drive:
        return "names a drive"
    if name.startswith(("/", "\\")):
        return "is absolute"
    if ".." in _parts(name):
        return "climbs out with '..'"
    return None


def _can_be_a_file_name(name: str) -> bool:
    """False of the half characters that JSON can write and no file system can."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def list_files(root: Path, suffixes: Collection[str]) -> list[Path]:
    """Files under `root` with one of the lower-case `suffixes`, in a stable order.

    Hidden files and folders and finished datasets below `root` are not looked at, links to folders not followed.
    """
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not is_hidden(name) and not is_dataset(Path(folder, name))]
        found += [Path(folder, name) for name in names if Path(name).suffix.lower() in suffixes and not is_hidden(name)]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def is_dataset(folder: Path) -> bool:
    """True where a folder carries the card of a dataset of ours, whole or not."""
    try:
        return b'"dsocr-dataset"' in (folder / CARD_FILE).read_bytes()[:200]
    except OSError:
        return False


def is_hidden(name: str) -> bool:
    """True of the names that are not looked at when a folder is searched."""
    return name.startswith(".") or name == "__MACOSX"


def relative(path: Path, root: Path) -> str:
    """`path` as users see it: inside the folder they named, with forward slashes."""
    return path.relative_to(root).as_posix()
