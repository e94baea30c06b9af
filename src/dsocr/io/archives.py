"""Zip archives as sources: unpacked into a folder, checked before and while anything is written.

An archive is somebody's file. What leads out of the folder, is a link, is encrypted, is larger than it says or could
not stand on every system is refused with a sentence, and then nothing is left of it. Archives inside are not opened.
"""

import re
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from zipfile import ZipInfo

from dsocr.errors import DataError
from dsocr.io.files import inside, is_hidden, is_reserved

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


ARCHIVE_SUFFIXES = frozenset({".zip"})
_OTHERS = frozenset({".rar", ".7z", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"})

_MB = 1024 * 1024
_CHUNK = _MB
_ENCRYPTED = 0x1
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""How files may be packed. Python takes the others apart without a bound on memory, and hardly a program uses them."""

_HINT = "unpack it with a program that you trust, and name the folder instead"


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may hold, in bytes: more is a mistake or an attack, not a source."""

    entries: int = 500_000
    entry: int = 4096 * _MB
    total: int = 65_536 * _MB
    ratio: int = 200
    """How many times larger than its file an archive may become; only asked of what is larger than `free`."""
    free: int = 64 * _MB


LIMITS = Limits()


def unpack(archive: Path, folder: Path, limits: Limits = LIMITS) -> list[str]:
    """Unpacks `archive` into the new `folder`; the names of the archives inside, which stay closed.

    Raises DataError, and leaves no `folder`, where any of it cannot be had safely. Reads a megabyte at a time.
    """
    try:
        folder.mkdir(parents=True)
        with _opened(archive) as file:
            entries = _checked(archive, file, folder, limits)
            for name, entry in entries.items():
                _write(file, entry, folder, name)
    except DataError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(error.message, where=archive, hint=error.hint or _HINT) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return [name for name in entries if Path(name).suffix.lower() in ARCHIVE_SUFFIXES]


def is_archive(path: Path) -> bool:
    """True of a file that is called an archive; whether it is one, opening it says. No kind but zip is opened."""
    if path.is_file() and path.suffix.lower() in _OTHERS:
        message = "of archives, zip is opened and no other"
        raise DataError(message, where=path, hint="unpack it, and name the folder")
    return path.is_file() and path.suffix.lower() in ARCHIVE_SUFFIXES


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as file:
            yield file
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"the archive cannot be read: {error}", hint="was it copied or downloaded whole?") from error
    except OSError as error:
        raise DataError(f"the archive cannot be unpacked: {error.strerror or error}", hint="is there room?") from error


def _checked(archive: Path, file: zipfile.ZipFile, folder: Path, limits: Limits) -> dict[str, zipfile.ZipInfo]:
    """Name -> entry of every file that is to be written, each by itself and all together acceptable."""
    found = file.infolist()
    if len(found) > limits.entries:
        raise DataError(f"the archive holds {len(found)} entries, and {limits.entries} are the most that is unpacked")
    named = [(name_of(entry), entry) for entry in found]
    named = [(name, entry) for name, entry in named if not is_of_the_system(name)]
    if not named:
        raise DataError("the archive is empty", hint="was it copied or downloaded whole?")
    for name, entry in named:
        check_name(name, folder)
        _check_entry(name, entry, limits)
    files = [(str(PurePosixPath(name)), entry) for name, entry in named if not name.endswith("/")]
    check_collisions(name for name, _ in files)
    _check_total(sum(entry.file_size for _, entry in files), archive, folder, limits)
    return dict(files)


def _check_entry(name: str, entry: zipfile.ZipInfo, limits: Limits) -> None:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        what = "a link" if kind == stat.S_IFLNK else "no plain file"
        raise DataError(f"{name!r} is {what}, and only files are unpacked")
    if entry.flag_bits & _ENCRYPTED:
        raise DataError(f"{name!r} is encrypted", hint="unpack it with its password, and name the folder instead")
    if entry.compress_type not in _METHODS:
        raise DataError(f"{name!r} is packed in a way that is not read here (method {entry.compress_type})")
    if entry.file_size > limits.entry:
        raise DataError(f"{name!r} says it is {_told(entry.file_size)}, and {_told(limits.entry)} is the most")


def _check_total(total: int, archive: Path, folder: Path, limits: Limits) -> None:
    if total > limits.total:
        raise DataError(f"the archive would unpack to {_told(total)}, and {_told(limits.total)} is the most")
    packed = max(archive.stat().st_size, 1)
    if total > limits.free and total > limits.ratio * packed:
        raise DataError(f"the archive would unpack to {_told(total)}, {total // packed} times its own size")
    room = shutil.disk_usage(folder).free
    if total > room:
        hint = "make room, or write the dataset to another disk: it is unpacked beside it"
        raise DataError(f"the archive would unpack to {_told(total)}, and the disk has {_told(room)} left", hint=hint)


def _write(file: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, name: str) -> None:
    """One file, a chunk at a time, its bytes counted while they come."""
    target = folder.joinpath(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with file.open(entry) as packed, target.open("xb") as out:
        while chunk := packed.read(_CHUNK):
            size += out.write(chunk)
    # Python stops at the size that an entry states and compares its checksum, but lets one that is shorter pass.
    if size != entry.file_size:
        raise DataError(f"{name!r} says it is {entry.file_size} bytes, and holds {size}")


def _told(size: int) -> str:
    return f"{size / _MB:,.0f} MB"
