"""What a training will take, said before it is begun: tokens, memory, steps and, from a probe, time.

Of the dataset, texts and the heads of images are read; of the base, sizes. Only the probe loads weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import torch
from peft import PeftModel

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.data.subsets import training_samples
from dsocr.model.architectures import read_config_json, recognise
from dsocr.model.encoding import Encoder
from dsocr.model.finding import find_base
from dsocr.model.loading import choose_device, choose_dtype, load_outline
from dsocr.model.resolution import find_resolution, resolutions
from dsocr.model.tokenizing import load_encoder
from dsocr.samples import Sample, Split
from dsocr.training.activations import Batch, Computing
from dsocr.training.arguments import forwards_per_epoch, forwards_per_step, steps_per_epoch, total_steps
from dsocr.training.fitting import find_smaller
from dsocr.training.lengths import SampleLength, Spread, measure_lengths, spread, within_budget
from dsocr.training.memory import Memory, Room, estimate_memory, find_room, spoken_bytes, weight_bytes
from dsocr.training.probe import Probe, run_probe
from dsocr.training.process_count import processes_together, thread_count, threads_of_each
from dsocr.training.setup import encoded_samples, fresh_adapter
from dsocr.training.sheets import SheetSamples, counted_in_sheets, lengths_on_sheets

_TIGHT = {"cpu": 0.6, "cuda": 0.9}
"""The share of the free memory above which the estimate cannot say that it will fit. On a CPU a process was measured to
hold 1.6 times what torch had allocated in it; for the allocator of a graphics card a tenth is allowed."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Of each sample of the training split: image slots, text with its end token, the whole sequence.

    Lines that are laid out on sheets are no samples of their own: the sheets are, here and in the schedule.
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
    """What a training will take; `changes` are settings with which it would fit, where it does not.

    `processes` train together; memory is that of each, passes and steps are those of all.
    """

    tokens: Tokens
    schedule: Schedule
    precision: str
    memory: Memory
    room: Room
    fits: bool
    changes: Mapping[str, Any] | None
    probe: Probe | None
    warnings: tuple[str, ...]
    processes: int = 1

    @property
    def seconds(self) -> float | None:
        """How long training will take by the probe, without the readings of the validation split."""
        if self.probe is None:
            return None
        forwards = self.schedule.forwards * self.probe.seconds_per_forward / self.processes
        return self.seconds_before + forwards + self.schedule.steps * self.probe.seconds_per_update

    @property
    def seconds_before(self) -> float:
        """How much of that the vision towers look at images first, if no other training has had them do so."""
        return 0.0 if self.probe is None else self.probe.images * self.probe.seconds_per_image / self.processes

    @property
    def samples_per_second(self) -> float | None:
        """The speed of all processes together by the probe, without the optimizer's steps."""
        return None if self.probe is None else self.probe.samples_per_second * self.processes

    def as_dict(self) -> dict[str, Any]:
        """The plan for programs: bytes and seconds, with the sums."""
        values = asdict(self)
        values["memory"]["total"] = self.memory.total
        if self.probe is not None:
            values["probe"]["samples_per_second"] = self.samples_per_second
        return {**values, "seconds": self.seconds, "seconds_before": self.seconds_before}


def make_plan(config: RunConfig, *, probe: bool = True, progress: Progress | None = None) -> Plan:
    """The plan of a training, of which nothing is begun. Raises DataError where no sample would be trained on.

    The probe is left out where the estimate says that there is too little memory for it.
    """
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    dataset = Dataset.open(config.dataset, fold=config.fold)
    split = training_samples(dataset, config)
    samples, too_long = within_budget(split, encoder, config)
    lengths = measure_lengths(split, encoder, progress)
    trained_on = {sample.id for sample in samples}
    shown = [length for length in lengths if length.id in trained_on]
    data = encoded_samples(config, samples, encoder)
    if isinstance(data, SheetSamples):
        shown = lengths_on_sheets(shown, data.sheets())
    processes = processes_together(config)
    config = counted_in_sheets(config, len(samples), len(data), processes)
    needs = _Needs(config, encoder, samples, shown)

    memory, room = needs.memory(config), find_room(needs.device)
    fits, changes = memory.total <= room.free, None
    warnings = _refusals(config, lengths, too_long)
    if not fits:
        changes = find_smaller(
            config, lambda tried: needs.memory(tried).total, room.free, device=needs.device, smaller=needs.resolutions
        )
        warnings.append(_too_large(memory, room, changes))
    elif memory.total > _TIGHT.get(needs.device.type, 0.6) * room.free:
        warnings.append(f"it may not fit: about {spoken_bytes(memory.total)} of {spoken_bytes(room.free)} are needed")
    probed = None
    if probe and fits:
        try:
            with thread_count(torch.get_num_threads() if processes == 1 else threads_of_each(processes)):
                probed = run_probe(config, samples, needs.lengths)
        except torch.OutOfMemoryError:
            fits = False
            warnings.append(f"it does not fit, whatever the estimate says: a probe ran out of memory on {room.device}")
    return Plan(
        tokens=_tokens(config, lengths if len(data) == len(samples) else shown, too_long),
        schedule=_schedule(config, len(data), reads=Split.VALIDATION in dataset.card.splits),
        precision=str(choose_dtype(config.training.precision, needs.device)).removeprefix("torch."),
        memory=memory,
        room=room,
        fits=fits,
        changes=changes,
        probe=probed,
        warnings=tuple(warnings),
        processes=processes,
    )


