"""What looking at the most doubtful lines is worth: the CER of the rest, for each share of lines that is checked."""

from collections.abc import Sequence

from dsocr.evaluation.calibration import Judged
from dsocr.inference.foretelling import Checked, checking_curve, point_at, share_for


def budget_curve(lines: Sequence[Judged], order: Sequence[int]) -> list[Checked]:
    """What each further line in an order of checking brings, from none checked to all."""
    return checking_curve([(lines[place].errors, lines[place].length) for place in order])


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
    half, tenth = share_for(curve, curve[0].rest / 2), point_at(foretold, 0.1)
    return (
        f"{said}, {point_at(foretold, half).rest:.1%} for the rest after the worst {half:.0%}, and {tenth.found:.0%} "
        f"of the errors in the worst {tenth.share:.0%}."
    )


def best_order(lines: Sequence[Judged]) -> list[int]:
    """The order of somebody who knows the truth: the line with the highest CER first."""
    return sorted(range(len(lines)), key=lambda place: -lines[place].errors / max(lines[place].length, 1))
