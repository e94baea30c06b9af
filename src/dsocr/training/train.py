"""Train an adapter: set up, check, fit and validate, finish. The result is a run folder with the best adapter in it."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, set_seed

from dsocr.config import RunConfig, TrainingSection, load_run_config
from dsocr.data.check import Finding, check_dataset
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split, Unit
from dsocr.errors import ConfigError, DataError, Interrupted, typed
from dsocr.evaluation.evaluate import describe_known_lines
from dsocr.inference.confidence import Calibration
from dsocr.io.work import explain_disk_errors, find_damage, write_file, write_folder
from dsocr.models.adapters import (
    attach_adapter,
    frozen_towers,
    layers_without_gradient,
    restore_trained,
    start_adapter,
    trained_files,
    vision_parameters,
)
from dsocr.models.families import Base, family_of
from dsocr.models.family import Check, Encoded, Processor, require_script, trains_all_weights
from dsocr.models.generation import Generation
from dsocr.models.language_model import FILE as LANGUAGE_MODEL
from dsocr.models.language_model import describe_other_texts, read_other_texts
from dsocr.models.loading import choose_device, choose_dtype, load_base
from dsocr.runs import CALIBRATION, READING, ReadingSettings, RunFolder, UnlabelledReport
from dsocr.training.callbacks import (
    Callback,
    SignalHandler,
    TrainingProgress,
    ignore_signals_in_worker,
    make_writer,
    require_callbacks,
    run_logger,
)
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
from dsocr.training.distributed import Distributed, connect, decide_threads, exclude_frozen_from_ddp, limit_threads
from dsocr.training.feature_cache import StageProgress, cache_features
from dsocr.training.lifecycle import (
    RunLock,
    clear_run,
    explain_out_of_memory,
    find_initial_adapter,
    first_reader,
    list_ancestors,
    pin_base,
    require_same_settings,
    require_trainable,
    rewind_run,
    start_run,
)
from dsocr.training.preflight import check_setup, forward_backward, require_learning
from dsocr.training.preview import text_limit, within_budget
from dsocr.training.samples import (
    Collator,
    EncodedSamples,
    LengthGroupedSampler,
    OwnReadings,
    SamplesWithFillers,
    Setup,
    fit_to_world_size,
    log_interval,
    measure_lengths,
    micro_batches_per_step,
    total_steps,
)
from dsocr.training.trainer import Precision, Trainer, build_optimizer, build_scheduler
from dsocr.training.validation import PeriodicValidation, StartValidation, Validator, decided_generation, draw_samples

_READS = 0.5
"""CER below which a base is worth keeping untrained: of networks that read nothing, the trained one is kept."""

PRECISIONS: dict[torch.dtype, Precision] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training made.

    `best_step` and `best_cer` are None without a validation split, `unlabelled` without unlabelled scans.
    `calibrated_on` is the number of validation lines on which confidences were calibrated. A detector has the F1 of its
    lines, `best_f1`, instead of a CER.
    """

    run: RunFolder
    steps: int
    best_step: int | None
    best_cer: float | None
    seconds: float
    excluded: int
    resumed_from: int
    calibrated_on: int = 0
    unlabelled: UnlabelledReport | None = None
    best_f1: float | None = None


