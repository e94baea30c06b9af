"""Training on untranscribed scans: a reader reads them, and the most confident readings are learnt.

Lines that have a text in their source, such as another program's PAGE or ALTO, are learnt from that teacher instead.
Without transcribed lines the base reads, and its readings are the dataset of an ordinary training. Otherwise a first
training on the transcribed lines reads, and a second continues from its weights with the readings beside those lines;
the run is the second only if it reads the validation split better. Everything is below `unlabelled/` of the run folder,
so an interrupted job resumes at its step or page.
"""

import gc
import hashlib
import json
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from PIL import Image

from dsocr import __version__
from dsocr.config import OWN_DATASET, RunConfig
from dsocr.console import NotedProgress, current_reporter
from dsocr.data.crops import read_sources
from dsocr.data.dataset import SOURCES_FILE, Dataset, image_hash, training_samples
from dsocr.data.prepare import prepare
from dsocr.document import Sample, Split
from dsocr.errors import DataError, Interrupted, command, first_few
from dsocr.evaluation.decide import count_errors, is_better
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.formats import parse_xml_page
from dsocr.formats.xml import mean_confidence
from dsocr.html import counted
from dsocr.inference.confidence import Calibration
from dsocr.inference.inputs import Crop, InputPage, PagePreparer, find_pages
from dsocr.inference.pages import Rows, journal_job, page_key, read_into
from dsocr.inference.reader import LocalReader
from dsocr.inference.transcribe import open_lines
from dsocr.io.files import is_dataset
from dsocr.io.work import MANIFEST, Journal, explain_disk_errors, keep_result, remove_path, write_file, write_folder
from dsocr.job import Job, first_reader, require_trainable
from dsocr.layout import DETECTOR, choose_segmenter
from dsocr.models.generation import spread
from dsocr.models.scripts import SAMPLE_LINES
from dsocr.runs import (
    ReadingSettings,
    RunFolder,
    TrainResult,
    UnlabelledReport,
    adapter_digest,
    read_history,
    read_provenance,
    to_json,
)
from dsocr.text import is_blank, percentage
from dsocr.training.lifecycle import RunLock, clear_run
from dsocr.training.many_runs import drop_weights, require_one_process
from dsocr.training.recipe import run_job
from dsocr.training.samples import TIMES_LONGER, OwnReadings
from dsocr.training.trainer import Callback
from dsocr.training.validation import draw_samples

FIRST, SECOND = "first", "second"
"""Folders of the two runs, below `unlabelled/`."""
READINGS = "readings.json"
_SHARE = 0.6
"""Share of the readings that is learnt, by confidence: they have half the errors of all."""
_LEAST = 20
"""Fewer readings are not worth training on."""
_MOST_READINGS = 2
"""At most so many readings for each transcribed line shown."""
_MOST_ALONE = 1000
"""Lines to read at most without transcribed ones."""
_SKIPPED = ("held_out", "known", "failed")
"""Lines and pages that are skipped; see `UnlabelledReport`."""


# With transcribed lines


