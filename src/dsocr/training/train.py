"""Train an adapter: from a configuration to a run folder with the best adapter in it."""

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
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors.torch import load_file

from dsocr import __version__
from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import Finding, check_for_base
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Split
from dsocr.errors import DataError, Interrupted, RunError, typed
from dsocr.evaluation.evaluate import NO_GUARD_SET, GuardResult, GuardSet
from dsocr.inference.confidence import Calibration
from dsocr.inference.generation import Generation
from dsocr.io.atomic import explain_disk_errors, find_damage, write_folder
from dsocr.models.adapters import CONFIG, WEIGHTS, adapter_files, load_tensors
from dsocr.models.base_folder import find_base
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.family import load_processor
from dsocr.models.loading import choose_device
from dsocr.runs import CALIBRATION, READING, ReadingSettings, RunFolder, cut_back, to_json, write_atomically
from dsocr.training.callbacks import (
    Callback,
    MetricsWriter,
    SignalHandler,
    TrainingProgress,
    close_run_logger,
    make_trackers,
    null_logger,
    run_logger,
)
from dsocr.training.checkpoint import (
    best_path,
    checkpoint_path,
    latest_checkpoint,
    load_checkpoint,
    read_state,
    remove_unfinished,
    rotate_checkpoints,
    save_checkpoint,
    step_of,
)
from dsocr.training.distributed import Distributed, connect, exclude_frozen_from_ddp
from dsocr.training.plan import explain_out_of_memory
from dsocr.training.preflight import check_setup, require_learning
from dsocr.training.preview import within_budget
from dsocr.training.requirements import RunLock, kept_names, require_same_settings, require_trainable
from dsocr.training.setup import Setup, StageProgress, cache_features, fit_to_world_size, make_trainer, set_up
from dsocr.training.trainer import Trainer
from dsocr.training.validation import Validator, draw_samples


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training made.

    `best_step` and `best_cer` are None without a validation split, `guard` without a guard set. `calibrated_on` is the
    number of validation lines on which confidences were calibrated.
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
class _Listeners:
    """Who hears what of a training; ranks other than 0 are silent."""

    on_progress: Callable[[TrainingProgress], None] | None = None
    on_warning: Callable[[Finding], None] | None = None
    on_message: Callable[[str], None] = lambda message: None
    on_stage: StageProgress | None = None


@dataclass(frozen=True, slots=True)
class _Sources:
    """What the configuration names, opened; the base is pinned to a commit in `config`."""

    config: RunConfig
    dataset: Dataset
    processor: Processor
    guard: GuardSet | None


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    preflight: bool = False,
    on_progress: Callable[[TrainingProgress], None] | None = None,
    on_warning: Callable[[Finding], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    on_stage: StageProgress | None = None,
) -> TrainResult:
    """Train as the configuration says, or resume where an earlier call was interrupted.

    `on_progress` is called after each step, `on_warning` for each doubtful thing in the dataset, `on_message` about
    damaged checkpoints and signals, `on_stage` during long work before the first step. With `preflight` a few samples
    are overfitted first; cheap checks always run.

    Raises DataError if the dataset has errors; RunError if the run folder holds another or a finished run, is in use or
    not writable, if a check refuses, or if loss or weights are not finite. Raises Interrupted after a signal; there is
    then a checkpoint to resume from. In processes that a launcher started, they train together; rank 0 writes.
    """
    started = time.monotonic()
    run = RunFolder(config.output)
    with connect() as dist, explain_disk_errors(run.path), ExitStack() as stack:
        say = on_message or _Listeners().on_message
        listeners = _Listeners(on_progress, on_warning, say, on_stage) if dist.is_main else _Listeners()
        lock = RunLock(run)
        found = dist.broadcast(lambda: _lock_and_find_checkpoint(run, lock, stack, listeners, overwrite=overwrite))
        checkpoint = None if found is None else Path(found)

        # Setup. Settings of a run without a checkpoint may still be changed.
        recorded = None if checkpoint is None else load_run_config(run.config)
        sources = dist.main_first(lambda: _open_sources(run, config, recorded, dist, listeners))
        config, dataset, processor = sources.config, sources.dataset, sources.processor
        samples, excluded = dist.main_first(lambda: within_budget(training_samples(dataset, config), processor, config))
        with explain_out_of_memory(config):
            setup = dist.main_first(lambda: set_up(config, samples))

        # Checks, then the run folder. A resumed run has been checked.
        def begin() -> None:
            thorough = None if checkpoint else preflight
            _check_and_begin(run, lock, sources, setup, dist, listeners, thorough=thorough, overwrite=overwrite)

        dist.broadcast(begin)
        stack.callback(close_run_logger, run)
        log = run_logger(run) if dist.is_main else null_logger()
        log.info("%d training samples, %d excluded as too long", len(samples), excluded)

        # Training
        validator = _make_validator(run, sources, dist, log)
        signals = SignalHandler(listeners.on_message, dist)
        trainer = _make_trainer(run, sources, setup, validator, signals, dist, log, listeners)
        with signals.installed(), explain_out_of_memory(config):
            fit(trainer, run, checkpoint, validator, dist, listeners.on_message)
            is_over = trainer.is_finished or (validator is not None and validator.is_out_of_patience)
            if signals.signal is not None and not is_over:
                raise Interrupted(signals.signal, trainer.state.step, run.resume_command)
            if dist.is_main:
                finish_run(run, sources, trainer.module, validator)
        return TrainResult(
            run=run,
            steps=trainer.state.step,
            best_step=validator.state.best_step if validator else None,
            best_cer=validator.state.best_cer if validator else None,
            seconds=time.monotonic() - started,
            excluded=excluded,
            resumed_from=0 if checkpoint is None else step_of(checkpoint),
            guard=validator.guard_of_best if validator else None,
            calibrated_on=Calibration.load(run.adapter).lines if dist.is_main else 0,
        )


