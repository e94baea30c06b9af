"""Suggest which untranscribed lines to transcribe next, as PAGE XML, tables and pictures.

A line is worth more if the model is uncertain of it, if its writer is new, and if it has rare characters. After each
choice, lines of the same page or new writer and with the same rare characters are worth less, so the list is spread
over pages and writers and its first part is worth transcribing by itself.
"""

import heapq
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from dsocr.config import load_run_config
from dsocr.data.contact_sheet import SheetRow, sheet_writer
from dsocr.data.convert import Conversion, converted_files, require_free_conversion
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.source_report import SourceReport
from dsocr.data.sources import UntranscribedSource, open_source
from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats import target_format
from dsocr.formats.tables import tab_table
from dsocr.formats.xml import name_elements
from dsocr.images import CropFailure, crop_page, open_image, read_bytes, upright_size
from dsocr.inference.confidence import Calibration
from dsocr.inference.detection import detect_lines
from dsocr.inference.inputs import guess_shows
from dsocr.inference.review import worth_checking
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems
from dsocr.io.web import FetchOptions
from dsocr.io.work import writing_folder
from dsocr.models.base_folder import require_readable_adapter
from dsocr.models.scripts import describe_script
from dsocr.runs import RunFolder, to_json
from dsocr.text import percentage

RARE = 20
"""Characters with fewer occurrences than this in the training split are rare."""
_NEW_WRITER, _RARE_CHARACTERS = 0.5, 0.5
"""The value of a new writer, and the largest value of rare characters, beside an uncertainty of 1."""
_EMPTY_UNCERTAINTY = 0.3
"""The uncertainty of a line read as empty, which may hold no text at all."""
_DECAY = 0.7
"""The factor by which each chosen line lowers the value of the next ones of its page or new writer."""
_REASON_CHARACTERS = 8
"""Rare characters that a reason lists."""
TABLE, LIST, SHEET = "suggestions.tsv", "suggestions.json", "suggestions.html"
_SHEET_LINES = 300
"""Lines on the contact sheet; each takes some 30 kB."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line as the model reads it; `confidence` is the share of its text that is likely right, None if unknown."""

    id: str
    text: str
    confidence: float | None
    page: str | None = None
    writer: str | None = None

    @property
    def uncertainty(self) -> float:
        """The errors expected in it for the work of transcribing it, from 0 to 1."""
        is_unknown = self.confidence is None or not self.text
        return _EMPTY_UNCERTAINTY if is_unknown else worth_checking(self.confidence, len(self.text))


