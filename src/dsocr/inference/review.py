"""What to look at first: lines in the order of doubt, with their doubtful words marked.

A line that is flagged comes before all others; among alike ones, the one of which least is likely to be right.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any, Self

from dsocr.runs import writing_whole


@dataclass(frozen=True, slots=True)
class Checked:
    """After a share of the lines is checked: the CER of the others, and the share of all errors that was found."""

    share: float
    rest: float
    found: float


def checking_curve(lines: Sequence[tuple[float, int]]) -> list[Checked]:
    """What each further line brings, of errors and lengths in the order of checking: from none checked to all.

    A checked line is taken to be right afterwards; the rest of none has no errors.
    """
    left, still = fsum(errors for errors, _ in lines), sum(length for _, length in lines)
    all_errors = left
    curve = [_checked(0, len(lines), left, still, all_errors)]
    for count, (errors, length) in enumerate(lines, start=1):
        left, still = left - errors, still - length
        curve.append(_checked(count, len(lines), left, still, all_errors))
    return curve


def foretold_curve(lines: Iterable[tuple[float | None, int]]) -> list[Checked]:
    """The same, of the lines' confidences and of the lengths of what was read, for where nobody knows the truth.

    A line that is right with 90 % is taken to have an error in every tenth character that was read. A line of which
    nothing was read, or nothing is known, foretells nothing.
    """
    return checking_curve(
        [(0.0, 0) if confidence is None else ((1 - confidence) * length, length) for confidence, length in lines]
    )


def share_for(curve: Sequence[Checked], rate: float) -> float:
    """The smallest share of lines to check so that the CER of the rest is no higher than `rate`."""
    return next(point.share for point in curve if point.rest <= rate)


def point_at(curve: Sequence[Checked], share: float) -> Checked:
    """The point of a curve that is nearest to a share of lines."""
    return curve[round(share * (len(curve) - 1))]


@dataclass(frozen=True, slots=True)
class Foretold:
    """The CER that confidences foretell, the share of lines to check for half of it, and what the rest is at then."""

    cer: float
    check: float
    rest: float

    @classmethod
    def of(cls, curve: Sequence[Checked]) -> Self:
        """The foretelling of a curve in the order of doubt."""
        half = share_for(curve, curve[0].rest / 2)
        return cls(curve[0].rest, half, point_at(curve, half).rest)


def _checked(count: int, lines: int, left: float, still: int, errors: float) -> Checked:
    left = max(left, 0.0)  # what is taken from a sum of fractions one by one does not end at 0
    return Checked(count / max(lines, 1), left / still if still else 0.0, 1 - left / errors if errors else 1.0)


DOUBTFUL = 0.5
"""A word is marked that is likelier wrong than right."""
_GRAVE = ("empty", "looping", "truncated", "overruled", "other_resolution", "tried_again")
"""Flags, the gravest first."""
_OPEN, _CLOSE = "⟦", "⟧"


def write_review(rows: Iterable[Mapping[str, Any]], path: Path) -> list[Checked]:
    """`confidence<TAB>flags<TAB>id<TAB>text`, the most doubtful first, doubtful words in ⟦⟧.

    Gives what the confidences foretell that checking them in this order brings.
    """
    # Only what is written is held, and how long it is: the rows of many pages would not fit into memory.
    ordered = sorted(
        ((_sureness(row), _listed(row), (row.get("confidence"), len(row["text"]))) for row in rows),
        key=lambda kept: kept[0],
    )
    with writing_whole(path) as file:
        file.writelines(listed for _, listed, _ in ordered)
    return foretold_curve(told for _, _, told in ordered)


def _listed(row: Mapping[str, Any]) -> str:
    confidence = "" if row.get("confidence") is None else f"{row['confidence']:.3f}"
    text = marked(str(row["text"]), row.get("words", ())).replace("\n", " / ")
    return f"{confidence}\t{','.join(row.get('flags', ()))}\t{row['id']}\t{text}\n"


def marked(text: str, words: Sequence[Mapping[str, Any]]) -> str:
    """The text with its doubtful words in ⟦⟧."""
    pieces, end = [], 0
    for word in words:
        if word["confidence"] < DOUBTFUL:
            pieces += [text[end : word["start"]], _OPEN, text[word["start"] : word["end"]], _CLOSE]
            end = word["end"]
    return "".join([*pieces, text[end:]])


def _sureness(row: Mapping[str, Any]) -> tuple[int, float]:
    flags = row.get("flags", ())
    gravest = min((_GRAVE.index(flag) for flag in flags if flag in _GRAVE), default=len(_GRAVE))
    confidence = row.get("confidence")
    return gravest, 0.0 if confidence is None else float(confidence)
