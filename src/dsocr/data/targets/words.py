"""Where words stand on their line, as far as can be told: nobody says it, so they share its width by their letters."""

from collections.abc import Iterator
from dataclasses import dataclass

from dsocr.data.sources.layout import Box


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word, its first character's place in the text, and its box, None where that of the line is not known."""

    text: str
    start: int
    box: Box | None

    @property
    def end(self) -> int:
        """The place after its last character."""
        return self.start + len(self.text)


def placed_words(text: str, box: Box | None) -> Iterator[PlacedWord]:
    """The words of a line, which white space divides."""
    at = 0
    for word in text.split():
        at = text.index(word, at)
        end = at + len(word)
        yield PlacedWord(word, at, None if box is None else _between(box, at / len(text), end / len(text)))
        at = end


def _between(box: Box, begin: float, end: float) -> Box:
    """The part of a box between two shares of its width."""
    left, top, right, bottom = box
    width = right - left
    return left + round(begin * width), top, left + round(end * width), bottom
