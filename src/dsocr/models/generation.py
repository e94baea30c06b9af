"""Settings of generation, and a network's answer for an image: its text and the probability of each token.

Needs no torch.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeVar

from dsocr.text import align_spans, loop_start


@dataclass(frozen=True, slots=True)
class Generation:
    """How text is generated.

    The loop guard forbids repeating an n-gram of `no_repeat_ngram_size` tokens within the last `no_repeat_ngram_window`
    ones; 0 switches it off. It spares the tokens of `no_repeat_ngram_whitelist`, given by their text. `num_beams` over
    1 is beam search. `prefetch_batches` batches are opened and sorted by length before they are read. With
    `language_model` "none" the language model that a run may have is not used. With `script` "latin" or "cyrillic"
    line recognisers leave the other script's letters out; "auto" is "any" until a job or a page decides it, which also
    decides the share of its weight that the language model has.
    """

    max_new_tokens: int = 256
    no_repeat_ngram_size: int = 20
    no_repeat_ngram_window: int = 90
    batch_size: int = 16
    no_repeat_ngram_whitelist: Sequence[str] = ("<td>", "</td>")
    num_beams: int = 1
    prefetch_batches: int = 8
    language_model: str = "auto"
    script: str = "auto"
    language_model_share: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return the settings that a configuration may have, as JSON values."""
        values = asdict(self) | {"no_repeat_ngram_whitelist": list(self.no_repeat_ngram_whitelist)}
        del values["language_model_share"]  # decided anew for each job
        return values


Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` items from the first to the last, evenly spread; all if there are fewer."""
    last = len(items) - 1
    places = [last * place / max(1, count - 1) for place in range(count)] if count <= last else range(len(items))
    return [items[round(place)] for place in places]


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class TokenScore(NamedTuple):
    """The characters `start` to `end` of a text that a token stands for, and its natural log probability.

    The probability is the model's own, before the loop guard; `overruled` says that the guard forbade the model's
    choice. The end token, and tokens that a text policy removed, stand for no character (`start` == `end`).
    """

    start: int
    end: int
    log_probability: float
    overruled: bool = False


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A text with the scores of its tokens, in their order.

    `positions` has the middle of each character along a line, 0..1; empty where unknown.
    """

    text: str
    scores: tuple[TokenScore, ...] = ()
    positions: tuple[float, ...] = ()

    def lines(self) -> "list[ScoredText]":
        """Split the text at its line breaks; a token goes with each line that it stands for a part of.

        The token of a line break goes with the line it ends, and the end token with the last line.
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
        """Return the first `length` characters and the tokens that stand for them."""
        scores = (_clipped(score, 0, length) for score in self.scores if score.start < length)
        return ScoredText(self.text[:length], tuple(scores))

    def rewrite(self, text: str) -> "ScoredText":
        """Return the scores for `text`, which a text policy made of this one.

        If characters were replaced, each token of the old ones stands for all new ones, so that an uncertain reading
        never looks more certain than it was.
        """
        if text == self.text or not (self.scores or self.positions):
            return replace(self, text=text)
        starts, ends = [0] * (len(self.text) + 1), [0] * (len(self.text) + 1)
        starts[-1] = len(text)
        positions: list[float] = []
        for old, new in align_spans(self.text, text):
            kept = self.text[old] == text[new]
            begin, stop, new_begin, new_stop = old.start, old.stop, new.start, new.stop
            for place in range(begin, stop):
                starts[place] = new_begin + place - begin if kept else new_begin
                ends[place + 1] = new_begin + place - begin + 1 if kept else new_stop
            if self.positions:  # replaced characters share the place of the old ones
                count, last = new_stop - new_begin, len(self.positions) - 1
                nearest = (min(begin + place * max(stop - begin, 1) // count, last) for place in range(count))
                positions += [self.positions[place] for place in nearest]

        def moved(score: TokenScore) -> TokenScore:
            start = starts[score.start]
            end = max(start, ends[score.end]) if score.end > score.start else start
            return score._replace(start=start, end=end)

        return ScoredText(text, tuple(map(moved, self.scores)), tuple(positions))


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text generated for one image.

    `tokens` counts the end token; a `truncated` text has none. A `looping` text ends in a loop, where it was stopped;
    it is `truncated` too unless the model ended it itself. `scores` has one entry for each token. A `retried` line
    looped and was read again with a stricter guard. `positions` has the middle of each character along the line,
    `plain` the text that a language model changed, `script` the script that was decided for its page.
    """

    text: str
    tokens: int
    truncated: bool
    looping: bool = False
    scores: tuple[TokenScore, ...] = field(default=(), repr=False)
    retried: bool = False
    positions: tuple[float, ...] = field(default=(), repr=False)
    plain: str | None = None
    script: str | None = None

    @property
    def scored(self) -> ScoredText:
        """The text with its scores and positions."""
        return ScoredText(self.text, self.scores, self.positions)

    @property
    def overruled(self) -> int:
        """The number of tokens at which the guard forbade the model's choice."""
        return sum(score.overruled for score in self.scores)

    @property
    def is_complete(self) -> bool:
        """Whether the text neither loops nor is truncated."""
        return not (self.looping or self.truncated)


def cut_loop(decoded: Decoded) -> Decoded:
    """Remove the loop from the end of a text."""
    start = loop_start(decoded.text)
    if start is None:
        return decoded
    scored = decoded.scored.cut(start)
    return replace(decoded, text=scored.text, scores=scored.scores)


def _clipped(score: TokenScore, begin: int, length: int) -> TokenScore:
    """Clip a token's span to `length` characters from `begin`, relative to it."""
    start, end = (min(max(place - begin, 0), length) for place in (score.start, score.end))
    return score._replace(start=start, end=end)
