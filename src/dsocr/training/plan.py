"""What a training will take: tokens and steps, counted, and memory and time, measured on real batches."""

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
from dsocr.document import Sample, Split
from dsocr.io.processes import ProgressCallback
from dsocr.models.family import load_processor
from dsocr.models.loading import choose_device, choose_dtype, is_out_of_memory
from dsocr.training.preview import REMEMBERED_BYTES, SampleLength, Spread, measure_lengths, spread, within_budget
from dsocr.training.setup import (
    Collator,
    encoded_samples,
    forwards_per_epoch,
    forwards_per_step,
    keep_features_in_memory,
    pass_through,
    set_up,
    steps_per_epoch,
    total_steps,
)
from dsocr.training.trainer import as_overrides, lighter_settings

_ENOUGH_SECONDS = 1.0
_MOST_PASSES = 5
_SAMPLE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Probe:
    """Measured seconds of a typical batch and of an optimizer step, and the peak memory of the longest batch.

    `peak_bytes` is what torch allocated on a GPU, the resident set size on a CPU, and None elsewhere; `free_bytes` is
    what was free on `device` before. Where the features of frozen vision towers are cached, `images` must be encoded
    before the first step unless they are cached already.
    """

    passes: int
    micro_batch_size: int
    seconds_per_forward: float
    seconds_per_update: float
    device: str
    peak_bytes: int | None
    free_bytes: int
    images: int = 0
    seconds_per_image: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Samples that are trained on in a second, the updates left out."""
        return self.micro_batch_size / self.seconds_per_forward


def run_probe(config: RunConfig, samples: Sequence[Sample], lengths: Sequence[SampleLength]) -> Probe:
    """Warm up on a typical batch, make an optimizer step on the longest one, and time the typical one again.

    `lengths` are those of the samples, in their order. Raises torch.OutOfMemoryError (on a CPU RuntimeError) where the
    device has too little memory.
    """
    device = choose_device()
    name, free = _free_memory(device)
    by_length = sorted(range(len(lengths)), key=lambda index: lengths[index].sequence)
    together = min(config.training.micro_batch_size, len(lengths))
    longest = by_length[-together:]
    # Evenly over the lengths, so that it is as long as a batch drawn at random is on average.
    typical = [by_length[(2 * place + 1) * len(lengths) // (2 * together)] for place in range(together)]
    with torch.random.fork_rng(), measured_peak(device) as peak:
        training = _Training(config, samples, device)
        training.look(longest)
        looking = training.look(typical) / together
        training.forward(typical)
        training.update()  # a first step allocates the optimizer's state
        training.forward(longest)
        update = training.update()
        training.forget_unless_remembered(typical)
        seconds: list[float] = []
        while not seconds or (sum(seconds) < _ENOUGH_SECONDS and len(seconds) < _MOST_PASSES):
            seconds.append(training.forward(typical))
    images = training.images
    looking = looking if images else 0.0
    return Probe(len(seconds) + 2, together, min(seconds), update, name, peak[0], free, images, looking)


class _Training:
    """A training without the Trainer: the same base, adapter, batches, passes and optimizer."""

    def __init__(self, config: RunConfig, samples: Sequence[Sample], device: torch.device) -> None:
        setup = set_up(config, samples)
        self._dtype, self._device = setup.dtype, device
        self._workers = config.training.num_workers
        self._encoder, self._model, self._data = setup.encoder, setup.model, setup.samples
        self._model.config.use_cache = False
        self._optimizer = setup.optimizer or torch.optim.AdamW(
            parameter for parameter in self._model.parameters() if parameter.requires_grad
        )
        self._config, self._samples = config, samples
        self.images = 0
        count = len(self._data)
        epochs = total_steps(config, count) / steps_per_epoch(config, count)
        self.images = keep_features_in_memory(config, self._model, self._data, dtype=self._dtype, epochs=epochs)
        if self.images:
            self._workers = 0  # reading features is quicker than handing them over

    def look(self, indices: Sequence[int]) -> float:
        """The seconds in which the vision towers look at images that are to be kept; none where none are."""
        if not self.images:
            return 0.0
        started = time.perf_counter()
        self._data.look(indices)
        self._wait()
        return time.perf_counter() - started

    def forward(self, indices: Sequence[int]) -> float:
        """The seconds of one batch forward and backward; workers prepare it beside the training."""
        started = time.perf_counter()
        batch = Collator(self._encoder.pad_id)([self._data[index] for index in indices])
        prepared = time.perf_counter()
        pass_through(self._model, batch, self._dtype)
        self._wait()
        computing = time.perf_counter() - prepared
        preparing = prepared - started
        return max(computing, preparing / self._workers) if self._workers else computing + preparing

    def update(self) -> float:
        """The seconds of one optimizer step; the gradients stay, as between two of the same step."""
        started = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.training.max_grad_norm)
        self._optimizer.step()
        self._wait()
        return time.perf_counter() - started

    def forget_unless_remembered(self, indices: Sequence[int]) -> None:
        """Prepare images anew where training would, because they are too many to be kept."""
        if self.images:
            return
        size = max(self._data[index].views.nbytes for index in indices)
        if size * len(self._data) > REMEMBERED_BYTES:
            self._data = encoded_samples(self._config, self._samples, self._encoder)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@contextmanager
def measured_peak(device: torch.device) -> Iterator[list[int | None]]:
    """Yield a list of one item, which holds the peak memory inside the block when it is left."""
    found: list[int | None] = [None]
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield found
        found[0] = torch.cuda.max_memory_allocated(device)
    elif device.type == "cpu":
        with _ResidentSize() as resident:
            yield found
        found[0] = resident.peak
    else:
        yield found


def _free_memory(device: torch.device) -> tuple[str, int]:
    """Return the device's name and its free bytes: a GPU's own memory, else the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device), torch.cuda.mem_get_info(device)[0]
    return "CPU" if device.type == "cpu" else "Apple GPU", psutil.virtual_memory().available


