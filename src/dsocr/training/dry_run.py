"""A dry run: all checks of a training, and what it would take, with memory and time measured on real steps."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import psutil
import torch

from dsocr.config import RunConfig, load_run_config
from dsocr.data.check import check_dataset
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, for_command_line, typed
from dsocr.html import counted
from dsocr.io.processes import ProgressCallback
from dsocr.models.adapters import frozen_towers, layers_left_out
from dsocr.models.family import Check, InputLength, Processor, trains_all_weights
from dsocr.models.loading import is_out_of_memory
from dsocr.runs import RunFolder
from dsocr.training.callbacks import Callback
from dsocr.training.distributed import decide_threads, limit_threads
from dsocr.training.feature_cache import cache_features_in_memory
from dsocr.training.lifecycle import describe_lighter_settings, explain_out_of_memory, pin_base
from dsocr.training.preflight import check_setup, errors
from dsocr.training.preview import text_limit, within_budget
from dsocr.training.samples import (
    REMEMBERED_BYTES,
    TIMES_LONGER,
    Collator,
    Setup,
    measure_lengths,
    micro_batches_per_epoch,
    micro_batches_per_step,
    steps_per_epoch,
    total_steps,
)
from dsocr.training.train import (
    PRECISIONS,
    make_optimizer,
    set_up,
)
from dsocr.training.trainer import Trainer

_MIN_SECONDS = 1.0
_MAX_STEPS = 5


@dataclass(frozen=True, slots=True)
class Spread:
    """Order statistics of numbers; each is one of them."""

    min: int
    median: int
    percentile_95: int
    max: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Self:
        """Return the order statistics of at least one number."""
        return cls(*np.percentile(values, (0, 50, 95, 100), method="inverted_cdf").tolist())


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of the training samples: image, text with its end token, whole sequence.

    `too_long` is the number of transcriptions of more than `limit` tokens.
    """

    vision: Spread
    text: Spread
    sequence: Spread
    limit: int
    too_long: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Samples that are trained on, epochs, optimizer steps, micro-batches, and validations."""

    samples: int
    epochs: float
    steps: int
    micro_batches: int
    validations: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of a micro-batch of typical lengths, and peak memory after the longest one.

    `peak_bytes` is what torch allocated on a GPU, the resident set size of the process on a CPU, and None elsewhere;
    `free_bytes` was free before. If image features are cached, `images` are encoded before the first step, unless they
    are cached already.
    """

    device: str
    micro_batch_size: int
    seconds_per_micro_batch: float
    peak_bytes: int | None
    free_bytes: int
    images: int
    seconds_per_image: float
    samples_per_second: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training will take in one process; `measurement` and `seconds` are None if memory ran out.

    `seconds` is the estimated time without validations, and `seconds_before` the part of it in which image features are
    computed, if none are cached.
    """

    tokens: TokenCounts
    schedule: Schedule
    precision: str
    fits: bool
    measurement: Measurement | None
    warnings: tuple[str, ...]
    seconds: float | None
    seconds_before: float


@dataclass(frozen=True, slots=True)
class DryRun:
    """All checks in their order, and what the training would take; the plan is None if a check failed before it."""

    checks: Sequence[Check]
    plan: Plan | None = None

    @property
    def errors(self) -> list[Check]:
        """The checks that failed; if there are none, the training would start and fit into memory."""
        return errors(self.checks)

    def __str__(self) -> str:
        return self.render(str)

    def render(self, form: Callable[[str], str] = for_command_line) -> str:
        """Return the checks as lines, whose remedies name options as typed in a command."""
        lines = []
        for check in self.checks:
            lines.append(f"{check.verdict:<8} {check.name}: {check.message}")
            lines += [f"{'':<9}-> {form(check.fix)}"] if check.fix else []
            lines += [f"{'':<11}{detail}" for detail in check.details]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return checks and plan in JSON's types; `errors` has the names of the checks that failed."""
        return {
            "ready": not self.errors,
            "errors": [check.name for check in self.errors],
            "checks": [asdict(check) for check in self.checks],
            "plan": None if self.plan is None else asdict(self.plan),
        }


