"""The order in which to check lines, and what checking brings.

Flagged lines come first, then those where checking is expected to save most errors for the work.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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


DOUBTFUL = 0.5
"""Words below this confidence are marked."""
_WORD = re.compile(r"\S+")
_FLAG_ORDER = ("empty", "looping", "truncated", "overruled", "other_resolution", "retried")
"""Flags, the most serious first."""
_OPEN, _CLOSE = "⟦", "⟧"


def write_review(rows: Iterable[Mapping[str, Any]], path: Path) -> tuple[list[CheckedShare], list[float]]:
    """Write `confidence<TAB>flags<TAB>id<TAB>text`, what is most worth checking first, doubtful words in ⟦⟧.

    Returns the estimated result of checking in this order, and the confidences of the lines that have one.
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
    text = mark_doubtful(str(row["text"]), row.get("words", ())).replace("\n", " / ")
    return "\t".join([confidence, ",".join(row.get("flags", ())), row["id"], text]) + "\n"


def mark_doubtful(text: str, words: Sequence[Mapping[str, Any]]) -> str:
    """Return the text with its doubtful words in ⟦⟧."""
    doubtful = {word["start"] for word in words if word["confidence"] < DOUBTFUL}
    return _WORD.sub(lambda word: f"{_OPEN}{word[0]}{_CLOSE}" if word.start() in doubtful else word[0], text)


def _priority(row: Mapping[str, Any]) -> tuple[int, float]:
    flags = row.get("flags", ())
    most_serious = min((_FLAG_ORDER.index(flag) for flag in flags if flag in _FLAG_ORDER), default=len(_FLAG_ORDER))
    return most_serious, -worth_checking(row.get("confidence"), len(row["text"]))
