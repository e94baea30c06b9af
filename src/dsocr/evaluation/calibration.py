"""Whether confidences come true: what was right of what was read, the error of a calibration, and the fitting of one.

Knows nothing about networks or files; a `Judged` line is all it needs.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from dsocr.document import Split
from dsocr.inference.confidence import (
    PLAIN,
    Calibration,
    Scale,
    ScoredText,
    character_confidences,
    line_confidence,
    log_odds,
    words_of,
)
from dsocr.inference.review import Checked, checking_curve, foretold_curve, point_at, share_for

BINS = 15
"""Bins of equal width, as Guo et al. (2017) measure the expected calibration error."""
_PRIOR = 4.0
"""How firmly a scale is held to the plain one: slopes and offsets are taken to vary by a half, as standard deviation.

A free fit on few words is further from the truth than the plain scale; many words overrule this.
"""
_LINE_PRIOR = 1e-2
"""The same for lines, each of which tells the share of some thirty characters."""
_STEPS = 100


@dataclass(frozen=True, slots=True)
class Judged:
    """A line that was read, beside what stands there: which characters and words are right, and how much of all."""

    scored: ScoredText
    characters: tuple[bool, ...]
    words: tuple[bool, ...]
    share: float
    errors: int
    length: int

    @classmethod
    def of(cls, scored: ScoredText, reference: str) -> Self:
        """A line beside its reference, each as long as it is: `share` is 1 less the CER, and no less than 0.

        A character is right that a shortest way from one text to the other leaves alone; a word is, whose characters
        all are, and that begins and ends where a word of the reference does.
        """
        text = scored.text
        place_of: list[int | None] = [None] * len(text)
        errors = 0
        for change in Levenshtein.opcodes(text, reference):
            if change.tag == "equal":
                shift = change.dest_start - change.src_start
                for place in range(change.src_start, change.src_end):
                    place_of[place] = place + shift
            else:
                errors += max(change.src_end - change.src_start, change.dest_end - change.dest_start)
        ends = {0, len(reference)} | {place for place, sign in enumerate(reference) if sign.isspace()}
        begins = {place + 1 for place in ends} | {0}

        def is_right(start: int, end: int) -> bool:
            first, last = place_of[start], place_of[end - 1]
            if first is None or last is None or last - first != end - 1 - start:
                return False
            return None not in place_of[start:end] and first in begins and last + 1 in ends

        words = tuple(is_right(word.start, word.end) for word in words_of(scored))
        share = max(0.0, 1 - errors / len(reference)) if reference else float(not text)
        return cls(scored, tuple(place is not None for place in place_of), words, share, errors, len(reference))


@dataclass(frozen=True, slots=True)
class Pairs:
    """What was said beside what came true, each between 0 and 1."""

    said: NDArray[np.float64]
    true: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Self:
        """The pairs as two columns."""
        table = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def scaled(self, scale: Scale) -> "Pairs":
        """The same with what a scale makes of it."""
        return Pairs(np.array([scale(one) for one in self.said]), self.true)

    def bins(self, count: int = BINS) -> "list[Bin]":
        """The pairs by what was said, in bins of equal width; empty bins are left out."""
        places = self._places(count)
        return [
            Bin(float(self.said[here].mean()), float(self.true[here].mean()), int(here.sum()))
            for here in (places == place for place in range(count))
            if here.any()
        ]

    def calibration_error(self, count: int = BINS) -> float:
        """The expected calibration error: how far what is said is from what comes true, on average over the pairs."""
        return float(np.abs(self._gaps(count)).sum())

    def debiased_error(self, count: int = BINS) -> float:
        """The same without what chance adds to it, as far as the bins can tell.

        What comes true in a bin is drawn, so its distance from what is said is seen too large, most where it is none.
        How much so follows from the normal distribution; it is taken off, as Kumar, Liang and Ma (2019) do by drawing.
        """
        places = self._places(count)
        spread = np.sqrt(np.bincount(places, self.said * (1 - self.said), count)) / max(len(self.said), 1)
        bins = zip(np.abs(self._gaps(count)).tolist(), spread.tolist(), strict=True)
        return float(sum(2 * gap - _folded(gap, sd) for gap, sd in bins))

    def _places(self, count: int) -> NDArray[np.int64]:
        return np.minimum((self.said * count).astype(np.int64), count - 1)

    def _gaps(self, count: int) -> NDArray[np.float64]:
        """How far each bin is off, signed, as a share of all pairs."""
        return np.bincount(self._places(count), self.said - self.true, count) / max(len(self.said), 1)


@dataclass(frozen=True, slots=True)
class Bin:
    """Pairs that say much the same: the mean of what they say, the share that came true, and how many they are."""

    said: float
    true: float
    count: int


KINDS: dict[str, Callable[[Sequence[Judged], Scale], Pairs]] = {
    "character": lambda lines, scale: Pairs.of(
        pair
        for line in lines
        if line.scored.scores
        for pair in zip(character_confidences(line.scored, scale), map(float, line.characters), strict=True)
    ),
    "word": lambda lines, scale: Pairs.of(
        (word.confidence, float(right))
        for line in lines
        for word, right in zip(words_of(line.scored, scale), line.words, strict=True)
    ),
    "line": lambda lines, scale: Pairs.of(
        (confidence, line.share) for line in lines if (confidence := line_confidence(line.scored, scale)) is not None
    ),
}
"""The pairs of some lines under a scale, for each kind of confidence."""


def fit_calibration(lines: Sequence[Judged]) -> Calibration:
    """The calibration under which what comes true of these lines is likeliest."""
    priors = {kind: _LINE_PRIOR if kind == "line" else _PRIOR for kind in KINDS}
    scales = {kind: fit_scale(pairs(lines, PLAIN), priors[kind]) for kind, pairs in KINDS.items()}
    return Calibration(**scales, lines=len(lines))


def fit_scale(pairs: Pairs, prior: float = _PRIOR) -> Scale:
    """The scale under which what came true is likeliest, by Newton's method on the logistic likelihood.

    What came true may be a share between 0 and 1. `prior` is the precision with which slope and offset are taken to be
    normally distributed around the plain scale, so that pairs that all came true, or none, give no infinite one.
    """
    odds = np.array([log_odds(one) for one in pairs.said])
    ones = np.ones_like(odds)
    slope, offset = _likeliest(np.stack([odds, ones], 1), pairs.true, np.array([1.0, 0.0]), prior)
    if slope < 0:  # the order would be turned round: then the best is to say the same of all
        (offset,) = _likeliest(ones[:, None], pairs.true, np.array([0.0]), prior)
    return Scale(max(slope, 0.0), offset)


def _likeliest(
    inputs: NDArray[np.float64], true: NDArray[np.float64], plain: NDArray[np.float64], prior: float
) -> list[float]:
    """The weights of a logistic regression that is held to the plain ones."""
    found = plain.copy()
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-np.clip(inputs @ found, -500, 500)))
        slope = inputs.T @ (true - likely) - prior * (found - plain)
        curve = (inputs * (likely * (1 - likely))[:, None]).T @ inputs + prior * np.eye(len(plain))
        step = np.linalg.solve(curve, slope)
        found = found + step * min(1.0, 2 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    weights: list[float] = found.tolist()
    return weights


def _folded(mean: float, sd: float) -> float:
    """The mean distance from 0 of what is normally distributed."""
    if not sd:
        return mean
    ratio = mean / sd
    return sd * math.sqrt(2 / math.pi) * math.exp(-(ratio**2) / 2) + mean * math.erf(ratio / math.sqrt(2))


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