def dry_run(config: RunConfig, *, preflight: bool = True, progress: ProgressCallback | None = None) -> DryRun:
    """Check a training and plan it, without starting it; `progress` counts the steps of overfitting.

    Loads the base and makes a few steps to measure time and memory; with `preflight` also overfits a few samples.
    Nothing is written.
    """
    checks: list[Check] = []
    plan: Plan | None = None
    try:
        config, base = pin_base(config, None)
        processor = base.processor(config.input.resolution, config.input.prompt)
        checks.append(Check("base", "ok", f"{config.base} at resolution {processor.resolution_name}"))
        if processor.asked:
            checks.append(Check("prompt", "ok", processor.asked))
        checks.append(_check_run(config))
        if config.learns_alone:
            message = "they are read first, and the surest readings learnt; how long that takes is known then"
            return DryRun([*checks, Check("unlabelled scans", "ok", message)])
        dataset = Dataset.open(config.dataset, fold=config.fold)
        checks.append(_check_dataset(dataset, processor, config))
        if errors(checks):
            return DryRun(checks)
        split = training_samples(dataset, config)
        samples, excluded = within_budget(split, processor, config)
        checks.append(_check_budget(len(samples), excluded, text_limit(processor, config)))
        with explain_out_of_memory(config):
            if busy := limit_threads(config, decide_threads(config, None)):
                checks.append(Check("machine", "warning", busy))
            setup = set_up(config, samples, base)
            trained = f"of the adapter ({config.adapter.target_modules})"
            if trains_all_weights(processor.family, config.adapter.target):
                trained = "of the network"
            message = f"they reach every layer {trained}"
            if left_out := layers_left_out(setup.model, config.adapter.target):
                names = ", ".join(sorted({name.rpartition(".")[2] for name in left_out}))
                message += f"; the set leaves out {counted(len(left_out), 'linear layer')}: {names}"
            checks.append(Check("gradients", "ok", message))
            checks += check_setup(setup, config, thorough=preflight, progress=progress)
            if not errors(checks):
                validates = Split.VALIDATION in dataset.card.splits
                plan = make_plan(config, setup, split, validates=validates)
                checks.append(_check_memory(plan))
                if config.training.unlabelled:
                    checks.append(_check_unlabelled(plan, config))
    except DsocrError as error:
        kinds = {ConfigError: "configuration", DataError: "dataset", ModelError: "base"}
        checks.append(Check(kinds.get(type(error), "run"), "error", str(error), error.hint or ""))
    return DryRun(checks, plan)


def _check_run(config: RunConfig) -> Check:
    run = RunFolder(config.output)
    if run.config.is_file() and (recorded := load_run_config(run.config)).base != config.base:
        message = f"{config.output.as_posix()} holds a run on the base {recorded.base}, not {config.base}"
        return Check("run", "error", message, "an adapter fits its own base only: give `output:` another folder")
    return Check("run", "ok", f"{config.output.as_posix()} can be trained in")


def _check_dataset(dataset: Dataset, processor: Processor, config: RunConfig) -> Check:
    limit = text_limit(processor, config) if config.training.long_text == "error" else None
    findings = check_dataset(dataset, processor, max_text_tokens=limit)
    for severity in ("error", "warning"):
        if listed := findings.of(severity):
            details = tuple(f"{finding.place}: {finding.message} ({finding.count})" for finding in listed)
            fix = listed[0].remedy if severity == "error" else f"see `dsocr check {typed(dataset.folder.as_posix())}`"
            return Check("dataset", severity, f"{counted(len(listed), severity)}: {details[0]}", fix, details)
    return Check("dataset", "ok", f"{len(dataset.samples(Split.TRAIN))} training samples without findings")


def _check_budget(fitting: int, excluded: int, limit: int) -> Check:
    if excluded:
        message = f"{excluded} of {fitting + excluded} texts have more than {limit} tokens and are excluded"
        return Check("text budget", "warning", message, "raise training.max_text_tokens, or cut them into lines")
    return Check("text budget", "ok", f"all {fitting} texts have at most {limit} tokens")


def _check_memory(plan: Plan) -> Check:
    if plan.measurement is None:
        return Check("memory", "error", "a step runs out of memory", plan.warnings[-1])
    peak, size = plan.measurement.peak_bytes, plan.measurement.micro_batch_size
    used = "" if peak is None else f", peak {format_bytes(peak)}"
    return Check("memory", "ok", f"the longest micro-batch, {size} samples, fits{used}")


def _check_unlabelled(plan: Plan, config: RunConfig) -> Check:
    lines = counted(plan.schedule.steps * config.training.batch_size, "line")
    message = f"up to {lines} of the scans are read after the training, and the surest learnt in a second one"
    if plan.seconds is not None:
        minutes = counted(math.ceil(TIMES_LONGER * plan.seconds / 60), "minute")
        message += f"; {minutes} in all at most, without validations"
    return Check("unlabelled scans", "ok", message)


# What it would take


