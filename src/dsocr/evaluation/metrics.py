"""How far a prediction is from its reference: edits over reference length, and what a failed prediction looks like.

Texts are compared as `text.comparable` sees them. Knows nothing about samples, models or files.
"""

import math
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from dsocr.text import comparable, is_blank


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Edit errors over reference length.

    Adding two pools them, so `sum(per_line, ErrorRate())` is the corpus rate: a long line weighs more than a short
    one, as in published results. Nothing is clipped: a prediction much longer than its reference goes over 1.
    """

    errors: int = 0
    length: int = 0

    def __add__(self, other: "ErrorRate") -> "ErrorRate":
        return ErrorRate(self.errors + other.errors, self.length + other.length)

    @property
    def rate(self) -> float:
        """Errors per unit of reference, never NaN: where the reference is empty, 0 without errors, else infinity."""
        if self.length:
            return self.errors / self.length
        return math.inf if self.errors else 0.0


def character_errors(reference: str, prediction: str) -> ErrorRate:
    """Insertions, deletions and substitutions of code points, spaces counted; its rate is the CER."""
    reference, prediction = comparable(reference), comparable(prediction)
    return ErrorRate(Levenshtein.distance(reference, prediction), len(reference))


def word_errors(reference: str, prediction: str) -> ErrorRate:
    """The same over words, which white space divides: punctuation belongs to its word. Its rate is the WER."""
    words, predicted_words = comparable(reference).split(), comparable(prediction).split()
    return ErrorRate(Levenshtein.distance(words, predicted_words), len(words))


def is_exact(reference: str, prediction: str) -> bool:
    """True where both are the same text."""
    return comparable(reference) == comparable(prediction)


def is_empty(prediction: str) -> bool:
    """True where nothing was read."""
    return is_blank(prediction)


def is_runaway(reference: str, prediction: str, truncated: bool) -> bool:
    """True where the model did not find its end: it was cut off, or wrote over twice the reference and 20 characters.

    Such loops and hallucinations are rare and long, so a few of them can dominate a CER; they are counted beside it.
    """
    return truncated or len(comparable(prediction)) > 2 * len(comparable(reference)) + 20
