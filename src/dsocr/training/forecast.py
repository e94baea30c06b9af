"""Forecast what more lines would bring: train on growing shares of the training split, each scored on the same lines.

The base alone is read too: its CER is where the curve begins.

Each training is a run in `forecast/` of the run folder; the one on all samples is the run itself. Finished ones are not
trained again, and interrupted ones resume.
"""

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, RunError, command, option, setting
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.evaluation.metrics import character_errors
from dsocr.evaluation.report.result_pages import write_forecast
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.io.processes import rank_and_count
from dsocr.io.work import write_file
from dsocr.runs import RunFolder, to_json
from dsocr.training.callbacks import TrainingProgress
from dsocr.training.lifecycle import begun_at, is_trained
from dsocr.training.samples import total_steps
from dsocr.training.train import TrainResult, train

SIZES = (0.125, 0.25, 0.5, 1.0)
_MIN_SAMPLES = 4
_HINT_OVERWRITE = f"give {option('overwrite')} to train it again"
_HINT_OTHER = (
    f"train it again with {command('train', overwrite=True)}, or name another folder with {setting('output', '...')}"
)

ForecastProgress = Callable[[int, int, str], None]
"""Called with the steps done and the steps of all trainings, and a note on the current one."""


def predict_texts(run: RunFolder, samples: Sequence[Sample], of_base: bool) -> dict[str, str]:
    """Predict the texts of samples, by their ids, with a finished run, or with its base alone."""
    reader = LocalReader.of_run(run)
    with reader.base() if of_base else nullcontext(reader) as used:
        images = ((sample.id, open_image(sample.image)) for sample in samples)
        return {prediction.id: prediction.text for prediction in used.read(images)}


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
    train_function: Callable[..., TrainResult] = train,
    predict: Callable[[RunFolder, Sequence[Sample], bool], dict[str, str]] = predict_texts,
) -> Forecast:
    """Train on shares of the training split, score each on `split`, and extrapolate to more samples.

    Each share is trained for as many epochs (or steps) as configured, as the same recipe would be on more samples.
    `sizes` are shares up to 1. `on_point` is called for each training that is scored, at last for the base (with no
    samples). `overwrite` trains smaller shares again that were trained with other settings; the run itself is never
    overwritten. Writes `forecast.json`, `forecast.html` and `forecast.png` into `forecast/` of the run folder.

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
    hashes = {"dataset": dataset.card.hashes, "fold": dataset.fold}
    done, points = 0, []

    def score(run: RunConfig, count: int, steps: int) -> None:
        trained = RunFolder.open(run.output)
        identity = {"trained": begun_at(trained, hint=_HINT_OVERWRITE), **hashes}
        path = folder / f"{_name(count)}-{split}.json"
        scored = _score(samples, path, identity, lambda: predict(trained, samples, not count))
        points.append(CurvePoint(count, steps, scored))
        if on_point is not None:
            on_point(points[-1])

    for number, planned in enumerate(runs, 1):
        if not planned.finished:
            note = f"{number} of {len(runs)}: {planned.samples} samples"
            on_progress = partial(_report, progress, done, total, note) if progress else None
            train_function(planned.config, overwrite=planned.overwrite, on_progress=on_progress, on_message=on_message)
            done += planned.steps
            gc.collect()  # there may be no memory for this network and the next
        score(planned.config, planned.samples, planned.steps)
    score(runs[-1].config, 0, 0)  # the base of any run: it is the same
    result = Forecast.compute(split, points, more=more, targets=targets)
    write_file(folder / "forecast.json", to_json(result.to_dict()))
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
            hint=f"give {option('sizes', ...)} from {_MIN_SAMPLES / count:.2g} on",
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


def _score(
    samples: Sequence[Sample], path: Path, identity: dict[str, Any], predict: Callable[[], dict[str, str]]
) -> Sequence[ScoredLine]:
    """Score what is predicted; the scores are kept in a file as long as the identity, run and dataset, is the same."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if all(kept[name] == value for name, value in identity.items()):
            return [ScoredLine(**line) for line in kept["lines"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # missing or damaged: scored again
    texts = predict()
    lines = []
    for sample in samples:
        rate = character_errors(sample.text, texts[sample.id])
        page = page_key(sample.document, sample.page)
        lines.append(ScoredLine(sample.id, rate.errors, rate.length, sample.writer, page))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, to_json({**identity, "lines": [asdict(line) for line in lines]}))
    return lines
