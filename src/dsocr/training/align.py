"""Align scans with texts that have no lines: read, align, learn from the sure lines, and do so again.

A round reads every page, which is kept, and aligns it with the text; the lines whose text is sure train the reader of
the next round. What comes out are PAGE files in which each line has its text and how sure it is, and a dataset of the
sure lines.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from dsocr import __version__
from dsocr.config import load_config
from dsocr.data.convert import converted_files
from dsocr.data.page_texts import PageText
from dsocr.data.prepare import prepare
from dsocr.document import AlignmentMark, word_boxes
from dsocr.errors import DataError, first_few
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.formats import target_format
from dsocr.formats.tables import tab_table
from dsocr.inference.alignment import AlignedLine, Anchors, align_lines, judge
from dsocr.inference.inputs import (
    InputPage,
    PagePreparer,
    PreparedPage,
    find_pages,
)
from dsocr.inference.line_fits import LineFit, ReadingFit, StepFit
from dsocr.inference.pages import Rows, TranscribedPage, journal_job, page_key, page_row, read_into, read_pages
from dsocr.io.files import UniqueStems, current_time
from dsocr.io.web import FetchOptions
from dsocr.io.work import Journal, Work, hash_file, listed_files, require_free_output, resumable_work, write_file
from dsocr.job import resolve
from dsocr.layout import choose_segmenter, identify_segmenter
from dsocr.models.ctc import LineRecognizer
from dsocr.models.scripts import script_of_texts
from dsocr.runs import ReadingSettings, RunFolder, adapter_digest, to_json

if TYPE_CHECKING:
    from dsocr.inference.reader import LocalReader
    from dsocr.training.many_runs import ManyProgress, WorkDone

CARD = "alignment.json"
_FORMAT = "dsocr-alignment"
PAGES, DATASET, LINES = "pages", "dataset", "lines.tsv"
_KEPT_CLASSES = 6
"""Classes of a step that are kept; those after them are too unlikely to decide anything."""
_MIN_MATCHED = 0.2
"""Share of a page's lines that must have a likely text for the page to belong to the text at all."""
_LIKELY = 0.5
_UNCHANGED = 0.005
"""Share of lines whose text changes below which another round brings nothing."""
_MIN_TO_LEARN = 30
"""Sure lines from which a reader can learn."""
_HARDLY = 0.25
"""CER of the readings from which scores are too low: 0.05 on average on a register read at 30 %, 0.17 at 47 %."""
_SHARED = 0.2
"""Share of a line's part that a likelier line may have too, such as a word that two parts overlap in."""
_CLEAR = 1.5
"""How much clearer than elsewhere in the text a page must be found to be aligned there."""


@dataclass(slots=True)
class AlignReport:
    """What was aligned: lines that are `sure`, those in `doubt`, and those `without` a text.

    `missing` pages match nothing in the texts, `unread` could not be read, each with the reason. `unused` characters of
    the texts are in no line; `differences` lines read clearly otherwise than their text says. `rounds` counts those
    after which the reader learnt; `reading_cer` is that of the last reader against the texts that are likely right.
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
        """Whether the reader knows this hand so little that more lines are right than their scores say."""
        return self.reading_cer is not None and self.reading_cer >= _HARDLY

    def counts(self) -> dict[str, Any]:
        """Return all but where it is, as JSON types."""
        return {name: value for name, value in asdict(self).items() if name != "out"}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types."""
        return {"out": self.out.as_posix(), **self.counts()}


def require_free_alignment(out: Path, sources: Sequence[Path], *, overwrite: bool) -> None:
    """Raise DataError if writing an alignment to `out` would destroy something else."""
    require_free_output(out, "alignment", _alignment_files, overwrite=overwrite, sources=sources)


def _alignment_files(folder: Path) -> list[str] | None:
    return listed_files(folder / CARD, _FORMAT)


