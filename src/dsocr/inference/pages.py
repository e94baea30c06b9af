"""Transcribe pages: read their crops, assemble the lines, and keep the results in a journal that can be resumed."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from PIL import Image
from pydantic import TypeAdapter

from dsocr.document import Line, Outline, Page, Region, Table
from dsocr.errors import DataError
from dsocr.images import crop_box
from dsocr.inference.confidence import Prediction
from dsocr.inference.inputs import Crop, InputPage, PagePreparer, PreparedPage
from dsocr.io.processes import return_free_memory
from dsocr.io.work import Journal
from dsocr.layout import lies_on_side
from dsocr.models.generation import spread
from dsocr.outlines import is_backward, quarter_turns
from dsocr.text import is_blank

_JOURNAL_VERSION = 5
"""Version of the rows in a journal."""
_LINES, _TABLES = TypeAdapter(tuple[Line, ...]), TypeAdapter(tuple[Table, ...])


@dataclass(frozen=True, slots=True)
class TranscribedPage:
    """A page with the texts that were read: its lines have a `prediction`, those whose text was kept have none.

    `failed` are messages about lines that could not be cut; `unmatched` counts regions that were answered with another
    number of lines than they have, `outside` lines in regions that were not to be read. The page is `upside_down` if
    its lines are read better turned by 180 degrees.
    """

    source: InputPage
    page: Page
    failed: tuple[str, ...] = ()
    unmatched: int = 0
    outside: int = 0
    upside_down: bool = False

    @classmethod
    def from_row(cls, source: InputPage, row: Mapping[str, Any]) -> "TranscribedPage":
        """Return an input page with its lines from the journal, in pixels of the upright image."""
        width, height = row["size"]
        page = Page(
            image=source.image or source.path,
            name=source.name,
            where=source.id,
            lines=_LINES.validate_python(row["lines"]),
            size=(width, height),
            content=source.content if source.number else None,
            number=source.number,
            xml=source.path if source.image else None,
            unit=source.shows,
            tables=_TABLES.validate_python(row["tables"]),
        )
        return cls(source, page, tuple(row["failed"]), row["unmatched"], row["outside"], row["upside_down"])


def journal_job(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide the texts and their form in the journal: another job cannot resume."""
    return {"journal": _JOURNAL_VERSION, **settings}


def read_pages(
    journal: Journal, pages: Sequence[InputPage], failed: list[str] | None = None
) -> Iterator[TranscribedPage]:
    """Yield each page that was read, in order; messages about the others are added to `failed`."""
    for page in pages:
        row = journal.get(page_key(page))
        if "page" in row:
            yield TranscribedPage.from_row(page, row["page"])
        elif failed is not None:
            failed.append(f"{page.id}: {row['failed']}")


def page_key(page: InputPage) -> str:
    """Return the key of a page in the journal, which changes with its file."""
    return json.dumps([page.id, page.stamp])


_LINES_TOGETHER = 64
"""Line images that are read together, and lost together if the process is killed."""
_LINES_OF_A_PAGE = 16
"""Number of line images that a page counts for; it may have more."""

_SAMPLE = 8
"""Lines of a page that are read in both directions."""
# `small` is sure of lines of copiste and of registers with 0.76 or more on average of a page, upside down with 0.63 at
# most; the least difference on a page is 0.2 (lab/verdicts.md, "Finding lines").
_SURE, _SURER, _FEW = 0.7, 0.1, 3
"""Mean confidence of an upright page, the least gain by turning a page, and the fewest lines to judge by."""


class ImageReader(Protocol):
    """Reads images."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        ...


@runtime_checkable
class JudgingReader(ImageReader, Protocol):
    """Reads images, and says how likely given texts are."""

    def log_likelihoods(self, image: Image.Image, texts: Sequence[str]) -> list[float]:
        """The natural log probability of each text of one image."""
        ...


Rows = list[tuple[str, dict[str, Any]]]
"""The journal's records of pages, by their keys: lines, or the reason of a failure."""

ReadGroups = Callable[[Sequence[Sequence[InputPage]]], Generator[Rows]]
"""Reads groups of pages and yields the rows of each group when it is done, in any order."""


