"""Pages, lines and corrections of a workbench in an SQLite file: every change is kept, none overwritten unseen."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter

from dsocr.errors import DataError, option
from dsocr.inference.review import worth_checking
from dsocr.io.files import rename
from dsocr.io.work import explain_disk_errors
from dsocr.workbench.stored_lines import (
    State,
    StoredLine,
    StoredPage,
    StoredRegion,
    join_lines,
    split_line,
)

VERSION = 6
TABLES = """
CREATE TABLE page (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, image TEXT NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, writer TEXT, document TEXT, markup TEXT, elements TEXT NOT NULL, regions TEXT NOT NULL);
CREATE TABLE region (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page,
    outline TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, element INTEGER, version INTEGER NOT NULL,
    "table" TEXT NOT NULL, cell TEXT NOT NULL);
CREATE TABLE line (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page, place REAL NOT NULL,
    outline TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, machine TEXT, characters TEXT NOT NULL,
    confidence REAL, version INTEGER NOT NULL, elements TEXT NOT NULL, author TEXT NOT NULL, reviewed_at TEXT NOT NULL,
    checked_by TEXT NOT NULL, note TEXT NOT NULL, region INTEGER);
CREATE INDEX line_of_page ON line (page, place);
CREATE TABLE change (number INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    before TEXT NOT NULL, after TEXT NOT NULL, regions_before TEXT NOT NULL, regions_after TEXT NOT NULL,
    undone INTEGER NOT NULL);