def align(
    run: RunFolder,
    scans: Sequence[Path],
    texts: Sequence[PageText],
    out: Path,
    *,
    rounds: int,
    threshold: float,
    segmenter: str,
    fetch: FetchOptions | None,
    progress: "ManyProgress | None",
) -> AlignReport:
    """Align the lines of scans, or of ALTO and PAGE files, with texts, and write pages, a table and a dataset.

    Lines are read with a run or a base; in each of `rounds` rounds but the last, its sure lines train a reader for the
    next. Lines are sure from the `threshold` on. An interrupted job resumes. Raises DataError if nothing matches.
    """
    from dsocr.training.many_runs import WorkDone  # loads torch

    script = script_of_texts(text.text for text in texts)
    digest = hashlib.sha256(json.dumps([[text.name, text.text] for text in texts]).encode()).hexdigest()
    preparer = PagePreparer("line", choose_segmenter(segmenter), replace_texts=True)
    with resumable_work(out) as work, find_pages(scans, work.folder / "unpacked", out=out, fetch=fetch) as source:
        if not source.pages:
            raise DataError(first_few(source.failed, 3) or "no page to read", code="inputs-unreadable")
        job = {
            "dsocr_version": __version__,
            "run": run.name,
            "adapter": adapter_digest(run.adapter),
            "texts": digest,
            "segmenter": identify_segmenter(segmenter),
            "threshold": threshold,
        }
        date = work.journal.begin(journal_job(job), current_time().isoformat(timespec="seconds"))
        if work.journal.is_empty:
            _forget(work.parts)
            work.journal.add([("begun", date)])
        # A page is read, aligned, and, but in the last round, learnt from.
        done = WorkDone((3 * rounds - 1) * len(source.pages), progress)
        reader, result = run, _Result()
        for number in range(1, rounds + 1):
            former = result
            reading = _Reading(work.parts / f"round-{number}", reader, preparer, script)
            result = _align_pages(reading, source.pages, texts, done, f"round {number} of {rounds}")
            if former.pages and _share_changed(former, result) < _UNCHANGED:
                break
            if number < rounds:
                trained = _learn(reading, result, threshold, done)
                if trained is None:
                    break
                reader = trained
        if not result.count(threshold):
            omitted = [*source.failed, *result.unread, *result.missing]
            reason = first_few(omitted, 3) or f"none of {len(result.texts())} lines is sure to be in the texts"
            hint = "are these the texts of these scans? If they are, transcribe 60 lines, train, and give that run"
            raise DataError(reason, code="alignment-empty", where=texts[0].where, hint=hint)
        report = AlignReport(out, rounds=number - 1)
        report.unread = [*source.failed, *result.unread]
        work.draft.mkdir()
        _write(work, result, threshold, report)
        prepare(work.draft / PAGES, work.draft / DATASET, format="page", split="1/0/0")
        card = {"format": _FORMAT, "date": date, **job, **report.counts(), "files": converted_files(work.draft)}
        write_file(work.draft / CARD, to_json(card))
    return report


def _forget(folder: Path) -> None:
    """Remove what an earlier job, with other settings, kept."""
    for path in folder.iterdir():
        shutil.rmtree(path)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a reader makes of the lines of all pages: a journal with the lines, and a file of probabilities a page."""

    folder: Path
    run: RunFolder
    preparer: PagePreparer
    script: str
    """The script of the texts."""

    def pages(
        self, pages: Sequence[InputPage], unread: list[str], progress: Callable[[int, int], None]
    ) -> "Iterator[_ReadPage]":
        """Yield each page that can be read."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with closing(Journal(self.folder / "journal.sqlite", commit_seconds=1.0)) as journal:
            read_into(journal, pages, self._read, progress=progress)
            damaged = [page for page in pages if not self._is_kept(page, journal)]
            for rows in self._read([[page] for page in damaged]):
                journal.add(rows)
            for page in read_pages(journal, pages, unread):
                yield self._load(page)

    def _read(self, groups: Sequence[Sequence[InputPage]]) -> Generator[Rows]:
        opened = cache(self._open)
        for group in groups:
            rows = []
            for page in group:
                _, prepared = self.preparer.try_prepare(page)
                if isinstance(prepared, str):
                    rows.append((page_key(page), {"failed": prepared}))
                else:
                    rows.append((page_key(page), self._read_page(page, prepared, opened())))
            yield rows

    def _open(self) -> "LocalReader":
        from dsocr.inference.reader import LocalReader

        reader = LocalReader.of_run(self.run, merged=True)
        return reader.with_script(self.script) if isinstance(reader.processor.family, LineRecognizer) else reader

    def _read_page(self, page: InputPage, prepared: PreparedPage, reader: "LocalReader") -> dict[str, Any]:
        """Read the lines of a page; returns what the journal keeps, whose texts are the readings."""
        read = reader.read_steps([(crop.id, crop.image()) for crop in prepared.crops])
        lines = [replace(line, text="") for line in prepared.lines]
        places = [prepared.lines.index(crop.lines[0]) for crop in prepared.crops]
        arrays: dict[str, Any] = {
            "places": np.array(places, np.int64),
            "characters": np.frombuffer("\n".join(reader.characters).encode(), np.uint8),
        }
        for place, (text, steps) in zip(places, read, strict=True):
            lines[place] = replace(lines[place], text=text)
            if steps is not None:
                kept = np.argsort(-steps, axis=1)[:, :_KEPT_CLASSES]
                arrays[f"classes{place}"] = kept.astype(np.uint16)
                arrays[f"values{place}"] = np.take_along_axis(steps, kept, 1).astype(np.float16)
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_file(self._path(page), buffer.getvalue())
        return {"page": page_row(prepared, lines), "hash": hash_file(self._path(page))}

    def _is_kept(self, page: InputPage, journal: Journal) -> bool:
        """Return whether the file of probabilities is as it was written, or the page has none."""
        row, path = journal.get(page_key(page)), self._path(page)
        return "failed" in row or (path.is_file() and hash_file(path) == row["hash"])

    def _path(self, page: InputPage) -> Path:
        return self.folder / f"{hashlib.sha256(page_key(page).encode()).hexdigest()[:24]}.npz"

    def _load(self, page: TranscribedPage) -> "_ReadPage":
        with np.load(self._path(page.source), allow_pickle=False) as stored:
            characters = stored["characters"].tobytes().decode().split("\n")
            classes = {character: number for number, character in enumerate(characters, 1) if character}
            fits: dict[int, LineFit] = {}
            for place in stored["places"].tolist():
                reading = page.page.lines[place].text
                if f"classes{place}" not in stored:
                    fits[place] = ReadingFit(reading)
                    continue
                kept = stored[f"classes{place}"].astype(np.int64)
                steps = np.zeros((len(kept), len(characters) + 1), np.float32)
                np.put_along_axis(steps, kept, stored[f"values{place}"].astype(np.float32), 1)
                fits[place] = StepFit(reading, steps)
        return _ReadPage(page, fits, classes)


@dataclass(frozen=True, slots=True)
class _ReadPage:
    """A page whose lines' texts are readings, the fit of each line that could be cut, and the reader's classes."""

    page: TranscribedPage
    fits: Mapping[int, LineFit]
    classes: Mapping[str, int]

    @property
    def reading(self) -> str:
        return " ".join(fit.reading for fit in self.fits.values())

    def align(self, text: str, start: int) -> "_AlignedPage":
        """Align the lines with a part of the texts that starts there."""
        aligned = align_lines(list(self.fits.values()), text, self.classes)
        lines = {place: line.moved(start) for place, line in zip(self.fits, aligned, strict=True)}
        return _AlignedPage(self.page, lines, any(isinstance(fit, StepFit) for fit in self.fits.values()))


@dataclass(frozen=True, slots=True)
class _AlignedPage:
    """A page whose lines' texts are readings, and its aligned lines by their places; fits are too large to keep."""

    page: TranscribedPage
    lines: dict[int, AlignedLine]
    by_steps: bool

    def count(self, threshold: float) -> int:
        """Return how many lines are this likely to have their text."""
        return sum(line.score >= threshold for line in self.lines.values())


@dataclass(slots=True)
class _Result:
    """The aligned pages, and what was left out, with the reasons; `length` is that of all texts."""

    pages: list[_AlignedPage] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    length: int = 0

    def texts(self) -> list[str]:
        """Return the text of every line."""
        return [line.text for page in self.pages for line in page.lines.values()]

    def count(self, threshold: float) -> int:
        """Return how many lines are this likely to have their text."""
        return sum(page.count(threshold) for page in self.pages)


def _share_changed(former: _Result, result: _Result) -> float:
    texts = former.texts(), result.texts()
    if len(texts[0]) != len(texts[1]):
        return 1.0
    return sum(before != after for before, after in zip(*texts, strict=True)) / max(len(texts[0]), 1)


