"""Predictions and their confidences: how likely each character, word and line is right.

A network's own probabilities are too high or too low by a degree that is much the same everywhere; a `Scale` fitted on
the validation split corrects them. Only the chosen token's probability is kept, so its outcome is scaled instead of the
softmax: `sigmoid(slope * logit(p) + offset)`, which for two classes is temperature (1 / slope) and bias (Platt 1999).
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, NonNegativeFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from dsocr.config import problems_in
from dsocr.errors import RunError, command
from dsocr.io.work import rewrite_file
from dsocr.models.generation import ScoredText, TokenScore
from dsocr.models.scripts import SCRIPTS
from dsocr.runs import CALIBRATION, to_json
from dsocr.text import is_blank

_WORD = re.compile(r"\S+")
_DIGITS = 4
"""Confidences in files are rounded to this many digits."""
_EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1, so that their odds stay finite."""


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Scale:
    """A monotone correction of probabilities; the default changes nothing."""

    slope: NonNegativeFloat = 1.0
    offset: float = 0.0

    def __call__(self, probability: float) -> float:
        """Return the calibrated probability."""
        odds = self.slope * log_odds(probability) + self.offset
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


PLAIN = Scale()

_FIT_AGAIN = f"fit it again: {command('evaluate', 'RUN', calibrate=True)}"

_UNFAMILIAR, _MUCH_LESS, LEAST_LINES = 0.73, 0.1, 6
"""Lines are unfamiliar if their mean confidence is below this, and so much below the usual; from so many lines on.

`small` reads hands and languages like those it knows with 0.77 and more, others with 0.59 to 0.70, half their letters
wrong (lab/verdicts.md, "Confidence and review").
"""

QUANTILES = 20
"""Steps between the quantiles that a calibration keeps of its lines, from 0 to 100 %."""
_UNLIKE_DISTANCE = 0.25
"""A Kolmogorov-Smirnov distance from the calibration's lines above which, beyond chance, lines are unlike them."""
_CHANCE_DISTANCE = 1.36
"""What chance alone exceeds in 1 of 20 cases is this times sqrt(1/n + 1/m)."""


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Calibration:
    """A scale for each kind of confidence; `lines` is the number of lines it was fitted on, 0 if it was not.

    `line_quantiles` are those of the lines' confidences before scaling, in equal steps; empty if it was not. `unfitted`
    names the kinds whose fit failed; they keep the network's own confidences. `few_hands`: these lines say little about
    other writers.
    """

    character: Scale = PLAIN
    word: Scale = PLAIN
    line: Scale = PLAIN
    lines: int = 0
    line_quantiles: tuple[float, ...] = ()
    unfitted: tuple[str, ...] = ()
    few_hands: bool = False

    @classmethod
    def load(cls, adapter: Path) -> Self:
        """Load the calibration of an adapter; the default if it has none."""
        path = adapter / CALIBRATION
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, ValidationError) as error:
            problem = "; ".join(problems_in(error, list(asdict(cls()))))
            raise RunError(problem, code="calibration-unreadable", where=path, hint=_FIT_AGAIN) from error

    def save(self, adapter: Path) -> None:
        """Save the calibration in an adapter's folder."""
        rewrite_file(adapter / CALIBRATION, self.to_json())

    def to_json(self) -> str:
        """Return the calibration as indented JSON."""
        return to_json(asdict(self))

    @property
    def problem(self) -> str | None:
        """Its fault in a sentence, or None."""
        if not self.unfitted:
            return None
        kinds = " and ".join(f"{kind}s" for kind in self.unfitted)
        return f"Confidences of {kinds} could not be fitted and are the network's own."

    def is_unfamiliar(self, mean: float | None, lines: int) -> bool:
        """Whether lines of this mean confidence are by hands, or in a script, unlike all it was fitted on."""
        if mean is None or lines < LEAST_LINES or not self.line_quantiles:
            return False
        usual = sum(map(self.line, self.line_quantiles)) / len(self.line_quantiles)
        return mean < min(_UNFAMILIAR, usual - _MUCH_LESS)

    def is_unlike(self, confidences: Sequence[float]) -> bool:
        """Whether scaled line confidences, four or more, are clearly unlike those it was fitted on.

        Their Kolmogorov-Smirnov distance is taken at the stored quantiles, on confidences rounded as in files.
        """
        if len(self.line_quantiles) < 2 or not confidences:
            return False
        ordered = sorted(round(confidence, _DIGITS) for confidence in confidences)
        distance = 0.0
        for place, quantile in enumerate(self.line_quantiles):
            level, value = place / (len(self.line_quantiles) - 1), round(self.line(quantile), _DIGITS)
            below, up_to = (cut(ordered, value) / len(ordered) for cut in (bisect_left, bisect_right))
            distance = max(distance, below - level, level - up_to)
        chance = _CHANCE_DISTANCE * math.sqrt(1 / len(confidences) + 1 / max(self.lines, 1))
        return distance > _UNLIKE_DISTANCE + chance


UNCALIBRATED = Calibration()


@dataclass(frozen=True, slots=True)
class Word:
    """A word between white space, its span in the text, and the probability that it is right.

    `left` and `right` are its sides along the line, 0..1; None where unknown.
    """

    text: str
    start: int
    end: int
    confidence: float
    left: float | None = None
    right: float | None = None


def log_odds(probability: float) -> float:
    """Return the logarithm of a probability's odds, finite also for 0 and 1."""
    clipped = min(max(probability, _EPSILON), 1 - _EPSILON)
    return math.log(clipped / (1 - clipped))