@dataclass(frozen=True, slots=True)
class TrainingContent:
    """The writers of the training split, and how often each character occurs in it.

    If no writer is known there, no writer counts as new; if it is empty, no character counts as rare.
    """

    writers: frozenset[str]
    characters: Mapping[str, int]

    @classmethod
    def of(cls, samples: Sequence[tuple[str | None, str]]) -> "TrainingContent":
        """Count pairs of a writer and a text."""
        writers = frozenset(writer for writer, _ in samples if writer)
        return cls(writers, Counter(character for _, text in samples for character in text))


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen line, its value when it was chosen, and the reason."""

    candidate: Candidate
    value: float
    reason: str


def choose(candidates: Sequence[Candidate], training: TrainingContent, count: int) -> list[Choice]:
    """Choose at most `count` lines, the most valuable first."""
    taken = _Chosen(training)
    # Values only fall as lines are chosen, so one that is still the largest when computed again is the largest.
    heap = [(-taken.value(candidate), place) for place, candidate in enumerate(candidates)]
    heapq.heapify(heap)
    chosen: list[Choice] = []
    while heap and len(chosen) < count:
        _, place = heapq.heappop(heap)
        candidate = candidates[place]
        value = taken.value(candidate)
        if heap and -heap[0][0] > value:
            heapq.heappush(heap, (-value, place))
            continue
        chosen.append(Choice(candidate, value, taken.reason(candidate)))
        taken.add(candidate)
    return chosen


class _Chosen:
    """The lines chosen so far, and the value of further ones."""

    def __init__(self, training: TrainingContent) -> None:
        self._training = training
        self._pages: Counter[str | None] = Counter()
        self._writers: Counter[str | None] = Counter()
        self._characters: Counter[str] = Counter()

    def value(self, candidate: Candidate) -> float:
        value = candidate.uncertainty
        if self._is_new(candidate):
            value += _NEW_WRITER * _DECAY ** self._writers[candidate.writer]
        counts = self._training.characters
        # From 1, for a character that never occurs in training, to 0; less with each line chosen for it.
        rarities = (
            (1 - counts.get(letter, 0) / RARE) * _DECAY ** self._characters[letter] for letter in self._rare(candidate)
        )
        value += _RARE_CHARACTERS * min(sum(rarities), 1.0)
        return value * (_DECAY ** self._pages[candidate.page] if candidate.page else 1.0)

    def reason(self, candidate: Candidate) -> str:
        reasons = []
        if not candidate.text:
            reasons.append("read as empty")
        elif candidate.confidence is not None:
            reasons.append(f"{percentage(candidate.confidence, 0)} of its text is likely right")
        if self._is_new(candidate):
            reasons.append("a new writer")
        if rare := self._rare(candidate):
            more = f" and {len(rare) - _REASON_CHARACTERS} more" if len(rare) > _REASON_CHARACTERS else ""
            reasons.append(f"rare in training: {' '.join(rare[:_REASON_CHARACTERS])}{more}")
        return "; ".join(reasons)

    def add(self, candidate: Candidate) -> None:
        self._pages[candidate.page] += 1
        self._writers[candidate.writer] += 1
        self._characters.update(self._rare(candidate))

    def _is_new(self, candidate: Candidate) -> bool:
        writers = self._training.writers
        return bool(writers) and candidate.writer is not None and candidate.writer not in writers

    def _rare(self, candidate: Candidate) -> list[str]:
        counts = self._training.characters
        letters = {letter for letter in candidate.text if not letter.isspace() and counts.get(letter, 0) < RARE}
        return sorted(letters) if counts else []


@dataclass(frozen=True, slots=True)
class Suggestions:
    """The chosen lines, out of how many untranscribed ones, and what could not be read.

    `mean_confidence` is that of all lines that were read; `unfamiliar` says that their hands or script are unlike all
    that the run knows.
    """

    out: Path
    choices: Sequence[Choice]
    untranscribed: int
    skipped: Sequence[Skipped]
    remarks: Sequence[str]
    mean_confidence: float | None = None
    unfamiliar: bool = False


def suggest(
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
    progress: Callable[[int, int], None] | None = None,
    reader: "ReadCandidates | None" = None,
    script: str | None = None,
    fetch: FetchOptions | None = None,
) -> Suggestions:
    """Read every untranscribed line of a source with a run's adapter, and write the `count` best ones to `out`.

    The source is what `prepare` reads, whose lines without a text are the untranscribed ones, or a folder of line
    images. `writer` is a column or a pattern over file names, `encoding` that of texts that are not UTF-8. `script`
    replaces the run's `generation.script`; where that is auto, the first lines decide. Raises DataError if there is no
    untranscribed line.
    """
    require_free_conversion(out, source, overwrite=overwrite, kind="queue")
    if reader is None:
        require_readable_adapter(run.adapter)
    training, remarks = _training_content(run)
    notes = SourceReport(strict)
    with (
        text_encoding(encoding),
        writing_folder(out) as folder,
        open_source(source, folder.with_name(f"{folder.name}-unpacked"), fetch, progress) as opened,
    ):
        untranscribed = UntranscribedSource.open(opened.path, format, {"writer": writer}, _LinesOfPages())
        list(notes.filter_pages(opened.items))
        counting = SourceReport(strict=False)
        lines = sum(len(image.lines) for image in untranscribed.pages(counting))
        untranscribed.names.require_matches()
        if not lines:
            why, hint = (counting.explain_empty(), None) if counting.skipped else ("", "all lines have a text already")
            raise DataError(f"No untranscribed line{why}", code="nothing-untranscribed", where=source, hint=hint)
        crops = _Crops(untranscribed, notes, folder / ".cut")
        candidates: list[Candidate] = []
        read = partial(_read_candidates, run, script, remarks)
        for candidate in (reader or read)(crops.images()):
            page, name = crops.pages[candidate.id]
            candidates.append(replace(candidate, page=name, writer=page.writer))
            if progress is not None:
                progress(len(candidates), lines)
        rated = [line.confidence for line in candidates if line.text and line.confidence is not None]
        mean = sum(rated) / len(rated) if rated else None
        unfamiliar = Calibration.load(run.adapter).is_unfamiliar(mean, len(rated))
        choices = choose(candidates, training, count)
        places = _write_pages(folder, untranscribed, {choice.candidate.id for choice in choices}, notes)
        choices = [choice for choice in choices if choice.candidate.id in places]
        if not choices:
            raise DataError(f"No line could be read{notes.explain_empty()}", code="nothing-readable", where=source)
        rows = [_row(rank, choice, places[choice.candidate.id]) for rank, choice in enumerate(choices, 1)]
        _write_tables(folder, rows)
        shown = [
            SheetRow(row["reading"], f"{row['rank']}. {row['reason']}", [(row["where"], open_image(crops.files[id_]))])
            for row, id_ in zip(rows[:_SHEET_LINES], (choice.candidate.id for choice in choices), strict=False)
        ]
        sheet_writer(folder / SHEET)(f"Lines to transcribe next: {len(rows)}", shown)
        shutil.rmtree(folder / ".cut")
        card = Conversion(
            source=opened.name,
            source_format=untranscribed.format_name,
            target="page",
            images=len({row["file"] for row in rows}),
            lines=len(choices),
            splits={},
            left_behind=[f"{lines - len(choices)} further untranscribed lines"],
            skipped=notes.skipped_card(),
            unmatched=notes.unmatched_card(),
            notes=[*notes.notes, *remarks],
            files=converted_files(folder),
        )
        card.write(folder)
    return Suggestions(out, choices, lines, notes.skipped, card.notes, mean, unfamiliar)


class _LinesOfPages:
    """Finds the lines of page images without any, once each."""

    def __init__(self) -> None:
        self._found: dict[Path, tuple[Line, ...]] = {}

    def __call__(self, image: Path, where: str) -> tuple[Line, ...]:
        """Return the lines of a page; an image of a line is its only line."""
        if image not in self._found:
            try:
                is_page = guess_shows(upright_size(image)) == "page"
                lines = detect_lines(read_bytes(image), where) if is_page else ()
            except DataError:  # reported when it is cut
                lines = ()
            self._found[image] = tuple(lines) or (Line("", where),)
        return self._found[image]


ReadCandidates = Callable[[Iterator[tuple[str, Image.Image]]], Iterator[Candidate]]
"""Reads images with ids, in their order."""


_TOGETHER = 64
"""Lines that one reader reads before the next does."""


def _read_candidates(
    run: RunFolder,
    script: str | None,
    remarks: list[str],
    images: Iterator[tuple[str, Image.Image]],
) -> Iterator[Candidate]:
    from dsocr.inference.reader import LocalReader

    first = LocalReader.of_run(run, script=script)
    while group := list(islice(images, _TOGETHER)):
        if (decided := first.decide_script(image for _, image in group)) is not first:
            first = decided
            remarks.append(describe_script(first.generation.script))
        for line in first.read(group):
            yield Candidate(line.id, line.text, line.confidence)


def _training_content(run: RunFolder) -> tuple[TrainingContent, list[str]]:
    """Return what the run was trained on, and a note if that is nothing, or its dataset is missing."""
    if not run.config.is_file():
        note = "the reader was not trained on a dataset here, so no writer counts as new and no character as rare"
        return TrainingContent(frozenset(), {}), [note]
    config = load_run_config(run.config)
    try:
        samples = training_samples(Dataset.open(config.dataset, fold=config.fold), config)
    except DataError as error:
        note = f"the run's dataset is missing ({error}), so no writer counts as new and no character as rare"
        return TrainingContent(frozenset(), {}), [note]
    return TrainingContent.of([(sample.writer, sample.text) for sample in samples]), []


class _Crops:
    """Crop lines page by page, and keep their pages, names of pages, places and files by the id of the line."""

    def __init__(self, untranscribed: UntranscribedSource, notes: SourceReport, folder: Path) -> None:
        self._untranscribed, self._notes, self._folder = untranscribed, notes, folder
        self.pages: dict[str, tuple[Page, str]] = {}
        self.files: dict[str, Path] = {}

    def images(self) -> Iterator[tuple[str, Image.Image]]:
        """Yield each line's id and picture, cropped as `prepare` does; what cannot be cropped is noted."""
        self._folder.mkdir()
        for number, page in enumerate(self._untranscribed.pages(self._notes)):
            try:
                data = page.content() if page.content else read_bytes(page.image)
                cut = crop_page(page, data, self._folder, f"{number}")
            except DataError as error:
                cut = CropFailure(SkipReason.BAD_IMAGE, error.message)
            if isinstance(cut, CropFailure):
                self._notes.skip(Skipped(cut.reason, page.where, cut.message))
                continue
            for place, (line, stored) in enumerate(zip(page.lines, cut.lines, strict=True)):
                if isinstance(stored, CropFailure):
                    self._notes.skip(Skipped(stored.reason, line.where, stored.message))
                    continue
                id_ = _id(number, place)
                # For images of single lines, the folder stands for the page.
                name = page.name if line.outline else PurePosixPath(page.name).parent.as_posix()
                self.pages[id_] = (page, page.page or name)
                self.files[id_] = self._folder / stored.file
                yield id_, open_image(self.files[id_])