def _align_pages(
    reading: _Reading, pages: Sequence[InputPage], given: Sequence[PageText], done: "WorkDone", note: str
) -> _Result:
    """Align each page with the text of its name, else with the part of all texts in which its reading is found."""
    named = {text.name.casefold(): number for number, text in enumerate(given) if text.name}
    are_named = len(named) == len(given) > 1 and any(Path(page.name).name.casefold() in named for page in pages)
    whole = "\n".join(text.text for text in given)
    starts = np.cumsum([0, *(len(text.text) + 1 for text in given)]).tolist()
    anchors = None if are_named else Anchors(whole)
    order = {page.id: number for number, page in enumerate(pages)}
    result = _Result(length=len(whole))
    for number, page in enumerate(reading.pages(pages, result.unread, partial(_show_reading, done, note))):
        done.show(len(pages) + number, f"{note}, aligning")
        source = page.page.source
        own_text = named.get(Path(source.name).name.casefold())
        place = anchors.find(page.reading) if anchors and own_text is None else None
        if own_text is None and anchors is None:
            result.missing.append(f"{source.id}: no text has its name")
        elif place is not None and place[2] >= _CLEAR:
            start, end, _ = place
            result.pages.append(page.align(whole[start:end], start))
        elif own_text is not None or len(given) == len(pages) > 1:  # else the n-th page of the text
            number_of_text = order[source.id] if own_text is None else own_text
            start = starts[number_of_text]
            result.pages.append(page.align(given[number_of_text].text, start))
        else:
            result.missing.append(f"{source.id}: nothing of it is in the texts")
    _judge(result)
    done.add(2 * len(pages))
    return result


def _show_reading(done: "WorkDone", note: str, now: int, total: int) -> None:
    done.show(now, f"{note}, reading")


def _judge(result: _Result) -> None:
    """Fill in how likely each text is to be exactly right; leave out pages that do not belong to the texts.

    Of lines of two pages that hold the same part, the likelier keeps it.
    """
    by_steps = any(page.by_steps for page in result.pages)
    placed = [(page, place, line) for page in result.pages for place, line in page.lines.items()]
    scores = judge([line for *_, line in placed], by_steps=by_steps)
    taken = np.zeros(result.length, bool)
    for score, (page, place, line) in sorted(zip(scores, placed, strict=True), key=lambda scored: -scored[0]):
        span = slice(line.start, line.end)
        if not line.text or taken[span].mean() > _SHARED:
            page.lines[place] = AlignedLine()
            continue
        taken[span] = True
        if line.gap:
            taken[slice(*line.gap)] = False
        page.lines[place] = replace(line, score=score)
    for page in result.pages:
        if (matched := page.count(_LIKELY)) < max(_MIN_MATCHED * len(page.lines), 1):
            message = f"only {matched} of {len(page.lines)} lines match the text"
            result.missing.append(f"{page.page.source.id}: {message}")
    result.pages = [page for page in result.pages if page.count(_LIKELY) >= max(_MIN_MATCHED * len(page.lines), 1)]


def _learn(reading: _Reading, result: _Result, threshold: float, done: "WorkDone") -> RunFolder | None:
    """Train the reader on the lines whose text is sure; None if there are too few."""
    from dsocr.training.many_runs import plan_run, train_runs  # loads torch

    samples, folder = result.count(threshold), reading.folder
    if samples < _MIN_TO_LEARN:
        return None
    if not (folder / DATASET).exists():
        stems = UniqueStems()
        with target_format("page").writing(folder / PAGES, ()) as write:
            for page in result.pages:
                texts = [replace(line, text="") for line in page.page.page.lines]
                for place, line in page.lines.items():
                    texts[place] = replace(texts[place], text=line.text if line.score >= threshold else "")
                kept = replace(page.page.page, lines=tuple(texts))
                write(kept, stems.take(Path(page.page.source.name).name))
        split = "0.9/0.1/0" if len(result.pages) > 1 else "1/0/0"
        prepare(folder / PAGES, folder / DATASET, format="page", split=split, split_by="page")
    config = load_config({**_base_of(reading.run), "dataset": folder / DATASET, "output": folder / "run"})
    job = resolve(config, overwrite=True)
    planned = plan_run(job, job.run.path, samples, overwrite=True, hint="remove it")
    step_work = len(result.pages) / max(planned.steps, 1)
    return next(iter(train_runs([planned], ["learning"], done=done, step_work=step_work)))