def train(
    config: RunConfig,
    *,
    overwrite: bool = False,
    preflight: bool = False,
    on_progress: Callable[[TrainingProgress], None] | None = None,
    on_warning: Callable[[Finding], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    on_stage: StageProgress | None = None,
    callbacks: Sequence[Callback] = (),
    own_readings: OwnReadings | None = None,
) -> TrainResult:
    """Train as the configuration says, or resume where an earlier call was interrupted.

    `on_progress` is called after each step, `on_warning` for each doubtful thing in the dataset, `on_message` about
    damaged checkpoints and signals, `on_stage` during long work before the first step. With `preflight` a few samples
    are overfitted first; cheap checks always run. `callbacks` come after those of dsocr, on every rank; if one of them
    stops the trainer, the run is finished with the best weights so far. With `own_readings` the training goes on from
    an earlier one, and shows its readings too; one with `training.unlabelled` makes both, or, without a dataset, reads.

    Raises ConfigError for what is no callback.
    Raises DataError if the dataset has errors; RunError if the run folder holds another or a finished run, is in use or
    not writable, if a check refuses, or if loss or weights are not finite. Raises Interrupted after a signal; there is
    then a checkpoint to resume from. In processes that a launcher started, they train together; rank 0 writes.
    """
    require_callbacks(callbacks)
    unlabelled = None
    if config.training.unlabelled:
        from dsocr.training.unlabelled import read_alone, train_with_unlabelled  # which trains with this function

        heard: dict[str, Any] = {"on_message": on_message, "on_stage": on_stage}
        if not config.learns_alone:
            heard |= {"on_progress": on_progress, "on_warning": on_warning, "callbacks": callbacks}
            return train_with_unlabelled(config, overwrite=overwrite, preflight=preflight, **heard)
        unlabelled, overwrite = read_alone(config, overwrite=overwrite, **heard), False
    started = time.monotonic()
    run = RunFolder(config.output)
    with connect() as dist, explain_disk_errors(run.path), explain_out_of_memory(config), ExitStack() as stack:
        if not dist.is_main:
            on_progress = on_warning = on_message = on_stage = None
        say = on_message or (lambda message: None)
        lock = RunLock(run)
        newest = dist.broadcast(partial(find_checkpoint, run, lock, stack, say, overwrite=overwrite))
        checkpoint = Path(newest) if newest else None
        log = stack.enter_context(run_logger(run, enabled=dist.is_main))
        job = TrainingJob(run, dist, checkpoint, log, say, on_warning, on_stage, on_progress, unlabelled)

        # Setup
        sources = dist.main_first(partial(open_sources, config, job, own_readings))
        if busy := limit_threads(config, sources.config):
            say(busy)
        config = sources.config
        prepare = partial(set_up, config, sources.samples, sources.base, own_readings=own_readings)
        setup = dist.main_first(partial(prepare, resumed=checkpoint is not None))
        ancestors = [] if checkpoint else dist.broadcast(partial(list_ancestors, config, sources.dataset))
        begin = partial(begin_run, job, lock, sources, setup, ancestors, preflight=preflight, overwrite=overwrite)
        dist.broadcast(begin)

        # Fit
        signals = SignalHandler(say, dist)
        validator = make_validator(job, sources, setup.processor)
        own_callbacks = make_callbacks(job, sources, validator, has_ancestors=bool(ancestors))
        encoded = None if validator is None else validator.encoded
        cached = cache_features(config, setup, encoded, on_message=log.info, on_stage=on_stage, dist=dist)
        trainer = make_trainer(
            setup,
            config,
            dist,
            # Reading cached features is faster than passing them between processes.
            num_workers=0 if cached else config.training.num_workers,
            save_every=config.checkpoints.every_steps,
            save=partial(save_run, job, config.checkpoints.keep),
            callbacks=[*own_callbacks, signals, *callbacks],
        )
        with signals.installed():
            fit(trainer, job, validator)
            is_over = trainer.is_finished or (validator is not None and validator.is_out_of_patience)
            if signals.signal is not None and not is_over:
                raise Interrupted(signals.signal, trainer.state.step, run.resume_command)
            if dist.is_main:
                finish_run(job, sources, setup.processor, trainer.module, validator)
                if unlabelled is not None:
                    say(unlabelled.describe())
        return TrainResult(
            run=run,
            steps=trainer.state.step,
            best_step=validator.state.best_step if validator else None,
            best_cer=validator.state.best_cer if validator else None,
            seconds=time.monotonic() - started,
            excluded=sources.excluded,
            resumed_from=step_of(checkpoint) if checkpoint else 0,
            calibrated_on=Calibration.load(run.adapter).lines if dist.is_main and validator else 0,
            unlabelled=unlabelled,
        )


# Setup


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One call of `train`: its folder, its processes, the checkpoint it resumes from, and who is told what."""

    run: RunFolder
    dist: Distributed
    checkpoint: Path | None
    log: logging.Logger
    say: Callable[[str], None]
    on_warning: Callable[[Finding], None] | None
    on_stage: StageProgress | None
    on_progress: Callable[[TrainingProgress], None] | None
    unlabelled: UnlabelledReport | None = None

    def announce(self, message: str, level: int = logging.WARNING) -> None:
        """Say something, and write it into the log."""
        self.log.log(level, message)
        self.say(message)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a configuration names, which has the base's commit and defaults by now.

    `drawn` are the training samples, `samples` those that are not too long, which are trained on, `excluded` the number
    of the others; of the `validation` samples `without_loss` are too long.
    """

    config: RunConfig
    base: Base
    dataset: Dataset
    drawn: Sequence[Sample]
    samples: Sequence[Sample]
    excluded: int
    validation: Sequence[Sample]
    without_loss: int
    own_readings: OwnReadings | None = None


def find_checkpoint(
    run: RunFolder, lock: RunLock, stack: ExitStack, say: Callable[[str], None], *, overwrite: bool
) -> str | None:
    """Lock the folder if it exists, and return the checkpoint to resume from; see `require_trainable`."""
    require_trainable(run, overwrite=overwrite)
    stack.enter_context(lock)
    require_trainable(run, overwrite=overwrite)  # another process may have finished it meanwhile
    latest = None if overwrite else latest_checkpoint(run.checkpoints, say)
    if latest is not None:
        read_state(latest)  # refuses the checkpoints of other releases
    return str(latest) if latest else None


def open_sources(config: RunConfig, job: TrainingJob, own_readings: OwnReadings | None = None) -> Sources:
    """Open what the configuration names, and pin the base to a commit; rank 0 checks the dataset.

    Settings of a run without a checkpoint may still be changed. Raises RunError if a run that resumes was begun with
    other settings, and DataError if the dataset has errors.
    """
    dataset = Dataset.open(config.dataset, fold=config.fold)
    recorded = load_run_config(job.run.config) if job.checkpoint else None
    config, base = pin_base(config, recorded)
    if recorded is not None:
        require_same_settings(job.run, config, recorded)
    config = decide_threads(config, recorded)
    processor = base.processor(config.input.resolution, config.input.prompt)
    fit_to_world_size(config, job.dist.world_size)  # refuses batches that cannot be shared
    if job.dist.is_main:
        limit = text_limit(processor, config) if config.training.long_text == "error" else None
        findings = check_dataset(dataset, processor, max_text_tokens=limit)
        if errors := findings.of("error"):
            shown = "".join(f"\n  {finding.place}: {finding.message} ({finding.count})" for finding in errors)
            hint = f"see `dsocr check {typed(dataset.folder)}`"
            raise DataError(f"dataset has errors{shown}", code="dataset-has-errors", where=dataset.folder, hint=hint)
        if job.on_warning is not None:
            for finding in findings:
                job.on_warning(finding)
    drawn = training_samples(dataset, config)
    samples, excluded = within_budget(drawn, processor, config)
    validation = draw_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
    _, without_loss = within_budget(validation, processor, config, Split.VALIDATION) if validation else ([], 0)
    return Sources(config, base, dataset, drawn, samples, excluded, validation, without_loss, own_readings)


def begin_run(
    job: TrainingJob,
    lock: RunLock,
    sources: Sources,
    setup: Setup,
    ancestors: Sequence[dict[str, Any]],
    *,
    preflight: bool,
    overwrite: bool,
) -> None:
    """Check a run, unless it resumes, and write what its folder begins with."""
    run, config, log = job.run, sources.config, job.log
    is_checked = job.checkpoint or sources.own_readings is not None
    checks = [] if is_checked else check(setup, config, preflight, job.on_stage)
    lock.acquire()
    if overwrite:
        clear_run(run)
    write_file(run.config, config.to_yaml())
    if job.checkpoint is None:
        for warning in describe_known_lines(ancestors):
            job.announce(warning)
        device, count = str(setup.device), job.dist.world_size
        trained = len(sources.samples)
        about: dict[str, Any] = {"samples": trained, "unlabelled": job.unlabelled}
        start_run(run, config, sources.dataset, ancestors, device=device, world_size=count, **about)
    for passed in checks:
        log.info("preflight: %s, %s: %s", passed.verdict, passed.name, passed.message)
    log.info("%d training samples, %d excluded as too long", len(sources.samples), sources.excluded)
    if sources.validation:
        log.info("%d validation samples, %d without a loss as too long", len(sources.validation), sources.without_loss)
    else:
        log.warning("there is no validation split: the last weights are kept, not the best")


def check(setup: Setup, config: RunConfig, preflight: bool, on_stage: StageProgress | None) -> list[Check]:
    """Check that the setup learns, on a few samples if `preflight`. Raises RunError if it does not."""
    progress = None if on_stage is None else lambda done, total: on_stage("overfitting", "steps", done, total)
    checks = check_setup(setup, config, thorough=preflight, progress=progress)
    require_learning(checks, config.output)
    return checks


def set_up(
    config: RunConfig,
    samples: Sequence[Sample],
    base: Base | None = None,
    *,
    resumed: bool = False,
    own_readings: OwnReadings | None = None,
) -> Setup:
    """Load the base, attach an adapter if its family has one, and check that gradients reach it; writes nothing.

    The base is looked up unless it is given. A run that is `resumed` has its weights in a checkpoint and needs no
    `adapter.init_from`; with `own_readings` it has those of the run that read. Raises ModelError if the base cannot be
    loaded, ConfigError if the adapter does not fit it or would not train.
    """
    device = choose_device()
    others = read_other_texts(config.generation.language_model)  # before hours of training
    set_seed(config.seed)
    base = base or Base.find(config.base, config.base_revision)
    family = base.family
    require_script(family, config.generation.script)
    if others and not family.reads_by_character:
        message = f"generation.language_model: {config.base} has no language model of its own to learn texts"
        raise ConfigError(message, code="language-model-unused", hint="leave the texts out, or train `small`")
    has_adapter = not trains_all_weights(family, config.adapter.target)
    dtype = choose_dtype(config.training.precision, device, whole=not has_adapter)
    start = None if resumed or own_readings else find_initial_adapter(config, family)
    loaded = load_base(
        base,
        dtype=dtype if has_adapter else torch.float32,
        device=device,
        attention=config.training.attention,
        quantization=config.adapter.quantization,
    )
    processor = base.processor(config.input.resolution, config.input.prompt)
    network, processor = family.adapt_to(loaded.network, processor, (sample.text for sample in samples))
    if has_adapter:
        model: Any = fresh_adapter(network, config, revision=base.revision, start=start)
    else:
        model = network.requires_grad_(True)
        prepare_training(network, network, config)
    if own_readings is not None:
        restore_trained(model, own_readings.start)
        samples = own_readings.mix(samples)
    encoded = EncodedSamples(samples, processor, augmentation=config.training.augmentation, seed=config.seed)
    require_gradients(model, processor, [encoded[0]], dtype)
    make_optimizer(model, config.training)  # refuses unknown settings before anything is written
    return Setup(model, processor, encoded, device, dtype)


def fresh_adapter(
    network: PreTrainedModel, config: RunConfig, *, revision: str | None, start: Path | None = None
) -> PeftModel:
    """Attach an adapter to the network, untrained or as saved in `start`; `revision` is the commit of the base."""
    adapter = config.adapter
    model = attach_adapter(
        network,
        base=config.base,
        revision=revision,
        target_modules=adapter.target,
        r=adapter.r,
        alpha=adapter.alpha,
        dropout=adapter.dropout,
        variant=adapter.variant,
    )
    if start is not None:
        start_adapter(model, start)
    prepare_training(model, network, config)
    return model


def prepare_training(model: Any, network: PreTrainedModel, config: RunConfig) -> None:
    """Have the network's family prepare a model that trains it."""
    family_of(network).prepare_training(
        model,
        network,
        compile_layers=config.training.compile,
        checkpoint_activations=config.training.gradient_checkpointing,
    )


def require_gradients(model: Any, processor: Processor, samples: Sequence[Encoded], dtype: torch.dtype) -> None:
    """Raise ConfigError if a backward pass does not reach a layer of the adapter."""
    with torch.random.fork_rng():
        forward_backward(model, processor, samples, dtype)
    unreached = layers_without_gradient(model)
    model.zero_grad(set_to_none=True)
    if unreached:
        shown = "".join(f"\n  {name}" for name in unreached[:20])
        message = f"adapter.target_modules: no gradient reaches {len(unreached)} layers{shown}"
        raise ConfigError(message, code="layers-without-gradient", hint="leave these layers out of the pattern")


def make_optimizer(model: Any, training: TrainingSection) -> torch.optim.Optimizer:
    """Make the configured optimizer, with a second parameter group where the vision towers have their own rate.

    Raises ConfigError for unknown optimizers and arguments, and if the adapter has no part in the vision towers.
    """
    assert training.learning_rate is not None, "`pin_base` sets it"
    vision, others = vision_parameters(model)
    parameters: list[dict[str, Any]] = [{"params": [*others, *vision]}]
    if training.vision_learning_rate is not None:
        if not vision:
            message = "training.vision_learning_rate: the adapter has no layer in the vision towers"
            hint = "set adapter.target_modules to decoder+vision, or leave this out"
            raise ConfigError(message, code="no-vision-adapter", hint=hint)
        parameters = [{"params": others}, {"params": vision, "lr": training.vision_learning_rate}]
    return build_optimizer(
        training.optimizer.name,
        [group for group in parameters if group["params"]],
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        arguments=training.optimizer.arguments,
    )


def make_trainer(
    setup: Setup, config: RunConfig, dist: Distributed | None = None, *, num_workers: int = 0, **options: Any
) -> Trainer:
    """Make a Trainer for the setup as configured; `options` go to it unchanged."""
    dist = dist or Distributed()
    config = fit_to_world_size(config, dist.world_size)
    training, samples = config.training, setup.samples
    max_steps = total_steps(config, len(samples), dist.world_size)
    optimizer = make_optimizer(setup.model, training)
    if dist.world_size > 1:
        exclude_frozen_from_ddp(setup.model)
    dataloader: DataLoader[Any] = DataLoader(
        samples if dist.world_size == 1 else SamplesWithFillers(samples),
        batch_sampler=make_sampler(config, samples, dist),
        collate_fn=Collator(setup.processor),
        num_workers=num_workers,
        # Each worker keeps the images that it has opened, for all epochs.
        persistent_workers=num_workers > 0,
        multiprocessing_context="spawn" if num_workers else None,
        worker_init_fn=ignore_signals_in_worker if num_workers else None,
        pin_memory=setup.device.type == "cuda",
    )
    return Trainer(
        setup.model,
        optimizer,
        build_scheduler(
            training.lr_scheduler.name,
            optimizer,
            warmup_steps=math.ceil(training.warmup_ratio * max_steps),
            max_steps=max_steps,
            arguments=training.lr_scheduler.arguments,
        ),
        dataloader,
        max_steps=max_steps,
        gradient_accumulation_steps=micro_batches_per_step(config, dist.world_size),
        max_grad_norm=training.max_grad_norm,
        precision=PRECISIONS[setup.dtype],
        log_every=log_interval(max_steps),
        loss_function=setup.processor.family.loss,
        prepare_batch=setup.processor.family.prepare_batch,
        frozen=frozen_towers(setup.model),
        seed=config.seed,
        **options,
    )


def make_sampler(config: RunConfig, samples: EncodedSamples, dist: Distributed | None = None) -> LengthGroupedSampler:
    """Make the batch sampler of the training samples for this rank."""
    dist = dist or Distributed()
    return LengthGroupedSampler(
        [length.sequence for length in measure_lengths(samples.samples, samples.processor)],
        config.training.micro_batch_size,
        config.training.batch_size,
        seed=config.seed,
        group=config.training.group_by_length,
        rank=dist.rank,
        world_size=dist.world_size,
    )


# Fit and finish


def make_validator(job: TrainingJob, sources: Sources, processor: Processor) -> Validator | None:
    """Make the callback that reads the validation samples; None without validation samples."""
    config = sources.config
    if not sources.validation:
        return None
    return Validator(
        sources.validation,
        processor,
        Generation(**decided_generation(config, processor, sources.drawn)),
        max_text_tokens=text_limit(processor, config),
        every_steps=config.validation.every_steps,
        patience=config.validation.patience,
        folder=job.run.checkpoints,
        dist=job.dist,
        text_policy=sources.dataset.card.policy(),
    )


def make_callbacks(
    job: TrainingJob, sources: Sources, validator: Validator | None, *, has_ancestors: bool
) -> list[Callback]:
    """Return the callbacks in the order in which they are called: progress shows the validation of the same step."""
    config = sources.config
    callbacks: list[Callback] = [] if validator is None else [validator]
    if job.dist.is_main:
        callbacks.append(writer := make_writer(job.run, job.log, config, job.on_progress))
        if validator is not None:
            validator.on_result = writer.write_validation
    # A line recogniser that reads already can lose more by a few lines than it learns from them.
    starts_whole = not job.checkpoint and trains_all_weights(sources.base.family, config.adapter.target)
    goes_on = has_ancestors or sources.own_readings is not None
    if validator is not None and (goes_on or starts_whole):
        callbacks.append(StartValidation(validator, math.inf if goes_on else _READS))
    return callbacks


def save_run(job: TrainingJob, keep: int, trainer: Trainer) -> None:
    """Write a checkpoint, and remove all but the newest."""
    state = trainer.state_dict()
    if job.dist.is_main:
        place = checkpoint_path(job.run.checkpoints, trainer.state.step)
        save_checkpoint(place, state, trained_files(trainer.module))
        rotate_checkpoints(job.run.checkpoints, keep)


def fit(trainer: Trainer, job: TrainingJob, validator: PeriodicValidation | None) -> None:
    """Train from the start or from a checkpoint, to the end or to a signal."""
    run, dist, checkpoint = job.run, job.dist, job.checkpoint
    if checkpoint is None:
        trainer.fit()
        return
    job.log.info("resuming from %s", checkpoint.name)
    if dist.broadcast(lambda: rewind_run(run, step_of(checkpoint))):
        job.announce(f"the last line of {run.metrics.name} was incomplete and has been dropped")
    state = load_checkpoint(checkpoint)
    restore_trained(trainer.module, checkpoint)
    known = state["callbacks"].get(type(validator).__name__)
    if known and known["best_step"] is not None:
        best = best_path(run.checkpoints, known["best_step"])
        if fault := dist.broadcast(lambda: find_damage(best)):
            job.announce(
                f"the best weights, {best.name}, are damaged ({fault}); the next validation counts as the best"
            )
            known["best_step"] = None
    trainer.load_state_dict(state)
    if not trainer.is_finished and not (validator and validator.is_out_of_patience):
        trainer.fit(resume=state)
    elif validator is not None and validator.state.best_step is None:  # the best weights were lost
        validator.validate(trainer.module, trainer.state.step)


def finish_run(
    job: TrainingJob, sources: Sources, processor: Processor, model: Any, validator: Validator | None
) -> None:
    """Write the best weights and the settings to read with into a folder, whose presence marks the run as finished.

    Without a validation the last weights are written. Raises RunError if the best adapter is damaged.
    """
    run, config, dataset = job.run, sources.config, sources.dataset
    files, folder = trained_files(model), run.path / ("adapter" if isinstance(model, PeftModel) else "model")
    others, helped = read_other_texts(config.generation.language_model), 0
    if validator is not None and validator.state.best_step is not None:
        best = require_best(run, validator.state.best_step)
        files = [(name, (best / name).read_bytes()) for name in (*dict(files), CALIBRATION)]
        if processor.family.trains == "all":
            restore_trained(model, best)
            texts = [sample.text for sample in sources.drawn]
            fitted, helped = validator.fit_language_model(model, texts, others)
            files = list((dict(files) | dict(fitted)).items())
    elif processor.language_model:  # nothing tells if another helps
        files.append((LANGUAGE_MODEL, processor.language_model.to_json().encode()))
    if job.unlabelled is not None:  # nothing was measured, and its confidences are nearer the reader's than none
        files.append((CALIBRATION, (first_reader(config).adapter / CALIBRATION).read_bytes()))
    if others:
        verdict = describe_other_texts(len(others), config.generation.language_model, helped=bool(helped))
        job.announce(verdict, logging.INFO)
    reading = ReadingSettings(
        base=config.base,
        base_revision=config.base_revision,
        prompt=processor.prompt,
        resolution=processor.resolution_name,
        text_policy=dataset.card.policy(),
        generation=decided_generation(config, processor, sources.drawn),
        unit=cast("Unit", dataset.card.unit),  # a reader learns from no layouts
        lines_per_region=dataset.card.lines_per_region,
    )
    write_folder(folder, [*files, (READING, reading.to_json().encode())])
