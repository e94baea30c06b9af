"""Folders that are either complete or absent: written beside their destination, flushed to disk, then renamed.

Also the exclusive SQLite databases in which long jobs record their progress. Knows nothing about what files contain.
"""

import errno
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from dsocr.errors import DataError, RunError
from dsocr.io.files import is_in_use, rename

MANIFEST = "manifest.json"

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""Errors of network drives that cannot flush a folder."""


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """A draft folder to write into; it replaces `folder` when the block succeeds and is deleted when it fails.

    Raises RunError if the disk is full or cannot be written; an existing `folder` is then unchanged.
    """
    folder = folder.resolve()
    draft, former = _sibling(folder), _sibling(folder)
    with explain_disk_errors(folder.parent, where=folder):
        draft.mkdir(parents=True)
        try:
            yield draft
            replace_path(draft, folder, former)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(former, ignore_errors=True)


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]], *, unhashed: Collection[str] = ()) -> None:
    """Write a folder with a manifest of SHA-256 hashes, verify it, and put it in place of an existing one.

    Files in `unhashed` are left out of the manifest, so users may edit them. Raises RunError if the disk is full,
    cannot be written or returns other bytes; an existing `folder` is then unchanged and nothing is left beside it.
    """
    manifest: dict[str, dict[str, object]] = {}
    with writing_folder(folder) as draft:
        for name, content in files:
            if name not in unhashed:
                manifest[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            _write_synced(draft / name, content)
        _write_synced(draft / MANIFEST, (json.dumps({"files": manifest}, indent=2) + "\n").encode())
        sync_folder(draft)
        if problem := find_damage(draft):
            message, hint = f"written files do not read back: {problem}", "check the disk for errors"
            raise RunError(message, code="disk-unreliable", where=folder, hint=hint)


def find_damage(folder: Path) -> str | None:
    """Describe the first file that differs from the folder's manifest; None if all match."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = {str(name): (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read ({error})"
    for name, (size, sha256) in files.items():
        path = folder / Path(name).name
        try:
            if (found := path.stat().st_size) != size:
                return f"{path.name} has {found} bytes instead of {size}"
            if hash_file(path) != sha256:
                return f"{path.name} has changed since it was written"
        except FileNotFoundError:
            return f"{path.name} is missing"
        except OSError as error:
            return f"{path.name} cannot be read ({error.strerror or error})"
    return None


def remove_folder(folder: Path) -> None:
    """Rename a folder away, then delete it, so that a half-deleted one is never found under its name."""
    aside = _sibling(folder)
    try:
        rename(folder, aside)
    except OSError:  # On Windows another process may have it open; it stays complete until the next attempt.
        return
    shutil.rmtree(aside, ignore_errors=True)


def replace_path(draft: Path, target: Path, former: Path) -> None:
    """Rename a file or folder to `target`; what was there is moved to `former`, and back if the rename fails."""
    if target.exists():
        rename(target, former)
    try:
        rename(draft, target)
    except OSError:
        if former.exists():
            rename(former, target)
        raise


def work_path(output: Path) -> Path:
    """The hidden folder beside `output` in which a resumable job builds it."""
    output = output.resolve()
    return output.with_name(f".{output.name}.work")


@contextmanager
def explain_disk_errors(folder: Path, *, where: Path | None = None) -> Iterator[None]:
    """Turn errors of writing below `folder`, those of SQLite included, into a RunError; others pass through.

    The error names the place `where`, or else the file if it is known.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _write_error(where or folder, str(error), is_full="full" in str(error)) from error
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else None
        if path is None and error.errno not in _DISK_FULL | {errno.EROFS, errno.EIO}:
            raise
        if path is not None and not path.absolute().is_relative_to(folder.absolute()):
            raise
        is_full = error.errno in _DISK_FULL
        problem = error.strerror or str(error)
        raise _write_error(where or path or folder, problem, is_full=is_full, is_open=is_in_use(error)) from error


def _write_error(path: Path, problem: str, *, is_full: bool, is_open: bool = False) -> RunError:
    if is_full:
        hint = "free some space, then run the same command again"
        return RunError("the disk is full", code="disk-full", where=path, hint=hint)
    hint = "make the folder writable or choose another one, then run the same command again"
    if is_open:
        hint = f"close the program that has it open, or {hint}"
    return RunError(f"cannot write: {problem}", code="not-writable", where=path, hint=hint)


def open_database(path: Path, schema: str, busy: str) -> sqlite3.Connection:
    """Open an SQLite database that this process alone may use, and create its tables.

    A damaged file is replaced by an empty one, since all it records can be redone. Raises DataError with the message
    `busy` if another process has it open.
    """
    connection = sqlite3.connect(path, timeout=0)
    try:
        # The lock is held until the connection closes or the process ends.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.executescript(f"BEGIN EXCLUSIVE; {schema} COMMIT;")
    except sqlite3.DatabaseError as error:
        connection.close()
        if "locked" in str(error):
            hint = "wait for it to finish, or choose another folder"
            raise DataError(busy, code="output-busy", where=path.parent, hint=hint) from error
        if isinstance(error, sqlite3.OperationalError):
            raise
        path.unlink()
        return open_database(path, schema, busy)
    return connection


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk where the system supports it; Windows does not."""
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


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
