"""Forecast the gain of more lines: train on a quarter, a half and all of them, each scored on the validation split.

Each run is in `forecast/` of the run folder; the one on all samples is the run itself. Finished ones are not trained
again, and interrupted ones resume.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from dsocr.console import current_reporter
from dsocr.data.dataset import training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, command, option, setting
from dsocr.evaluation.decide import count_errors
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine, forecast_plot
from dsocr.evaluation.metrics import ErrorRate
from dsocr.inference.reader import LocalReader
from dsocr.io.work import remove_drafts, write_file
from dsocr.job import Job
from dsocr.runs import RunFolder, TrainResult, to_json
from dsocr.training.many_runs import ManyProgress, WorkDone, keep_reading, plan_run, require_one_process, train_runs
from dsocr.training.recipe import run_job

PICTURE = "forecast.png"
_SIZES = (0.25, 0.5, 1.0)
_MIN_SAMPLES = 16
_FARTHEST = 4
"""No forecast for more than this multiple of the lines there are."""
_HINT_OVERWRITE = f"give {option('overwrite')} to train it again"
_HINT_OTHER = (
    f"train it again with {command('train', overwrite=True)}, or name another folder with {setting('output', '...')}"
)


def score_run(run: RunFolder, samples: Sequence[Sample]) -> list[ErrorRate]:
    """Return the character errors of a finished run on each sample."""
    return count_errors(LocalReader.of_run(run), samples)


def forecast(
    job: Job,
    *,
    more: int | None = None,
    overwrite: bool = False,
    progress: ManyProgress | None = None,
    train_function: Callable[[Job], TrainResult] = run_job,
    score: Callable[[RunFolder, Sequence[Sample]], list[ErrorRate]] = score_run,
) -> Forecast:
    """Train on shares of the training split, score each on the validation split, and extrapolate.

    Each share is trained for as many epochs (or steps) as configured, as the same recipe would be on more samples.
    `more` is as many lines again if not given. `overwrite` trains smaller shares again that were trained with other
    settings; the run itself is never overwritten. Writes `forecast.json` and `forecast.png` into the run's `forecast/`.

    Raises ConfigError for too few or too many lines and if several processes were launched, DataError if there is
    nothing to score, RunError if a folder holds another run.
    """
    require_one_process(f"start {command('forecast')} itself, without torchrun")
    dataset, reporter, folder = job.samples_from, current_reporter(), job.run.forecast
    samples, most = require_samples(dataset, Split.VALIDATION), len(training_samples(dataset, job.config))
    if most < _MIN_SAMPLES:
        message = f"{most} training lines are too few for a forecast, which needs {_MIN_SAMPLES}"
        raise ConfigError(message, code="forecast-sizes")
    more = more or most
    if most + more > _FARTHEST * most:
        hint = f"give {option('more', ...)} up to {(_FARTHEST - 1) * most}"
        raise ConfigError(f"{more} is too far beyond {most} training lines", code="forecast-sizes", hint=hint)
    counts = [round(size * most) for size in _SIZES]
    runs = [
        plan_run(job, folder / f"lines-{count}", count, max_samples=count, overwrite=overwrite, hint=_HINT_OVERWRITE)
        for count in counts[:-1]
    ]
    runs.append(plan_run(job, job.run.path, most, overwrite=False, hint=_HINT_OTHER))
    done = WorkDone(sum(run.steps for run in runs if not run.finished), progress)
    notes = [f"{number} of {len(runs)}: {count} samples" for number, count in enumerate(counts, 1)]
    points = []
    trained = train_runs(runs, notes, done=done, train_function=train_function)
    for run, planned, count in zip(trained, runs, counts, strict=True):
        data = {"dataset": dataset.card.hashes, "fold": dataset.fold}
        make = partial(_score_lines, samples, partial(score, run, samples))
        lines = keep_reading(folder / f"lines-{count}.json", run, data, make, hint=_HINT_OVERWRITE)
        points.append(CurvePoint(count, planned.steps, [ScoredLine(**line) for line in lines]))
        reporter.message(f"{count} lines, {planned.steps} steps: CER {100 * points[-1].cer:.2f} %")
    result = Forecast.compute(points, more)
    remove_drafts(folder, is_locked=False)
    write_file(folder / "forecast.json", to_json(result.to_dict()))
    write_file(folder / PICTURE, forecast_plot(result).png())
    return result


def _score_lines(samples: Sequence[Sample], score: Callable[[], Sequence[ErrorRate]]) -> list[dict[str, Any]]:
    """Return the scores of the lines as JSON values."""
    return [
        asdict(ScoredLine(sample.id, rate.errors, rate.length, sample.writer, page_key(sample.document, sample.page)))
        for sample, rate in zip(samples, score(), strict=True)
    ]
