"""Learn from scans that nobody transcribed: train, read their lines, and train again with the surest readings.

The first run is an ordinary one. A second goes on from its weights, and shows its own surest readings beside the
transcribed lines; the validation split decides which of the two the run is. Both are below `unlabelled/` of its folder
until then, so that an interrupted job resumes with the step or the page at which it was.
"""

import gc
import hashlib
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from dsocr import __version__
from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import Finding
from dsocr.data.crops import hash_picture, source_pictures
from dsocr.data.dataset import Dataset, image_hash, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import DataError, Interrupted, first_few, option
from dsocr.html import counted
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.inference.inputs import DETECTOR, Crop, InputPage, PagePreparer, choose_segmenter, find_pages
from dsocr.inference.pages import Rows, journal_job, page_key, read_into
from dsocr.inference.reader import LocalReader
from dsocr.io.files import is_dataset
from dsocr.io.work import (
    MANIFEST,
    Journal,
    explain_disk_errors,
    hash_file,
    keep_result,
    remove_path,
    replace_path,
    write_file,
    write_folder,
)
from dsocr.runs import (
    History,
    ReadingSettings,
    RunFolder,
    UnlabelledReport,
    adapter_digest,
    read_history,
    read_provenance,
    to_json,
)
from dsocr.text import is_blank, percentage
from dsocr.training.callbacks import Callback, TrainingProgress
from dsocr.training.feature_cache import StageProgress
from dsocr.training.lifecycle import RunLock, clear_run, pin_base, require_same_settings, require_sources
from dsocr.training.many_runs import PlannedRun, drop_weights, plan_run, require_one_process
from dsocr.training.preview import within_budget
from dsocr.training.samples import TIMES_LONGER, OwnReadings
from dsocr.training.train import TrainResult, find_checkpoint, train

FIRST, SECOND, READINGS = "first", "second", "readings.json"
"""Folders of the two trainings, and the file with what was read, below `unlabelled/`."""
_LINES, _JOURNAL, _KEPT = "lines", "journal.sqlite", "kept"
"""The images of lines that were read, what was read, and the weights that the run will have."""
_SHARE = 0.6
"""Share of the lines that is learnt, the surest: there a reading has half the errors of all."""
_MOST_READINGS = 2
"""Own readings shown for each transcribed line, at most."""
_LEAST = 20
"""Own readings below which a second training is not worth its time."""


def train_with_unlabelled(
    config: RunConfig,
    *,
    overwrite: bool,
    preflight: bool,
    on_progress: Callable[[TrainingProgress], None] | None,
    on_warning: Callable[[Finding], None] | None,
    on_message: Callable[[str], None] | None,
    on_stage: StageProgress | None,
    callbacks: Sequence[Callback],
) -> TrainResult:
    """Train as the configuration says, with its unlabelled scans, or resume; see `train`.

    Raises DataError if the dataset has no validation split, or if there is nothing to read in the scans.
    """
    require_one_process("start it without torchrun, or leave the unlabelled scans out")
    started, run = time.monotonic(), RunFolder(config.output)
    say = on_message or (lambda message: None)
    with explain_disk_errors(run.path), ExitStack() as stack:
        lock = RunLock(run)
        other = find_checkpoint(run, lock, stack, say, overwrite=overwrite)
        plan = _TwoTrainings.of(config, require_sources(config), other is not None, overwrite=overwrite)
        if plan.kept is None and not plan.first.finished:
            say(plan.describe())
        lock.acquire()
        if overwrite:
            clear_run(run)
        if plan.kept is None:
            write_file(run.config, plan.config.to_yaml())
            hooks: dict[str, Any] = {"on_message": on_message, "on_stage": on_stage, "callbacks": callbacks}
            watch = partial(_watch, on_progress, 2 * plan.first.steps)
            try:
                if not plan.first.finished:
                    more: dict[str, Any] = {"preflight": preflight, "on_warning": on_warning}
                    more["overwrite"] = plan.first.replaces
                    seconds = train(plan.first.config, on_progress=watch(0), **more, **hooks).seconds
                    minutes = counted(math.ceil((TIMES_LONGER - 1) * seconds / 60), "minute")
                    say(f"next, in {minutes} at most: reading unlabelled lines, and learning the surest")
                report = plan.read(on_stage)
                if not report.refused:
                    report = plan.learn(report, partial(train, on_progress=watch(plan.first.steps), **hooks))
            except Interrupted as signal:
                raise Interrupted(signal.exit_code - 128, signal.step, run.resume_command) from signal
            plan.keep(report)
        report = _finish(run)
        say(report.describe())
        history = read_history(run.path)
        best = _best_step(history)
        return TrainResult(
            run=run,
            steps=max(int(row["step"]) for row in (*history.training, *history.validation)),
            best_step=best,
            best_cer=next((row["cer"] for row in history.validation if row["step"] == best), None),
            seconds=time.monotonic() - started,
            excluded=plan.excluded,
            resumed_from=0,
            calibrated_on=Calibration.load(run.adapter).lines,
            unlabelled=report,
        )


