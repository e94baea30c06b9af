"""Align scans with texts that have no lines: read, align, learn from the sure lines, and do so again.

A round reads every page, which is kept, and aligns it with the text; the lines whose text is sure train the reader of
the next round. What comes out are PAGE files in which each line has its text and how sure it is, and a dataset of the
sure lines.
"""

import hashlib
import io
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from dsocr import __version__
from dsocr.config import load_config
from dsocr.data.convert import converted_files
from dsocr.data.page_texts import PageText, read_page_texts
from dsocr.data.prepare import prepare
from dsocr.document import AlignmentMark, word_boxes
from dsocr.errors import DataError, first_few
from dsocr.formats import target_format
from dsocr.formats.tables import escape_formula
from dsocr.inference.alignment import AlignedLine, Anchors, align_lines, judge
from dsocr.inference.inputs import DETECTOR, InputPage, PagePreparer, PreparedPage, choose_segmenter, find_pages
from dsocr.inference.line_fits import LineFit, ReadingFit, StepFit
from dsocr.inference.pages import Rows, TranscribedPage, journal_job, page_key, read_into, read_pages
from dsocr.io.files import UniqueStems, current_time
from dsocr.io.web import FetchOptions
from dsocr.io.work import Journal, Work, listed_files, require_free_output, resumable_work, write_file
from dsocr.models.scripts import script_of_texts
from dsocr.runs import ReadingSettings, RunFolder, adapter_digest, to_json
from dsocr.training.many_runs import ManyProgress, WorkDone, plan_run, train_runs

if TYPE_CHECKING:
    from dsocr.inference.reader import LocalReader

CARD = "alignment.json"
_FORMAT = "dsocr-alignment"
PAGES, DATASET, LINES = "pages", "dataset", "lines.tsv"
SURE = 0.93
"""Lines at least this likely to have exactly their text are sure."""
_KEPT_CLASSES = 6
"""Classes of a step that are kept; those after them are too unlikely to decide anything."""
_MIN_MATCHED = 0.2
"""Share of a page's lines that must have a likely text for the page to belong to the text at all."""
_LIKELY = 0.5
_UNCHANGED = 0.005
"""Share of lines whose text changes below which another round brings nothing."""
_MIN_TO_LEARN = 30
"""Sure lines from which a reader can learn."""
_CLEAR = 1.5
"""How much clearer than elsewhere in the text a page must be found to be aligned there."""


@dataclass(slots=True)
class AlignReport:
    """What was aligned: lines that are `sure`, those in `doubt`, and those `without` a text.

    `missing` pages match nothing in the texts, `unread` could not be read, each with the reason. `unused` characters of
    the texts are in no line; `differences` lines read clearly otherwise than their text says. `rounds` counts those
    after which the reader learnt.
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
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON types."""
        return {**asdict(self), "out": self.out.as_posix()}


def align(
    run: RunFolder,
    scans: Sequence[Path],
    texts: Path,
    out: Path,
    *,
    rounds: int = 1,
    sure: float = SURE,
    segmenter: str = DETECTOR,
    columns: Mapping[str, str] | None = None,
    fetch: FetchOptions | None = None,
    overwrite: bool = False,
    progress: ManyProgress | None = None,
    on_message: Callable[[str], None] | None = None,
) -> AlignReport:
    """Align the lines of scans, or of ALTO and PAGE files, with texts, and write pages, a table and a dataset.

    Lines are read with a run or a base; in each of `rounds` rounds but the last, its sure lines train a reader for the
    next. Lines are `sure` from this probability on. An interrupted job resumes. Raises DataError if nothing matches.
    """
    require_free_output(out, "alignment", _alignment_files, overwrite=overwrite, sources=[*scans, texts])
    given = read_page_texts(texts, columns)
    script = script_of_texts(text.text for text in given)
    digest = hashlib.sha256(json.dumps([[text.name, text.text] for text in given]).encode()).hexdigest()
    preparer = PagePreparer("line", choose_segmenter(segmenter), replace_texts=True)
    with resumable_work(out) as work, find_pages(scans, work.folder / "unpacked", out=out, fetch=fetch) as source:
        if not source.pages:
            raise DataError(first_few(source.failed, 3) or "no page to read", code="inputs-unreadable")
        job = {
            "dsocr_version": __version__,
            "run": run.name,
            "adapter": adapter_digest(run.adapter),
            "texts": digest,
            "segmenter": segmenter,
            "sure": sure,
        }
        date = work.journal.begin(journal_job(job), current_time().isoformat(timespec="seconds"))
        work.parts.mkdir(parents=True, exist_ok=True)
        if work.journal.is_empty:
            _forget(work.parts)
            work.journal.add([("begun", date)])
        done = WorkDone(rounds * (len(source.pages) + 1), progress)
        reader, result = run, _Result()
        for number in range(1, rounds + 1):
            former = result
            reading = _Reading(work.parts / f"round-{number}", reader, preparer, script)
            result = _align_pages(reading, source.pages, given, done, f"round {number} of {rounds}")
            if former.pages and _share_changed(former, result) < _UNCHANGED:
                break
            if number < rounds:
                trained = _learn(reading, result, sure, done, on_message)
                if trained is None:
                    break
                reader = trained
        report = AlignReport(out, rounds=number - 1)
        report.unread = [*source.failed, *result.unread]
        work.draft.mkdir()
        _write(work, result, sure, report)
        if not report.sure:
            message = f"none of {report.lines} lines is sure to be in the texts"
            hint = "are these the texts of these scans? If they are, transcribe 60 lines, train, and give that run"
            raise DataError(message, code="alignment-empty", where=texts, hint=hint)
        prepare(work.draft / PAGES, work.draft / DATASET, format="page", split="1/0/0")
        files = converted_files(work.draft)
        card = {"format": _FORMAT, "date": date, **job, **report.to_dict(), "files": files}
        del card["out"]
        write_file(work.draft / CARD, to_json(card))
    return report


