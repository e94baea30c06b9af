"""Work that can be interrupted: whole outputs, a journal of finished parts, and kept results.

A file or a folder is complete or absent: it is written beside its place, flushed to disk, then renamed. A job that
takes long builds its output in a work folder beside it, with a journal that a repeated job resumes from.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from dsocr.errors import DISK_FULL, DataError, RunError, disk_full, first_few, option
from dsocr.io.encodings import read_object, reading_json
from dsocr.io.files import is_in_use, rename

MANIFEST = "manifest.json"
STREAM = Path("-")
"""The path that stands for standard input or output."""
MIN_SECONDS_KEPT = 5.0
"""An interrupted job that took less time leaves no work folder behind."""

_DRAFT = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_DRAFT_SECONDS = 3600.0
_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""Errors of network drives that cannot flush a folder."""
_WINDOWS_PATH = 248
"""Windows may report longer paths as missing."""
_SYSTEM_FILES = frozenset({".ds_store", "thumbs.db", "desktop.ini"})
"""Files that file managers create in every folder, in lower case."""
_OTHER_PLACE = "choose another place"


# Whether an output may be written


def require_output_folder(path: Path) -> None:
    """Raise DataError unless the folder of a file exists."""
    if not path.parent.is_dir():
        message = "The output folder does not exist"
        raise DataError(message, code="output-folder-missing", where=path.parent, hint="create it first")


def require_free_output(
    out: Path,
    kind: str,
    list_files: Callable[[Path], Collection[str] | None] | None = None,
    *,
    overwrite: bool,
    sources: Iterable[Path] = (),
    may_be_inside: bool = False,
) -> None:
    """Raise DataError if writing `out` would destroy something other than an earlier output of its kind.

    `list_files` lists the files of an earlier output in a folder, with forward slashes (`train/` stands for all files
    below it), and returns None for a folder that is something else; without it the output is a file. An output of the
    same kind is replaced with `overwrite` only. Nothing may be written around one of the `sources`, nor into it unless
    it `may_be_inside`. Results that a killed process had completed are put in place first.
    """
    recover_output(out)
    target = out.resolve()
    for source in (source.resolve() for source in sources if source.exists()):
        if source.is_relative_to(target) or (target.is_relative_to(source) and not may_be_inside):
            message, hint = f"output overlaps {source}", "choose a place beside it"
            raise DataError(message, code="output-overlaps-source", where=out, hint=hint)
    if not out.exists() or (list_files and out.is_dir() and not any(out.iterdir())):
        return
    if out.is_dir() != bool(list_files):
        what = "file" if out.is_file() else "folder"
        raise DataError(f"is a {what}, not a {kind}", code="output-occupied", where=out, hint=_OTHER_PLACE)
    listed = list_files(out) if list_files else ()
    if listed is None:
        raise DataError(f"folder is not empty and no {kind}", code="output-occupied", where=out, hint=_OTHER_PLACE)
    if not overwrite:
        hint = f"{_OTHER_PLACE}, or give {option('overwrite')}"
        raise DataError(f"{kind} exists already", code="output-exists", where=out, hint=hint)
    if list_files and (others := sorted(_other_files(out, listed))):
        message = f"folder has files that are not part of the {kind}: {first_few(others, 5)}"
        raise DataError(message, code="output-occupied", where=out, hint=f"move them, or {_OTHER_PLACE}")


def _other_files(folder: Path, listed: Collection[str]) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        below = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if f"{(below / name).as_posix()}/" not in listed]
        paths = ((below / name).as_posix() for name in names if name.lower() not in _SYSTEM_FILES)
        yield from (path for path in paths if path not in listed)


def all_files(folder: Path) -> list[str]:
    """Return all that is in a folder as files of an output, which later work adds to."""
    return [name for path in folder.iterdir() for name in (path.name, f"{path.name}/")]


def listed_files(card: Path, format_: str) -> list[str] | None:
    """Return the files that a card lists, itself among them; None if it is missing or of another format."""
    content = read_object(card)
    files = content.get("files") if content.get("format") == format_ else None
    return [card.name, *map(str, files)] if isinstance(files, list) else None


# Files and folders that are whole


