"""Samples of a split as the Trainer wants them: encoded on demand, remembered while memory allows, batched."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.utils.data import Dataset

from dsocr.data.images import open_image
from dsocr.model.encoding import Encoded, Encoder, collate
from dsocr.samples import Sample

REMEMBERED_BYTES = 1 << 30
"""Pixels kept in memory, so that images are opened and resized once and not in every epoch: 1 GiB."""


class EncodedSamples(Dataset[Encoded]):
    """The samples of one split as model inputs, in the order given."""

    def __init__(self, samples: Sequence[Sample], encoder: Encoder) -> None:
        self._samples = samples
        self._encoder = encoder
        self._remembered: dict[int, Encoded] = {}
        self._room = REMEMBERED_BYTES

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Encoded:
        if index in self._remembered:
            return self._remembered[index]
        sample = self._samples[index]
        encoded = self._encoder.encode(open_image(sample.image), sample.text)
        if encoded.pixels.nbytes <= self._room:
            self._room -= encoded.pixels.nbytes
            self._remembered[index] = encoded
        return encoded


@dataclass(frozen=True, slots=True)
class Collator:
    """Batches for training: padded right, labels on the transcription and its end token only."""

    pad_id: int

    def __call__(self, samples: Sequence[Encoded]) -> dict[str, Tensor]:
        """The batch on the CPU; the Trainer moves it."""
        return collate(samples, self.pad_id, padding="right")
