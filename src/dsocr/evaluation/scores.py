"""Scores of single lines and of pooled lines, and the file of scored lines, `lines.jsonl`."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import ConfigDict, StrictBool, TypeAdapter, model_validator

from dsocr.data.splits import page_key
from dsocr.document import Sample, describe_place
from dsocr.errors import DataError, RunError, first_few
from dsocr.evaluation.metrics import (
    ErrorRate,
    character_errors,
    has_new_loop,
    is_in_wrong_script,
    is_over_long,
    pool,
    word_errors,
)
from dsocr.evaluation.statistics import Interval, clusters_of, interval_of
from dsocr.inference.confidence import Prediction
from dsocr.io.work import writing_file
from dsocr.text import comparable, is_blank

MODEL_LABELS = {"base": "base", "adapter": "trained"}
"""Names of the models in tables, since some families train all weights and have no adapter."""

WriterStatus = Literal["known", "new", "unknown"]
"""Whether other lines of a line's writer were in the training data."""

FAILURE_LABELS = {
    "empty": "empty",
    "truncated": "cut off",
    "looping": "looping",
    "over_long": "far too long",
    "wrong_script": "in another script",
}
"""Ways a prediction can fail, as named in `LineScore`, and their description; a line can have several."""


@dataclass(frozen=True, slots=True)
class ReadText:
    """A text that another tool read, `truncated` before its end or `looping`, even if the loop was removed."""

    text: str
    truncated: bool = False
    looping: bool = False


@dataclass(frozen=True, slots=True)
class LineScore:
    """A line with its reference, its prediction and its errors; `metrics` defines the failures.

    `seen_text` if a line that was trained on has the same text.

    `page` is unique in the dataset: it includes the document, since two documents can each have a page 1.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    reference: str
    prediction: str
    cer: ErrorRate
    wer: ErrorRate
    exact: StrictBool
    empty: StrictBool
    truncated: StrictBool = False
    looping: StrictBool = False
    over_long: StrictBool = False
    wrong_script: StrictBool = False
    writer: str | None = None
    page: str | None = None
    source: str | None = None
    writer_status: WriterStatus = "unknown"
    seen_text: StrictBool = False

    @classmethod
    def compute(
        cls,
        sample: Sample,
        prediction: ReadText | Prediction,
        writer_status: WriterStatus = "unknown",
        *,
        seen_text: bool = False,
    ) -> Self:
        """Score the prediction for a sample."""
        reference, text = sample.text, prediction.text
        cer = character_errors(reference, text)
        return cls(
            id=sample.id,
            reference=reference,
            prediction=text,
            cer=cer,
            wer=word_errors(reference, text),
            exact=not cer.errors,
            empty=is_blank(text),
            truncated=prediction.truncated,
            looping=prediction.looping or has_new_loop(reference, text),
            over_long=is_over_long(reference, text),
            wrong_script=is_in_wrong_script(reference, text),
            writer=sample.writer,
            page=page_key(sample.document, sample.page),
            source=sample.source,
            writer_status=writer_status,
            seen_text=seen_text,
        )

    @property
    def place(self) -> str:
        """Where the archive has it, see `describe_place`; its id if that is unknown."""
        return describe_place(self.source, self.page) or self.id

    @property
    def runaway(self) -> bool:
        """Whether the prediction was cut off or is over-long."""
        return self.truncated or self.over_long

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; an error rate is `{"rate": ..., "errors": ..., "length": ...}`."""
        values: dict[str, Any] = _LINE.dump_python(self)
        return values

    @model_validator(mode="before")
    @classmethod
    def _check(cls, values: Any) -> Any:
        """Check that no field is missing."""
        if missing := {field.name for field in fields(cls)} - values.keys():
            raise ValueError(f"missing: {', '.join(sorted(missing))}")
        return values


_LINE = TypeAdapter(LineScore)


