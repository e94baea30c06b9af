"""What `prepare` has done so far, in a file that survives being killed: what was cut, and the samples in order.

An SQLite database, so that memory stays flat however many samples there are. Knows nothing about pixels.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.data.cutting import Cut, CutLine, Refusal
from dsocr.data.database import open_alone
from dsocr.data.sources.layout import Reason
from dsocr.samples import Split

_COMMIT_SECONDS = 0.5

_TABLES = """
CREATE TABLE IF NOT EXISTS cut (key TEXT PRIMARY KEY, result TEXT NOT NULL);
DROP TABLE IF EXISTS sample;
DROP TABLE IF EXISTS source;
CREATE TABLE sample (
  number INTEGER PRIMARY KEY, stored TEXT NOT NULL, digest TEXT NOT NULL, name TEXT NOT NULL, row TEXT NOT NULL,
  image TEXT NOT NULL, given TEXT, split TEXT, fold INTEGER
);
CREATE TABLE source (number INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE INDEX sample_split ON sample (split);
"""


@dataclass(frozen=True, slots=True)
class StoredSample:
    """A sample whose picture is stored: where, its SHA-256, the name it will have, and its row of metadata.

    A picture that is not in a file of its own is here with its bytes. `image` is the name of the
    source's image, `given` the split that the source says, None where it says none.
    """

    stored: Path | bytes
    digest: str
    name: str
    row: Mapping[str, Any]
    image: str
    given: Split | None = None


class Journal:
    """The database in one file; only one process can have it open. What was cut stays from run to run."""

    def __init__(self, path: Path) -> None:
        self._connection = open_alone(path, _TABLES, "another dsocr prepare is writing this dataset")
        self._committed = time.monotonic()

    def close(self) -> None:
        """Commits and lets go of the file."""
        self._connection.commit()
        self._connection.close()

    def remember(self, key: str, cut: Cut | Refusal) -> None:
        """Notes what an image was cut into; its files must be written by then."""
        self._insert("INSERT OR REPLACE INTO cut VALUES (?, ?)", key, json.dumps(as_json(cut), ensure_ascii=False))

    def learn(self, cuts: Iterable[tuple[str, Cut | Refusal]]) -> None:
        """Notes what a former dataset was cut into, unless there is something newer."""
        rows = ((key, json.dumps(as_json(cut), ensure_ascii=False)) for key, cut in cuts)
        self._connection.executemany("INSERT OR IGNORE INTO cut VALUES (?, ?)", rows)
        self._connection.commit()

    def recall(self, key: str) -> Cut | Refusal | None:
        """What an image was cut into earlier."""
        found = self._connection.execute("SELECT result FROM cut WHERE key = ?", (key,)).fetchone()
        return from_json(json.loads(found[0])) if found else None

    @property
    def is_empty(self) -> bool:
        """True where nothing has been cut yet."""
        return self._connection.execute("SELECT 1 FROM cut LIMIT 1").fetchone() is None

    def add(self, sample: StoredSample) -> None:
        """The next sample, in the order of the source."""
        row = json.dumps(sample.row, ensure_ascii=False)
        values = (str(sample.stored), sample.digest, sample.name, row, sample.image, sample.given)
        self._insert("INSERT INTO sample (stored, digest, name, row, image, given) VALUES (?, ?, ?, ?, ?, ?)", *values)

    def add_source(self, row: Mapping[str, Any]) -> None:
        """The next image of the source, with what became of it."""
        self._insert("INSERT INTO source (row) VALUES (?)", json.dumps(row, ensure_ascii=False))

    def place(self, splits: Iterable[Split | None], folds: Iterable[int | None]) -> None:
        """Gives each sample its split and fold, in order; no split leaves it out."""
        places = (
            (split, fold, number) for number, (split, fold) in enumerate(zip(splits, folds, strict=True), start=1)
        )
        self._connection.executemany("UPDATE sample SET split = ?, fold = ? WHERE number = ?", places)

    def samples(self, split: Split | None = None) -> Iterator[StoredSample]:
        """All samples in order, or those of one split."""
        where, values = ("WHERE split = ?", (split,)) if split else ("", ())
        query = f"SELECT stored, digest, name, row, fold, image, given FROM sample {where} ORDER BY number"  # noqa: S608 - ours
        for stored, digest, name, row, fold, image, given in self._connection.execute(query, values):
            told = json.loads(row) | ({"fold": fold} if fold else {})
            yield StoredSample(Path(stored), digest, name, told, image, Split(given) if given else None)

    def sources(self) -> Iterator[dict[str, Any]]:
        """The rows that `add_source` was given."""
        for (row,) in self._connection.execute("SELECT row FROM source ORDER BY number"):
            yield json.loads(row)

    def splits(self) -> Iterator[Split | None]:
        """The split of each sample, in order."""
        for (split,) in self._connection.execute("SELECT split FROM sample ORDER BY number"):
            yield Split(split) if split else None

    def _insert(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)
        if time.monotonic() - self._committed > _COMMIT_SECONDS:
            self._connection.commit()
            self._committed = time.monotonic()


def as_json(cut: Cut | Refusal) -> dict[str, Any]:
    """A cut as it stands in the journal and in `sources.jsonl`."""
    if isinstance(cut, Refusal):
        return {"refused": [cut.reason, cut.message]}
    lines = [[line.file, line.digest] if isinstance(line, CutLine) else {"refused": _told(line)} for line in cut.lines]
    return {"size": cut.size, "lines": lines}


def from_json(told: Mapping[str, Any]) -> Cut | Refusal:
    """What `as_json` told."""
    if "refused" in told:
        return _refusal(told)
    lines = [_refusal(line) if isinstance(line, dict) else CutLine(*line) for line in told["lines"]]
    return Cut((told["size"][0], told["size"][1]), tuple(lines))


def _told(refusal: Refusal) -> list[str]:
    return [refusal.reason, refusal.message]


def _refusal(told: Mapping[str, Any]) -> Refusal:
    reason, message = told["refused"]
    return Refusal(Reason(reason), message)
