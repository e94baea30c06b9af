"""The recipe of a training: from a configuration to a run folder with the best adapter in it."""

import json
import logging
import platform
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from transformers import PrinterCallback

from dsocr import __version__
from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import Finding, check_for_base
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import DataError, Interrupted, RunError, typed
from dsocr.evaluation.evaluate import NO_GUARD_SET, GuardResult, GuardSet
from dsocr.inference.confidence import Calibration
from dsocr.inference.generation import Generation
from dsocr.io.atomic import explain_disk_errors, find_damage, write_folder
from dsocr.models.adapters import CONFIG, WEIGHTS, adapter_files
from dsocr.models.checkpoint import find_base
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.family import load_processor
from dsocr.models.loading import choose_device
from dsocr.runs import CALIBRATION, READING, ReadingSettings, RunFolder, cut_back, to_json, write_atomically
from dsocr.training.callbacks import Recorder, Report, close_training_log, silent_log, training_log
from dsocr.training.checkpoint import (
    best_path,
    latest_checkpoint,
    load_trainer_state,
    load_weights,
    remove_leftovers,
    step_of,
)
from dsocr.training.distributed import DrawnByStep, Ranks, joined
from dsocr.training.preflight import demand_learning, prove
from dsocr.training.preview import within_budget
from dsocr.training.requirements import RunLock, beside, refuse_other_settings, refuse_run
from dsocr.training.setup import (
    Collator,
    Setup,
    Stage,
    WithFillers,
    keep_features,
    sample_order,
    set_up,
    shared_by_processes,
    steps_per_epoch,
    total_steps,
    training_arguments,
    without_workers,
)
from dsocr.training.trainer import AdapterTrainer, EpochTeller, Interruption, out_of_memory_spoken
from dsocr.training.validation import Validation, ValidationReading, chosen_samples


def is_trained(config: RunConfig) -> bool:
    """True where the run folder holds this very training, finished; it may as well be begun, or not there.

    Raises RunError where it holds one with other settings, or of a dataset that has changed since.
    """
    run = RunFolder(config.output)
    if not run.config.is_file():
        return False
    begun = load_run_config(run.config)
    refuse_other_settings(run, pinned(config, begun), begun)
    if not run.provenance.is_file():  # killed before it began
        return False
    dataset = Dataset.open(config.dataset, fold=config.fold)
    try:
        trained_on = json.loads(run.provenance.read_text(encoding="utf-8"))["dataset"]
    except (OSError, ValueError, KeyError, TypeError):
        trained_on = None
    if trained_on != {split.value: card.sha256 for split, card in dataset.card.splits.items()}:
        raise RunError(f"was not trained on {config.dataset} as it is", where=run.path, hint="give --overwrite")
    return run.adapter.is_dir()


def pinned(config: RunConfig, begun: RunConfig | None) -> RunConfig:
    """The configuration with the commit of a Hub base written in, which a resumed run and whoever reads with it get."""
    revision = config.base_revision
    if revision is None and begun is not None and begun.base == config.base:
        revision = begun.base_revision
    _, commit = find_base(config.base, revision)
    return config.model_copy(update={"base_revision": commit})


def begin_run(
    run: RunFolder,
    lock: RunLock,
    config: RunConfig,
    dataset: Dataset,
    *,
    fresh: bool,
    overwrite: bool,
    processes: int = 1,
) -> None:
    """Make the run folder, or take it up again; what it is made with is written once."""
    lock.take()
    if overwrite:
        _clear(run)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomically(run.config, config.to_yaml())
    if fresh:
        remove_leftovers(run.checkpoints)
        run.metrics.unlink(missing_ok=True)
        write_atomically(run.provenance, to_json(_provenance(config, dataset, processes)))


def _clear(run: RunFolder) -> None:
    """Remove all that a run left, its configuration last: without it the folder would be taken for something else."""
    if run.checkpoints.is_dir():  # at once, so that what is left half removed is not gone on from
        run.checkpoints.rename(run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    others = [path for path in run.path.iterdir() if path.name not in beside(run) and path != run.config]
    for path in [*others, run.config]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _provenance(config: RunConfig, dataset: Dataset, processes: int) -> dict[str, Any]:
    """What the run is made with."""
    packages = ("torch", "transformers", "peft", "accelerate", "Pillow", "numpy")
    return {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dsocr_version": __version__,
        "base": config.base,
        "base_revision": config.base_revision,
        "dataset": {split.value: card.sha256 for split, card in dataset.card.splits.items()},
        "dataset_source": dataset.card.source,
        "fold": dataset.fold,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in packages},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": str(choose_device()),
        "processes": processes,
    }


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Resumption:
    """A checkpoint that is whole, and the Trainer's own account of where it stood then."""

    checkpoint: Path
    state: dict[str, Any]

    @classmethod
    def find(cls, run: RunFolder, say: Say) -> "Resumption | None":
        """The newest checkpoint that is whole; None where there is none yet. RunError where all are damaged."""
        checkpoint = latest_checkpoint(run.checkpoints, say)
        return None if checkpoint is None else cls.at(checkpoint)

    @classmethod
    def at(cls, checkpoint: Path) -> "Resumption":
        """A checkpoint that is known to be whole."""
        return cls(checkpoint, load_trainer_state(checkpoint))

    @property
    def step(self) -> int:
        """Optimizer steps that were made."""
        return step_of(self.checkpoint)

    def clean(self, run: RunFolder) -> None:
        """Bring the run folder back to where it stood at the checkpoint."""
        remove_leftovers(run.checkpoints)
        cut_back(run.metrics, self.step)

    def restore(self, validation: Validation | None, run: RunFolder, say: Say) -> None:
        """Bring the validation back to where it stood at the checkpoint."""
        known = self.state["stateful_callbacks"].get(Validation.__name__)
        if validation is None or known is None:
            return
        validation.restore(known)
        if validation.best_step and (fault := find_damage(best := best_path(run.checkpoints, validation.best_step))):
            say(f"the best adapter, {best.name}, is damaged ({fault}): the next reading counts as the best so far")
            validation.forget_best()

    def is_at_the_end(self, validation: Validation | None) -> bool:
        """True where all steps were made, or patience had run out: nothing is left to train."""
        if validation is not None and validation.out_of_patience:
            return True
        return bool(self.step >= self.state["max_steps"])

    def load(self, model: Any, validation: Validation | None) -> None:
        """The weights of a training that was at its end; a best adapter that was lost is read anew from them."""
        load_weights(self.checkpoint, model)
        if validation is not None and not validation.best_step:
            validation.read(model, self.step)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training made. `best_cer` is None where there was no validation split to read.

    `guard` is what the best adapter does to the guard set, None where there is none. `calibrated_on` counts the lines
    of the validation split that confidences were fitted on.
    """

    run: RunFolder
    steps: int
    best_step: int | None
    best_cer: float | None
    seconds: float
    excluded: int
    resumed_from: int
    guard: GuardResult | None = None
    calibrated_on: int = 0


@dataclass(frozen=True, slots=True)
class _Told:
    """Who is told what of a training."""

    report: Report | None = None
    warn: Callable[[Finding], None] | None = None
    say: Say = lambda sentence: None
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """What is settled before anything is opened: where it is trained, by which process, who is told what.

    `resumption` is what it goes on from, None at the start; `begin` makes the run folder, or takes it up again.
    """

    run: RunFolder
    ranks: Ranks
    told: _Told
    resumption: Resumption | None
    begin: Callable[[RunConfig, Dataset], None]

    @property
    def log(self) -> logging.Logger:
        """The run's log; that of a process that is not the first goes nowhere."""
        return training_log(self.run) if self.ranks.first else silent_log()


@dataclass(frozen=True, slots=True)
class _Material:
    """What is trained with: the configuration, its base pinned, and what it names."""

    config: RunConfig
    dataset: Dataset
    encoder: Processor
    guard: GuardSet | None


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    preflight: bool = False,
    report: Report | None = None,
    warn: Callable[[Finding], None] | None = None,
    say: Say | None = None,
    stage: Stage | None = None,
) -> TrainResult:
    """Train the adapter that the configuration describes, or go on where an earlier call was interrupted.

    `report` is told after each step where the training stands, `warn` of each doubtful thing in the dataset, `say` of
    damaged checkpoints and signals, in sentences, `stage` of long work before the first step. Raises DataError where
    the dataset has errors, RunError where the run folder holds another or a finished run, is in use, or cannot be
    written, and where it would not learn: cheap looks are always taken, trials with `preflight`. Raises Interrupted
    where a signal ended the training; then a checkpoint is there to go on from.

    Called in several processes that a launcher started, they train together: the first writes and tells.
    """
    started = time.monotonic()
    run = RunFolder(config.output)
    with joined() as ranks, explain_disk_errors(run.path), ExitStack() as held:
        told = _Told(report, warn, say or _Told().say, stage) if ranks.first else _Told()
        lock = RunLock(run)
        checkpoint = ranks.from_first(lambda: _taken_up(run, held, lock, told.say, overwrite=overwrite))
        resumption = None if checkpoint is None else Resumption.at(Path(checkpoint))
        begin = partial(begin_run, run, lock, fresh=resumption is None, overwrite=overwrite, processes=ranks.count)
        return _train(config, _Job(run, ranks, told, resumption, begin), preflight, started)


