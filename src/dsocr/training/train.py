"""The recipe of a training: from a configuration to a run folder with the best adapter in it."""

import json
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from transformers import PrinterCallback

from dsocr import __version__
from dsocr.config import RunConfig, load_config
from dsocr.data.checks import Finding
from dsocr.data.dataset import Dataset
from dsocr.errors import DataError, Interrupted, RunError
from dsocr.evaluation.guard import NO_GUARD, Guard, GuardReading
from dsocr.inference.decoding import Generation
from dsocr.model.adapters import CONFIG, WEIGHTS, adapter_files
from dsocr.model.encoding import Encoder
from dsocr.model.loading import choose_device, find_base, load_encoder
from dsocr.model.sheets import demand_sheets
from dsocr.runs import READING, ReadingSettings, RunFolder, to_json, write_atomically
from dsocr.samples import Split
from dsocr.sealing import damage, disk_in_sentences, write_sealed
from dsocr.training.arguments import steps_per_epoch, total_steps, training_arguments, without_workers
from dsocr.training.callbacks import Recorder, Report, close_training_log, training_log
from dsocr.training.checkpoints import best_path, remove_leftovers
from dsocr.training.collator import Collator, EncodedSamples
from dsocr.training.epochs import EpochTeller
from dsocr.training.interruption import Interruption
from dsocr.training.locking import RunLock
from dsocr.training.out_of_memory import out_of_memory_spoken
from dsocr.training.preflight import check_for_base, demand_learning, prove
from dsocr.training.resuming import Resumption, Say
from dsocr.training.setup import Setup, sample_order, set_up, within_budget
from dsocr.training.sheets import counted_in_sheets
from dsocr.training.subsets import training_samples
from dsocr.training.trainer import AdapterTrainer
from dsocr.training.validation import Validation, chosen_samples
from dsocr.training.vision import keep_features


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training made. `best_cer` is None where there was no validation split to read.

    `guard` is what the best adapter does to the guard set, None where there is none.
    """

    run: RunFolder
    steps: int
    best_step: int | None
    best_cer: float | None
    seconds: float
    excluded: int
    resumed_from: int
    guard: GuardReading | None = None


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    preflight: bool = False,
    report: Report | None = None,
    warn: Callable[[Finding], None] | None = None,
    say: Say | None = None,
) -> TrainResult:
    """Train the adapter that the configuration describes, or go on where an earlier call was interrupted.

    `report` is told after each step where the training stands, `warn` of each doubtful thing in the dataset, `say` of
    damaged checkpoints and signals, in sentences. Raises DataError where the dataset has errors, RunError where the
    run folder holds another or a finished run, is in use, or cannot be written, and where it would not learn: cheap
    looks are always taken, trials with `preflight`. Raises Interrupted where a signal ended the training; then a
    checkpoint is there to go on from.
    """
    started = time.monotonic()
    run = RunFolder(config.run)
    _refuse_run(run, overwrite=overwrite)
    with disk_in_sentences(run.path), RunLock(run) as lock:
        _refuse_run(run, overwrite=overwrite)  # another process may have finished it before it was locked
        begin = partial(_begin_run, run, lock, overwrite=overwrite)
        resumption = None if overwrite else Resumption.find(run, say or _nobody)
        return _train(config, run, resumption, begin, preflight, report, warn, say or _nobody, started)


def _train(
    config: RunConfig,
    run: RunFolder,
    resumption: Resumption | None,
    begin: Callable[..., None],
    preflight: bool,
    report: Report | None,
    warn: Callable[[Finding], None] | None,
    say: Say,
    started: float,
) -> TrainResult:
    dataset = Dataset.open(config.dataset, fold=config.fold)
    # A run without a checkpoint holds nothing to lose: settings that stopped it at once may be put right.
    begun = None if resumption is None else load_config(run.config)
    config = _pinned(config, begun)
    if begun is not None:
        _refuse_other_settings(run, config, begun)
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    if config.input.lines_per_sheet != 1:
        demand_sheets(encoder.resolution)
    _check(dataset, encoder, config, warn)
    guard = Guard.open(config.guard, config.base)
    samples, excluded = within_budget(training_samples(dataset, config), encoder, config)
    with out_of_memory_spoken(config):
        setup = set_up(config, samples)
        checks = [] if begun else prove(setup, samples, config, thorough=preflight)
    demand_learning(checks, run.path)
    begin(config, dataset, fresh=resumption is None)
    try:
        for check in checks:
            training_log(run).info("preflight: %s, %s: %s", check.verdict, check.name, check.message)
        training_log(run).info("%d training samples, %d excluded as too long", len(samples), excluded)
        if len(setup.samples) < len(samples):
            training_log(run).info("laid out on %d sheets an epoch", len(setup.samples))
        if guard is None and config.guard.lines:
            training_log(run).info(NO_GUARD)
            say(NO_GUARD)
        trainer, validation, interruption = _trainer(config, run, dataset, setup, len(samples), report, say, guard)
        with interruption.watching(), out_of_memory_spoken(config):
            steps = _run(trainer, validation, run, resumption, say)
            if interruption.signal is not None and not _is_over(steps, trainer, validation):
                raise Interrupted(interruption.signal, steps, run.resume_command)
            _finish(run, config, dataset, encoder, trainer.model, validation)
        return TrainResult(
            run=run,
            steps=steps,
            best_step=validation.best_step if validation else None,
            best_cer=validation.best_cer if validation else None,
            seconds=time.monotonic() - started,
            excluded=excluded,
            resumed_from=0 if resumption is None else resumption.step,
            guard=validation.guard_of_best if validation else None,
        )
    finally:
        close_training_log(run)


def is_trained(config: RunConfig) -> bool:
    """True where the run folder holds this very training, finished; it may as well be begun, or not there.

    Raises RunError where it holds one with other settings, or of a dataset that has changed since.
    """
    run = RunFolder(config.run)
    if not run.config.is_file():
        return False
    begun = load_config(run.config)
    _refuse_other_settings(run, _pinned(config, begun), begun)
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


def _run(
    trainer: AdapterTrainer, validation: Validation | None, run: RunFolder, resumption: Resumption | None, say: Say
) -> int:
    """Train from the start or from where it goes on, to the end or to a signal; the steps made in all."""
    if resumption is None:
        trainer.train()
        return int(trainer.state.global_step)
    training_log(run).info("resuming from %s", resumption.checkpoint.name)
    resumption.restore(validation, run, say)
    if resumption.is_at_the_end(validation):
        # The Trainer would make further steps here, where the last is not also the last of an epoch.
        resumption.load(trainer.model, validation)
        return resumption.step
    trainer.train(resume_from_checkpoint=str(resumption.checkpoint))
    return int(trainer.state.global_step)


def _is_over(steps: int, trainer: AdapterTrainer, validation: Validation | None) -> bool:
    """True where training had come to its own end when it stopped."""
    return steps >= trainer.args.max_steps or (validation is not None and validation.out_of_patience)


def _nobody(sentence: str) -> None:
    """Told what nobody asked to hear."""


def _refuse_run(run: RunFolder, *, overwrite: bool) -> None:
    """An error where the run folder is of something else, or of a finished run; writes nothing."""
    others = {path.name for path in run.path.iterdir()} - _beside(run) if run.path.is_dir() else set()
    if others and not run.config.is_file():
        raise RunError("is not empty and not a run folder", where=run.path, hint="give `run:` another folder")
    if run.adapter.is_dir() and not overwrite:
        raise RunError(
            "holds a finished run", where=run.path, hint="name another folder with --set run=..., or give --overwrite"
        )


def _pinned(config: RunConfig, begun: RunConfig | None) -> RunConfig:
    """The configuration with the commit of a Hub base written in, which a resumed run and whoever reads with it get."""
    revision = config.base_revision
    if revision is None and begun is not None and begun.base == config.base:
        revision = begun.base_revision
    _, commit = find_base(config.base, revision)
    return config.model_copy(update={"base_revision": commit})


def _refuse_other_settings(run: RunFolder, config: RunConfig, begun: RunConfig) -> None:
    if different := _differences(config, begun):
        raise RunError(
            f"holds {'a' if run.adapter.is_dir() else 'an unfinished'} run with other settings: {', '.join(different)}",
            where=run.path,
            hint=f"resume it with `{run.resume_command}`, or give --overwrite",
        )


def _begin_run(
    run: RunFolder, lock: RunLock, config: RunConfig, dataset: Dataset, *, fresh: bool, overwrite: bool
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
        write_atomically(run.provenance, to_json(_provenance(config, dataset)))


def _beside(run: RunFolder) -> set[str]:
    """Names in a run folder that are none of the run's own: its lock, and trainings on fewer samples."""
    return {*RunLock.names(run), run.forecast.name}


