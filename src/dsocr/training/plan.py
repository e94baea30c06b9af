"""What a training will take: tokens and steps, counted, and memory and time, measured on real steps."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Any

import psutil
import torch

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, training_samples
from dsocr.document import Split
from dsocr.errors import RunError
from dsocr.io.processes import ProgressCallback
from dsocr.models.family import load_processor
from dsocr.models.loading import choose_device, choose_dtype, is_out_of_memory
from dsocr.runs import RunFolder
from dsocr.training.callbacks import Callback
from dsocr.training.preview import REMEMBERED_BYTES, SampleLength, Spread, measure_lengths, spread, within_budget
from dsocr.training.samples import Collator
from dsocr.training.setup import (
    PRECISIONS,
    Setup,
    cache_features_in_memory,
    causal_loss,
    make_optimizer,
    micro_batches_per_epoch,
    micro_batches_per_step,
    prepare_batch,
    set_up,
    steps_per_epoch,
    total_steps,
)
from dsocr.training.trainer import Trainer

_MIN_SECONDS = 1.0
_MAX_STEPS = 5
_SAMPLING_SECONDS = 0.005


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
    """Time of a micro-batch of typical lengths and peak memory of the longest one.

    `peak_bytes` is what torch allocated on a GPU, the resident set size on a CPU, and None elsewhere; `free_bytes` was
    free before. If image features are cached, `images` are encoded before the first step, unless they are cached.
    """

    device: str
    micro_batch_size: int
    seconds_per_micro_batch: float
    peak_bytes: int | None
    free_bytes: int
    images: int = 0
    seconds_per_image: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples trained on in a second."""
        return self.micro_batch_size / self.seconds_per_micro_batch


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training will take in one process. `measurement` is None if none was made or memory ran out."""

    tokens: TokenCounts
    schedule: Schedule
    precision: str
    fits: bool
    measurement: Measurement | None
    warnings: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """The estimated time of the training without its validations."""
        if self.measurement is None:
            return None
        return self.seconds_before + self.schedule.micro_batches * self.measurement.seconds_per_micro_batch

    @property
    def seconds_before(self) -> float:
        """The part of it in which image features are computed, if none are cached."""
        return 0.0 if self.measurement is None else self.measurement.images * self.measurement.seconds_per_image

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in JSON's types, with the sums."""
        values = asdict(self)
        if self.measurement is not None:
            values["measurement"]["samples_per_second"] = self.measurement.samples_per_second
        return {**values, "seconds": self.seconds, "seconds_before": self.seconds_before}


def make_plan(
    config: RunConfig, *, measure: bool = True, setup: Setup | None = None, progress: ProgressCallback | None = None
) -> Plan:
    """Plan a training without starting it; `progress` counts samples.

    A measurement trains the adapter of `setup`, or of one that is made. Raises DataError if there is no sample to
    train on.
    """
    processor = (
        setup.processor
        if setup
        else load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    )
    dataset = Dataset.open(config.dataset, fold=config.fold)
    split = training_samples(dataset, config)
    samples, too_long = within_budget(split, processor, config)
    lengths = measure_lengths(split, processor, progress)
    kept = {sample.id for sample in samples}
    warnings = _warnings(config, lengths, too_long)
    measurement, fits = None, True
    if measure:
        try:
            with torch.random.fork_rng():
                setup = setup or set_up(config, samples)
                measurement = measure_training(setup, config, [length for length in lengths if length.id in kept])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
            warnings.append(f"training does not fit into memory; lower it with {_lighter(config)}")
    return Plan(
        tokens=TokenCounts(
            vision=spread([length.vision for length in lengths]),
            text=spread([length.text for length in lengths]),
            sequence=spread([length.sequence for length in lengths]),
            limit=config.training.max_text_tokens,
            too_long=too_long,
        ),
        schedule=_schedule(config, len(samples), validates=Split.VALIDATION in dataset.card.splits),
        precision=str(choose_dtype(config.training.precision, choose_device())).removeprefix("torch."),
        fits=fits,
        measurement=measurement,
        warnings=tuple(warnings),
    )


