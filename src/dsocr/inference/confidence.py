"""How likely what was read is right, for each character, word and line, from what the model said of its tokens.

A network's own probabilities are too high or too low by a degree that is much the same all over; a `Scale` turns them
into shares that come true. Only the chosen token's probability is kept, so not the softmax is tempered but its outcome:
`sigmoid(slope * logit(p) + offset)`, which for two classes is temperature (1 / slope) and bias (Platt 1999).
"""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import ConfigDict, NonNegativeFloat, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked
from rapidfuzz.distance import Levenshtein

from dsocr.config import problems_in
from dsocr.errors import RunError
from dsocr.runs import CALIBRATION, to_json, write_atomically
from dsocr.text import is_blank

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_PART = "\ufffd"
"""What a tokenizer makes of bytes that are no whole letter."""
_MOST_PARTS = 4
"""Tokens that a letter of UTF-8 can be spread over; what is no letter by then never becomes one."""


class TokenScore(NamedTuple):
    """The characters `start` to `end` of a text that a token stands for, and its natural log probability.

    The probability is the model's own, before a guard forbade anything; `overruled` where it forbade what the model
    would have written there. The end token, and one of which a text policy has left nothing, stand for no character:
    `start` equals `end`.
    """

    start: int
    end: int
    log_probability: float
    overruled: bool = False


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text with the scores of the tokens it was written with, in their order."""

    text: str
    scores: tuple[TokenScore, ...] = ()

    def lines(self) -> "list[ScoredText]":
        """The text parted at its line breaks, a token with each line that it stands for a part of.

        The token of a line break goes with the line it ends, and the end token with the last one.
        """
        texts = self.text.split("\n")
        begins = [0, *accumulate(len(text) + 1 for text in texts)]
        scores: list[list[TokenScore]] = [[] for _ in texts]
        for score in self.scores:
            first = bisect_right(begins, score.start, hi=len(texts)) - 1
            last = max(first, bisect_right(begins, score.end - 1, hi=len(texts)) - 1)
            for line in range(first, last + 1):
                scores[line].append(_clipped(score, begins[line], len(texts[line])))
        return [ScoredText(text, tuple(of_line)) for text, of_line in zip(texts, scores, strict=True)]

    def cut(self, length: int) -> "ScoredText":
        """The first so many characters, and the tokens that stand for some of them."""
        scores = (_clipped(score, 0, length) for score in self.scores if score.start < length)
        return ScoredText(self.text[:length], tuple(scores))

    def become(self, text: str) -> "ScoredText":
        """The same after a text policy made `text` of it.

        Where characters were exchanged for others, each token of the old ones stands for all new ones, so that what was
        read doubtfully never looks surer than it was.
        """
        if text == self.text or not self.scores:
            return replace(self, text=text)
        starts, ends = [0] * (len(self.text) + 1), [0] * (len(self.text) + 1)
        starts[-1] = len(text)
        for begin, stop, new_begin, new_stop in _changes(self.text, text):
            kept = self.text[begin:stop] == text[new_begin:new_stop]
            for place in range(begin, stop):
                starts[place] = new_begin + place - begin if kept else new_begin
                ends[place + 1] = new_begin + place - begin + 1 if kept else new_stop

        def moved(score: TokenScore) -> TokenScore:
            start = starts[score.start]
            end = max(start, ends[score.end]) if score.end > score.start else start
            return score._replace(start=start, end=end)

        return ScoredText(text, tuple(map(moved, self.scores)))


class Pieces:
    """The characters of token after token, for one tokenizer; what was asked once is remembered."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        self._text_of: dict[int, str] = {}

    def scored(
        self, ids: Sequence[int], log_probabilities: Sequence[float], overruled: Sequence[bool], *, ended: bool
    ) -> ScoredText:
        """The text of some tokens with a score for each; where it has `ended`, the last one is the end token."""
        written = ids[: len(ids) - ended]
        text = self.text(written)
        spans = self._spans(written, text)
        spans += [(len(text), len(text))] * ended
        scores = zip(spans, log_probabilities, overruled, strict=True)
        return ScoredText(text, tuple(TokenScore(*span, score, other) for span, score, other in scores))

    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens."""
        # Not `skip_special_tokens`: for DeepSeek-OCR that would also drop table tags, which are text.
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def _spans(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Where in the text each token stands."""
        spans: list[tuple[int, int]] = []
        pieces: list[str] = []
        waiting: list[int] = []
        begin = whole = 0
        for token in ids:
            waiting.append(token)
            piece = self._of(token) if len(waiting) == 1 else self.text(waiting)
            start, whole = whole, len(piece.rstrip(_PART))
            in_part = whole < len(piece)
            spans.append((begin + min(start, whole), begin + len(piece)))
            if not in_part or len(waiting) == _MOST_PARTS:
                pieces.append(piece)
                begin, whole, waiting = begin + len(piece), 0, []
        pieces.append(self.text(waiting))
        return spans if "".join(pieces) == text else self._spans_of_beginnings(ids)

    def _spans_of_beginnings(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """The same for a tokenizer that writes a token otherwise among others than alone."""
        lengths = [len(self.text(ids[:count])) for count in range(len(ids) + 1)]
        return [(min(start, end), end) for start, end in pairwise(lengths)]

    def _of(self, token: int) -> str:
        if token not in self._text_of:
            self._text_of[token] = self.text([token])
        return self._text_of[token]


def _changes(before: str, after: str) -> Iterator[tuple[int, int, int, int]]:
    """Which stretch of one text became which of the other, equal and exchanged ones by turns."""
    steps = Levenshtein.opcodes(before, after)
    for _, alike in groupby(steps, lambda step: step.tag == "equal"):
        same = list(alike)
        yield same[0].src_start, same[-1].src_end, same[0].dest_start, same[-1].dest_end


def _clipped(score: TokenScore, begin: int, length: int) -> TokenScore:
    """The part of a token that lies within so many characters from `begin`, seen from there."""
    start, end = (min(max(place - begin, 0), length) for place in (score.start, score.end))
    return score._replace(start=start, end=end)


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
            raise RunError(
                f"cannot be read: {error}", where=path, hint="fit it again: dsocr evaluate RUN --calibrate"
            ) from error
        except ValidationError as error:
            told = "; ".join(problems_in(error, list(asdict(cls()))))
            raise RunError(told, where=path, hint="fit it again: dsocr evaluate RUN --calibrate") from error

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


@dataclass(frozen=True, slots=True)
class Prediction:
    """The transcription of one image. `tokens` counts the end token; `truncated` means that none came.

    `tried_again` is a line that ran into a loop and was read a second time, and where that looped too a third time at
    another resolution; `other_resolution` says that its text comes from there. `looping` is one that always ran into a
    loop: its first text is cut off where that begins. `overruled` counts the tokens at which the guard forbade what the
    model would have written. `confidence` is the share of the text that is likely to be right, `words` has the
    likelihood of each word, `characters` of each character, `lines` that share for each line of the text, and `scores`
    what all was told from; None and empty where nothing is known.
    """

    id: str
    text: str
    tokens: int
    truncated: bool
    tried_again: bool = False
    other_resolution: bool = False
    looping: bool = False
    overruled: int = 0
    confidence: float | None = None
    words: tuple[Word, ...] = ()
    characters: tuple[float, ...] = field(default=(), repr=False)
    lines: tuple[float | None, ...] = field(default=(), repr=False)
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)

    @property
    def flags(self) -> tuple[str, ...]:
        """Why to look at it whatever its confidence; docs/guide/confidence.md says what each means."""
        told = {
            "empty": is_blank(self.text),
            "looping": self.looping,
            "truncated": self.truncated,
            "overruled": self.overruled > 0,
            "tried_again": self.tried_again,
            "other_resolution": self.other_resolution,
        }
        return tuple(name for name, true in told.items() if true)

    def parted(self) -> "list[Prediction]":
        """A prediction for each line of the text, with what is told of that; what is told of the whole stays."""
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
        """The prediction as JSON holds it, confidences rounded to what they can tell; `characters` adds theirs."""
        told: dict[str, Any] = {
            "id": self.id,
            "text": self.text,
            "confidence": _rounded(self.confidence),
            "flags": list(self.flags),
            "words": [asdict(word) | {"confidence": _rounded(word.confidence)} for word in self.words],
            "tokens": self.tokens,
            "truncated": self.truncated,
        }
        return told | ({"characters": list(map(_rounded, self.characters))} if characters else {})


def _rounded(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 4)
