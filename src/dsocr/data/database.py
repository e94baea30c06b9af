"""SQLite files that only one process has open, and that outlive its being killed."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsocr.errors import DataError


def open_alone(path: Path, tables: str, busy: str) -> sqlite3.Connection:
    """The database with these tables made; one that is damaged is begun anew, as all in it can be redone.

    Another process has it: a DataError that says `busy`.
    """
    try:
        return _connected(path, tables)
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise DataError(f"cannot be written: {error}", where=path) from error
        raise DataError(busy, where=path.parent, hint="wait for it, or choose another folder") from error
    except sqlite3.DatabaseError:
        path.unlink()
        return _connected(path, tables)


@contextmanager
def full_in_sentences(out: Path, kept: str) -> Iterator[None]:
    """SQLite has errors of its own for a disk that is full or may only be read; `kept` says what is not lost."""
    try:
        yield
    except sqlite3.OperationalError as error:
        hint = f"make room, then run the same command again: it goes on with what is {kept}"
        raise DataError(f"cannot be written: {error}", where=out, hint=hint) from error


def _connected(path: Path, tables: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0)
    try:
        # Held until it is closed, or its process is gone: so two cannot write the same.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.executescript(f"BEGIN EXCLUSIVE; {tables} COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection
