"""Align scans with texts that have no lines: read, align, learn from the sure lines, and do so again.

A round reads every page and aligns it with the text; the lines whose text is sure train the reader of the next round.
The results are PAGE files with the text of each line and its score, and a dataset of the sure lines.
"""

import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from dsocr import __version__
from dsocr.config import load_config
from dsocr.console import shows_progress
from dsocr.data.convert import converted_files
from dsocr.data.page_texts import PageText, read_page_texts
from dsocr.data.prepare import prepare
from dsocr.data.sources import require_source
from dsocr.document import AlignmentMark, Page, word_boxes
from dsocr.errors import DataError, first_few, require_package
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.formats import target_format
from dsocr.formats.tables import spreadsheet
from dsocr.inference.alignment import AlignedLine, Anchors, align_lines, aligned_places
from dsocr.inference.inputs import InputPage, PagePreparer, find_pages
from dsocr.inference.line_fits import ReadingFit, StepFit
from dsocr.inference.pages import Rows, TranscribedPage, journal_job, page_key, page_row, read_into
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, current_time
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import Fetch, FetchOptions
from dsocr.io.work import Journal, Work, listed_files, require_free_output, resumable_work, write_file
from dsocr.job import resolve
from dsocr.layout import choose_segmenter, identify_segmenter
from dsocr.models.ctc import LineRecognizer
from dsocr.models.scripts import script_of_texts
from dsocr.options import Columns, Count, Output, Paths, StrPath, as_paths, between, read_pairs
from dsocr.runs import ReadingSettings, RunFolder, adapter_digest, to_json
from dsocr.training.many_runs import WorkDone, plan_run, train_run

if TYPE_CHECKING:
    from dsocr.inference.reader import LocalReader

CARD = "alignment.json"
_FORMAT = "dsocr-alignment"
PAGES, DATASET, LINES = "pages", "dataset", "lines.tsv"
_CLASSES = 6
"""Classes of a step that count, as where scores were calibrated; the others are too unlikely to decide anything."""
_MIN_MATCHED = 0.2
"""Minimum share of a page's lines with a likely text; other pages are not in the texts."""
_LIKELY = 0.5
_UNCHANGED = 0.005
"""Share of lines with a new text below which no further round follows."""
_MIN_TO_LEARN = 30
"""Fewer sure lines train no reader."""
_HARDLY = 0.25
"""At this CER of the readings scores turn pessimistic: 0.05 on average on a register read at 30 %, 0.17 at 47 %."""
_SHARED = 0.2
"""Maximum share of a line's part that a likelier line has too, such as a word in which two parts overlap."""
_CLEAR = 1.5
"""Minimum ratio of the best match of a page to the runner-up."""


