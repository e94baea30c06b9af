"""Forecast what more lines would bring: train on growing shares of the training split, each scored on the same lines.

The base alone is read too: its CER is where the curve begins.

Each training is a run in `forecast/` of the run folder; the one on all samples is the run itself. Finished ones are not
trained again, and interrupted ones resume.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

from dsocr.console import current_reporter
from dsocr.data.dataset import training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, command, option, setting
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.evaluation.metrics import character_errors
from dsocr.evaluation.report.result_pages import write_forecast
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.io.work import remove_drafts, write_file
from dsocr.job import Job
from dsocr.runs import RunFolder, TrainResult, to_json
from dsocr.training.many_runs import (
    ManyProgress,
    PlannedRun,
    WorkDone,
    keep_reading,
    plan_run,
    require_one_process,
    train_runs,
)
from dsocr.training.recipe import run_job

SIZES = (0.125, 0.25, 0.5, 1.0)
_MIN_SAMPLES = 4
_HINT_OVERWRITE = f"give {option('overwrite')} to train it again"
_HINT_OTHER = (
    f"train it again with {command('train', overwrite=True)}, or name another folder with {setting('output', '...')}"
)


def predict_texts(run: RunFolder, samples: Sequence[Sample], of_base: bool) -> dict[str, str]:
    """Predict the texts of samples, by their ids, with a finished run, or with its base alone."""
    reader = LocalReader.of_run(run)
    with reader.base() if of_base else nullcontext(reader) as used:
        images = ((sample.id, open_image(sample.image)) for sample in samples)
        return {prediction.id: prediction.text for prediction in used.read(images)}


def forecast(
    job: Job,
    *,
    sizes: Sequence[float] = SIZES,
    split: Split = Split.VALIDATION,
    more: Sequence[int] = (),
    targets: Sequence[float] = (),
    overwrite: bool = False,
    progress: ManyProgress | None = None,
    train_function: Callable[[Job], TrainResult] = run_job,
    predict: Callable[[RunFolder, Sequence[Sample], bool], dict[str, str]] = predict_texts,
) -> Forecast:
    """Train on shares of the training split, score each on `split`, and extrapolate to more samples.

    Each share is trained for as many epochs (or steps) as configured, as the same recipe would be on more samples.
    `sizes` are shares up to 1. `overwrite` trains smaller shares again that were trained with other settings; the run
    itself is never overwritten. Writes `forecast.json`, `forecast.html` and `forecast.png` into `forecast/` of the run.

    Raises ConfigError for invalid sizes and if several processes were launched, DataError if there is nothing to score,
    RunError if a folder holds another training.
    """
    require_one_process(f"start {command('forecast')} itself, without torchrun")
    dataset, reporter = job.samples_from, current_reporter()
    samples, most = require_samples(dataset, split), len(training_samples(dataset, job.config))
    counts, folder = _sample_counts(most, sizes), job.run.forecast
    runs = [_plan(job, count, most, overwrite=overwrite) for count in counts]
    data = {"dataset": dataset.card.hashes, "fold": dataset.fold}
    points = []

    def score(run: RunFolder, count: int, steps: int) -> None:
        path = folder / f"{_name(count)}-{split}.json"
        make = partial(_score, samples, partial(predict, run, samples, not count))
        lines = keep_reading(path, run, data, make, hint=_HINT_OVERWRITE)
        points.append(CurvePoint(count, steps, [ScoredLine(**line) for line in lines]))
        trained = f"{count} lines, {steps} steps" if count else "the base, untrained"
        reporter.message(f"{trained}: CER {100 * points[-1].cer:.2f} %")

    done = WorkDone(sum(run.steps for run in runs if not run.finished), progress)
    notes = [f"{number} of {len(runs)}: {count} samples" for number, count in enumerate(counts, 1)]
    trained = train_runs(runs, notes, done=done, train_function=train_function)
    for run, planned, count in zip(trained, runs, counts, strict=True):
        score(run, count, planned.steps)
    score(run, 0, 0)  # the base of any run: it is the same
    result = Forecast.compute(split, points, more=more, targets=targets)
    remove_drafts(folder, is_locked=False)
    write_file(folder / "forecast.json", to_json(result.to_dict()))
    write_forecast(result, job.run.path.name, folder)
    return result


def _sample_counts(count: int, sizes: Sequence[float]) -> list[int]:
    """Return the numbers of samples to train on, from the smallest. Raises ConfigError for invalid sizes."""
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
    return counts


def _plan(job: Job, count: int, most: int, *, overwrite: bool) -> PlannedRun:
    """Plan the run on `count` samples; with all of them it is the run itself, which is never overwritten."""
    if count == most:
        return plan_run(job, job.run.path, count, overwrite=False, hint=_HINT_OTHER)
    output = job.run.forecast / _name(count)
    return plan_run(job, output, count, max_samples=count, overwrite=overwrite, hint=_HINT_OVERWRITE)


def _name(samples: int) -> str:
    return f"lines-{samples}"


def _score(samples: Sequence[Sample], predict: Callable[[], dict[str, str]]) -> list[dict[str, Any]]:
    """Return the scores of what is predicted, as JSON values."""
    texts = predict()
    lines = []
    for sample in samples:
        rate = character_errors(sample.text, texts[sample.id])
        page = page_key(sample.document, sample.page)
        lines.append(asdict(ScoredLine(sample.id, rate.errors, rate.length, sample.writer, page)))
    return lines