def spoken_bytes(size: int) -> str:
    """Memory as people say it, e.g. `14.6 GiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


class _ResidentSize:
    """Samples the resident set size of this process in a thread; there is no counter for a stretch of time."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.peak = self._now()
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_ResidentSize":
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        return int(self._process.memory_info().rss)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of each sample of the training split: image slots, text with its end token, the whole sequence.

    `too_long` counts the transcriptions of more than `limit` tokens, their end token apart.
    """

    vision: Spread
    text: Spread
    sequence: Spread
    limit: int
    too_long: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often what is done, `samples` being those that are trained on, `readings` those of the validation split."""

    samples: int
    epochs: float
    steps: int
    forwards: int
    readings: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training will take in one process. `probe` is None where it ran out of memory or was not made."""

    tokens: Tokens
    schedule: Schedule
    precision: str
    fits: bool
    probe: Probe | None
    warnings: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """How long training will take by the probe, without the readings of the validation split."""
        if self.probe is None:
            return None
        forwards = self.schedule.forwards * self.probe.seconds_per_forward
        return self.seconds_before + forwards + self.schedule.steps * self.probe.seconds_per_update

    @property
    def seconds_before(self) -> float:
        """How much of that the vision towers look at images first, if no other training has had them do so."""
        return 0.0 if self.probe is None else self.probe.images * self.probe.seconds_per_image

    def as_dict(self) -> dict[str, Any]:
        """The plan for programs: bytes and seconds, with the sums."""
        values = asdict(self)
        if self.probe is not None:
            values["probe"]["samples_per_second"] = self.probe.samples_per_second
        return {**values, "seconds": self.seconds, "seconds_before": self.seconds_before}


def make_plan(config: RunConfig, *, probe: bool = True, progress: ProgressCallback | None = None) -> Plan:
    """Plan a training without starting it. Raises DataError where no sample would be trained on."""
    encoder = load_processor(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    dataset = Dataset.open(config.dataset, fold=config.fold)
    split = training_samples(dataset, config)
    samples, too_long = within_budget(split, encoder, config)
    lengths = measure_lengths(split, encoder, progress)
    trained_on = {sample.id for sample in samples}
    shown = [length for length in lengths if length.id in trained_on]
    device = choose_device()
    warnings = _refusals(config, lengths, too_long)
    probed, fits = None, True
    if probe:
        try:
            probed = run_probe(config, samples, shown)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
            warnings.append(
                f"training does not fit into the memory of the {device.type.upper()};"
                f" lower it with {as_overrides(lighter_settings(config))} or a smaller input.resolution"
            )
    return Plan(
        tokens=_tokens(config, lengths, too_long),
        schedule=_schedule(config, len(samples), reads=Split.VALIDATION in dataset.card.splits),
        precision=str(choose_dtype(config.training.precision, device)).removeprefix("torch."),
        fits=fits,
        probe=probed,
        warnings=tuple(warnings),
    )


def _refusals(config: RunConfig, lengths: Sequence[SampleLength], too_long: int) -> list[str]:
    if not too_long or config.training.long_text == "exclude":
        return []
    longest = max(length.text for length in lengths) - 1
    count = "1 transcription has" if too_long == 1 else f"{too_long} transcriptions have"
    return [
        f"training will be refused: {count} more than {config.training.max_text_tokens} tokens;"
        f" set training.long_text=exclude, or training.max_text_tokens={longest}"
    ]


def _tokens(config: RunConfig, lengths: Sequence[SampleLength], too_long: int) -> Tokens:
    return Tokens(
        vision=spread([length.vision for length in lengths]),
        text=spread([length.text for length in lengths]),
        sequence=spread([length.sequence for length in lengths]),
        limit=config.training.max_text_tokens,
        too_long=too_long,
    )


def _schedule(config: RunConfig, samples: int, *, reads: bool) -> Schedule:
    steps, in_an_epoch = total_steps(config, samples), steps_per_epoch(config, samples)
    whole, rest = divmod(steps, in_an_epoch)
    forwards = whole * forwards_per_epoch(config, samples) + rest * forwards_per_step(config)
    # The last step is always followed by one.
    readings = -(-steps // config.validation.every_steps) if reads else 0
    return Schedule(samples, steps / in_an_epoch, steps, forwards, readings)
