"""The order in which to check lines, and what checking brings.

Flagged lines come first, then those where checking is expected to save most errors for the work.

Other readers (`--second`) leave the text and its confidences as they are. A line that they read differently is checked
earlier.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from PIL import Image
from rapidfuzz.distance import Levenshtein

from dsocr.errors import DataError
from dsocr.inference.confidence import Prediction, log_odds
from dsocr.inference.prediction_files import LinePlace, PlacedTexts, parse_name, read_predictions
from dsocr.io.work import writing_file
from dsocr.runs import READING, ReadingSettings, RunFolder, adapter_digest
from dsocr.text import percentage


@dataclass(frozen=True, slots=True)
class CheckedShare:
    """After checking a share of the lines, and so of the letters: the CER of the rest, the share of errors found."""

    share: float
    letters: float
    rest: float
    errors_found: float


def checking_curve(lines: Sequence[tuple[float, int]]) -> list[CheckedShare]:
    """Return the result of checking 0, 1, 2, ... lines, given (errors, length) of each in the order of checking.

    A checked line counts as right, and an empty rest as free of errors.
    """
    total = remaining = math.fsum(errors for errors, _ in lines)
    length_of_all = characters = sum(length for _, length in lines)
    curve = []
    for count, (errors, length) in enumerate([(0.0, 0), *lines]):
        remaining, characters = remaining - errors, characters - length
        left = max(remaining, 0.0)  # rounding errors of the subtractions
        rest = left / characters if characters else 0.0
        letters = 1 - characters / length_of_all if length_of_all else count / max(len(lines), 1)
        curve.append(CheckedShare(count / max(len(lines), 1), letters, rest, 1 - left / total if total else 1.0))
    return curve


def estimated_checking_curve(lines: Iterable[tuple[float | None, int]]) -> list[CheckedShare]:
    """Estimate the curve from each line's confidence and the length of its text, without ground truth.

    A line with a confidence of 90 % is assumed to have an error in every tenth character; unknown confidences are
    ignored.
    """
    return checking_curve(
        [(0.0, 0) if confidence is None else ((1 - confidence) * length, length) for confidence, length in lines]
    )


def share_for(curve: Sequence[CheckedShare], rate: float) -> float:
    """Return the smallest share of lines to check so that the CER of the rest is at most `rate`."""
    return next(point.share for point in curve if point.rest <= rate)


def point_at(curve: Sequence[CheckedShare], share: float) -> CheckedShare:
    """Return the point of a curve nearest to a share of lines."""
    return curve[round(share * (len(curve) - 1))]


def describe_gain(curve: Sequence[CheckedShare], share: float = 0.1) -> str:
    """Say what the first lines and the first letters of a list hold of the errors, each beside chance."""

    def held(part: str) -> str:
        point = min(curve, key=lambda point: abs(getattr(point, part) - share))
        times = point.errors_found / getattr(point, part) if getattr(point, part) else 1.0
        return f"{percentage(point.errors_found, 0)} of the errors ({times:.1f} times chance)"

    lines, letters = held("share"), held("letters")
    first = f"the first {percentage(share, 0)} of the"
    return f"{first} lines hold {lines}, {first} letters {letters}"


_LINE_COST = 20
"""Finding and looking at a line takes as long as checking this many letters. Lines then find 2.3 times what chance does
and letters 2.1 times (lab/verdicts.md, "Confidence and review")."""


def worth_checking(confidence: float | None, length: int) -> float:
    """Return the errors that checking a line is expected to save for the work; an unknown confidence comes first."""
    return 1.0 if confidence is None else (1 - confidence) * length / (length + _LINE_COST)


@dataclass(frozen=True, slots=True)
class EstimatedCer:
    """The CER estimated from confidences, the share of lines to check to halve it, and the CER of the rest then.

    `gain` says what the first lines and letters of the list hold of the errors.
    """

    cer: float
    check: float
    rest: float
    gain: str

    @classmethod
    def of(cls, curve: Sequence[CheckedShare]) -> Self:
        """Summarise a curve."""
        half = share_for(curve, curve[0].rest / 2)
        return cls(curve[0].rest, half, point_at(curve, half).rest, describe_gain(curve))


_READERS = (READING, "config.yaml", "config.json")
"""The file that a folder with a reader has: an adapter, a run, a base."""

ReadImages = Callable[[Iterable[tuple[str, Image.Image]]], Iterable[Prediction]]
"""Reads every (id, image), in their order."""


@dataclass(frozen=True, slots=True)
class SecondReader:
    """Another reader: a network, or what another tool read. `digest` changes with what it reads."""

    name: str
    source: ReadImages | PlacedTexts
    digest: str

    @classmethod
    def open(cls, text: str, run: RunFolder) -> Self:
        """Open `NAME=PLACE`, or a place that names itself: a run, an adapter, a base, or predictions of another tool.

        Predictions get the text policy of `run`, the first reader. Raises DsocrError if the place is none of these.
        """
        name, path = parse_name(text)
        if path.exists() and not any((path / file).is_file() for file in _READERS):
            texts = PlacedTexts(read_predictions(path), ReadingSettings.load(run.adapter).text_policy)
            return cls(name, texts, texts.digest)
        from dsocr.inference.reader import LocalReader

        second = RunFolder.to_read_with(path)
        return cls(name, LocalReader.of_run(second).read, adapter_digest(second.adapter))

    def read(
        self, images: Callable[[], Iterable[tuple[str, Image.Image]]], places: Sequence[LinePlace]
    ) -> Iterator[Prediction | None]:
        """Yield the reading of each image, or of the line at each place; None for one that a tool did not read."""
        return map(self.source.find, places) if isinstance(self.source, PlacedTexts) else iter(self.source(images()))


def open_seconds(run: RunFolder, places: Sequence[str]) -> list[SecondReader]:
    """Open other readers than a run. Raises DataError if two readers have the same name."""
    names = [run.name, *(parse_name(place)[0] for place in places)]
    if repeated := {name for name in names if names.count(name) > 1}:
        message, hint = f"two readers are called {min(repeated)!r}", "name the second as NAME=PLACE"
        raise DataError(message, code="duplicate-name", hint=hint)
    return [SecondReader.open(place, run) for place in places]


def with_others(
    predictions: Sequence[Prediction],
    seconds: Sequence[SecondReader],
    images: Callable[[], Iterable[tuple[str, Image.Image]]],
    places: Sequence[LinePlace],
) -> list[Prediction]:
    """Return predictions with what other readers read differently on the same images, or have at these places."""
    readings = [list(second.read(images, places)) for second in seconds]
    return [
        replace(line, others=tuple(dict.fromkeys(other.text for other in others if other and other.text != line.text)))
        for line, *others in zip(predictions, *readings, strict=True)
    ]


_DISPUTED = 1.5
"""By how much the log odds of a character fall if another reader has something else there; fitted to pairs of readers,
it was 0.8 to 2.5 (lab/verdicts.md, "Confidence and review")."""


def disputed_places(text: str, others: Iterable[str]) -> set[int]:
    """Return the places of the characters of a text at which another reading differs.

    Where another reading has more, that is the next character, or the last one at the end.
    """
    steps = [step for other in others for step in Levenshtein.opcodes(text, other) if step.tag != "equal"]
    places = {place for step in steps for place in range(step.src_start, max(step.src_end, step.src_start + 1))}
    return {min(place, len(text) - 1) for place in places} if text else set()


def doubted_confidence(
    text: str, confidence: float | None, characters: Sequence[float], others: Sequence[str]
) -> float | None:
    """Return the confidence of a line by which it is checked: lower for each character that other readers dispute."""
    if confidence is None or not others:
        return confidence
    disputed = [characters[place] if characters else confidence for place in disputed_places(text, others)]
    lost = (before - 1 / (1 + math.exp(_DISPUTED - log_odds(before))) for before in disputed)
    return confidence - math.fsum(lost) / max(len(text), 1)


DOUBTFUL = 0.5
"""Words below this confidence are marked."""
_WORD = re.compile(r"\S+")
_FLAG_ORDER = ("empty", "looping", "truncated", "overruled", "other_resolution", "retried")
"""Flags, the most serious first."""
_OPEN, _CLOSE = "⟦", "⟧"


def write_review(rows: Iterable[Mapping[str, Any]], path: Path) -> tuple[list[CheckedShare], list[float]]:
    """Write `confidence<TAB>flags<TAB>id<TAB>text`, what is most worth checking first, doubtful words in ⟦⟧.

    Words that other readers dispute are doubtful too. Their texts follow, each after another tab. Returns the estimated
    result of checking in this order, and the confidences of the lines that have one.
    """
    # Only the written lines and their lengths are kept: the rows of many pages would not fit into memory.
    ordered = sorted(
        ((_priority(row), _review_line(row), (row.get("confidence"), len(row["text"]))) for row in rows),
        key=lambda entry: entry[0],
    )
    with writing_file(path) as file:
        file.writelines(line for _, line, _ in ordered)
    curve = estimated_checking_curve(estimate for _, _, estimate in ordered)
    return curve, [confidence for _, _, (confidence, _) in ordered if confidence is not None]


def _review_line(row: Mapping[str, Any]) -> str:
    confidence = "" if row.get("confidence") is None else f"{row['confidence']:.3f}"
    others = row.get("others", ())
    texts = [mark_doubtful(str(row["text"]), row.get("words", ()), others), *others]
    columns = [confidence, ",".join(row.get("flags", ())), row["id"], *(text.replace("\n", " / ") for text in texts)]
    return "\t".join(columns) + "\n"


def mark_doubtful(text: str, words: Sequence[Mapping[str, Any]], others: Sequence[str] = ()) -> str:
    """Return the text with its doubtful words, and those that other readers read differently, in ⟦⟧."""
    doubtful = {word["start"] for word in words if word["confidence"] < DOUBTFUL}
    disputed = disputed_places(text, others)

    def mark(word: re.Match[str]) -> str:
        is_marked = word.start() in doubtful or not disputed.isdisjoint(range(*word.span()))
        return f"{_OPEN}{word[0]}{_CLOSE}" if is_marked else word[0]

    return _WORD.sub(mark, text)


def _priority(row: Mapping[str, Any]) -> tuple[int, float]:
    flags = row.get("flags", ())
    most_serious = min((_FLAG_ORDER.index(flag) for flag in flags if flag in _FLAG_ORDER), default=len(_FLAG_ORDER))
    confidence = doubted_confidence(
        str(row["text"]), row.get("confidence"), row.get("characters", ()), row.get("others", ())
    )
    return most_serious, -worth_checking(confidence, len(row["text"]))
