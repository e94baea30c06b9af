"""How many errors a workbench's texts still have, and how much work it is to get them down."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from dsocr.evaluation.metrics import ErrorRate

_MIN_JUDGED = 20
"""Accepted lines from which on the model's confidences are corrected by what was found in them."""
_MAX_PAUSE = 300
"""Seconds between two lines that are not work but a pause."""
_MIN_INTERVALS = 5


@dataclass(frozen=True, slots=True)
class Outlook:
    """The lines that are left: the errors expected in each, most first, over `length` characters of all lines.

    `length` includes the reviewed lines, which are taken to be right, but no lines that nobody judged.
    """

    expected: tuple[float, ...] = ()
    length: int = 0

    @property
    def cer(self) -> float | None:
        """The estimated CER of all texts as they are now; None if nothing is known."""
        return sum(self.expected) / self.length if self.length else None

    def lines_until(self, cer: float) -> int:
        """How many lines must be reviewed, the most doubtful first, until the estimated CER is that low."""
        left = sum(self.expected)
        for done, errors in enumerate(self.expected):
            if left <= cer * self.length + 1e-9:
                return done
            left -= errors
        return len(self.expected)


def estimate_outlook(
    judged: Sequence[tuple[float | None, ErrorRate]], waiting: Sequence[tuple[bool, float | None, int]]
) -> Outlook:
    """Estimate the errors in the lines that nobody reviewed.

    `judged` are confidence and errors of each line that a model read and somebody accepted; `waiting` are all lines
    with a text: whether it is reviewed, its confidence, and the number of its characters. A line's expected errors are
    (1 - confidence) times its characters, times what that estimate was off by on the judged lines, if they are at least
    20. Lines without a confidence, whose texts came with the source, count only once they are reviewed.
    """
    expected_errors = sum((1 - confidence) * rate.length for confidence, rate in judged if confidence is not None)
    found = sum(rate.errors for confidence, rate in judged if confidence is not None)
    factor = found / expected_errors if len(judged) >= _MIN_JUDGED and expected_errors > 0 else 1.0
    left = [(1 - sure, length) for is_reviewed, sure, length in waiting if not is_reviewed and sure is not None]
    if not left:
        return Outlook()
    expected = sorted((min(1.0, doubt * factor) * length for doubt, length in left), reverse=True)
    reviewed = sum(length for is_reviewed, _, length in waiting if is_reviewed)
    return Outlook(tuple(expected), reviewed + sum(length for _, length in left))


def seconds_a_line(times: Sequence[str]) -> float | None:
    """The average seconds between reviews at these times (ISO 8601, any order); None if they are too few.

    Longer gaps than five minutes are pauses.
    """
    moments = sorted(datetime.fromisoformat(time) for time in times)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(moments)]
    working = [gap for gap in gaps if gap <= _MAX_PAUSE]
    return sum(working) / len(working) if len(working) >= _MIN_INTERVALS else None
