"""The recipe of a transcription: scans, PDF, ALTO and PAGE in; texts out, in the formats that archives use."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from dsocr import __version__
from dsocr.document import Page, ProcessingStep, Unit
from dsocr.errors import DataError, RunError
from dsocr.formats import output_formats
from dsocr.formats.format import Format
from dsocr.formats.text_files import line_row
from dsocr.inference.cluster import Cluster
from dsocr.inference.confidence import Calibration
from dsocr.inference.inputs import BUILT_IN, InputPage, PagePreparer, Shows, UniqueNames, choose_segmenter, find_pages
from dsocr.inference.pages import (
    ImageReader,
    ReadGroups,
    ReadingJournal,
    TranscribedPage,
    read_into,
    read_locally,
    recover,
    work_folder,
)
from dsocr.inference.remote import RemoteEngine, RemoteReader
from dsocr.inference.review import EstimatedCer, write_review
from dsocr.io.atomic import MANIFEST
from dsocr.io.files import current_time
from dsocr.models.checkpoint import require_readable_adapter
from dsocr.models.loading import is_out_of_memory
from dsocr.runs import CALIBRATION, READING, ReadingSettings, RunFolder, to_json, write_atomically

CARD = "transcription"

Pages = Callable[[], Iterator[TranscribedPage]]
"""The pages that were read, in order, anew each time."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, in which formats; `is_folder` gives each page files of its own."""

    out: Path
    formats: Sequence[Format]
    is_folder: bool

    def refuse(self, pages: Sequence[InputPage], *, overwrite: bool, shard: str | None = None) -> None:
        """An error where writing would lose something, or the format cannot hold what there is."""
        if not self.is_folder:
            (format_,) = self.formats
            if format_.one_page_per_file and len(pages) != 1:
                message = f"a file holds one page of {format_.title}, and there are {len(pages)}"
                raise DataError(message, where=self.out, hint="name a folder")
            if format_.one_page_per_file and pages[0].number:
                message = f"a file of {format_.title} names an image, and that of a PDF or TIFF page is beside it"
                raise DataError(message, where=self.out, hint="name a folder")
        if not self.out.exists():
            return
        if self.out.is_dir() != self.is_folder:
            what = "a folder" if self.out.is_dir() else "a file"
            raise DataError(f"{what} is there already", where=self.out, hint="choose another name")
        if self.is_folder and not any(self.out.iterdir()):
            return
        if not overwrite:
            raise DataError("is there already", where=self.out, hint="choose another name, or give --overwrite")
        if self.is_folder and (strange := _strange(self.out)):
            message = f"the folder holds files that no transcription made: {', '.join(strange[:5])}"
            raise DataError(message, where=self.out, hint="choose another folder")
        own = _card_name(shard)
        if shard and (others := [card.name for card in self.out.glob(f"{CARD}*.json") if card.name != own]):
            message = f"the folder holds other pages, which would be lost: {', '.join(sorted(others)[:5])}"
            raise DataError(message, where=self.out, hint="give each share a folder of its own")

    def write(self, draft: Path, pages: Pages, step: ProcessingStep, card: dict[str, Any]) -> list[str]:
        """Writes all files, to the file `draft` or into the new folder `draft`; what could not be written, by page."""
        if not self.is_folder:
            # Under its own name, as some formats carry it for a title.
            named = draft.with_name(self.out.name)
            self.formats[0].write_pages((one.page for one in pages()), named, step)
            named.replace(draft)
            return []
        draft.mkdir()
        refused = []
        shard: str | None = card.get("shard")
        for format_ in self.formats:
            for name, group in _files(pages(), format_, shard):
                path = draft / f"{name}{self._ending(format_)}"
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    format_.write_pages(group, path, step)
                except DataError as error:
                    path.unlink(missing_ok=True)
                    refused.append(f"{name}: {error.message}")
        files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        told = {**card, "refused": card["refused"] + len(refused), "files": files}
        write_atomically(draft / _card_name(shard), to_json(told))
        return refused

    def _ending(self, format_: Format) -> str:
        """The suffix; two formats that share one are told apart."""
        alike = [other for other in self.formats if other.suffix == format_.suffix]
        return format_.suffix if len(alike) == 1 else f".{format_.name}{format_.suffix}"


def _card_name(shard: str | None) -> str:
    return f"{CARD}{_of(shard)}.json"


def _of(shard: str | None) -> str:
    """What names end in that shares must not have in common, as their folders are put together."""
    return f"-{shard.replace('/', '-of-')}" if shard else ""


def _files(
    pages: Iterator[TranscribedPage], format_: Format, shard: str | None
) -> Iterator[tuple[str, Iterator[Page]]]:
    """The names of the files in a folder, without suffix, each with its pages."""
    names = UniqueNames()
    together = format_.multipage
    for _, group in groupby(
        pages, key=lambda page: page.source.path if together and page.source.number else page.source.name
    ):
        first = next(group)
        # A share has some pages of a PDF only.
        name = first.source.document + _of(shard if first.source.number else None) if together else first.source.name
        yield names.take(name, first.source.path.suffix), _with(first, group)  # noqa: B031 - which is the rest of it


