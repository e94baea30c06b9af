"""Sentences on how far a score can be trusted: its interval, what that leaves open, and where a test is too small."""

from collections.abc import Iterator

from dsocr.evaluation.intervals import FEWEST, Interval
from dsocr.evaluation.scores import Score

WIDE = 0.25
"""The share of a rate to either side of it from which an interval is called too wide to tell."""


def certainty(score: Score) -> tuple[str, ...]:
    """What to know before the CER of a score is quoted; nothing where it has no interval to speak of."""
    interval = score.intervals.get("cer")
    return tuple(_sentences(score, interval)) if interval else ()


def _sentences(score: Score, interval: Interval) -> Iterator[str]:
    unit, many = interval.unit, f"{interval.clusters} {interval.unit}{'' if interval.clusters == 1 else 's'}"
    if interval.low is None or interval.high is None:
        yield f"How far the CER can be trusted cannot be said: {interval.reason}."
        return
    yield (
        f"The CER of {score.cer.rate:.2%} would lie between {interval.low:.2%} and {interval.high:.2%} on other "
        f"{unit}s like these ({interval.level:.0%} interval over {many})."
    )
    if interval.high - interval.low > 2 * WIDE * score.cer.rate:
        yield f"That is wide: {many} are too few to tell the CER within a quarter of itself."
    if unit == "page":
        yield f"Fewer than {FEWEST} writers are known, so this says nothing about hands that the test does not have."
    if unit == "line":
        yield (
            f"Fewer than {FEWEST} writers and {FEWEST} pages are known, so every line counts by itself: lines of one "
            "hand go wrong together, and the interval is too narrow for other hands."
        )
