"""The recipe of a queue: which untranscribed lines of a source to transcribe next, as PAGE XML, tables and pictures."""

import csv
import heapq
import io
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from dsocr.config import load_run_config
from dsocr.data.contact_sheet import SheetRow, sheet_writer
from dsocr.data.convert import Conversion, check_conversion_folder, converted_files
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.source_report import SourceReport
from dsocr.data.sources import UntranscribedSource, open_source
from dsocr.document import Sample, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.page import open_page_writer
from dsocr.images import open_image, read_bytes
from dsocr.io.atomic import writing_folder
from dsocr.io.cropping import CropFailure, crop_page
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems
from dsocr.models.checkpoint import require_readable_adapter
from dsocr.runs import RunFolder, to_json

RARE = 20
"""Times a character stands in the training split below which a line that has it is worth more."""
_NEW_WRITER, _RARE_CHARACTERS = 0.5, 0.5
"""What a new writer, and rare characters at the most, are worth beside an uncertainty of 1."""
_UNREAD = 0.5
"""The uncertainty of a line in which nothing was read: it may hold no text at all."""
_RANKS_SHOWN = 8
"""Rare characters that a reason names."""
_AGAIN = 0.7
"""What each line that was already taken from a page, or from a new writer, leaves of the worth of the next."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line as a model reads it; `confidence` is the share of its text that is likely right, None if not known."""

    id: str
    text: str
    confidence: float | None
    page: str | None = None
    writer: str | None = None

    @property
    def uncertainty(self) -> float:
        """From 0 to 1."""
        return _UNREAD if self.confidence is None or not self.text else 1 - self.confidence


@dataclass(frozen=True, slots=True)
class Known:
    """What the training split holds: its writers, and how often each character stands there.

    Where no writer is known there, nobody is new; where no character is, none is rare.
    """

    writers: frozenset[str]
    characters: Mapping[str, int]

    @classmethod
    def of(cls, samples: Iterable[tuple[str | None, str]]) -> "Known":
        """Counted from pairs of a writer and a text."""
        writers: set[str] = set()
        characters: Counter[str] = Counter()
        for writer, text in samples:
            writers |= {writer} if writer else set()
            characters.update(text)
        return cls(frozenset(writers), characters)


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen line, what it was worth when it was chosen, and why, in words."""

    candidate: Candidate
    worth: float
    reason: str


def choose(candidates: Sequence[Candidate], known: Known, count: int) -> list[Choice]:
    """At most `count` lines, the one worth most first.

    After each choice, what it brings is worth less in the others: lines of its page, its new writer, its rare
    characters. So the list is spread over pages and hands, and its beginning is worth transcribing by itself.
    """
    taken = _Taken(known)
    # Worth only falls as lines are taken, so one that is still the largest when it is looked at again is the largest.
    heap = [(-taken.worth(candidate), place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    chosen: list[Choice] = []
    while heap and len(chosen) < count:
        _, place = heapq.heappop(heap)
        candidate = candidates[place]
        worth = taken.worth(candidate)
        if heap and -heap[0][0] > worth:
            heapq.heappush(heap, (-worth, place))
            continue
        chosen.append(Choice(candidate, worth, taken.reason(candidate)))
        taken.add(candidate)
    return chosen


class _Taken:
    """What was chosen so far, and what a further line is worth beside it."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._pages: Counter[str] = Counter()
        self._writers: Counter[str] = Counter()
        self._characters: Counter[str] = Counter()

    def worth(self, candidate: Candidate) -> float:
        own = candidate.uncertainty
        if self._is_new(candidate):
            own += _NEW_WRITER * _AGAIN ** self._writers[candidate.writer or ""]
        rare = sum(self._rarity(character) for character in self._rare(candidate))
        own += _RARE_CHARACTERS * min(rare, 1.0)
        return own * (_AGAIN ** self._pages[candidate.page] if candidate.page else 1.0)

    def reason(self, candidate: Candidate) -> str:
        told = []
        if not candidate.text:
            told.append("nothing was read")
        elif candidate.confidence is not None:
            told.append(f"{candidate.confidence:.0%} of its text is likely right")
        if self._is_new(candidate):
            told.append("a new writer")
        if rare := self._rare(candidate):
            more = f" and {len(rare) - _RANKS_SHOWN} more" if len(rare) > _RANKS_SHOWN else ""
            told.append(f"rare in training: {' '.join(rare[:_RANKS_SHOWN])}{more}")
        return "; ".join(told)

    def add(self, candidate: Candidate) -> None:
        if candidate.page:
            self._pages[candidate.page] += 1
        if candidate.writer:
            self._writers[candidate.writer] += 1
        self._characters.update(self._rare(candidate))

    def _is_new(self, candidate: Candidate) -> bool:
        known = self._known.writers
        return bool(known) and candidate.writer is not None and candidate.writer not in known

    def _rare(self, candidate: Candidate) -> list[str]:
        counts = self._known.characters
        if not counts:
            return []
        return sorted({letter for letter in candidate.text if not letter.isspace() and counts.get(letter, 0) < RARE})

    def _rarity(self, character: str) -> float:
        """From 1, for one that never stood in training, to 0; less with each line that was taken for it."""
        return (1 - self._known.characters.get(character, 0) / RARE) * _AGAIN ** self._characters[character]