def _taken_up(run: RunFolder, held: ExitStack, lock: RunLock, say: Say, *, overwrite: bool) -> str | None:
    """Lock the run folder, where it is there; the checkpoint to go on from."""
    refuse_run(run, overwrite=overwrite)
    held.enter_context(lock)
    refuse_run(run, overwrite=overwrite)  # another process may have finished it before it was locked
    resumption = None if overwrite else Resumption.find(run, say)
    return None if resumption is None else str(resumption.checkpoint)


def _train(config: RunConfig, job: _Job, preflight: bool, started: float) -> TrainResult:
    run, ranks, resumption = job.run, job.ranks, job.resumption
    # A run without a checkpoint holds nothing to lose: settings that stopped it at once may be put right.
    begun = None if resumption is None else load_run_config(run.config)
    made_of = ranks.in_turn(lambda: _opened(config, begun, job))
    config = made_of.config
    samples, excluded = ranks.in_turn(
        lambda: within_budget(training_samples(made_of.dataset, config), made_of.encoder, config)
    )
    with out_of_memory_spoken(config):
        setup = ranks.in_turn(lambda: set_up(config, samples))
    try:
        thorough = None if begun else preflight
        ranks.from_first(lambda: _prove_and_begin(job, made_of, setup, samples, excluded, thorough))
        if made_of.guard is None and config.guard.lines:
            job.log.info(NO_GUARD_SET)
            job.told.say(NO_GUARD_SET)
        trainer, validation, interruption = _trainer(job, made_of, setup)
        with interruption.watching(), out_of_memory_spoken(config):
            steps = _run(job, trainer, validation)
            if interruption.signal is not None and not _is_over(steps, trainer, validation):
                raise Interrupted(interruption.signal, steps, run.resume_command)
            if ranks.first:
                _finish(run, made_of, trainer.model, validation)
        return TrainResult(
            run=run,
            steps=steps,
            best_step=validation.best_step if validation else None,
            best_cer=validation.best_cer if validation else None,
            seconds=time.monotonic() - started,
            excluded=excluded,
            resumed_from=0 if resumption is None else resumption.step,
            guard=validation.guard_of_best if validation else None,
            calibrated_on=Calibration.load(run.adapter).lines if ranks.first else 0,
        )
    finally:
        if ranks.first:
            close_training_log(run)


