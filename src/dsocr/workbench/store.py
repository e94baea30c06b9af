"""The pages, lines and corrections of a workbench in an SQLite file: every change kept, none overwritten unseen."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from dsocr.document import Box, Outline, Point
from dsocr.errors import DataError


class State(StrEnum):
    """What has become of a line: nobody read it, a model did, somebody accepted it, or found it unreadable."""

    UNREAD = "unread"
    READ = "read"
    ACCEPTED = "accepted"
    UNREADABLE = "unreadable"


SETTLED = frozenset({State.ACCEPTED, State.UNREADABLE})
"""The states that somebody decided."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page image; `name` is its path in the source, without suffix."""

    number: int
    name: str
    image: Path
    width: int
    height: int
    writer: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page; `place` orders the lines of a page.

    `machine` is what a model read, None where none read just this line, `characters` how likely each of its characters
    is right, `confidence` the share of it that is; `text` is what stands there. Every change gives another `version`.
    """

    number: int
    page: int
    place: float
    outline: Outline
    text: str = ""
    state: State = State.UNREAD
    machine: str | None = None
    characters: tuple[float, ...] = field(default=(), repr=False)
    confidence: float | None = None
    version: int = 0

    @property
    def is_settled(self) -> bool:
        """True where somebody decided on it."""
        return self.state in SETTLED


def parted(line: Line, at: int) -> tuple[Line, Line]:
    """A line as two, its text parted before the character `at`, its outline where that share of its width is.

    Raises DataError where one part would hold nothing. The second has no number yet.
    """
    first, second = line.text[:at].rstrip(), line.text[at:].lstrip()
    left, top, right, bottom = line.outline.box
    cut = left + round((right - left) * at / max(1, len(line.text)))
    if not first or not second or not left < cut < right:
        raise DataError("a line is parted at a place inside its text", hint="put the cursor where the second begins")
    halves = [_part(line.outline, (left, top, cut, bottom)), _part(line.outline, (cut, top, right, bottom))]
    return (
        _altered(line, first, halves[0]),
        replace(_altered(line, second, halves[1]), number=0),
    )


def joined(first: Line, second: Line) -> Line:
    """Two lines as one: texts with a space between, the outline around both."""
    text = " ".join(filter(None, (first.text, second.text)))
    return _altered(first, text, _around(first.outline, second.outline))


def line_at(lines: Sequence[Line], x: float, y: float) -> Line | None:
    """The line that holds a point of its page, the smallest where several do."""
    hit = [line for line in lines if _holds(line.outline.box, x, y)]
    return min(hit, key=lambda line: _area(line.outline.box), default=None)


def _altered(line: Line, text: str, outline: Outline) -> Line:
    """The line at another place: what a model said of the old one says nothing of it."""
    return replace(line, text=text, outline=outline, state=State.READ, machine=None, characters=())


def _part(outline: Outline, box: Box) -> Outline:
    left, _, right, _ = box
    polygon = _cut(outline.polygon, left, right) if outline.polygon else ()
    baseline = _baseline_between(outline.baseline, left, right)
    return Outline(box, polygon if len(polygon) >= 3 else (), baseline)


def _cut(polygon: Sequence[Point], left: int, right: int) -> tuple[Point, ...]:
    """The polygon between two columns: Sutherland and Hodgman's clipping at each of the two (1974)."""
    kept = _half(list(polygon), left, keep_right=True)
    return tuple(_half(kept, right, keep_right=False))


def _half(polygon: list[Point], column: int, *, keep_right: bool) -> list[Point]:
    kept: list[Point] = []
    for (x1, y1), (x2, y2) in zip(polygon, [*polygon[1:], *polygon[:1]], strict=True):
        inside, next_inside = (x1 >= column, x2 >= column) if keep_right else (x1 <= column, x2 <= column)
        if inside:
            kept.append((x1, y1))
        if inside != next_inside:
            kept.append((column, round(y1 + (y2 - y1) * (column - x1) / (x2 - x1))))
    return kept


def _baseline_between(baseline: Sequence[Point], left: int, right: int) -> tuple[Point, ...]:
    if len(baseline) < 2:
        return ()
    points = [(left, _height_at(baseline, left)), *(point for point in baseline if left < point[0] < right)]
    return (*points, (right, _height_at(baseline, right)))


def _height_at(baseline: Sequence[Point], x: int) -> int:
    """How high a baseline runs at a column; beyond its ends it runs level."""
    ordered = sorted(baseline)
    for (x1, y1), (x2, y2) in pairwise(ordered):
        if x1 <= x <= x2:
            return y1 if x1 == x2 else round(y1 + (y2 - y1) * (x - x1) / (x2 - x1))
    return ordered[0][1] if x < ordered[0][0] else ordered[-1][1]


