"""What a calibration is worth: how far confidences come true, and what checking the most doubtful lines brings."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsocr.evaluation.budget import best_order, budget_curve, budget_sentence, foretold_sentence
from dsocr.evaluation.calibration import BINS, KINDS, Bin, Judged, Pairs
from dsocr.inference.confidence import PLAIN, Calibration, line_confidence
from dsocr.inference.foretelling import Checked, foretold_curve
from dsocr.samples import Split

_DRAWS = 400
_MOST = 0.975


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far one kind of confidence comes true: the expected calibration error before and after fitting, and the bins.

    What comes true is drawn, so perfect confidences would show an error too among so many: `by_chance` on average, and
    below `by_chance_most` 39 times of 40; none can be told to be better than that. `debiased` is the error after
    fitting without what chance adds to it. The three are None for lines, of which a share comes true.
    """

    count: int
    before: float
    after: float
    debiased: float | None
    by_chance: float | None
    by_chance_most: float | None
    bins_before: list[Bin]
    bins_after: list[Bin]


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration, what it is worth on lines it was not fitted on, and what checking the most doubtful brings.

    `split` is that of these lines, in the folder `dataset`: validation itself, which flatters, where there is no test
    split. `fitted` where it was fitted just then on the dataset's validation split, not kept from before.
    `foretold_budget` is what the confidences alone make of `budget`.
    """

    calibration: Calibration
    dataset: str
    split: Split
    lines: int
    cer: float
    kinds: dict[str, Reliability]
    budget: list[Checked]
    foretold_budget: list[Checked]
    best_budget: list[Checked]
    fitted: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it; rates are fractions."""
        told = {"sentence": budget_sentence(self.budget), "foretold": self.foretold}
        return asdict(self) | {"split": self.split.value, "bins": BINS} | told

    @property
    def origin(self) -> str:
        """What the calibration was fitted on and what it is measured on, in words."""
        on = f"{self.lines} lines of the {self.split} split of {self.dataset}"
        if not self.fitted:
            kept = f"the run's own calibration, fitted earlier on {self.calibration.lines} lines, is measured on {on}"
            return f"nothing was fitted, as {self.dataset} has no validation split: {kept}"
        if self.split == Split.VALIDATION:
            return f"fitted on {on}, and measured on the same for want of a test split, which flatters"
        return f"fitted on {self.calibration.lines} lines of the validation split, measured on {on}"

    @property
    def foretold(self) -> str:
        """How near to the truth the confidences alone would have come, in words."""
        return foretold_sentence(self.budget, self.foretold_budget)


def measured(
    calibration: Calibration, dataset: str, split: Split, lines: Sequence[Judged], *, fitted: bool = True
) -> CalibrationReport:
    """What a calibration is worth on the lines of a dataset's split; `fitted` as the report has it."""
    scales = {"character": calibration.character, "word": calibration.word, "line": calibration.line}
    kinds = {}
    for kind, pairs in KINDS.items():
        before, after = pairs(lines, PLAIN), pairs(lines, scales[kind])
        drawn = None if kind == "line" else errors_by_chance(after)
        kinds[kind] = Reliability(
            count=len(after.said),
            before=before.calibration_error(),
            after=after.calibration_error(),
            debiased=None if drawn is None else after.debiased_error(),
            by_chance=None if drawn is None else float(drawn.mean()),
            by_chance_most=None if drawn is None else float(np.quantile(drawn, _MOST)),
            bins_before=before.bins(),
            bins_after=after.bins(),
        )
    confidences = [line_confidence(line.scored, calibration.line) for line in lines]
    order = sorted(range(len(lines)), key=lambda place: _sureness(confidences[place]))
    budget = budget_curve(lines, order)
    return CalibrationReport(
        calibration,
        dataset,
        split,
        len(lines),
        cer=budget[0].rest,
        kinds=kinds,
        budget=budget,
        foretold_budget=foretold_curve((confidences[place], len(lines[place].scored.text)) for place in order),
        best_budget=budget_curve(lines, best_order(lines)),
        fitted=fitted,
    )


def errors_by_chance(pairs: Pairs) -> NDArray[np.float64]:
    """Calibration errors of perfect confidences as many as these, over drawn outcomes."""
    draw = np.random.default_rng(0)
    drawn = (Pairs(pairs.said, (draw.random(len(pairs.said)) < pairs.said).astype(float)) for _ in range(_DRAWS))
    return np.array([one.calibration_error() for one in drawn])


def _sureness(confidence: float | None) -> float:
    return -1.0 if confidence is None else confidence
