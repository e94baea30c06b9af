"""Training samples: encoded as model inputs, their order in an epoch, and their batches.

Dataloader workers import this module, so it imports no networks.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, Sampler

from dsocr.data.augment import Augmentation, changes
from dsocr.document import Sample
from dsocr.images import open_image, read_bytes
from dsocr.models.batch import IGNORED, collate, drop_ignored_positions
from dsocr.models.deepseek_images import Views
from dsocr.models.deepseek_ocr import Encoded, Processor
from dsocr.models.feature_cache import FeatureCache, Features
from dsocr.training.preview import VariedImages

_NO_VIEWS = Views(np.empty((3, 0, 0), dtype=np.uint8))


class EncodedSamples(Dataset[Encoded]):
    """The samples of a split as model inputs, augmented by draws from (seed, epoch, index)."""

    def __init__(
        self, samples: Sequence[Sample], processor: Processor, *, augmentation: Augmentation = 0.0, seed: int = 0
    ) -> None:
        self.samples = samples
        self.processor = processor
        self._augmentation = augmentation
        self._seed = seed
        # In shared memory, so that persistent worker processes see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._images = VariedImages(samples, processor.resolution, augmentation=augmentation, seed=seed)
        self._encoded: dict[int, Encoded] = {}
        self._cache: FeatureCache | None = None
        self._views = 0
        self._hashes: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Encoded:
        if self._cache is not None:
            return self._with_features(self._cache, index)
        if changes(self._augmentation):
            return self.processor.encode(self.augmented_image(index), self.samples[index].text)
        return self._unchanged(index)

    def augmented_image(self, index: int) -> Image.Image:
        """Return the image of a sample as augmented in this epoch, before it is encoded."""
        return self._images.varied(index, self._view)

    def set_epoch(self, epoch: int) -> None:
        """Augment as in this epoch, counted from 0."""
        self._epoch.fill_(epoch)

    def use_cache(self, cache: FeatureCache, views: int) -> None:
        """Take image features from a cache; epoch e shows the augmented view e modulo `views`."""
        self._cache = cache
        self._views = views if changes(self._augmentation) else 1

    def cache_keys(self, index: int) -> list[str]:
        """Return the keys of all views of a sample's image in the cache."""
        assert self._cache is not None
        return [self._cache.key(self._pixels_id(index, view)) for view in range(self._views)]

    def encode_view(self, index: int, view: int) -> Encoded:
        """Encode one view of a sample from its file, with pixels."""
        image = (
            self._images.varied(index, view) if changes(self._augmentation) else open_image(self.samples[index].image)
        )
        return self.processor.encode(image, self.samples[index].text)

    def forget(self) -> None:
        """Free the memory of opened and encoded images."""
        self._images.forget()
        self._encoded.clear()

    @property
    def _view(self) -> int:
        return int(self._epoch) % self._views if self._views else int(self._epoch)

    def _with_features(self, cache: FeatureCache, index: int) -> Encoded:
        """Encode a sample with features instead of pixels; those that the cache lost are computed again."""
        key = cache.key(self._pixels_id(index, self._view))
        features: Features = cache.get(key) or cache.fill({key: self.encode_view(index, self._view)})[key]
        prompt, answer = self.processor.prompt_ids(features.grid), self.processor.answer_ids(self.samples[index].text)
        return Encoded(prompt, answer, _NO_VIEWS, self.processor.resolution.row_ends, features.tokens)

    def _pixels_id(self, index: int, view: int) -> str:
        """Identify the pixels of a view, given code and resolution."""
        if index not in self._hashes:
            self._hashes[index] = hashlib.sha256(read_bytes(self.samples[index].image)).hexdigest()
        augmented = f" {self._augmentation} {self._seed} {index} {view}" if changes(self._augmentation) else ""
        return self._hashes[index] + augmented

    def _unchanged(self, index: int) -> Encoded:
        if index in self._encoded:
            return self._encoded[index]
        encoded = self.processor.encode(open_image(self.samples[index].image), self.samples[index].text)
        if self._images.takes(encoded.views.nbytes):
            self._encoded[index] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class Filler:
    """A sample that fills up a batch and is not trained on."""

    sample: Encoded