CREATE TABLE stamp (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE person (id TEXT PRIMARY KEY, name TEXT NOT NULL);
"""
_AS_JSON = {
    "elements",
    "regions",
    "outline",
    "cell",
    "characters",
    "before",
    "after",
    "regions_before",
    "regions_after",
}
"""Columns whose values are JSON; every other column holds the field of that name as it is."""
_PRIVATE = 0o600
"""Permissions of a file that holds the keys of sessions."""
_MAX_NUMBER = 2**63 - 1
"""The largest integer of SQLite."""
_COPIES = "backups"
_KEPT_COPIES = 3


class StaleError(DataError):
    """Somebody else changed the line in the meantime; `line` is its current state, None if it was removed."""

    def __init__(self, line: StoredLine | None) -> None:
        self.line = line
        message = "somebody else changed this line" if line else "somebody else removed this line"
        super().__init__(message, code="line-changed", hint="look at its current text, then change it again")


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of the history: the lines and regions before and after it."""

    number: int
    at: str
    who: str
    what: str
    before: tuple[StoredLine, ...]
    after: tuple[StoredLine, ...]
    regions_before: tuple[StoredRegion, ...] = ()
    regions_after: tuple[StoredRegion, ...] = ()
    undone: bool = False


Stored = TypeVar("Stored", StoredPage, StoredRegion, StoredLine, Change)
_TABLES = {StoredPage: "page", StoredRegion: "region", StoredLine: "line", Change: "change"}
_ROWS = {kind: TypeAdapter[Any](kind) for kind in _TABLES}


class CorrectionStore:
    """One file of corrections, safe to use from several threads; a change is on disk when its method returns."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a store that only the user can read, a new one if need be. DataError if it cannot be used."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(_PRIVATE)
            path.chmod(_PRIVATE)  # SQLite gives its other files the same
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        except (OSError, sqlite3.Error) as error:
            raise _write_error(path, error) from error
        connection.row_factory = sqlite3.Row
        store, run = cls(connection, path), connection.execute
        try:
            with store._explained():
                run("PRAGMA journal_mode = WAL")
                run("PRAGMA synchronous = FULL")
                if (problem := run("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                    raise _damage_error(path, problem)
            with store._transaction():
                version = run("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    for statement in TABLES.split(";"):
                        run(statement)
                    run(f"PRAGMA user_version = {VERSION}")
            if version not in {0, VERSION}:
                message = f"written by another release (format {version}; this one reads {VERSION})"
                raise DataError(message, code="corrections-version", where=path, hint=_copy_hint(path))
        except DataError:
            connection.close()
            raise
        return store

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add_page(self, page: StoredPage, lines: Sequence[StoredLine], regions: Sequence[StoredRegion] = ()) -> bool:
        """Add a page with its lines and regions, which get new numbers; False if there is a page of that name already.

        The lines name their regions by the numbers that these have in `regions`, all of them below 0.
        """
        with self._transaction() as run:
            if run("SELECT 1 FROM page WHERE name = ?", (page.name,)).fetchone():
                return False
            elements = tuple(sorted(element for line in lines for element in line.elements))
            number = _insert(run, replace(page, number=0, elements=elements))
            new_lines = [replace(line, number=0, page=number) for line in lines]
            self._exchange(run, (), (), new_lines, [replace(region, page=number) for region in regions])
        return True

    def keep_copy(self) -> None:
        """Copy the whole store into the folder of its latest copies, each named by a number that sorts them."""
        path, folder = self._path, self._path.parent / _COPIES
        with explain_disk_errors(folder):
            folder.mkdir(exist_ok=True)
            copies = _copies(path)
            number = 1 + int(copies[-1].stem.rpartition("-")[2]) if copies else 1
            draft = folder / f"{path.stem}.tmp"
            draft.unlink(missing_ok=True)
            draft.touch(_PRIVATE)
            with self._lock, closing(sqlite3.connect(draft)) as copy:
                self._connection.backup(copy)
            rename(draft, folder / f"{path.stem}-{number:06d}{path.suffix}")
            for old in copies[: max(0, len(copies) + 1 - _KEPT_COPIES)]:
                old.unlink(missing_ok=True)

    def pages(self) -> list[StoredPage]:
        """All pages in the order they were added."""
        return self._load(StoredPage, "ORDER BY number")

    def regions(self, page: int | None = None) -> list[StoredRegion]:
        """The regions of a page, or of all pages, in the order they were added."""
        where, values = ("", ()) if page is None else ("WHERE page = ?", (page,))
        return self._load(StoredRegion, f"{where} ORDER BY page, number", *values)

    def region(self, number: int) -> StoredRegion | None:
        """The region with that number; None if it was removed."""
        return self._first(StoredRegion, "WHERE number = ?", number)

    def lines(self, page: int | None = None) -> list[StoredLine]:
        """The lines of a page, or of all pages, in order."""
        if page is None:
            return self._load(StoredLine, "ORDER BY page, place, number")
        return self._load(StoredLine, "WHERE page = ? ORDER BY place, number", page)

    def line(self, number: int) -> StoredLine | None:
        """The line with that number; None if there is none, or it was removed."""
        if not 0 < number <= _MAX_NUMBER:
            return None
        return self._first(StoredLine, "WHERE number = ?", number)

    def first(self) -> StoredLine | None:
        """The first line that is not reviewed, else the first of all; None if there are none."""
        return self._first(StoredLine, "ORDER BY state NOT IN ('unread', 'read'), page, place, number")

    def neighbour(self, line: StoredLine, *, before: bool = False) -> StoredLine | None:
        """The next line, or the one before, across page boundaries; None at the end."""
        sign, order = ("<", "DESC") if before else (">", "ASC")
        where = f"(page, place, number) {sign} (?, ?, ?) ORDER BY page {order}, place {order}, number {order}"
        return self._first(StoredLine, f"WHERE {where}", line.page, line.place, line.number)

    def following(self, line: StoredLine) -> StoredLine | None:
        """The next line of the same page; None after the last."""
        after = self.neighbour(line)
        return after if after and after.page == line.page else None

    def place_after(self, line: StoredLine) -> float:
        """A place between a line and the next one of its page."""
        after = self.following(line)
        return line.place + 1 if after is None else (line.place + after.place) / 2

    def judged(self) -> list[tuple[str, str, float | None]]:
        """Accepted text, reading and confidence of every accepted line that a model had read."""
        return self._select("text, machine, confidence FROM line WHERE state = 'accepted' AND machine IS NOT NULL")

    def confidences(self) -> list[tuple[bool, float | None, int]]:
        """Of every line with a text that is reviewed or a model read: whether it is, its confidence, its characters."""
        reviewed = "state IN ('accepted', 'unreadable')"
        where = f"text != '' AND ({reviewed} OR confidence IS NOT NULL)"
        return self._select(f"{reviewed}, confidence, LENGTH(text) FROM line WHERE {where}")

    def accepted_texts(self) -> list[str]:
        """The texts of all accepted lines."""
        return [text for (text,) in self._select("text FROM line WHERE state = 'accepted'")]

    def review_times(self, visitor: str) -> list[str]:
        """When a visitor reviewed the last hundred lines, the latest first (ISO 8601); undone reviews do not count."""
        where = "NOT undone AND what IN ('accepted', 'unreadable') AND SUBSTR(who, 1, ?) = ?"
        rows = self._select(f"at FROM change WHERE {where} ORDER BY number DESC LIMIT 100", len(visitor), visitor)
        return [at for (at,) in rows]

    def by_doubt(self) -> list[int]:
        """The numbers of the lines that are not reviewed, those most worth checking first, then the unread ones."""
        rows = self._select("number, state, confidence, LENGTH(text) FROM line WHERE state IN ('unread', 'read')")
        ordered = sorted(rows, key=lambda row: (row[1] == "unread", -worth_checking(row[2], row[3]), row[0]))
        return [number for number, *_ in ordered]

    def to_check(self, name: str) -> list[int]:
        """The numbers of the lines that somebody of another name reviewed and nobody checked, in order."""
        where = "state IN ('accepted', 'unreadable') AND checked_by = '' AND author != ? ORDER BY page, place, number"
        return [number for (number,) in self._select(f"number FROM line WHERE {where}", name)]

    def name_person(self, id_: str, name: str) -> None:
        """Store the name of a visitor, for the log."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO person VALUES (?, ?)", (id_, name))

    def names(self) -> dict[str, str]:
        """The names of visitors."""
        return dict(self._select("id, name FROM person"))

    def counts(self) -> Mapping[State, int]:
        """The number of lines in each state."""
        counts = dict(self._select("state, COUNT(*) FROM line GROUP BY state"))
        return {state: counts.get(state.value, 0) for state in State}

    def progress(self) -> dict[int, tuple[int, int]]:
        """The number of reviewed lines and of all lines of each page that has any."""
        reviewed = "SUM(state IN ('accepted', 'unreadable'))"
        rows = self._select(f"page, {reviewed}, COUNT(*) FROM line GROUP BY page")
        return {page: (done, total) for page, done, total in rows}

    def add_reading(self, line: StoredLine, text: str, characters: Sequence[float], confidence: float | None) -> bool:
        """Store a reading; False if the line was changed in the meantime."""
        with self._transaction() as run:
            now = self.line(line.number)
            if now is None or now.version != line.version or now.is_reviewed:
                return False
            likely = tuple(round(probability, 4) for probability in characters)
            read = replace(now, text=text, state=State.READ, machine=text, characters=likely, confidence=confidence)
            _insert(run, replace(read, version=_new_stamp(run)))
        return True

    def review(self, line: StoredLine, text: str, state: State, *, who: str, name: str = "") -> StoredLine:
        """The line with the text and state that somebody gave it. Raises StaleError if it was changed meanwhile.

        `name` is that of the person. A line that somebody of another name had reviewed is thereby checked.
        """
        new = replace(line, text=text.strip(), state=state)
        if line.is_reviewed and line.author and name and name != line.author:
            new = replace(new, checked_by=name)
        else:
            new = replace(new, author=name, reviewed_at=_now(), checked_by="")
        return self.change(state.value, who, [line], [new])[0]

    def annotate(self, line: StoredLine, note: str, *, who: str) -> StoredLine:
        """The line with a remark. Raises StaleError if it was changed meanwhile."""
        return self.change("note", who, [line], [replace(line, note=note.strip())])[0]

    def replace_texts(self, texts: Sequence[tuple[StoredLine, str]], *, who: str) -> list[StoredLine]:
        """Give lines other texts as one change; reviewed lines stay so. StaleError, changing none, if one changed."""
        lines = [line for line, _ in texts]
        new = [replace(line, text=text, state=line.state if line.is_reviewed else State.READ) for line, text in texts]
        return self.change("replaced", who, lines, new)

    def split(self, line: StoredLine, at: int, *, who: str, text: str | None = None) -> tuple[StoredLine, StoredLine]:
        """Split a line before character `at` of its text, or of a new `text`. DataError if a part would be empty."""
        first, second = split_line(_with_text(line, text), at)
        first, second = self.change("split", who, [line], [first, replace(second, place=self.place_after(line))])
        return first, second

    def join(
        self,
        line: StoredLine,
        following: StoredLine | None = None,
        *,
        who: str,
        text: str | None = None,
        next_text: str | None = None,
    ) -> StoredLine:
        """Join a line and the next, `following` as the user saw it, with new texts. DataError for the last line."""
        following = following or self.following(line)
        if following is None:
            raise DataError("the last line of a page cannot be joined with a next one", code="last-line")
        joined = join_lines(_with_text(line, text), _with_text(following, next_text))
        return self.change("joined", who, [line, following], [joined])[0]

    def undo(self, who: str) -> Change | None:
        """Undo somebody's last change, if any. Raises StaleError if anybody but a model changed its lines since."""
        with self._transaction() as run:
            change = self._first(Change, "WHERE who = ? AND NOT undone ORDER BY number DESC", who)
            if change is None:
                return None
            now = [self.line(line.number) for line in change.after]
            as_read = [
                stored if stored is not None and stored.was_only_read_since(line) else line
                for stored, line in zip(now, change.after, strict=True)
            ]
            self._unchanged(as_read, change.regions_after)
            kept_regions = {region.number for region in change.regions_before}
            changed = {line.number for line in change.after}
            for region in change.regions_after:
                held = run("SELECT number FROM line WHERE region = ?", (region.number,)).fetchall()
                if region.number not in kept_regions and not {number for (number,) in held} <= changed:
                    raise StaleError(None)  # somebody put lines into it
            # with their old versions, so that earlier changes can be undone too
            self._exchange(run, change.after, change.regions_after, change.before, change.regions_before)
            _insert(run, replace(change, undone=True))
            _new_stamp(run)
        return change

    def history(self) -> list[Change]:
        """The changes that are not undone, the oldest first."""
        return self._load(Change, "WHERE NOT undone ORDER BY number")

    def stamp(self) -> int:
        """A number that every change of a line, and every undo, increases."""
        return int(self._select("MAX(number) FROM stamp")[0][0] or 0)

    def setting(self, name: str) -> str | None:
        """The value of a setting; None if it was never set."""
        return next((value for (value,) in self._select("value FROM setting WHERE name = ?", name)), None)

    def set_setting(self, name: str, value: str) -> None:
        """Store a setting."""
        with self._transaction() as run:
            run("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def _select(self, rest: str, *values: object) -> list[Any]:
        with self._lock, self._explained():
            return self._connection.execute(f"SELECT {rest}", values).fetchall()

    def _first(self, kind: type[Stored], rest: str, *values: object) -> Stored | None:
        return next(iter(self._load(kind, f"{rest} LIMIT 1", *values)), None)

    def _load(self, kind: type[Stored], rest: str, *values: object) -> list[Stored]:
        """The rows of a kind's table that the rest of a statement selects."""
        try:
            return [
                _ROWS[kind].validate_python(
                    {name: json.loads(value) if name in _AS_JSON else value for name, value in dict(row).items()}
                )
                for row in self._select(f"* FROM {_TABLES[kind]} {rest}", *values)
            ]
        except (ValueError, TypeError) as error:
            raise _damage_error(self._path, error) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of SQLite into DataError."""
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # its messages quote damaged bytes
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:  # such as a full disk
                raise _write_error(self._path, error) from error
            raise _damage_error(self._path, error) from error

    def change(
        self,
        what: str,
        who: str,
        lines: Sequence[StoredLine],
        new_lines: Sequence[StoredLine],
        regions: Sequence[StoredRegion] = (),
        new_regions: Sequence[StoredRegion] = (),
    ) -> list[StoredLine]:
        """Replace lines and regions by edited ones, new and removed ones included, as one change.

        New lines have the number 0, new regions numbers below 0, by which lines name them. Raises StaleError, and
        changes nothing, if one of `lines` or `regions` has another version by now.
        """
        with self._transaction() as run:
            before, regions_before = self._unchanged(lines, regions)
            stamp = _new_stamp(run)
            stamped_lines = [replace(line, version=stamp) for line in new_lines]
            stamped_regions = [replace(region, version=stamp) for region in new_regions]
            after, regions_after = self._exchange(run, before, regions_before, stamped_lines, stamped_regions)
            sides = tuple(before), tuple(after), tuple(regions_before), tuple(regions_after)
            _insert(run, Change(0, _now(), who, what, *sides))
        return after

    def _exchange(
        self,
        run: Callable[..., sqlite3.Cursor],
        lines: Iterable[StoredLine],
        regions: Iterable[StoredRegion],
        new_lines: Sequence[StoredLine],
        new_regions: Sequence[StoredRegion],
    ) -> tuple[list[StoredLine], list[StoredRegion]]:
        """Put lines and regions in the place of others; new ones get numbers that were never used."""
        for table, old in (("line", lines), ("region", regions)):
            for each in old:
                run(f"DELETE FROM {table} WHERE number = ?", (each.number,))  # noqa: S608
        numbers: dict[int | None, int] = {}
        for region in new_regions:
            numbers[region.number] = _insert(run, region)
        written = []
        for line in new_lines:
            placed = replace(line, region=numbers.get(line.region, line.region))
            written.append(replace(placed, number=_insert(run, placed)))
        return written, [replace(region, number=numbers[region.number]) for region in new_regions]

    def _unchanged(
        self, lines: Sequence[StoredLine], regions: Sequence[StoredRegion]
    ) -> tuple[list[StoredLine], list[StoredRegion]]:
        """These as they are stored. Raises StaleError if one of them has another version by now."""
        stored, stored_regions = [], []
        for line in lines:
            if (now := self.line(line.number)) is None or now.version != line.version:
                raise StaleError(now)
            stored.append(now)
        for region in regions:
            if (current := self.region(region.number)) is None or current.version != region.version:
                raise StaleError(None)
            stored_regions.append(current)
        return stored, stored_regions

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._lock, self._explained():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


@contextmanager
def open_store(path: Path) -> Iterator[CorrectionStore]:
    """The store in a file until the block ends, which is copied first; without any page nothing is left behind."""
    had_folder = path.parent.exists()
    store = CorrectionStore.open(path)
    try:
        if store.pages():
            store.keep_copy()
        yield store
    finally:
        is_empty = not store.pages()
        store.close()
        if is_empty:
            path.unlink(missing_ok=True)
            if not had_folder and not any(path.parent.iterdir()):
                path.parent.rmdir()


def _copies(path: Path) -> list[Path]:
    return sorted((path.parent / _COPIES).glob(f"{path.stem}-[0-9]*{path.suffix}"))


def _copy_hint(path: Path) -> str | None:
    """The remedy for a file that cannot be used; None if there is no copy."""
    if not (copies := _copies(path)):
        return None
    move = f"move all files that begin with {path.name} elsewhere, then copy {copies[-1]} to {path}"
    return f"{move}; it is as it was when the workbench was last started"


def _damage_error(path: Path, problem: object) -> DataError:
    message = f"the file of corrections is damaged, or something else: {problem}"
    return DataError(message, code="corrections-damaged", where=path, hint=_copy_hint(path))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _with_text(line: StoredLine, text: str | None) -> StoredLine:
    return line if text is None or text == line.text else replace(line, text=text, state=State.READ)


def _write_error(path: Path, error: Exception) -> DataError:
    hint = f"check for a full disk, a read-only folder or a network drive; {option('work', ...)} names another folder"
    return DataError(f"corrections cannot be written: {error}", code="corrections-not-writable", where=path, hint=hint)


def _new_stamp(run: Callable[..., sqlite3.Cursor]) -> int:
    return int(run("INSERT INTO stamp DEFAULT VALUES").lastrowid or 0)


def _insert(run: Callable[..., sqlite3.Cursor], item: Stored) -> int:
    """Insert a row or replace the one with its number, which is returned; below 1 it gets one that was never used."""
    columns = _ROWS[type(item)].dump_python(item, mode="json") | {"number": item.number if item.number > 0 else None}
    values = [json.dumps(value, ensure_ascii=False) if name in _AS_JSON else value for name, value in columns.items()]
    places = ", ".join("?" * len(values))
    return int(run(f"INSERT OR REPLACE INTO {_TABLES[type(item)]} VALUES ({places})", values).lastrowid or 0)  # noqa: S608
