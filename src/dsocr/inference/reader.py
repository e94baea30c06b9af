"""A model that reads images: a base alone, or a run's adapter on its base with the settings it was trained with."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr.inference.confidence import (
    UNCALIBRATED,
    Calibration,
    Prediction,
    character_confidences,
    line_confidence,
    words_of,
)
from dsocr.inference.decoding import LineReading, decode, without_loops
from dsocr.inference.generation import Generation, batches, read_by_length
from dsocr.models.adapters import load_adapter
from dsocr.models.deepseek_ocr import Processor
from dsocr.models.loading import choose_device, choose_dtype, load_base
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy

_MOST_PIXELS = 64_000_000
"""Images are opened ahead until they have so many pixels, at three bytes each."""


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Reads images with one network; `network` may carry an adapter, which `without_adapter` switches off."""

    network: Any
    encoder: Processor
    generation: Generation
    text_policy: TextPolicy
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of_run(cls, run: RunFolder, *, precision: str = "auto", merged: bool = False) -> "Transcriber":
        """A finished run's adapter on its base, with the prompt, resolution and text policy it was trained with."""
        return cls.of_adapter(run.adapter, precision=precision, merged=merged)

    @classmethod
    def of_adapter(cls, folder: Path, *, precision: str = "auto", merged: bool = False) -> "Transcriber":
        """An adapter folder with its `reading.json`, on the base that this names.

        `merged` adds the adapter to the base's weights in memory: it reads faster, and nothing can be
        switched off.
        """
        settings = ReadingSettings.load(folder)
        device = choose_device()
        base = load_base(settings.base, settings.base_revision, dtype=choose_dtype(precision, device), device=device)
        network = load_adapter(base.network, folder)
        if merged:
            network = network.merge_and_unload()
        encoder = base.processor(settings.resolution, settings.prompt)
        generation = Generation(**settings.generation)
        calibration = Calibration.load(folder)
        return cls(network, encoder, generation, settings.text_policy, calibration)

    def without_adapter(self) -> AbstractContextManager[Any]:
        """A context in which the base reads alone."""
        return self.network.disable_adapter() if hasattr(self.network, "disable_adapter") else nullcontext()

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order; images are taken `prefetch_batches` batches at a time."""
        answered = read_by_length(
            images,
            self._read_lines,
            length=lambda line: line[1].width / line[1].height,
            weight=lambda line: line[1].width * line[1].height,
            most=self.generation.prefetch_batches * self.generation.batch_size,
            heaviest=_MOST_PIXELS,
        )
        for (name, _), line in answered:
            yield self._prediction(name, line)

    def _read_lines(self, lines: Sequence[tuple[str, Image.Image]]) -> list[LineReading]:
        images = [image for _, image in lines]
        readings = []
        for batch in batches(images, self.generation.batch_size):
            encoded = [self.encoder.encode(image) for image in batch]
            readings += decode(self.network, self.encoder, encoded, self.generation)
        return without_loops(self.network, self.encoder, self.generation, images, readings)

    def _prediction(self, name: str, line: LineReading) -> Prediction:
        reading, scales = line.reading, self.calibration
        scored = reading.scored.become(self.text_policy.apply(reading.text))
        return Prediction(
            name,
            scored.text,
            reading.tokens,
            reading.truncated,
            line.tried_again,
            line.other_resolution,
            reading.looping,
            reading.overruled,
            line_confidence(scored, scales.line),
            words_of(scored, scales.word),
            tuple(character_confidences(scored, scales.character)),
            tuple(line_confidence(part, scales.line) for part in scored.lines()) if scored.scores else (),
            scored.scores,
        )
