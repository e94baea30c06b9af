"""A model that reads images: a base alone, or a run's adapter on its base with the settings it was trained with."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr.data.sheets import SheetLine, fill_sheets, folder_of
from dsocr.inference.confidence import (
    UNCALIBRATED,
    Calibration,
    character_confidences,
    line_confidence,
    words_of,
)
from dsocr.inference.generation import Generation
from dsocr.inference.ordering import read_by_length
from dsocr.inference.prediction import Prediction
from dsocr.inference.second_try import without_loops
from dsocr.inference.sheets import LineReading, LinesPerSheet, read_sheets, sheet_limits
from dsocr.model.activation import begins_behind_image
from dsocr.model.adapters import load_adapter
from dsocr.model.encoding import Encoder
from dsocr.model.loading import choose_device, choose_dtype, load_base
from dsocr.model.sheets import line_height
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy

__all__ = ["Prediction", "Transcriber"]

Named = list[tuple[str, Image.Image]]
"""The lines of one sheet, each with its id."""

_MOST_PIXELS = 64_000_000
"""Images are opened ahead until they have so many pixels, at three bytes each."""


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Reads images with one network; `network` may carry an adapter, which `without_adapter` switches off."""

    network: Any
    encoder: Encoder
    generation: Generation
    text_policy: TextPolicy
    lines_per_sheet: LinesPerSheet = 1
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of_run(cls, run: RunFolder, *, precision: str = "auto", merged: bool = False) -> "Transcriber":
        """A finished run's adapter on its base, with the prompt, resolution and text policy it was trained with."""
        return cls.of_adapter(run.adapter, precision=precision, merged=merged)

    @classmethod
    def of_adapter(cls, folder: Path, *, precision: str = "auto", merged: bool = False) -> "Transcriber":
        """An adapter folder with its `reading.json`, on the base that this names.

        `merged` adds the adapter to the base's weights in memory, if it can be: it reads faster, and nothing can be
        switched off.
        """
        settings = ReadingSettings.load(folder)
        device = choose_device()
        base = load_base(settings.base, settings.base_revision, dtype=choose_dtype(precision, device), device=device)
        network = load_adapter(base.network, folder)
        if merged and not begins_behind_image(network):
            network = network.merge_and_unload()
        encoder = base.encoder(settings.resolution, settings.prompt)
        generation = Generation(**settings.generation)
        calibration = Calibration.load(folder)
        return cls(network, encoder, generation, settings.text_policy, settings.lines_per_sheet, calibration)

    def without_adapter(self) -> AbstractContextManager[Any]:
        """A context in which the base reads alone."""
        return self.network.disable_adapter() if hasattr(self.network, "disable_adapter") else nullcontext()

    def read(
        self, images: Iterable[tuple[str, Image.Image]], hand_of: Callable[[str], str | None] = folder_of
    ) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order; images are taken `look_ahead` batches at a time.

        Where lines are read on sheets, images that follow each other share one if `hand_of` says the same of their ids;
        one of which it says None is read alone.
        """
        lines = (
            SheetLine((name, image), hand_of(name), line_height(image.size, self.encoder.resolution))
            for name, image in images
        )
        limits = sheet_limits(self.encoder.resolution, self.lines_per_sheet)
        sheets = ([line.of for line in sheet] for sheet in fill_sheets(lines, limits))
        answered = read_by_length(
            sheets,
            self._read_sheets,
            length=lambda sheet: sum(image.width / image.height for _, image in sheet),
            weight=lambda sheet: sum(image.width * image.height for _, image in sheet),
            most=self.generation.look_ahead * self.generation.samples_per_batch,
            heaviest=_MOST_PIXELS,
        )
        for sheet, readings in answered:
            for (name, _), line in zip(sheet, readings, strict=True):
                yield self._prediction(name, line)

    def _read_sheets(self, sheets: Iterable[Named]) -> Iterator[list[LineReading]]:
        shown = [[image for _, image in sheet] for sheet in sheets]
        answers = list(read_sheets(self.network, self.encoder, self.generation, shown))
        images = [image for sheet in shown for image in sheet]
        lines = [line for answer in answers for line in answer]
        settled = iter(without_loops(self.network, self.encoder, self.generation, images, lines))
        return (list(islice(settled, len(sheet))) for sheet in shown)

    def _prediction(self, name: str, line: LineReading) -> Prediction:
        reading, scales = line.reading, self.calibration
        scored = reading.scored.become(self.text_policy.apply(reading.text))
        return Prediction(
            name,
            scored.text,
            reading.tokens,
            reading.truncated,
            line.read_again,
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
