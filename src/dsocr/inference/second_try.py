"""What becomes of lines that ran into a loop: each is read once more, and what loops then too is cut off and marked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from dsocr.inference.decoding import Generation, Reading, decode
from dsocr.inference.sheets import LineReading, batches
from dsocr.loops import loop_start
from dsocr.model.encoding import Encoder

_STRICT = 10
"""Tokens in a row that may not come twice in a second try, however far back."""


def without_loops(
    network: Any, encoder: Encoder, generation: Generation, images: Sequence[Image.Image], lines: Sequence[LineReading]
) -> list[LineReading]:
    """The readings of some lines, those that loop replaced; `images` are the lines', one each.

    A second try is greedy, alone and under a stricter guard. If it loops too, the first reading is kept up to where
    its loop begins, and stays `looping`.
    """
    settled = list(lines)
    looping = [place for place, line in enumerate(lines) if line.reading.looping]
    strict = stricter(generation)
    for places in batches(looping, generation.samples_per_batch):
        again = decode(network, encoder, [encoder.encode(images[place]) for place in places], strict)
        for place, second in zip(places, again, strict=True):
            first = lines[place].reading
            kept = second if not (second.looping or second.truncated) else cut_off(first)
            settled[place] = replace(lines[place], reading=kept, tried_again=True)
    return settled


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