def train_with_unlabelled(job: Job, *, preflight: bool, callbacks: Sequence[Callback]) -> TrainResult:
    """Train on the dataset, if there is one, and on readings of the unlabelled scans, or resume; see `run_job`.

    Raises DataError if the scans have no image, or if nothing is transcribed and the base reads too few lines with
    confidence.
    """
    if job.given.learns_alone:
        require_one_process("start it without torchrun")
        report = _read_alone(job)
        if job.dataset is None:
            job = replace(job, dataset=Dataset.open(job.config.dataset), overwrite=False)
        return run_job(job, preflight=preflight, callbacks=callbacks, unlabelled=report)
    require_one_process("start it without torchrun, or leave the unlabelled scans out")
    started, run, reporter = time.monotonic(), job.run, current_reporter()
    first, second = (RunFolder(run.unlabelled / name) for name in (FIRST, SECOND))
    with explain_disk_errors(run.path), RunLock(run) as lock:
        require_trainable(run, overwrite=job.overwrite)
        if job.recorded is None and first.path.is_dir():
            remove_path(first.path)  # has no checkpoint, so its settings may still change
        dataset = job.samples_from
        samples = training_samples(dataset, job.config)
        held_out = [sample for split in (Split.VALIDATION, Split.TEST) for sample in dataset.samples(split)]
        known = dict.fromkeys(_hashes(dataset, samples), "known")
        known |= dict.fromkeys(_hashes(dataset, held_out), "held_out")
        images = _count_images(job.config)
        reporter.complain(f"{images}: learning from their readings takes up to {TIMES_LONGER} times as long")
        lock.acquire()
        if job.overwrite:
            clear_run(run)
        write_file(run.config, job.config.to_yaml())
        try:
            training = job.with_run(first.path, unlabelled=())
            if not training.is_finished():
                run_job(training, preflight=preflight, callbacks=callbacks)
            transcribed = read_provenance(first)["training_samples"]
            steps = int(read_history(first.path).training[-1]["step"])
            report = Scans(job.config, first, steps * job.config.training.batch_size, transcribed, known).read()
            if not report.refused:
                training = job.with_run(second.path, unlabelled=(), epochs=None, max_steps=steps)
                if not training.is_finished():
                    readings = Dataset.open(run.path / OWN_DATASET).samples(Split.TRAIN)
                    times = max(1, math.ceil(len(readings) / (_MOST_READINGS * transcribed)))
                    own_readings = OwnReadings(first.adapter, readings, times)
                    run_job(training, callbacks=callbacks, own_readings=own_readings)
                lines = draw_samples(
                    dataset.samples(Split.VALIDATION), job.config.validation.max_samples, job.config.seed
                )
                before, after = (count_errors(LocalReader.of_run(read), lines) for read in (first, second))
                helps = is_better(lines, (rate.errors for rate in before), (rate.errors for rate in after))
                learnt = report.shown if helps else 0
                report = replace(report, before=pool(before).rate, after=pool(after).rate, learnt=learnt)
        except Interrupted as signal:
            raise Interrupted(signal.exit_code - 128, signal.step, run.resume_command) from signal
        _adopt(run, second if report.learnt else first, {**read_provenance(first), "unlabelled": asdict(report)})
        for folder in (first, second):
            drop_weights(folder)
        reporter.complain(report.describe())
        history = read_history(run.path)
        best = max((row for row in history.validation if row["best"]), key=lambda row: row["step"], default=None)
        return TrainResult(
            run=run,
            steps=int(history.training[-1]["step"]),
            best_step=None if best is None else int(best["step"]),
            best_cer=None if best is None else best["cer"],
            seconds=time.monotonic() - started,
            excluded=len(samples) - transcribed,
            calibrated_on=Calibration.load(run.adapter).lines,
            unlabelled=report,
        )


def _adopt(run: RunFolder, chosen: RunFolder, provenance: Mapping[str, Any]) -> None:
    """Copy a finished run; the weights come last, since they mark a run as finished."""
    for path in (chosen.metrics, chosen.log):
        write_file(run.path / path.name, path.read_bytes())
    if chosen.tensorboard.is_dir():
        shutil.copytree(chosen.tensorboard, run.tensorboard, dirs_exist_ok=True)
    write_file(run.provenance, to_json(provenance))
    files = [path for path in sorted(chosen.adapter.iterdir()) if path.name != MANIFEST]
    write_folder(run.path / chosen.adapter.name, [(path.name, path.read_bytes()) for path in files])


# Without transcribed lines


