"""Forecast what more lines would bring: train on growing shares of the training split, each scored on the same lines.

The base alone is read too: its CER is where the curve begins.

Each training is a run in `forecast/` of the run folder; the one on all samples is the run itself. Finished ones are not
trained again, and interrupted ones resume.
"""

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, RunError
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.evaluation.metrics import character_errors
from dsocr.evaluation.report.result_pages import write_forecast
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.io.processes import rank_and_count
from dsocr.runs import RunFolder, to_json, write_atomically
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.lifecycle import is_trained
from dsocr.training.samples import total_steps
from dsocr.training.train import TrainResult, train

SIZES = (0.125, 0.25, 0.5, 1.0)
_MIN_SAMPLES = 4
_HINT_OVERWRITE = "give --overwrite to train it again"
_HINT_OTHER = "train it again with `dsocr train --overwrite`, or name another folder with --set output=..."

PredictFunction = Callable[[RunFolder, Sequence[Sample]], dict[str, str]]
"""Predicts the texts of samples, by their ids, with a finished run."""


TrainFunction = Callable[..., TrainResult]
"""Trains one run as `train` does."""
ForecastProgress = Callable[[int, int, str], None]
"""Called with the steps done and the steps of all trainings, and a note on the current one."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One training of a forecast; `finished` if it need not be trained, `overwrite` if it replaces another."""

    config: RunConfig
    samples: int
    steps: int
    finished: bool
    overwrite: bool