def _with(first: TranscribedPage, others: Iterator[TranscribedPage]) -> Iterator[Page]:
    yield first.page
    yield from (other.page for other in others)


def _strange(folder: Path) -> list[str]:
    """Files that no card of a transcription names."""
    own: set[str] = set()
    for card in folder.glob(f"{CARD}*.json"):
        try:
            told = json.loads(card.read_text(encoding="utf-8"))
            own |= {card.name, *map(str, told["files"])} if told.get("format") == "dsocr-transcription" else set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name not in own)


Progress = Callable[[int, int], None]
"""Told after pages were read: how many are done, and how many there are."""


@dataclass(slots=True)
class TranscribeReport:
    """What was written, and what could not be read, each with the reason.

    `images` counts the pages and line images that were read, `known` those that an earlier, killed run had read. Of
    their `lines`, `kept` had a text that was left as it stood. `unmatched` regions were answered with
    another number of lines than are drawn. Where a list for checking was written, `foretold` says what the confidences
    make of it, if they were fitted.
    """

    out: Path
    formats: list[str]
    images: int = 0
    known: int = 0
    lines: int = 0
    kept: int = 0
    truncated: int = 0
    empty: int = 0
    looping: int = 0
    unmatched: int = 0
    refused: list[str] = field(default_factory=list)
    foretold: EstimatedCer | None = None

    def count(self, page: TranscribedPage) -> None:
        """Adds a page that was read."""
        self.images += 1
        self.refused += page.refused
        self.unmatched += page.unmatched
        for line in page.page.lines:
            self.lines += 1
            self.kept += line.prediction is None and bool(line.text)
            self.truncated += bool((line.prediction or {}).get("truncated"))
            self.looping += "looping" in (line.prediction or {}).get("flags", ())
            self.empty += not line.text

    def counts(self) -> dict[str, int]:
        """All numbers but `known`, which does not change what is written; and how many were refused."""
        names = ("images", "lines", "kept", "truncated", "empty", "looping", "unmatched")
        return {**{name: getattr(self, name) for name in names}, "refused": len(self.refused)}


def transcribe(
    run: RunFolder,
    inputs: Sequence[Path],
    out: Path,
    *,
    formats: Sequence[str] = (),
    unit: Unit | None = None,
    shows: Shows | None = None,
    segmenter: str = BUILT_IN,
    replace_texts: bool = False,
    shard: tuple[int, int] = (1, 1),
    strict: bool = False,
    overwrite: bool = False,
    review: Path | None = None,
    progress: Progress | None = None,
    engine: RemoteEngine | Cluster | None = None,
    reader: ImageReader | None = None,
    workers: int | None = None,
) -> TranscribeReport:
    """ImageReader all pages of `inputs` with a run's adapter and writes the texts to `out`, a file or a folder.

    `unit` is what the model is shown, None what the adapter was trained on; `shows` what image files show, None to tell
    it from their shape. `segmenter` finds the lines of pages that come without. Texts that ALTO and PAGE files hold are
    kept unless `replace_texts`. `shard` (2, 5) reads the second of five shares of the pages. What cannot be read is
    counted and listed; `strict` makes it an error. What a killed run has read is not read again. `review` is a file for
    all lines that were read, the most doubtful first. `engine` is a server or a cluster that reads, `reader` what
    reads in place of the run's own network. `workers` is how many processes open pages on this machine: 1 for this one
    alone, None for as many as can be of use.
    """
    if review is not None:
        _refuse_review(review, out, overwrite=overwrite)
    recover(out)
    elsewhere = reader is not None or isinstance(engine, RemoteEngine)
    settings = ReadingSettings.load(run.adapter) if elsewhere else require_readable_adapter(run.adapter)
    preparer = PagePreparer(unit or settings.unit, choose_segmenter(segmenter), replace_texts)
    with work_folder(out) as work, find_pages(inputs, work.unpacked, shows=shows, out=out) as found:
        if not found.pages or (strict and found.refused):
            raise DataError(_told(found.refused) or f"there is nothing to read in {', '.join(map(str, inputs))}")
        target = Target(out, *output_formats(out, formats, all_xml=all(page.kind == "markup" for page in found.pages)))
        pages = found.pages[shard[0] - 1 :: shard[1]]
        if not pages:
            raise DataError(f"this share of the pages is empty: there are {len(found.pages)} in all")
        job = _job(run, settings, preparer, shows, segmenter, shard) | (engine.job_settings() if engine else {})
        target.refuse(pages, overwrite=overwrite, shard=job["shard"])
        date = work.journal.begin(job, current_time().isoformat(timespec="seconds"))
        with _memory_in_sentences(run, out, engine):
            read: ReadGroups = partial(
                engine.read if isinstance(engine, Cluster) else partial(read_locally, workers=workers),
                preparer=preparer,
                # Machines of a cluster may be in another folder.
                open_reader=partial(_reader, RunFolder(run.path.absolute()), settings, engine, reader),
                strict=strict,
            )
            known = read_into(work.journal, pages, read, progress=progress)
        report = TranscribeReport(out, [format_.name for format_ in target.formats], known=known)
        report.refused += found.refused
        for page in read_pages(work.journal, pages, report.refused):
            report.count(page)
        if not report.images:
            raise DataError(_told(report.refused))
        step = ProcessingStep("dsocr", __version__, "handwriting read", _settings_told(job), date)
        card = {"format": "dsocr-transcription", "date": date, **job, **report.counts()}
        if review is not None:
            review.parent.mkdir(parents=True, exist_ok=True)
            curve = write_review(_rows(read_pages(work.journal, pages)), review)
            # Those of other programs are not the confidences that were fitted.
            if not elsewhere and curve[0].rest and Calibration.load(run.adapter).lines:
                report.foretold = EstimatedCer.of(curve)
        unwritten = target.write(work.draft, lambda: read_pages(work.journal, pages), step, card)
        if strict and unwritten:
            raise DataError(_told(unwritten))
        report.refused += unwritten
    return report