@dataclass(slots=True)
class AlignReport:
    """The numbers of lines that are `sure`, in `doubt`, and `without` a text.

    `missing` pages match nothing in the texts, `unread` could not be read, each with the reason. `unused` characters of
    the texts are in no line; `differences` counts lines that contradict their text, `rounds` those after which the
    reader learnt; `reading_cer` is the CER of the last reader against the likely texts.
    """

    out: Path
    pages: int = 0
    lines: int = 0
    sure: int = 0
    doubt: int = 0
    without: int = 0
    differences: int = 0
    unused: int = 0
    rounds: int = 0
    reading_cer: float | None = None
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def is_hardly_read(self) -> bool:
        """Whether scores are pessimistic, since the reader barely knows this handwriting."""
        return self.reading_cer is not None and self.reading_cer >= _HARDLY

    def counts(self) -> dict[str, Any]:
        """Return all but where it is, as JSON types."""
        return {name: value for name, value in asdict(self).items() if name != "out"}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types."""
        return {"out": self.out.as_posix(), **self.counts()}


@shows_progress("aligning", "steps")
def align(
    scans: Paths,
    texts: StrPath,
    output: Output,
    *,
    run: StrPath = "small",
    rounds: Count = 1,
    sure: Annotated[float, between(0.5, 1.0)] = 0.93,
    segmenter: str = "ppocr",
    columns: Columns | None = None,
    encoding: str | None = None,
    fetch: Fetch | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> AlignReport:
    """Find the lines of a text that you already have on its scans, and make a dataset of the sure ones.

    Args:
        scans: Images, PDF, ALTO, PAGE, archives, folders, IIIF or METS.
        texts: Their text, in one file or a folder with a file a page: text, Markdown, Word, TEI, PDF, XML or a table.
        output: Folder to write, with pages, a table of the lines and a dataset. Resumes what was interrupted.
        run: Reader of the lines: a run, or the base small.
        rounds: Number of rounds; after each but the last, the reader learns from the sure lines.
        sure: How likely a line's text must be exactly right to count as sure.
        segmenter: Line segmentation of page images: ppocr, or a run that trained a detector.
        columns: Column of a table, as image=NAME, text=NAME; repeatable.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the work done and in total, in pages read, aligned or learnt from, instead of a bar.

    The text of a line is always the given one, never the reading. Aligned lines train only, until a person has
    accepted all lines of their page in the workbench.

    Raises:
        DataError: The scans or texts cannot be read, no line is sure, or the folder cannot be written.
        RunError: The reader is missing, unfinished or damaged.
    """
    reader, out = RunFolder.to_read_with(Path(run)), Path(output)
    require_package("aligning")
    places = as_paths(scans)
    for place in places:
        require_source(place)
    require_free_output(
        out,
        "alignment",
        lambda folder: listed_files(folder / CARD, _FORMAT),
        overwrite=overwrite,
        sources=[*places, Path(texts)],
    )
    with text_encoding(encoding):
        given = read_page_texts(Path(texts), read_pairs("columns", columns))
    fetching = FetchOptions.parse(fetch)
    digest = hashlib.sha256(json.dumps([[text.name, text.text] for text in given]).encode()).hexdigest()
    preparer = PagePreparer("line", choose_segmenter(segmenter), replace_texts=True)
    with resumable_work(out) as work, find_pages(places, work.folder / "unpacked", out=out, fetch=fetching) as source:
        if not source.pages:
            raise DataError(first_few(source.failed, 3) or "no page to read", code="inputs-unreadable")
        job = {
            "dsocr_version": __version__,
            "run": reader.name,
            "adapter": adapter_digest(reader.adapter),
            "texts": digest,
            "segmenter": identify_segmenter(segmenter),
            "threshold": sure,
        }
        date = work.journal.begin(journal_job(job), current_time().isoformat(timespec="seconds"))
        if work.journal.is_empty:
            for folder in work.parts.iterdir():  # of an earlier job with other settings
                shutil.rmtree(folder)
            work.journal.add([("begun", date)])
        # A page is read and aligned, and, but in the last round, learnt from.
        done = WorkDone((2 * rounds - 1) * len(source.pages), progress)
        edition = _Edition(given, source.pages)
        result = _Result()
        for number in range(1, rounds + 1):
            former = result.texts()
            folder = work.parts / f"round-{number}"
            show = partial(done.show, note=f"round {number} of {rounds}, reading and aligning")
            result = _Round(folder, reader, preparer, edition).align(source.pages, show)
            done.add(len(source.pages))
            changed = sum(map(operator.ne, former, result.texts()))
            if former and len(former) == len(result.texts()) and changed < _UNCHANGED * len(former):
                break
            if number < rounds:
                trained = _learn(folder, reader, result, sure, done)
                if trained is None:
                    break
                reader = trained
        if not result.count(sure):
            omitted = [*source.failed, *result.unread, *result.missing]
            reason = first_few(omitted, 3) or f"none of {len(result.texts())} lines is sure to be in the texts"
            hint = "are these the texts of these scans? If they are, transcribe 60 lines, train, and give that run"
            raise DataError(reason, code="alignment-empty", where=given[0].where, hint=hint)
        report = AlignReport(out, rounds=number - 1)
        report.unread = [*source.failed, *result.unread]
        work.draft.mkdir()
        _write(work, result, sure, report, len(edition.whole))
        prepare(work.draft / PAGES, work.draft / DATASET, format="page", split="1/0/0")
        card = {"format": _FORMAT, "date": date, **job, **report.counts(), "files": converted_files(work.draft)}
        write_file(work.draft / CARD, to_json(card))
    return report


class _Edition:
    """The given texts, joined, and the part of them that is the text of a page.

    A page has the text of its name. If no text has the name of a page, it has the part in which its reading is clearly
    found, else the n-th text of as many as there are pages.
    """

    def __init__(self, given: Sequence[PageText], pages: Sequence[InputPage]) -> None:
        self.whole = "\n".join(text.text for text in given)
        self.script = script_of_texts(text.text for text in given)
        starts = np.cumsum([0, *(len(text.text) + 1 for text in given)]).tolist()
        parts = [(start, text.text) for start, text in zip(starts, given, strict=False)]
        named = {text.name.casefold(): part for text, part in zip(given, parts, strict=True) if text.name}
        self._named = {page.id: named.get(Path(page.name).name.casefold()) for page in pages}
        is_matched_by_name = len(named) == len(given) > 1 and any(self._named.values())
        self._anchors = None if is_matched_by_name else Anchors(self.whole)
        is_in_order = not is_matched_by_name and len(given) == len(pages) > 1
        self._ordered = {page.id: part for page, part in zip(pages, parts, strict=False)} if is_in_order else {}

    def part_of(self, page: InputPage, reading: str) -> tuple[int, str] | None:
        """Return the text of a page and its start; None if it has none."""
        if (part := self._named[page.id]) is not None:
            return part
        place = None if self._anchors is None else self._anchors.find(reading)
        if place is not None and place[2] >= _CLEAR:
            return place[0], self.whole[place[0] : place[1]]
        return self._ordered.get(page.id)


@dataclass(frozen=True, slots=True)
class _AlignedPage:
    """A page whose lines' texts are readings, and its aligned lines by their places."""

    source: InputPage
    page: Page
    lines: dict[int, AlignedLine]

    def count(self, threshold: float) -> int:
        """Return how many lines are this likely to have their text."""
        return sum(line.score >= threshold for line in self.lines.values())


