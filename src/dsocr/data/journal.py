"""What `prepare` has done so far, in a file that survives being killed: what was cut, and the samples in order.

An SQLite database, so that memory stays flat however many samples there are. Knows nothing about pixels.
"""

import hashlib
import json
import shutil
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr.data.cutting import Cut, CutLine, CutTask, Refusal, cut_image, task_key
from dsocr.data.dataset import PackedFiles
from dsocr.document import Page, SkipReason, Split
from dsocr.errors import DataError
from dsocr.images import read_bytes
from dsocr.io.files import disk_in_sentences, inside
from dsocr.io.processes import Workers


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
    return Refusal(SkipReason(reason), message)


WORTH_KEEPING = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """Where a dataset is being made, and what is known of it."""

    journal: Journal
    cut: Path
    unpacked: Path
    draft: Path


@contextmanager
def work_folder(out: Path) -> Iterator[Work]:
    """A place to make the dataset `out` in; when the block ends well, its draft takes the place of `out`.

    When it does not, whatever was cut stays for the next try, if it took long enough to be worth a folder more.
    """
    with disk_in_sentences(folder_beside(out).parent), full_in_sentences(out, "cut"), _working(out) as work:
        yield work


@contextmanager
def _working(out: Path) -> Iterator[Work]:
    began = time.monotonic()
    folder = folder_beside(out)
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.sqlite")
    work = Work(journal, folder / "cut", folder / "unpacked", folder / "draft")
    whole = False
    try:
        for unfinished in (work.unpacked, work.draft):
            shutil.rmtree(unfinished, ignore_errors=True)
        work.draft.mkdir()
        work.cut.mkdir(exist_ok=True)
        yield work
        exchange(work.draft, out, folder / "former")
        whole = True
    finally:
        done = whole or journal.is_empty or time.monotonic() - began < WORTH_KEEPING
        journal.close()
        if done:
            shutil.rmtree(folder, ignore_errors=True)


def recover(out: Path) -> None:
    """Ends what a `prepare` that was killed in its last moment left half done, so that `out` is there, and alone."""
    folder = folder_beside(out)
    former, is_moved = folder / "former", not (folder / "draft").exists()
    if not folder.exists() or not (is_moved or former.exists()):
        return
    try:
        Journal(folder / "journal.sqlite").close()
    except DataError:
        return  # Another process is at work there.
    if former.exists() and not out.exists():
        former.rename(out)
    if is_moved:
        shutil.rmtree(folder, ignore_errors=True)


def folder_beside(out: Path) -> Path:
    """The hidden folder beside `out` that it is made in."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


def exchange(draft: Path, out: Path, former: Path) -> None:
    """Puts a draft, a folder or a file, in the place of `out`; what was there is at `former` then."""
    if out.exists():
        out.rename(former)
    try:
        draft.rename(out)
    except OSError:
        if former.exists():
            former.rename(out)
        raise


_FOLDER_NAME = 2
"""Characters of a key: 256 folders, because one with very many files is slow."""


@dataclass(frozen=True, slots=True)
class CutImage:
    """An image of the source with what it was cut into, and the folder that the files are named from.

    `key` is empty where the image could not be read; `recalled` is true where nothing had to be cut.
    """

    image: Page
    cut: Cut | Refusal
    folder: Path
    key: str = ""
    recalled: bool = False


class Cutters:
    """Cuts images into `folder`; what the journal knows may also lie in the folder `earlier`, a former dataset."""

    def __init__(self, journal: Journal, folder: Path, earlier: Path, workers: Workers) -> None:
        self._journal = journal
        self._folder = folder
        self._earlier = earlier
        self._former = PackedFiles(earlier)
        self._workers = workers

    def cut_all(self, images: Iterable[Page]) -> Iterator[CutImage]:
        """What became of each image, in order; few are held at any time."""
        begun: deque[Callable[[], CutImage]] = deque()
        for image in images:
            begun.append(self._begin(image))
            while len(begun) > self._workers.backlog:
                yield begun.popleft()()
        while begun:
            yield begun.popleft()()

    def _begin(self, image: Page) -> Callable[[], CutImage]:
        try:
            data = image.content() if image.content else read_bytes(image.image)
        except DataError as error:
            return partial(CutImage, image, Refusal(SkipReason.BAD_IMAGE, error.message), self._folder)
        key = task_key(image, data)
        if found := self._recall(key):
            return partial(CutImage, image, *found, key, recalled=True)
        folder = self._folder / key[:_FOLDER_NAME]
        folder.mkdir(exist_ok=True)
        # Columns are not needed to cut, and what reads the content could not be sent to another process.
        task = CutTask(replace(image, content=None, columns={}), data, folder, key[:40])
        return partial(self._finish, image, key, self._workers.submit(cut_image, task))

    def _recall(self, key: str) -> tuple[Cut, Path] | None:
        """An earlier cut whose files are all still there, unchanged, and the folder they are named from."""
        cut = self._journal.recall(key)
        if not isinstance(cut, Cut):
            return None
        lines = [line for line in cut.lines if isinstance(line, CutLine)]
        for folder in (self._folder, self._earlier):
            if all(_is_unchanged(folder, line) for line in lines):
                return cut, folder
        return self._unpack(key, cut)

    def _unpack(self, key: str, cut: Cut) -> tuple[Cut, Path] | None:
        """An earlier cut whose images lie in the Parquet files of the former dataset, laid out as files."""
        folder = self._folder / key[:_FOLDER_NAME]
        lines: list[CutLine | Refusal] = []
        for line in cut.lines:
            if isinstance(line, CutLine):
                content = self._former.read(line.file)
                if hashlib.sha256(content).hexdigest() != line.digest:
                    return None
                folder.mkdir(exist_ok=True)
                line = CutLine(f"{folder.name}/{key[:40]}_{PurePosixPath(line.file).name}", line.digest)
                (self._folder / line.file).write_bytes(content)
            lines.append(line)
        unpacked = Cut(cut.size, tuple(lines))
        self._journal.remember(key, unpacked)
        return unpacked, self._folder

    def _finish(self, image: Page, key: str, answer: "Future[Cut | Refusal]") -> CutImage:
        cut = self._workers.result(answer)
        if isinstance(cut, Cut):
            cut = Cut(cut.size, tuple(_within(key[:_FOLDER_NAME], line) for line in cut.lines))
            self._journal.remember(key, cut)
        return CutImage(image, cut, self._folder, key)


def _within(folder: str, line: CutLine | Refusal) -> CutLine | Refusal:
    return replace(line, file=f"{folder}/{line.file}") if isinstance(line, CutLine) else line


def _is_unchanged(folder: Path, line: CutLine) -> bool:
    try:
        return hashlib.sha256(inside(folder, line.file).read_bytes()).hexdigest() == line.digest
    except (OSError, DataError):
        return False