@contextmanager
def writing_file(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 file that replaces `path` once it is complete; an error leaves no trace."""
    draft = _sibling(path)
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(draft, path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, texts as UTF-8: a crash leaves the old content or the new."""
    with writing_file(path) as file:
        file.buffer.write(content if isinstance(content, bytes) else content.encode("utf-8"))


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write a folder of a run with a manifest of hashes, verify it, and put it in place of an existing one.

    Raises RunError if the disk is full, cannot be written or returns other bytes; an existing `folder` is then
    unchanged and nothing is left beside it. Whoever has locked the place removes the draft of a killed process.
    """
    folder = folder.resolve()
    draft, former = _sibling(folder), _sibling(folder)
    manifest: dict[str, object] = {}
    with explain_disk_errors(folder.parent, where=folder):
        draft.mkdir(parents=True)
        try:
            for name, content in files:
                manifest[name] = _entry_of(content)  # not of the file, which may read back otherwise
                write_file(draft / name, content)
            write_file(draft / MANIFEST, _manifest(manifest))
            if problem := find_damage(draft):
                message, hint = f"written files do not read back: {problem}", "check the disk for errors"
                raise RunError(message, code="disk-unreliable", where=folder, hint=hint)
            replace_path(draft, folder, former)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(former, ignore_errors=True)


def remove_drafts(folder: Path, *, is_locked: bool = True) -> None:
    """Remove half-written files of killed processes; if not locked, only those an hour old, as others may write."""
    for path in folder.glob(".*.tmp"):
        if _DRAFT.fullmatch(path.name) and (is_locked or time.time() - path.stat().st_mtime > _DRAFT_SECONDS):
            remove_path(path)


def replace_path(draft: Path, target: Path, former: Path) -> None:
    """Rename a file or folder to `target`; a former one is moved to `former`, and back if the rename fails."""
    if target.exists():
        rename(target, former)
    try:
        rename(draft, target)
    except OSError:
        if former.exists():
            rename(former, target)
        raise
    sync_folder(target.parent)


def remove_folder(folder: Path) -> None:
    """Rename a folder away, then delete it, so that a half-deleted one is never found under its name."""
    aside = _sibling(folder)
    try:
        rename(folder, aside)
    except OSError:  # On Windows another process may have it open; it stays complete until the next attempt.
        return
    shutil.rmtree(aside, ignore_errors=True)


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


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")


# Manifests: every damage to a folder is noticed


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path) -> None:
    """Write sizes and SHA-256 of all files in a folder into its manifest."""
    paths = sorted(path for path in folder.iterdir() if _is_listed(path))
    write_file(folder / MANIFEST, _manifest({path.name: _entry(path) for path in paths}))


def rewrite_file(path: Path, content: str) -> None:
    """Write a file again, with its entry in the manifest of its folder if there is one; a kill damages neither."""
    manifest = path.with_name(MANIFEST)
    if not manifest.is_file():
        write_file(path, content)
        return
    files, raw = _read_manifest(manifest)[0], content.encode("utf-8")
    entry = _entry_of(raw)
    write_file(manifest, _manifest(files, {path.name: entry}))
    write_file(path, raw)
    write_file(manifest, _manifest({**files, path.name: entry}))


def find_damage(folder: Path) -> str | None:
    """Describe the first file that differs from the folder's manifest or is not in it; None if all match."""
    return next((fault for _, fault in list_damage(folder)), None)


def list_damage(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file that differs from the folder's manifest or is not in it, and the fault."""
    try:
        files, pending = _read_manifest(folder / MANIFEST)
        present = sorted(path for path in folder.iterdir() if _is_listed(path))
    except FileNotFoundError:
        yield MANIFEST, f"{MANIFEST} is missing"
        return
    except RunError as error:
        yield MANIFEST, f"{MANIFEST} {error.message}"
        return
    for name, entry in files.items():
        path = folder / Path(name).name
        try:
            now = _entry(path)
            if now == entry or now == pending.get(name):
                continue
            size = f"{now['bytes']} bytes instead of {entry['bytes']}"
            changed = "changed since it was written" if now["bytes"] == entry["bytes"] else size
            yield path.name, f"{path.name} has {changed}"
        except FileNotFoundError:
            yield path.name, f"{path.name} is missing"
        except OSError as error:
            yield path.name, f"{path.name} cannot be read ({error.strerror or error})"
    yield from ((path.name, f"{path.name} is not in {MANIFEST}") for path in present if path.name not in files)


def _is_listed(path: Path) -> bool:
    """False for the manifest itself, and for additions to a published folder, such as a licence."""
    return bool(path.suffix) and path.suffix != ".md" and path.name != MANIFEST and not path.name.startswith(".")


_Entries = dict[str, dict[str, object]]


def _read_manifest(path: Path) -> tuple[_Entries, _Entries]:
    """Return size and hash of each file by name, also of files about to be written."""
    with reading_json(path, RunError, "adapter-damaged") as manifest:
        listed, pending = (
            {str(name): {"bytes": int(entry["bytes"]), "sha256": str(entry["sha256"])} for name, entry in part.items()}
            for part in (manifest["files"], manifest.get("pending", {}))
        )
    return listed, pending


def _manifest(files: Mapping[str, object], pending: Mapping[str, object] | None = None) -> str:
    return json.dumps({"files": files, **({"pending": pending} if pending else {})}, indent=2) + "\n"


def _entry_of(content: bytes) -> dict[str, object]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _entry(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


# Jobs that resume


class Journal:
    """The finished parts of a job, by key, in an SQLite file that this process alone may use.

    A damaged file is replaced by an empty one, since all it records can be redone. Raises DataError if another process
    has it open. Rows are on disk at the latest `commit_seconds` after the next one was added.
    """

    def __init__(self, path: Path, *, commit_seconds: float = 0.0) -> None:
        self._connection = _open_database(path)
        self._commit_seconds, self._committed = commit_seconds, time.monotonic()

    def close(self) -> None:
        """Commit and release the file."""
        self._connection.commit()
        self._connection.close()

    def begin(self, job: Mapping[str, Any], notes: str) -> str:
        """Resume the same job, or forget all that another one did; return the `notes` with which it was begun."""
        settings = json.dumps(job, ensure_ascii=False, sort_keys=True)
        recorded = self._connection.execute("SELECT settings, notes FROM job").fetchone()
        if recorded and recorded[0] == settings:
            return str(recorded[1])
        with self._connection:
            self._connection.execute("DELETE FROM done")
            self._connection.execute("DELETE FROM job")
            self._connection.execute("INSERT INTO job VALUES (?, ?)", (settings, notes))
        return notes

    def add(self, rows: Iterable[tuple[str, Any]], *, replace: bool = True) -> None:
        """Record results that JSON can hold by their keys; those of known keys only if `replace`."""
        values = ((key, json.dumps(value, ensure_ascii=False)) for key, value in rows)
        self._connection.executemany(_REPLACE if replace else _ADD, values)
        if time.monotonic() - self._committed >= self._commit_seconds:
            self._connection.commit()
            self._committed = time.monotonic()

    def get(self, key: str) -> Any:
        """Return the recorded value, or None."""
        row = self._connection.execute("SELECT value FROM done WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def __contains__(self, key: str) -> bool:
        return self._connection.execute("SELECT 1 FROM done WHERE key = ?", (key,)).fetchone() is not None

    @property
    def is_empty(self) -> bool:
        """True if nothing is recorded."""
        return self._connection.execute("SELECT 1 FROM done LIMIT 1").fetchone() is None


_REPLACE, _ADD = "INSERT OR REPLACE INTO done VALUES (?, ?)", "INSERT OR IGNORE INTO done VALUES (?, ?)"
_TABLES = """
CREATE TABLE IF NOT EXISTS job (settings TEXT NOT NULL, notes TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def _open_database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0)
    try:
        # The lock is held until the connection closes or the process ends.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.executescript(f"BEGIN EXCLUSIVE; {_TABLES} COMMIT;")
    except sqlite3.DatabaseError as error:
        connection.close()
        if "locked" in str(error):
            message, hint = "another process is writing this output", "wait for it to finish, or choose another place"
            raise DataError(message, code="output-busy", where=path.parent, hint=hint) from error
        if isinstance(error, sqlite3.OperationalError):
            raise
        path.unlink()
        return _open_database(path)
    return connection


@dataclass(frozen=True, slots=True)
class Work:
    """The journal of a job and its work folder, in which `draft` becomes the output and `parts` stays to be reused."""

    journal: Journal
    folder: Path
    draft: Path
    parts: Path


_JOURNAL = "journal.sqlite"
_WRITTEN = "written"
"""An empty file: the draft is complete and about to be moved to its place."""


def work_path(out: Path) -> Path:
    """The hidden folder beside `out` in which a job builds it."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


@contextmanager
def resumable_work(out: Path, *, commit_seconds: float = 0.0) -> Iterator[Work]:
    """Work on the file or folder `out`, which the draft replaces when the block succeeds.

    Otherwise the journal and finished parts stay for the next attempt, if they took long enough to be worth a folder.
    """
    folder, began = work_path(out), time.monotonic()
    recover_output(out)
    with explain_disk_errors(folder.parent, where=out):
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder / _JOURNAL, commit_seconds=commit_seconds)
        work = Work(journal, folder, folder / "draft", folder / "parts")
        is_resumed, is_whole = not journal.is_empty, False
        try:
            for path in folder.iterdir():
                # The former output is still here if it was open in another program when it was replaced.
                if not path.name.startswith(_JOURNAL) and path != work.parts:
                    remove_path(path)
            work.parts.mkdir(exist_ok=True)
            yield work
            (folder / _WRITTEN).touch()
            replace_path(work.draft, out, folder / "former")
            is_whole = True
        finally:
            is_brief = not is_resumed and time.monotonic() - began < MIN_SECONDS_KEPT
            is_done = is_whole or journal.is_empty or is_brief
            journal.close()
            if is_done:
                _remove_work(folder)


@contextmanager
def writing_folder(out: Path) -> Iterator[Path]:
    """A draft folder to write into; it replaces `out` when the block succeeds and is deleted when it fails.

    Raises RunError if the disk is full or cannot be written; an existing `out` is then unchanged. What a kill leaves is
    cleaned up by the next attempt.
    """
    with resumable_work(out) as work:
        work.draft.mkdir()
        yield work.draft


def recover_output(out: Path) -> None:
    """Finish the work of a process that was killed while it replaced `out`."""
    folder = work_path(out)
    former = folder / "former"
    if not (folder / _WRITTEN).exists():
        with suppress(OSError):  # empty only if it was killed while it removed it
            folder.rmdir()
        return
    try:
        Journal(folder / _JOURNAL).close()
    except DataError:
        return  # Another process is at work there.
    if former.exists() and not out.exists():
        rename(former, out)
    if (folder / "draft").exists():
        (folder / _WRITTEN).unlink()
    else:
        _remove_work(folder)


def _remove_work(folder: Path) -> None:
    """Remove a work folder; the mark that its output is in place goes last, so a kill meanwhile can be recovered from.

    Files that another program has open stay until the next attempt.
    """
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name != _WRITTEN:
                remove_path(path)
        (folder / _WRITTEN).unlink(missing_ok=True)
        folder.rmdir()


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def keep_result(path: Path, identity: Mapping[str, Any], make: Callable[[], Any]) -> Any:
    """Return the result in a file if it was made of the same, else make it and write it there; JSON can hold both."""
    kept = read_object(path)
    if kept.get("made_of") == json.loads(json.dumps(identity)) and "result" in kept:
        return kept["result"]
    result = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"made_of": identity, "result": result}
    write_file(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")
    return result


# Errors


@contextmanager
def explain_disk_errors(folder: Path, *, where: Path | None = None) -> Iterator[None]:
    """Turn errors of writing below `folder`, SQLite's too, into a RunError that names `where`, else a known file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _write_error(where or folder, str(error), is_full="full" in str(error)) from error
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else None
        is_known = error.errno in DISK_FULL | {errno.EROFS, errno.EIO}
        if not (path.absolute().is_relative_to(folder.absolute()) if path else is_known):
            raise
        is_hidden = os.name == "nt" and error.errno == errno.ENOENT and len(str(path)) >= _WINDOWS_PATH
        if path is not None and (error.errno == errno.ENAMETOOLONG or is_hidden):
            hint = "choose an output with a shorter path, or enable long paths in Windows"
            message = f"path of {len(str(path))} characters is too long"
            raise RunError(message, code="path-too-long", where=path, hint=hint) from error
        is_full = error.errno in DISK_FULL
        problem = error.strerror or str(error)
        raise _write_error(where or path or folder, problem, is_full=is_full, is_open=is_in_use(error)) from error


def _write_error(path: Path, problem: str, *, is_full: bool, is_open: bool = False) -> RunError:
    if is_full:
        return disk_full(path)
    hint = "make the folder writable or choose another one, then run the same command again"
    if is_open:
        hint = f"close the program that has it open, or {hint}"
    return RunError(f"cannot write: {problem}", code="write-failed", where=path, hint=hint)
