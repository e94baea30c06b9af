"""Learn from scans that nobody transcribed: train, read their lines, and train again with the surest readings.

Where nothing is transcribed, the base reads, its surest readings are the dataset, and the rest is an ordinary training.
Else the first run is an ordinary one. A second goes on from its weights, and shows its own surest readings beside the
transcribed lines; the validation split decides which of the two the run is. Both are below `unlabelled/` of its folder
until then, so that an interrupted job resumes with the step or the page at which it was.
"""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import Finding
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.prepare import prepare
from dsocr.document import Sample
from dsocr.errors import DataError, Interrupted, command, option
from dsocr.html import counted
from dsocr.inference.confidence import Calibration
from dsocr.io.work import (
    MANIFEST,
    explain_disk_errors,
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
    read_history,
    read_provenance,
    to_json,
)
from dsocr.training.callbacks import Callback, TrainingProgress
from dsocr.training.feature_cache import StageProgress
from dsocr.training.lifecycle import RunLock, clear_run, first_reader, pin_base, require_same_settings
from dsocr.training.many_runs import PlannedRun, drop_weights, plan_run, require_one_process
from dsocr.training.preview import within_budget
from dsocr.training.samples import TIMES_LONGER, OwnReadings
from dsocr.training.train import TrainResult, find_checkpoint, train
from dsocr.training.unlabelled_lines import Known, UnlabelledLines

FIRST, SECOND = "first", "second"
"""Folders of the two trainings, below `unlabelled/`."""
_KEPT = "kept"
"""The weights that the run will have."""
_MOST_READINGS = 2
"""Own readings shown for each transcribed line, at most."""
_MOST_ALONE = 1000
"""Lines that are read, at most, where nothing is transcribed."""
_TABLE = "metadata.jsonl"


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
        dataset = Dataset.open(config.dataset, fold=config.fold)
        plan = _TwoTrainings.of(config, dataset, other is not None, overwrite=overwrite)
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
                report = plan.lines.read(on_stage)
                if not report.refused:
                    report = plan.learn(report, partial(train, on_progress=watch(plan.first.steps), **hooks))
            except Interrupted as signal:
                raise Interrupted(signal.exit_code - 128, signal.step, run.resume_command) from signal
            plan.keep(report)
        report = _finish(run, plan.lines)
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
    """What is trained on, the first training as planned, and the lines of `pages` of scans."""

    run: RunFolder
    config: RunConfig
    dataset: Dataset
    transcribed: Sequence[Sample]
    excluded: int
    first: PlannedRun
    lines: UnlabelledLines
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
        planned = plan_run(first, len(samples), overwrite=overwrite, hint=hint)
        if overwrite:  # the folder is cleared before
            planned = replace(planned, finished=False, replaces=False)
        # As many lines as the first training shows.
        most = planned.steps * config.training.batch_size
        lines = UnlabelledLines(config, run, first_run, most, Known.of(dataset, samples))
        return cls(run, config, dataset, samples, excluded, planned, lines, lines.count_pages())

    @property
    def kept(self) -> Path | None:
        """The weights that were chosen, if they are not in their place yet."""
        return _kept(self.run)

    def describe(self) -> str:
        """Say what will be done and how long it may take."""
        images, lines = counted(self.pages, "unlabelled image"), counted(self.lines.most, "line")
        return (
            f"{images}: up to {lines} of them are read after a first training, and the surest learnt in a second; "
            f"it takes at most {TIMES_LONGER} times as long as without them"
        )

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
        samples = self.lines.chosen()
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


def _finish(run: RunFolder, lines: UnlabelledLines) -> UnlabelledReport:
    """Drop what nobody reads any more, and put the weights in their place, which marks the run as finished."""
    report, kept = UnlabelledReport.of(read_provenance(run)), _kept(run)
    assert report is not None, "`keep` writes it"
    assert kept is not None, "`keep` puts it there"
    for name in (FIRST, SECOND):
        drop_weights(RunFolder(run.unlabelled / name))
    lines.forget_images()
    replace_path(kept, run.path / kept.name, run.unlabelled / "former")
    remove_path(run.unlabelled / _KEPT)
    return report


def _best_step(history: History) -> int | None:
    """Return the step whose weights were kept; None if no validation chose them."""
    return max((int(row["step"]) for row in history.validation if row.get("best")), default=None)


# Without transcribed lines


def read_alone(
    config: RunConfig,
    *,
    overwrite: bool,
    on_message: Callable[[str], None] | None,
    on_stage: StageProgress | None,
) -> UnlabelledReport:
    """Make the dataset of a run that has no transcribed lines, unless that was done; see `RunConfig.learns_alone`.

    Raises DataError if there is nothing to read in the scans, or if the base reads too little of it for certain.
    """
    require_one_process("start it without torchrun")
    run, say = RunFolder(config.output), on_message or (lambda message: None)
    with explain_disk_errors(run.path), ExitStack() as stack:
        lock = RunLock(run)
        if find_checkpoint(run, lock, stack, say, overwrite=overwrite):
            report = UnlabelledReport.of(read_provenance(run))
            assert report is not None, "a training is begun when there is one"
            return report
        reader = first_reader(config)
        lines = UnlabelledLines(config, run, reader, _MOST_ALONE)
        images, most = counted(lines.count_pages(), "unlabelled image"), counted(lines.most, "line")
        say(
            f"{images}: up to {most} of them are read with {reader.name}, and the surest learnt; "
            "nothing is transcribed, so nothing will be measured"
        )
        lock.acquire()
        replaces = run.adapter.is_dir()
        if not replaces:
            write_file(run.config, config.to_yaml(complete=False))  # the base is not pinned yet
        elif run.unlabelled.is_dir():
            remove_path(run.unlabelled)
        report = lines.read(on_stage)
        if report.refused:
            if not replaces:
                clear_run(run)
            raise DataError(
                f"{reader.name} cannot learn alone from these scans: {report.refused}",
                code="unlabelled-unread",
                where=Path(config.training.unlabelled[0]),
                hint=f"transcribe fifty lines ({command('workbench', config.training.unlabelled[0])} shows the least "
                "certain first), and train on them",
            )
        if not config.dataset.is_dir():
            write_file(lines.folder / _TABLE, lines.table())
            settings = ReadingSettings.load(reader.adapter)
            prepare(lines.folder, config.dataset, unit=settings.unit, split="1/0/0", text_policy=settings.text_policy)
        lines.forget_images()
        if replaces:
            clear_run(run, but=run.unlabelled)
            write_file(run.config, config.to_yaml(complete=False))
        return replace(report, learnt=report.shown)
