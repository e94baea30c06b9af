"""Whether confidences come true: what was right of what was read, the error of a calibration, and the fitting of one.

Knows nothing about networks or files; a `Judged` line is all it needs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from dsocr.inference.confidence import (
    PLAIN,
    Calibration,
    Scale,
    character_confidences,
    line_confidence,
    log_odds,
    words_of,
)
from dsocr.inference.spans import ScoredText

BINS = 15
"""Bins of equal width, as Guo et al. (2017) measure the expected calibration error."""
_PRIOR = 1e-2
"""How much staying plain is worth in the fit, as a share of one observation: it keeps a handful from being absolute."""
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Judged:
    """A line that was read, beside what stands there: which characters and words are right, and how much of all."""

    scored: ScoredText
    characters: tuple[bool, ...]
    words: tuple[bool, ...]
    share: float
    errors: int
    length: int

    @classmethod
    def of(cls, scored: ScoredText, reference: str) -> Self:
        """A line beside its reference, each as long as it is: `share` is 1 less the CER, and no less than 0.

        A character is right that a shortest way from one text to the other leaves alone; a word is, whose characters
        all are, and that begins and ends where a word of the reference does.
        """
        text = scored.text
        place_of: list[int | None] = [None] * len(text)
        errors = 0
        for change in Levenshtein.opcodes(text, reference):
            if change.tag == "equal":
                shift = change.dest_start - change.src_start
                for place in range(change.src_start, change.src_end):
                    place_of[place] = place + shift
            else:
                errors += max(change.src_end - change.src_start, change.dest_end - change.dest_start)
        ends = {0, len(reference)} | {place for place, sign in enumerate(reference) if sign.isspace()}
        begins = {place + 1 for place in ends} | {0}

        def is_right(start: int, end: int) -> bool:
            first, last = place_of[start], place_of[end - 1]
            if first is None or last is None or last - first != end - 1 - start:
                return False
            return None not in place_of[start:end] and first in begins and last + 1 in ends

        words = tuple(is_right(word.start, word.end) for word in words_of(scored))
        share = max(0.0, 1 - errors / len(reference)) if reference else float(not text)
        return cls(scored, tuple(place is not None for place in place_of), words, share, errors, len(reference))


@dataclass(frozen=True, slots=True)
class Pairs:
    """What was said beside what came true, each between 0 and 1."""

    said: NDArray[np.float64]
    true: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Self:
        """The pairs as two columns."""
        table = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def scaled(self, scale: Scale) -> "Pairs":
        """The same with what a scale makes of it."""
        return Pairs(np.array([scale(one) for one in self.said]), self.true)

    def bins(self, count: int = BINS) -> "list[Bin]":
        """The pairs by what was said, in bins of equal width; empty bins are left out."""
        places = np.minimum((self.said * count).astype(int), count - 1)
        return [
            Bin(float(self.said[here].mean()), float(self.true[here].mean()), int(here.sum()))
            for here in (places == place for place in range(count))
            if here.any()
        ]

    def calibration_error(self, count: int = BINS) -> float:
        """The expected calibration error: how far what is said is from what comes true, on average over the pairs."""
        return sum(one.count * abs(one.said - one.true) for one in self.bins(count)) / max(len(self.said), 1)


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs that say much the same: the mean of what they say, the share that came true, and how many they are."""

    said: float
    true: float
    count: int


KINDS: dict[str, Callable[[Sequence[Judged], Scale], Pairs]] = {
    "character": lambda lines, scale: Pairs.of(
        pair
        for line in lines
        if line.scored.scores
        for pair in zip(character_confidences(line.scored, scale), map(float, line.characters), strict=True)
    ),
    "word": lambda lines, scale: Pairs.of(
        (word.confidence, float(right))
        for line in lines
        for word, right in zip(words_of(line.scored, scale), line.words, strict=True)
    ),
    "line": lambda lines, scale: Pairs.of(
        (confidence, line.share) for line in lines if (confidence := line_confidence(line.scored, scale)) is not None
    ),
}
"""The pairs of some lines under a scale, for each kind of confidence."""


def fit_calibration(lines: Sequence[Judged]) -> Calibration:
    """The calibration under which what comes true of these lines is likeliest."""
    scales = {kind: fit_scale(pairs(lines, PLAIN)) for kind, pairs in KINDS.items()}
    return Calibration(**scales, lines=len(lines))


def fit_scale(pairs: Pairs) -> Scale:
    """The scale under which what came true is likeliest, by Newton's method on the logistic likelihood.

    What came true may be a share between 0 and 1. Pairs that all came true, or none, give no infinite scale.
    """
    odds = np.array([log_odds(one) for one in pairs.said])
    inputs = np.stack([odds, np.ones_like(odds)], 1)
    plain = np.array([1.0, 0.0])
    found = plain.copy()
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-np.clip(inputs @ found, -500, 500)))
        slope = inputs.T @ (pairs.true - likely) - _PRIOR * (found - plain)
        curve = (inputs * (likely * (1 - likely))[:, None]).T @ inputs + _PRIOR * np.eye(2)
        step = np.linalg.solve(curve, slope)
        found = found + step * min(1.0, 2 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return Scale(max(float(found[0]), 0.0), float(found[1]))