def fit(
    trainer: Trainer,
    run: RunFolder,
    checkpoint: Path | None,
    validator: Validator | None,
    dist: Distributed,
    on_message: Callable[[str], None],
) -> None:
    """Train from the start or from a checkpoint, to the end or to a signal."""
    if checkpoint is None:
        trainer.fit()
        return
    dist.broadcast(lambda: _rewind(run, checkpoint, on_message))
    state = load_checkpoint(checkpoint)
    load_tensors(trainer.module, load_file(checkpoint / WEIGHTS), where=checkpoint / WEIGHTS)
    if validator is not None and (known := state["callbacks"].get("Validator")) and known["best_step"]:
        best = best_path(run.checkpoints, known["best_step"])
        if fault := dist.broadcast(lambda: find_damage(best)):
            on_message(f"the best adapter, {best.name}, is damaged ({fault}); the next validation counts as the best")
            known |= {"best_cer": None, "best_runaway": 0, "best_step": 0}
    trainer.load_state_dict(state)
    if not trainer.is_finished and not (validator and validator.is_out_of_patience):
        trainer.fit(resume=state)
    elif validator is not None and not validator.state.best_step:  # the best adapter was lost
        validator.validate(trainer.module, trainer.state.step)


def is_trained(config: RunConfig) -> bool:
    """True if the run folder holds this training, finished; False if it was not begun or not finished.

    Raises RunError if the folder holds a run with other settings, or on a dataset that has changed since.
    """
    run = RunFolder(config.output)
    if not run.config.is_file():
        return False
    recorded = load_run_config(run.config)
    require_same_settings(run, pin_base(config, recorded), recorded)
    if not run.provenance.is_file():  # killed before it began
        return False
    dataset = Dataset.open(config.dataset, fold=config.fold)
    try:
        trained_on = json.loads(run.provenance.read_text(encoding="utf-8"))["dataset"]
    except (OSError, ValueError, KeyError, TypeError):
        trained_on = None
    if trained_on != {split.value: card.sha256 for split, card in dataset.card.splits.items()}:
        message = f"was trained on an earlier state of {config.dataset}"
        raise RunError(message, code="other-dataset", where=run.path, hint="give --overwrite")
    return run.adapter.is_dir()


def pin_base(config: RunConfig, recorded: RunConfig | None) -> RunConfig:
    """Set the commit of a base from the Hub, which a resumed run and its readers then use."""
    revision = config.base_revision
    if revision is None and recorded is not None and recorded.base == config.base:
        revision = recorded.base_revision
    _, commit = find_base(config.base, revision)
    return config.model_copy(update={"base_revision": commit})


