"""Read the lines of scans that nobody transcribed, and choose the surest of them.

Their images and what was read in them are below `unlabelled/` of a run folder, page by page in a journal.
"""

import gc
import hashlib
import json
import math
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from dsocr import __version__
from dsocr.config import RunConfig
from dsocr.data.crops import hash_picture, source_pictures
from dsocr.data.dataset import Dataset, image_hash
from dsocr.document import Sample, Split
from dsocr.errors import DataError, first_few
from dsocr.html import counted
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.inference.inputs import DETECTOR, Crop, InputPage, PagePreparer, choose_segmenter, find_pages
from dsocr.inference.pages import Rows, journal_job, page_key, read_into
from dsocr.inference.reader import LocalReader
from dsocr.inference.transcribe import open_lines
from dsocr.io.files import is_dataset
from dsocr.io.work import Journal, hash_file, keep_result, remove_path, write_file
from dsocr.models.generation import spread
from dsocr.models.scripts import SAMPLE_LINES
from dsocr.runs import ReadingSettings, RunFolder, UnlabelledReport, adapter_digest
from dsocr.text import is_blank, percentage
from dsocr.training.feature_cache import StageProgress

READINGS = "readings.json"
"""The file with what was read, below `unlabelled/`."""
_LINES, _JOURNAL = "lines", "journal.sqlite"
"""The images of lines that were read, and what was read in them."""
_SHARE = 0.6
"""Share of the lines that is learnt, the surest: there a reading has half the errors of all."""
_LEAST = 20
"""Own readings below which a training is not worth its time."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a dataset has of the scans, by hashes of line images and of pages, and how many `lines` are trained on."""

    lines: int = 0
    held_out: frozenset[str] = frozenset()
    trained: frozenset[str] = frozenset()

    @classmethod
    def of(cls, dataset: Dataset, trained: Sequence[Sample]) -> "Known":
        """Collect what is in the validation and the test split, and what is trained on."""
        held_out = [sample for split in (Split.VALIDATION, Split.TEST) for sample in dataset.samples(split)]
        return cls(len(trained), *(frozenset(_hashes(dataset, samples)) for samples in (held_out, trained)))


