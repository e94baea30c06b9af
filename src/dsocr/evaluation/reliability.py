"""What a calibration is worth: how far confidences come true, and what checking the most doubtful lines brings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsocr.evaluation.budget import Checked, best_order, budget_curve, budget_sentence
from dsocr.evaluation.calibration import BINS, KINDS, Bin, Judged, Pairs
from dsocr.inference.confidence import PLAIN, Calibration, line_confidence
from dsocr.samples import Split

_DRAWS = 200


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far one kind of confidence comes true: the expected calibration error before and after fitting, and the bins.

    `by_chance` is the error that perfect confidences would show among so many, on average, because what comes true is
    drawn; none can be told to be better than that. It is None for lines, of which a share comes true.
    """

    count: int
    before: float
    after: float
    by_chance: float | None
    bins_before: list[Bin]
    bins_after: list[Bin]


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration, what it is worth on lines it was not fitted on, and what checking the most doubtful brings.

    `split` is that of these lines: validation itself, which flatters, where there is no test split.
    """

    calibration: Calibration
    split: Split
    lines: int
    cer: float
    kinds: dict[str, Reliability]
    budget: list[Checked]
    best_budget: list[Checked]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it; rates are fractions."""
        return asdict(self) | {"split": self.split.value, "bins": BINS, "sentence": budget_sentence(self.budget)}


def measured(calibration: Calibration, split: Split, lines: Sequence[Judged]) -> CalibrationReport:
    """What a calibration is worth on some lines."""
    scales = {"character": calibration.character, "word": calibration.word, "line": calibration.line}
    kinds = {}
    for kind, pairs in KINDS.items():
        before, after = pairs(lines, PLAIN), pairs(lines, scales[kind])
        kinds[kind] = Reliability(
            len(after.said),
            before.calibration_error(),
            after.calibration_error(),
            None if kind == "line" else by_chance(after),
            before.bins(),
            after.bins(),
        )
    sureness = [_sureness(line, calibration) for line in lines]
    budget = budget_curve(lines, sorted(range(len(lines)), key=sureness.__getitem__))
    cer = budget[0].rest
    return CalibrationReport(calibration, split, len(lines), cer, kinds, budget, budget_curve(lines, best_order(lines)))


def by_chance(pairs: Pairs) -> float:
    """The calibration error of perfect confidences as many as these, on average over drawn outcomes."""
    draw = np.random.default_rng(0)
    drawn = (Pairs(pairs.said, (draw.random(len(pairs.said)) < pairs.said).astype(float)) for _ in range(_DRAWS))
    return float(np.mean([one.calibration_error() for one in drawn]))


def _sureness(line: Judged, calibration: Calibration) -> float:
    confidence = line_confidence(line.scored, calibration.line)
    return -1.0 if confidence is None else confidence