class SamplesWithFillers(Dataset[Encoded | Filler]):
    """The samples, followed by each of them as a filler, for several ranks: see `LengthGroupedSampler`."""

    def __init__(self, samples: EncodedSamples) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 2 * len(self._samples)

    def __getitem__(self, index: int) -> Encoded | Filler:
        is_filler, place = divmod(index, len(self._samples))
        return Filler(self._samples[place]) if is_filler else self._samples[place]

    def set_epoch(self, epoch: int) -> None:
        """Augment as in this epoch."""
        self._samples.set_epoch(epoch)


@dataclass(frozen=True, slots=True)
class Collator:
    """Makes training batches on the CPU: padded right, labels where there are some, pixels as bytes."""

    pad_id: int

    def __call__(self, samples: Sequence[Encoded | Filler]) -> dict[str, Any]:
        """Collate the samples; fillers get no labels."""
        encoded = [sample.sample if isinstance(sample, Filler) else sample for sample in samples]
        batch = collate(encoded, self.pad_id, padding="right", dtype=torch.uint8)
        batch["labels"][[isinstance(sample, Filler) for sample in samples]] = IGNORED
        return drop_ignored_positions(batch)


class LengthGroupedSampler(Sampler[list[int]]):
    """Batch sampler whose micro-batches hold samples of similar length; each epoch shows every sample once.

    Samples are shuffled and cut into optimizer steps of `batch_size`. Within a step they are sorted by length into
    micro-batches of `micro_batch_size`, which are shuffled again: less padding, and each step still trains on the
    samples drawn for it. Without `group` they stay as drawn.

    With several ranks, each takes every `world_size`-th micro-batch. The epoch is filled up with indices from
    `len(lengths)` on, one beyond for each sample, so that all ranks have equally many full micro-batches; a dataset
    masks these samples (see `SamplesWithFillers`).
    """

    def __init__(
        self,
        lengths: Sequence[int],
        micro_batch_size: int,
        batch_size: int,
        *,
        seed: int,
        group: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._lengths = lengths
        self._micro_batch_size = micro_batch_size
        self._batch_size = batch_size
        self._seed = seed
        self._group = group
        self._rank = rank
        self._world_size = world_size
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Draw the order of this epoch, counted from 0, at the next iteration."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Micro-batches per epoch on this rank."""
        return -(-len(self._lengths) // (self._micro_batch_size * self._world_size))

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order()
        size, count = self._micro_batch_size, len(self._lengths)
        if self._world_size > 1:
            order += [count + place % count for place in range(-count % (size * self._world_size))]
        micro_batches = [order[start : start + size] for start in range(0, len(order), size)]
        return iter(micro_batches[self._rank :: self._world_size])

    def _order(self) -> list[int]:
        rng = random.Random(f"order {self._seed} {self._epoch}")  # noqa: S311
        drawn = list(range(len(self._lengths)))
        rng.shuffle(drawn)
        if not self._group:
            return drawn
        steps = [drawn[start : start + self._batch_size] for start in range(0, len(drawn), self._batch_size)]
        return [index for step in steps for index in self._grouped(step, rng)]

    def _grouped(self, step: list[int], rng: random.Random) -> list[int]:
        """Sort a step into shuffled micro-batches; the last, partial one holds its first samples as drawn."""
        size = self._micro_batch_size
        rest = step[: len(step) % size]
        by_length = sorted(step, key=lambda index: self._lengths[index])
        left_over = set(rest)
        full = [index for index in by_length if index not in left_over]
        micro_batches = [full[start : start + size] for start in range(0, len(full), size)]
        rng.shuffle(micro_batches)
        return [index for batch in [*micro_batches, rest] for index in batch]