@dataclass(slots=True)
class _Result:
    """The aligned pages, and the others, with the reasons."""

    pages: list[_AlignedPage] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def texts(self) -> list[str]:
        """Return the text of every line."""
        return [line.text for page in self.pages for line in page.lines.values()]

    def count(self, threshold: float) -> int:
        """Return how many lines are this likely to have their text."""
        return sum(page.count(threshold) for page in self.pages)

    def resolve_conflicts(self, length: int) -> None:
        """Leave each part of texts of this length to its likeliest line, and drop pages that match hardly anything."""
        placed = [(page.lines, place, line) for page in self.pages for place, line in page.lines.items()]
        taken = np.zeros(length, bool)
        for lines, place, line in sorted(placed, key=lambda item: -item[2].score):
            span = slice(line.start, line.end)
            if not line.text or taken[span].mean() > _SHARED:
                lines[place] = AlignedLine()
                continue
            taken[span] = True
            if line.gap:
                taken[slice(*line.gap)] = False
        pages, self.pages = self.pages, []
        for page in pages:
            matched = page.count(_LIKELY)
            if matched >= max(_MIN_MATCHED * len(page.lines), 1):
                self.pages.append(page)
            else:
                message = f"only {matched} of {len(page.lines)} lines match the text"
                self.missing.append(f"{page.source.id}: {message}")


