"""The trials of a search for settings, and what may be said of the best of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from dsocr.evaluation.statistics import student_quantile

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
    def difference(self) -> tuple[float, float, float] | None:
        """The best settings' mean CER minus that of the configuration's, with a paired Student interval of 95 %.

        Over other seeds than that of the search, so that the best is not judged by the luck that made it the best.
        None without two with which both were trained.
        """
        if self.best is None or self.best.number == 0:
            return None
        cers = {(repeat.repeats, repeat.seed): repeat.cer for repeat in self.repeats if repeat.cer is not None}
        pairs = [(cers.get((0, seed)), after) for (number, seed), after in cers.items() if number == self.best.number]
        changes = [after - before for before, after in pairs if before is not None]
        if len(changes) < 2:
            return None
        mean, count = statistics.fmean(changes), len(changes)
        reach = student_quantile(count - 1) * statistics.stdev(changes) / math.sqrt(count)
        return mean, mean - reach, mean + reach

    @property
    def is_better(self) -> bool:
        """Whether the best settings are better than the configuration's beyond the noise of seeds."""
        return self.difference is not None and self.difference[2] < 0

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
            return [*sentences, f"no settings read better than yours: {self.best.cer:.2%} validation CER"]
        yours = "" if self.trials[0].cer is None else f"; yours {self.trials[0].cer:.2%}"
        sentences.append(f"best: {self.best.described}: {self.best.cer:.2%} validation CER{yours}")
        first, second = self.cers_with_other_seeds(self.trials[0]), self.cers_with_other_seeds(self.best)
        if self.difference is None:
            return [*sentences, "not trained with other seeds: the difference may be chance"]
        noise = 100 * statistics.stdev(first)
        sentences.append(
            f"with {len(first)} other seeds: {statistics.fmean(first):.2%} with your settings, "
            f"{statistics.fmean(second):.2%} with the best; from seed to seed yours vary by {noise:.2f} points (SD)"
        )
        change, low, high = (100 * value for value in self.difference)
        verdict = "the best is better" if high < 0 else "keep your settings, as the best is worse"
        if low <= 0 <= high:
            verdict = "keep your settings, as no difference can be told"
        interval = f"{change:+.2f} points (95 % CI {low:+.2f} to {high:+.2f})".replace("-", "\N{MINUS SIGN}")
        return [*sentences, f"{verdict}: {interval}"]

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "trials": [asdict(trial) for trial in self.trials],
            "repeats": [asdict(repeat) for repeat in self.repeats],
            "best": None if self.best is None else self.best.number,
            "difference": self.difference,
            "is_better": self.is_better,
        }
