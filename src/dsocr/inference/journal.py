"""What a transcription has read so far, in a file that survives being killed.

Pages that were read together are written down together, so that each page is read once and, if it has to be read again,
in the same company.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dsocr.data.database import open_alone

_TABLES = """
CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS page (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, row TEXT NOT NULL);
"""


class ReadingJournal:
    """The database in one file; only one process can have it open."""

    def __init__(self, path: Path) -> None:
        self._connection = open_alone(path, _TABLES, "another dsocr transcribe is writing this")

    def close(self) -> None:
        """Commits and lets go of the file."""
        self._connection.commit()
        self._connection.close()

    def begin(self, job: Mapping[str, Any], date: str) -> str:
        """Goes on with the same job, or forgets the pages of another one. Gives the date on which it was begun."""
        told = json.dumps(job, ensure_ascii=False, sort_keys=True)
        known = dict(self._connection.execute("SELECT name, value FROM job"))
        if known.get("settings") == told:
            return str(known["date"])
        with self._connection:
            self._connection.execute("DELETE FROM page")
            rows = [("settings", told), ("date", date)]
            self._connection.executemany("INSERT OR REPLACE INTO job VALUES (?, ?)", rows)
        return date

    def add(self, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Writes down what became of pages that were read together, by id and stamp; all of it or nothing."""
        told = [(id_, stamp, json.dumps(row, ensure_ascii=False)) for id_, stamp, row in rows]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO page VALUES (?, ?, ?)", told)

    def knows(self, id_: str, stamp: str) -> bool:
        """True where this page was read, or refused, and has not changed since."""
        query = "SELECT 1 FROM page WHERE id = ? AND stamp = ?"
        return self._connection.execute(query, (id_, stamp)).fetchone() is not None

    def recall(self, id_: str) -> dict[str, Any]:
        """What became of a page that is known."""
        ((row,),) = self._connection.execute("SELECT row FROM page WHERE id = ?", (id_,))
        found: dict[str, Any] = json.loads(row)
        return found

    @property
    def is_empty(self) -> bool:
        """True where nothing has been read yet."""
        return self._connection.execute("SELECT 1 FROM page LIMIT 1").fetchone() is None
