"""What checking the most doubtful lines brings, from the errors of each, or from those that its confidence foretells.

Knows nothing about texts; a line is its errors and its length.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Self


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