def start_run(
    run: RunFolder,
    lock: RunLock,
    config: RunConfig,
    dataset: Dataset,
    *,
    is_new: bool,
    overwrite: bool,
    world_size: int = 1,
) -> None:
    """Make the run folder, or prepare it for resuming; configuration and provenance are written once."""
    lock.acquire()
    if overwrite:
        _clear(run)
    run.checkpoints.mkdir(parents=True, exist_ok=True)
    write_atomically(run.config, config.to_yaml())
    if is_new:
        remove_unfinished(run.checkpoints)
        run.metrics.unlink(missing_ok=True)
        write_atomically(run.provenance, to_json(_provenance(config, dataset, world_size)))


def finish_run(run: RunFolder, sources: _Sources, model: Any, validator: Validator | None) -> None:
    """Write the best adapter and the settings to read with into `adapter/`; its presence marks the run as finished."""
    config, processor, card = sources.config, sources.processor, sources.dataset.card
    reading = ReadingSettings(
        base=config.base,
        base_revision=config.base_revision,
        prompt=processor.prompt,
        resolution=processor.resolution.name,
        text_policy=card.policy(),
        generation=config.generation.model_dump(),
        unit=card.unit,
    )
    files = _best_files(run, model, validator)
    write_folder(run.adapter, [*files, (READING, reading.to_json().encode())], unhashed={READING, CALIBRATION})


def _lock_and_find_checkpoint(
    run: RunFolder, lock: RunLock, stack: ExitStack, listeners: _Listeners, *, overwrite: bool
) -> str | None:
    """Lock the run folder, if there is one, and return the checkpoint to resume from."""
    require_trainable(run, overwrite=overwrite)
    stack.enter_context(lock)
    require_trainable(run, overwrite=overwrite)  # another process may have finished it meanwhile
    checkpoint = None if overwrite else latest_checkpoint(run.checkpoints, listeners.on_message)
    if checkpoint is None:
        return None
    read_state(checkpoint)  # refuses the checkpoints of other releases
    return str(checkpoint)


def _open_sources(
    run: RunFolder, config: RunConfig, recorded: RunConfig | None, dist: Distributed, listeners: _Listeners
) -> _Sources:
    """Open what the configuration names; rank 0 checks the dataset."""
    dataset = Dataset.open(config.dataset, fold=config.fold)
    config = pin_base(config, recorded)
    if recorded is not None:
        require_same_settings(run, config, recorded)
    processor = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    fit_to_world_size(config, dist.world_size)  # refuses batches that cannot be shared
    if dist.is_main:
        _check_dataset(dataset, processor, config, listeners.on_warning)
    return _Sources(config, dataset, processor, GuardSet.load(config.guard, config.base))


def _check_dataset(
    dataset: Dataset, processor: Processor, config: RunConfig, on_warning: Callable[[Finding], None] | None
) -> None:
    limit = config.training.max_text_tokens if config.training.long_text == "error" else None
    findings = check_for_base(dataset, processor, max_text_tokens=limit)
    if errors := findings.of("error"):
        shown = "".join(f"\n  {finding.where}: {finding.message} ({finding.count})" for finding in errors)
        hint = f"see `dsocr check {typed(dataset.folder)}`"
        raise DataError(f"the dataset has errors{shown}", code="dataset-has-errors", where=dataset.folder, hint=hint)
    if on_warning is not None:
        for finding in findings:
            on_warning(finding)


def _check_and_begin(
    run: RunFolder,
    lock: RunLock,
    sources: _Sources,
    setup: Setup,
    dist: Distributed,
    listeners: _Listeners,
    *,
    thorough: bool | None,
    overwrite: bool,
) -> None:
    """Make the run folder unless a check refuses; a run that resumes, with `thorough` None, is not checked again."""
    config, on_stage = sources.config, listeners.on_stage
    checks = []
    if thorough is not None:
        with explain_out_of_memory(config):
            progress = None if on_stage is None else lambda done, total: on_stage("overfitting", "steps", done, total)
            checks = check_setup(setup, config, thorough=thorough, progress=progress)
        require_learning(checks, run.path)
    is_new = thorough is not None
    start_run(run, lock, config, sources.dataset, is_new=is_new, overwrite=overwrite, world_size=dist.world_size)
    log = run_logger(run)
    for check in checks:
        log.info("preflight: %s, %s: %s", check.verdict, check.name, check.message)
    if sources.guard is None and config.guard.lines:
        log.info(NO_GUARD_SET)
        listeners.on_message(NO_GUARD_SET)