def _alignment_files(folder: Path) -> list[str] | None:
    return listed_files(folder / CARD, _FORMAT)


def _forget(folder: Path) -> None:
    """Remove what an earlier job, with other settings, kept."""
    import shutil

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
        return reader.with_script(self.script) if reader.processor.family.reads_by_character else reader

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
        rows = [asdict(line) for line in lines]
        return {"page": {"size": prepared.size, "lines": rows, "failed": prepared.failed, "unmatched": 0}}

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

    def align(self, text: str, start: int) -> dict[int, AlignedLine]:
        """Align the lines with a part of the texts that starts there."""
        aligned = align_lines(list(self.fits.values()), text, self.classes)
        return {place: line.moved(start) for place, line in zip(self.fits, aligned, strict=True)}


@dataclass(slots=True)
class _Result:
    """The aligned pages: for each its lines by their places, and what was left out, with the reasons."""

    pages: list[tuple[_ReadPage, dict[int, AlignedLine]]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    length: int = 0

    def texts(self) -> list[str]:
        """Return the text of every line."""
        return [line.text for _, lines in self.pages for line in lines.values()]


def _share_changed(former: _Result, result: _Result) -> float:
    texts = former.texts(), result.texts()
    if len(texts[0]) != len(texts[1]):
        return 1.0
    return sum(before != after for before, after in zip(*texts, strict=True)) / max(len(texts[0]), 1)


def _align_pages(
    reading: _Reading, pages: Sequence[InputPage], given: Sequence[PageText], done: WorkDone, note: str
) -> _Result:
    """Align each page with the text of its name, else with the part of all texts in which its reading is found."""
    result = _Result()
    named = {text.name.casefold(): text for text in given if text.name}
    starts = np.cumsum([0, *(len(text.text) + 1 for text in given)])
    begins = {id(text): int(start) for text, start in zip(given, starts, strict=False)}
    whole = "\n".join(text.text for text in given)
    anchors = Anchors(whole)
    result.length = len(whole)
    are_named = len(named) == len(given) > 1 and any(Path(page.name).name.casefold() in named for page in pages)
    for number, page in enumerate(
        reading.pages(pages, result.unread, lambda now, total: done.show(now, f"{note}, reading"))
    ):
        done.show(number, f"{note}, aligning")
        text_of_page = named.get(Path(page.page.source.name).name.casefold())
        if text_of_page is None and are_named:
            result.missing.append(f"{page.page.source.id}: no text has its name")
            continue
        if text_of_page is not None:
            start = begins[id(text_of_page)]
            end = start + len(text_of_page.text)
        else:
            place = anchors.find(page.reading)
            if place is not None and place[2] >= _CLEAR:
                start, end, _ = place
            elif len(given) == len(pages) > 1:  # the n-th page of the text
                start, end = int(starts[number]), int(starts[number + 1]) - 1
            else:
                result.missing.append(f"{page.page.source.id}: nothing of it is in the texts")
                continue
        result.pages.append((page, page.align(whole[start:end], start)))
    _judge(result)
    done.add(len(pages))
    return result


def _judge(result: _Result) -> None:
    """Fill in how likely each text is to be exactly right; leave out pages that do not belong to the texts.

    Of lines of two pages that hold the same part, the likelier keeps it.
    """
    lines = [(page, place, line) for page, aligned in result.pages for place, line in aligned.items()]
    by_steps = any(isinstance(fit, StepFit) for page, _ in result.pages for fit in page.fits.values())
    scores = judge([line for _, _, line in lines], by_steps=by_steps)
    taken = np.zeros(result.length, bool)
    by_page = {id(page): aligned for page, aligned in result.pages}
    for index in sorted(range(len(lines)), key=lambda index: -scores[index]):
        page, place, line = lines[index]
        span = slice(line.start, line.end)
        if line.text and taken[span].mean() > 0.2:
            line = AlignedLine()
        if line.text:
            taken[span] = True
            if line.gap:
                taken[slice(*line.gap)] = False
        by_page[id(page)][place] = replace(line, score=scores[index] if line.text else 0.0)
    for page, aligned in list(result.pages):
        matched = sum(line.score >= _LIKELY for line in aligned.values())
        if matched < max(_MIN_MATCHED * len(aligned), 1):
            result.pages.remove((page, aligned))
            result.missing.append(f"{page.page.source.id}: only {matched} of {len(aligned)} lines match the text")


def _learn(
    reading: _Reading, result: _Result, sure: float, done: WorkDone, on_message: Callable[[str], None] | None
) -> RunFolder | None:
    """Train the reader on the lines whose text is sure; None if there are too few."""
    if sum(line.score >= sure for _, lines in result.pages for line in lines.values()) < _MIN_TO_LEARN:
        return None
    folder = reading.folder
    if not (folder / DATASET).exists():
        stems = UniqueStems()
        with closing(target_format("page").open_writer(folder / PAGES, ())) as writer:
            for page, lines in result.pages:
                texts = [replace(line, text="") for line in page.page.page.lines]
                for place, line in lines.items():
                    texts[place] = replace(texts[place], text=line.text if line.score >= sure else "")
                kept = replace(page.page.page, lines=tuple(texts))
                writer.add(kept, stems.take(Path(page.page.source.name).name))
        split = "0.9/0.1/0" if len(result.pages) > 1 else "1/0/0"
        prepare(folder / PAGES, folder / DATASET, format="page", split=split, split_by="page")
    config = load_config({**_base_of(reading.run), "dataset": folder / DATASET, "output": folder / "run"})
    samples = sum(line.score >= sure for _, lines in result.pages for line in lines.values())
    planned = plan_run(config, samples, overwrite=True, hint="remove it")
    return next(iter(train_runs([planned], ["learning"], done=done, step_work=0, on_message=on_message)))


def _base_of(run: RunFolder) -> dict[str, Any]:
    """Return the settings of a training that goes on from a reader."""
    from dsocr.models.adapters import is_whole_network

    if run.is_base or is_whole_network(run.adapter):
        return {"base": str(run.path)}
    settings = ReadingSettings.load(run.adapter)
    return {"base": settings.base, "base_revision": settings.base_revision, "adapter": {"init_from": str(run.path)}}


def _write(work: Work, result: _Result, sure: float, report: AlignReport) -> None:
    """Write the pages with their images, and a table of all lines, those in doubt first."""
    stems, rows = UniqueStems(), []
    used = 0
    (work.draft / PAGES).mkdir()
    with closing(target_format("page").open_writer(work.draft / PAGES, ())) as writer:
        for page, aligned in result.pages:
            stem = stems.take(Path(page.page.source.name).name)
            lines = []
            for place, line in enumerate(page.page.page.lines):
                match = aligned.get(place, AlignedLine())
                used += len(match.text)
                difference = _difference(match, line.text)
                rows.append((stem, line.id or str(place + 1), match, line.text, difference))
                mark = AlignmentMark(match.score, match.score >= sure) if match.text else None
                lines.append(replace(line, text=match.text, alignment=mark))
            written = writer.add(replace(page.page.page, lines=tuple(lines)), stem)
            report.unread += [f"{item.where}: {item.message}" for item in written.skipped]
            report.pages += bool(written.lines)
    report.lines, report.unused, report.missing = len(rows), result.length - used, result.missing
    report.sure = sum(line.score >= sure for _, _, line, _, _ in rows)
    report.without = sum(not line.text for _, _, line, _, _ in rows)
    report.doubt = report.lines - report.sure - report.without
    report.differences = sum(bool(difference) for *_, difference in rows)
    rows.sort(key=lambda row: (not row[2].text, row[2].score))
    table = [("page", "line", "score", "sure", "text", "reading", "differences")]
    for stem, id_, match, reading, difference in rows:
        is_sure = "yes" if match.score >= sure else "no"
        table.append((stem, id_, f"{match.score:.4f}", is_sure, match.text, reading, difference))
    cells = ("\t".join(escape_formula(" ".join(cell.split())) for cell in row) for row in table)
    write_file(work.draft / LINES, "\n".join(cells) + "\n")


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