def needed_bytes(config: RunConfig) -> Callable[[RunConfig], int]:
    """The estimate of the memory of trainings that differ from this one in their settings only."""
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
    dataset = Dataset.open(config.dataset, fold=config.fold)
    samples, _ = within_budget(training_samples(dataset, config), encoder, config)
    needs = _Needs(config, encoder, samples, measure_lengths(samples, encoder))
    return lambda tried: needs.memory(tried).total


def _refusals(config: RunConfig, lengths: Sequence[SampleLength], too_long: int) -> list[str]:
    if not too_long or config.training.long_text == "exclude":
        return []
    longest = max(length.text for length in lengths) - 1
    count = "1 transcription has" if too_long == 1 else f"{too_long} transcriptions have"
    return [
        f"training will be refused: {count} more than {config.training.max_text_tokens} tokens;"
        f" set training.long_text=exclude, or training.max_text_tokens={longest}"
    ]


def _too_large(memory: Memory, room: Room, changes: Mapping[str, Any] | None) -> str:
    claim = (
        f"it will not fit: about {spoken_bytes(memory.total)} are needed, {spoken_bytes(room.free)} of"
        f" {spoken_bytes(room.total)} are free on {room.device}"
    )
    if changes is None:
        return f"{claim}; neither fewer samples at once nor checkpointing, scope or resolution make it small enough"
    return f"{claim}; it would with {' '.join(f'--set {name}={_yaml(value)}' for name, value in changes.items())}"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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


class _Needs:
    """What trainings take that differ in their settings, but not in their base and samples."""

    def __init__(
        self, config: RunConfig, encoder: Encoder, samples: Sequence[Sample], lengths: Sequence[SampleLength]
    ) -> None:
        self.device = choose_device()
        self.lengths = lengths
        self._encoder = encoder
        self._samples = samples
        self._sheets = config.input.lines_per_sheet != 1
        self._base, self._revision = config.base, config.base_revision
        self._views = {encoder.resolution.name: _views(encoder, lengths)}
        self._models: dict[str, PeftModel] = {}

    @cached_property
    def _folder(self) -> Any:
        return find_base(self._base, self._revision)[0]

    @cached_property
    def _family(self) -> Any:
        return recognise(read_config_json(self._folder), self._folder).family

    @property
    def resolutions(self) -> list[str]:
        """Others to try, with the largest first and those that distort last; none where sheets would be others."""
        if self._sheets:
            return []
        ordered = sorted(resolutions(self._family), key=lambda known: (known.layout == "squash", -known.size))
        return [known.name for known in ordered if known.name != self._encoder.resolution.name]

    def memory(self, config: RunConfig) -> Memory:
        """The estimate for a configuration."""
        training = config.training
        dtype = choose_dtype(training.precision, self.device)
        tokens, views = self._shown(config.input.resolution)
        learnt = max(length.text for length in self.lengths)
        words = len(self._encoder.words_behind_image)
        before = tokens - learnt - words if config.adapter.variant == "alora" else 0
        batch = Batch(min(training.samples_per_forward, len(self.lengths)), tokens, views, learnt, before)
        computing = Computing(dtype, training.attention, training.gradient_checkpointing, self.device.type)
        return estimate_memory(self._model(config), weight_bytes(self._folder, dtype), batch, computing)

    def _shown(self, name: str | None) -> tuple[int, tuple[int, ...]]:
        """The longest sequence and the most views of a sample at a resolution."""
        resolution = find_resolution(self._family, name)
        if resolution.name not in self._views:
            encoder = replace(self._encoder, resolution=resolution)
            self._views[resolution.name] = _views(encoder, measure_lengths(self._samples, encoder))
        return self._views[resolution.name]

    def _model(self, config: RunConfig) -> PeftModel:
        """The network and its adapter without weights."""
        scope = config.adapter.scope
        if scope not in self._models:
            outline = load_outline(self._base, self._revision)
            with torch.device("meta"):
                self._models[scope] = fresh_adapter(outline, config, self._encoder, revision=self._revision)
        return self._models[scope]


def _views(encoder: Encoder, lengths: Sequence[SampleLength]) -> tuple[int, tuple[int, ...]]:
    """The longest sequence, and the sides of the views of the image with the most tiles."""
    resolution = encoder.resolution
    tiles = max(columns * rows for columns, rows in (length.grid for length in lengths))
    sides = (resolution.tiling.size,) * tiles if resolution.tiling is not None and tiles > 1 else ()
    return max(length.sequence for length in lengths), (resolution.size, *sides)
