"""Calibration of confidences: which characters and words are right, fitting a scale, and measuring reliability."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from rapidfuzz.distance import Levenshtein

from dsocr.document import Split
from dsocr.evaluation.statistics import MIN_CLUSTERS, ClusteredLine, Floats, fit_logistic
from dsocr.inference.confidence import (
    PLAIN,
    QUANTILES,
    UNCALIBRATED,
    Calibration,
    Scale,
    character_confidences,
    line_confidence,
    log_odds,
    words_of,
)
from dsocr.inference.review import (
    CheckedShare,
    checking_curve,
    describe_gain,
    estimated_checking_curve,
    point_at,
    share_for,
    worth_checking,
)
from dsocr.io.encodings import read_object
from dsocr.models.generation import ScoredText
from dsocr.text import percentage

BINS = 15
"""Bins of equal width for the expected calibration error, as in Guo et al. (2017)."""

_LEAST_LINES = 20
"""Least number of lines for a verdict on confidences."""
_PRIOR_PRECISION = 4.0
"""Precision of the prior on slope and offset (a standard deviation of a half) around the base's scale or the identity.

Fitted freely on few words, a scale is worse than the identity; many words outweigh this.
"""

Kind = Literal["character", "word", "line"]
"""The subject of a confidence."""


@dataclass(frozen=True, slots=True)
class JudgedLine:
    """A predicted line, and which of its `characters` and `words` are right; `accuracy` is 1 - CER, but at least 0."""

    scored: ScoredText
    characters: tuple[bool, ...]
    words: tuple[bool, ...]
    accuracy: float
    errors: int
    length: int

    @classmethod
    def compute(cls, scored: ScoredText, reference: str) -> Self:
        """Compare a prediction with its reference.

        A character is right if a shortest edit path leaves it unchanged. A word is right if all its characters are and
        it starts and ends where a reference word does.
        """
        text = scored.text
        aligned: list[int | None] = [None] * len(text)
        for start, reference_start, length in Levenshtein.opcodes(text, reference).as_matching_blocks():
            aligned[start : start + length] = range(reference_start, reference_start + length)
        ends = {len(reference)} | {place for place, character in enumerate(reference) if character.isspace()}
        starts = {place + 1 for place in ends} | {0}

        def is_right(start: int, end: int) -> bool:
            first = aligned[start]
            if first is None or aligned[start:end] != [*range(first, first + end - start)]:
                return False
            return first in starts and first + end - start in ends

        words = tuple(is_right(word.start, word.end) for word in words_of(scored))
        errors = Levenshtein.distance(text, reference)
        accuracy = max(0.0, 1 - errors / len(reference)) if reference else float(not text)
        return cls(scored, tuple(place is not None for place in aligned), words, accuracy, errors, len(reference))


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions of similar confidence: mean confidence, the share that is right, and their number."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Confidences and accuracies, each between 0 and 1."""

    confidence: Floats
    accuracy: Floats

    @classmethod
    def of(cls, kind: Kind, lines: Iterable[JudgedLine], scale: Scale = PLAIN) -> Self:
        """Return the scaled confidences of the characters, words or lines that have one, and which were right."""
        pairs: list[tuple[float, float]] = []
        for line in lines:
            if not line.scored.scores:
                continue
            if kind == "character":
                pairs += zip(character_confidences(line.scored, scale), map(float, line.characters), strict=True)
            elif kind == "word":
                words = words_of(line.scored, scale)
                pairs += ((word.confidence, float(right)) for word, right in zip(words, line.words, strict=True))
            elif (confidence := line_confidence(line.scored, scale)) is not None:
                pairs.append((confidence, line.accuracy))
        return cls(*np.array(pairs, dtype=np.float64).reshape(-1, 2).T)

    def bins(self) -> list[Bin]:
        """Return the non-empty bins of equal width in confidence."""
        numbers = self._bin_numbers()
        return [
            Bin(float(self.confidence[here].mean()), float(self.accuracy[here].mean()), int(here.sum()))
            for here in (numbers == number for number in range(BINS))
            if here.any()
        ]

    def calibration_error(self) -> float:
        """Return the expected calibration error: the mean distance of confidence and accuracy over the bins."""
        gaps = np.bincount(self._bin_numbers(), self.confidence - self.accuracy, BINS)
        return float(np.abs(gaps).sum()) / max(len(self.confidence), 1)

    def chance_error(self) -> float:
        """Return the calibration error that perfect confidences like these show on average, as gaps are normal."""
        variances = np.bincount(self._bin_numbers(), self.confidence * (1 - self.confidence), BINS)
        return math.sqrt(2 / math.pi) * float(np.sqrt(variances).sum()) / max(len(self.confidence), 1)

    def _bin_numbers(self) -> NDArray[np.int64]:
        return np.minimum((self.confidence * BINS).astype(np.int64), BINS - 1)


