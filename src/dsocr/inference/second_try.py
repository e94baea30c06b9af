"""What becomes of lines that ran into a loop: they are read again, and what always loops is cut off and marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from dsocr.inference.decoding import Reading, decode
from dsocr.inference.generation import Generation
from dsocr.inference.ordering import batches
from dsocr.loops import loop_start
from dsocr.model.encoding import Encoder
from dsocr.model.other_resolution import another_resolution
from dsocr.model.resolution import Resolution

_STRICT = 10
"""Tokens in a row that may not come twice in another try, however far back."""


@dataclass(frozen=True, slots=True)
class LineReading:
    """What was read of one line.

    `tried_again` is one that ran into a loop and was read again under a stricter guard, `other_resolution` one whose
    text was read at another resolution, because it looped then too.
    """

    reading: Reading
    tried_again: bool = False
    other_resolution: bool = False


def without_loops(
    network: Any, encoder: Encoder, generation: Generation, images: Sequence[Image.Image], readings: Sequence[Reading]
) -> list[LineReading]:
    """The readings of some lines, those that loop replaced; `images` are the lines', one each.

    A second try is greedy, alone and under a stricter guard, a third so at another resolution of the base, if it has
    one that shows the line well. If all loop, the first reading is kept up to where its loop begins, and stays
    `looping`.
    """
    settled = list(map(LineReading, readings))
    looping = [place for place, reading in enumerate(readings) if reading.looping]
    strict = stricter(generation)
    left = []
    for place, reading in _read(network, encoder, strict, images, looping):
        is_good = not (reading.looping or reading.truncated)
        kept = reading if is_good else cut_off(readings[place])
        settled[place] = LineReading(kept, tried_again=True)
        left += [] if is_good else [place]
    for resolution, places in _other_looks(encoder, images, left).items():
        other = replace(encoder, resolution=resolution)
        # No more image slots at once than are read at the own resolution.
        fewer = generation.samples_per_batch * encoder.resolution.slots() // resolution.slots()
        bounded = replace(strict, samples_per_batch=max(1, min(fewer, generation.samples_per_batch)))
        for place, reading in _read(network, other, bounded, images, places):
            if not (reading.looping or reading.truncated):
                settled[place] = replace(settled[place], reading=reading, other_resolution=True)
    return settled


def _read(
    network: Any, encoder: Encoder, generation: Generation, images: Sequence[Image.Image], places: Sequence[int]
) -> Iterator[tuple[int, Reading]]:
    """The readings of the images at these places."""
    for batch in batches(places, generation.samples_per_batch):
        readings = decode(network, encoder, [encoder.encode(images[place]) for place in batch], generation)
        yield from zip(batch, readings, strict=True)


def _other_looks(encoder: Encoder, images: Sequence[Image.Image], places: Sequence[int]) -> dict[Resolution, list[int]]:
    """The places of images by another resolution that shows them; those for which there is none are not among them."""
    looks: dict[Resolution, list[int]] = {}
    for place in places:
        if resolution := another_resolution(images[place].size, encoder.resolution, encoder.others):
            looks.setdefault(resolution, []).append(place)
    return looks


def stricter(generation: Generation) -> Generation:
    """The same generation under a guard that sees the whole text and shorter repetitions."""
    size = min(generation.no_repeat_ngram_size or _STRICT, _STRICT)
    return replace(generation, no_repeat_ngram_size=size, no_repeat_ngram_window=generation.max_new_tokens, beams=1)


def cut_off(reading: Reading) -> Reading:
    """A reading that loops, without its loop."""
    start = loop_start(reading.text)
    if start is None:
        return reading
    scored = reading.scored.cut(start)
    return replace(reading, text=scored.text, scores=scored.scores)