def make_plan(config: RunConfig, setup: Setup, split: Sequence[Sample], *, validates: bool) -> Plan:
    """Plan a training on the samples of `split` that `setup` has; the adapter of `setup` is trained by measuring."""
    samples, lengths = setup.samples.samples, measure_lengths(split, setup.processor)
    kept = {sample.id for sample in samples}
    schedule = _schedule(config, len(samples), validates=validates)
    measurement, seconds, before, warnings = None, None, 0.0, []
    try:
        measurement = measure_training(
            setup, config, [length for sample, length in zip(split, lengths, strict=True) if sample.id in kept]
        )
        before = measurement.images * measurement.seconds_per_image
        seconds = before + schedule.micro_batches * measurement.seconds_per_micro_batch
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        warnings.append(f"training does not fit into memory; lower it with {describe_lighter_settings(config)}")
    tokens = TokenCounts(
        vision=Spread.of([length.vision for length in lengths]),
        text=Spread.of([length.text for length in lengths]),
        sequence=Spread.of([length.sequence for length in lengths]),
        limit=text_limit(setup.processor, config),
        too_long=len(lengths) - len(samples),
    )
    precision = str(setup.dtype).removeprefix("torch.")
    return Plan(tokens, schedule, precision, not warnings, measurement, tuple(warnings), seconds, before)


def _schedule(config: RunConfig, samples: int, *, validates: bool) -> Schedule:
    steps, per_epoch = total_steps(config, samples), steps_per_epoch(config, samples)
    whole, rest = divmod(steps, per_epoch)
    micro_batches = whole * micro_batches_per_epoch(config, samples) + rest * micro_batches_per_step(config)
    # The last step is always followed by a validation.
    validations = -(-steps // config.validation.every_steps) if validates else 0
    return Schedule(samples, steps / per_epoch, steps, micro_batches, validations)


def measure_training(setup: Setup, config: RunConfig, lengths: Sequence[InputLength]) -> Measurement:
    """Train on the longest micro-batch and then on a typical one, with the product's own loop, and measure both.

    `lengths` are those of the setup's samples, in their order. Raises torch.OutOfMemoryError (on a CPU RuntimeError) if
    memory runs out. The adapter is trained by it; random numbers are not touched.
    """
    is_cuda = setup.device.type == "cuda"
    name = {"cpu": "CPU", "mps": "Apple GPU"}.get(setup.device.type) or torch.cuda.get_device_name(setup.device)
    free = torch.cuda.mem_get_info(setup.device)[0] if is_cuda else psutil.virtual_memory().available
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index].sequence)
    size = min(config.training.micro_batch_size, len(lengths))
    longest = by_length[-size:]
    # Spread evenly over the lengths, so as long as a batch drawn at random is on average.
    typical = [by_length[(2 * place + 1) * len(lengths) // (2 * size)] for place in range(size)]
    collate = Collator(setup.processor)
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setup.device)
    with torch.random.fork_rng():
        images = cache_features_in_memory(config, setup)
        seconds_per_image = 0.0
        if images:
            started = time.perf_counter()
            for index in typical:
                setup.samples[index]
            seconds_per_image = (time.perf_counter() - started) / size
        batches = [collate([setup.samples[index] for index in longest])]
        if not images and setup.samples[typical[0]].nbytes * len(setup.samples) > REMEMBERED_BYTES:
            setup.samples.forget()  # training opens the images in every epoch, too
        started = time.perf_counter()
        batches += [collate([setup.samples[index] for index in typical])] * _MAX_STEPS
        preparing = time.perf_counter() - started
        clock = _StepClock()
        Trainer(
            setup.model,
            make_optimizer(setup.model, config.training),
            None,
            batches,
            max_steps=len(batches),
            max_grad_norm=config.training.max_grad_norm,
            precision=PRECISIONS[setup.dtype],
            callbacks=[clock],
            loss_function=setup.processor.family.loss,
            prepare_batch=setup.processor.family.prepare_batch,
            frozen=frozen_towers(setup.model),
        ).fit()
    computing = min(clock.seconds[1:])
    workers = 0 if images else config.training.num_workers
    seconds = max(computing, preparing / workers) if workers else computing + preparing
    peak = _peak_memory(setup.device)
    return Measurement(name, size, seconds, peak, free, images, seconds_per_image, size / seconds)


class _StepClock(Callback):
    """Times every step, and ends the measurement when it has taken long enough."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, trainer: Trainer) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, trainer: Trainer) -> None:
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        self.seconds.append(time.perf_counter() - self._started)
        if len(self.seconds) > 1 and sum(self.seconds[1:]) > _MIN_SECONDS:
            trainer.stop(save=False)


def _peak_memory(device: torch.device) -> int | None:
    """Return the peak of torch's allocated bytes on a GPU, the process's largest resident set size on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu":
        return None
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def format_bytes(size: int) -> str:
    """Format memory for people, e.g. `14.6 GiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
