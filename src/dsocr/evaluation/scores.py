"""What one model is worth: a score per line, and lines pooled into one score.

Knows nothing about how predictions were made, nor where scores are kept.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, Protocol, Self, get_args

from dsocr.data.splits import page_key
from dsocr.errors import DataError, RunError
from dsocr.evaluation.metrics import (
    ErrorRate,
    character_errors,
    is_caught_in_loop,
    is_empty,
    is_exact,
    is_in_wrong_script,
    is_over_long,
    word_errors,
)
from dsocr.evaluation.statistics import Interval, clusters_of, interval_of
from dsocr.runs import writing_whole

Hand = Literal["known", "new", "unknown"]
"""Whether training saw other lines of a line's writer, saw none, or nobody can tell."""


class Reference(Protocol):
    """The side of a line that is known, such as a `Sample`."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def writer(self) -> str | None: ...  # noqa: D102
    @property
    def page(self) -> str | None: ...  # noqa: D102
    @property
    def document(self) -> str | None: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102


class Prediction(Protocol):
    """The side of a line that was read; `truncated` where the model was cut off before its end.

    `looping` where it ran into a loop, which may have been cut off since.
    """

    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def truncated(self) -> bool: ...  # noqa: D102
    @property
    def looping(self) -> bool: ...  # noqa: D102


FAILURES = ("empty", "truncated", "looping", "over_long", "wrong_script")
"""The ways to fail at a line, as `LineScore` names them; a line may fail in several."""


@dataclass(frozen=True, slots=True)
class LineScore:
    """One line as it was written and as it was read; what the failures mean is in `metrics.py`.

    `page` is the page's name in the whole dataset: two documents may each have a page 1.
    """

    id: str
    reference: str
    prediction: str
    cer: ErrorRate
    wer: ErrorRate
    exact: bool
    empty: bool
    truncated: bool = False
    looping: bool = False
    over_long: bool = False
    wrong_script: bool = False
    writer: str | None = None
    page: str | None = None
    source: str | None = None
    hand: Hand = "unknown"

    @property
    def runaway(self) -> bool:
        """True where the model did not find its end."""
        return self.truncated or self.over_long

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON holds it; a rate is a pair of counts, `errors` and `length`."""
        # Not `asdict`, which copies every value deeply: there may be 100,000 lines.
        values = {name: getattr(self, name) for name in _FIELDS}
        for name in ("cer", "wer"):
            values[name] = {"errors": values[name].errors, "length": values[name].length}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The line that `as_dict` wrote; TypeError where a field is missing, unknown or of another type."""
        if missing := [name for name in _FIELDS if name not in values]:
            raise TypeError(f"a line without {', '.join(missing)}")
        if not all(isinstance(values[name], str) for name in ("id", "reference", "prediction")):
            raise TypeError("a line whose texts are no texts")
        if not all(values[name] is None or isinstance(values[name], str) for name in ("writer", "page", "source")):
            raise TypeError("a line whose names are no names")
        if not all(isinstance(values[name], bool) for name in ("exact", *FAILURES)) or values["hand"] not in _HANDS:
            raise TypeError("a line whose failures or hand are none")
        return cls(**{**values, "cer": ErrorRate(**values["cer"]), "wer": ErrorRate(**values["wer"])})


_HANDS = frozenset(get_args(Hand))
_FIELDS = tuple(one.name for one in fields(LineScore))


@dataclass(frozen=True, slots=True)
class Score:
    """Lines pooled; `seconds` is the time it took to read them, where it was measured.

    `failures` counts the lines of each of the `FAILURES`; `runaway` those that were cut off or too long. `intervals`
    are those of `cer`, `wer` and `exact` (the share of exact lines), where they were asked for.
    """

    cer: ErrorRate
    wer: ErrorRate
    lines: int
    exact: int
    failures: Mapping[str, int]
    runaway: int
    seconds: float | None = None
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Sequence[LineScore], seconds: float | None = None, *, intervals: bool = False) -> Self:
        """The pooled score of some lines."""
        return cls(
            cer=pooled(line.cer for line in lines),
            wer=pooled(line.wer for line in lines),
            lines=len(lines),
            exact=sum(line.exact for line in lines),
            failures={failure: sum(map(attrgetter(failure), lines)) for failure in FAILURES},
            runaway=sum(line.runaway for line in lines),
            seconds=seconds,
            intervals=_intervals(lines) if intervals else {},
        )

    @property
    def empty(self) -> int:
        """The lines of which nothing was read."""
        return self.failures["empty"]

    def as_dict(self) -> dict[str, Any]:
        """The score as JSON holds it: `cer` and `wer` are fractions (null over an empty reference), the rest counts.

        Every count of lines stands beside its share of the lines, such as `empty_lines` beside `empty_rate`.
        """
        counts = {"exact": self.exact, **self.failures, "runaway": self.runaway}
        return {
            "cer": finite(self.cer.rate),
            "wer": finite(self.wer.rate),
            "characters": self.cer.length,
            "character_errors": self.cer.errors,
            "words": self.wer.length,
            "word_errors": self.wer.errors,
            "lines": self.lines,
            **{f"{name}_lines": count for name, count in counts.items()},
            **{f"{name}_rate": round(count / self.lines, 6) for name, count in counts.items()},
            "seconds": self.seconds,
            "intervals": {name: interval.as_dict() for name, interval in self.intervals.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The score that `as_dict` wrote, rebuilt from its counts."""
        return cls(
            cer=ErrorRate(values["character_errors"], values["characters"]),
            wer=ErrorRate(values["word_errors"], values["words"]),
            lines=values["lines"],
            exact=values["exact_lines"],
            failures={failure: values[f"{failure}_lines"] for failure in FAILURES},
            runaway=values["runaway_lines"],
            seconds=values["seconds"],
            intervals={name: Interval.from_dict(interval) for name, interval in values["intervals"].items()},
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """The same lines read twice, by the base alone and with the adapter; None where one did not read."""

    base: Score | None = None
    adapter: Score | None = None

    @classmethod
    def of(cls, lines_by_model: Mapping[str, Sequence[LineScore]], *, intervals: bool = False) -> Self:
        """The scores of lines by model."""
        return cls(**{model: Score.of(lines, intervals=intervals) for model, lines in lines_by_model.items()})

    @property
    def last(self) -> Score:
        """The adapter's, else the base's."""
        score = self.adapter or self.base
        assert score is not None
        return score

    def as_dict(self) -> dict[str, Any]:
        """`base` and `adapter`, each a score or null."""
        return {"base": self.base and self.base.as_dict(), "adapter": self.adapter and self.adapter.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The scores that `as_dict` wrote."""
        base, adapter = values["base"], values["adapter"]
        return cls(base and Score.from_dict(base), adapter and Score.from_dict(adapter))


def _intervals(lines: Sequence[LineScore]) -> dict[str, Interval]:
    clusters = clusters_of(lines)
    return {
        "cer": interval_of([line.cer for line in lines], clusters),
        "wer": interval_of([line.wer for line in lines], clusters, of="words"),
        "exact": interval_of([ErrorRate(int(line.exact), 1) for line in lines], clusters, of="lines"),
    }


def pooled(rates: Iterable[ErrorRate]) -> ErrorRate:
    """The rate of all of them together."""
    errors = length = 0
    for rate in rates:
        errors += rate.errors
        length += rate.length
    return ErrorRate(errors, length)


def finite(rate: float) -> float | None:
    """The rate as JSON holds it: null where there was text and no reference."""
    return rate if math.isfinite(rate) else None


def hands_by_writer(training: Iterable[str | None], writers: Iterable[str | None]) -> dict[str | None, Hand]:
    """Whose hand the adapter has seen, for each of the writers, given the writer of every training sample.

    Where some training samples do not name their writer, a writer who is not among the named ones may still have
    been seen, so nobody is new.
    """
    seen = set(training)
    other: Hand = "unknown" if None in seen else "new"
    hands: dict[str | None, Hand] = {writer: "known" if writer in seen else other for writer in writers}
    return hands | {None: "unknown"}


def score_lines(
    references: Sequence[Reference],
    predictions: Mapping[str, Prediction],
    hands: Mapping[str | None, Hand] | None = None,
) -> list[LineScore]:
    """A score per reference, in their order; `predictions` are by id and must match the references one to one.

    A writer who is not in `hands` has an unknown hand.
    """
    _demand_a_pair_each([reference.id for reference in references], predictions)
    return [_score(line, predictions[line.id], (hands or {}).get(line.writer, "unknown")) for line in references]


def _score(line: Reference, prediction: Prediction, hand: Hand) -> LineScore:
    return LineScore(
        id=line.id,
        reference=line.text,
        prediction=prediction.text,
        cer=character_errors(line.text, prediction.text),
        wer=word_errors(line.text, prediction.text),
        exact=is_exact(line.text, prediction.text),
        empty=is_empty(prediction.text),
        truncated=prediction.truncated,
        looping=prediction.looping or is_caught_in_loop(line.text, prediction.text),
        over_long=is_over_long(line.text, prediction.text),
        wrong_script=is_in_wrong_script(line.text, prediction.text),
        writer=line.writer,
        page=page_key(line.document, line.page),
        source=line.source,
        hand=hand,
    )


def _demand_a_pair_each(ids: Sequence[str], predictions: Mapping[str, Prediction]) -> None:
    if not ids:
        raise DataError("there is no line to score")  # an error rate over nothing would look perfect
    wanted = set(ids)
    if len(wanted) < len(ids):
        twice = [name for name, count in Counter(ids).items() if count > 1]
        raise DataError(f"two references have the same id: {_some(twice)}")
    if missing := [name for name in ids if name not in predictions]:
        raise DataError(f"no prediction for {len(missing)} of {len(ids)} lines: {_some(missing)}")
    if extra := [name for name in predictions if name not in wanted]:
        raise DataError(f"predictions that belong to no line, {len(extra)} in all: {_some(extra)}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


MODELS = ("base", "adapter")


def write_lines(path: Path, lines_by_model: Mapping[str, Sequence[LineScore]]) -> None:
    """Every line as each model read it: `{"model": "base", ...}` with the fields of `LineScore`."""
    with writing_whole(path) as file:
        for model, lines in lines_by_model.items():
            for line in lines:
                file.write(json.dumps({"model": model, **line.as_dict()}, ensure_ascii=False) + "\n")


def load_lines(path: Path) -> dict[str, list[LineScore]]:
    """The lines by model, in the order of the file; a model that did not read is missing.

    Raises RunError for a file that is not there, damaged, or of a version that wrote other fields.
    """
    lines: dict[str, list[LineScore]] = {}
    seen: set[tuple[str, str]] = set()
    for number, row in enumerate(_rows(path), start=1):
        try:
            values = json.loads(row)
            model = values.pop("model")
            if model not in MODELS:
                raise RunError(f"model: must be base or adapter, not {model!r}", where=f"{path}:{number}")
            line = LineScore.from_dict(values)
            if (model, line.id) in seen:
                raise RunError(f"{line.id!r} is there twice as read by {model}", where=f"{path}:{number}")
            seen.add((model, line.id))
            lines.setdefault(model, []).append(line)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "run `dsocr evaluate` again"
            problem = "is no scored line that this version can read"
            raise RunError(problem, where=f"{path}:{number}", hint=hint) from error
    if not lines:
        raise RunError("holds no scored line", where=path, hint="run `dsocr evaluate` again")
    return lines


def _rows(path: Path) -> list[str]:
    try:
        return [row for row in path.read_text(encoding="utf-8").split("\n") if row]
    except FileNotFoundError as error:
        raise RunError("no such file", where=path, hint="run `dsocr evaluate` on the run folder first") from error
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", where=path) from error
