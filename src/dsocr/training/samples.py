"""Training samples: lengths, augmented images, encoded inputs and batches, and the order and number of steps.

Dataloader workers import this module, so it imports no networks.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from PIL import Image
from torch.utils.data import Sampler

from dsocr.data.augment import Augmentation, augment, changes, generator
from dsocr.document import Sample
from dsocr.images import open_image, upright_size
from dsocr.models.family import IGNORED, Encoded, InputLength, Processor
from dsocr.models.token_family import Features

REMEMBERED_BYTES = 1 << 30
"""Memory for opened images, so that they are opened once and not in every epoch: 1 GiB."""

TIMES_LONGER = 3
"""Upper bound on the slowdown from unlabelled scans: no more lines are read than shown."""

Place = tuple[int, int]
"""The index of a sample, and one of its augmented views."""
LoadFeatures = Callable[[int, int], Features]
"""Loads the features of a view of a sample."""


def measure_lengths(samples: Sequence[Sample], processor: Processor) -> list[InputLength]:
    """Measure the length of each sample as `processor` would encode it. Raises DataError for unreadable images."""
    return [processor.measure(sample.text, partial(upright_size, sample.image)) for sample in samples]


Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """Values by index that are made once, and kept up to `REMEMBERED_BYTES`."""

    def __init__(self) -> None:
        self._values: dict[int, Value] = {}
        self._room = REMEMBERED_BYTES

    def get(self, index: int, make: Callable[[], Value], size: Callable[[Value], int]) -> Value:
        """Return a value, made and kept if it is new and there is room for its size."""
        if index in self._values:
            return self._values[index]
        value = make()
        if size(value) <= self._room:
            self._room -= size(value)
            self._values[index] = value
        return value


@dataclass(eq=False)
class EncodedSamples(torch.utils.data.Dataset[Encoded]):
    """The samples of a split as model inputs, augmented by draws from (seed, epoch, index).

    Opened images, or encoded samples if nothing is augmented, are remembered up to `REMEMBERED_BYTES`.
    """

    samples: Sequence[Sample]
    processor: Processor
    _: KW_ONLY
    augmentation: Augmentation = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        # In shared memory, so that persistent worker processes see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self.forget()
        self._load_features: LoadFeatures | None = None
        self._views = 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Encoded:
        view = int(self._epoch) % self._views if self._views else int(self._epoch)
        if self._load_features is not None:
            processor: Any = self.processor  # of a family that caches features
            encoded: Encoded = processor.encode_features(self._load_features(index, view), self.samples[index].text)
            return encoded
        if changes(self.augmentation):
            return self.encode_view(index, view)
        return self._encoded.get(index, partial(self.encode_view, index, view), attrgetter("nbytes"))

    def __getitems__(self, indices: Sequence[int]) -> "list[Encoded | Filler]":
        """Return the samples of a batch; indices beyond all samples are fillers, see `LengthGroupedSampler`."""
        count = len(self)
        return [self[index] if index < count else Filler(self[index - count]) for index in indices]

    def set_epoch(self, epoch: int) -> None:
        """Augment as in this epoch, counted from 0."""
        self._epoch.fill_(epoch)

    def image(self, index: int, view: int) -> Image.Image:
        """Return the image of a sample as augmented for a view, which without a cache is an epoch.

        Images far larger than the resolution are shrunk before they are augmented.
        """
        if not changes(self.augmentation):
            return open_image(self.samples[index].image)
        image = self._opened.get(
            index,
            lambda: self.processor.shrink(open_image(self.samples[index].image)),
            lambda image: image.width * image.height * len(image.getbands()),
        )
        return augment(image, generator(self.seed, view, index), self.augmentation)

    def encode_view(self, index: int, view: int) -> Encoded:
        """Encode one view of a sample, with pixels."""
        return self.processor.encode(self.image(index, view), self.samples[index].text)

    def use_features(self, load: LoadFeatures, views: int) -> None:
        """Take image features instead of pixels; epoch e shows the augmented view e modulo `views`."""
        self._load_features = load
        self._views = views
        self.forget()

    def forget(self) -> None:
        """Free the memory of opened and encoded images."""
        self._opened = Remembered[Image.Image]()
        self._encoded = Remembered[Encoded]()


@dataclass(frozen=True, slots=True)
class OwnReadings:
    """Readings of untranscribed lines, to be learnt beside the transcribed ones.

    The run continues from the weights in `start`; each transcribed sample is shown `times` times as often as a reading.
    """

    start: Path
    samples: Sequence[Sample]
    times: int

    def mix(self, transcribed: Sequence[Sample]) -> list[Sample]:
        """Return the samples of an epoch."""
        return [*(sample for sample in transcribed for _ in range(self.times)), *self.samples]


@dataclass(frozen=True, slots=True)
class Setup:
    """The base with a fresh adapter, or with all weights to be trained, its processor, and the encoded samples."""

    model: Any
    processor: Processor
    samples: EncodedSamples
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Filler:
    """A sample that fills up a batch and is not trained on."""

    sample: Encoded


@dataclass(frozen=True, slots=True)
class Collator:
    """Makes training batches on the CPU: padded right, labels where there are some, pixels as bytes."""

    processor: Processor

    def __call__(self, samples: Sequence[Encoded | Filler]) -> dict[str, Any]:
        """Collate the samples; fillers get no labels."""
        encoded = [sample.sample if isinstance(sample, Filler) else sample for sample in samples]
        batch = self.processor.collate(encoded)
        fillers = [isinstance(sample, Filler) for sample in samples]
        for name in {"labels", "shift_labels"} & batch.keys():
            batch[name][fillers] = IGNORED
        return batch


@dataclass(eq=False)
class LengthGroupedSampler(Sampler[list[int]]):
    """Batch sampler whose micro-batches hold samples of similar length; each epoch shows every sample once.

    Samples are shuffled and cut into optimizer steps of `batch_size`. Within a step they are sorted by length into
    micro-batches of `micro_batch_size`, which are shuffled again: less padding, and each step still trains on the
    samples drawn for it. Without `group` they stay as drawn.

    With several ranks, each takes every `world_size`-th micro-batch. Indices from `len(lengths)` on, samples to mask
    (see `Filler`), fill up the epoch, so that all ranks have equally many full micro-batches.
    """

    lengths: Sequence[int]
    micro_batch_size: int
    batch_size: int
    _: KW_ONLY
    seed: int
    group: bool = True
    rank: int = 0
    world_size: int = 1
    _epoch: int = field(default=0, init=False)

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch, counted from 0, at the next iteration."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Micro-batches per epoch on this rank."""
        return -(-len(self.lengths) // (self.micro_batch_size * self.world_size))

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        size, count = self.micro_batch_size, len(self.lengths)
        if self.world_size > 1:
            order += [count + place % count for place in range(-count % (size * self.world_size))]
        micro_batches = [order[start : start + size] for start in range(0, len(order), size)]
        return iter(micro_batches[self.rank :: self.world_size])

    def _order(self) -> list[int]:
        rng = random.Random(f"order {self.seed} {self._epoch}")  # noqa: S311
        drawn = list(range(len(self.lengths)))
        rng.shuffle(drawn)
        if not self.group:
            return drawn
        steps = [drawn[start : start + self.batch_size] for start in range(0, len(drawn), self.batch_size)]
        return [index for step in steps for index in self._grouped(step, rng)]

    def _grouped(self, step: list[int], rng: random.Random) -> list[int]:
        """Sort a step into shuffled micro-batches; the last, partial one holds its first samples as drawn."""
        size = self.micro_batch_size
        rest, others = step[: len(step) % size], step[len(step) % size :]
        full = sorted(others, key=lambda index: self.lengths[index])
        micro_batches = [full[start : start + size] for start in range(0, len(full), size)]
        rng.shuffle(micro_batches)
        return [index for batch in [*micro_batches, rest] for index in batch]