def _reader(
    run: RunFolder, settings: ReadingSettings, engine: RemoteEngine | Cluster | None, reader: ImageReader | None
) -> ImageReader:
    """What reads images: the given reader, the server, or the run's own network, here or on a cluster."""
    if reader is not None:
        return reader
    if isinstance(engine, RemoteEngine):
        return RemoteReader(engine, settings, Calibration.load(run.adapter))
    from dsocr.inference.reader import LocalReader

    return LocalReader.of_run(run, merged=True)


@contextmanager
def _memory_in_sentences(run: RunFolder, out: Path, engine: RemoteEngine | Cluster | None) -> Iterator[None]:
    """The end of the machine's or its graphics card's memory becomes a RunError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        hint = "what was read is kept: end other programs, then run the same command again"
        if not isinstance(engine, RemoteEngine):  # a server has batches of its own
            lower = f"lower batch_size in {run.adapter / READING} (all pages are read anew then)"
            hint += f"; if that does not help, {lower}"
        # `from None`: the traceback would keep the batch alive.
        raise RunError("the memory ended while pages were read", where=out, hint=hint) from None


def _refuse_review(review: Path, out: Path, *, overwrite: bool) -> None:
    """An error where the list could not be written, or would go when `out` is replaced."""
    if review.resolve().is_relative_to(out.resolve()):
        raise DataError("the list cannot lie in what is written", where=review, hint="name a file beside it")
    if review.exists() and not overwrite:
        raise DataError("is there already", where=review, hint="name another file, or give --overwrite")


def read_pages(
    journal: ReadingJournal, pages: Sequence[InputPage], refused: list[str] | None = None
) -> Iterator[TranscribedPage]:
    """What was read of each page, in order; the sentences about those that could not be go to `refused`."""
    for page in pages:
        row = journal.recall(page.id)
        if "page" in row:
            yield TranscribedPage.from_json(page, row["page"])
        elif refused is not None:
            refused.append(f"{page.id}: {row['refused']}")


def _rows(pages: Iterable[TranscribedPage]) -> Iterator[dict[str, Any]]:
    """The lines that were read, as JSON lines have them."""
    return (
        line_row(one.page, line)
        for one in pages
        for line in one.page.lines
        if line.prediction is not None or not line.text
    )


def _told(refused: Sequence[str]) -> str:
    """One sentence for all that could not be read."""
    more = f", and {len(refused) - 1} more could not be read" if len(refused) > 1 else ""
    return f"{refused[0]}{more}" if refused else ""


def _job(
    run: RunFolder,
    settings: ReadingSettings,
    preparer: PagePreparer,
    shows: Shows | None,
    segmenter: str,
    shard: tuple[int, int],
) -> dict[str, Any]:
    """What decides the texts: another job does not go on with what this one read."""
    return {
        "dsocr_version": __version__,
        "run": run.path.name,
        "adapter": _digest(run.adapter),
        "base": settings.base,
        "unit": preparer.unit,
        "shows": shows,
        "segmenter": segmenter,
        "replace": preparer.replace_texts,
        "shard": f"{shard[0]}/{shard[1]}" if shard[1] > 1 else None,
    }


def _digest(adapter: Path) -> str:
    """A hash over the adapter's files; a sealed one's manifest names theirs, but not the settings and calibration."""
    whole = hashlib.sha256()
    files = sorted(adapter.iterdir())
    if (adapter / MANIFEST).exists():
        files = [path for path in files if path.name in (READING, MANIFEST, CALIBRATION)]
    for path in files:
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()[:16]


def _settings_told(job: dict[str, Any]) -> str:
    return "; ".join(f"{name} {job[name]}" for name in ("run", "adapter", "base", "unit"))
