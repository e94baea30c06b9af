"""A line's text as ALTO has it: in one `String` with its spaces inside, or in one for each word, with how sure it is.

`WC` is between 0 and 1 (sure), `CC` a digit for each character between 9 and 0 (sure).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dsocr.data.sources.layout import Box
from dsocr.data.targets.markup import without_forbidden
from dsocr.data.targets.spans import escaped
from dsocr.data.targets.words import PlacedWord, placed_words


@dataclass(frozen=True, slots=True)
class Fill:
    """What a line is filled with; `box` is where the line stands.

    `confidence` is 0-1, None where it is not known; `words` has that of each word by its first character's place,
    `characters` that of each character. A word of which none is known has its line's.
    """

    text: str
    confidence: float | None = None
    box: Box | None = None
    words: Mapping[int, float] = field(default_factory=dict)
    characters: Sequence[float] = ()


def content(fill: Fill) -> str:
    """The value of CONTENT for the whole text, in its quotes."""
    return f'"{_quoted(fill.text)}"'


def sureness(fill: Fill) -> str:
    """The attributes that say how sure all of the text is."""
    return _sureness(fill, fill.confidence, 0, len(fill.text))


def one_string(prefix: str, fill: Fill, place: str) -> str:
    """The text as one element; `place` are the attributes that say where it stands."""
    return f"<{prefix}String CONTENT={content(fill)}{place}{sureness(fill)}/>"


def strings(prefix: str, fill: Fill, place: str, box: Box | None, indent: str) -> str:
    """An element for each word and space, each after `indent` but the first.

    One for all where other white space than single spaces divides the words.
    """
    words = list(placed_words(fill.text, box))
    if not words or " ".join(word.text for word in words) != fill.text:
        return one_string(prefix, fill, place)
    further = [
        part for before, word in pairwise(words) for part in (_space(prefix, before, word), _word(prefix, fill, word))
    ]
    return indent.join([_word(prefix, fill, words[0]), *further])


def _word(prefix: str, fill: Fill, word: PlacedWord) -> str:
    told = _sureness(fill, fill.words.get(word.start, fill.confidence), word.start, word.end)
    return f'<{prefix}String CONTENT="{_quoted(word.text)}"{box_attributes(word.box)}{told}/>'


def _space(prefix: str, word: PlacedWord, then: PlacedWord) -> str:
    if word.box is None or then.box is None:
        return f"<{prefix}SP/>"
    return f"<{prefix}SP{box_attributes((word.box[2], word.box[1], then.box[0], word.box[3]))}/>"


def box_attributes(box: Box | None) -> str:
    """The attributes for a box, each with a space before it; none where it is not known."""
    if box is None:
        return ""
    left, top, right, bottom = box
    places = zip(("HPOS", "VPOS", "WIDTH", "HEIGHT"), (left, top, right - left, bottom - top), strict=True)
    return "".join(f' {name}="{number}"' for name, number in places)


def _sureness(fill: Fill, confidence: float | None, start: int, end: int) -> str:
    told = "" if confidence is None else f' WC="{confidence:.4f}"'
    if len(fill.characters) == len(fill.text):
        told += f' CC="{" ".join(str(_doubt(one)) for one in fill.characters[start:end])}"'
    return told


def _doubt(confidence: float) -> int:
    """A confidence as ALTO counts it for characters: tenths that are missing, from 0 to 9."""
    return min(max(int(10 * (1 - confidence) + 1e-9), 0), 9)


def _quoted(text: str) -> str:
    return escaped(without_forbidden(text), quotes=True)