def _watch(
    on_progress: Callable[[TrainingProgress], None] | None, steps: int, before: int
) -> Callable[[TrainingProgress], None] | None:
    """Return a hook that shows the steps of one training among those of both."""
    if on_progress is None:
        return None

    step_seconds = 0.0

    def show(progress: TrainingProgress) -> None:
        nonlocal step_seconds
        if progress.step < progress.max_steps:
            step_seconds = progress.seconds_left / (progress.max_steps - progress.step)
        left = progress.seconds_left + step_seconds * (steps - before - progress.max_steps)
        on_progress(replace(progress, step=before + progress.step, max_steps=steps, seconds_left=left))

    return show


@dataclass(frozen=True, slots=True)
class _TwoTrainings:
    """What is trained on, `pages` of scans, and the first training as planned."""

    run: RunFolder
    config: RunConfig
    dataset: Dataset
    transcribed: Sequence[Sample]
    excluded: int
    first: PlannedRun
    pages: int

    @classmethod
    def of(cls, config: RunConfig, dataset: Dataset, holds_other: bool, *, overwrite: bool) -> "_TwoTrainings":
        """Plan the first training. Raises RunError if the folder holds a run with other settings."""
        run, hint = RunFolder(config.output), f"give {option('overwrite')}"
        first_run = RunFolder(run.unlabelled / FIRST)
        has_begun = first_run.adapter.is_dir() or any(first_run.checkpoints.glob("step-*")) or _kept(run) is not None
        recorded = load_run_config(run.config) if (has_begun or holds_other) and not overwrite else None
        config, base = pin_base(config, recorded)
        if recorded is not None:
            require_same_settings(run, config, recorded)
        elif first_run.path.is_dir():
            remove_path(first_run.path)  # of a training without a checkpoint, whose settings may still be changed
        section = config.training.model_copy(update={"unlabelled": ()})
        first = config.model_copy(update={"output": first_run.path, "training": section})
        processor = base.processor(config.input.resolution, config.input.prompt)
        samples, excluded = within_budget(training_samples(dataset, config), processor, config)
        with _pages(config, run) as listed:
            pages = len(listed)
        planned = plan_run(first, len(samples), overwrite=overwrite, hint=hint)
        if overwrite:  # the folder is cleared before
            planned = replace(planned, finished=False, replaces=False)
        return cls(run, config, dataset, samples, excluded, planned, pages)

    @property
    def kept(self) -> Path | None:
        """The weights that were chosen, if they are not in their place yet."""
        return _kept(self.run)

    @property
    def most_lines(self) -> int:
        """How many lines are read at most: as many as the first training shows."""
        return self.first.steps * self.config.training.batch_size

    def describe(self) -> str:
        """Say what will be done and how long it may take."""
        images, lines = counted(self.pages, "unlabelled image"), counted(self.most_lines, "line")
        return (
            f"{images}: up to {lines} of them are read after a first training, and the surest learnt in a second; "
            f"it takes at most {TIMES_LONGER} times as long as without them"
        )

    def read(self, on_stage: StageProgress | None) -> UnlabelledReport:
        """Read lines of the scans with the first run, and return what is known of them; the surest are kept."""
        first = RunFolder.open(self.first.config.output)
        identity = {
            "dsocr_version": __version__,
            "adapter": adapter_digest(first.adapter),
            "sources": self.config.training.unlabelled,
            "most": self.most_lines,
        }
        make = partial(_read_scans, self, first, identity, on_stage)
        return UnlabelledReport(**keep_result(self.run.unlabelled / READINGS, identity, make)["report"])

    def learn(self, report: UnlabelledReport, train_second: Callable[..., TrainResult]) -> UnlabelledReport:
        """Train again, with the readings, and return whether that reads the validation split better."""
        recorded = load_run_config(RunFolder(self.first.config.output).config)
        section = recorded.training.model_copy(update={"epochs": None, "max_steps": self.first.steps})
        config = recorded.model_copy(update={"output": self.run.unlabelled / SECOND, "training": section})
        planned = plan_run(config, len(self.transcribed), overwrite=True, hint="")
        if not planned.finished:
            train_second(config, overwrite=planned.replaces, own_readings=self._own_readings())
        history = read_history(planned.config.output)
        start, *later = history.validation
        if not later:  # a callback stopped it
            return replace(report, refused="the second training ended before a validation")
        learnt = report.shown if (_best_step(history) or 0) > start["step"] else 0
        return replace(report, before=start["cer"], after=min(row["cer"] for row in later), learnt=learnt)

    def _own_readings(self) -> OwnReadings:
        kept = json.loads((self.run.unlabelled / READINGS).read_text(encoding="utf-8"))["result"]["lines"]
        samples = [
            Sample(f"unlabelled/{file}", self.run.unlabelled / _LINES / file, text, Split.TRAIN, source=place)
            for file, text, _, place in kept
        ]
        start = RunFolder(self.first.config.output).adapter
        return OwnReadings(start, samples, repeats(len(samples), len(self.transcribed)))

    def keep(self, report: UnlabelledReport) -> None:
        """Copy what the run will have from the better training; all is there when its weights are."""
        chosen = RunFolder(self.run.unlabelled / (SECOND if report.learnt else FIRST))
        for path in (chosen.metrics, chosen.log, chosen.tensorboard):
            place = self.run.path / path.name
            if place.exists():
                remove_path(place)
            if path.is_dir():
                shutil.copytree(path, place)
            elif path.is_file():
                shutil.copyfile(path, place)
        provenance = read_provenance(RunFolder(self.run.unlabelled / FIRST))
        write_file(self.run.provenance, to_json({**provenance, "unlabelled": asdict(report)}))
        folder = self.run.unlabelled / _KEPT
        folder.mkdir(exist_ok=True)
        files = [path for path in sorted(chosen.adapter.iterdir()) if path.name != MANIFEST]
        write_folder(folder / chosen.adapter.name, [(path.name, path.read_bytes()) for path in files])


