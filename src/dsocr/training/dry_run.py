"""A dry run: all checks of a run, and its memory and time, measured on real steps."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from dsocr.config import RunConfig, load_run_config
from dsocr.console import format_bytes
from dsocr.data.dataset import training_samples
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DataError, DsocrError, ModelError, for_command_line
from dsocr.html import counted
from dsocr.io.processes import ProgressCallback
from dsocr.job import Job, micro_batches_per_epoch, micro_batches_per_step, steps_per_epoch, total_steps
from dsocr.models.adapters import omitted_layers
from dsocr.models.family import Check, Processor, trains_all_weights
from dsocr.training.callbacks import peak_memory
from dsocr.training.distributed import limit_threads
from dsocr.training.lifecycle import explain_out_of_memory, preserved_process
from dsocr.training.preflight import check_data, check_setup, errors, forward_backward
from dsocr.training.preview import text_limit, within_budget
from dsocr.training.readers import fit_micro_batch, make_optimizer, set_up
from dsocr.training.samples import TIMES_LONGER, Setup, measure_lengths

_MIN_SECONDS, _MAX_STEPS = 1.0, 5
"""Steps of a typical batch are timed until they took so long, or are so many."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of a micro-batch of typical lengths, and peak memory after the longest one; see `peak_memory`.

    Cached image features are computed in every step here, so training is faster.
    """

    device: str
    micro_batch_size: int
    seconds_per_micro_batch: float
    peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, time and memory of a run in one process.

    `tokens` has the minimum, median, 95th percentile and maximum of image, text and whole sequence of the samples.
    """

    tokens: Mapping[str, Mapping[str, int]]
    samples: int
    epochs: float
    steps: int
    micro_batches: int
    validations: int
    precision: str
    measurement: Measurement

    @property
    def seconds(self) -> float:
        """The estimated time without validations."""
        return self.micro_batches * self.measurement.seconds_per_micro_batch


@dataclass(frozen=True, slots=True)
class DryRun:
    """All checks in their order, and the plan, None if one of them failed."""

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
            "plan": self.plan and {**asdict(self.plan), "seconds": self.plan.seconds},
        }


def check_and_plan(job: Job, *, preflight: bool = True, progress: ProgressCallback | None = None) -> DryRun:
    """Check a run and plan it, without starting it; `progress` counts the steps of overfitting.

    Makes a few steps to measure time and memory; with `preflight` also overfits a few samples. Nothing is written.
    """
    checks: list[Check] = []
    plan: Plan | None = None
    base = job.base
    assert base is not None, "a detector makes no dry run"
    config = fit_micro_batch(job.config, base.family)
    try:
        processor = base.processor(config.input.resolution, config.input.prompt)
        checks.append(Check("base", "ok", f"{config.base} at resolution {processor.resolution_name}"))
        if processor.asked:
            checks.append(Check("prompt", "ok", processor.asked))
        run = job.run
        if run.config.is_file() and (recorded := load_run_config(run.config)).base != config.base:
            message = f"{run.path.as_posix()} holds a run on the base {recorded.base}, not {config.base}"
            fix = "an adapter fits its own base only: give `output:` another folder"
            checks.append(Check("run", "error", message, fix))
        if config.learns_alone:
            message = "they are read first, which takes an unknown time; the most confident readings are learnt"
            return DryRun([*checks, Check("unlabelled scans", "ok", message)])
        dataset = job.samples_from
        checks.append(check_data(dataset, processor, config))
        if errors(checks):
            return DryRun(checks)
        split = training_samples(dataset, config)
        samples, excluded = within_budget(split, processor, config)
        if excluded:
            message = f"{excluded} of {len(split)} texts have more than {text_limit(processor, config)} tokens"
            fix = "raise training.max_text_tokens, or cut them into lines; they are skipped"
            checks.append(Check("text budget", "warning", message, fix))
        checks += check_widths(samples, processor)
        with explain_out_of_memory(config), preserved_process():
            if busy := limit_threads(config, None)[1]:
                checks.append(Check("machine", "warning", busy))
            setup = set_up(config, samples, base, start=job.start)
            whole = trains_all_weights(processor.family, config.adapter.target)
            trained = "the network" if whole else f"the adapter ({config.adapter.target_modules})"
            message = f"they reach every layer of {trained}"
            if omitted := omitted_layers(setup.model, config.adapter.target):
                names = ", ".join(sorted({name.rpartition(".")[2] for name in omitted}))
                message += f"; the set omits {counted(len(omitted), 'linear layer')}: {names}"
            checks += [Check("gradients", "ok", message), count_weights(setup.model)]
            checks += check_setup(setup, config, thorough=preflight, progress=progress)
            if not errors(checks):
                plan = make_plan(config, setup, validates=Split.VALIDATION in dataset.card.splits)
                checks += _describe_plan(plan, config)
    except DsocrError as error:
        kinds = {ConfigError: "configuration", DataError: "dataset", ModelError: "base"}
        name = "memory" if error.code == "out-of-memory" else kinds.get(type(error), "run")
        checks.append(Check(name, "error", str(error), error.hint or ""))
    return DryRun(checks, plan)