def _clear(run: RunFolder) -> None:
    """Remove all that a run left, its configuration last: without it the folder would be taken for something else."""
    if run.checkpoints.is_dir():  # at once, so that what is left half removed is not gone on from
        run.checkpoints.rename(run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    others = [path for path in run.path.iterdir() if path.name not in _beside(run) and path != run.config]
    for path in [*others, run.config]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _differences(config: RunConfig, other: RunConfig) -> list[str]:
    ours, theirs = config.model_dump(), other.model_dump()
    ours.pop("run"), theirs.pop("run")
    # They change what is held in memory, not what is learnt: a run whose memory ended goes on with less of it.
    for section, name in (("training", "samples_per_forward"), ("training", "gradient_checkpointing")):
        ours[section].pop(name), theirs[section].pop(name)
    return [f"{key}" for key in ours if ours[key] != theirs[key]]


def _check(dataset: Dataset, encoder: Encoder, config: RunConfig, warn: Callable[[Finding], None] | None) -> None:
    """Refuse a dataset with errors; what is merely doubtful is passed on."""
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, encoder, max_text_tokens=limit)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        shown = "".join(f"\n  {finding.where}: {finding.message} ({finding.count})" for finding in errors)
        raise DataError(
            f"the dataset has errors{shown}", where=dataset.folder, hint=f"see `dsocr check {dataset.folder}`"
        )
    if warn is not None:
        for finding in findings:
            warn(finding)


