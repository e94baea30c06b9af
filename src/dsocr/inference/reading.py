"""Reading pages, some at a time, into the journal: what is known there is not read again.

While some are read, the next ones are opened in other processes, so that a graphics card does not wait for pages to be
decoded, lines to be found on them, and these to be cut out. A thread would not do: to find lines takes the interpreter
for itself, and then the network's next step waits for it.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from PIL import Image

from dsocr.data.processes import cores, worker_processes
from dsocr.data.sources.layout import Outline, Region, SourceLine
from dsocr.errors import DataError
from dsocr.inference.ahead import made_ahead
from dsocr.inference.inputs.finding import InputPage
from dsocr.inference.inputs.showing import Opening, OpenPage, Shown
from dsocr.inference.journal import ReadingJournal
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.inference.prediction import Prediction
from dsocr.text import is_blank

_LINES_TOGETHER = 64
"""Line images that are read together, and lost together when the process is killed."""
_LINES_OF_A_PAGE = 16
"""What a page counts for among them; more may be on it."""


class Reads(Protocol):
    """What reads images; a Transcriber does."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        ...


Rows = list[tuple[str, str, dict[str, Any]]]
"""What became of some pages, as the journal keeps it: id, stamp, and the page or why it was refused."""

ReadGroups = Callable[[Sequence[Sequence[InputPage]]], Generator[Rows]]
"""Reads groups of pages; gives the rows of each group when it is done, in any order."""


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


def read_here(
    wanted: Sequence[Sequence[InputPage]],
    opening: Opening,
    open_reader: Callable[[], Reads],
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

    def __init__(self, open_reader: Callable[[], Reads]) -> None:
        self._open_reader = open_reader
        self._reader: Reads | None = None

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
    return min(max(2, cores()), _LINES_TOGETHER // _LINES_OF_A_PAGE) if len(wanted) > 1 else 1


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
    texts: dict[SourceLine, ReadLine] = {}
    more: list[ReadLine] = []
    unmatched = 0
    for shown, prediction in zip(page.shown, answered.predictions, strict=True):
        parted = [prediction] if _is_one_line(shown) else prediction.parted()
        if len(parted) == len(shown.lines):
            read = {line: _line(line, part) for line, part in zip(shown.lines, parted, strict=True)}
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


def _line(line: SourceLine, part: Prediction) -> ReadLine:
    return ReadLine(line.where, part.text, line.outline, line.region, line.place, told=_told(part))


def _kept(line: SourceLine) -> ReadLine:
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