def read_into(
    journal: Journal,
    pages: Sequence[InputPage],
    read: ReadGroups,
    *,
    progress: Callable[[int, int], None] | None,
) -> int:
    """Read every page that the journal lacks, and return the number of those in it."""
    unknown = ([page for page in group if page_key(page) not in journal] for group in group_pages(pages))
    groups = [group for group in unknown if group]
    known = done = len(pages) - sum(map(len, groups))
    if progress and known:
        progress(done, len(pages))
    with closing(read(groups)) as answered:
        for rows in answered:
            journal.add(rows)
            done += len(rows)
            if progress:
                progress(done, len(pages))
    return known


def group_pages(pages: Sequence[InputPage]) -> Iterator[list[InputPage]]:
    """Yield the pages to read together: the same whatever was read before, so that batches are the same too.

    The first group is one page, so that it is soon in the journal; so is every large page.
    """
    group: list[InputPage] = []
    weight, limit = 0, _LINES_OF_A_PAGE
    for page in pages:
        if page.is_large and group:
            yield group
            group, weight = [], 0
        group.append(page)
        weight += 1 if page.shows == "line" else _LINES_OF_A_PAGE
        if weight >= limit or page.is_large:
            yield group
            group, weight, limit = [], 0, _LINES_TOGETHER
    if group:
        yield group


def read_locally(
    groups: Sequence[Sequence[InputPage]],
    preparer: PagePreparer,
    open_reader: Callable[[], ImageReader],
    *,
    strict: bool,
) -> Generator[Rows]:
    """Yield the results of each group of pages, in order.

    `open_reader` is called when there is something to read. An unreadable page has the reason; `strict` raises it.
    """
    opened_reader = cache(open_reader)
    for group in groups:
        is_large = any(page.is_large for page in group)
        if is_large:
            return_free_memory()
        prepared = [preparer.try_prepare(page) for page in group]
        if is_large:
            return_free_memory()
        for page, result in prepared if strict else ():
            if isinstance(result, str):
                raise DataError(result, code="page-not-readable", where=page.id)
            if result.failed:
                raise DataError(result.failed[0], code="page-not-readable")
        prepared = [(page, _choose_direction(result, preparer, opened_reader)) for page, result in prepared]
        crops = [crop for _, result in prepared if isinstance(result, PreparedPage) for crop in result.crops]
        predictions = iter(opened_reader().read(_open_crops(crops)) if crops else ())
        rows = []
        for page, result in prepared:
            answers = list(islice(predictions, len(result.crops))) if isinstance(result, PreparedPage) else []
            rows.append((page_key(page), _row(result, answers, preparer, opened_reader)))
        yield rows


def _choose_direction(
    page: PreparedPage | str, preparer: PagePreparer, reader: Callable[[], ImageReader]
) -> PreparedPage | str:
    """Return a page that lies on its side with the direction in which a reader is surer of its lines."""
    if isinstance(page, str) or page.source.image or preparer.unit != "line":
        return page
    outlines = [line.outline for line in page.lines if line.outline]
    if not outlines or not lies_on_side(outlines):
        return page
    sample = spread(page.crops, _SAMPLE)
    turned = [crop.turn_over() for crop in sample]
    upwards, downwards = (_mean_confidence(reader().read(_open_crops(crops))) for crops in (sample, turned))
    return page.turn_over() if downwards > upwards else page


def _is_upside_down(page: PreparedPage, read: Sequence[Prediction], reader: Callable[[], ImageReader]) -> bool:
    """Whether a reader that is not sure of a page is much surer of its lines turned by 180 degrees."""
    if len(read) < _FEW or _mean_confidence(read) >= _SURE or all(answer.confidence is None for answer in read):
        return False
    sample = spread(list(zip(page.crops, read, strict=True)), _SAMPLE)
    turned = reader().read(_open_crops([crop.turn_over() for crop, _ in sample]))
    return _mean_confidence(turned) >= _mean_confidence(answer for _, answer in sample) + _SURER


def _mean_confidence(read: Iterable[Prediction]) -> float:
    confidences = [answer.confidence or 0.0 for answer in read]
    return sum(confidences) / max(len(confidences), 1)


def _open_crops(crops: Sequence[Crop]) -> Iterator[tuple[str, Image.Image]]:
    return ((crop.id, crop.image()) for crop in crops)


