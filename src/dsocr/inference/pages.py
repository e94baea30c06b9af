"""Transcribe pages: read their crops, assemble the lines, and keep the results in a journal that can be resumed."""

import json
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from PIL import Image

from dsocr.data.journal import MIN_SECONDS_KEPT
from dsocr.document import Line, Outline, Page, Region
from dsocr.errors import DataError
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import Crop, InputPage, PagePreparer, PreparedPage
from dsocr.io.atomic import explain_disk_errors, open_database, replace_path, work_path
from dsocr.io.processes import Workers, available_cores, worker_processes
from dsocr.text import is_blank

_JOURNAL_VERSION = 2
"""Version of the rows in a journal."""


@dataclass(frozen=True, slots=True)
class TranscribedPage:
    """A page with the texts that were read: its lines have a `prediction`, those whose text was kept have none.

    `failed` are messages about lines that could not be cut; `unmatched` counts regions that were answered with another
    number of lines than they have.
    """

    source: InputPage
    page: Page
    failed: tuple[str, ...] = ()
    unmatched: int = 0

    @classmethod
    def of_lines(
        cls,
        source: InputPage,
        size: tuple[int, int],
        lines: Sequence[Line],
        failed: Sequence[str] = (),
        unmatched: int = 0,
    ) -> "TranscribedPage":
        """Return an input page with its lines, outlines in pixels of the upright image of `size`."""
        page = Page(
            image=source.image or source.path,
            name=source.name,
            where=source.id,
            lines=tuple(lines),
            size=size,
            content=source.content if source.number else None,
            number=source.number,
            xml=source.path if source.kind == "markup" else None,
            unit=source.shows,
        )
        return cls(source, page, tuple(failed), unmatched)

    def as_json(self) -> dict[str, Any]:
        """Return what the journal keeps; the input page is found again."""
        return {
            "size": self.page.size,
            "lines": [asdict(line) for line in self.page.lines],
            "failed": self.failed,
            "unmatched": self.unmatched,
        }

    @classmethod
    def from_json(cls, source: InputPage, row: Mapping[str, Any]) -> "TranscribedPage":
        """Return the page that `as_json` described."""
        width, height = row["size"]
        return cls.of_lines(source, (width, height), list(map(_line, row["lines"])), row["failed"], row["unmatched"])


def _line(row: Mapping[str, Any]) -> Line:
    region = row["region"] and Region(row["region"]["id"], _outline(row["region"]["outline"]))
    return Line(**{**row, "outline": _outline(row["outline"]), "region": region})


def _outline(row: Mapping[str, Any] | None) -> Outline | None:
    if row is None:
        return None
    left, top, right, bottom = row["box"]
    polygon, baseline = (tuple((x, y) for x, y in row[name]) for name in ("polygon", "baseline"))
    return Outline((left, top, right, bottom), polygon, baseline)


_TABLES = """
CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS page (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, row TEXT NOT NULL);
"""


class ReadingJournal:
    """Results of a transcription in a database file that only one process can open."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _TABLES, "another dsocr transcribe is writing this")

    def close(self) -> None:
        """Commit and close the file."""
        self._connection.commit()
        self._connection.close()

    def begin(self, job: Mapping[str, Any], date: str) -> str:
        """Resume the same job, or forget the pages of another one. Returns the date on which the job was begun."""
        settings = json.dumps({"journal": _JOURNAL_VERSION, **job}, ensure_ascii=False, sort_keys=True)
        known = dict(self._connection.execute("SELECT name, value FROM job"))
        if known.get("settings") == settings:
            return str(known["date"])
        with self._connection:
            self._connection.execute("DELETE FROM page")
            rows = [("settings", settings), ("date", date)]
            self._connection.executemany("INSERT OR REPLACE INTO job VALUES (?, ?)", rows)
        return date

    def add(self, rows: Iterable[tuple[str, str, Mapping[str, Any]]]) -> None:
        """Add the results of pages that were read together, by id and stamp, in one transaction."""
        values = [(id_, stamp, json.dumps(row, ensure_ascii=False)) for id_, stamp, row in rows]
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO page VALUES (?, ?, ?)", values)

    def knows(self, id_: str, stamp: str) -> bool:
        """Return whether a page was read or failed, and has not changed since."""
        query = "SELECT 1 FROM page WHERE id = ? AND stamp = ?"
        return self._connection.execute(query, (id_, stamp)).fetchone() is not None

    def recall(self, id_: str) -> dict[str, Any]:
        """Return the result of a known page."""
        ((row,),) = self._connection.execute("SELECT row FROM page WHERE id = ?", (id_,))
        found: dict[str, Any] = json.loads(row)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been read yet."""
        return self._connection.execute("SELECT 1 FROM page LIMIT 1").fetchone() is None


