"""Transcribe scans, PDF, ALTO and PAGE into the formats that archives use; read images with a `Reader`."""

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Union, overload

from PIL import Image

from dsocr import __version__
from dsocr.console import current_reporter, shows_progress
from dsocr.document import Page, ProcessingStep, Unit
from dsocr.errors import ConfigError, DataError, RunError, first_few, option, typed
from dsocr.formats import OUTPUT_FORMATS, output_formats
from dsocr.formats.documents import line_row
from dsocr.formats.format import Format
from dsocr.formats.registers import REGISTERS
from dsocr.formats.xml import preferred_layer
from dsocr.images import IMAGE_SUFFIXES, eight_bit, open_image
from dsocr.inference.confidence import LEAST_LINES, UNCALIBRATED, Calibration, Prediction
from dsocr.inference.engines import TORCH, Cluster, Engine, RemoteEngine, RemoteReader, choose_engine
from dsocr.inference.inputs import (
    InputPage,
    PagePreparer,
    PreparedPage,
    Shows,
    find_pages,
    guess_shows,
    save_input,
    unique_name,
)
from dsocr.inference.pages import ImageReader, TranscribedPage, journal_job, read_into, read_locally, read_pages
from dsocr.inference.review import CheckedShare, EstimatedCer, write_review
from dsocr.io.files import UniqueStems, current_time
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import Fetch, FetchOptions
from dsocr.io.work import STREAM, listed_files, require_free_output, resumable_work, write_file
from dsocr.layout import choose_detector, choose_segmenter, identify_segmenter
from dsocr.models.base_folder import require_readable_adapter
from dsocr.models.generation import spread
from dsocr.models.graph import Graph
from dsocr.models.loading import is_out_of_memory
from dsocr.models.scripts import SAMPLE_LINES
from dsocr.options import Count, Output, Paths, Rare, ScriptName, StrPath, Texts, as_paths
from dsocr.registers import find_tables
from dsocr.runs import READING, ReadingSettings, RunFolder, adapter_digest, to_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dsocr.inference.reader import LocalReader
    from dsocr.models.family import Processor

CARD = "transcription.json"
_FORMAT = "dsocr-transcription"
_TEACHING = 300
"""Number of lines that a base can learn from alone; the smallest number measured was 385."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to write, and in which formats; in a folder each page gets its own files."""

    out: Path
    formats: Sequence[Format]
    is_folder: bool

    def validate(self, pages: Sequence[InputPage], *, overwrite: bool) -> None:
        """Raise DataError if writing would lose something, or if a format cannot hold any of the pages."""
        for format_ in self.formats:
            _require_originals(format_, pages)
        first = self.formats[0]
        if first.one_page_per_file and not self.is_folder and (len(pages) != 1 or pages[0].number):
            message = f"A {first.title} file holds one page, and there are {len(pages)}"
            if len(pages) == 1:
                message = f"{first.title} refers to an image, and that of a PDF or TIFF page is written beside it"
            raise DataError(message, code="output-one-page", where=self.out, hint="give a folder")
        list_files = self._files if self.is_folder else None
        require_free_output(self.out, "transcription", list_files, overwrite=overwrite)

    @staticmethod
    def _files(folder: Path) -> list[str] | None:
        return listed_files(folder / CARD, _FORMAT)

    def write(
        self, draft: Path, read: Callable[[], Iterator[TranscribedPage]], step: ProcessingStep, card: dict[str, Any]
    ) -> list[str]:
        """Write all files to the file or new folder `draft`; returns what could not be written, by page."""
        if not self.is_folder:
            # Under the final name, which some formats use as a title.
            named = draft.with_name(self.out.name)
            self.formats[0].write_pages((page.page for page in read()), named, step)
            named.replace(draft)
            return []
        draft.mkdir()
        failed = []
        for format_ in self.formats:
            has_unique_suffix = sum(other.suffix == format_.suffix for other in self.formats) == 1
            suffix = format_.suffix if has_unique_suffix else f".{format_.name}{format_.suffix}"
            written: list[tuple[Path, Path]] = []
            for name, group in self._group_by_file(read(), format_):
                path = draft / f"{name}{suffix}"
                path.parent.mkdir(parents=True, exist_ok=True)
                pages = list(group) if format_.write_index else []
                try:
                    format_.write_pages(pages or group, path, step)
                except DataError as error:
                    path.unlink(missing_ok=True)
                    failed.append(f"{path.relative_to(draft).as_posix()}: {error.message}")
                else:
                    written += [(page.image, path) for page in pages]
            if format_.write_index and written:
                format_.write_index(draft, written)
        files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
        content = {**card, "failed": card["failed"] + len(failed), "files": files}
        write_file(draft / CARD, to_json(content))
        return failed

    def _group_by_file(self, pages: Iterator[TranscribedPage], format_: Format) -> Iterator[tuple[str, Iterator[Page]]]:
        """Yield the names of the files in a folder, without suffix, each with its pages."""
        taken = UniqueStems()
        if format_.is_one_file:
            yield "register", (page.page for page in pages)
            return

        def file_of(page: TranscribedPage) -> object:
            return page.source.path if format_.multipage and page.source.number else page.source.name

        for _, group in groupby(pages, key=file_of):
            source = (first := next(group)).source
            name = source.document if format_.multipage else source.name
            yield unique_name(taken, name, source.path.suffix), (page.page for page in chain([first], group))


