"""How readers are trained: an adapter on frozen weights, or all weights of a network, by the loss of its family."""

import logging
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, set_seed

from dsocr.config import RunConfig, TrainingSection
from dsocr.console import current_reporter
from dsocr.data.dataset import training_samples
from dsocr.document import Sample, Split, Unit
from dsocr.errors import ConfigError, DataError, RunError, typed
from dsocr.inference.confidence import Calibration
from dsocr.io.processes import ignore_signals_in_worker
from dsocr.job import (
    Job,
    first_reader,
    fit_to_world_size,
    log_interval,
    micro_batches_per_step,
    total_steps,
)
from dsocr.models.adapters import (
    attach_adapter,
    frozen_towers,
    layers_without_gradient,
    restore_trained,
    start_adapter,
    trained_files,
    vision_parameters,
)
from dsocr.models.ctc import LineRecognizer
from dsocr.models.family import Family, trains_all_weights
from dsocr.models.generation import Generation
from dsocr.models.language_model import FILE as LANGUAGE_MODEL
from dsocr.models.language_model import describe_other_texts
from dsocr.models.loading import Base, choose_device, choose_dtype, family_of, load_base
from dsocr.runs import CALIBRATION, READING, ReadingSettings
from dsocr.training.distributed import ALONE, Distributed, exclude_frozen_from_ddp
from dsocr.training.feature_cache import cache_features
from dsocr.training.preflight import check_data, check_setup, errors, forward_backward
from dsocr.training.preview import text_limit, within_budget
from dsocr.training.samples import (
    Collator,
    EncodedSamples,
    LengthGroupedSampler,
    OwnReadings,
    Setup,
    measure_lengths,
)
from dsocr.training.trainer import Precision, Trainer, build_optimizer, build_scheduler
from dsocr.training.validation import Validator, decided_generation, draw_samples

_READS = 0.5
"""CER below which a base is worth keeping untrained: of networks that read nothing, the trained one is kept."""

_LINES_ON_A_CPU = 2
"""Lines of a micro-batch on a CPU: with 8, one thread took 1.2 times as long for more padding, in 2.5 GB, not 1.1."""

PRECISIONS: dict[torch.dtype, Precision] = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


