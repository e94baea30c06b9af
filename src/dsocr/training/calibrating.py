"""Confidences that come true, fitted on the validation split as the best adapter read it: no line is read for them."""

from collections.abc import Iterable, Sequence

from dsocr.evaluation.calibration import Judged, fit_calibration
from dsocr.inference.confidence import Calibration
from dsocr.inference.decoding import Reading
from dsocr.inference.second_try import cut_off
from dsocr.inference.spans import ScoredText, TokenScore
from dsocr.text import TextPolicy

Scored = tuple[str, Sequence[Sequence[float]]]
"""A text and the fields of its token scores, as they pass from one process to another."""


def scored_of(reading: Reading) -> Scored:
    """What a reading says of how sure it is; one that loops ends where its loop begins, as it does when transcribed."""
    kept = cut_off(reading) if reading.looping else reading
    return kept.text, kept.scores


def calibration_of(lines: Iterable[tuple[str, Scored]], policy: TextPolicy) -> Calibration:
    """The calibration that lines with their transcriptions give, each under the text policy that will be read with."""
    return fit_calibration([_judged(reference, *scored, policy) for reference, scored in lines])


def _judged(reference: str, text: str, scores: Sequence[Sequence[float]], policy: TextPolicy) -> Judged:
    rebuilt = (TokenScore(int(start), int(end), score, bool(other)) for start, end, score, other in scores)
    return Judged.of(ScoredText(text, tuple(rebuilt)).become(policy.apply(text)), reference)
