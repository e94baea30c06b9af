"""What looking at the most doubtful lines is worth: the CER of the rest, for each share of lines that is checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

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
    return _curve([(line.errors, line.length) for line in lines], order)


def foretold_curve(lines: Sequence[Judged], confidences: Sequence[float | None], order: Sequence[int]) -> list[Checked]:
    """The same as the confidences of the lines alone foretell it, for where nobody knows the truth.

    A line that is right with 90 % is taken to have an error in every tenth character that was read. A line of which
    nothing was read, or nothing is known, foretells nothing.
    """
    foretold = [
        (0.0, 0) if confidence is None else ((1 - confidence) * len(line.scored.text), len(line.scored.text))
        for line, confidence in zip(lines, confidences, strict=True)
    ]
    return _curve(foretold, order)


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


def foretold_sentence(curve: Sequence[Checked], foretold: Sequence[Checked]) -> str:
    """How near to the truth the confidences alone would have come, in words."""
    said = f"The confidences alone foretell {foretold[0].rest:.1%} CER"
    if not curve[0].rest:
        return f"{said}."
    half = share_for(curve, curve[0].rest / 2)
    return (
        f"{said}, {point_at(foretold, half).rest:.1%} for the rest "
        f"after the worst {half:.0%}, and {point_at(foretold, 0.1).found:.0%} of the errors in the worst 10%."
    )


def best_order(lines: Sequence[Judged]) -> list[int]:
    """The order of somebody who knows the truth: the line with the highest CER first."""
    return sorted(range(len(lines)), key=lambda place: -lines[place].errors / max(lines[place].length, 1))


def _curve(lines: Sequence[tuple[float, int]], order: Sequence[int]) -> list[Checked]:
    """The curve of lines with these errors and lengths."""
    left, still = (fsum(errors for errors, _ in lines), sum(length for _, length in lines))
    all_errors = left
    curve = [_checked(0, len(lines), left, still, all_errors)]
    for count, place in enumerate(order, start=1):
        errors, length = lines[place]
        left, still = left - errors, still - length
        curve.append(_checked(count, len(lines), left, still, all_errors))
    return curve


def _checked(count: int, lines: int, left: float, still: int, errors: float) -> Checked:
    left = max(left, 0.0)  # what is taken from a sum of fractions one by one does not end at 0
    return Checked(count / lines, left / still if still else 0.0, 1 - left / errors if errors else 1.0)