class ReaderLearner:
    """The training of a reader: its samples, and its network set up; opening it checks the dataset on rank 0.

    Raises DataError if the dataset has errors, ModelError if the base cannot be loaded, and ConfigError if the adapter
    does not fit it or would not train.
    """

    warnings: Sequence[str] = ()

    def __init__(self, job: Job, dist: Distributed, own_readings: OwnReadings | None) -> None:
        assert job.base is not None
        self.job, self.config, self._dist, self._own_readings = job, job.config, dist, own_readings
        config, dataset = job.config, job.samples_from
        fit_to_world_size(config, dist.world_size)  # refuses batches that cannot be shared
        processor = job.base.processor(config.input.resolution, config.input.prompt)
        if dist.is_main:
            check = check_data(dataset, processor, config)
            if check.verdict == "error":
                message = f"dataset has errors{_lines(check.details)}"
                hint = f"see `dsocr check {typed(dataset.folder)}`"
                raise DataError(message, code="dataset-has-errors", where=dataset.folder, hint=hint)
            if check.fix:
                current_reporter().complain(f"{dataset.folder}: {check.message}: {check.fix}")
        self.drawn = training_samples(dataset, config)
        samples, self.excluded = within_budget(self.drawn, processor, config)
        self.count = len(samples)
        self.validation = draw_samples(dataset.samples(Split.VALIDATION), config.validation.max_samples, config.seed)
        self.notes = [f"{self.count} training samples, {self.excluded} excluded as too long"]
        if self.validation:
            _, lossless = within_budget(self.validation, processor, config, Split.VALIDATION)
            self.notes.append(f"{len(self.validation)} validation samples, {lossless} without a loss as too long")
        self.setup = set_up(config, samples, job.base, start=job.start, own_readings=own_readings)
        self.device, self.processor = self.setup.device, self.setup.processor
        self.verdicts: list[str] = []
        self.validator = self._make_validator(Calibration.load(job.base.folder)) if self.validation else None

    def _make_validator(self, base: Calibration) -> Validator:
        validator = Validator(
            self.validation,
            self.processor,
            Generation(**decided_generation(self.config, self.processor, self.drawn)),
            max_text_tokens=text_limit(self.processor, self.config),
            every_steps=self.config.validation.every_steps,
            patience=self.config.validation.patience,
            folder=self.job.run.checkpoints,
            dist=self._dist,
            text_policy=self.job.samples_from.card.policy(),
            base=base,
        )
        # A line recogniser that reads already can lose more by a few lines than it learns from them.
        validator.start_limit = math.inf if self._own_readings else _READS if self.folder == "model" else None
        return validator

    @property
    def folder(self) -> Literal["adapter", "model"]:
        """The folder of the trained weights in the run."""
        return "adapter" if isinstance(self.setup.model, PeftModel) else "model"

    def check(self, preflight: bool) -> list[str]:
        """Check on a few samples that the setup learns, and return the results. Raises RunError if it does not."""
        with current_reporter().progress("overfitting", "steps") as done:
            checks = check_setup(self.setup, self.config, thorough=preflight, progress=done)
        if failed := errors(checks):
            message = f"Preflight checks failed:{_lines(f'{check.name}: {check.message}' for check in failed)}"
            raise RunError(message, code="preflight-failed", where=self.config.output, hint=failed[0].fix)
        return [f"preflight: {passed.verdict}, {passed.name}: {passed.message}" for passed in checks]

    def make_trainer(self, log: logging.Logger, **options: Any) -> Trainer:
        """Make the trainer; the features of frozen towers are cached before."""
        encoded = None if self.validator is None else self.validator.encoded
        folder = self.job.run.features
        cached = cache_features(self.config, self.setup, encoded, folder, log=log, dist=self._dist)
        # Reading cached features is faster than passing them between processes.
        workers = 0 if cached else self.config.training.num_workers
        return make_trainer(self.setup, self.config, self._dist, num_workers=workers, **options)

    def finish(self, model: Any, best: Path | None) -> list[tuple[str, bytes]]:
        """Return the files of the best weights, or of the last, with the settings to read with."""
        config, processor, card = self.config, self.processor, self.job.samples_from.card
        files, helped = trained_files(model), 0
        if self.validator is not None and best is not None:
            files = [(name, (best / name).read_bytes()) for name in (*dict(files), CALIBRATION)]
            if processor.family.trains == "all":
                restore_trained(model, best)
                texts = [sample.text for sample in self.drawn]
                readings = [sample.text for sample in self._own_readings.samples] if self._own_readings else []
                fitted, helped = self.validator.fit_language_model(model, texts, self.job.texts, readings)
                files = list((dict(files) | dict(fitted)).items())
        elif processor.language_model:  # nothing tells if another helps
            files.append((LANGUAGE_MODEL, processor.language_model.to_json().encode()))
        if config.learns_alone:  # nothing was measured, and the reader's confidences are nearer than none
            files.append((CALIBRATION, Calibration.load(first_reader(config).adapter).to_json().encode()))
        if others := len(self.job.texts):
            setting = config.generation.language_model
            self.verdicts.append(describe_other_texts(others, setting, helped=bool(helped)))
        try:
            files += processor.family.graph_files(files)
        except RunError as error:
            self.verdicts.append(str(error))
        reading = ReadingSettings(
            base=config.base,
            base_revision=config.base_revision,
            prompt=processor.prompt,
            resolution=processor.resolution_name,
            text_policy=card.policy(),
            generation=decided_generation(config, processor, self.drawn),
            unit=cast("Unit", card.unit),  # a reader learns from no layouts
            lines_per_region=card.lines_per_region,
            precision=config.training.precision,
        )
        return [*files, (READING, reading.to_json().encode())]

    def scores(self) -> dict[str, Any]:
        """Return the fields of `TrainResult` for the best weights."""
        if self.validator is None:
            return {}
        calibrated = Calibration.load(self.job.run.adapter).lines if self._dist.is_main else 0
        best = self.validator.state.best
        return {"best_cer": best and best[0], "calibrated_on": calibrated}