def repeats(readings: int, transcribed: int) -> int:
    """Return how often each transcribed line is shown for each own reading."""
    return max(1, math.ceil(readings / (_MOST_READINGS * transcribed)))


def _kept(run: RunFolder) -> Path | None:
    folder = run.unlabelled / _KEPT
    return next((path for path in (folder / "model", folder / "adapter") if path.is_dir()), None)


def _finish(run: RunFolder) -> UnlabelledReport:
    """Drop what nobody reads any more, and put the weights in their place, which marks the run as finished."""
    report, kept = UnlabelledReport.of(read_provenance(run)), _kept(run)
    assert report is not None, "`keep` writes it"
    assert kept is not None, "`keep` puts it there"
    for name in (FIRST, SECOND):
        drop_weights(RunFolder(run.unlabelled / name))
    for path in (run.unlabelled / _LINES, run.unlabelled / _JOURNAL):
        if path.exists():
            remove_path(path)
    replace_path(kept, run.path / kept.name, run.unlabelled / "former")
    remove_path(run.unlabelled / _KEPT)
    return report


def _best_step(history: History) -> int | None:
    """Return the step whose weights were kept; None if no validation chose them."""
    return max((int(row["step"]) for row in history.validation if row.get("best")), default=None)


# Reading


@contextmanager
def _pages(config: RunConfig, run: RunFolder) -> Iterator[list[InputPage]]:
    """Find the pages and images of lines to read, in an order drawn with the seed."""
    sources = [Path(source) for source in config.training.unlabelled]
    shows: Literal["line"] | None = "line" if all(map(is_dataset, sources)) else None
    unpacked = run.path.with_name(f".{run.path.name}.unpacked")
    if unpacked.exists():
        remove_path(unpacked)
    try:
        with find_pages(sources, unpacked, shows=shows, out=run.path) as listed:
            if not listed.pages:
                message = first_few(listed.failed, 3) or "no image to read"
                raise DataError(message, code="unlabelled-empty", where=sources[0])
            pages = list(listed.pages)
            random.Random(f"unlabelled {config.seed}").shuffle(pages)  # noqa: S311 - not a secret
            yield pages
    finally:
        if unpacked.exists():
            remove_path(unpacked)