def _id(page: int, line: int) -> str:
    """Return the id of a line: its page's and its own index among the untranscribed ones."""
    return f"{page}:{line}"


def _write_pages(
    folder: Path, untranscribed: UntranscribedSource, chosen: set[str], notes: SourceReport
) -> dict[str, dict[str, str]]:
    """Write the images of the chosen lines, each with a PAGE file that has these lines alone.

    Returns where each line is: in the source, and in which written file under which id.
    """
    writing, stems = target_format("page").open_writer(folder, ()), UniqueStems()
    places: dict[str, dict[str, str]] = {}
    for number, page in enumerate(untranscribed.pages(SourceReport(strict=False))):
        lines_by_id = {
            _id(number, place): line for place, line in enumerate(page.lines) if _id(number, place) in chosen
        }
        if not lines_by_id:
            continue
        stem, lines = stems.take(page.name.rpartition("/")[2]), tuple(lines_by_id.values())
        added = writing.add(replace(page, lines=lines, split=None), stem)
        for item in added.skipped:
            notes.skip(item)
        if added.lines:
            names = [name for _, named_lines in name_elements(lines) for name, _ in named_lines]
            for (id_, line), name in zip(lines_by_id.items(), names, strict=True):
                places[id_] = {"where": line.where, "file": f"page/{stem}.xml", "line": name}
    writing.close()
    return places


def _row(rank: int, choice: Choice, place: Mapping[str, str]) -> dict[str, Any]:
    candidate = choice.candidate
    return {
        "rank": rank,
        **place,
        "page": candidate.page,
        "writer": candidate.writer,
        "confidence": candidate.confidence,
        "reason": choice.reason,
        "reading": candidate.text,
    }


def _write_tables(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    table = tab_table([list(rows[0]), *(list(row.values()) for row in rows)])
    (folder / TABLE).write_text(table, encoding="utf-8", newline="\n")
    (folder / LIST).write_text(to_json({"lines": rows}), encoding="utf-8", newline="\n")