def fit_calibration(
    lines: Sequence[JudgedLine], base: Calibration = UNCALIBRATED, samples: Sequence[ClusteredLine] = ()
) -> Calibration:
    """Fit a scale for each kind of confidence, or leave it `unfitted`, and keep the quantiles of line confidences.

    Lines count by their letters: a CER is estimated from the sum. Few lines tell the slope badly, so it is that of the
    `base` where it reads as the run does. Few writers (or pages, where none is known) of the `samples` say little about
    others: where they are read better than the hands that the base was fitted on, the base's confidences stay.
    """
    hands = {sample.writer for sample in samples} - {None} or {sample.page for sample in samples} - {None}
    few_hands = bool(samples) and len(hands) < MIN_CLUSTERS
    weights = {"line": np.array([len(line.scored.text) for line in lines if line.scored.scores], np.float64)}
    scales = {
        kind: fit_scale(Outcomes.of(kind, lines), weights.get(kind, 1.0), getattr(base, kind), few_hands)
        for kind in get_args(Kind)
    }
    unfitted = tuple(kind for kind, scale in scales.items() if scale is None)
    rated = (line_confidence(part) for judged in lines for part in judged.scored.lines())
    confidences = [confidence for confidence in rated if confidence is not None]
    quantiles = np.quantile(confidences, np.linspace(0, 1, QUANTILES + 1)).tolist() if confidences else []
    return Calibration(
        **{kind: scale or PLAIN for kind, scale in scales.items()},
        lines=len(lines),
        line_quantiles=tuple(quantiles),
        unfitted=unfitted,
        few_hands=few_hands,
    )


def fit_scale(
    outcomes: Outcomes, weight: Floats | float = 1.0, base: Scale = PLAIN, capped: bool = False
) -> Scale | None:
    """Fit slope and offset to the logistic likelihood by maximum a posteriori; None if that fails.

    Accuracies can be fractions between 0 and 1. The prior is normal around the `base`, so the scale stays finite if
    all or none are right. The slope is never negative: scaling keeps the order. Of a base other than the identity it
    stays, and the offset too may not rise if `capped`.
    """
    odds = np.array([log_odds(confidence) for confidence in outcomes.confidence])
    if not np.isfinite([odds, outcomes.accuracy]).all():
        return None
    most = base.offset if capped else None
    fitted = fit_logistic(
        np.column_stack([odds, np.ones_like(odds)]),
        outcomes.accuracy,
        prior=np.array([base.slope, base.offset]),
        precision=_PRIOR_PRECISION,
        bounds=[(0, None), (None, None)] if base == PLAIN else [(base.slope,) * 2, (None, most)],
        weight=weight,
    )
    return None if fitted is None else Scale(*fitted.tolist())