def _around(first: Outline, second: Outline) -> Outline:
    boxes = list(zip(first.box, second.box, strict=True))
    box = (min(boxes[0]), min(boxes[1]), max(boxes[2]), max(boxes[3]))
    points = [*(first.polygon or _corners(first.box)), *(second.polygon or _corners(second.box))]
    return Outline(box, _hull(points), tuple(sorted({*first.baseline, *second.baseline})))


def _hull(points: Sequence[Point]) -> tuple[Point, ...]:
    """The convex hull, by Andrew's monotone chain (1979)."""
    ordered = sorted(set(points))

    def chain(run: Sequence[Point]) -> list[Point]:
        kept: list[Point] = []
        for x, y in run:
            while len(kept) > 1 and _turn(kept[-2], kept[-1], (x, y)) <= 0:
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return tuple(chain(ordered) + chain(ordered[::-1]))


def _turn(a: Point, b: Point, c: Point) -> int:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _corners(box: Box) -> tuple[Point, ...]:
    left, top, right, bottom = box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _holds(box: Box, x: float, y: float) -> bool:
    return box[0] <= x < box[2] and box[1] <= y < box[3]


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])


_VERSION = 1
_TABLES = """
CREATE TABLE page (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, image TEXT NOT NULL, width INTEGER NOT NULL,
    height INTEGER NOT NULL, writer TEXT, document TEXT);
CREATE TABLE line (number INTEGER PRIMARY KEY AUTOINCREMENT, page INTEGER NOT NULL REFERENCES page, place REAL NOT NULL,
    outline TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL, machine TEXT, characters TEXT NOT NULL,
    confidence REAL, version INTEGER NOT NULL);
CREATE INDEX line_of_page ON line (page, place);
CREATE TABLE change (number INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
    before TEXT NOT NULL, after TEXT NOT NULL, undone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE stamp (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class StaleError(DataError):
    """Somebody else changed the line meanwhile; `line` is how it stands now, None where it is gone."""

    def __init__(self, line: Line | None) -> None:
        self.line = line
        message = "somebody changed this line meanwhile" if line else "somebody removed this line meanwhile"
        super().__init__(message, hint="look at what stands there now, then change it again")


@dataclass(frozen=True, slots=True)
class Change:
    """A change as the history shows it: the lines before and after, none on one side where lines appear or go."""

    number: int
    at: str
    who: str
    what: str
    before: tuple[Line, ...]
    after: tuple[Line, ...]


class Store:
    """One file of corrections, used from several threads; a change is one transaction, on the disk when it returns."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.RLock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """The store in a file, made where there is none.

        Raises DataError where it cannot be written, or where the file is something else.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        except (OSError, sqlite3.Error) as error:
            raise _not_written(path, error) from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            connection.close()
            raise _not_written(path, error) from error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise DataError(f"is not a file of corrections: {error}", where=path) from error
        if version not in {0, _VERSION}:
            connection.close()
            raise DataError(f"was made by another version (its layout is {version}, not {_VERSION})", where=path)
        return cls(connection, path)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def add_page(self, page: Page, lines: Iterable[Line]) -> bool:
        """Keep a page with its lines, numbered anew; False where a page of that name is there already."""
        with self._writing() as run:
            if run("SELECT 1 FROM page WHERE name = ?", (page.name,)).fetchone():
                return False
            values = (None, page.name, str(page.image), page.width, page.height, page.writer, page.document)
            added = run("INSERT INTO page VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            for line in lines:
                self._write(run, replace(line, number=0, page=int(added.lastrowid or 0)))
        return True

    def pages(self) -> list[Page]:
        """All pages, in the order they were added."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, name, image, width, height, writer, document FROM page ORDER BY number"
            ).fetchall()
        return [Page(number, name, Path(image), *rest) for number, name, image, *rest in rows]

    def lines(self, page: int | None = None) -> list[Line]:
        """The lines of a page in their order, or of all pages."""
        of = "SELECT * FROM line WHERE page = ? ORDER BY place, number"
        all_ = "SELECT * FROM line ORDER BY page, place, number"
        with self._lock:
            rows = self._connection.execute(*((all_,) if page is None else (of, (page,)))).fetchall()
        return [_line(row) for row in rows]

    def line(self, number: int) -> Line | None:
        """The line of a number; None where it is gone."""
        with self._lock:
            row = self._connection.execute("SELECT * FROM line WHERE number = ?", (number,)).fetchone()
        return None if row is None else _line(row)

    def first(self) -> Line | None:
        """The first line that nobody has settled, else the first of all; None where there are none."""
        with self._lock:
            row = self._connection.execute(
                "SELECT * FROM line ORDER BY state NOT IN ('unread', 'read'), page, place, number LIMIT 1"
            ).fetchone()
        return None if row is None else _line(row)

    def neighbour(self, line: Line, *, before: bool = False) -> Line | None:
        """The line that follows another, or stands before it, over the ends of pages; None where there is none."""
        following = "(page, place, number) > (?, ?, ?) ORDER BY page, place, number"
        preceding = "(page, place, number) < (?, ?, ?) ORDER BY page DESC, place DESC, number DESC"
        with self._lock:
            row = self._connection.execute(
                f"SELECT * FROM line WHERE {preceding if before else following} LIMIT 1",  # noqa: S608 - one of two
                (line.page, line.place, line.number),
            ).fetchone()
        return None if row is None else _line(row)

    def following(self, line: Line) -> Line | None:
        """The next line of the same page; None after the last."""
        with self._lock:
            row = self._connection.execute(
                "SELECT * FROM line WHERE page = ? AND (place, number) > (?, ?) ORDER BY place, number LIMIT 1",
                (line.page, line.place, line.number),
            ).fetchone()
        return None if row is None else _line(row)

    def judged(self) -> list[tuple[str, str]]:
        """What was accepted and what a model had read there, of every accepted line that one read."""
        with self._lock:
            return self._connection.execute(
                "SELECT text, machine FROM line WHERE state = 'accepted' AND machine IS NOT NULL"
            ).fetchall()

    def by_doubt(self) -> list[int]:
        """The numbers of the lines that nobody has settled, the most doubtful first, then those nobody has read."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number FROM line WHERE state IN ('unread', 'read')"
                " ORDER BY state = 'unread', confidence IS NOT NULL, confidence, number"
            ).fetchall()
        return [row[0] for row in rows]

    def counts(self) -> Mapping[State, int]:
        """How many lines are in each state."""
        with self._lock:
            rows = self._connection.execute("SELECT state, COUNT(*) FROM line GROUP BY state").fetchall()
        found = dict(rows)
        return {state: found.get(state.value, 0) for state in State}

    def read_by_machine(self, line: Line, text: str, characters: Sequence[float], confidence: float | None) -> bool:
        """Keep what a model read, unless somebody has touched the line meanwhile: then False."""
        with self._writing() as run:
            now = self.line(line.number)
            if now is None or now.version != line.version or now.is_settled:
                return False
            read = replace(now, text=text, machine=text, characters=tuple(characters), confidence=confidence)
            self._write(run, replace(read, state=State.READ, version=_stamp(run)))
        return True

    def settle(self, line: Line, text: str, state: State, *, who: str) -> Line:
        """The line with a text and a state that somebody gives it. Raises StaleError where it changed meanwhile."""
        return self._change(state.value, who, [line], lambda old: [replace(old[0], text=text.strip(), state=state)])[0]

    def part(self, line: Line, at: int, *, who: str, text: str | None = None) -> tuple[Line, Line]:
        """Make two lines of one, before the character `at` of its text, or of the `text` that somebody gives it.

        Raises DataError where that cannot be.
        """

        def halves(old: Sequence[Line]) -> list[Line]:
            first, second = parted(_with(old[0], text), at)
            after = self.following(old[0])
            place = old[0].place + 1 if after is None else (old[0].place + after.place) / 2
            return [first, replace(second, place=place)]

        first, second = self._change("parted", who, [line], halves)
        return first, second

    def join(self, line: Line, following: Line | None = None, *, who: str, text: str | None = None) -> Line:
        """Make one of a line, or of the `text` somebody gives it, and the next of its page.

        `following` is that next line as somebody saw it, with the text they give it; else it is taken as it stands.
        Raises DataError where the line is the last.
        """
        second = following or self.following(line)
        if second is None:
            raise DataError("the last line of a page has none to be joined with")
        return self._change(
            "joined", who, [line, second], lambda old: [joined(_with(old[0], text), _with(old[1], second.text))]
        )[0]

    def undo(self, who: str) -> Change | None:
        """Take back somebody's last change that still stands; None where there is none.

        Raises StaleError where somebody changed the lines since.
        """
        with self._writing() as run:
            row = run(
                "SELECT number, at, who, what, before, after FROM change WHERE who = ? AND NOT undone"
                " ORDER BY number DESC LIMIT 1",
                (who,),
            ).fetchone()
            if row is None:
                return None
            change = _change(row)
            for line in change.after:
                if (now := self.line(line.number)) is None or now.version != line.version:
                    raise StaleError(now)
            kept = {line.number for line in change.before}
            for line in change.after:
                if line.number not in kept:
                    run("DELETE FROM line WHERE number = ?", (line.number,))
            for line in change.before:  # with the versions they had, so that what was changed before can be undone, too
                self._write(run, line)
            run("UPDATE change SET undone = 1 WHERE number = ?", (change.number,))
            _stamp(run)
        return change

    def history(self, number: int | None = None, most: int = 100) -> list[Change]:
        """The latest changes that stand, of all lines or of one, the newest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, at, who, what, before, after FROM change WHERE NOT undone ORDER BY number DESC"
            )
            changes = (_change(row) for row in rows)
            wanted = (one for one in changes if number is None or number in {line.number for line in one.after})
            return [change for change, _ in zip(wanted, range(most), strict=False)]

    def stamp(self) -> int:
        """Another number after every change of a line, undone ones included."""
        with self._lock:
            row = self._connection.execute("SELECT MAX(number) FROM stamp").fetchone()
        return int(row[0] or 0)

    def setting(self, name: str) -> str | None:
        """What was kept under a name."""
        with self._lock:
            row = self._connection.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_setting(self, name: str, value: str) -> None:
        """Keep something under a name."""
        with self._writing() as run:
            run(
                "INSERT INTO setting VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )

    def _change(
        self, what: str, who: str, lines: Sequence[Line], become: Callable[[Sequence[Line]], Sequence[Line]]
    ) -> list[Line]:
        """Turn lines into others and remember both; lines that were changed since they were seen stay as they are."""
        with self._writing() as run:
            for line in lines:
                if (now := self.line(line.number)) is None or now.version != line.version:
                    raise StaleError(now)
            before = [now for line in lines if (now := self.line(line.number)) is not None]
            stamp = _stamp(run)
            after = [self._write(run, replace(line, version=stamp)) for line in become(before)]
            for gone in {line.number for line in before} - {line.number for line in after}:
                run("DELETE FROM line WHERE number = ?", (gone,))
            run(
                "INSERT INTO change (at, who, what, before, after) VALUES (?, ?, ?, ?, ?)",
                (datetime.now(UTC).isoformat(timespec="seconds"), who, what, _json(before), _json(after)),
            )
        return after

    def _write(self, run: Callable[..., sqlite3.Cursor], line: Line) -> Line:
        """Put a line in the place of the one of its number; one without a number gets one that no line ever had."""
        values = (line.number or None, *_row(line)[1:])
        added = run("INSERT OR REPLACE INTO line VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        return replace(line, number=line.number or int(added.lastrowid or 0))

    @contextmanager
    def _writing(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise _not_written(self._path, error) from error
                raise


@contextmanager
def kept_in(path: Path) -> Iterator[Store]:
    """The store in a file until the block ends; one that never held a page leaves nothing behind.

    Raises DataError as opening it does.
    """
    folder_was_there = path.parent.exists()
    store = Store.open(path)
    try:
        yield store
    finally:
        is_empty = not store.pages()
        store.close()
        if is_empty:
            path.unlink(missing_ok=True)
            if not folder_was_there and not any(path.parent.iterdir()):
                path.parent.rmdir()


def _with(line: Line, text: str | None) -> Line:
    return line if text is None else replace(line, text=text)


def _not_written(path: Path, error: Exception) -> DataError:
    hint = "is the disk full, the folder read-only or on a network? --work names another"
    return DataError(f"corrections cannot be kept there: {error}", where=path, hint=hint)


def _stamp(run: Callable[..., sqlite3.Cursor]) -> int:
    """A version that no line ever had."""
    return int(run("INSERT INTO stamp DEFAULT VALUES").lastrowid or 0)


def _row(line: Line) -> tuple[Any, ...]:
    outline = json.dumps([line.outline.box, line.outline.polygon, line.outline.baseline])
    characters = json.dumps([round(one, 4) for one in line.characters])
    texts = (line.text, line.state.value, line.machine, characters)
    return (line.number, line.page, line.place, outline, *texts, line.confidence, line.version)


def _line(row: Sequence[Any]) -> Line:
    number, page, place, outline, text, state, machine, characters, confidence, version = row
    box, polygon, baseline = json.loads(outline)
    left, top, right, bottom = box
    points = [tuple((x, y) for x, y in some) for some in (polygon, baseline)]
    shape = Outline((left, top, right, bottom), *points)
    likely = tuple(json.loads(characters))
    return Line(number, page, place, shape, text, State(state), machine, likely, confidence, version)


def _json(lines: Sequence[Line]) -> str:
    return json.dumps([_row(line) for line in lines], ensure_ascii=False)


def _change(row: Sequence[Any]) -> Change:
    number, at, who, what, before, after = row
    sides = [tuple(_line(line) for line in json.loads(lines)) for lines in (before, after)]
    return Change(number, at, who, what, *sides)
