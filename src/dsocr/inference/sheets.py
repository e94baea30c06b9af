"""Lines read together: laid out on a sheet, and the answer parted at its line breaks again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np
from PIL import Image

from dsocr.data.colours import median_colour
from dsocr.data.sheets import SheetLimits
from dsocr.inference.decoding import Reading, decode
from dsocr.inference.generation import Generation
from dsocr.inference.ordering import batches
from dsocr.inference.spans import ScoredText
from dsocr.loops import is_looping
from dsocr.model.encoding import Encoded, Encoder
from dsocr.model.resolution import Resolution
from dsocr.model.sheets import demand_sheets, draw_sheet, sheet_height

LinesPerSheet = int | Literal["auto"]
"""How many lines are shown together: 1, at most so many, or as many as fit."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineReading:
    """What was read of one line; `read_again` alone, because its sheet was answered with another number of lines.

    `tried_again` is one that ran into a loop and was read again under a stricter guard, `other_resolution` one whose
    text was read so at another resolution, because it looped then too.
    """

    reading: Reading
    read_again: bool = False
    tried_again: bool = False
    other_resolution: bool = False


def sheet_limits(resolution: Resolution, lines_per_sheet: LinesPerSheet, tokens: int | None = None) -> SheetLimits:
    """When a sheet is full at a resolution. Raises ConfigError where that shows no sheets."""
    if lines_per_sheet != 1:
        demand_sheets(resolution)
    most = None if lines_per_sheet == "auto" else lines_per_sheet
    return SheetLimits(sheet_height(resolution), most, tokens)


def encode_sheet(encoder: Encoder, images: Sequence[Image.Image], text: str | None = None) -> Encoded:
    """Model inputs for the lines of one sheet, one sample; a single line is shown as lines are without sheets."""
    if len(images) == 1:
        return encoder.encode(images[0], text)
    coloured = [image.convert("RGB") for image in images]
    return encoder.encode(draw_sheet(coloured, encoder.resolution, _paper(coloured)), text, laid_out=True)


def parted(text: str, lines: int) -> list[str] | None:
    """The texts of so many lines in the answer for a sheet; None where it has another number of them."""
    texts = text.split("\n")
    return texts if len(texts) == lines else None


def read_sheets(
    network: Any, encoder: Encoder, generation: Generation, sheets: Iterable[Sequence[Image.Image]]
) -> Iterator[list[LineReading]]:
    """The readings of each sheet's lines, in their order; `max_new_tokens` is what one line may take."""
    for batch in batches(sheets, generation.samples_per_batch):
        longest = max(map(len, batch))
        together = replace(generation, max_new_tokens=longest * generation.max_new_tokens)
        answers = decode(network, encoder, [encode_sheet(encoder, sheet) for sheet in batch], together)
        shared = [_of_lines(answer, len(sheet), encoder) for answer, sheet in zip(answers, batch, strict=True)]
        again = [image for sheet, readings in zip(batch, shared, strict=True) if readings is None for image in sheet]
        alone = _read_alone(network, encoder, generation, again)
        for sheet, readings in zip(batch, shared, strict=True):
            yield list(islice(alone, len(sheet))) if readings is None else readings


def _of_lines(answer: Reading, lines: int, encoder: Encoder) -> list[LineReading] | None:
    """The readings of a sheet's lines; None where they have to be read again."""
    if lines == 1:
        return [LineReading(answer)]
    # An answer without an end has lost a part of its last line, if not more.
    if answer.truncated or answer.looping or parted(answer.text, lines) is None:
        return None
    return [LineReading(_of_line(scored, encoder)) for scored in answer.scored.lines()]


def _of_line(scored: ScoredText, encoder: Encoder) -> Reading:
    tokens = len(encoder.answer_ids(scored.text))
    return Reading(scored.text, tokens, truncated=False, looping=is_looping(scored.text), scores=scored.scores)


def _read_alone(
    network: Any, encoder: Encoder, generation: Generation, images: Sequence[Image.Image]
) -> Iterator[LineReading]:
    for batch in batches(images, generation.samples_per_batch):
        for reading in decode(network, encoder, [encoder.encode(image) for image in batch], generation):
            yield LineReading(reading, read_again=True)


def _paper(images: Sequence[Image.Image]) -> tuple[int, int, int]:
    """The middle one of the colours of the lines' paper, by channel."""
    red, green, blue = np.median([median_colour(image) for image in images], axis=0).astype(int).tolist()
    return red, green, blue
