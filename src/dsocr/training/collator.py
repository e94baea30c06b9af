"""Samples of a split as the Trainer wants them: opened once, varied every epoch, encoded, batched."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from dsocr.data.augment import Augmentation, changes
from dsocr.data.images import open_image, read_bytes
from dsocr.model.collating import IGNORED, collate, only_learnt
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.views import Views
from dsocr.model.vision_cache import Features, VisionCache
from dsocr.samples import Sample
from dsocr.training.varying import VariedImages

_NO_VIEWS = Views(np.empty((3, 0, 0), dtype=np.uint8))


def _with_features(encoder: Encoder, features: Features, text: str) -> Encoded:
    """A sample with features in place of pixels."""
    prompt, answer = encoder.prompt_ids(features.grid), encoder.answer_ids(text)
    return Encoded(prompt, answer, _NO_VIEWS, encoder.resolution.row_ends, features.tokens)


class EncodedSamples(Dataset[Encoded]):
    """The samples of one split as model inputs, in the order given.

    With an augmentation each image is varied, as drawn from (seed, epoch, index); the Trainer calls `set_epoch`.
    """

    def __init__(
        self, samples: Sequence[Sample], encoder: Encoder, *, augmentation: Augmentation = 0.0, seed: int = 0
    ) -> None:
        self._samples = samples
        self._encoder = encoder
        self._augmentation = augmentation
        self._seed = seed
        # In shared memory, so that worker processes that live on see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._images = VariedImages(samples, encoder.resolution, augmentation=augmentation, seed=seed)
        self._encoded: dict[int, Encoded] = {}
        self._cache: VisionCache | None = None
        self._views = 0
        self._hashes: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def samples(self) -> Sequence[Sample]:
        """What is encoded."""
        return self._samples

    @property
    def encoder(self) -> Encoder:
        """What encodes it."""
        return self._encoder

    @property
    def epoch(self) -> int:
        """The epoch that was told last."""
        return int(self._epoch)

    def __getitem__(self, index: int) -> Encoded:
        if self._cache is not None:
            return self._seen(self._cache, index)
        if not changes(self._augmentation):
            return self._unchanged(index)
        return self._encoder.encode(self.varied(index), self._samples[index].text)

    def varied(self, index: int) -> Image.Image:
        """The image of a sample as it is varied in this epoch, before it is encoded."""
        return self._images.varied(index, self._view)

    def set_epoch(self, epoch: int) -> None:
        """Vary the images anew."""
        self._epoch.fill_(epoch)

    def use_cache(self, cache: VisionCache, views: int) -> None:
        """Take from now on what the vision towers say from a cache; epoch e shows variation e modulo `views`."""
        self._cache = cache
        self._views = views if changes(self._augmentation) else 1

    def keys(self, index: int) -> list[str]:
        """The names in the cache of all variations of a sample's image."""
        assert self._cache is not None
        return [self._cache.key(self._made_of(index, view)) for view in range(self._views)]

    def shown(self, index: int, view: int) -> Encoded:
        """A sample with the pixels of a variation, from its file."""
        image = (
            self._images.varied(index, view) if changes(self._augmentation) else open_image(self._samples[index].image)
        )
        return self._encoder.encode(image, self._samples[index].text)

    def look(self, indices: Sequence[int]) -> None:
        """Have the vision towers look at these samples as they are in this epoch, in one batch, and keep it."""
        assert self._cache is not None
        named = {self._cache.key(self._made_of(index, self._view)): index for index in indices}
        self._cache.fill({key: self.shown(index, self._view) for key, index in named.items()})

    def forget(self) -> None:
        """Give back the memory of what was remembered."""
        self._images.forget()
        self._encoded.clear()

    @property
    def _view(self) -> int:
        return int(self._epoch) % self._views if self._views else int(self._epoch)

    def _seen(self, cache: VisionCache, index: int) -> Encoded:
        """A sample with features in place of pixels; computed where they are not in the cache, or not any more."""
        key = cache.key(self._made_of(index, self._view))
        features = cache.get(key) or cache.fill({key: self.shown(index, self._view)})[key]
        return _with_features(self._encoder, features, self._samples[index].text)

    def _made_of(self, index: int, view: int) -> str:
        """All that the pixels of a variation depend on, beside code and resolution."""
        if index not in self._hashes:
            self._hashes[index] = hashlib.sha256(read_bytes(self._samples[index].image)).hexdigest()
        varied = f" {self._augmentation} {self._seed} {index} {view}" if changes(self._augmentation) else ""
        return self._hashes[index] + varied

    def _unchanged(self, index: int) -> Encoded:
        if index in self._encoded:
            return self._encoded[index]
        encoded = self._encoder.encode(open_image(self._samples[index].image), self._samples[index].text)
        if self._images.takes(encoded.views.nbytes):
            self._encoded[index] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class Filler:
    """A sample that makes a batch full and is not learnt from."""

    sample: Encoded


class WithFillers(Dataset[Encoded | Filler]):
    """Samples, and beyond them each of them again as a filler for the batches of `LengthOrder`."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return 2 * len(self._samples)

    def __getitem__(self, index: int) -> Encoded | Filler:
        repeated, place = divmod(index, len(self._samples))
        encoded: Encoded = self._samples[place]
        return Filler(encoded) if repeated else encoded


@dataclass(frozen=True, slots=True)
class Collator:
    """Batches for training: padded right, logits for what is learnt only, pixels as bytes."""

    pad_id: int

    def __call__(self, samples: Sequence[Encoded | Filler]) -> dict[str, Any]:
        """The batch on the CPU; the Trainer moves it and normalizes its pixels."""
        encoded = [sample.sample if isinstance(sample, Filler) else sample for sample in samples]
        batch = collate(encoded, self.pad_id, padding="right", dtype=torch.uint8)
        batch["labels"][[isinstance(sample, Filler) for sample in samples]] = IGNORED
        return only_learnt(batch)