def _read_alone(job: Job) -> UnlabelledReport:
    """Make the dataset of a run without transcribed lines, unless it exists; see `RunConfig.learns_alone`."""
    run, config = job.run, job.config
    with explain_disk_errors(run.path), RunLock(run) as lock:
        require_trainable(run, overwrite=job.overwrite)
        if job.recorded is not None:
            report = UnlabelledReport.of(read_provenance(run))
            assert report is not None, "a run starts with one"
            return report
        reader = first_reader(config)
        images = _count_images(config)
        current_reporter().complain(f"{images}: their texts, or else readings of {reader.name}, are learnt, unmeasured")
        lock.acquire()
        replaces = run.adapter.is_dir()
        if not replaces:
            write_file(run.config, config.to_yaml())
        report = Scans(config, reader, _MOST_ALONE, 0, {}).read()
        if report.refused:
            if not replaces:
                clear_run(run)
            message = f"{reader.name} cannot learn alone from these scans: {report.refused}"
            scans = config.training.unlabelled[0]
            hint = f"transcribe fifty lines ({command('workbench', scans)} shows the least certain first)"
            raise DataError(message, code="unlabelled-unread", where=Path(scans), hint=f"{hint}, and train on them")
        if replaces:
            clear_run(run, but=run.unlabelled)
            write_file(run.config, config.to_yaml())
        return replace(report, learnt=report.shown)


# Reading


def _hashes(dataset: Dataset, samples: Sequence[Sample]) -> set[str]:
    """Return the hashes of the samples and of their scans. Raises DataError if the scan of a sample is unknown."""
    unknown, pictures = {sample.id for sample in samples}, set()
    for _, picture, cut in read_sources(dataset.folder):
        cropped = {line[0] for line in cut.get("lines", ()) if isinstance(line, list)}
        if not cropped.isdisjoint(unknown):
            pictures.add(picture)
            unknown -= cropped
    if unknown:
        message = f"does not name the scans of {counted(len(unknown), 'sample')}, so they could be learnt from: "
        where, hint = dataset.folder / SOURCES_FILE, "prepare the dataset again, or train without unlabelled scans"
        raise DataError(message + first_few(sorted(unknown), 3), code="bad-metadata", where=where, hint=hint)
    return pictures | set(map(image_hash, samples))


@contextmanager
def _find_images(config: RunConfig) -> Iterator[list[InputPage]]:
    """Find the pages and images of lines, in an order drawn with the seed."""
    sources = [Path(source) for source in config.training.unlabelled]
    shows: Literal["line"] | None = "line" if all(map(is_dataset, sources)) else None
    with (
        TemporaryDirectory(prefix="dsocr-unlabelled-") as unpacked,
        find_pages(sources, Path(unpacked), shows=shows, out=config.output) as listed,
    ):
        if not listed.pages:
            message = first_few(listed.failed, 3) or "no image to read"
            raise DataError(message, code="unlabelled-empty", where=sources[0])
        pages = list(listed.pages)
        random.Random(f"unlabelled {config.seed}").shuffle(pages)  # noqa: S311 - not a secret
        yield pages


def _count_images(config: RunConfig) -> str:
    with _find_images(config) as pages:
        return counted(len(pages), "unlabelled image")


