"""The order in which to check lines, and what checking brings: flagged lines first, then the least confident."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any, Self

from dsocr.runs import writing_whole


@dataclass(frozen=True, slots=True)
class CheckedShare:
    """After checking a share of the lines: the CER of the rest, and the share of all errors found."""

    share: float
    rest: float
    found: float


def checking_curve(lines: Sequence[tuple[float, int]]) -> list[CheckedShare]:
    """Return the result of checking 0, 1, 2, ... lines, given (errors, length) of each in the order of checking.

    A checked line counts as right, and an empty rest as free of errors.
    """
    total = remaining = fsum(errors for errors, _ in lines)
    characters = sum(length for _, length in lines)
    curve = []
    for count, (errors, length) in enumerate([(0.0, 0), *lines]):
        remaining, characters = remaining - errors, characters - length
        left = max(remaining, 0.0)  # rounding errors of the subtractions
        rest = left / characters if characters else 0.0
        curve.append(CheckedShare(count / max(len(lines), 1), rest, 1 - left / total if total else 1.0))
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


@dataclass(frozen=True, slots=True)
class EstimatedCer:
    """The CER estimated from confidences, the share of lines to check to halve it, and the CER of the rest then."""

    cer: float
    check: float
    rest: float

    @classmethod
    def of(cls, curve: Sequence[CheckedShare]) -> Self:
        """Summarise a curve."""
        half = share_for(curve, curve[0].rest / 2)
        return cls(curve[0].rest, half, point_at(curve, half).rest)


DOUBTFUL = 0.5
"""Words below this confidence are marked."""
_FLAG_ORDER = ("empty", "looping", "truncated", "overruled", "other_resolution", "retried")
"""Flags, the most serious first."""
_OPEN, _CLOSE = "⟦", "⟧"


def write_review(rows: Iterable[Mapping[str, Any]], path: Path) -> tuple[list[CheckedShare], list[float]]:
    """Write `confidence<TAB>flags<TAB>id<TAB>text`, the least certain line first, doubtful words in ⟦⟧.

    Texts of other readers that differ follow, each after another tab. Returns the estimated result of checking in this
    order, and the confidences of the lines that have one.
    """
    # Only the written lines and their lengths are kept: the rows of many pages would not fit into memory.
    ordered = sorted(
        ((_priority(row), _review_line(row), (row.get("confidence"), len(row["text"]))) for row in rows),
        key=lambda entry: entry[0],
    )
    with writing_whole(path) as file:
        file.writelines(line for _, line, _ in ordered)
    curve = estimated_checking_curve(estimate for _, _, estimate in ordered)
    return curve, [confidence for _, _, (confidence, _) in ordered if confidence is not None]


def _review_line(row: Mapping[str, Any]) -> str:
    confidence = "" if row.get("confidence") is None else f"{row['confidence']:.3f}"
    texts = [mark_doubtful(str(row["text"]), row.get("words", ())), *row.get("others", ())]
    columns = [confidence, ",".join(row.get("flags", ())), row["id"], *(text.replace("\n", " / ") for text in texts)]
    return "\t".join(columns) + "\n"


def mark_doubtful(text: str, words: Sequence[Mapping[str, Any]]) -> str:
    """Return the text with its doubtful words in ⟦⟧."""
    pieces, end = [], 0
    for word in words:
        if word["confidence"] < DOUBTFUL:
            pieces += [text[end : word["start"]], _OPEN, text[word["start"] : word["end"]], _CLOSE]
            end = word["end"]
    return "".join([*pieces, text[end:]])


def _priority(row: Mapping[str, Any]) -> tuple[int, float]:
    flags = row.get("flags", ())
    most_serious = min((_FLAG_ORDER.index(flag) for flag in flags if flag in _FLAG_ORDER), default=len(_FLAG_ORDER))
    confidence = row.get("confidence")
    return most_serious, 0.0 if confidence is None else float(confidence)
