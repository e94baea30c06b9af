"""The order in which to check lines, and the errors that checking them finds.

Flagged lines come first, then the lines where checking saves most errors for the work.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from dsocr.io.work import writing_file
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
        rest, share = left / characters if characters else 0.0, count / max(len(lines), 1)
        letters = 1 - characters / length_of_all if length_of_all else share
        curve.append(CheckedShare(share, letters, rest, 1 - left / total if total else 1.0))
    return curve


def estimated_checking_curve(lines: Iterable[tuple[float | None, int]]) -> list[CheckedShare]:
    """Estimate the curve from each line's confidence and the length of its text, without ground truth.

    A confidence of 90 % is taken as an error in every tenth character; unknown confidences are ignored.
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


def describe_gain(curve: Sequence[CheckedShare]) -> str:
    """Describe how many errors the first tenth of the lines and of the letters of a list hold, each beside chance."""

    def held(checked: Callable[[CheckedShare], float]) -> str:
        point = min(curve, key=lambda point: abs(checked(point) - 0.1))
        times = point.errors_found / checked(point) if checked(point) else 1.0
        return f"{percentage(point.errors_found, 0)} of the errors ({times:.1f} times chance)"

    lines, letters = held(lambda point: point.share), held(lambda point: point.letters)
    return f"the first 10 % of the lines hold {lines}, the first 10 % of the letters {letters}"


_LINE_COST = 20
"""Finding and looking at a line takes as long as checking this many letters. The first lines then hold 2.3 times as
many errors as chance, the first letters 2.1 times (lab/verdicts.md, "Confidence and review")."""


def worth_checking(confidence: float | None, length: int) -> float:
    """Return the errors that checking a line is expected to save for the work; an unknown confidence comes first."""
    return 1.0 if confidence is None else (1 - confidence) * length / (length + _LINE_COST)


@dataclass(frozen=True, slots=True)
class EstimatedCer:
    """The CER estimated from confidences, the share of lines to check to halve it, and the CER of the rest then.

    `gain` says how many errors the first lines and letters of the list hold.
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


_DOUBTFUL = 0.5
"""Words below this confidence are marked."""
_WORD = re.compile(r"\S+")
_FLAG_ORDER = ("empty", "looping", "truncated", "overruled", "retried")
"""Flags, the most serious first."""


def mark_doubtful(text: str, words: Sequence[Mapping[str, Any]]) -> str:
    """Return the text with its doubtful words in ⟦⟧."""
    doubtful = {word["start"] for word in words if word["confidence"] < _DOUBTFUL}
    return _WORD.sub(lambda word: f"⟦{word[0]}⟧" if word.start() in doubtful else word[0], text)


class _Listed(NamedTuple):
    """A line of the list: the rows of many pages would not fit into memory."""

    severity: int
    worth: float
    confidence: float | None
    length: int
    page: str
    written: str


def write_review(
    rows: Iterable[Mapping[str, Any]], path: Path, first: int | None = None
) -> tuple[list[CheckedShare], list[float]]:
    """Write `confidence<TAB>flags<TAB>id<TAB>text`, the lines most worth checking first, doubtful words in ⟦⟧.

    `first` writes that many lines only, the ones to transcribe next. Returns the estimated result of checking all
    lines, and the confidences of the lines that have one.
    """
    lines = sorted(map(_listed, rows), key=lambda line: (line.severity, -line.worth))
    with writing_file(path) as file:
        file.writelines(line.written for line in (lines if first is None else _to_transcribe(lines)[:first]))
    curve = estimated_checking_curve((line.confidence, line.length) for line in lines)
    return curve, [line.confidence for line in lines if line.confidence is not None]


def _listed(row: Mapping[str, Any]) -> _Listed:
    id_, flags, confidence, length = row["id"], row.get("flags", ()), row.get("confidence"), len(row["text"])
    text = mark_doubtful(row["text"], row.get("words", ())).replace("\n", " / ")
    columns = ["" if confidence is None else f"{confidence:.3f}", ",".join(flags), id_, text]
    severity = min((_FLAG_ORDER.index(flag) for flag in flags if flag in _FLAG_ORDER), default=len(_FLAG_ORDER))
    page = row.get("page") or id_.rpartition("/")[0]  # the folder of an image of a line stands for its page
    return _Listed(severity, worth_checking(confidence, length), confidence, length, page, "\t".join(columns) + "\n")


_EMPTY_WORTH, _DECAY = 0.3, 0.7
"""The worth of transcribing a line that was read as empty, which may hold no text at all, and the factor by which each
line of a page lowers the worth of its next one."""


def _to_transcribe(lines: Iterable[_Listed]) -> list[_Listed]:
    """Order lines by the worth of transcribing them, spread over the pages."""
    worths = [(line.worth if line.length else _EMPTY_WORTH, line) for line in lines]
    listed: Counter[str] = Counter()
    spread = []
    for worth, line in sorted(worths, key=lambda pair: -pair[0]):
        spread.append((worth * _DECAY ** listed[line.page], line))
        listed[line.page] += 1
    return [line for _, line in sorted(spread, key=lambda pair: -pair[0])]