class Scans:
    """The unlabelled scans of a run; `reader`, trained on so many lines, reads at most `most` of theirs.

    `known` has the hashes of line and source images that are not learnt from, and `_SKIPPED` says why.
    """

    def __init__(
        self, config: RunConfig, reader: RunFolder, most: int, transcribed: int, known: Mapping[str, str]
    ) -> None:
        self._config, self._reader, self._most = config, reader, most
        self._transcribed, self._known = transcribed, known
        self._folder = RunFolder(config.output).unlabelled
        self._journal = self._folder / "journal.sqlite"
        self._settings = ReadingSettings.load(reader.adapter)
        unit, most_lines = self._settings.unit, self._settings.lines_per_region
        self._preparer = PagePreparer(unit, choose_segmenter(DETECTOR), True, most_lines)

    def read(self) -> UnlabelledReport:
        """Read lines and make a dataset of the most confident readings, unless that was done.

        The report refuses too few readings, and hands that the reader does not know.
        """
        identity = {
            "dsocr_version": __version__,
            "adapter": adapter_digest(self._reader.adapter),
            "sources": self._config.training.unlabelled,
            "script": self._config.generation.script,
            "most": self._most,
        }
        result = keep_result(self._folder / READINGS, identity, partial(self._read, identity))
        self._journal.unlink(missing_ok=True)
        return UnlabelledReport(**result["report"])

    def _read(self, identity: Mapping[str, Any]) -> dict[str, Any]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with closing(Journal(self._journal, commit_seconds=1.0)) as journal, _find_images(self._config) as pages:
            journal.begin(journal_job(identity), "")

            def rows() -> dict[str, Any]:
                return {page_key(page): journal.get(page_key(page)) for page in pages if page_key(page) in journal}

            done = sum(len(row["lines"]) for row in rows().values())
            lines = open_lines(self._preparer, spread([page for page in pages if page.shows == "line"], SAMPLE_LINES))
            opened = cache(lambda: open_reader(self._reader, self._config.generation.script, lines))
            with current_reporter().progress("reading unlabelled lines", "lines") as show:
                read_into(journal, pages, partial(self._read_groups, done, opened, show), progress=None)
            report, chosen = self._choose(rows())
            if chosen:
                self._write_dataset(pages, {(key, name): text for key, name, text, *_ in chosen})
        gc.collect()  # there may be no memory for this network and the next
        return {"report": asdict(report), "lines": [line[1:] for line in chosen]}

    def _read_groups(
        self,
        done: int,
        reader: Callable[[], LocalReader],
        show: NotedProgress,
        groups: Sequence[Sequence[InputPage]],
    ) -> Generator[Rows]:
        """Yield what the journal keeps of each group of pages, until enough lines are read.

        A line is its name, text, confidence, teacher ("" for an own reading), and the teacher's CER by the own reading.
        """
        for group in groups:
            if done >= self._most:
                return
            cut = [(page, *self._cut(page)) for page in group]
            images = ((crop.id, crop.image()) for *_, crops in cut for crop in crops)
            answers = reader().read(images) if any(crops for *_, crops in cut) else iter(())
            rows = []
            for page, counts, crops in cut:
                lines = list[list[Any]]()
                for crop, (text, confidence) in zip(crops, self._texts_of(page, crops), strict=True):
                    answer = next(answers)
                    if is_blank(text):
                        # The text of a line that must be checked, whatever its confidence, is not learnt.
                        learnt = "" if answer.flags or answer.confidence is None else answer.text
                        lines.append([crop.id, learnt, answer.confidence, "", 0.0])
                        continue
                    # The second run has the head of the first, which would omit letters that it does not know.
                    learnt = text if not self._transcribed or reader().can_write(text) else ""
                    lines.append([crop.id, learnt, confidence, page.given, character_errors(text, answer.text).rate])
                rows.append((page_key(page), {**counts, "lines": lines}))
                done += len(lines)
            show(min(done, self._most), self._most)
            yield rows

    def _texts_of(self, page: InputPage, crops: Sequence[Crop]) -> Iterator[tuple[str, float | None]]:
        """Yield the text that the file of a page has for each crop, empty if it lacks a line, with its confidence."""
        known = parse_xml_page(page.path).rated_texts() if page.image else {}
        for crop in crops:
            texts = [known.get(line.index, ("", None)) for line in crop.lines]
            text = "" if any(is_blank(text) for text, _ in texts) else "\n".join(text for text, _ in texts)
            yield self._settings.text_policy.apply(text), mean_confidence(stated for _, stated in texts)

    def _cut(self, page: InputPage) -> tuple[dict[str, int], list[Crop]]:
        """Return the lines of a page that the dataset lacks, and the numbers of others."""
        counts = dict.fromkeys(_SKIPPED, 0)
        try:
            scan = self._known.get(hashlib.sha256(page.content()).hexdigest())
        except DataError:
            return {**counts, "failed": 1}, []
        if scan == "held_out" or (scan and page.image is None):  # whose lines are found anew
            return {**counts, scan: 1}, []
        _, prepared = self._preparer.try_prepare(page)
        if isinstance(prepared, str):
            return {**counts, "failed": 1}, []
        crops = []
        for crop in prepared.crops:
            if kind := self._known.get(hashlib.sha256(crop.content).hexdigest()):
                counts[kind] += 1
            else:
                crops.append(crop)
        if scan and not counts["known"]:  # another program found the lines anew
            return {**counts, scan: 1}, []
        return counts, crops

    def _choose(self, rows: Mapping[str, Mapping[str, Any]]) -> tuple[UnlabelledReport, list[list[Any]]]:
        """Return the most confident readings of each teacher and own ones, unless they are refused.

        Each is its page's key and the line as `_read_groups` yields it. A teacher's text without a confidence counts as
        certain, and of those as certain the ones nearest to the own readings come first.
        """
        read = [[key, *line] for key, row in rows.items() for line in row["lines"]][: self._most]
        confidences = [line[3] for line in read if not line[4] and line[3] is not None]
        mean = sum(confidences) / len(confidences) if confidences else None
        doubt, calibration = "", Calibration.load(self._reader.adapter)
        if not (self._transcribed or calibration.line_quantiles):
            doubt = f"the confidences of {self._reader.name} were never compared with transcribed lines"
        elif mean is not None and calibration.is_unfamiliar(mean, len(confidences)):
            trained = "the transcribed ones" if self._transcribed else "all that the reader knows"
            doubt = f"their hands or script are unlike {trained} (mean confidence {percentage(mean, 0)})"
        chosen = list[list[Any]]()
        for teacher in sorted({line[4] for line in read} - ({""} if doubt else set())):
            rated = [line for line in read if line[4] == teacher and not is_blank(line[2])]
            rated.sort(key=lambda line: (-(1.0 if line[3] is None else line[3]), line[5]))
            chosen += rated[: math.ceil(_SHARE * len(rated))]
        refused = ""
        if len(chosen) < _LEAST:
            refused = doubt or f"only {counted(len(chosen), 'reading')} could be learnt, fewer than {_LEAST}"
            chosen = []
        teachers = dict(Counter(line[4] for line in chosen if line[4]))
        counts = {name: sum(row[name] for row in rows.values()) for name in _SKIPPED}
        report = UnlabelledReport(len(read), len(chosen), 0, self._transcribed, **counts, confidence=mean)
        return replace(report, refused=refused, teachers=teachers), chosen

    def _write_dataset(self, pages: Sequence[InputPage], texts: Mapping[tuple[str, str], str]) -> None:
        """Cut the chosen lines again, which is cheaper than keeping the images of all, and prepare them."""
        keys, rows = {key for key, _ in texts}, list[dict[str, str]]()
        with TemporaryDirectory(prefix="dsocr-readings-") as folder:
            source = Path(folder, "readings")
            source.mkdir()
            for page in (page for page in pages if page_key(page) in keys):
                for crop in self._cut(page)[1]:
                    if text := texts.get((page_key(page), crop.id)):
                        rows.append({"file_name": f"{len(rows):06d}.image", "text": text})
                        (source / rows[-1]["file_name"]).write_bytes(crop.content)
            table = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (source / "metadata.jsonl").write_text(table, encoding="utf-8")
            out, policy = self._config.output / OWN_DATASET, self._settings.text_policy
            prepare(source, out, unit=self._settings.unit, split="1/0/0", text_policy=policy, overwrite=True)


def open_reader(run: RunFolder, script: str, lines: Iterator[Image.Image]) -> LocalReader:
    """Open a reader of lines, which decide their script if neither it nor the caller names one; see `for_pages`."""
    return LocalReader.of_run(run).with_script(None if script == "auto" else script).for_pages(lines)