@dataclass(frozen=True, slots=True)
class UnlabelledLines:
    """Lines of a run's unlabelled scans, at most so many, that a reader reads; below `unlabelled/` of the run."""

    config: RunConfig
    run: RunFolder
    reader: RunFolder
    most: int
    known: Known = Known()

    @property
    def folder(self) -> Path:
        """The folder with the images of the lines."""
        return self.run.unlabelled / _LINES

    def read(self, on_stage: StageProgress | None) -> UnlabelledReport:
        """Read lines, unless that was done, and return what is known of them; the surest are kept."""
        identity = {
            "dsocr_version": __version__,
            "adapter": adapter_digest(self.reader.adapter),
            "sources": self.config.training.unlabelled,
            "script": self.script,
            "most": self.most,
        }
        make = partial(self._read, identity, on_stage)
        return UnlabelledReport(**keep_result(self.run.unlabelled / READINGS, identity, make)["report"])

    @property
    def script(self) -> str | None:
        """The script that the configuration names; None if the reader or its pages decide it."""
        script = self.config.generation.script
        return None if script == "auto" else script

    def chosen(self) -> list[Sample]:
        """Return the surest lines with what was read in them, as samples to train on."""
        return [
            Sample(f"unlabelled/{file}", self.folder / file, text, Split.TRAIN, source=place)
            for file, text, _, place in self._chosen()
        ]

    def table(self) -> str:
        """Return the surest lines as JSON lines, which `prepare` reads beside their images."""
        rows = [{"file_name": file, "text": text} for file, text, *_ in self._chosen()]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    def _chosen(self) -> list[tuple[str, str, float, str]]:
        kept = json.loads((self.run.unlabelled / READINGS).read_text(encoding="utf-8"))
        return [tuple(line) for line in kept["result"]["lines"]]

    def forget_images(self) -> None:
        """Remove what is only needed until the lines were learnt."""
        for path in (self.folder, self.run.unlabelled / _JOURNAL):
            if path.exists():
                remove_path(path)

    def count_pages(self) -> int:
        """Return the number of pages and images of lines in the scans."""
        with self._pages() as pages:
            return len(pages)

    @contextmanager
    def _pages(self) -> Iterator[list[InputPage]]:
        """Find the pages and images of lines to read, in an order drawn with the seed."""
        sources = [Path(source) for source in self.config.training.unlabelled]
        shows: Literal["line"] | None = "line" if all(map(is_dataset, sources)) else None
        unpacked = self.run.path.with_name(f".{self.run.path.name}.unpacked")
        if unpacked.exists():
            remove_path(unpacked)
        try:
            with find_pages(sources, unpacked, shows=shows, out=self.run.path) as listed:
                if not listed.pages:
                    message = first_few(listed.failed, 3) or "no image to read"
                    raise DataError(message, code="unlabelled-empty", where=sources[0])
                pages = list(listed.pages)
                random.Random(f"unlabelled {self.config.seed}").shuffle(pages)  # noqa: S311 - not a secret
                yield pages
        finally:
            if unpacked.exists():
                remove_path(unpacked)

    def _read(self, identity: Mapping[str, Any], on_stage: StageProgress | None) -> dict[str, Any]:
        """Read lines; return the report on them and, if it refuses nothing, the surest."""
        settings = ReadingSettings.load(self.reader.adapter)
        if self.config.learns_alone and self.config.dataset.exists():  # of other readings
            remove_path(self.config.dataset)
        self.folder.mkdir(parents=True, exist_ok=True)
        preparer = PagePreparer(settings.unit, choose_segmenter(DETECTOR), True, settings.lines_per_region)
        with (
            closing(Journal(self.run.unlabelled / _JOURNAL, commit_seconds=1.0)) as journal,
            self._pages() as pages,
        ):
            journal.begin(journal_job(identity), "")

            def rows_of(pages: Sequence[InputPage]) -> list[dict[str, Any]]:
                return [journal.get(page_key(page)) for page in pages if page_key(page) in journal]

            def show(done: int) -> None:
                if on_stage is not None:
                    on_stage("reading unlabelled lines", "lines", done, self.most)

            images = [page for page in pages if page.shows == "line"]
            sample = partial(open_lines, preparer, spread(images, SAMPLE_LINES))
            scans = _Scans(
                self.folder,
                preparer,
                cache(lambda: open_reader(self.reader, self.script, sample())),
                self.known,
                self.most,
                sum(len(row["lines"]) for row in rows_of(pages)),
                show,
            )
            read_into(journal, pages, scans.read, progress=None)
            damaged = [page for page in pages if not _is_whole(self.folder, journal.get(page_key(page)))]
            scans.done = 0
            for rows in scans.read([[page] for page in damaged]):
                journal.add(rows)
            report, lines = self._choose(rows_of(pages))
        gc.collect()  # there may be no memory for this network and the next
        names = {line[0] for line in lines}
        for path in self.folder.iterdir():
            if path.name not in names:
                remove_path(path)
        return {"report": asdict(report), "lines": lines}

    def _choose(self, rows: Sequence[Mapping[str, Any]]) -> tuple[UnlabelledReport, list[list[Any]]]:
        """Return the surest lines, unless they are too few or the hands are others: file, text, confidence, place."""
        read = [line for row in rows for line in row["lines"]][: self.most]
        rated = [line for line in read if line[3] is not None and not is_blank(line[2])]
        rated.sort(key=lambda line: -line[3])
        chosen = [[name, text, confidence, place] for name, _, text, confidence, place in rated]
        chosen = chosen[: math.ceil(_SHARE * len(chosen))]
        confidences = [line[3] for line in read if line[3] is not None]
        mean = sum(confidences) / len(confidences) if confidences else None
        refused = ""
        calibration = Calibration.load(self.reader.adapter)
        if not (self.known.lines or calibration.line_quantiles):
            refused = f"the confidences of {self.reader.name} were never compared with transcribed lines"
        elif mean is not None and calibration.is_unfamiliar(mean, len(confidences)):
            trained = "the transcribed ones" if self.known.lines else "all that the reader knows"
            refused = f"their hands or script are unlike {trained} (mean confidence {percentage(mean, 0)})"
        elif len(chosen) < _LEAST:
            refused = f"only {counted(len(chosen), 'reading')} could be learnt, fewer than {_LEAST}"
        counts = {name: sum(row[name] for row in rows) for name in ("held_out", "known", "failed")}
        shown = 0 if refused else len(chosen)
        report = UnlabelledReport(len(read), shown, 0, self.known.lines, **counts, confidence=mean, refused=refused)
        return report, [] if refused else chosen