@dataclass(frozen=True, slots=True)
class _Round:
    """A reader, and the folder with a journal of the pages that it has read and aligned."""

    folder: Path
    run: RunFolder
    preparer: PagePreparer
    edition: _Edition

    def align(self, pages: Sequence[InputPage], progress: Callable[[int], None]) -> _Result:
        """Align each page with its text."""
        self.folder.mkdir(parents=True, exist_ok=True)
        result = _Result()
        with closing(Journal(self.folder / "journal.sqlite", commit_seconds=1.0)) as journal:
            read_into(journal, pages, self._read, progress=lambda done, _: progress(done))
            for page in pages:
                row = journal.get(page_key(page))
                if "failed" in row:
                    result.unread.append(f"{page.id}: {row['failed']}")
                elif row["aligned"] is None:
                    result.missing.append(f"{page.id}: none of the texts is that of this page")
                else:
                    lines = {place: AlignedLine(**line) for place, line in row["aligned"]}
                    result.pages.append(_AlignedPage(page, TranscribedPage.from_row(page, row["page"]).page, lines))
        result.resolve_conflicts(len(self.edition.whole))
        return result

    def _read(self, groups: Sequence[Sequence[InputPage]]) -> Generator[Rows]:
        opened = cache(self._open)
        for group in groups:
            yield [(page_key(page), self._align(page, opened)) for page in group]

    def _open(self) -> "LocalReader":
        from dsocr.inference.reader import LocalReader

        reader = LocalReader.of_run(self.run)
        is_line_recognizer = isinstance(reader.processor.family, LineRecognizer)
        return reader.with_script(self.edition.script) if is_line_recognizer else reader

    def _align(self, source: InputPage, opened: "Callable[[], LocalReader]") -> dict[str, Any]:
        """Read the lines of a page and align them; return the journal's record, whose texts are the readings."""
        _, page = self.preparer.try_prepare(source)
        if isinstance(page, str):
            return {"failed": page}
        reader = opened()
        read = reader.read_steps([(crop.id, crop.image()) for crop in page.crops])
        places = [page.lines.index(crop.lines[0]) for crop in page.crops]
        lines = [replace(line, text="") for line in page.lines]
        for place, (text, _) in zip(places, read, strict=True):
            lines[place] = replace(lines[place], text=text)
        aligned = None
        if (part := self.edition.part_of(source, " ".join(text for text, _ in read))) is not None:
            start, whole = part
            classes = {character: number for number, character in enumerate(reader.characters, 1)}
            fits = [ReadingFit(text) if steps is None else StepFit(text, _likely(steps)) for text, steps in read]
            matches = align_lines(fits, whole, classes)
            aligned = [(place, asdict(line.moved(start))) for place, line in zip(places, matches, strict=True)]
        return {"page": page_row(page, lines), "aligned": aligned}


