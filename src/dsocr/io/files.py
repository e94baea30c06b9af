"""Folders that are whole or not there: forced to the disk, sealed with a hash of each file, renamed into place.

Knows nothing about what the files hold.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import uuid4

from dsocr.errors import DataError, RunError

MANIFEST = "manifest.json"

_FULL = {errno.ENOSPC, errno.EDQUOT}
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""What network drives and the like answer that cannot force a folder to the disk."""
_PIECE = 1 << 20


def write_sealed(place: Path, files: Iterable[tuple[str, bytes]], *, unsealed: Collection[str] = ()) -> None:
    """A folder of these files at `place`, read back before it takes the place of one that is there.

    Of the `unsealed` files no hash is kept, so people may change them. Raises RunError where the disk is full or cannot
    be written or does not give back what was written; then `place` is as it was, and nothing lies beside it.
    """
    beside = place.with_name(f".{place.name}.{uuid4().hex[:8]}.tmp")
    waiting = iter(files)
    written: dict[str, dict[str, object]] = {}
    size = 0
    try:
        beside.mkdir(parents=True)
        for name, content in waiting:
            size += len(content)
            if name not in unsealed:
                written[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            _write_through(beside / name, content)
        _write_through(beside / MANIFEST, (json.dumps({"files": written}, indent=2) + "\n").encode())
        sync_folder(beside)
        if fault := damage(beside):
            raise RunError(f"what was written cannot be read back: {fault}", where=place, hint="is the disk failing?")
        _put(beside, place)
    except OSError as error:
        raise unwritable(place, error, needed=size + sum(len(content) for _, content in waiting)) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def remove_sealed(place: Path) -> None:
    """Remove a sealed folder: gone under its name at once, so that no half of one is ever found there."""
    aside = place.with_name(f".{place.name}.{uuid4().hex[:8]}.tmp")
    try:
        place.rename(aside)
    except OSError:  # somebody looks into it, on Windows; it stays whole until the next time
        return
    shutil.rmtree(aside, ignore_errors=True)


def damage(folder: Path) -> str | None:
    """What is wrong with a sealed folder, the file named first; None where every file is as it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        sealed = {str(name): (int(seal["bytes"]), str(seal["sha256"])) for name, seal in manifest["files"].items()}
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read ({error})"
    return next((fault for name, seal in sealed.items() if (fault := _fault(folder, name, *seal))), None)


def unwritable(place: Path, error: OSError, *, needed: int | None = None) -> RunError:
    """The sentence for a file or folder that the system would not write; `needed` bytes are what it takes."""
    if error.errno in _FULL:
        wants = "" if needed is None else f": {_megabytes(needed)} are needed, {_megabytes(_free(place))} are free"
        return RunError(f"the disk is full{wants}", where=place, hint="make room, then run the same command again")
    return RunError(
        f"cannot be written: {error.strerror or error}",
        where=place,
        hint="make the folder writable, or name another one, then run the same command again",
    )


@contextmanager
def disk_in_sentences(folder: Path) -> Iterator[None]:
    """Errors of the system over files below `folder`, or of its disk, become a RunError; others stay what they are."""
    try:
        yield
    except OSError as error:
        place = Path(error.filename) if isinstance(error.filename, str) else None
        if place is None and error.errno not in _FULL | {errno.EROFS, errno.EIO}:
            raise
        if place is not None and not place.absolute().is_relative_to(folder.absolute()):
            raise
        raise unwritable(place or folder, error) from error


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk, where the system has a way to: Windows has none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def _write_through(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _put(beside: Path, place: Path) -> None:
    """Rename a folder to its place; one that is there goes when the new one stands."""
    former = place.with_name(f".{place.name}.{uuid4().hex[:8]}.tmp")
    if place.exists():
        place.rename(former)
    try:
        beside.rename(place)
    except OSError:
        if former.exists():
            former.rename(place)
        raise
    sync_folder(place.parent)
    shutil.rmtree(former, ignore_errors=True)


def _fault(folder: Path, name: str, size: int, sha256: str) -> str | None:
    path = folder / Path(name).name
    try:
        found = path.stat().st_size
        if found != size:
            return f"{name} has {found} bytes, not {size}"
        return None if file_hash(path) == sha256 else f"{name} has changed since it was written"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror or error})"


def file_hash(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    whole = hashlib.sha256()
    for piece in _pieces(path):
        whole.update(piece)
    return whole.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _free(place: Path) -> int:
    return shutil.disk_usage(next(folder for folder in place.absolute().parents if folder.exists())).free


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


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


_LONGEST = 60
_RESERVED = {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}


class UniqueStems:
    """Gives out file stems, no two alike where upper and lower case are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, name: str) -> str:
        """A stem for a name that may hold anything."""
        return self.take_stem(safe_stem(name))

    def take_stem(self, stem: str) -> str:
        """The stem, or one like it where it is taken."""
        free, number = stem, 1
        while free.casefold() in self._taken:
            number += 1
            free = f"{stem}-{number}"
        self._taken.add(free.casefold())
        return free


def safe_stem(name: str) -> str:
    """Letters of any script, digits, `-` and `_`; a name that had to be shortened ends with its own hash."""
    letters = unicodedata.normalize("NFKC", name)
    stem = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in letters)
    if len(stem.encode("utf-8", "replace")) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        stem = f"{stem.encode()[:_LONGEST].decode('utf-8', 'ignore')}-{digest}"
    return f"{stem}_" if is_reserved(stem) else stem or "_"


def is_reserved(name: str) -> bool:
    """True of the names that Windows keeps for devices, whatever suffix they have."""
    return name.partition(".")[0].rstrip().casefold() in _RESERVED


def now() -> datetime:
    """The time, or the one that SOURCE_DATE_EPOCH says, with which the same source gives the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)


def shipped(name: str) -> Path:
    """A shipped file or folder, by its path in the project, e.g. `configs/demo.yaml`."""
    package = Path(str(resources.files("dsocr")))
    for root in (package / "shipped", package.parents[1]):
        if (root / name).exists():
            return root / name
    raise DataError(f"the shipped {name} is missing", hint="install dsocr again, or work in a clone of the project")