def _opened(config: RunConfig, begun: RunConfig | None, job: _Job) -> _Material:
    """What the configuration names; the first process checks the dataset."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    config = pinned(config, begun)
    if begun is not None:
        refuse_other_settings(job.run, config, begun)
    encoder = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    shared_by_processes(config, job.ranks.count)  # refuses what cannot be shared
    if job.ranks.first:
        _check(dataset, encoder, config, job.told.warn)
    return _Material(config, dataset, encoder, GuardSet.load(config.guard, config.base))


def _prove_and_begin(
    job: _Job, made_of: _Material, setup: Setup, samples: list[Sample], excluded: int, thorough: bool | None
) -> None:
    """Make the run folder where training would learn; a run that goes on, `thorough` being None, has been proved."""
    config, stage = made_of.config, job.told.stage
    with out_of_memory_spoken(config):
        progress = partial(stage, "learning five samples by heart", "steps") if stage else None
        checks = [] if thorough is None else prove(setup, samples, config, thorough=thorough, progress=progress)
    demand_learning(checks, job.run.path)
    job.begin(config, made_of.dataset)
    for check in checks:
        job.log.info("preflight: %s, %s: %s", check.verdict, check.name, check.message)
    job.log.info("%d training samples, %d excluded as too long", len(samples), excluded)


def _run(job: _Job, trainer: AdapterTrainer, validation: Validation | None) -> int:
    """Train from the start or from where it goes on, to the end or to a signal; the steps made in all."""
    resumption = job.resumption
    if resumption is None:
        trainer.train()
        return int(trainer.state.global_step)
    job.log.info("resuming from %s", resumption.checkpoint.name)
    job.ranks.from_first(lambda: resumption.clean(job.run))
    resumption.restore(validation, job.run, job.told.say)
    if resumption.is_at_the_end(validation):
        # The Trainer would make further steps here, where the last is not also the last of an epoch.
        resumption.load(trainer.model, validation)
        return resumption.step
    trainer.train(resume_from_checkpoint=str(resumption.checkpoint))
    return int(trainer.state.global_step)


def _is_over(steps: int, trainer: AdapterTrainer, validation: Validation | None) -> bool:
    """True where training had come to its own end when it stopped."""
    return steps >= trainer.args.max_steps or (validation is not None and validation.out_of_patience)


def _check(dataset: Dataset, encoder: Processor, config: RunConfig, warn: Callable[[Finding], None] | None) -> None:
    """Refuse a dataset with errors; what is merely doubtful is passed on."""
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, encoder, max_text_tokens=limit)
    errors = findings.of("error")
    if errors:
        shown = "".join(f"\n  {finding.where}: {finding.message} ({finding.count})" for finding in errors)
        raise DataError(
            f"the dataset has errors{shown}", where=dataset.folder, hint=f"see `dsocr check {typed(dataset.folder)}`"
        )
    if warn is not None:
        for finding in findings:
            warn(finding)


def _trainer(job: _Job, made_of: _Material, setup: Setup) -> tuple[AdapterTrainer, Validation | None, Interruption]:
    config, run, ranks, told = made_of.config, job.run, job.ranks, job.told
    shared = shared_by_processes(config, ranks.count)
    callbacks: list[Any] = [EpochTeller(setup.samples)]
    recorder = None
    if ranks.first:
        recorder = Recorder(run, batch_size=config.training.batch_size, report=told.report)
        callbacks.insert(0, recorder)
    validation = _validation(job, made_of, setup.encoder, recorder)
    if validation is not None:
        callbacks.insert(0, validation)  # first, so that what it reads after a step is told with that step
    if ranks.count > 1:
        callbacks.append(DrawnByStep(config.seed, ranks))
    interruption = Interruption(told.say, ranks)
    callbacks.append(interruption)
    if keep_features(
        config,
        setup.model,
        setup.samples,
        validation.encoded if validation else None,
        dtype=setup.dtype,
        epochs=total_steps(config, len(setup.samples)) / steps_per_epoch(config, len(setup.samples)),
        tell=job.log.info,
        stage=told.stage,
        ranks=ranks,
    ):
        shared = without_workers(shared)  # reading features is quicker than handing them over
    trainer = AdapterTrainer(
        model=setup.model,
        args=training_arguments(
            shared, samples=len(setup.samples), device=setup.device, dtype=setup.dtype, processes=ranks.count
        ),
        data_collator=Collator(setup.encoder.pad_id),
        train_dataset=setup.samples if ranks.count == 1 else WithFillers(setup.samples),
        optimizers=(setup.optimizer, None),
        callbacks=callbacks,
        folder=run.checkpoints,
        keep=config.checkpoints.keep,
        order=sample_order(shared, setup.samples, ranks.count),
        ranks=ranks,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, validation, interruption


def _validation(job: _Job, made_of: _Material, encoder: Processor, recorder: Recorder | None) -> Validation | None:
    config, dataset = made_of.config, made_of.dataset
    samples = chosen_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
    if not samples:
        job.log.warning("there is no validation split: the last weights are kept, not the best")
        return None
    return Validation(
        samples,
        encoder,
        Generation(**config.generation.model_dump()),
        every_steps=config.validation.every_steps,
        patience=config.validation.patience,
        folder=job.run.checkpoints,
        report=recorder.record_validation if recorder else _unheard,
        guard=made_of.guard,
        ranks=job.ranks,
        text_policy=dataset.card.policy(),
    )


def _unheard(reading: ValidationReading) -> None:
    """A reading that the first process reports."""


def _finish(run: RunFolder, made_of: _Material, model: Any, validation: Validation | None) -> None:
    """Lay the best adapter, with the settings to read with, into the run folder: its presence says the run is whole."""
    config, encoder, card = made_of.config, made_of.encoder, made_of.dataset.card
    reading = ReadingSettings(
        base=config.base,
        base_revision=config.base_revision,
        prompt=encoder.prompt,
        resolution=encoder.resolution.name,
        text_policy=card.policy(),
        generation=config.generation.model_dump(),
        unit=card.unit,
    )
    files = _best_files(run, model, validation)
    write_folder(run.adapter, [*files, (READING, reading.to_json().encode())], unhashed={READING, CALIBRATION})


def _best_files(run: RunFolder, model: Any, validation: Validation | None) -> list[tuple[str, bytes]]:
    """The files of the best adapter, and its calibration: those kept, or the last weights where nothing was read."""
    if validation is None or not validation.best_step:
        return list(adapter_files(model))
    best = best_path(run.checkpoints, validation.best_step)
    if fault := find_damage(best):
        hint = f"with `{run.resume_command}` the weights of the last checkpoint take its place"
        raise RunError(f"the best adapter is damaged: {fault}", where=best, hint=hint)
    # A best adapter from before confidences were fitted with it has no calibration.
    kept = [name for name in (CONFIG, WEIGHTS, CALIBRATION) if (best / name).is_file()]
    return [(name, (best / name).read_bytes()) for name in kept]
