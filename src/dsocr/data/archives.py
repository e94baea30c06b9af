"""Zip archives as sources: unpacked into a folder, checked before and while anything is written.

An archive is somebody's file. What leads out of the folder, is a link, is encrypted, is larger than it says or could
not stand on every system is refused with a sentence, and then nothing is left of it. Archives inside are not opened.
"""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsocr.data.archive_names import check_collisions, check_name, is_of_the_system, name_of
from dsocr.errors import DataError

ARCHIVE_SUFFIXES = frozenset({".zip"})

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
    """True of a file that is called an archive; whether it is one, opening it says."""
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