def _row(
    page: PreparedPage | str, read: Sequence[Prediction], preparer: PagePreparer, reader: Callable[[], ImageReader]
) -> dict[str, Any]:
    """Return the journal's record of a page: the message if it cannot be read, else its lines in their order.

    Texts that do not fit the lines of their region follow. `read` are the answers to its crops.
    """
    if isinstance(page, str):
        return {"failed": page}
    texts: dict[Line, Line] = {}
    more: list[Line] = []
    unmatched = 0
    for crop, prediction in _line_by_line(page, read, preparer, reader):
        is_one_line = len(crop.lines) == 1 and crop.outline == crop.lines[0].outline
        parts = [prediction] if is_one_line else prediction.split_lines()
        if len(parts) == len(crop.lines):
            if is_one_line:
                parts = [_along_line(prediction, crop.lines[0].outline, page.size)]
            new = {line: _with_prediction(line, part) for line, part in zip(crop.lines, parts, strict=True)}
            texts |= {line: text for line, text in new.items() if preparer.replace_texts or is_blank(line.text)}
        else:
            unmatched += bool(crop.lines)
            more += _slices(crop, parts, page.size)
    lines = [texts.get(line) or replace(line, text=line.text.strip()) for line in page.lines]
    upside_down = preparer.unit == "line" and page.source.shows == "page" and _is_upside_down(page, read, reader)
    lines += more
    outside = sum(not preparer.wants(line) for line in lines)
    return {"page": page_row(page, lines, unmatched, outside, upside_down=upside_down)}


def _line_by_line(
    page: PreparedPage, read: Sequence[Prediction], preparer: PagePreparer, reader: Callable[[], ImageReader]
) -> Iterator[tuple[Crop, Prediction]]:
    """Yield each crop with its answer; lines of a block that is answered with more or fewer lines are read alone."""
    answers = list(zip(page.crops, read, strict=True))
    differ = [crop for crop, answer in answers if len(answer.split_lines()) != len(crop.lines) > 1]
    if preparer.most is None or not differ:
        yield from answers
        return
    places = {line.where for crop in differ for line in crop.lines}
    alone = replace(preparer, unit="line", most=None, tables=None).prepare(page.source)
    crops = [crop for crop in alone.crops if crop.lines[0].where in places]
    yield from ((crop, answer) for crop, answer in answers if crop not in differ)
    yield from zip(crops, reader().read(_open_crops(crops)), strict=True)


def page_row(
    page: PreparedPage,
    lines: Sequence[Line],
    unmatched: int = 0,
    outside: int = 0,
    *,
    upside_down: bool = False,
) -> dict[str, Any]:
    """Return the journal's record of a page that was read: see `TranscribedPage.from_row`."""
    rows, tables = [asdict(line) for line in lines], [asdict(table) for table in page.tables]
    about = {"failed": page.failed, "unmatched": unmatched, "outside": outside, "upside_down": upside_down}
    return {"size": page.size, "lines": rows, "tables": tables, **about}


def _along_line(prediction: Prediction, outline: Outline | None, size: tuple[int, int]) -> Prediction:
    """Return a prediction whose words have their place along the line's box instead of its crop, if it is upright."""
    if outline is None:
        return prediction
    (begin, _, end, _), (left, _, right, _) = crop_box(outline, size), outline.box
    is_upright = not quarter_turns(outline) and not is_backward(outline) and right > left

    def moved(side: float | None) -> float | None:
        if side is None or not is_upright:
            return None
        return min(max((begin + side * (end - begin) - left) / (right - left), 0.0), 1.0)

    words = (replace(word, left=moved(word.left), right=moved(word.right)) for word in prediction.words)
    return replace(prediction, words=tuple(words))


def _with_prediction(line: Line, prediction: Prediction) -> Line:
    row = prediction.as_dict(characters=True)
    details = {name: value for name, value in row.items() if name not in {"id", "text"}}
    return replace(line, text=prediction.text, prediction=details)


def _slices(crop: Crop, parts: Sequence[Prediction], size: tuple[int, int]) -> list[Line]:
    """Return lines known by their region only: they share its height evenly."""
    left, top, right, bottom = crop.outline.box if crop.outline else (0, 0, *size)
    height = (bottom - top) / len(parts)
    known = crop.lines[0].region if crop.lines else None
    region = known or Region(crop.id, crop.outline)
    lines = []
    for number, part in enumerate(parts):
        box = (left, round(top + number * height), right, round(top + (number + 1) * height))
        lines.append(_with_prediction(Line("", f"{crop.id}#{number + 1}", Outline(box), region), part))
    return lines