TABLE, LIST, SHEET = "next.tsv", "next.json", "next.html"
_SHOWN = 300
"""Lines on the contact sheet; each takes some 30 kB."""

Progress = Callable[[int, int], None]
"""Told after each line that is read: how many are, and how many there are."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What was chosen, out of how many untranscribed lines, and what could not be read."""

    out: Path
    choices: Sequence[Choice]
    waiting: int
    skipped: Sequence[Skipped]
    remarks: Sequence[str]


def next_lines(
    run: RunFolder,
    source: Path,
    out: Path,
    *,
    count: int = 100,
    format: str | None = None,
    writer: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    reader: "Reader | None" = None,
) -> Queue:
    """Read every untranscribed line of a source with a run's adapter, and write the `count` best to `out`.

    The source is what `prepare` reads (there, lines without a text are those that wait), or a folder of line images.
    `writer` is a column or a pattern over file names, `encoding` that of texts that are not UTF-8. Raises DataError
    where no line waits.
    """
    check_conversion_folder(out, source, overwrite=overwrite, kind="queue")
    if reader is None:
        require_readable_adapter(run.adapter)
    known, remarks = _known(run)
    notes = SourceReport(strict)
    with (
        text_encoding(encoding),
        writing_folder(out) as folder,
        open_source(source, folder.with_name(f"{folder.name}-unpacked")) as held,
    ):
        waiting = UntranscribedSource.open(held.path, format, {"writer": writer})
        for item in held.items:
            if isinstance(item, Skipped):
                notes.skip(item)
            else:
                notes.note(item.message)
        counting = SourceReport(strict=False)
        lines = sum(len(image.lines) for image in waiting.pages(counting))
        waiting.names.require_matches()
        if not lines:
            why, hint = (counting.explain_empty(), None) if counting.skipped else ("", "all lines have a text already")
            raise DataError(f"no line waits for a transcription{why}", where=source, hint=hint)
        cutting = _Cutting(waiting, notes, folder / ".cut")
        candidates: list[Candidate] = []
        for candidate in (reader or _reader(run))(cutting.images()):
            candidates.append(cutting.placed(candidate))
            if progress is not None:
                progress(len(candidates), lines)
        choices = choose(candidates, known, count)
        placed = _write_pages(folder, waiting, {choice.candidate.id for choice in choices}, notes)
        choices = [choice for choice in choices if choice.candidate.id in placed]
        if not choices:
            raise DataError(f"no line could be read{notes.explain_empty()}", where=source)
        rows = [_row(rank, choice, placed[choice.candidate.id]) for rank, choice in enumerate(choices, 1)]
        _write_tables(folder, rows)
        _write_sheet(folder / SHEET, rows, [cutting.pictures[choice.candidate.id] for choice in choices])
        shutil.rmtree(folder / ".cut")
        card = Conversion(
            source=held.name,
            source_format=waiting.format_name,
            target="page",
            images=len({row["file"] for row in rows}),
            lines=len(choices),
            splits={},
            left_behind=[f"{lines - len(choices)} further lines wait for a transcription"],
            skipped=notes.skipped_card(),
            unmatched=notes.unmatched_card(),
            notes=[*notes.notes, *remarks],
            files=converted_files(folder),
        )
        card.write(folder)
    return Queue(out, choices, lines, notes.skipped, card.notes)


Reader = Callable[[Iterator[tuple[str, Image.Image]]], Iterator[Candidate]]
"""Reads images with ids, in their order."""


def _reader(run: RunFolder) -> Reader:
    def read(images: Iterator[tuple[str, Image.Image]]) -> Iterator[Candidate]:
        from dsocr.inference.reader import LocalReader

        for prediction in LocalReader.of_run(run).read(images):
            yield Candidate(prediction.id, prediction.text, prediction.confidence)

    return read


def _known(run: RunFolder) -> tuple[Known, list[str]]:
    """What the run was trained on; a remark where its dataset is not at hand."""
    config = load_run_config(run.config)
    try:
        samples: list[Sample] = training_samples(Dataset.open(config.dataset, fold=config.fold), config)
    except DataError as error:
        remark = f"the run's dataset is not there ({error}): no writer is new and no character is rare"
        return Known(frozenset(), {}), [remark]
    return Known.of((sample.writer, sample.text) for sample in samples), []