def set_up(
    config: RunConfig,
    samples: Sequence[Sample],
    base: Base,
    *,
    start: Path | None = None,
    own_readings: OwnReadings | None = None,
) -> Setup:
    """Load the base, attach an adapter if its family has one, and check that gradients reach it; writes nothing.

    The adapter starts as saved in `start`, or with the weights of the run that read `own_readings`. Raises ModelError
    if the base cannot be loaded, ConfigError if the adapter does not fit it or would not train.
    """
    device = choose_device()
    set_seed(config.seed)
    has_adapter = not trains_all_weights(base.family, config.adapter.target)
    dtype = choose_dtype(config.training.precision, device, whole=not has_adapter)
    loaded = load_base(
        base,
        dtype=dtype if has_adapter else torch.float32,
        device=device,
        attention=config.training.attention,
        quantization=config.adapter.quantization,
    )
    processor = base.processor(config.input.resolution, config.input.prompt)
    network, processor = base.family.adapt_to(loaded.network, processor, (sample.text for sample in samples))
    model = make_trainable(network, config, revision=base.revision, start=None if own_readings else start)
    if own_readings is not None:
        restore_trained(model, own_readings.start)
        samples = own_readings.mix(samples)
    encoded = EncodedSamples(samples, processor, augmentation=config.training.augmentation, seed=config.seed)
    with torch.random.fork_rng():
        forward_backward(model, processor, [encoded[0]], dtype)
    unreached = layers_without_gradient(model)
    model.zero_grad(set_to_none=True)
    if unreached:
        message = f"adapter.target_modules: no gradient reaches {len(unreached)} layers{_lines(unreached[:20])}"
        raise ConfigError(message, code="layers-without-gradient", hint="leave these layers out of the pattern")
    make_optimizer(model, config.training)  # refuses unknown settings before anything is written
    return Setup(model, processor, encoded, device, dtype)


def fit_micro_batch(config: RunConfig, family: Family) -> RunConfig:
    """Return the configuration with small micro-batches where a CPU trains a line recogniser, unless they are set."""
    training = config.training
    is_set = "micro_batch_size" in training.model_fields_set
    if is_set or not isinstance(family, LineRecognizer) or choose_device().type != "cpu":
        return config
    size = math.gcd(training.batch_size, _LINES_ON_A_CPU)
    return config.model_copy(update={"training": training.model_copy(update={"micro_batch_size": size})})


def make_trainable(
    network: PreTrainedModel, config: RunConfig, *, revision: str | None, start: Path | None = None
) -> Any:
    """Return the network to train all its weights, or with an adapter, untrained or as saved in `start`.

    `revision` is the commit of the base.
    """
    family, adapter = family_of(network), config.adapter
    if trains_all_weights(family, adapter.target):
        model: Any = network.requires_grad_(True)
    else:
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
    compiled, recomputes = config.training.compile, config.training.gradient_checkpointing
    family.prepare_training(model, network, compile_layers=compiled, checkpoint_activations=recomputes)
    return model


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)


def make_optimizer(model: Any, training: TrainingSection) -> torch.optim.Optimizer:
    """Make the configured optimizer, with a second parameter group where the vision towers have their own rate.

    Raises ConfigError for unknown optimizers and arguments, and if the adapter has no part in the vision towers.
    """
    vision, others = vision_parameters(model)
    parameters: list[dict[str, Any]] = [{"params": [*others, *vision]}]
    if training.vision_learning_rate is not None:
        if not vision:
            message = "training.vision_learning_rate: the adapter has no layer in the vision towers"
            hint = "set adapter.target_modules to decoder+vision, or leave this out"
            raise ConfigError(message, code="no-vision-adapter", hint=hint)
        parameters = [{"params": others}, {"params": vision, "lr": training.vision_learning_rate}]
    return build_optimizer(training, [group for group in parameters if group["params"]])


def make_trainer(
    setup: Setup, config: RunConfig, dist: Distributed = ALONE, *, num_workers: int = 0, **options: Any
) -> Trainer:
    """Make a Trainer for the setup as configured; `options` go to it unchanged."""
    config = fit_to_world_size(config, dist.world_size)
    training, samples = config.training, setup.samples
    max_steps = total_steps(config, len(samples), dist.world_size)
    optimizer = make_optimizer(setup.model, training)
    sampler = LengthGroupedSampler(
        [length.sequence for length in measure_lengths(samples.samples, samples.processor)],
        training.micro_batch_size,
        training.batch_size,
        seed=config.seed,
        group=training.group_by_length,
        rank=dist.rank,
        world_size=dist.world_size,
    )
    if dist.world_size > 1:
        exclude_frozen_from_ddp(setup.model)
    dataloader: DataLoader[Any] = DataLoader(
        samples,
        batch_sampler=sampler,
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
        build_scheduler(training, optimizer, max_steps),
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