def open_reader(run: RunFolder, script: str | None, lines: Iterator[Image.Image]) -> LocalReader:
    """Open a reader of lines, which decides their script if neither it nor the caller names any; see `for_pages`."""
    return LocalReader.of_run(run, merged=True).with_script(script).for_pages(lines)


def _is_whole(folder: Path, row: Mapping[str, Any] | None) -> bool:
    """Return whether the images of a page's lines are as they were written; so are those of a page not read."""
    paths = [(folder / name, digest) for name, digest, *_ in (row or {"lines": ()})["lines"]]
    return all(path.is_file() and hash_file(path) == digest for path, digest in paths)


def _hashes(dataset: Dataset, samples: Sequence[Sample]) -> Iterator[str]:
    yield from map(image_hash, samples)
    ids = {sample.id for sample in samples}
    for picture, files in source_pictures(dataset.folder):
        if not ids.isdisjoint(files):
            yield picture


@dataclass(slots=True)
class _Scans:
    """Reads the lines of pages until there are enough, and keeps their images in a folder."""

    folder: Path
    preparer: PagePreparer
    open_reader: Callable[[], LocalReader]
    known: Known
    most: int
    done: int
    on_lines: Callable[[int], None]

    def read(self, groups: Sequence[Sequence[InputPage]]) -> Generator[Rows]:
        """Yield what the journal keeps of each group of pages, until enough lines were read."""
        for group in groups:
            if self.done >= self.most:
                return
            cut = [(page, *self._cut(page)) for page in group]
            images = ((crop.id, crop.image()) for _, _, crops in cut for crop in crops)
            predictions = self.open_reader().read(images) if any(crops for *_, crops in cut) else iter(())
            rows = []
            for page, row, crops in cut:
                lines = [self._keep(page, crop, next(predictions)) for crop in crops]
                rows.append((page_key(page), {**row, "lines": lines}))
                self.done += len(lines)
            self.on_lines(min(self.done, self.most))
            yield rows

    def _cut(self, page: InputPage) -> tuple[dict[str, int], list[Crop]]:
        """Return the lines of a page that nobody transcribed, and the number of others."""
        counts = {"held_out": 0, "known": 0, "failed": 0}
        try:
            picture = hash_picture(page.content())
        except DataError:
            return {**counts, "failed": 1}, []
        if picture in self.known.held_out:
            return {**counts, "held_out": 1}, []
        if picture in self.known.trained and page.image is None:  # whose lines are found anew
            return {**counts, "known": 1}, []
        _, prepared = self.preparer.try_prepare(page)
        if isinstance(prepared, str):
            return {**counts, "failed": 1}, []
        crops = []
        for crop in prepared.crops:
            digest = hashlib.sha256(crop.content).hexdigest()
            counts["held_out"] += digest in self.known.held_out
            counts["known"] += digest in self.known.trained
            if digest not in self.known.held_out | self.known.trained:
                crops.append(crop)
        return counts, crops

    def _keep(self, page: InputPage, crop: Crop, prediction: Prediction) -> list[Any]:
        """Write the image of a line; return its file, the file's hash, its text, how sure that is, and its place.

        The text of a line that must be checked, whatever its confidence, is empty.
        """
        digest = hashlib.sha256(f"{page_key(page)} {crop.id}".encode()).hexdigest()[:24]
        name, text = f"{digest}.image", "" if prediction.flags else prediction.text
        write_file(self.folder / name, crop.content, flushed=False)
        return [name, hashlib.sha256(crop.content).hexdigest(), text, prediction.confidence, crop.id]