def _make_validator(run: RunFolder, sources: _Sources, dist: Distributed, log: logging.Logger) -> Validator | None:
    config, dataset = sources.config, sources.dataset
    samples = draw_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
    if not samples:
        log.warning("there is no validation split: the last weights are kept, not the best")
        return None
    return Validator(
        samples,
        sources.processor,
        Generation(**config.generation.model_dump()),
        every_steps=config.validation.every_steps,
        patience=config.validation.patience,
        folder=run.checkpoints,
        guard=sources.guard,
        dist=dist,
        text_policy=dataset.card.policy(),
    )


def _make_trainer(
    run: RunFolder,
    sources: _Sources,
    setup: Setup,
    validator: Validator | None,
    signals: SignalHandler,
    dist: Distributed,
    log: logging.Logger,
    listeners: _Listeners,
) -> Trainer:
    config = sources.config
    callbacks: list[Callback] = [validator] if validator else []
    if dist.is_main:
        writer = MetricsWriter(
            run,
            batch_size=config.training.batch_size,
            trackers=make_trackers(config.training.report_to, run, config.model_dump(mode="json")),
            on_progress=listeners.on_progress,
        )
        callbacks.append(writer)  # after the validator: progress shows the validation of the same step
        if validator is not None:
            validator.on_result = writer.write_validation
    if dist.world_size > 1:
        exclude_frozen_from_ddp(setup.model)
    validation = None if validator is None else validator.encoded
    cached = cache_features(config, setup, validation, on_message=log.info, on_stage=listeners.on_stage, dist=dist)

    def save(trainer: Trainer) -> None:
        state = trainer.state_dict()
        if dist.is_main:
            save_checkpoint(checkpoint_path(run.checkpoints, trainer.state.step), state, adapter_files(trainer.module))
            rotate_checkpoints(run.checkpoints, config.checkpoints.keep)

    return make_trainer(
        setup,
        config,
        dist,
        # Reading cached features is faster than passing them between processes.
        num_workers=0 if cached else config.training.num_workers,
        save_every=config.checkpoints.every_steps,
        save=save,
        callbacks=[*callbacks, signals],
    )


def _rewind(run: RunFolder, checkpoint: Path, on_message: Callable[[str], None]) -> None:
    """Bring the files of a run back to the step of the checkpoint."""
    run_logger(run).info("resuming from %s", checkpoint.name)
    remove_unfinished(run.checkpoints)
    if cut_back(run.metrics, step_of(checkpoint)):
        message = f"the last line of {run.metrics.name} was incomplete and has been dropped"
        run_logger(run).warning(message)
        on_message(message)


def _clear(run: RunFolder) -> None:
    """Remove all that a run left; its configuration last, without which the folder would not be known as a run."""
    if run.checkpoints.is_dir():  # renamed first, so that nothing resumes from half of them
        run.checkpoints.rename(run.checkpoints.with_name(f".{run.checkpoints.name}.{uuid4().hex[:8]}.tmp"))
    others = [path for path in run.path.iterdir() if path.name not in kept_names(run) and path != run.config]
    for path in [*others, run.config]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _provenance(config: RunConfig, dataset: Dataset, world_size: int) -> dict[str, Any]:
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
        "processes": world_size,
    }


def _best_files(run: RunFolder, model: Any, validator: Validator | None) -> list[tuple[str, bytes]]:
    """Return the files of the best adapter with its calibration, or the last weights if there was no validation."""
    if validator is None or not validator.state.best_step:
        return list(adapter_files(model))
    best = best_path(run.checkpoints, validator.state.best_step)
    if fault := find_damage(best):
        hint = f"with `{run.resume_command}` the weights of the last checkpoint take its place"
        raise RunError(f"the best adapter is damaged: {fault}", code="best-adapter-damaged", where=best, hint=hint)
    return [(name, (best / name).read_bytes()) for name in (CONFIG, WEIGHTS, CALIBRATION)]
