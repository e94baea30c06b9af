"""Combine readings of the same line: align them by characters, and vote by confidence (ROVER, Fiscus 1997).

Readings differ in spans of the aligned characters. In each, the candidate with the highest score is taken: the sum,
over the readers that have it, of a bias and a weight times the mean log odds of its characters. Bias and weight of each
reader are fitted on lines with ground truth (`evaluation.second_reader`). Without a fit, and where a vote does not
help, the text is that of one reader, and the others only say which characters are disputed.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple, Protocol, Self

from PIL import Image
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked
from rapidfuzz.distance import Levenshtein

from dsocr.inference.confidence import UNCALIBRATED, Calibration, Prediction, Word, log_odds
from dsocr.inference.prediction_files import LinePlace, PlacedTexts
from dsocr.models.decoded import ScoredText, TokenScore
from dsocr.runs import to_json

SpanUnit = Literal["character", "word"]
_TOGETHER = 64
"""Lines that one reader reads before the next does."""
Column = tuple[str, ...]
"""Aligned characters, one of each reading; empty for a reading that has none there."""


def align(texts: Sequence[str]) -> list[Column]:
    """Align texts by characters; the characters of one text in all columns, joined, are that text.

    Each is aligned with the longest by a shortest edit path; what several insert at the same place is aligned again.
    """
    if not any(texts):
        return []
    longest = max(texts, key=len)
    kept = [[""] * len(texts) for _ in longest]
    inserted = [[""] * len(texts) for _ in range(len(longest) + 1)]
    for number, text in enumerate(texts):
        for step in Levenshtein.opcodes(longest, text):
            part = text[step.dest_start : step.dest_end]
            if step.tag == "insert":
                inserted[step.src_start][number] += part
            elif step.tag != "delete":
                for place, character in enumerate(part, step.src_start):
                    kept[place][number] = character
    columns: list[Column] = []
    for place, between in enumerate(inserted):
        columns += align(between)
        columns += [tuple(column) for column in kept[place : place + 1]]
    return columns


class AlignedSpan(NamedTuple):
    """Neighbouring columns, in all of which readings agree or do not.

    `texts` has what each reading has there, `starts` where that begins, `odds` its mean log odds: of the characters on
    both sides if it has none there, 0 if unknown.
    """

    texts: tuple[str, ...]
    starts: tuple[int, ...]
    odds: tuple[float, ...]

    @property
    def candidates(self) -> list[str]:
        """The different texts, that of the first reading first."""
        return list(dict.fromkeys(self.texts))

    def features(self, candidate: str) -> list[float]:
        """Return what weights are multiplied with: who has the candidate, with which odds, and whether it is empty."""
        has = [float(text == candidate) for text in self.texts]
        return [*has, *(one * odds for one, odds in zip(has, self.odds, strict=True)), float(not candidate)]


def divide(readings: Sequence[Prediction], unit: SpanUnit) -> list[AlignedSpan]:
    """Divide readings of a line into spans; with the unit "word", disputed spans end at white space that all have."""
    columns = align([reading.text for reading in readings])
    agreed = [len(set(column)) == 1 for column in columns]
    if unit == "word":
        begin = 0
        for place in range(len(columns) + 1):
            if place == len(columns) or (agreed[place] and columns[place][0].isspace()):
                agreed[begin:place] = [all(agreed[begin:place])] * (place - begin)
                begin = place + 1
    borders = [place for place in range(1, len(columns)) if agreed[place] != agreed[place - 1]]
    found: list[AlignedSpan] = []
    starts = [0] * len(readings)
    for start, end in zip([0, *borders], [*borders, len(columns)], strict=True):
        texts = tuple(map("".join, zip(*columns[start:end], strict=True))) or ("",) * len(readings)
        odds = tuple(map(_mean_odds, readings, starts, texts))
        found.append(AlignedSpan(texts, tuple(starts), odds))
        starts = [begin + len(text) for begin, text in zip(starts, texts, strict=True)]
    return found


def _mean_odds(reading: Prediction, start: int, text: str) -> float:
    beside = reading.characters[max(start - 1, 0) : start + 1]
    odds = [log_odds(one) for one in reading.characters[start : start + len(text)] or beside]
    return sum(odds) / len(odds) if odds else 0.0


@checked(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Vote:
    """How readings are combined.

    `weights` are the biases of the readers, the weights of their log odds, and the bias of a candidate without
    characters. If `kept` is a reader's number, its text is taken as it is. A character of the combined text is right
    with the log odds `doubt[0] + doubt[1] * (mean log odds of its readers) + doubt[2] * (1 if disputed)`.
    `cers` are those of each reader alone, then of the vote, on the `lines` that the vote was fitted on (the vote's by
    cross-validation). `digests` change when a reader does. `notes` are sentences on what the fit could not use.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...] = ()
    unit: SpanUnit = "character"
    kept: int | None = 0
    doubt: tuple[float, float, float] = (0.0, 1.0, -1.5)
    calibration: Calibration = UNCALIBRATED
    lines: int = 0
    cers: tuple[float, ...] = ()
    digests: tuple[str | None, ...] = ()
    notes: tuple[str, ...] = ()

    def among(self, present: Sequence[int]) -> Self:
        """Return the vote of some of the readers."""
        count = len(self.names)
        places = [*present, *(count + one for one in present), 2 * count]
        kept = present.index(self.kept) if self.kept in present else None if self.kept is None else 0
        weights = tuple(self.weights[place] for place in places) if self.weights else ()
        return replace(self, names=tuple(self.names[one] for one in present), weights=weights, kept=kept)

    def choose(self, span: AlignedSpan) -> str:
        """Return the candidate with the highest score, of equal ones that of the first reader."""
        if self.kept is not None:
            return span.texts[self.kept]

        def score(candidate: str) -> float:
            return sum(weight * one for weight, one in zip(self.weights, span.features(candidate), strict=True))

        return max(span.candidates, key=score)


