"""A model that reads images: a base alone, or a run's adapter on its base with the settings it was trained with."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr.inference.decoding import Generation, decode
from dsocr.model.adapters import load_adapter
from dsocr.model.encoding import Encoder
from dsocr.model.loading import choose_device, choose_dtype, load_base
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy


@dataclass(frozen=True, slots=True)
class Prediction:
    """The transcription of one image. `tokens` counts the end token; `truncated` means that none came."""

    id: str
    text: str
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Reads images with one network; `network` may carry an adapter, which `without_adapter` switches off."""

    network: Any
    encoder: Encoder
    generation: Generation
    text_policy: TextPolicy

    @classmethod
    def of_run(cls, run: RunFolder, *, precision: str = "auto") -> "Transcriber":
        """A finished run's adapter on its base, with the prompt, resolution and text policy it was trained with."""
        return cls.of_adapter(run.adapter, precision=precision)

    @classmethod
    def of_adapter(cls, folder: Path, *, precision: str = "auto") -> "Transcriber":
        """An adapter folder with its `reading.json`, on the base that this names."""
        settings = ReadingSettings.load(folder)
        device = choose_device()
        base = load_base(settings.base, settings.base_revision, dtype=choose_dtype(precision, device), device=device)
        network = load_adapter(base.network, folder)
        encoder = base.encoder(settings.resolution, settings.prompt)
        return cls(network, encoder, Generation(**settings.generation), settings.text_policy)

    def without_adapter(self) -> AbstractContextManager[Any]:
        """A context in which the base reads alone."""
        return self.network.disable_adapter() if hasattr(self.network, "disable_adapter") else nullcontext()

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order; images are taken a batch at a time."""
        for batch in _batches(images, self.generation.samples_per_batch):
            samples = [self.encoder.encode(image) for _, image in batch]
            readings = decode(self.network, self.encoder, samples, self.generation)
            for (identifier, _), reading in zip(batch, readings, strict=True):
                yield Prediction(identifier, self.text_policy.apply(reading.text), reading.tokens, reading.truncated)


def _batches(images: Iterable[tuple[str, Image.Image]], size: int) -> Iterator[list[tuple[str, Image.Image]]]:
    iterator = iter(images)
    while batch := list(islice(iterator, size)):
        yield batch
