"""The recipe of every run: set up, fit and validate, finish.

A learner holds the differences between readers and the line detector. The result is a run folder with the best weights.
"""

import logging
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from dsocr.console import current_reporter
from dsocr.errors import Interrupted, RunError
from dsocr.evaluation.evaluate import describe_known_lines
from dsocr.io.work import explain_disk_errors, find_damage, write_file, write_folder
from dsocr.job import Job, list_ancestors, require_trainable
from dsocr.models.adapters import restore_trained, trained_files
from dsocr.runs import RunFolder, TrainResult, UnlabelledReport, cut_back
from dsocr.training.callbacks import MetricsWriter, SignalHandler, run_logger
from dsocr.training.checkpoint import (
    best_path,
    checkpoint_path,
    latest_checkpoint,
    load_checkpoint,
    read_state,
    require_best,
    rotate_checkpoints,
    save_checkpoint,
    step_of,
)
from dsocr.training.detector import DetectorLearner
from dsocr.training.distributed import Distributed, connect, limit_threads
from dsocr.training.lifecycle import RunLock, clear_run, explain_out_of_memory, preserved_process, start_run
from dsocr.training.readers import ReaderLearner, fit_micro_batch
from dsocr.training.samples import OwnReadings
from dsocr.training.trainer import Callback, Trainer, require_callbacks
from dsocr.training.validation import PeriodicValidation

Learner = ReaderLearner | DetectorLearner


def run_job(
    job: Job,
    *,
    preflight: bool = False,
    callbacks: Sequence[Callback] = (),
    own_readings: OwnReadings | None = None,
    unlabelled: UnlabelledReport | None = None,
) -> TrainResult:
    """Train, or resume where an earlier call was interrupted.

    With `preflight` a few samples are overfitted first; cheap checks always run. `callbacks` come after those of dsocr,
    on every rank; if one of them stops the trainer, the run is finished with the best weights so far. `own_readings`
    continue an earlier training; `unlabelled` says how the dataset of a run that learns alone was made.

    Raises ConfigError for callbacks of another type, DataError if the dataset has errors, and RunError if the run
    folder holds another or a finished run, is in use or not writable, if a check refuses, or if loss or weights are not
    finite. Raises Interrupted after a signal; there is then a checkpoint to resume from. In processes that a launcher
    started, they train together; rank 0 writes.
    """
    require_callbacks(callbacks)
    started, run = time.monotonic(), job.run
    if job.base is not None:
        job = replace(job, config=fit_micro_batch(job.config, job.base.family))
    with (
        preserved_process(),
        connect() as dist,
        explain_disk_errors(run.path),
        explain_out_of_memory(job.config),
        ExitStack() as stack,
    ):
        reporter = current_reporter()
        lock = RunLock(run)
        newest = dist.broadcast(partial(_find_checkpoint, job, lock, stack))
        checkpoint = Path(newest) if newest else None
        log = stack.enter_context(run_logger(run, enabled=dist.is_main))

        def announce(message: str, level: int = logging.WARNING) -> None:
            log.log(level, message)
            reporter.complain(message)

        # Setup
        limited, busy = limit_threads(job.config, job.recorded)
        if busy:
            reporter.complain(busy)
        job = replace(job, config=limited)
        is_reader = job.detector is None
        learner: Learner = dist.main_first(
            lambda: ReaderLearner(job, dist, own_readings) if is_reader else DetectorLearner(job, dist)
        )
        ancestors = [] if checkpoint else dist.broadcast(partial(list_ancestors, job.config, job.samples_from))

        def begin() -> None:
            findings = [] if checkpoint or own_readings is not None else learner.check(preflight)
            lock.acquire()
            if job.overwrite:
                clear_run(run)
            write_file(run.config, job.config.to_yaml())
            if checkpoint is None:
                for warning in describe_known_lines(ancestors):
                    announce(warning)
                about = {"started_from": ancestors, "training_samples": learner.count}
                machine = {"device": str(learner.device), "processes": dist.world_size}
                start_run(run, job.config, job.samples_from, unlabelled, **about, **machine)
            for warning in learner.warnings:
                announce(warning)
            for note in [*findings, *learner.notes]:
                log.info(note)
            if learner.validator is None:
                log.warning("there is no validation split: the last weights are kept, not the best")

        dist.broadcast(begin)
        if dist.is_main:
            stack.callback(shutil.rmtree, run.features, ignore_errors=True)

        # Fit
        signals = SignalHandler(reporter.complain, dist)
        validator: PeriodicValidation | None = learner.validator
        hooks: list[Callback] = []
        if dist.is_main:  # first, since it opens the trackers
            hooks.append(writer := MetricsWriter(run, log, job.config))
        if validator is not None:
            hooks.append(validator)
            if dist.is_main:
                validator.on_result = writer.write_validation
            if ancestors:
                validator.start_limit = math.inf
        trainer = learner.make_trainer(
            log,
            save_every=job.config.checkpoints.every_steps,
            save=partial(_save, run, job.config.checkpoints.keep, dist),
            callbacks=[*hooks, signals, *callbacks],
        )
        with signals.installed():
            if checkpoint is None:
                trainer.fit()
            else:
                log.info("resuming from %s", checkpoint.name)
                _resume(trainer, run, dist, checkpoint, validator, announce)
            is_over = trainer.is_finished or (validator is not None and validator.is_out_of_patience)
            if signals.signal is not None and not is_over:
                raise Interrupted(signals.signal, trainer.state.step, run.resume_command)
            best_step = None if validator is None else validator.state.best_step
            if dist.is_main:
                best = None if best_step is None else require_best(run, best_step)
                # The folder of the weights marks the run as finished.
                write_folder(run.path / learner.folder, learner.finish(trainer.module, best))
                for sentence in learner.verdicts:
                    announce(sentence, logging.INFO)
                if unlabelled is not None:
                    reporter.complain(unlabelled.describe())
        return TrainResult(
            run=run,
            steps=trainer.state.step,
            best_step=best_step,
            seconds=time.monotonic() - started,
            excluded=learner.excluded,
            resumed_from=step_of(checkpoint) if checkpoint else 0,
            unlabelled=unlabelled,
            **learner.scores(),
        )


