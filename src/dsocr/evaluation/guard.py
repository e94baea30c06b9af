"""The forgetting guard: a small set that the base could read already, and whether an adapter still reads it.

The set is read line by line with the prompt and settings of the run. Nothing random is drawn, and nothing is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from dsocr.config import GuardSection
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.generation import Generation
from dsocr.inference.ordering import batches
from dsocr.model.encoding import Encoder
from dsocr.model.finding import EMBEDDED
from dsocr.samples import Sample, Split
from dsocr.shipped import shipped
from dsocr.text import is_blank

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRINT = "examples/print"
"""The set that ships for the embedded base."""

NO_GUARD = (
    "no guard set: nothing will tell what the base forgets; `guard.dataset` takes a prepared dataset that it reads well"
)


@dataclass(frozen=True, slots=True)
class GuardReading:
    """The set as the base alone and as the adapter read it; `margin` is in points of CER."""

    name: str
    lines: int
    margin: float
    base: ErrorRate
    adapter: ErrorRate

    @property
    def drop(self) -> float:
        """Points of CER that the adapter reads the set worse than the base; negative where it reads it better."""
        return 100 * (self.adapter.rate - self.base.rate)

    @property
    def is_beyond(self) -> bool:
        """True where the drop is larger than the margin."""
        return self.drop > self.margin + 1e-9

    @property
    def sentence(self) -> str:
        """What became of the set, and beyond the margin what to do about it."""
        told = f"the CER of the guard set ({self.lines} lines of {self.name}) is {self.adapter.rate:.2%}"
        told += f", of the base alone {self.base.rate:.2%}"
        if not self.is_beyond:
            return f"{told}: within the margin of {self.margin:g} points"
        return (
            f"{told}: {self.drop:.1f} points worse, more than the margin of {self.margin:g}. If that matters to you, "
            "use less of the adapter with `dsocr export RUN --adapter FOLDER --scale 0.8`; or train with a lower "
            "learning_rate, fewer epochs, or lines of that kind mixed in"
        )

    def as_dict(self) -> dict[str, Any]:
        """The reading as JSON holds it: CERs are fractions, `drop` and `margin` points of CER."""
        return {
            "dataset": self.name,
            "lines": self.lines,
            "margin": self.margin,
            "characters": self.base.length,
            "base_errors": self.base.errors,
            "adapter_errors": self.adapter.errors,
            "base_cer": self.base.rate,
            "adapter_cer": self.adapter.rate,
            "drop": self.drop,
            "beyond_margin": self.is_beyond,
            "sentence": self.sentence,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The reading that `as_dict` wrote, rebuilt from its counts."""
        rates = (ErrorRate(values[f"{model}_errors"], values["characters"]) for model in ("base", "adapter"))
        return cls(values["dataset"], values["lines"], values["margin"], *rates)


@dataclass(frozen=True, slots=True)
class Guard:
    """The lines of a guard set, what they are called, and how many points of CER they may lose."""

    name: str
    samples: Sequence[Sample]
    margin: float

    @classmethod
    def open(cls, section: GuardSection, base: str) -> "Guard | None":
        """The set that the configuration names, else the one that ships with the base; None where there is none.

        Raises DataError where a named dataset is none, or has no such split or no text.
        """
        folder = section.dataset
        if folder is None and base == EMBEDDED:
            folder = shipped(PRINT)
        if folder is None or not section.lines:
            return None
        try:
            dataset = Dataset.open(folder)
        except DataError as error:
            raise DataError(f"guard.dataset: {error.message}", where=error.where, hint=error.hint) from error
        splits = [Split(section.split)] if section.split else list(Split)
        everything = chain.from_iterable(dataset.samples(split) for split in splits)
        samples = [sample for sample in everything if not is_blank(sample.text)]
        if not samples:
            raise DataError("guard: there is no line to read", where=folder, hint="see guard.dataset and guard.split")
        chosen = min(section.lines, len(samples))
        spread = [samples[place * len(samples) // chosen] for place in range(chosen)]
        return cls(folder.name, spread, section.margin)

    def read(self, network: "PreTrainedModel", encoder: Encoder, generation: Generation) -> ErrorRate:
        """The pooled errors of the network, with its adapter or without, as it is. It is left in evaluation mode."""
        from dsocr.inference.decoding import decode  # slow, and not needed to say that there is no set

        pooled = ErrorRate()
        for samples in batches(self.samples, generation.samples_per_batch):
            images = [encoder.encode(open_image(sample.image)) for sample in samples]
            readings = decode(network, encoder, images, generation)
            for sample, reading in zip(samples, readings, strict=True):
                pooled += character_errors(sample.text, reading.text)
        return pooled

    def compared(self, base: ErrorRate, adapter: ErrorRate) -> GuardReading:
        """Two readings of the set beside each other."""
        return GuardReading(self.name, len(self.samples), self.margin, base, adapter)