T = TypeVar("T")
R = TypeVar("R")


def prefetch(groups: Iterable[Sequence[T]], workers: Workers, make: Callable[[T], R]) -> Iterator[list[R]]:
    """Yield `make` of the items of each group; the next group is computed by `workers` while one is used.

    Exceptions of `make` are raised when the turn of its group comes.
    """
    pending: list[Future[R]] | None = None
    for group in groups:
        ready, pending = pending, [workers.submit(make, item) for item in group]
        if ready is not None:
            yield _results(ready, workers)
    if pending is not None:
        yield _results(pending, workers)


def _results(futures: list[Future[R]], workers: Workers) -> list[R]:
    """Return the results and drop the futures, which would keep them in memory."""
    results = [workers.result(future) for future in futures]
    futures.clear()
    return results


_LINES_TOGETHER = 64
"""Line images that are read together, and lost together if the process is killed."""
_LINES_OF_A_PAGE = 16
"""Number of line images that a page counts for; it may have more."""


class ImageReader(Protocol):
    """Reads images."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        ...


Rows = list[tuple[str, str, dict[str, Any]]]
"""Results for the journal: id, stamp, and the page or why it failed."""

ReadGroups = Callable[[Sequence[Sequence[InputPage]]], Generator[Rows]]
"""Reads groups of pages and yields the rows of each group when it is done, in any order."""


@dataclass(slots=True)
class _PageReading:
    """A page with the predictions for its crops so far."""

    page: PreparedPage
    predictions: list[Prediction] = field(default_factory=list)


def read_into(
    journal: ReadingJournal,
    pages: Sequence[InputPage],
    read: ReadGroups,
    *,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Read every page that the journal does not know, and return the number of those that it knew."""
    unknown = ([page for page in group if not journal.knows(page.id, page.stamp)] for group in group_pages(pages))
    wanted = [group for group in unknown if group]
    known = done = len(pages) - sum(map(len, wanted))
    if progress and known:
        progress(done, len(pages))
    with closing(read(wanted)) as answered:
        for rows in answered:
            journal.add(rows)
            done += len(rows)
            if progress:
                progress(done, len(pages))
    return known


def read_locally(
    wanted: Sequence[Sequence[InputPage]],
    preparer: PagePreparer,
    open_reader: Callable[[], ImageReader],
    *,
    strict: bool,
    workers: int | None = None,
) -> Generator[Rows]:
    """Yield the results of each group of pages, in order.

    `open_reader` is called when there is something to read. `workers` is the number of processes that cut pages: 1 for
    this process only, None for as many as are useful. A page that cannot be read is reported with the reason; with
    `strict` it is an error.
    """
    reader = _LazyReader(open_reader)
    with worker_processes(workers or _processes(wanted)) as crew:
        for opened in prefetch(wanted, crew, preparer.try_prepare):
            found = [(page, _PageReading(one) if isinstance(one, PreparedPage) else one) for page, one in opened]
            yield _read(found, reader, replace_texts=preparer.replace_texts, strict=strict)


class _LazyReader:
    """Opens a reader when it first has something to read."""

    def __init__(self, open_reader: Callable[[], ImageReader]) -> None:
        self._open_reader = open_reader
        self._reader: ImageReader | None = None

    def read(self, queue: "Sequence[tuple[_PageReading, Crop]]") -> Iterator[Prediction]:
        """Yield a prediction for each crop."""
        if not queue:
            return iter(())
        self._reader = self._reader or self._open_reader()
        return self._reader.read((crop.id, crop.image()) for _, crop in queue)


def group_pages(pages: Sequence[InputPage]) -> Iterator[list[InputPage]]:
    """Yield the pages to read together: the same whatever was read before, so that batches are the same too.

    The first group is one page, so that it is soon in the journal.
    """
    group: list[InputPage] = []
    weight, limit = 0, _LINES_OF_A_PAGE
    for page in pages:
        group.append(page)
        weight += 1 if page.shows == "line" else _LINES_OF_A_PAGE
        if weight >= limit:
            yield group
            group, weight, limit = [], 0, _LINES_TOGETHER
    if group:
        yield group