def _likely(steps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probabilities of the likeliest classes of each step, rounded; those of the others are 0."""
    kept = np.argsort(-steps, axis=1)[:, :_CLASSES]
    likely = np.zeros_like(steps)
    np.put_along_axis(likely, kept, np.take_along_axis(steps, kept, 1).astype(np.float16), 1)
    return likely


def _learn(folder: Path, reader: RunFolder, result: _Result, threshold: float, done: WorkDone) -> RunFolder | None:
    """Train the reader on the lines whose text is sure; None if there are too few."""
    samples = result.count(threshold)
    if samples < _MIN_TO_LEARN:
        return None
    if not (folder / DATASET).exists():
        stems = UniqueStems()
        with target_format("page").writing(folder / PAGES, ()) as write:
            for page in result.pages:
                texts = [replace(line, text="") for line in page.page.lines]
                for place, line in page.lines.items():
                    texts[place] = replace(texts[place], text=line.text if line.score >= threshold else "")
                kept = replace(page.page, lines=tuple(texts))
                write(kept, stems.take(Path(page.source.name).name))
        split = "0.9/0.1/0" if len(result.pages) > 1 else "1/0/0"
        prepare(folder / PAGES, folder / DATASET, format="page", split=split, split_by="page")
    config = load_config({**_base_of(reader), "dataset": folder / DATASET, "output": folder / "run"})
    job = resolve(config, overwrite=True)
    planned = plan_run(job, job.run.path, samples, overwrite=True, hint="remove it")
    step_work = len(result.pages) / max(planned.steps, 1)
    return train_run(planned, "learning", done, step_work=step_work)


def _base_of(run: RunFolder) -> dict[str, Any]:
    """Return the settings that continue a reader; an adapter keeps its shape."""
    from dsocr.models.adapters import read_adapter_config, target_modules_of, variant_of
    from dsocr.models.base_folder import is_whole_network

    if run.is_base or is_whole_network(run.adapter):
        return {"base": str(run.path)}
    settings, saved = ReadingSettings.load(run.adapter), read_adapter_config(run.adapter)
    shape = {"r": saved["r"], "alpha": saved["lora_alpha"], "variant": variant_of(saved)}
    adapter = {**shape, "target_modules": target_modules_of(saved), "init_from": str(run.path)}
    return {"base": settings.base, "base_revision": settings.base_revision, "adapter": adapter}


def _write(work: Work, result: _Result, threshold: float, report: AlignReport, length: int) -> None:
    """Write the pages with their images, and a table of all lines, those in doubt first; texts have this length."""
    stems, rows, used = UniqueStems(), [], 0
    likely: list[ErrorRate] = []
    (work.draft / PAGES).mkdir()
    with target_format("page").writing(work.draft / PAGES, ()) as write:
        for page in result.pages:
            stem = stems.take(Path(page.source.name).name)
            lines = []
            for place, line in enumerate(page.page.lines):
                match = page.lines.get(place, AlignedLine())
                used += len(match.text)
                if match.score >= _LIKELY:
                    likely.append(character_errors(match.text, line.text))
                rows.append((stem, line.id or str(place + 1), match, line.text, _difference(match, line.text)))
                mark = AlignmentMark(match.score, match.score >= threshold) if match.text else None
                lines.append(replace(line, text=match.text, alignment=mark))
            written = write(replace(page.page, lines=tuple(lines)), stem)
            report.unread += [f"{item.where}: {item.message}" for item in written.skipped]
            report.pages += bool(written.lines)
    report.lines, report.unused, report.missing = len(rows), length - used, result.missing
    report.sure = result.count(threshold)
    report.reading_cer = pool(likely).rate if likely else None
    report.without = sum(not match.text for _, _, match, _, _ in rows)
    report.doubt = report.lines - report.sure - report.without
    report.differences = sum(bool(difference) for *_, difference in rows)
    rows.sort(key=lambda row: (not row[2].text, row[2].score))
    table: list[Sequence[object]] = [("page", "line", "score", "sure", "text", "reading", "differences")]
    for stem, id_, match, reading, difference in rows:
        is_sure = "yes" if match.score >= threshold else "no"
        texts = (" ".join(text.split()) for text in (match.text, reading, difference))
        table.append((stem, id_, f"{match.score:.4f}", is_sure, *texts))
    write_file(work.draft / LINES, spreadsheet(table, delimiter="\t"))


_CLEARLY = -8.0
"""The worst stretch of a line's text, in nats, below which it reads clearly otherwise."""
_OTHERWISE = 0.5
"""Share of a word's characters that are read otherwise, at least two, for the word to be listed."""


def _difference(line: AlignedLine, reading: str) -> str:
    """Return the words that are read quite otherwise than the text says, as `text > reading`."""
    if not line.text or line.weakest > _CLEARLY:
        return ""
    places = aligned_places(line.text.lower(), reading.lower())
    listed = []
    for word, start, _ in word_boxes(line.text, None):
        read = reading[places[start] : places[start + len(word)]].strip()
        if Levenshtein.distance(word.lower(), read.lower()) >= max(2, _OTHERWISE * len(word)):
            listed.append(f"{word} > {read}")
    return "; ".join(listed)
