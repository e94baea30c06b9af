"""What looking at the most doubtful lines is worth: the CER of the rest, for each share of lines that is checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from dsocr.evaluation.calibration import Judged


@dataclass(frozen=True, slots=True)
class Checked:
    """After a share of the lines is checked: the CER of the others, and the share of all errors that was found."""

    share: float
    rest: float
    found: float


def budget_curve(lines: Sequence[Judged], order: Sequence[int]) -> list[Checked]:
    """What each further line in an order of checking brings, from none checked to all; the rest of none has no errors.

    A checked line is taken to be right afterwards.
    """
    errors, length = sum(line.errors for line in lines), sum(line.length for line in lines)
    left, still = errors, length
    curve = [_checked(0, len(lines), left, still, errors)]
    for count, place in enumerate(order, start=1):
        left, still = left - lines[place].errors, still - lines[place].length
        curve.append(_checked(count, len(lines), left, still, errors))
    return curve


def share_for(curve: Sequence[Checked], rate: float) -> float:
    """The smallest share of lines to check so that the CER of the rest is no higher than `rate`."""
    return next(point.share for point in curve if point.rest <= rate)


def point_at(curve: Sequence[Checked], share: float) -> Checked:
    """The point of a curve that is nearest to a share of lines."""
    return curve[round(share * (len(curve) - 1))]


def budget_sentence(curve: Sequence[Checked]) -> str:
    """What it takes to halve the CER, and what a tenth of the lines brings, in words."""
    cer = curve[0].rest
    if not cer:
        return "Nothing was read wrong."
    half, tenth = cer / 2, point_at(curve, 0.1)
    return (
        f"Check the worst {share_for(curve, half):.0%} of the lines, and the rest is at {half:.1%} CER in place of "
        f"{cer:.1%}; the worst {tenth.share:.0%} hold {tenth.found:.0%} of the errors."
    )


def best_order(lines: Sequence[Judged]) -> list[int]:
    """The order of somebody who knows the truth: the line with the highest CER first."""
    return sorted(range(len(lines)), key=lambda place: -lines[place].errors / max(lines[place].length, 1))


def _checked(count: int, lines: int, left: int, still: int, errors: int) -> Checked:
    return Checked(count / lines, left / still if still else 0.0, 1 - left / errors if errors else 1.0)