def _base_of(run: RunFolder) -> dict[str, Any]:
    """Return the settings of a training that goes on from a reader; an adapter keeps its shape."""
    from dsocr.models.adapters import is_whole_network, read_adapter_config, target_modules_of, variant_of

    if run.is_base or is_whole_network(run.adapter):
        return {"base": str(run.path)}
    settings, saved = ReadingSettings.load(run.adapter), read_adapter_config(run.adapter)
    shape = {"r": saved["r"], "alpha": saved["lora_alpha"], "variant": variant_of(saved)}
    adapter = {**shape, "target_modules": target_modules_of(saved), "init_from": str(run.path)}
    return {"base": settings.base, "base_revision": settings.base_revision, "adapter": adapter}


def _write(work: Work, result: _Result, threshold: float, report: AlignReport) -> None:
    """Write the pages with their images, and a table of all lines, those in doubt first."""
    stems, rows, used = UniqueStems(), [], 0
    likely: list[ErrorRate] = []
    (work.draft / PAGES).mkdir()
    with target_format("page").writing(work.draft / PAGES, ()) as write:
        for page in result.pages:
            stem = stems.take(Path(page.page.source.name).name)
            lines = []
            for place, line in enumerate(page.page.page.lines):
                match = page.lines.get(place, AlignedLine())
                used += len(match.text)
                if match.score >= _LIKELY:
                    likely.append(character_errors(match.text, line.text))
                rows.append((stem, line.id or str(place + 1), match, line.text, _difference(match, line.text)))
                mark = AlignmentMark(match.score, match.score >= threshold) if match.text else None
                lines.append(replace(line, text=match.text, alignment=mark))
            written = write(replace(page.page.page, lines=tuple(lines)), stem)
            report.unread += [f"{item.where}: {item.message}" for item in written.skipped]
            report.pages += bool(written.lines)
    report.lines, report.unused, report.missing = len(rows), result.length - used, result.missing
    report.sure = result.count(threshold)
    report.reading_cer = pool(likely).rate if likely else None
    report.without = sum(not match.text for _, _, match, _, _ in rows)
    report.doubt = report.lines - report.sure - report.without
    report.differences = sum(bool(difference) for *_, difference in rows)
    rows.sort(key=lambda row: (not row[2].text, row[2].score))
    table: list[Sequence[object]] = [("page", "line", "score", "sure", "text", "reading", "differences")]
    for stem, id_, match, reading, difference in rows:
        is_sure = "yes" if match.score >= threshold else "no"
        table.append((stem, id_, f"{match.score:.4f}", is_sure, match.text, reading, difference))
    write_file(work.draft / LINES, tab_table(table))


_CLEARLY = -8.0
"""The worst stretch of a line's text, in nats, below which it reads clearly otherwise."""
_OTHERWISE = 0.5
"""Share of a word's characters that are read otherwise, at least two, for the word to be listed."""


def _difference(line: AlignedLine, reading: str) -> str:
    """Return the words that are read quite otherwise than the text says, as `text > reading`."""
    if not line.text or line.weakest > _CLEARLY:
        return ""
    places = np.zeros(len(line.text) + 1, np.int64)
    edits = np.zeros(len(line.text) + 1)
    for edit in Levenshtein.opcodes(line.text.lower(), reading.lower()):
        span = slice(edit.src_start, edit.src_end)
        places[span] = np.minimum(edit.dest_start + np.arange(edit.src_end - edit.src_start), edit.dest_end)
        if edit.tag == "insert":
            edits[edit.src_start] += edit.dest_end - edit.dest_start
        elif edit.tag != "equal":
            edits[span] += 1
    places[-1] = len(reading)
    listed = []
    for word, start, _ in word_boxes(line.text, None):
        end = start + len(word)
        if edits[start:end].sum() >= max(2, _OTHERWISE * len(word)):
            listed.append(f"{word} > {reading[places[start] : places[end]].strip()}")
    return "; ".join(listed)
