"""The trials of a search for settings, and what may be said of the best of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from scipy import special

from dsocr.evaluation.metrics import describe_ratios
from dsocr.evaluation.statistics import student_quantile
from dsocr.text import percentage

_POWER = 0.8
_LEAST_CER = 1e-6
"""Stands for no errors at all in logarithms."""

Value: TypeAlias = float | int | str | bool | None
State = Literal["complete", "stopped", "failed"]


def format_value(value: Value) -> str:
    """Return a setting in short."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Trial:
    """One training of a search, with `settings` by their keys in the configuration.

    `cer` is the lowest validation CER of a complete trial, the last of one that was stopped early, and None of a failed
    one, whose `error` says why; `reports` has them all by step. `rungs` is what successive halving keeps of it.
    `repeats` is the number of the trial whose settings are trained with another seed, None in the search itself.
    """

    number: int
    seed: int
    settings: Mapping[str, Value]
    state: State
    cer: float | None
    reports: Mapping[int, float]
    rungs: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    repeats: int | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Trial":
        """Return a trial from a row of `trials.jsonl`."""
        return cls(**{**row, "reports": {int(step): cer for step, cer in row["reports"].items()}})

    @property
    def described(self) -> str:
        """Its settings in a few words."""
        return ", ".join(f"{key.rpartition('.')[2]} {format_value(value)}" for key, value in self.settings.items())


class SeedRatio(NamedTuple):
    """The mean CER of settings over that of others, with its 95 % interval, and the largest ratio below 1 that so many
    seeds would tell from 1 in four of five cases.
    """

    ratio: float
    low: float
    high: float
    detectable: float

    @classmethod
    def compute(cls, first: Sequence[float], second: Sequence[float]) -> "SeedRatio":
        """Compare the second settings with the first by Student's t of the logarithms.

        Not paired by seed: in three trainings settings share too little of a seed's luck to pay for half of the
        degrees of freedom.
        """
        before, after = ([math.log(max(cer, _LEAST_CER)) for cer in cers] for cers in (first, second))
        freedom = len(before) + len(after) - 2
        squares = sum((len(logs) - 1) * statistics.variance(logs) for logs in (before, after))
        error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
        change, reach = statistics.fmean(after) - statistics.fmean(before), student_quantile(freedom) * error
        ends = math.exp(change - reach), math.exp(change + reach)
        return cls(math.exp(change), *ends, math.exp(-reach - float(special.stdtrit(freedom, _POWER)) * error))


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The trials of a search, the first with the settings of the configuration, and the repeats with other seeds."""

    trials: Sequence[Trial]
    repeats: Sequence[Trial] = ()

    @property
    def best(self) -> Trial | None:
        """The complete trial with the lowest CER, the first of equal ones."""
        complete = [trial for trial in self.trials if trial.state == "complete" and trial.cer is not None]
        return min(complete, key=lambda trial: trial.cer or 0.0, default=None)

    def cers_with_other_seeds(self, trial: Trial) -> list[float]:
        """Return the CERs of a trial's settings with other seeds, in the order of the seeds."""
        repeats = [repeat for repeat in self.repeats if repeat.repeats == trial.number and repeat.cer is not None]
        return [repeat.cer or 0.0 for repeat in sorted(repeats, key=lambda repeat: repeat.seed)]

    @property
    def ratio(self) -> SeedRatio | None:
        """The best settings' CERs against those of the configuration's, None without two other seeds of both.

        Over other seeds than that of the search, so that the best is not judged by the luck that made it the best.
        """
        if self.best is None or self.best.number == 0:
            return None
        first, second = (self.cers_with_other_seeds(trial) for trial in (self.trials[0], self.best))
        return SeedRatio.compute(first, second) if min(len(first), len(second)) > 1 else None

    @property
    def is_better(self) -> bool:
        """Whether the best settings are better than the configuration's beyond the noise of seeds."""
        return self.ratio is not None and self.ratio.high < 1

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The result in sentences."""
        complete, stopped, failed = (
            sum(trial.state == state for trial in self.trials) for state in ("complete", "stopped", "failed")
        )
        text = f"{len(self.trials)} trials: {complete} trained to the end, {stopped} stopped early"
        sentences = [text + (f", {failed} failed" if failed else "")]
        if self.best is None:
            return [*sentences, "no trial was trained to the end"]
        if self.best.number == 0:
            return [*sentences, f"no settings read better than yours: {percentage(self.best.cer or 0)} validation CER"]
        yours = "" if self.trials[0].cer is None else f"; yours {percentage(self.trials[0].cer)}"
        sentences.append(f"best: {self.best.described}: {percentage(self.best.cer or 0)} validation CER{yours}")
        if self.ratio is None:
            return [*sentences, "not trained with other seeds: the difference may be chance"]
        means = [statistics.fmean(self.cers_with_other_seeds(trial)) for trial in (self.trials[0], self.best)]
        verdict = "the best is better" if self.is_better else "keep your settings, as no difference can be told"
        if self.ratio.low > 1:
            verdict = "keep your settings, as the best is worse"
        interval = describe_ratios((self.ratio.low, self.ratio.high))
        sentences.append(
            f"{verdict}: {describe_ratios((self.ratio.ratio,))} errors with other seeds (95 % CI {interval}); "
            f"CER {percentage(means[0])} and {percentage(means[1])}"
        )
        least = f"{100 * (1 - self.ratio.detectable):.0f} % fewer errors"
        return [*sentences, f"as seeds vary here, so many of them show {least} in four of five cases"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "trials": [asdict(trial) for trial in self.trials],
            "repeats": [asdict(repeat) for repeat in self.repeats],
            "best": None if self.best is None else self.best.number,
            "ratio": self.ratio and self.ratio._asdict(),
            "is_better": self.is_better,
        }