def _find_checkpoint(job: Job, lock: RunLock, stack: ExitStack) -> str | None:
    """Lock the folder if it exists, and return the checkpoint to resume from; see `require_trainable`."""
    stack.enter_context(lock)
    require_trainable(job.run, overwrite=job.overwrite)  # another process may have finished it meanwhile
    latest = None if job.overwrite else latest_checkpoint(job.run.checkpoints)
    if (latest is None) != (job.recorded is None):
        hint = "run the same command again"
        raise RunError("another process has changed this run", code="run-begun", where=job.run.path, hint=hint)
    if latest is not None:
        read_state(latest)  # refuses the checkpoints of other releases
    return str(latest) if latest else None


def _save(run: RunFolder, keep: int, dist: Distributed, trainer: Trainer) -> None:
    """Write a checkpoint, and remove all but the newest."""
    state = trainer.state_dict()
    if dist.is_main:
        save_checkpoint(checkpoint_path(run.checkpoints, trainer.state.step), state, trained_files(trainer.module))
        rotate_checkpoints(run.checkpoints, keep)


def _resume(
    trainer: Trainer,
    run: RunFolder,
    dist: Distributed,
    checkpoint: Path,
    validator: PeriodicValidation | None,
    announce: Callable[[str], None],
) -> None:
    """Train from a checkpoint to the end or to a signal, and announce damage."""
    if dist.broadcast(lambda: cut_back(run.metrics, step_of(checkpoint))):
        announce(f"the last line of {run.metrics.name} was incomplete and has been dropped")
    state = load_checkpoint(checkpoint)
    restore_trained(trainer.module, checkpoint)
    known = state["callbacks"].get(type(validator).__name__)
    if known and known["best_step"] is not None:
        best = best_path(run.checkpoints, known["best_step"])
        if fault := dist.broadcast(lambda: find_damage(best)):
            message = f"the best weights, {best.name}, are damaged ({fault}); the next validation counts as the best"
            announce(message)
            known["best_step"] = None
    trainer.load_state_dict(state)
    if not trainer.is_finished and not (validator and validator.is_out_of_patience):
        trainer.fit(resume=state)
    elif validator is not None and validator.state.best_step is None:  # the best weights were lost
        validator.validate(trainer.module, trainer.state.step)
