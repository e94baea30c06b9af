"""How sure a model was of each token it wrote, and which characters of the text the token stands for.

A token of a byte-level tokenizer may be a part of a letter, or end in the middle of one: both tokens then stand for it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from rapidfuzz.distance import Levenshtein

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