def forecast(
    config: RunConfig,
    *,
    sizes: Sequence[float] = SIZES,
    split: Split = Split.VALIDATION,
    more: Sequence[int] = (),
    targets: Sequence[float] = (),
    overwrite: bool = False,
    progress: ForecastProgress | None = None,
    on_point: Callable[[CurvePoint], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    train_function: TrainFunction = train,
    predict: PredictFunction | None = None,
    predict_base: PredictFunction | None = None,
) -> Forecast:
    """Train on shares of the training split, score each on `split`, and extrapolate to more samples.

    Each share is trained for as many epochs (or steps) as configured, as the same recipe would be on more samples.
    `sizes` are shares up to 1. `on_point` is called for each training that is scored, at last for the base (with no
    samples), which is read unless `predict` is given and `predict_base` is not. `overwrite` trains smaller shares
    again that were trained with other settings; the run itself is never overwritten. Writes `forecast.json`,
    `forecast.html` and `forecast.png` into `forecast/` of the run folder.

    Raises ConfigError for invalid sizes and if several processes were launched, DataError if there is nothing to score,
    RunError if a folder holds another training.
    """
    if rank_and_count()[1] > 1:
        hint = "start `dsocr forecast` itself, without torchrun"
        raise ConfigError("a forecast trains in one process", code="launch-unsupported", hint=hint)
    dataset = Dataset.open(config.dataset, fold=config.fold)
    samples = require_samples(dataset, split)
    runs = list(_plan_runs(config, len(training_samples(dataset, config)), sizes, overwrite=overwrite))
    total = sum(run.steps for run in runs if not run.finished)
    folder = RunFolder(config.output).forecast
    hashes = {"dataset": {name.value: part.sha256 for name, part in dataset.card.splits.items()}, "fold": dataset.fold}
    done, points = 0, []
    for number, planned in enumerate(runs, 1):
        if not planned.finished:
            note = f"{number} of {len(runs)}: {planned.samples} samples"
            on_progress = partial(_report, progress, done, total, note) if progress else None
            train_function(planned.config, overwrite=planned.overwrite, on_progress=on_progress, on_message=on_message)
            done += planned.steps
            gc.collect()  # there may be no memory for this network and the next
        scores = folder / f"{_name(planned.samples)}-{split}.json"
        scored = _score_run(RunFolder.open(planned.config.output), scores, samples, hashes, predict or _predict)
        points.append(CurvePoint(planned.samples, planned.steps, scored))
        if on_point is not None:
            on_point(points[-1])
    if predict_base or not predict:
        # Of the run on most samples; which does not matter, as they have the same base.
        run, scores = RunFolder.open(runs[-1].config.output), folder / f"{_name(0)}-{split}.json"
        points.append(CurvePoint(0, 0, _score_run(run, scores, samples, hashes, predict_base or _predict_base)))
        if on_point is not None:
            on_point(points[-1])
    result = Forecast.compute(split, points, more=more, targets=targets)
    write_atomically(folder / "forecast.json", to_json(result.to_dict()))
    write_forecast(result, config.output.name, folder)
    return result


def _plan_runs(config: RunConfig, count: int, sizes: Sequence[float], *, overwrite: bool) -> Iterator[PlannedRun]:
    if invalid := [size for size in sizes if not 0 < size <= 1]:
        message = f"sizes are shares of the training split, over 0 and up to 1, not {invalid[0]:g}"
        raise ConfigError(message, code="forecast-sizes")
    counts = sorted({max(1, round(size * count)) for size in sizes})
    if counts and counts[0] < min(_MIN_SAMPLES, count):
        raise ConfigError(
            f"the smallest size is {counts[0]} of {count} samples: too few to learn from",
            code="forecast-sizes",
            hint=f"give --sizes from {_MIN_SAMPLES / count:.2g} on",
        )
    for samples in counts:
        planned = config if samples == count else _with_samples(config, samples)
        finished = replaces = False
        try:
            finished = is_trained(planned)
        except RunError as error:
            replaces = samples < count and overwrite
            if not replaces:
                hint = _HINT_OVERWRITE if samples < count else _HINT_OTHER
                raise RunError(error.message, code=error.code, where=error.where, hint=hint) from error
        yield PlannedRun(planned, samples, total_steps(planned, samples), finished, replaces)


def _with_samples(config: RunConfig, samples: int) -> RunConfig:
    training = config.training.model_copy(update={"max_samples": samples})
    output = RunFolder(config.output).forecast / _name(samples)
    return config.model_copy(update={"output": output, "training": training})


def _name(samples: int) -> str:
    return f"lines-{samples}"


def _report(progress: ForecastProgress, done: int, total: int, note: str, current: TrainingProgress) -> None:
    cer = "" if current.cer is None else f", validation CER {current.cer:.1%}"
    progress(done + current.step, total, note + cer)


def _score_run(
    run: RunFolder, path: Path, samples: Sequence[Sample], hashes: dict[str, Any], predict: PredictFunction
) -> Sequence[ScoredLine]:
    """Score a finished run; the scores are kept in a file as long as run and dataset stay the same."""
    try:
        begun_at = str(json.loads(run.provenance.read_text(encoding="utf-8"))["begun_at"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = "does not say when the training began"
        raise RunError(message, code="provenance-unreadable", where=run.provenance, hint=_HINT_OVERWRITE) from error
    identity = {"trained": begun_at, **hashes}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if all(kept[name] == value for name, value in identity.items()):
            return [ScoredLine(**line) for line in kept["lines"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing or damaged: scored again
    texts = predict(run, samples)
    lines = []
    for sample in samples:
        rate = character_errors(sample.text, texts[sample.id])
        page = page_key(sample.document, sample.page)
        lines.append(ScoredLine(sample.id, rate.errors, rate.length, sample.writer, page))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, to_json({**identity, "lines": [asdict(line) for line in lines]}))
    return lines


def _predict(run: RunFolder, samples: Sequence[Sample]) -> dict[str, str]:
    return _read(LocalReader.of_run(run), samples)


def _predict_base(run: RunFolder, samples: Sequence[Sample]) -> dict[str, str]:
    with LocalReader.of_run(run).base() as reader:
        return _read(reader, samples)


def _read(reader: LocalReader, samples: Sequence[Sample]) -> dict[str, str]:
    images = ((sample.id, open_image(sample.image)) for sample in samples)
    return {prediction.id: prediction.text for prediction in reader.read(images)}