def _trainer(
    config: RunConfig,
    run: RunFolder,
    dataset: Dataset,
    setup: Setup,
    lines: int,
    report: Report | None,
    say: Say,
    guard: Guard | None,
) -> tuple[AdapterTrainer, Validation | None, Interruption]:
    counted = counted_in_sheets(config, lines, len(setup.samples))
    a_step = round(counted.training.samples_per_step * lines / len(setup.samples))
    recorder = Recorder(run, samples_per_step=a_step, report=report)
    callbacks: list[Any] = [recorder, EpochTeller(setup.samples)]
    validation = _validation(config, run, dataset, setup.encoder, recorder, guard)
    if validation is not None:
        callbacks.insert(0, validation)  # first, so that what it reads after a step is told with that step
    interruption = Interruption(say)
    callbacks.append(interruption)
    if isinstance(setup.samples, EncodedSamples) and keep_features(
        config,
        setup.model,
        setup.samples,
        validation.encoded if validation else None,
        dtype=setup.dtype,
        epochs=total_steps(config, len(setup.samples)) / steps_per_epoch(config, len(setup.samples)),
        tell=training_log(run).info,
    ):
        counted = without_workers(counted)  # reading features is quicker than handing them over
    trainer = AdapterTrainer(
        model=setup.model,
        args=training_arguments(counted, samples=len(setup.samples), device=setup.device, dtype=setup.dtype),
        data_collator=Collator(setup.encoder.pad_id),
        train_dataset=setup.samples,
        optimizers=(setup.optimizer, None),
        callbacks=callbacks,
        folder=run.checkpoints,
        keep=config.checkpoints.keep,
        order=sample_order(counted, setup.samples),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, validation, interruption


def _validation(
    config: RunConfig, run: RunFolder, dataset: Dataset, encoder: Encoder, recorder: Recorder, guard: Guard | None
) -> Validation | None:
    samples = chosen_samples(dataset.samples(Split.VALIDATION), config.validation.samples, config.seed)
    if not samples:
        training_log(run).warning("there is no validation split: the last weights are kept, not the best")
        return None
    return Validation(
        samples,
        encoder,
        Generation(**config.generation.model_dump()),
        lines_per_sheet=config.input.lines_per_sheet,
        every_steps=config.validation.every_steps,
        patience=config.validation.patience,
        folder=run.checkpoints,
        report=recorder.record_validation,
        guard=guard,
    )


def _finish(
    run: RunFolder, config: RunConfig, dataset: Dataset, encoder: Encoder, model: Any, validation: Validation | None
) -> None:
    """Lay the best adapter, with the settings to read with, into the run folder: its presence says the run is whole."""
    reading = ReadingSettings(
        base=config.base,
        base_revision=config.base_revision,
        prompt=encoder.prompt,
        resolution=encoder.resolution.name,
        text_policy=dataset.card.policy(),
        generation=config.generation.model_dump(),
        lines_per_sheet=config.input.lines_per_sheet,
        unit=dataset.card.unit,
    )
    files = _best_files(run, model, validation)
    write_sealed(run.adapter, [*files, (READING, reading.to_json().encode())], unsealed={READING})


def _best_files(run: RunFolder, model: Any, validation: Validation | None) -> list[tuple[str, bytes]]:
    """The files of the best adapter: the one that was kept, or the last weights where nothing was read."""
    if validation is None or not validation.best_step:
        return list(adapter_files(model))
    best = best_path(run.checkpoints, validation.best_step)
    if fault := damage(best):
        hint = f"with `{run.resume_command}` the weights of the last checkpoint take its place"
        raise RunError(f"the best adapter is damaged: {fault}", where=best, hint=hint)
    return [(name, (best / name).read_bytes()) for name in (CONFIG, WEIGHTS)]


def _provenance(config: RunConfig, dataset: Dataset) -> dict[str, Any]:
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
    }