def _require_originals(format_: Format, pages: Sequence[InputPage]) -> None:
    """Raise DataError if the format adds texts to an original, and none of the pages has one."""
    if format_.require_original is None:
        return
    problem = None
    for page in pages:
        try:
            format_.require_original(page.path, page.image)
        except DataError as error:
            problem = problem or error
        else:
            return
    if problem is not None:
        raise problem


@dataclass(slots=True)
class TranscribeReport:
    """What was read and written, and what could not be read or, in a format that holds only some pages, written.

    `review` is the list of lines to check or to transcribe. `failed` and `unwritten` have the reasons.
    `omitted` are files that describe a scan which another file describes, `upside_down` pages that are read better
    turned by 180 degrees. `order` names the first pages of one file if they were sorted by name.

    `images` counts pages and line images, `resumed` those of them that an earlier, interrupted run had read. Of their
    `lines`, `kept` had a text that was left unchanged. `unmatched` regions were read as another number of lines than
    they have, and `outside` lines are in regions that were not to be read. `scripts` counts lines by the script decided
    for their page. `rated` lines have a confidence, `mean_confidence` on average; `unfamiliar` says that their hands or
    script are unlike all that the run knows, `may_learn` that it is a base which they can teach although nobody
    transcribed them (`dsocr.train(unlabelled=...)`). `estimated_cer` is set if a review list was written and the run's
    confidences are calibrated on lines like these; `unlike_calibration` says that they are not, and with `few_hands`
    it is too low for others. `read` adds `texts`, as rows of JSON lines, and the `next` command.
    """

    out: Path
    formats: list[str]
    base: str = ""
    inputs: list[str] = field(default_factory=list)
    review: str | None = None
    images: int = 0
    resumed: int = 0
    lines: int = 0
    kept: int = 0
    truncated: int = 0
    empty: int = 0
    looping: int = 0
    unmatched: int = 0
    outside: int = 0
    scripts: dict[str, int] = field(default_factory=dict)
    rated: int = 0
    mean_confidence: float | None = None
    unfamiliar: bool = False
    may_learn: bool = False
    upside_down: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    order: str = ""
    unwritten: list[str] = field(default_factory=list)
    estimated_cer: EstimatedCer | None = None
    unlike_calibration: bool = False
    few_hands: bool = False
    texts: list[dict[str, Any]] = field(default_factory=list)
    next: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything in JSON's types."""
        return {**asdict(self), "out": str(self.out)}

    def count(self, page: TranscribedPage) -> None:
        """Add a page."""
        self.images += 1
        self.failed += page.failed
        self.unmatched += page.unmatched
        self.outside += page.outside
        self.upside_down += [page.source.id] if page.upside_down else []
        for line in page.page.lines:
            prediction = line.prediction or {}
            self.lines += 1
            self.kept += line.prediction is None and bool(line.text)
            self.truncated += bool(prediction.get("truncated"))
            self.looping += "looping" in prediction.get("flags", ())
            self.empty += not line.text
            if script := prediction.get("script"):
                self.scripts[script] = self.scripts.get(script, 0) + 1
            confidence = prediction.get("confidence")
            if line.text and confidence is not None and not page.upside_down:
                self.rated += 1
                mean = self.mean_confidence or 0.0
                self.mean_confidence = mean + (confidence - mean) / self.rated

    def estimate(self, curve: Sequence[CheckedShare], confidences: Sequence[float], calibration: Calibration) -> None:
        """Estimate the CER, unless confidences are not calibrated or the lines unlike those of the calibration."""
        self.unlike_calibration, self.few_hands = calibration.is_unlike(confidences), calibration.few_hands
        if calibration.lines and curve[0].rest and not (self.unlike_calibration or self.unfamiliar):
            self.estimated_cer = EstimatedCer.of(curve)

    def judge(self, run: RunFolder, calibration: Calibration) -> None:
        """Decide whether the lines are unfamiliar to the run, and else whether a base can learn from them."""
        self.unfamiliar = calibration.is_unfamiliar(self.mean_confidence, self.rated)
        is_enough = self.rated >= _TEACHING and bool(calibration.line_quantiles)
        self.may_learn = is_enough and not self.unfamiliar and run.reads_as_base

    def counts(self) -> dict[str, Any]:
        """Return all numbers except `resumed`, which does not change what is written."""
        names = ("images", "lines", "kept", "truncated", "empty", "looping", "unmatched", "outside")
        decided = {"scripts": self.scripts} if self.scripts else {}
        return {**{name: getattr(self, name) for name in names}, "failed": len(self.failed), **decided}