def _processes(wanted: Sequence[Sequence[InputPage]]) -> int:
    """Return the number of cores, at most the pages of a group; 1 if there is no next group."""
    return min(max(2, available_cores()), _LINES_TOGETHER // _LINES_OF_A_PAGE) if len(wanted) > 1 else 1


def _read(
    found: Sequence[tuple[InputPage, _PageReading | str]], reader: _LazyReader, *, replace_texts: bool, strict: bool
) -> Rows:
    """Read a group of pages and return a row for each."""
    if strict:
        _require_readable(found)
    readings = [reading for _, reading in found if isinstance(reading, _PageReading)]
    queue = [(reading, crop) for reading in readings for crop in reading.page.crops]
    for (reading, _), prediction in zip(queue, reader.read(queue), strict=True):
        reading.predictions.append(prediction)
    return [(page.id, page.stamp, _row(reading, replace_texts=replace_texts)) for page, reading in found]


def _row(reading: _PageReading | str, *, replace_texts: bool) -> dict[str, object]:
    if isinstance(reading, str):
        return {"failed": reading}
    return {"page": _assemble(reading, replace_texts=replace_texts).as_json()}


def _require_readable(found: Sequence[tuple[InputPage, _PageReading | str]]) -> None:
    for page, reading in found:
        if isinstance(reading, str):
            raise DataError(reading, code="page-not-readable", where=page.id)
    for _, reading in found:
        if isinstance(reading, _PageReading) and reading.page.failed:
            raise DataError(reading.page.failed[0], code="line-not-readable")


def _assemble(reading: _PageReading, *, replace_texts: bool) -> TranscribedPage:
    """Return the page's lines in their order, then texts that do not fit the lines of their region."""
    page = reading.page
    texts: dict[Line, Line] = {}
    more: list[Line] = []
    unmatched = 0
    for crop, prediction in zip(page.crops, reading.predictions, strict=True):
        parts = [prediction] if _is_one_line(crop) else prediction.split_lines()
        if len(parts) == len(crop.lines):
            read = {line: _with_prediction(line, part) for line, part in zip(crop.lines, parts, strict=True)}
            texts |= {line: text for line, text in read.items() if replace_texts or is_blank(line.text)}
        else:
            unmatched += bool(crop.lines)
            more += _slices(crop, parts, page.size)
    lines = [texts.get(line) or replace(line, text=line.text.strip()) for line in page.lines]
    return TranscribedPage.of_lines(page.source, page.size, [*lines, *more], page.failed, unmatched)


def _with_prediction(line: Line, prediction: Prediction) -> Line:
    row = prediction.as_dict(characters=True)
    details = {name: value for name, value in row.items() if name not in {"id", "text"}}
    return replace(line, text=prediction.text, prediction=details)


def _is_one_line(crop: Crop) -> bool:
    return len(crop.lines) == 1 and crop.outline == crop.lines[0].outline


def _slices(crop: Crop, parts: Sequence[Prediction], size: tuple[int, int]) -> list[Line]:
    """Return lines of which only the region is known: they share its height evenly."""
    left, top, right, bottom = crop.outline.box if crop.outline else (0, 0, *size)
    height = (bottom - top) / len(parts)
    known = crop.lines[0].region if crop.lines else None
    region = known or Region(crop.id, crop.outline)
    lines = []
    for number, part in enumerate(parts):
        box = (left, round(top + number * height), right, round(top + (number + 1) * height))
        lines.append(_with_prediction(Line("", f"{crop.id}#{number + 1}", Outline(box), region), part))
    return lines


_WRITTEN = "written"
"""An empty file: the draft is complete and about to be moved to its place."""


@dataclass(frozen=True, slots=True)
class TranscriptionWork:
    """The temporary folder of a transcription."""

    journal: ReadingJournal
    unpacked: Path
    draft: Path


@contextmanager
def work_folder(out: Path) -> Iterator[TranscriptionWork]:
    """Yield a folder to work in; when the block ends without an error, its draft replaces `out`.

    Otherwise what was read stays for the next attempt, if it took long enough to be worth a folder.
    """
    folder = work_path(out)
    with explain_disk_errors(folder.parent), _working(out, folder) as work:
        yield work


@contextmanager
def _working(out: Path, folder: Path) -> Iterator[TranscriptionWork]:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    journal = ReadingJournal(folder / "journal.sqlite")
    went_on = not journal.is_empty
    work = TranscriptionWork(journal, folder / "unpacked", folder / "draft")
    former = folder / "former"
    whole = False
    try:
        # The former output can still be here if it was open in another program when it was replaced.
        _remove(work.unpacked, work.draft, *([former] if out.exists() else []))
        yield work
        (folder / _WRITTEN).touch()
        replace_path(work.draft, out, former)
        whole = True
    finally:
        brief = not went_on and time.monotonic() - began < MIN_SECONDS_KEPT
        done = whole or journal.is_empty or brief
        journal.close()
        if done:
            shutil.rmtree(folder, ignore_errors=True)


def recover(out: Path) -> None:
    """Finish the work of a process that was killed while it replaced `out`."""
    folder = work_path(out)
    if not (folder / _WRITTEN).exists():
        return
    try:
        ReadingJournal(folder / "journal.sqlite").close()
    except DataError:
        return  # Another process is at work there.
    former = folder / "former"
    if former.exists() and not out.exists():
        former.rename(out)
    if (folder / "draft").exists():
        (folder / _WRITTEN).unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
