"""What was read of a page: its lines, where they stand, and their texts; as JSON for the journal."""

import json
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from PIL import Image

from dsocr.data.journal import MIN_SECONDS_KEPT
from dsocr.document import Line, Outline, Region
from dsocr.errors import DataError
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import InputPage, Opening, OpenPage, Shown
from dsocr.io.atomic import explain_disk_errors, open_database, replace_path, work_path
from dsocr.io.processes import Workers, available_cores, worker_processes
from dsocr.text import is_blank


@dataclass(frozen=True, slots=True)
class ReadLine:
    """A line of a page with its text; an empty one where nothing was read.

    `outline` is in pixels of the upright image, None where the line is the whole image. `place` and `id` are those of
    its ALTO or PAGE file. `was_there` says that the text stood there and was kept. `told` is what the prediction says
    beside the text, as JSON lines have it; of a line that was read with others it is what is said of them all.
    """

    id: str
    text: str
    outline: Outline | None = None
    region: Region | None = None
    place: int | None = None
    was_there: bool = False
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def confidence(self) -> float | None:
        """How sure the model was of the line, 0-1; None where it is not known."""
        known = self.told.get("confidence")
        return float(known) if isinstance(known, int | float) else None


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page that was read: `size` in pixels, upright; lines in reading order.

    `refused` tells of lines that could not be cut, `unmatched` counts regions that were answered with another number of
    lines than are drawn there.
    """

    page: InputPage
    size: tuple[int, int]
    lines: tuple[ReadLine, ...]
    refused: tuple[str, ...] = ()
    unmatched: int = 0

    def as_json(self) -> dict[str, Any]:
        """What the journal keeps; the page itself is found anew."""
        return {
            "size": self.size,
            "lines": [asdict(line) for line in self.lines],
            "refused": self.refused,
            "unmatched": self.unmatched,
        }

    @classmethod
    def from_json(cls, page: InputPage, told: Mapping[str, Any]) -> "ReadPage":
        """The page that `as_json` told of."""
        lines = tuple(_line(line) for line in told["lines"])
        return cls(page, (told["size"][0], told["size"][1]), lines, tuple(told["refused"]), told["unmatched"])

    @property
    def written(self) -> tuple[ReadLine, ...]:
        """The lines that have a text."""
        return tuple(line for line in self.lines if line.text)


def _line(told: Mapping[str, Any]) -> ReadLine:
    region = told["region"]
    return ReadLine(
        told["id"],
        told["text"],
        _outline(told["outline"]),
        Region(region["id"], _outline(region["outline"])) if region else None,
        told["place"],
        told["was_there"],
        told["told"],
    )


def _outline(told: Mapping[str, Any] | None) -> Outline | None:
    if told is None:
        return None
    left, top, right, bottom = told["box"]
    polygon, baseline = (tuple((x, y) for x, y in told[name]) for name in ("polygon", "baseline"))
    return Outline((left, top, right, bottom), polygon, baseline)


_TABLES = """
CREATE TABLE IF NOT EXISTS job (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS page (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, row TEXT NOT NULL);
"""


class ReadingJournal:
    """The database in one file; only one process can have it open."""

    def __init__(self, path: Path) -> None:
        self._connection = open_database(path, _TABLES, "another dsocr transcribe is writing this")

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


T = TypeVar("T")
R = TypeVar("R")


def made_ahead(groups: Iterable[Sequence[T]], workers: Workers, make: Callable[[T], R]) -> Iterator[list[R]]:
    """What `make` gives for the things of each group; those of the next one are made while one is used.

    What `make` raises is raised when its group's turn comes.
    """
    coming: list[Future[R]] | None = None
    for group in groups:
        made, coming = coming, [workers.submit(make, thing) for thing in group]
        if made is not None:
            yield _taken(made, workers)
    if coming is not None:
        yield _taken(coming, workers)


def _taken(made: list[Future[R]], workers: Workers) -> list[R]:
    """The results; the futures keep none of them."""
    results = [workers.result(future) for future in made]
    made.clear()
    return results


_LINES_TOGETHER = 64
"""Line images that are read together, and lost together when the process is killed."""
_LINES_OF_A_PAGE = 16
"""What a page counts for among them; more may be on it."""


class ImageReader(Protocol):
    """What reads images; a Transcriber does."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        ...


Rows = list[tuple[str, str, dict[str, Any]]]
"""What became of some pages, as the journal keeps it: id, stamp, and the page or why it was refused."""

ReadGroups = Callable[[Sequence[Sequence[InputPage]]], Generator[Rows]]
"""ImageReader groups of pages; gives the rows of each group when it is done, in any order."""


@dataclass(slots=True)
class _Answered:
    """A page with the predictions that have come for it so far."""

    page: OpenPage
    predictions: list[Prediction] = field(default_factory=list)


def read_into(
    journal: ReadingJournal,
    pages: Sequence[InputPage],
    read: ReadGroups,
    *,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Has every page read that the journal does not know; gives the number of those that it knew."""
    unknown = ([page for page in group if not journal.knows(page.id, page.stamp)] for group in groups(pages))
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
    opening: Opening,
    open_reader: Callable[[], ImageReader],
    *,
    strict: bool,
    workers: int | None = None,
) -> Generator[Rows]:
    """What became of the pages of each group, one group after the other.

    `open_reader` is called when there is something to read, if there is. `workers` is how many processes open pages: 1
    for this one alone, None for as many as can be of use. A page that cannot be read is told of with the reason;
    `strict` makes it an error.
    """
    reader = _Opened(open_reader)
    with worker_processes(workers or _processes(wanted)) as crew:
        for opened in made_ahead(wanted, crew, opening.attempt):
            found = [(page, _Answered(one) if isinstance(one, OpenPage) else one) for page, one in opened]
            yield _read(found, reader, replace_texts=opening.replace_texts, strict=strict)


class _Opened:
    """A reader that is opened when it first has something to read."""

    def __init__(self, open_reader: Callable[[], ImageReader]) -> None:
        self._open_reader = open_reader
        self._reader: ImageReader | None = None

    def read(self, queue: "Sequence[tuple[_Answered, Shown]]") -> Iterator[Prediction]:
        """A prediction for each image that is shown."""
        if not queue:
            return iter(())
        self._reader = self._reader or self._open_reader()
        return self._reader.read((shown.id, shown.image()) for _, shown in queue)


def groups(pages: Sequence[InputPage]) -> Iterator[list[InputPage]]:
    """The pages that are read together: the same ones whatever was read before, so that batches are the same too."""
    group: list[InputPage] = []
    weight = 0
    for page in pages:
        group.append(page)
        weight += 1 if page.shows == "line" else _LINES_OF_A_PAGE
        if weight >= _LINES_TOGETHER:
            yield group
            group, weight = [], 0
    if group:
        yield group


def _processes(wanted: Sequence[Sequence[InputPage]]) -> int:
    """As many as there are cores, but no more than a group has pages; this one alone where there is no next group."""
    return min(max(2, available_cores()), _LINES_TOGETHER // _LINES_OF_A_PAGE) if len(wanted) > 1 else 1


def _read(
    found: Sequence[tuple[InputPage, _Answered | str]], reader: _Opened, *, replace_texts: bool, strict: bool
) -> Rows:
    """Rows for the journal, one a page."""
    if strict:
        _refuse_all(found)
    opened = [answered for _, answered in found if isinstance(answered, _Answered)]
    queue = [(answered, shown) for answered in opened for shown in answered.page.shown]
    for (answered, _), prediction in zip(queue, reader.read(queue), strict=True):
        answered.predictions.append(prediction)
    return [(page.id, page.stamp, _row(answered, replace_texts=replace_texts)) for page, answered in found]


def _row(answered: _Answered | str, *, replace_texts: bool) -> dict[str, object]:
    if isinstance(answered, str):
        return {"refused": answered}
    return {"page": _assembled(answered, replace_texts=replace_texts).as_json()}


def _refuse_all(found: Sequence[tuple[InputPage, _Answered | str]]) -> None:
    for page, answered in found:
        if isinstance(answered, str):
            raise DataError(answered, where=page.id)
    for _, answered in found:
        if isinstance(answered, _Answered) and answered.page.refused:
            raise DataError(answered.page.refused[0])


def _assembled(answered: _Answered, *, replace_texts: bool) -> ReadPage:
    """The page's lines in their order, each with its text; then what could not be given to the lines that are drawn."""
    page = answered.page
    texts: dict[Line, ReadLine] = {}
    more: list[ReadLine] = []
    unmatched = 0
    for shown, prediction in zip(page.shown, answered.predictions, strict=True):
        parted = [prediction] if _is_one_line(shown) else prediction.split_lines()
        if len(parted) == len(shown.lines):
            read = {line: _line_reading(line, part) for line, part in zip(shown.lines, parted, strict=True)}
            texts |= {line: text for line, text in read.items() if replace_texts or is_blank(line.text)}
        else:
            unmatched += bool(shown.lines)
            more += _slices(shown, parted, page.size)
    lines = [texts.get(line) or _kept(line) for line in page.lines]
    return ReadPage(page.page, page.size, (*lines, *more), page.refused, unmatched)


def _told(prediction: Prediction) -> dict[str, object]:
    """What a prediction says beside its id and text."""
    told = prediction.as_dict(characters=True)
    return {name: value for name, value in told.items() if name not in {"id", "text"}}


def _is_one_line(shown: Shown) -> bool:
    return len(shown.lines) == 1 and shown.outline == shown.lines[0].outline


def _line_reading(line: Line, part: Prediction) -> ReadLine:
    return ReadLine(line.where, part.text, line.outline, line.region, line.place, told=_told(part))


def _kept(line: Line) -> ReadLine:
    return ReadLine(
        line.where, line.text.strip(), line.outline, line.region, line.place, was_there=bool(line.text.strip())
    )


def _slices(shown: Shown, parts: Sequence[Prediction], size: tuple[int, int]) -> list[ReadLine]:
    """Lines of which only the region is known: they share its height evenly."""
    left, top, right, bottom = shown.outline.box if shown.outline else (0, 0, *size)
    share = (bottom - top) / len(parts)
    known = shown.lines[0].region if shown.lines else None
    region = known or Region(shown.id, shown.outline)
    lines = []
    for number, part in enumerate(parts):
        box = (left, round(top + number * share), right, round(top + (number + 1) * share))
        lines.append(ReadLine(f"{shown.id}#{number + 1}", part.text, Outline(box), region, told=_told(part)))
    return lines


_WRITTEN = "written"
"""The empty file that says the draft is whole and about to take its place."""


@dataclass(frozen=True, slots=True)
class Work:
    """Where a transcription is made."""

    journal: ReadingJournal
    unpacked: Path
    draft: Path


@contextmanager
def work_folder(out: Path) -> Iterator[Work]:
    """A place to make `out` in; when the block ends well, its draft takes the place of `out`.

    When it does not, what was read stays for the next try, if it took long enough to be worth a folder more.
    """
    folder = work_path(out)
    with explain_disk_errors(folder.parent), _working(out, folder) as work:
        yield work


@contextmanager
def _working(out: Path, folder: Path) -> Iterator[Work]:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    journal = ReadingJournal(folder / "journal.sqlite")
    went_on = not journal.is_empty
    work = Work(journal, folder / "unpacked", folder / "draft")
    former = folder / "former"
    whole = False
    try:
        # What was replaced before can be here still, where somebody had it open when it was to go.
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
    """Ends what one that was killed in its last moment left half done, so that `out` is there, and alone."""
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
