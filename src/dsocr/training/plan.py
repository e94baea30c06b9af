"""What a training will take: tokens and steps, counted, and memory and time, measured on real batches."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.data.subsets import training_samples
from dsocr.model.loading import choose_device, choose_dtype
from dsocr.model.out_of_memory import is_out_of_memory
from dsocr.model.tokenizing import load_encoder
from dsocr.samples import Split
from dsocr.training.arguments import forwards_per_epoch, forwards_per_step, steps_per_epoch, total_steps
from dsocr.training.lengths import SampleLength, Spread, measure_lengths, spread, within_budget
from dsocr.training.out_of_memory import as_overrides, lighter_settings
from dsocr.training.probe import Probe, run_probe


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


def make_plan(config: RunConfig, *, probe: bool = True, progress: Progress | None = None) -> Plan:
    """Plan a training without starting it. Raises DataError where no sample would be trained on."""
    encoder = load_encoder(config.base, config.input.resolution, config.input.prompt, config.base_revision)
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