@shows_progress("transcribing", "pages")
def transcribe(
    run: Union[StrPath, "Reader"],
    inputs: Paths,
    output: Output,
    *,
    format: Texts = (),
    unit: Unit | None = None,
    images: Shows | None = None,
    segmenter: str = "ppocr",
    tables: bool | None = None,
    regions: Texts = (),
    engine: Rare[str | None] = None,
    engine_model: Rare[str | None] = None,
    replace: bool = False,
    script: ScriptName | None = None,
    review: StrPath | None = None,
    first: Count | None = None,
    layer: Rare[str | None] = None,
    fetch: Fetch | None = None,
    strict: Rare[bool] = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> TranscribeReport:
    """Transcribe scans. Resumes a transcription that was interrupted.

    Args:
        run: Run folder, exported adapter, or a base: small, a folder, a Hub id; small if left out. Or a `Reader`.
        inputs: Images, PDF, ALTO, PAGE, archives, folders, IIIF or METS.
        output: One file, whose suffix says the format, a folder, or - for standard output.
        format: Format in a folder: text, page, ...; csv, xlsx or parquet for registers; repeatable.
        unit: Unit of the images to read; as trained if not given.
        images: Content of images: lines or pages; judged by shape if not given.
        segmenter: Line segmentation of page images: ppocr, or a run that trained a detector.
        tables: Find the rows and columns of registers; for csv, xlsx and parquet if not given.
        regions: Read only regions that ALTO or PAGE files give this type, such as MainZone, or none; repeatable.
        engine: Where to run the model: http://HOST:PORT/v1 of a server, ray for a cluster, ray:4 with four actors, or
            torch, instead of ONNX Runtime, which reads line recognisers on a CPU.
        engine_model: Name of the model on the server; the run's name if not given.
        replace: Also transcribe lines that have a text already.
        script: Script that line recognisers keep to; auto decides it by page; as trained if not given.
        review: Also write all lines to this file, least certain first.
        first: List only this many lines there, those to transcribe next: uncertain ones, spread over the pages.
        layer: Part of the path of the file to take where several describe a scan, such as chocomufin; the file named as
            its image if not given.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        strict: Stop at the first fault instead of counting and listing it.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the pages done and in total, instead of a progress bar.

    Raises:
        ConfigError: Options do not go together.
        DataError: An input is missing, or the output cannot be written.
        ModelError: The base cannot be found or loaded.
        RunError: The run is missing, unfinished or damaged.
    """
    # A folder before others is a run, although it does not look like one: its error says what is missing.
    is_scan = not isinstance(run, Reader) and not RunFolder.may_read(Path(run))
    if is_scan and not (Path(str(run)).is_dir() and as_paths(inputs)):
        current_reporter().message("No run is named, so the base small reads.")
        run, inputs = "small", [run, *as_paths(inputs)]
    folder = run._run if isinstance(run, Reader) else RunFolder.to_read_with(Path(run))
    local = run._local if isinstance(run, Reader) else None
    paths = as_paths(inputs)
    out, listing = Path(output), None if review is None else Path(review)
    formats = [format] if isinstance(format, str) else list(format)
    if out == STREAM and not formats:
        formats = ["text"]
    suffix = next((OUTPUT_FORMATS[name].suffix for name in formats if name in OUTPUT_FORMATS), "")
    fetching = FetchOptions.parse(fetch)
    server = choose_engine(engine, engine_model or folder.name)
    _require_usable(out, script=script, engine=server, review=listing, first=first, overwrite=overwrite)
    is_remote = local is not None or isinstance(server, RemoteEngine)
    settings = ReadingSettings.load(folder.adapter) if is_remote else require_readable_adapter(folder.adapter)
    most = settings.lines_per_region if unit in (None, settings.unit) else None
    shown = unit or settings.unit
    asked = {*formats, out.suffix.lower().lstrip(".")}
    with_tables = bool(asked & set(REGISTERS)) if tables is None else tables
    if with_tables and shown != "line":
        hint = f"give {option('unit', 'line')}, or another format"
        raise ConfigError("Tables are read line by line", code="regions-unknown", hint=hint)
    find_lines = choose_segmenter(segmenter)
    table_finder = partial(find_tables, detect=choose_detector(segmenter)) if with_tables else None
    kinds = [regions] if isinstance(regions, str) else regions
    chosen = frozenset(kind.casefold().strip() for kind in kinds)
    preparer = PagePreparer(shown, find_lines, replace, most, table_finder, chosen)
    with (
        preferred_layer(layer),
        TemporaryDirectory() as spare,
        resumable_work(out := Path(spare, f"stdout{suffix}") if out == STREAM else out) as work,
        find_pages(paths, work.folder / "unpacked", shows=images, out=out, fetch=fetching, progress=progress) as listed,
    ):
        if not listed.pages or (strict and listed.failed):
            message = _summary(listed.failed) or f"No scans to read in: {', '.join(map(str, paths)) or 'no path'}"
            raise DataError(message, code="inputs-unreadable" if listed.failed else "inputs-empty", hint="name scans")
        chosen_formats = output_formats(out, formats, all_xml=all(page.image for page in listed.pages))
        target, pages = Target(out, *chosen_formats), listed.pages
        target.validate(pages, overwrite=overwrite)
        _require_types(preparer, pages)
        line_images = [page for page in listed.pages if page.shows == "line"]
        job = {  # what decides the texts; a job with other settings cannot continue this one
            "dsocr_version": __version__,
            "run": folder.name,
            "adapter": adapter_digest(folder.adapter),
            "base": settings.base,
            "unit": preparer.unit,
            "lines_per_region": preparer.most,
            "shows": images,
            "segmenter": identify_segmenter(segmenter),
            **({"tables": True} if preparer.tables else {}),
            **({"regions": sorted(preparer.regions)} if preparer.regions else {}),
            "replace": replace,
            "script": script,
            # A job of a cluster may be continued without it.
            **({"engine": server.address, "engine_model": server.model} if isinstance(server, RemoteEngine) else {}),
            **({"engine": TORCH} if server == TORCH else {}),
        }
        date = work.journal.begin(journal_job(job), current_time().isoformat(timespec="seconds"))
        with _explain_out_of_memory(folder, out, server):
            read = partial(
                server.read if isinstance(server, Cluster) else read_locally,
                preparer=preparer,
                # Machines of a cluster may have another working folder.
                open_reader=partial(
                    _open_reader,
                    RunFolder(folder.path.absolute()),
                    settings,
                    server,
                    local,
                    script,
                    partial(open_lines, preparer, spread(line_images, SAMPLE_LINES)),
                ),
                strict=strict,
            )
            resumed = read_into(work.journal, pages, read, progress=progress)
        report = TranscribeReport(
            out, [format_.name for format_ in target.formats], settings.base, [*map(str, paths)], resumed=resumed
        )
        report.failed += listed.failed
        report.omitted = listed.omitted
        if listed.are_sorted and not target.is_folder and len(pages) > 1:
            report.order = first_few([page.name for page in pages], 5)
        for page in read_pages(work.journal, pages, report.failed):
            report.count(page)
        if not report.images:
            if len(pages) == 1:
                preparer.prepare(pages[0])  # raises its error, with a code and a remedy
            raise DataError(_summary(report.failed), code="inputs-unreadable")
        # A calibration was not fitted to the confidences of other programs.
        calibration = UNCALIBRATED if isinstance(server, RemoteEngine) else Calibration.load(folder.adapter)
        report.judge(folder, calibration)
        summary = "; ".join(f"{name} {job[name]}" for name in ("run", "adapter", "base", "unit"))
        step = ProcessingStep("dsocr", __version__, "handwriting read", summary, date)
        card = {"format": _FORMAT, "date": date, **job, **report.counts()}
        if listing is not None:
            listing.parent.mkdir(parents=True, exist_ok=True)
            report.review = str(listing)
            rows = (
                line_row(page.page, line)
                for page in read_pages(work.journal, pages)
                for line in page.page.lines
                if line.prediction is not None or not line.text
            )
            report.estimate(*write_review(rows, listing, first), calibration)
        unwritten = target.write(work.draft, lambda: read_pages(work.journal, pages), step, card)
        if strict and unwritten:
            raise DataError(_summary(unwritten), code="output-incomplete")
        report.out, report.unwritten = Path(output), unwritten
        if report.out == STREAM:
            sys.stdout.buffer.write(work.draft.read_bytes())
    return report


def read(
    inputs: Paths, *, run: StrPath = "small", images: Shows | None = None, script: ScriptName | None = None
) -> TranscribeReport:
    """Read the lines of photos, and estimate how many letters are wrong.

    Args:
        inputs: Images, or anything that transcribe reads; - is standard input.
        run: Run folder, exported adapter, or a base: small, a folder, a Hub id.
        images: Content of images: lines or pages; judged by shape if not given.
        script: Script that line recognisers keep to; auto decides it by page; as trained if not given.
    """
    paths = as_paths(inputs)
    with TemporaryDirectory() as temporary:
        out, listing = Path(temporary, "lines.jsonl"), Path(temporary, "review.txt")
        files = [save_input(out.parent) if path == STREAM else path for path in paths]
        report = transcribe(run, files, out, images=images, replace=True, script=script, review=listing)
        report.texts = [json.loads(row) for row in out.read_bytes().splitlines()]
    report.out, report.review, report.inputs = STREAM, None, [*map(str, paths)]
    if report.rated < LEAST_LINES:  # too few to know whether their hand is one that the reader knows
        report.estimated_cer = None
    source = paths[0].parent if paths[0].suffix.lower() in IMAGE_SUFFIXES else paths[0]  # the workbench opens folders
    report.next = f"dsocr workbench {'FOLDER' if source == STREAM else typed(source.as_posix())}"
    report.next += "" if str(run) == "small" else f" --run {typed(str(run))}"
    return report


class Reader:
    """Reads images of lines, and transcribes whole documents; made by `dsocr.load`."""

    def __init__(self, local: "LocalReader", run: RunFolder) -> None:
        self._local, self._run = local, run
        self._reads_lines = not run.is_base and ReadingSettings.load(run.adapter).unit == "line"

    @overload
    def read(  # type: ignore[overload-overlap]
        self, images: StrPath | Image.Image, *, script: ScriptName | None = None
    ) -> Prediction: ...
    @overload
    def read(
        self, images: Sequence[StrPath | Image.Image], *, script: ScriptName | None = None
    ) -> list[Prediction]: ...
    def read(
        self, images: StrPath | Image.Image | Sequence[StrPath | Image.Image], *, script: ScriptName | None = None
    ) -> Prediction | list[Prediction]:
        """Read one image, or several: paths or PIL images, of lines for most models.

        A line recogniser keeps to `script`, by default that of its training. A base, or auto, decides it by each line,
        or by those read together where a line leaves it open; the flag `script` marks lines that are still in doubt.
        Warns of an image that looks like a page if the model reads lines; `transcribe` finds the lines of pages.
        Raises DataError for other types and unreadable files.
        """
        single = not isinstance(images, Iterable) or isinstance(images, (str, bytes)) or hasattr(images, "shape")
        several: Iterable[StrPath | Image.Image] = [images] if single else images  # type: ignore[list-item, assignment]
        local = replace(self._local.with_script(script), by_page=True, otherwise=None)
        predictions = list(local.read(self._open(image, place) for place, image in enumerate(several)))
        return predictions[0] if single else predictions

    @property
    def network(self) -> "PreTrainedModel":
        """The network, with its adapter if it has one, in evaluation mode; torch reads from then on."""
        if isinstance(self._local.network, Graph):
            self._local = type(self._local).of_run(self._run, use_torch=True)
        network: PreTrainedModel = self._local.network
        return network

    @property
    def processor(self) -> "Processor":
        """The processor, which turns images and texts into inputs of the network."""
        return self._local.processor

    def _open(self, image: StrPath | Image.Image, place: int) -> tuple[str, Image.Image]:
        """Return an image with its path, or its place if it has none."""
        name, opened = str(place), image
        if not isinstance(opened, (str, Path, Image.Image)):
            message = f"image {name} is neither a path nor a PIL image, but of type {type(opened).__name__}"
            raise DataError(message, code="image-type", hint="PIL.Image.fromarray(...) makes an image of an array")
        if not isinstance(opened, Image.Image):
            name, opened = str(opened), open_image(Path(opened))
        if not all(opened.size):
            message = f"image {name} has no pixels: its size is {opened.width} x {opened.height}"
            raise DataError(message, code="image-empty", hint="check the coordinates that it was cropped with")
        if self._reads_lines and guess_shows(opened.size) == "page":
            message = f"{name} looks like a page and is read as one line; Reader.transcribe finds the lines of pages"
            warnings.warn(message, stacklevel=2)
        return name, eight_bit(opened).convert("RGB")

    # A function that takes a reader first is its method too.
    transcribe = transcribe

    def __repr__(self) -> str:
        return f"Reader({self._run.name!r})"


def load(source: StrPath, *, revision: str | None = None) -> Reader:
    """Load a reader: a run, an adapter folder such as an export's, a base by name or folder, or either by its Hub id.

    `revision` is the commit, tag or branch of a Hub id. Raises RunError or ModelError.
    """
    run = RunFolder.to_read_with(Path(source), revision)
    from dsocr.inference.reader import LocalReader

    return Reader(LocalReader.of_run(run), run)


def _require_usable(
    out: Path, *, script: str | None, engine: Engine, review: Path | None, first: int | None, overwrite: bool
) -> None:
    """Raise ConfigError for options that exclude each other, and DataError if the review list has no place."""
    if script is not None and isinstance(engine, RemoteEngine):
        message = f"{option('script', script)} is for readers in this process or on a cluster"
        raise ConfigError(message, code="option-invalid", hint="leave it out, or train with generation.script")
    if first is not None and review is None:
        message = f"{option('first', first)} shortens the list of {option('review', ...)}"
        raise ConfigError(message, code="option-invalid", hint=f"give {option('review', 'FILE')} too")
    if review is not None:
        require_free_output(review, "review list", overwrite=overwrite)
        if review.resolve().is_relative_to(out.resolve()):
            message, hint = "review list cannot be inside the output", "give a file beside it"
            raise DataError(message, code="output-overlaps-source", where=review, hint=hint)


def _require_types(preparer: PagePreparer, pages: Sequence[InputPage]) -> None:
    """Raise ConfigError if region types are chosen and pages state none."""
    if not preparer.regions:
        return
    if preparer.unit == "page":
        hint = f"give {option('unit', 'line')}"
        raise ConfigError("Regions are chosen line by line", code="regions-unknown", hint=hint)
    scan = next((page for page in pages if not page.image and page.shows == "page"), None)
    if scan is not None:
        hint = f"give ALTO or PAGE files that state them, or leave out {option('regions')}"
        raise ConfigError("its region types are unknown", code="regions-unknown", where=scan.id, hint=hint)


def _open_reader(
    run: RunFolder,
    settings: ReadingSettings,
    engine: Engine,
    reader: ImageReader | None,
    script: str | None,
    open_lines: Callable[[], Iterator[Image.Image]],
) -> ImageReader:
    """Return the given reader, the server, or the run's own network, here or on a cluster."""
    if reader is None and isinstance(engine, RemoteEngine):
        return RemoteReader(engine, settings, Calibration.load(run.adapter))
    from dsocr.inference.reader import LocalReader

    reader = reader or LocalReader.of_run(run, use_torch=engine == TORCH)
    return reader.with_script(script).for_pages(open_lines()) if isinstance(reader, LocalReader) else reader


def open_lines(preparer: PagePreparer, pages: Sequence[InputPage]) -> Iterator[Image.Image]:
    """Yield images of lines that can be read."""
    for page in pages:
        _, prepared = preparer.try_prepare(page)
        if isinstance(prepared, PreparedPage):
            yield from (crop.image() for crop in prepared.crops)


@contextmanager
def _explain_out_of_memory(run: RunFolder, out: Path, engine: Engine) -> Iterator[None]:
    """Raise RunError if memory runs out, on this machine or its graphics card."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        hint = "finished pages are kept: close other programs and run the same command again"
        if not isinstance(engine, RemoteEngine):  # a server chooses its own batches
            hint += f"; if that does not help, lower batch_size in {run.adapter / READING} (this reads all pages again)"
        # `from None`: the traceback would keep the batch alive.
        message = "Ran out of memory while reading pages"
        raise RunError(message, code="out-of-memory", where=out, hint=hint) from None


def _summary(failed: Sequence[str]) -> str:
    more = f", and {len(failed) - 1} more failed" if len(failed) > 1 else ""
    return f"{failed[0]}{more}" if failed else ""