def count_weights(model: Any) -> Check:
    """Count the weights that are trained, and the memory that all take with gradients and AdamW's two states."""
    weights = list(model.parameters())
    trained = [weight for weight in weights if weight.requires_grad]
    count = f"{sum(weight.numel() for weight in trained):,} of {sum(weight.numel() for weight in weights):,} weights"
    memory = format_bytes(sum(weight.nbytes for weight in weights))
    training = format_bytes(3 * sum(weight.nbytes for weight in trained))
    message = f"{count} are trained; all take {memory}, gradients and optimizer {training}; activations add to it"
    return Check("weights", "ok", message)


def check_widths(samples: Sequence[Sample], processor: Processor) -> list[Check]:
    """Count the texts that are too long for the width of their image, as a line recogniser sees it."""
    tight = [sample for sample in samples if not processor.fits(sample.text, sample.image)]
    if not tight:
        return []
    message = f"{len(tight)} of {len(samples)} texts have more characters than their line has room for"
    fix = "compare them with their images: a line that is drawn wider in training cannot be read whole afterwards"
    return [Check("line width", "warning", f"{message}, the first at {tight[0].place}", fix)]


def _describe_plan(plan: Plan, config: RunConfig) -> list[Check]:
    measured = plan.measurement
    used = "" if measured.peak_bytes is None else f", peak {format_bytes(measured.peak_bytes)}"
    checks = [Check("memory", "ok", f"the longest micro-batch, {measured.micro_batch_size} samples, fits{used}")]
    if config.training.unlabelled:
        lines = counted(plan.steps * config.training.batch_size, "line")
        minutes = counted(math.ceil(TIMES_LONGER * plan.seconds / 60), "minute")
        message = f"up to {lines} are read and learnt from after training, {minutes} in all at most"
        checks.append(Check("unlabelled scans", "ok", f"{message}, without validations"))
    return checks


def make_plan(config: RunConfig, setup: Setup, *, validates: bool) -> Plan:
    """Plan a run on the samples of `setup`, whose adapter is trained to measure it.

    Raises an error of Python or torch if memory runs out.
    """
    lengths = measure_lengths(setup.samples.samples, setup.processor)
    count = len(lengths)
    steps, per_epoch = total_steps(config, count), steps_per_epoch(config, count)
    whole, rest = divmod(steps, per_epoch)
    tokens = {}
    for name in ("vision", "text", "sequence"):
        values = [getattr(length, name) for length in lengths]
        quantiles = np.percentile(values, (0, 50, 95, 100), method="inverted_cdf").tolist()
        tokens[name] = dict(zip(("min", "median", "percentile_95", "max"), quantiles, strict=True))
    return Plan(
        tokens=tokens,
        samples=count,
        epochs=steps / per_epoch,
        steps=steps,
        micro_batches=whole * micro_batches_per_epoch(config, count) + rest * micro_batches_per_step(config),
        # The last step is always followed by a validation.
        validations=-(-steps // config.validation.every_steps) if validates else 0,
        precision=str(setup.dtype).removeprefix("torch."),
        measurement=measure_training(setup, config, [length.sequence for length in lengths]),
    )


def measure_training(setup: Setup, config: RunConfig, lengths: Sequence[int]) -> Measurement:
    """Train on the longest micro-batch and then on a typical one, and measure both.

    `lengths` are those of the setup's samples, in their order.
    """
    is_cuda = setup.device.type == "cuda"
    name = {"cpu": "CPU", "mps": "Apple GPU"}.get(setup.device.type) or torch.cuda.get_device_name(setup.device)
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index])
    size = min(config.training.micro_batch_size, len(lengths))
    # Spread evenly over the lengths, so as long as a batch drawn at random is on average.
    typical = [by_length[(2 * place + 1) * len(lengths) // (2 * size)] for place in range(size)]
    optimizer = make_optimizer(setup.model, config.training)

    def step(indices: Sequence[int]) -> tuple[float, float]:
        """Return the seconds to open the samples, and those of the step."""
        started = time.perf_counter()
        samples = [setup.samples[index] for index in indices]
        opened = time.perf_counter()
        forward_backward(setup.model, setup.processor, samples, setup.dtype)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if is_cuda:
            torch.cuda.synchronize(setup.device)
        return opened - started, time.perf_counter() - opened

    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setup.device)
    step(by_length[-size:])
    opening, first = step(typical)
    spent = [first]
    while len(spent) < _MAX_STEPS and sum(spent) < _MIN_SECONDS:
        spent.append(step(typical)[1])
    workers = config.training.num_workers
    seconds = max(min(spent), opening / workers) if workers else min(spent) + opening
    return Measurement(name, size, seconds, peak_memory(setup.device.type))