class _Cutting:
    """Cuts the lines of one image after another, and remembers whose they are and where their pictures lie."""

    def __init__(self, waiting: UntranscribedSource, notes: SourceReport, folder: Path) -> None:
        self._waiting, self._notes, self._folder = waiting, notes, folder
        self._names: dict[str, tuple[str, str | None]] = {}
        self.pictures: dict[str, Path] = {}

    def images(self) -> Iterator[tuple[str, Image.Image]]:
        """Each line's picture, cut as `prepare` cuts it, with an id; what cannot be cut is noted."""
        self._folder.mkdir()
        for number, image in enumerate(self._waiting.pages(self._notes)):
            try:
                data = image.content() if image.content else read_bytes(image.image)
                cut = crop_page(image, data, self._folder, f"{number}")
            except DataError as error:
                cut = CropFailure(SkipReason.BAD_IMAGE, error.message)
            if isinstance(cut, CropFailure):
                self._notes.skip(Skipped(cut.reason, image.where, cut.message))
                continue
            for place, (line, stored) in enumerate(zip(image.lines, cut.lines, strict=True)):
                if isinstance(stored, CropFailure):
                    self._notes.skip(Skipped(stored.reason, line.where, stored.message))
                    continue
                name = _id(number, place)
                # Images that are lines have no page to be spread over but their folder.
                self._names[name] = (
                    image.page or (image.name if line.outline else PurePosixPath(image.name).parent.as_posix()),
                    image.writer,
                )
                self.pictures[name] = self._folder / stored.file
                yield name, open_image(self.pictures[name])

    def placed(self, candidate: Candidate) -> Candidate:
        """The line with its page and writer."""
        page, writer = self._names[candidate.id]
        return replace(candidate, page=page, writer=writer)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chosen line stands: in the source, and in which file of the queue under which id."""

    where: str
    file: str
    line: str


def _id(image: int, line: int) -> str:
    """A line by its image's and its own place among those that wait."""
    return f"{image}:{line}"


def _write_pages(
    folder: Path, waiting: UntranscribedSource, chosen: set[str], notes: SourceReport
) -> dict[str, _Place]:
    """The images of the chosen lines, each with a PAGE file that has these lines alone; where each line stands."""
    writing, stems = open_page_writer(folder), UniqueStems()
    placed: dict[str, _Place] = {}
    for number, image in enumerate(waiting.pages(SourceReport(strict=False))):
        wanted = [place for place in range(len(image.lines)) if _id(number, place) in chosen]
        if not wanted:
            continue
        stem = stems.take(image.name.rpartition("/")[2])
        lines = tuple(image.lines[place] for place in wanted)
        added = writing.add(replace(image, lines=lines, split=None), stem)
        for item in added.skipped:
            notes.skip(item)
        if added.lines:
            names = [
                f"r{region}l{line}"
                for region, (_, group) in enumerate(groupby(lines, key=lambda line: line.region), 1)
                for line, _ in enumerate(group, 1)
            ]
            for place, line, name in zip(wanted, lines, names, strict=True):
                placed[_id(number, place)] = _Place(line.where, f"page/{stem}.xml", name)
    writing.close()
    return placed


def _row(rank: int, choice: Choice, place: _Place) -> dict[str, Any]:
    candidate = choice.candidate
    return {
        "rank": rank,
        **asdict(place),
        "page": candidate.page,
        "writer": candidate.writer,
        "confidence": candidate.confidence,
        "reason": choice.reason,
        "reading": candidate.text,
    }


def _write_tables(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    told = io.StringIO()
    table = csv.writer(told, dialect="excel-tab", lineterminator="\n")
    table.writerow(rows[0])
    for row in rows:
        # A tab or a line's end in a name or a reading would shift the columns.
        table.writerow("" if value is None else " ".join(str(value).split()) for value in row.values())
    (folder / TABLE).write_text(told.getvalue(), encoding="utf-8", newline="\n")
    (folder / LIST).write_text(to_json({"lines": rows}), encoding="utf-8", newline="\n")


def _write_sheet(path: Path, rows: Sequence[Mapping[str, Any]], pictures: Sequence[Path]) -> None:
    """The first lines to look at, with what the model reads and why they are there."""
    shown = [
        SheetRow(row["reading"], f"{row['rank']}. {row['reason']}", [(row["where"], open_image(picture))])
        for row, picture in zip(rows[:_SHOWN], pictures, strict=False)
    ]
    sheet_writer(path)(f"Lines to transcribe next: {len(rows)}", shown)