@dataclass(frozen=True, slots=True)
class _Transcribed:
    """What the dataset has of the scans, by hashes of line images and of pages; nothing of it is read."""

    held_out: frozenset[str]
    known: frozenset[str]

    @classmethod
    def of(cls, dataset: Dataset, trained: Sequence[Sample]) -> "_Transcribed":
        """Collect what is in the validation and the test split, and what is trained on."""
        held_out = [sample for split in (Split.VALIDATION, Split.TEST) for sample in dataset.samples(split)]
        return cls(*(frozenset(_hashes(dataset, samples)) for samples in (held_out, trained)))


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
    transcribed: _Transcribed
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
        if picture in self.transcribed.held_out:
            return {**counts, "held_out": 1}, []
        if picture in self.transcribed.known and page.image is None:  # whose lines are found anew
            return {**counts, "known": 1}, []
        _, prepared = self.preparer.try_prepare(page)
        if isinstance(prepared, str):
            return {**counts, "failed": 1}, []
        crops = []
        for crop in prepared.crops:
            digest = hashlib.sha256(crop.content).hexdigest()
            counts["held_out"] += digest in self.transcribed.held_out
            counts["known"] += digest in self.transcribed.known
            if digest not in self.transcribed.held_out | self.transcribed.known:
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


def open_reader(run: RunFolder) -> LocalReader:
    """Open a finished run, to read only."""
    return LocalReader.of_run(run, merged=True)


def _read_scans(
    plan: _TwoTrainings, first: RunFolder, identity: Mapping[str, Any], on_stage: StageProgress | None
) -> dict[str, Any]:
    """Read the unlabelled lines; return the report on them and, if it refuses nothing, the surest lines."""
    folder, settings = plan.run.unlabelled / _LINES, ReadingSettings.load(first.adapter)
    folder.mkdir(exist_ok=True)
    preparer = PagePreparer(settings.unit, choose_segmenter(DETECTOR), True, settings.lines_per_region)
    with (
        closing(Journal(plan.run.unlabelled / _JOURNAL, commit_seconds=1.0)) as journal,
        _pages(plan.config, plan.run) as pages,
    ):
        journal.begin(journal_job(identity), "")

        def rows_of(pages: Sequence[InputPage]) -> list[dict[str, Any]]:
            return [journal.get(page_key(page)) for page in pages if page_key(page) in journal]

        def show(done: int) -> None:
            if on_stage is not None:
                on_stage("reading unlabelled lines", "lines", done, plan.most_lines)

        scans = _Scans(
            folder,
            preparer,
            cache(partial(open_reader, first)),
            _Transcribed.of(plan.dataset, plan.transcribed),
            plan.most_lines,
            sum(len(row["lines"]) for row in rows_of(pages)),
            show,
        )
        read_into(journal, pages, scans.read, progress=None)
        damaged = [page for page in pages if not _is_whole(folder, journal.get(page_key(page)))]
        scans.done = 0
        for rows in scans.read([[page] for page in damaged]):
            journal.add(rows)
        report, lines = _choose(rows_of(pages), plan, Calibration.load(first.adapter))
    gc.collect()  # there may be no memory for this network and the next
    names = {line[0] for line in lines}
    for path in folder.iterdir():
        if path.name not in names:
            remove_path(path)
    return {"report": asdict(report), "lines": lines}


def _is_whole(folder: Path, row: Mapping[str, Any] | None) -> bool:
    """Return whether the images of a page's lines are as they were written; so are those of a page not read."""
    paths = [(folder / name, digest) for name, digest, *_ in (row or {"lines": ()})["lines"]]
    return all(path.is_file() and hash_file(path) == digest for path, digest in paths)


def _choose(
    rows: Sequence[Mapping[str, Any]], plan: _TwoTrainings, calibration: Calibration
) -> tuple[UnlabelledReport, list[list[Any]]]:
    """Return the surest lines, unless there are too few or the hands are others: file, text, confidence, place."""
    read = [line for row in rows for line in row["lines"]][: plan.most_lines]
    rated = [line for line in read if line[3] is not None and not is_blank(line[2])]
    rated.sort(key=lambda line: -line[3])
    chosen = [[name, text, confidence, place] for name, _, text, confidence, place in rated]
    chosen = chosen[: math.ceil(_SHARE * len(chosen))]
    confidences = [line[3] for line in read if line[3] is not None]
    mean = sum(confidences) / len(confidences) if confidences else None
    refused = ""
    if mean is not None and calibration.is_unfamiliar(mean, len(confidences)):
        refused = f"their hands or script are unlike the transcribed ones (mean confidence {percentage(mean, 0)})"
    elif len(chosen) < _LEAST:
        refused = f"only {counted(len(chosen), 'reading')} could be learnt, fewer than {_LEAST}"
    counts = {name: sum(row[name] for row in rows) for name in ("held_out", "known", "failed")}
    shown = 0 if refused else len(chosen)
    report = UnlabelledReport(len(read), shown, 0, len(plan.transcribed), **counts, confidence=mean, refused=refused)
    return report, [] if refused else chosen