class ChosenCharacter(NamedTuple):
    """A character of the combined text: its log odds in the readings that have it, and whether others differ.

    `places` is where it is in each reading, None where that has nothing in the same span.
    """

    odds: float
    disputed: bool
    places: tuple[int | None, ...]


def choose_text(readings: Sequence[Prediction], vote: Vote) -> tuple[str, list[ChosenCharacter]]:
    """Return the combined text and what is known of each character; `vote` has these readers in this order."""
    chosen: list[str] = []
    characters: list[ChosenCharacter] = []
    for span in divide(readings, vote.unit):
        text = vote.choose(span)
        owners = [number for number, other in enumerate(span.texts) if other == text]
        for offset in range(len(text)):
            known = [(readings[number].characters, span.starts[number] + offset) for number in owners]
            odds = [log_odds(confidences[place]) for confidences, place in known if confidences]
            places = tuple(
                start + min(offset * len(other) // len(text), len(other) - 1) if other else None
                for start, other in zip(span.starts, span.texts, strict=True)
            )
            mean = sum(odds) / len(odds) if odds else 0.0
            characters.append(ChosenCharacter(mean, len(owners) < len(readings), places))
        chosen.append(text)
    return "".join(chosen), characters


def combine(readings: Sequence[Prediction | None], vote: Vote) -> Prediction:
    """Combine the readings of a line, in the order of the vote's readers; None for one that has no such line.

    Flags are those of the reading that is kept, else of the first. `others` are the readings that differ.
    """
    present = [number for number, reading in enumerate(readings) if reading is not None]
    found = [reading for reading in readings if reading is not None]
    vote = vote.among(present)
    main = found[vote.kept or 0]
    if len(found) == 1:
        return main
    text, characters = choose_text(found, vote)
    others = tuple(dict.fromkeys(reading.text for reading in found if reading.text != text))
    if not any(reading.characters for reading in found):
        return replace(main.rescore(ScoredText(text), UNCALIBRATED), others=others)
    offset, slope, disputed = vote.doubt
    logs = (_log_probability(offset + slope * one.odds + disputed * one.disputed) for one in characters)
    scores = tuple(TokenScore(place, place + 1, log) for place, log in enumerate(logs))
    combined = main.rescore(ScoredText(text, scores), vote.calibration)
    words = tuple(_place_word(word, characters, found) for word in combined.words)
    return replace(combined, words=words, others=others)


def _log_probability(odds: float) -> float:
    """Return the logarithm of the probability with these log odds."""
    return -math.log1p(math.exp(-odds)) if odds > -30 else odds


def _place_word(word: Word, characters: Sequence[ChosenCharacter], readings: Sequence[Prediction]) -> Word:
    """Return a word with its sides along the line, as the first reading has them that saw it."""
    for number, reading in enumerate(readings):
        places = [place for one in characters[word.start : word.end] if (place := one.places[number]) is not None]
        seen = [one for one in reading.words if any(one.start <= place < one.end for place in places)]
        lefts, rights = [one.left for one in seen if one.left], [one.right for one in seen if one.right]
        if seen and seen[0].right is not None:
            return replace(word, left=min(lefts, default=0.0), right=max(rights))
    return word


@dataclass(frozen=True, slots=True)
class Combiner:
    """Other readers, and the vote among the first and them."""

    vote: Vote
    others: Sequence["OtherReader | PlacedTexts"]

    @property
    def digest(self) -> str:
        """Changes with whatever decides the combined texts."""
        texts = [other.digest for other in self.others if isinstance(other, PlacedTexts)]
        return hashlib.sha256(to_json([asdict(self.vote), texts]).encode()).hexdigest()[:16]

    def combine(
        self,
        first: Sequence[Prediction],
        images: Callable[[], Iterable[tuple[str, Image.Image]]],
        places: Sequence[LinePlace],
    ) -> list[Prediction]:
        """Combine what the first reader read with what the others read on the same images, or have at these places."""
        readings: list[Sequence[Prediction | None]] = [first]
        for other in self.others:
            if isinstance(other, PlacedTexts):
                readings.append(list(map(other.find, places)))
            else:
                readings.append(list(other.read(images())))
        return [combine(line, self.vote) for line in zip(*readings, strict=True)]

    def read(self, first: "OtherReader", images: Iterator[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """Yield the combined prediction for every (id, image); predictions of other tools are found by id alone."""
        while some := list(islice(images, _TOGETHER)):
            places = [LinePlace(id_, "") for id_, _ in some]
            yield from self.combine(list(first.read(some)), partial(iter, some), places)


class OtherReader(Protocol):
    """Reads images."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        ...
