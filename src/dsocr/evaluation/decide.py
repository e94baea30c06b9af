"""The one judge: is a reading better than another of the same lines?

Better means fewer errors on a typical writer than chance gives once in 20 times (Wilcoxon's signed-rank test over the
ratios of errors, two-sided), and fewer in all lines together. Pages stand for writers where few are known, and lines
for pages. `compare`, the report, the language model, the workbench and self-training ask it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from dsocr.document import Sample
from dsocr.errors import setting
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.evaluation.statistics import LEVEL, MIN_CLUSTERS, ClusteredLine, Floats, PairedErrors, clusters_of
from dsocr.images import open_image
from dsocr.inference.pages import ImageReader
from dsocr.io.hub import find_cached_model
from dsocr.io.kraken import KRAKENS_BASE
from dsocr.models.base_folder import embedded_bases
from dsocr.models.generation import spread
from dsocr.models.scripts import SAMPLE_LINES
from dsocr.runs import RunFolder
from dsocr.text import percentage

SIGNIFICANCE = 0.05
MIN_DECIDABLE = 6
"""Writers or pages that can decide: with five, p is at least 1/16."""
_MAX_EXACT_RANKS = 50

Verdict = Literal["better", "worse", "unclear", "too few", "same"]
"""How a reading compares with another: "too few" if so few clusters could never be significant."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict, the p value of its test, and that corrected for the other tests (Holm 1979)."""

    verdict: Verdict
    p: float
    corrected_p: float


def decide(pairs: Sequence[PairedErrors]) -> list[Decision]:
    """Decide for each pair whether its second reading is better than the first.

    All p values are corrected together (Holm 1979, A Simple Sequentially Rejective Multiple Test Procedure).
    """
    tests = [signed_rank_test(paired) for paired in pairs]
    ranked = sorted(test.p for test in tests)
    decisions = []
    for paired, test in zip(pairs, tests, strict=True):
        factor = len(ranked) - ranked.index(test.p)
        p = min(1.0, max((len(ranked) - rank) * other for rank, other in enumerate(ranked) if other <= test.p))
        verdict: Verdict = "better" if test.direction < 0 else "worse"
        if np.array_equal(paired.first, paired.second):
            verdict = "same"
        elif test.smallest_p * factor > SIGNIFICANCE or paired.clusters.count < MIN_CLUSTERS:
            verdict = "too few"
        elif p > SIGNIFICANCE or test.direction * (paired.second - paired.first).sum() <= 0:
            verdict = "unclear"
        decisions.append(Decision(verdict, test.p, p))
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


def name_better_base(base: str, samples: Sequence[Sample]) -> str | None:
    """Return a sentence if kraken's recogniser was downloaded and reads lines better than an embedded base."""
    from dsocr.inference.reader import LocalReader

    if not samples or base not in embedded_bases() or find_cached_model(KRAKENS_BASE, None) is None:
        return None
    lines, names = spread(samples, SAMPLE_LINES), (base, KRAKENS_BASE)
    readers = (LocalReader.of_run(RunFolder.to_read_with(Path(name))) for name in names)
    before, after = (count_errors(reader, lines) for reader in readers)
    if not is_better(lines, (rate.errors for rate in before), (rate.errors for rate in after)):
        return None
    first, second = (percentage(pool(rates).rate, 1) for rates in (before, after))
    return (
        f"{KRAKENS_BASE}, which was downloaded, reads {len(lines)} of these lines with a CER of {second}, {base} with "
        f"{first}: train it with {setting('base', KRAKENS_BASE)}"
    )


class SignedRanks(NamedTuple):
    """A test whether two systems differ: its two-sided p value, and the smallest that so few clusters can give.

    `direction` is negative if the second system has fewer errors.
    """

    p: float
    smallest_p: float
    direction: float


def signed_rank_test(paired: PairedErrors) -> SignedRanks:
    """Test whether the second system changes the errors of a typical cluster (Wilcoxon 1945).

    Compared are the clusters' log ratios of errors, each count with half an error added. Each cluster counts the same
    however many lines it has, and a loop only moves the ratio of its own cluster.
    """
    ratios = _log_ratios(paired)
    signed, p = _signed_ranks(ratios)
    return SignedRanks(p, 2.0 ** (1 - max(1, int(np.count_nonzero(ratios)))), signed)


def typical_ratio(paired: PairedErrors) -> tuple[float, tuple[float, float] | None]:
    """Return the second system's errors over the first's for a typical cluster (Hodges and Lehmann 1963).

    Its interval is that of `signed_rank_test` inverted, None if the clusters are too few for one.
    """
    ratios = _log_ratios(paired)

    def cross(start: float, end: float, is_before: Callable[[float], bool]) -> float:
        for _ in range(40):
            middle = (start + end) / 2
            start, end = (middle, end) if is_before(middle) else (start, middle)
        return (start + end) / 2

    least, most = float(ratios.min()) - 1e-9, float(ratios.max()) + 1e-9
    first, second = np.triu_indices(len(ratios))
    center = float(np.median((ratios[first] + ratios[second]) / 2))
    if 2.0 ** (1 - len(ratios)) > 1 - LEVEL:
        return math.exp(center), None
    low, high = (
        cross(center, end, lambda shift: _signed_ranks(ratios - shift)[1] > 1 - LEVEL) for end in (least, most)
    )
    return math.exp(center), (math.exp(low), math.exp(high))


def _log_ratios(paired: PairedErrors) -> Floats:
    """Return the log ratios of errors of all clusters with text."""
    kept = paired.clusters.sums(paired.lengths) > 0
    first, second = (paired.clusters.sums(errors)[kept] + 0.5 for errors in (paired.first, paired.second))
    return np.asarray(np.log(second / first), dtype=np.float64)


def _signed_ranks(values: Floats) -> tuple[float, float]:
    """Return the sum of the signed ranks, and Wilcoxon's two-sided p value: exact for up to 50 values, also with ties.

    Values of zero are left out; above 50, p is the normal approximation with its continuity correction.
    """
    values = np.round(values[values != 0], 12)  # log(2/3) and log(3/2) are a tie
    _, places, ties = np.unique(np.abs(values), return_inverse=True, return_counts=True)
    ranks = (2 * np.cumsum(ties) - ties + 1)[places]  # doubled, so that mean ranks are whole numbers
    total, signed = int(ranks.sum()), int(ranks @ np.sign(values))
    lower = (total - abs(signed)) // 2
    if len(ranks) > _MAX_EXACT_RANKS:
        return signed, min(1.0, 2 * NormalDist().cdf((2 * lower + 2 - total) / math.sqrt(float(ranks @ ranks))))
    ways = np.zeros(total + 1)
    ways[0] = 1
    for rank in ranks.tolist():
        ways[rank:] += ways[:-rank].copy()
    return signed, min(1.0, 2 * float(ways[: lower + 1].sum()) / 2.0 ** len(ranks))
