"""The one judge: is a reading better than another of the same lines?

Better means fewer errors on a typical writer than chance gives once in 20 times (Wilcoxon's signed-rank test over the
ratios of errors, two-sided), and fewer in all lines together. Pages stand for writers where few are known, and lines
for pages. `compare`, the report, the language model, the workbench and self-training ask it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsocr.document import Sample
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.evaluation.statistics import (
    MIN_CLUSTERS,
    ClusteredLine,
    PairedErrors,
    PairedTest,
    clusters_of,
    signed_rank_test,
)
from dsocr.images import open_image
from dsocr.inference.pages import ImageReader

SIGNIFICANCE = 0.05
MIN_DECIDABLE = 6
"""Writers or pages that can decide: with five, p is at least 1/16."""

Verdict = Literal["better", "worse", "unclear", "too few", "same"]
"""How a reading compares with another: "too few" if so few clusters could never be significant."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, its test, and the test's p value corrected for the other tests (Holm 1979)."""

    verdict: Verdict
    test: PairedTest
    corrected_p: float


def decide(pairs: Sequence[PairedErrors]) -> list[Decision]:
    """Decide for each pair whether its second reading is better than the first.

    The p values of all pairs are corrected together (Holm 1979, A Simple Sequentially Rejective Multiple Test
    Procedure).
    """
    tests = [signed_rank_test(paired) for paired in pairs]
    decisions = []
    for paired, test in zip(pairs, tests, strict=True):
        p, factor = holm(test.p, [other.p for other in tests])
        verdict: Verdict = "better" if test.direction < 0 else "worse"
        if np.array_equal(paired.first, paired.second):
            verdict = "same"
        elif test.smallest_p * factor > SIGNIFICANCE or paired.clusters.count < MIN_CLUSTERS:
            verdict = "too few"
        elif p > SIGNIFICANCE or test.direction * (paired.second - paired.first).sum() <= 0:
            verdict = "unclear"
        decisions.append(Decision(verdict, test, p))
    return decisions


def is_better(lines: Sequence[ClusteredLine], before: Iterable[int], after: Iterable[int]) -> bool:
    """Return whether the errors after are better than those before, given per line.

    Errors are compared by writer if six are known, else by page, else by line.
    """
    first, second = (np.array([*counts], np.float64) for counts in (before, after))
    paired = PairedErrors(first, second, np.ones(len(lines)), clusters_of(lines, at_least=MIN_DECIDABLE))
    return decide([paired])[0].verdict == "better"


def count_errors(reader: ImageReader, samples: Sequence[Sample]) -> list[ErrorRate]:
    """Return the character errors of a reader on each sample."""
    images = ((str(place), open_image(sample.image)) for place, sample in enumerate(samples))
    texts = {prediction.id: prediction.text for prediction in reader.read(images)}
    return [character_errors(sample.text, texts[str(place)]) for place, sample in enumerate(samples)]


def holm(p: float, all_ps: Sequence[float]) -> tuple[float, int]:
    """Return one of several tests' p values corrected for all of them, and the factor of its own correction."""
    ranked = sorted(all_ps)
    factor = len(ranked) - ranked.index(p)
    return min(1.0, max((len(ranked) - rank) * other for rank, other in enumerate(ranked) if other <= p)), factor
