"""File names: safe to use on every system, inside the folder they belong to, and listed in natural order."""

import hashlib
import os
import re
import shutil
import sys
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from itertools import accumulate, pairwise
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TypeVar

from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.io.budget import Budget

Loaded = TypeVar("Loaded")
Named = TypeVar("Named")

CARD_FILE = "dataset.json"
FIXES_FILE = "fixes.jsonl"

_IMPOSSIBLE = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""NUL and lone surrogates, which JSON can contain and file names cannot; others stand for bytes that are not UTF-8."""
_MAX_STEM_BYTES = 60
_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between attempts to rename a file that another program has open."""
_RESERVED = {"con", "conin$", "conout$", "prn", "aux", "nul"}
_RESERVED |= {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), Split.TRAIN),
    **dict.fromkeys(("validation", "val", "valid", "dev"), Split.VALIDATION),
    **dict.fromkeys(("test", "testing"), Split.TEST),
}


def inside(root: Path, name: str) -> Path:
    """`name` (with either kind of slash) under `root`. Raises DataError if it leads elsewhere, also through a link."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    has_drive = PureWindowsPath(name).drive or re.match("[A-Za-z]:", name)
    if not name.strip() or _IMPOSSIBLE.search(name) or has_drive or name.startswith(("/", "\\")) or ".." in parts:
        hint = "paths must be relative, and stay inside the folder they are named in"
        raise DataError(f"the path {name!r} leads out of the folder or is not valid", code="path-outside", hint=hint)
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(_resolved(root.absolute())):
        raise DataError("a link leads out of the folder; copy the file into it", code="path-outside")
    return path


@lru_cache(maxsize=64)
def _resolved(root: Path) -> Path:
    """Cached, since every image of a dataset asks. If the folder is replaced by a link, its images are rejected."""
    return root.resolve()


def until_changed(load: Callable[[Path], Loaded], name: str, most: int = 4) -> Callable[[Path], Loaded]:
    """Return `load` of a folder, which remembers its result until the file of this name in the folder changes.

    The `most` last folders are remembered; results are shared, so they must not be changed.
    """

    @lru_cache(maxsize=most)
    def remember(folder: Path, state: tuple[int, int] | None) -> Loaded:
        return load(folder)

    def reload(folder: Path) -> Loaded:
        try:
            status = (folder / name).stat()
        except OSError:
            return remember(folder, None)
        return remember(folder, (status.st_mtime_ns, status.st_size))

    return reload


def list_files(root: Path, suffixes: Collection[str] | None = None, *, follow_links: bool = False) -> list[Path]:
    """Files under `root` with one of the lower-case `suffixes` (None: all), in natural order.

    Skips hidden files and folders, finished datasets below `root`, links to folders, and links that lead out of `root`
    unless `follow_links`.
    """
    return [path for path in _walk(root, suffixes) if path.is_file() and (follow_links or not leads_out(path, root))]


def links_out(root: Path) -> list[Path]:
    """Links to files and folders outside `root`, which are not followed."""
    return [path for path in _walk(root, None, with_folders=True) if leads_out(path, root)]


def leads_out(path: Path, root: Path) -> bool:
    """True for a link below `root` to something outside of it."""
    return path.is_symlink() and not path.resolve().is_relative_to(_resolved(root.absolute()))


def _walk(root: Path, suffixes: Collection[str] | None, *, with_folders: bool = False) -> list[Path]:
    paths: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not is_hidden(name) and not is_dataset(Path(folder, name))]
        visible = [Path(folder, name) for name in names + (folders if with_folders else []) if not is_hidden(name)]
        paths += [path for path in visible if suffixes is None or path.suffix.lower() in suffixes]
    return natural_sort(paths, lambda path: path.as_posix().removeprefix(root.as_posix()))


_END, _ROMAN, _SIDE, _NUMBER, _WORD = "\1\2\3\4\5"
"""Kinds of parts of a name, in their order; a part is its kind and its word, or its number after the digits' count."""
_SUFFIX = re.compile(r"\.[^\W\d_]\w{0,4}\Z")
_PARTS = re.compile(r"\d+|[^\W\d_]+|/")
_SIDES = {"r": "0", "recto": "0", "v": "1", "verso": "1", "об": "1", "оборот": "1", "ob": "1"}
_ROMAN_NUMBER = re.compile(r"m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_ROMAN_DIGITS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}
_LATIN = str.maketrans("хі", "xi")
"""Cyrillic letters that Roman numbers are typed with."""


def natural_sort(items: Iterable[Named], name: Callable[[Named], str] = str) -> list[Named]:
    """Sort items by their names, or paths with forward slashes, as an archive counts its leaves.

    2 comes before 10, and leaf 9 before its back (9v, л. 9 об), which comes before 9a. Words after the same start
    are Roman numbers if all of them are. Case and punctuation only count between names otherwise equal.
    """
    named = [(item, name(item)) for item in items]
    divided = [_parts(text) for _, text in named]
    words: dict[str, set[str]] = defaultdict(set)
    for parts in divided:
        for before, part in zip(accumulate(parts, initial=""), parts, strict=False):
            if part[0] == _WORD:
                words[before].add(part[1:])
    roman = {before for before, same in words.items() if len(same) > 1 < max(map(len, same)) and all(map(_roman, same))}
    halves = {before for before, same in words.items() if "l" in same}
    keys = [(_sort_key(parts, roman, halves), text) for parts, (_, text) in zip(divided, named, strict=True)]
    return [named[place][0] for place in sorted(range(len(named)), key=keys.__getitem__)]


def _parts(name: str) -> list[str]:
    """Return the numbers and words of a name; its suffix counts last, so that `9.jpg` comes before `9 об.jpg`."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    suffix = match[0] if (match := _SUFFIX.search(folded)) else ""
    words = _PARTS.findall(folded.removesuffix(suffix))
    parts = [
        _count(_NUMBER, int(word)) if word.isdecimal() else _END if word == "/" else _WORD + word for word in words
    ]
    return [*parts, _END + suffix]


def _count(kind: str, number: int) -> str:
    """Return a part that sorts by its number: by the number of its digits first."""
    return f"{kind}{chr(len(str(number)))}{number}"


def _sort_key(parts: Sequence[str], roman: Collection[str], halves: Collection[str]) -> str:
    """Join the parts; words after the starts in `roman` are numbers, and l and r after those in `halves` no sides."""
    key = before = last = ""
    for part in parts:
        word = part[1:]
        if part[0] == _WORD and before in roman:
            key += _count(_ROMAN, _roman(word))
        elif word in _SIDES and before not in halves and (last == _NUMBER or (last == _WORD and len(word) > 1)):
            key += _SIDE + _SIDES[word]
        else:
            key += part
        before, last = before + part, part[0]
    return key


def _roman(word: str) -> int:
    """Return the value of a Roman number, 0 for any other word."""
    letters = word.translate(_LATIN)
    values = [_ROMAN_DIGITS[letter] for letter in letters] if _ROMAN_NUMBER.fullmatch(letters) else []
    return sum(-value if value < after else value for value, after in pairwise([*values, 0]))


def is_dataset(folder: Path) -> bool:
    """True if a folder has the card of a dataset of ours, complete or not."""
    try:
        return b'"dsocr-dataset"' in Budget().read(folder / CARD_FILE)[:200]
    except DataError:
        return False


def is_hidden(name: str) -> bool:
    """True for names that are skipped when a folder is searched, such as those of Office's lock files."""
    return name.startswith((".", "~$")) or name == "__MACOSX"


def rename(path: Path, target: Path) -> None:
    """Rename a file or folder; a file with the name of the target is replaced.

    Windows does not rename open files, and virus scanners and indexers open every new one, so renaming is tried again
    for three seconds. Raises OSError.
    """
    for pause in _PAUSES:
        try:
            path.replace(target)
        except PermissionError as error:
            if not is_in_use(error):
                raise
            time.sleep(pause)
        else:
            return
    path.replace(target)


def is_in_use(error: OSError) -> bool:
    """True for Windows' errors about a file or folder that another program has open."""
    return getattr(error, "winerror", None) in {5, 32}  # ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION


def link_or_copy(path: Path, target: Path) -> None:
    """Make `target` a hard link to a file where possible, else a copy."""
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def relative(path: Path, root: Path) -> str:
    """`path` relative to the folder that the user named, with forward slashes."""
    return path.relative_to(root).as_posix()


class UniqueStems:
    """File stems that differ even where the file system ignores case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """A safe stem for an arbitrary name."""
        return self.take_stem(safe_stem(name))

    def take_stem(self, stem: str, longer: str | None = None) -> str:
        """The stem itself; if it is taken, the `longer` one, or with a number appended."""
        if longer and stem.casefold() in self._taken:
            stem = longer
        free, number = stem, 1
        while free.casefold() in self._taken:
            number += 1
            free = f"{stem}-{number}"
        self._taken.add(free.casefold())
        return free


def safe_stem(name: str) -> str:
    """Keep letters of any script, digits, `-` and `_`; a name that is cut off ends with its own hash."""
    letters = unicodedata.normalize("NFKC", name)
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in letters)
    if len(stem.encode("utf-8", "replace")) > _MAX_STEM_BYTES:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        stem = f"{stem.encode()[:_MAX_STEM_BYTES].decode('utf-8', 'ignore')}-{digest}"
    return f"{stem}_" if is_reserved(stem) else stem or "_"


def is_reserved(name: str) -> bool:
    """True for the names of devices on Windows, whatever their suffix."""
    return name.partition(".")[0].rstrip().casefold() in _RESERVED


def parse_split(name: str) -> Split | None:
    """The split that a word in a folder name or table means."""
    return _SPLIT_NAMES.get(name.strip().lower())


def split_of_folder(folder: PurePath) -> Split | None:
    """The split that one of a path's folders is named after, the outermost first."""
    return next((split for part in folder.parts if (split := parse_split(part))), None)


def split_of_name(stem: str) -> Split | None:
    """The split named in a file stem such as `train-00000-of-00002`; None if there are two different ones."""
    splits = {split for word in re.split(r"[\W\d_]+", stem) if (split := parse_split(word))}
    return splits.pop() if len(splits) == 1 else None


def current_time() -> datetime:
    """The time, or the one in SOURCE_DATE_EPOCH, with which the same source gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)


def cache_path(name: str) -> Path:
    """The folder `name` in `DSOCR_CACHE` if set, else in the system's cache folder of the user."""
    if folder := os.environ.get("DSOCR_CACHE"):
        return Path(folder) / name
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "dsocr" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsocr" / name


def shipped_path(name: str) -> Path:
    """A file or folder that is shipped with the package, by its path in the project, e.g. `configs/demo.yaml`."""
    package = Path(str(resources.files("dsocr")))
    for root in (package / "shipped", package.parents[1]):
        if (root / name).exists():
            return root / name
    message, hint = f"the shipped {name} is missing", "reinstall dsocr, or work in a clone of the project"
    raise DataError(message, code="shipped-file-missing", hint=hint)