@dataclass(frozen=True, slots=True)
class Score:
    """Pooled lines.

    `failures` counts the lines with each of `FAILURE_LABELS`. `seconds` is the reading time, None if not measured.
    `intervals` has those of `cer`, `wer` and `exact` (the share of exact lines) if they were requested.
    """

    cer: ErrorRate
    wer: ErrorRate
    lines: int
    exact: int
    failures: Mapping[str, int]
    runaway: int
    cer_without_runaways: ErrorRate
    seconds: float | None = None
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    @property
    def interval(self) -> Interval | None:
        """The interval of the CER, None if it was not requested."""
        return self.intervals.get("cer")

    @classmethod
    def compute(
        cls,
        lines: Sequence[LineScore],
        seconds: float | None = None,
        *,
        intervals: bool = False,
        folds: Mapping[str, int] | None = None,
    ) -> Self:
        """Pool scored lines; `folds` are those of the lines by id, if a model was trained for each."""
        return cls(
            cer=pool(line.cer for line in lines),
            wer=pool(line.wer for line in lines),
            lines=len(lines),
            exact=sum(line.exact for line in lines),
            failures={failure: sum(map(attrgetter(failure), lines)) for failure in FAILURE_LABELS},
            runaway=sum(line.runaway for line in lines),
            seconds=seconds,
            intervals=_intervals(lines, folds) if intervals else {},
            cer_without_runaways=pool(line.cer for line in lines if not line.runaway),
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the same lines, by known `writers`, read by the base and the adapter; None for one that was not run."""

    base: Score | None = None
    adapter: Score | None = None
    writers: int | None = None

    @classmethod
    def compute(
        cls,
        lines_by_model: Mapping[str, Sequence[LineScore]],
        seconds: Mapping[str, float] | None = None,
        *,
        intervals: bool = False,
        folds: Mapping[str, int] | None = None,
    ) -> Self:
        """Pool the lines of each model; `folds` are those of the adapters, by line id."""
        writers = len({line.writer for lines in lines_by_model.values() for line in lines} - {None})
        scores = {
            model: Score.compute(
                lines, (seconds or {}).get(model), intervals=intervals, folds=folds if model == "adapter" else None
            )
            for model, lines in lines_by_model.items()
        }
        return cls(**scores, writers=writers)

    @property
    def by_model(self) -> list[Score]:
        """The score of each model that was run, the base's first."""
        return [score for score in (self.base, self.adapter) if score]

    @property
    def final(self) -> Score:
        """The adapter's score, else the base's."""
        return self.by_model[-1]


def _intervals(lines: Sequence[LineScore], folds: Mapping[str, int] | None) -> dict[str, Interval]:
    clusters = clusters_of(lines)
    numbers = None
    if folds is not None:
        numbers = np.unique([folds[line.id] for line in lines], return_inverse=True)[1]
        numbers = numbers if numbers.max() > 1 else None  # fewer than three do not show how models differ
    counts = [(line.cer.errors, line.cer.length, line.wer.errors, line.wer.length, line.exact) for line in lines]
    errors, characters, word_errors, words, exact = np.array(counts, dtype=np.float64).reshape(-1, 5).T
    return {
        "cer": interval_of(errors, characters, clusters, folds=numbers),
        "wer": interval_of(word_errors, words, clusters, of="words", folds=numbers),
        "exact": interval_of(exact, np.ones_like(exact), clusters, of="lines", folds=numbers),
    }


def writer_statuses(
    training_writers: Iterable[str | None], writers: Iterable[str | None]
) -> dict[str | None, WriterStatus]:
    """Return the status of each writer, given the writer of every training sample.

    If some training samples name no writer, a writer who is not named there may have been seen: nobody is "new".
    """
    seen = set(training_writers)
    other: WriterStatus = "unknown" if None in seen else "new"
    statuses: dict[str | None, WriterStatus] = {writer: "known" if writer in seen else other for writer in writers}
    return statuses | {None: "unknown"}


def score_lines(
    samples: Sequence[Sample],
    predictions: Mapping[str, ReadText | Prediction],
    statuses: Mapping[str | None, WriterStatus] | None = None,
    trained: Iterable[Sample] = (),
) -> list[LineScore]:
    """Score a prediction per sample, in the samples' order.

    `predictions` are by sample id, `trained` the samples that were trained on. Raises DataError unless predictions
    match the samples one to one, or if there are none: an error rate over nothing would look perfect.
    """
    ids = [sample.id for sample in samples]
    if not ids:
        raise DataError("there are no lines to score", code="no-lines")
    if twice := [name for name, count in Counter(ids).items() if count > 1]:
        raise DataError(f"several samples have the same id: {first_few(twice)}", code="duplicate-id")
    if missing := [name for name in ids if name not in predictions]:
        message = f"{len(missing)} of {len(ids)} lines have no prediction: {first_few(missing)}"
        raise DataError(message, code="prediction-missing")
    if extra := sorted(predictions.keys() - set(ids)):
        message = f"{len(extra)} predictions belong to no sample: {first_few(extra)}"
        raise DataError(message, code="prediction-unmatched")
    known = statuses or {}
    seen = {comparable(sample.text) for sample in trained}
    return [
        LineScore.compute(
            sample,
            predictions[sample.id],
            known.get(sample.writer, "unknown"),
            seen_text=comparable(sample.text) in seen,
        )
        for sample in samples
    ]


def align_readings(readings: Mapping[str, Sequence[LineScore]]) -> dict[str, list[LineScore]]:
    """Return the readings in the first's order of lines. DataError without lines, or if lines or references differ."""
    (name, first), *_ = readings.items()
    references = {line.id: line.reference for line in first}
    if not references:
        raise DataError("there are no lines to score", code="no-lines")
    for other, lines in readings.items():
        given = {line.id: line.reference for line in lines}
        if given.keys() != references.keys() or len(given) < len(lines):
            missing, extra = len(references.keys() - given.keys()), len(given.keys() - references.keys())
            message = f"{other} and {name} have different lines: {missing} of {len(first)} are missing, {extra} extra"
            raise DataError(message, code="lines-differ")
        if changed := [id_ for id_, reference in given.items() if reference != references[id_]]:
            message = f"{other} and {name} have different references for {len(changed)} lines, such as {changed[0]}"
            raise DataError(message, code="references-differ", hint="evaluate both on the same dataset")
    places = {id_: place for place, id_ in enumerate(references)}
    return {name: sorted(lines, key=lambda line: places[line.id]) for name, lines in readings.items()}


def write_lines(path: Path, lines_by_model: Mapping[str, Sequence[LineScore]]) -> None:
    """Write every line of each model as `{"model": "base", ...}` with the fields of `LineScore`."""
    with writing_file(path) as file:
        for model, lines in lines_by_model.items():
            for line in lines:
                file.write(json.dumps({"model": model, **line.to_dict()}, ensure_ascii=False) + "\n")


def load_lines(path: Path) -> dict[str, list[LineScore]]:
    """Return the lines of each model that was run, in the file's order. Raises RunError if it is missing or damaged."""
    try:
        rows = [row for row in path.read_text(encoding="utf-8").split("\n") if row]
    except FileNotFoundError as error:
        hint = "run `dsocr evaluate` on the run folder first"
        raise RunError("no such file", code="lines-missing", where=path, hint=hint) from error
    except (OSError, ValueError) as error:
        raise RunError(f"cannot be read: {error}", code="lines-invalid", where=path) from error
    lines: dict[str, dict[str, LineScore]] = {}
    for number, row in enumerate(rows, start=1):
        try:
            values = json.loads(row)
            model = values.pop("model")
            line = _LINE.validate_python(values)
            if model not in MODEL_LABELS or line.id in lines.get(model, {}):
                raise ValueError(f"unknown model or duplicate line: {model}, {line.id}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = "not a scored line that this version can read, or a duplicate"
            hint = "run `dsocr evaluate` again"
            raise RunError(problem, code="lines-invalid", where=f"{path}:{number}", hint=hint) from error
        lines.setdefault(model, {})[line.id] = line
    if not lines:
        raise RunError("has no scored lines", code="lines-missing", where=path, hint="run `dsocr evaluate` again")
    return {model: list(by_id.values()) for model, by_id in lines.items()}