def measure_training(setup: Setup, config: RunConfig, lengths: Sequence[SampleLength]) -> Measurement:
    """Train on the longest micro-batch and then on a typical one, with the product's own loop, and measure both.

    `lengths` are those of the setup's samples, in their order. Raises torch.OutOfMemoryError (on a CPU RuntimeError) if
    memory runs out. The adapter is trained by it; random numbers are not touched.
    """
    name, free = _free_memory(setup.device)
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index].sequence)
    size = min(config.training.micro_batch_size, len(lengths))
    longest = by_length[-size:]
    # Spread evenly over the lengths, so as long as a batch drawn at random is on average.
    typical = [by_length[(2 * place + 1) * len(lengths) // (2 * size)] for place in range(size)]
    collate = Collator(setup.processor.pad_id)
    with torch.random.fork_rng(), measured_peak(setup.device) as peak:
        images = cache_features_in_memory(config, setup)
        seconds_per_image = 0.0
        if images:
            started = time.perf_counter()
            for index in typical:
                setup.samples[index]
            seconds_per_image = (time.perf_counter() - started) / size
        batches = [collate([setup.samples[index] for index in longest])]
        if not images and setup.samples[typical[0]].views.nbytes * len(setup.samples) > REMEMBERED_BYTES:
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
            loss_function=causal_loss,
            prepare_batch=prepare_batch,
        ).fit()
    computing = min(clock.seconds[1:])
    workers = 0 if images else config.training.num_workers
    seconds = max(computing, preparing / workers) if workers else computing + preparing
    return Measurement(name, size, seconds, peak[0], free, images, seconds_per_image)


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


@contextmanager
def measured_peak(device: torch.device) -> Iterator[list[int | None]]:
    """Yield a list of one item that holds the peak memory inside the block after it."""
    peak: list[int | None] = [None]
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak[0] = torch.cuda.max_memory_allocated(device)
    elif device.type == "cpu":
        with _ResidentSize() as resident:
            yield peak
        peak[0] = resident.peak
    else:
        yield peak


@contextmanager
def explain_out_of_memory(config: RunConfig) -> Iterator[None]:
    """Turn running out of memory into RunError with settings that take less; the run folder stays as it is."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        hint = f"run it again with {_lighter(config)}"
        checkpoint = max(RunFolder(config.output).checkpoints.glob("step-*"), default=None)
        if checkpoint is not None:
            hint += (
                f" (with only micro_batch_size and gradient_checkpointing changed it resumes from {checkpoint.name})"
            )
        message = f"training ran out of memory on the {choose_device().type.upper()}"
        # `from None`: the traceback would keep the batch in memory.
        raise RunError(message, code="out-of-memory", where=config.output, hint=hint) from None


def lighter_settings(config: RunConfig) -> dict[str, object]:
    """Return up to three settings that take less memory, first those that change nothing but the speed."""
    training = config.training
    smaller = [n for n in range(1, training.micro_batch_size // 2 + 1) if training.batch_size % n == 0]
    options: list[tuple[str, object]] = [("training.micro_batch_size", smaller[-1])] if smaller else []
    if not training.gradient_checkpointing:
        options.append(("training.gradient_checkpointing", True))
    device = choose_device()
    if choose_dtype("auto", device).itemsize < choose_dtype(training.precision, device).itemsize:
        options.append(("training.precision", "auto"))
    if training.attention != "sdpa":
        options.append(("training.attention", "sdpa"))
    if config.adapter.target_modules != "decoder":
        options.append(("adapter.target_modules", "decoder"))
    if config.adapter.r > 1:
        options.append(("adapter.r", config.adapter.r // 2))
    options.append(("training.max_text_tokens", max(training.max_text_tokens // 2, 1)))
    return dict(options[:3])


def as_overrides(settings: dict[str, object]) -> str:
    """Return the settings as options of the command line: `--set NAME=VALUE ...`."""
    return " ".join(f"--set {name}={str(value).lower()}" for name, value in settings.items())


def format_bytes(size: int) -> str:
    """Format memory for people, e.g. `14.6 GiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def _lighter(config: RunConfig) -> str:
    return f"{as_overrides(lighter_settings(config))} or a smaller input.resolution"


def _warnings(config: RunConfig, lengths: Sequence[SampleLength], too_long: int) -> list[str]:
    if not too_long or config.training.long_text == "exclude":
        return []
    longest = max(length.text for length in lengths) - 1
    return [
        f"training will fail: {too_long} transcriptions have more than {config.training.max_text_tokens} tokens;"
        f" set training.long_text=exclude, or training.max_text_tokens={longest}"
    ]


def _schedule(config: RunConfig, samples: int, *, validates: bool) -> Schedule:
    steps, per_epoch = total_steps(config, samples), steps_per_epoch(config, samples)
    whole, rest = divmod(steps, per_epoch)
    micro_batches = whole * micro_batches_per_epoch(config, samples) + rest * micro_batches_per_step(config)
    # The last step is always followed by a validation.
    validations = -(-steps // config.validation.every_steps) if validates else 0
    return Schedule(samples, steps / per_epoch, steps, micro_batches, validations)


def _free_memory(device: torch.device) -> tuple[str, int]:
    """Return the device's name and its free bytes: a GPU's own memory, else the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device), torch.cuda.mem_get_info(device)[0]
    return "CPU" if device.type == "cpu" else "Apple GPU", psutil.virtual_memory().available


class _ResidentSize:
    """Samples the resident set size of this process in a thread; the system counts no peak for a stretch of time."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.peak = self._size()
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_ResidentSize":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLING_SECONDS):
            self.peak = max(self.peak, self._size())

    def _size(self) -> int:
        return int(self._process.memory_info().rss)
