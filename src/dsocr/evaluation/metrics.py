"""How far a prediction is from its reference: edits over reference length, and what a failed prediction looks like.

Texts are compared as `text.comparable` sees them. Knows nothing about samples, models or files.
"""

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from rapidfuzz.distance import Levenshtein

from dsocr.text import comparable, is_blank, is_looping


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Edit errors over reference length.

    Adding two pools them, so `sum(per_line, ErrorRate())` is the corpus rate: a long line weighs more than a short
    one, as in published results. Nothing is clipped: a prediction much longer than its reference goes over 1.
    """

    errors: int = 0
    length: int = 0

    def __post_init__(self) -> None:
        if type(self.errors) is not int or type(self.length) is not int:
            raise TypeError(f"errors and length are counted, not {self.errors!r} and {self.length!r}")

    def __add__(self, other: "ErrorRate") -> "ErrorRate":
        return ErrorRate(self.errors + other.errors, self.length + other.length)

    @property
    def rate(self) -> float:
        """Errors per unit of reference, never NaN: where the reference is empty, 0 without errors, else infinity."""
        if self.length:
            return self.errors / self.length
        return math.inf if self.errors else 0.0


def spoken_points(points: float, digits: int = 1) -> str:
    """A difference of two rates in points, e.g. `-0.4`: with more digits where so few would say that there is none.

    What is less than a millionth is no difference but the noise of computing.
    """
    if abs(points) < 1e-6:
        return f"{0.0:+.{digits}f}"
    told = f"{points:+.{digits}f}"
    return told if float(told) else f"{points:+.{-math.floor(math.log10(abs(points)))}f}"


def character_errors(reference: str, prediction: str) -> ErrorRate:
    """Insertions, deletions and substitutions of code points, spaces counted; its rate is the CER."""
    reference, prediction = comparable(reference), comparable(prediction)
    return ErrorRate(Levenshtein.distance(reference, prediction), len(reference))


def word_errors(reference: str, prediction: str) -> ErrorRate:
    """The same over words, which white space divides: punctuation belongs to its word. Its rate is the WER."""
    words, predicted_words = comparable(reference).split(), comparable(prediction).split()
    return ErrorRate(Levenshtein.distance(words, predicted_words), len(words))


def with_words_apart(text: str) -> str:
    """The text with spaces between words and punctuation: a word is letters, marks and numbers in a row, or one sign.

    By Unicode's categories, so a combining accent stays with its letter in every script; `как-то` is three words. Line
    breaks stay.
    """
    for sign in set(text):  # far fewer than characters, so a long text takes little longer than a short one
        if unicodedata.category(sign)[0] not in "LMN" and not sign.isspace():
            text = text.replace(sign, f" {sign} ")
    return text


def apart_word_errors(reference: str, prediction: str) -> ErrorRate:
    """Word errors with punctuation as words of its own."""
    return word_errors(with_words_apart(reference), with_words_apart(prediction))


def is_exact(reference: str, prediction: str) -> bool:
    """True where both are the same text."""
    return comparable(reference) == comparable(prediction)


def is_empty(prediction: str) -> bool:
    """True where nothing was read."""
    return is_blank(prediction)


def is_over_long(reference: str, prediction: str) -> bool:
    """True where more was written than twice the reference and 20 characters.

    Such loops and hallucinations are rare and long, so a few of them can dominate a CER; they are counted beside it.
    """
    return len(comparable(prediction)) > 2 * len(comparable(reference)) + 20


def is_runaway(reference: str, prediction: str, truncated: bool) -> bool:
    """True where the model did not find its end: cut off, or over twice the reference and 20 characters."""
    return truncated or is_over_long(reference, prediction)


def is_caught_in_loop(reference: str, prediction: str) -> bool:
    """True where the prediction ends in a loop that is not in the text itself."""
    return prediction != reference and is_looping(prediction) and not is_looping(reference)


def is_in_wrong_script(reference: str, prediction: str) -> bool:
    """True where most letters of the prediction are of scripts in which the reference has none: Latin for Cyrillic.

    A reference without letters does not tell its script.
    """
    expected = {script_of(character) for character in set(reference)} | {None}
    foreign = {character for character in set(prediction) if script_of(character) not in expected}
    if len(expected) == 1 or not foreign:
        return False
    letters = [character for character in prediction if character.isalpha()]
    return 2 * sum(character in foreign for character in letters) > len(letters)


@lru_cache(maxsize=8192)
def script_of(character: str) -> str | None:
    """The first word of a letter's Unicode name, which is its script: "CYRILLIC", "LATIN"; None for no letter."""
    return unicodedata.name(character, "UNKNOWN").split(" ", 1)[0] if character.isalpha() else None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a line: what stands there, and what was read instead; equal where it was read rightly."""

    written: str
    read: str

    @property
    def right(self) -> bool:
        """True where it was read as it is written."""
        return self.written == self.read


def stretches(reference: str, prediction: str) -> Iterator[Stretch]:
    """The line cut where right and wrong reading meet; edits beside each other are one stretch.

    Texts are compared as the metrics compare them, so the wrong stretches hold the errors that the CER counts.
    """
    reference, prediction = comparable(reference), comparable(prediction)
    for _, edits in groupby(Levenshtein.opcodes(reference, prediction), key=lambda edit: edit.tag == "equal"):
        run = list(edits)
        yield Stretch(reference[run[0].src_start : run[-1].src_end], prediction[run[0].dest_start : run[-1].dest_end])


def marked_differences(reference: str, prediction: str) -> str:
    """The reference with `[-left out-]` and `{+added+}`, as wdiff marks them; what is the same stands plain."""
    return "".join(map(_marked, stretches(reference, prediction)))


def _marked(stretch: Stretch) -> str:
    if stretch.right:
        return stretch.written
    left_out = f"[-{stretch.written}-]" if stretch.written else ""
    return left_out + (f"{{+{stretch.read}+}}" if stretch.read else "")