@dataclass(frozen=True, slots=True)
class Reliability:
    """Reliability of one kind of confidence: expected calibration error before and after scaling, and the bins.

    Outcomes are random, so even perfect confidences show an error, `by_chance` on average; it is None for lines,
    whose outcome is a fraction.
    """

    count: int
    before: float
    after: float
    by_chance: float | None
    bins_before: list[Bin]
    bins_after: list[Bin]

    @classmethod
    def compute(cls, kind: Kind, lines: Sequence[JudgedLine], scale: Scale) -> Self:
        """Measure one kind of confidence with and without its scale."""
        before, after = (Outcomes.of(kind, lines, scaling) for scaling in (PLAIN, scale))
        return cls(
            count=len(after.confidence),
            before=before.calibration_error(),
            after=after.calibration_error(),
            by_chance=None if kind == "line" else after.chance_error(),
            bins_before=before.bins(),
            bins_after=after.bins(),
        )


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """Reliability of a run's confidences on some lines, and the gain of checking the least confident ones.

    `budget` is the CER of the rest over the share of lines checked, in the order of a review list; `estimated_budget`
    is the same estimated from the confidences alone.
    """

    calibration: Calibration
    dataset: str
    split: Split
    lines: int
    cer: float
    kinds: dict[str, Reliability]
    budget: list[CheckedShare]
    estimated_budget: list[CheckedShare]

    @classmethod
    def compute(cls, calibration: Calibration, lines: Sequence[JudgedLine], *, dataset: str, split: Split) -> Self:
        """Measure a calibration on the lines of a dataset's split."""
        kinds: dict[str, Reliability] = {}
        for kind in get_args(Kind):
            kinds[kind] = Reliability.compute(kind, lines, getattr(calibration, kind))
        confidences = [line_confidence(line.scored, calibration.line) for line in lines]
        worth = [worth_checking(sure, len(line.scored.text)) for sure, line in zip(confidences, lines, strict=True)]
        order = np.argsort([-value for value in worth], kind="stable").tolist()
        budget = checking_curve([(lines[place].errors, lines[place].length) for place in order])
        return cls(
            calibration,
            dataset,
            split,
            len(lines),
            cer=budget[0].rest,
            kinds=kinds,
            budget=budget,
            estimated_budget=estimated_checking_curve(
                (confidences[place], len(lines[place].scored.text)) for place in order
            ),
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read a report from the file of its `to_dict`; None for anything else."""
        try:
            return TypeAdapter(cls).validate_python(read_object(path))
        except ValidationError:
            return None

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON; rates are fractions."""
        sentences = {"summary": self.summary, "estimate_summary": self.estimate_summary}
        return asdict(self) | {"split": self.split.value, "bins": BINS} | sentences

    @property
    def verdict(self) -> str | None:
        """A warning if the CER estimated from confidences is not within a factor of 1.3 of the true one.

        Of fewer lines than `_LEAST_LINES` nothing is said: chance alone has such factors.
        """
        estimate = self.estimated_budget[0].rest
        if self.lines < _LEAST_LINES or self.cer / 1.3 <= estimate <= self.cer * 1.3:
            return None
        share = f"{percentage(estimate / self.cer, 0)} of the" if self.cer else "other than the"
        rates = f"CER {percentage(estimate, 1)} instead of {percentage(self.cer, 1)}"
        return f"Confidences promise {share} real errors here ({rates}): do not set a threshold by them."

    @property
    def summary(self) -> str:
        """The lines to check for half the CER, and the gain of checking a tenth of them."""
        if not self.cer:
            return "There are no errors."
        half = self.cer / 2
        checked = percentage(share_for(self.budget, half), 0)
        return (
            f"Checking the first {checked} of the lines leaves {percentage(half, 1)} CER in the rest instead of "
            f"{percentage(self.cer, 1)}; {describe_gain(self.budget)}."
        )

    @property
    def estimate_summary(self) -> str:
        """How close the estimates from confidences alone come to the truth."""
        estimate = f"From confidences alone, the estimated CER is {percentage(self.estimated_budget[0].rest, 1)}"
        if not self.cer:
            return f"{estimate}."
        share, tenth = share_for(self.budget, self.cer / 2), point_at(self.estimated_budget, 0.1)
        rest = percentage(point_at(self.estimated_budget, share).rest, 1)
        return (
            f"{estimate}, {rest} for the rest after checking {percentage(share, 0)}, and "
            f"{percentage(tenth.errors_found, 0)} of the errors are expected in the first {percentage(tenth.share, 0)}."
        )
