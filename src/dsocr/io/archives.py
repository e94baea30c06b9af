"""Unpack zip archives safely.

An archive is untrusted input. Entries that leave the folder, are links, encrypted, larger than declared or not portable
are rejected with an error, and nothing of the archive is kept then. Archives inside the archive stay packed.
"""

import re
import shutil
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, ZipInfo

from dsocr.errors import DataError
from dsocr.io.budget import MB, Budget
from dsocr.io.files import inside, is_hidden, is_reserved

ARCHIVE_SUFFIXES = frozenset({".zip"})
OTHER_ARCHIVES = frozenset({".rar", ".7z", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"})

# The largest archive that is unpacked; anything larger is a mistake or an attack.
MAX_ENTRIES = 500_000
MAX_ENTRY_BYTES = 4096 * MB
MAX_BYTES = 65_536 * MB
"""Bytes that all archives of a source unpack to."""

_UTF8_FLAG = 0x800
_ENCRYPTED_FLAG = 0x1
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Python decompresses the other methods without a limit on memory, and hardly any program uses them."""
_FORBIDDEN = re.compile(r'[<>:"|?*\x00-\x1f]')
_MAX_NAME_BYTES = 255
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
_HINT = "unpack it with a program you trust, and pass the folder instead"
_COPY_HINT = "check that it was copied or downloaded completely"


def is_archive(path: Path) -> bool:
    """True for a file named `.zip`. Raises DataError for other kinds of archives, which are not supported."""
    if path.is_file() and path.suffix.lower() in OTHER_ARCHIVES:
        message, hint = "this kind of archive is not supported, only zip is", "unpack it, and pass the folder"
        raise DataError(message, code="archive-unsupported", where=path, hint=hint)
    return path.is_file() and path.suffix.lower() in ARCHIVE_SUFFIXES


def unpack(archive: Path, folder: Path, budget: Budget | None = None) -> list[str]:
    """Unpack `archive` into the new `folder`, a megabyte at a time. Returns the names of archives inside.

    Raises DataError, and leaves no `folder`, if any entry is unsafe or unpacks to more bytes than the budget has, which
    several archives may share.
    """
    budget = budget or Budget(size=MAX_BYTES)
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            with ZipFile(archive) as file:
                entries = _checked_entries(file, folder)
                total = sum(entry.file_size for entry in entries.values())
                budget.unpack(packed=archive.stat().st_size, unpacked=total)
                if total > (free := shutil.disk_usage(folder).free):
                    hint = "free some space, or write to another disk: the archive is unpacked beside the output"
                    message = f"the archive would unpack to {total // MB:,} MB, and the disk has {free // MB:,} MB free"
                    raise DataError(message, code="disk-full", hint=hint)
                for name, entry in entries.items():
                    _write(file, entry, folder, name)
        except DataError as error:
            message = f"{error.where}: {error.message}" if error.where else error.message
            raise DataError(message, code=error.code, where=archive, hint=error.hint or _HINT) from error
        except _DAMAGE as error:
            message = f"the archive cannot be read: {error}"
            raise DataError(message, code="archive-damaged", where=archive, hint=_COPY_HINT) from error
        except OSError as error:
            message, hint = f"the archive cannot be unpacked: {error.strerror or error}", "check the free disk space"
            raise DataError(message, code="archive-damaged", where=archive, hint=hint) from error
        cleanup.pop_all()
    return [name for name in entries if Path(name).suffix.lower() in ARCHIVE_SUFFIXES]


def entry_name(entry: ZipInfo) -> str:
    """The entry's name with forward slashes, in NFC.

    Russian Windows writes names in cp866 and macOS in UTF-8, and neither sets the UTF-8 flag, so the letters decide:
    cp866 if that gives nothing but Russian words (`тап` would be Braille in UTF-8), else UTF-8 if valid, else cp866 if
    that is mostly Cyrillic, else cp437 as the zip specification says.
    """
    name = entry.orig_filename
    if not entry.flag_bits & _UTF8_FLAG and not name.isascii():
        name = _decode_name(name.encode("cp437"))
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _decode_name(raw: bytes) -> str:
    russian = raw.decode("cp866")
    words = [word for word in re.findall(r"[^\W\d_]+", russian) if not word.isascii()]
    has_symbols = any(not character.isalpha() and not character.isascii() for character in russian)
    is_natural = all(word.islower() or word.istitle() or word.isupper() for word in words)
    if not has_symbols and is_natural and all(re.fullmatch("[а-яё]+", word, re.IGNORECASE) for word in words):
        return russian
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        # `ёж` is mostly Cyrillic; `cafВ` is the cp437 spelling of a French word.
        cyrillic = len(re.findall("[а-яё]", "".join(words), re.IGNORECASE))
        return russian if 2 * cyrillic > sum(map(len, words)) else raw.decode("cp437")


def _checked_entries(file: ZipFile, folder: Path) -> dict[str, ZipInfo]:
    """Name -> entry of every file to write; hidden files and additions of macOS are skipped."""
    Budget(elements=MAX_ENTRIES).take(elements=len(file.infolist()))
    named = [
        (name, entry)
        for name, entry in ((entry_name(entry), entry) for entry in file.infolist())
        if not any(is_hidden(part) and part != ".." for part in PurePosixPath(name).parts)
    ]
    if not named:
        raise DataError("the archive is empty", code="archive-empty", hint=_COPY_HINT)
    for name, entry in named:
        inside(folder, name)
        _check_entry(name, entry)
    files = [(str(PurePosixPath(name)), entry) for name, entry in named if not name.endswith("/")]
    _check_collisions([name for name, _ in files])
    return dict(files)


def _check_entry(name: str, entry: ZipInfo) -> None:
    for part in PurePosixPath(name).parts:
        if _FORBIDDEN.search(part) or part.endswith((" ", ".")) or is_reserved(part):
            raise DataError(f"the name {name!r} is not valid on Windows", code="archive-entry")
        if len(part.encode("utf-8")) > _MAX_NAME_BYTES:
            raise DataError(f"a name is longer than {_MAX_NAME_BYTES} bytes: {name[:60]!r}...", code="archive-entry")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise DataError(f"{name!r} is a link or a special file", code="archive-entry")
    if entry.flag_bits & _ENCRYPTED_FLAG:
        hint = "unpack it with its password, and pass the folder instead"
        raise DataError(f"{name!r} is encrypted", code="archive-encrypted", hint=hint)
    if entry.compress_type not in _METHODS:
        raise DataError(f"{name!r} uses unsupported compression method {entry.compress_type}", code="archive-entry")
    Budget(size=MAX_ENTRY_BYTES).take(name, size=entry.file_size)


def _check_collisions(names: Sequence[str]) -> None:
    """Raise if two files differ only in case, or a file has the name of a folder."""
    files: dict[str, str] = {}
    for name in names:
        if other := files.get(name.casefold()):
            raise DataError(f"two files have the same name: {other!r} and {name!r}", code="archive-entry")
        files[name.casefold()] = name
    for name in names:
        for folder in PurePosixPath(name).parents:
            if other := files.get(str(folder).casefold()):
                raise DataError(f"{other!r} is both a file and the folder of {name!r}", code="archive-entry")


def _write(file: ZipFile, entry: ZipInfo, folder: Path, name: str) -> None:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open(entry) as packed, target.open("xb") as out:
        shutil.copyfileobj(packed, out, MB)
    # Python stops at the declared size and compares the checksum, but accepts an entry that is shorter.
    if (size := target.stat().st_size) != entry.file_size:
        raise DataError(f"{name!r} declares {entry.file_size} bytes but has {size}", code="archive-damaged")
