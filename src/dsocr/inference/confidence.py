"""How likely what was read is right, for each character, word and line, from what the model said of its tokens.

A network's own probabilities are too high or too low by a degree that is much the same all over; a `Scale` turns them
into shares that come true. Only the chosen token's probability is kept, so not the softmax is tempered but its outcome:
`sigmoid(slope * logit(p) + offset)`, which for two classes is temperature (1 / slope) and bias (Platt 1999).
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, NonNegativeFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from dsocr.errors import RunError
from dsocr.inference.spans import ScoredText, TokenScore
from dsocr.runs import CALIBRATION, to_json, write_atomically
from dsocr.settings import problems_in

_WORD = re.compile(r"\S+")
_SUREST = 1e-7
"""No probability is taken to be nearer to 0 or 1 than this, so that its odds stay finite."""


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Scale:
    """Probabilities turned into others in the same order; the plain one changes nothing."""

    slope: NonNegativeFloat = 1.0
    offset: float = 0.0

    def __call__(self, probability: float) -> float:
        """The share that comes true where the model says this probability."""
        odds = self.slope * log_odds(probability) + self.offset
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


PLAIN = Scale()


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Calibration:
    """A scale for each kind of confidence; `lines` says how many lines it was fitted on, 0 that it was not."""

    character: Scale = PLAIN
    word: Scale = PLAIN
    line: Scale = PLAIN
    lines: int = 0

    @classmethod
    def load(cls, adapter: Path) -> Self:
        """The calibration in an adapter's folder; the plain one where there is none."""
        path = adapter / CALIBRATION
        try:
            return TypeAdapter(cls).validate_python(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise RunError(f"cannot be read: {error}", where=path, hint="fit it again: dsocr calibrate") from error
        except ValidationError as error:
            told = "; ".join(problems_in(error, list(asdict(cls()))))
            raise RunError(told, where=path, hint="fit it again: dsocr calibrate") from error

    def save(self, adapter: Path) -> None:
        """Lay the calibration into an adapter's folder."""
        write_atomically(adapter / CALIBRATION, self.to_json())

    def to_json(self) -> str:
        """The calibration as an indented JSON object, which `load` reads."""
        return to_json(asdict(self))


UNCALIBRATED = Calibration()


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, which white space divides, where it stands there, and how likely all of it is right."""

    text: str
    start: int
    end: int
    confidence: float


def log_odds(probability: float) -> float:
    """The logarithm of a probability's odds, finite for 0 and 1 too."""
    kept = min(max(probability, _SUREST), 1 - _SUREST)
    return math.log(kept / (1 - kept))


def character_confidences(scored: ScoredText, scale: Scale = PLAIN) -> list[float]:
    """For each character, how likely it is right; empty where there are no scores.

    Tokens that make a letter together have to be right all of them.
    """
    if not scored.scores:
        return []
    sums = [0.0] * len(scored.text)
    for score in scored.scores:
        for place in range(score.start, score.end):
            sums[place] += score.log_probability
    return [scale(math.exp(total)) for total in sums]


def words_of(scored: ScoredText, scale: Scale = PLAIN) -> tuple[Word, ...]:
    """The words of a text, each as likely as all its tokens and the one after them; empty where there are no scores.

    The token that follows tells how sure the model was that the word ends there.
    """
    if not scored.scores:
        return ()
    found: list[Word] = []
    first = 0
    for match in _WORD.finditer(scored.text):
        while first < len(scored.scores) and scored.scores[first].end <= match.start():
            first += 1
        total = sum(score.log_probability for score in _until(scored.scores, first, match.end()))
        found.append(Word(match[0], match.start(), match.end(), scale(math.exp(total))))
    return tuple(found)


def line_confidence(scored: ScoredText, scale: Scale = PLAIN) -> float | None:
    """The share of a text that is likely to be right, on a page too; None where there are no scores.

    It comes from the mean probability of the tokens, the end among them.
    """
    if not scored.scores:
        return None
    return scale(sum(math.exp(score.log_probability) for score in scored.scores) / len(scored.scores))


def _until(scores: Sequence[TokenScore], first: int, end: int) -> Iterator[TokenScore]:
    """The scores from the first one on that stand for a character before `end`, and one more."""
    for score in scores[first:]:
        if score.start >= end:
            yield score
            return
        if score.end > score.start:
            yield score