def character_confidences(scored: ScoredText, scale: Scale = PLAIN) -> list[float]:
    """Return the probability that each character is right; empty without scores.

    A character made of several tokens is right only if all of them are.
    """
    if not scored.scores:
        return []
    sums = [0.0] * len(scored.text)
    for score in scored.scores:
        for place in range(score.start, score.end):
            sums[place] += score.log_probability
    return [scale(math.exp(total)) for total in sums]


def words_of(scored: ScoredText, scale: Scale = PLAIN) -> tuple[Word, ...]:
    """Return the words of a text, each as likely as all its tokens and the one after them; empty without scores.

    The token that follows shows how certain the model was that the word ends there.
    """
    if not scored.scores:
        return ()
    words: list[Word] = []
    first = 0
    for match in _WORD.finditer(scored.text):
        while first < len(scored.scores) and scored.scores[first].end <= match.start():
            first += 1
        total = 0.0
        for score in scored.scores[first:]:
            is_after = score.start >= match.end()
            if is_after or score.end > score.start:
                total += score.log_probability
            if is_after:
                break
        sides = word_sides(scored.positions, match.start(), match.end())
        words.append(Word(match[0], match.start(), match.end(), scale(math.exp(total)), *sides))
    return tuple(words)


def word_sides(positions: Sequence[float], start: int, end: int) -> tuple[float, float] | tuple[None, None]:
    """Return where a word of a line begins and ends, 0..1, from the middles of its letters; None if unknown.

    It reaches half a letter beyond the middles of its first and last, but not beyond the middles of the gaps around it.
    """
    if not positions:
        return None, None
    half = (positions[-1] - positions[0]) / max(len(positions) - 1, 1) / 2
    if end - start > 1:
        half = (positions[end - 1] - positions[start]) / (end - start - 1) / 2
    before = positions[start - 1] if start else 0.0
    after = positions[end] if end < len(positions) else 1.0
    return max(positions[start] - half, before, 0.0), min(positions[end - 1] + half, after, 1.0)


def line_confidence(scored: ScoredText, scale: Scale = PLAIN) -> float | None:
    """Return the share of a text that is likely right, from the mean probability of its tokens and the end token.

    None without scores.
    """
    if not scored.scores:
        return None
    return scale(sum(math.exp(score.log_probability) for score in scored.scores) / len(scored.scores))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The transcription of one image.

    `tokens` counts the end token; a `truncated` text has none. A `retried` line looped and was read a second time; a
    `looping` line looped again, and its first text is cut at the loop. `overruled` counts tokens at which the loop
    guard forbade the model's choice. `confidence` is the share of the text that is likely right; `words`, `characters`
    and `lines` hold the confidences of these parts, `scores` their sources; None and empty if unknown. `script` is the
    one decided for its page: latin, cyrillic, any (both), unsure, or, of a reader that keeps to a script, that it is
    surely not that one. `plain` is the reading without the language model, None if there is none. A
    `page_shaped` image looks like a page, and was read as a line.
    """

    id: str
    text: str
    tokens: int
    truncated: bool
    retried: bool = False
    looping: bool = False
    overruled: int = 0
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    characters: tuple[float, ...] = field(default=(), repr=False)
    lines: tuple[float | None, ...] = field(default=(), repr=False)
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)
    script: str | None = None
    plain: str | None = field(default=None, repr=False)
    page_shaped: bool = field(default=False, repr=False)

    def rescore(self, scored: ScoredText, scales: Calibration) -> "Prediction":
        """Return it with another text, and the confidences that follow from its scores."""
        return replace(
            self,
            text=scored.text,
            confidence=line_confidence(scored, scales.line),
            words=words_of(scored, scales.word),
            characters=tuple(character_confidences(scored, scales.character)),
            lines=tuple(line_confidence(part, scales.line) for part in scored.lines()) if scored.scores else (),
            scores=scored.scores,
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Reasons to check the line whatever its confidence."""
        conditions = {
            "empty": is_blank(self.text),
            "looping": self.looping,
            "truncated": self.truncated,
            "overruled": self.overruled > 0,
            "retried": self.retried,
            "page_shaped": self.page_shaped,
            "script": self.script not in (None, "any", *SCRIPTS),
        }
        return tuple(name for name, holds in conditions.items() if holds)

    def split_lines(self) -> "list[Prediction]":
        """Return a prediction for each line of the text, with its own confidences and the flags of the whole."""
        texts = self.text.split("\n")
        begins = [0, *accumulate(len(text) + 1 for text in texts)]
        confidences = self.lines or (None,) * len(texts)
        return [
            replace(
                self,
                text=text,
                confidence=confidence,
                words=tuple(
                    replace(word, start=word.start - begin, end=word.end - begin)
                    for word in self.words
                    if begin <= word.start < begin + len(text)
                ),
                characters=self.characters[begin : begin + len(text)],
                lines=(confidence,),
                scores=(),
            )
            for text, begin, confidence in zip(texts, begins, confidences, strict=False)
        ]

    def as_dict(self, *, characters: bool = False) -> dict[str, Any]:
        """Return JSON values, confidences rounded to four digits; `characters` adds those of single characters."""
        values: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "confidence": _rounded(self.confidence),
            "flags": list(self.flags),
            "words": [
                {"text": word.text, "start": word.start, "end": word.end, "confidence": _rounded(word.confidence)}
                | ({} if word.left is None else {"left": _rounded(word.left), "right": _rounded(word.right)})
                for word in self.words
            ],
            "tokens": self.tokens,
            "truncated": self.truncated,
        }
        values |= {"script": self.script} if self.script else {}
        return values | ({"characters": list(map(_rounded, self.characters))} if characters else {})


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, _DIGITS)
