"""Forecast the gain of more lines: train on a quarter, a half and all of them, each scored on the validation split.

Each run is in `forecast/` of the run folder; the one on all samples is the run itself. Finished ones are not trained
again, and interrupted ones resume.
"""

from functools import partial
from typing import Annotated, Unpack

from dsocr.console import current_reporter, shows_progress
from dsocr.data.dataset import Dataset, training_samples
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, command, option, setting
from dsocr.evaluation.decide import count_errors
from dsocr.evaluation.evaluate import require_samples
from dsocr.evaluation.learning_curve import CurvePoint, Forecast, ScoredLine
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import remove_drafts, write_file
from dsocr.job import Config, complete_config, resolve
from dsocr.options import IN_PYTHON, Changes, Count, RunConfigKeys, StrPath
from dsocr.runs import RunFolder, to_json
from dsocr.training.many_runs import WorkDone, keep_reading, plan_run, require_one_process, train_run

_SIZES = (0.25, 0.5, 1.0)
_MIN_SAMPLES = 16
_FARTHEST = 4
"""No forecast for more than this multiple of the lines there are."""
_HINT_OVERWRITE = f"give {option('overwrite')} to train it again"
_HINT_OTHER = (
    f"train it again with {command('train', overwrite=True)}, or name another folder with {setting('output', '...')}"
)


@shows_progress("training", "steps")
def forecast(
    config: Config = None,
    *,
    dataset: Annotated[StrPath | Dataset | None, IN_PYTHON] = None,
    changes: Changes | None = None,
    more: Count | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> Forecast:
    """Forecast the gain of more lines. Trains on a quarter, a half and all, and extends the learning curve.

    Args:
        config: YAML file, name of a recipe, or dataset folder. In Python all that `train` takes.
        dataset: The dataset, if the configuration does not name it.
        changes: Change a setting, as section.key=value; repeatable.
        more: Number of additional lines to forecast for; as many again if not given.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the steps done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    A stopped forecast resumes when it is called again. Writes numbers into `forecast/` of the run folder.

    Raises:
        ConfigError: The configuration cannot be used, or there are too few lines for a forecast.
        DataError: There is nothing to train on or to score.
        RunError: A folder holds another run.
    """
    job = resolve(complete_config(config, dataset, changes, keys), overwrite=True)
    require_one_process(f"start {command('forecast')} itself, without torchrun")
    opened, folder = job.samples_from, job.run.forecast
    samples, most = require_samples(opened, Split.VALIDATION), len(training_samples(opened, job.config))
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
    pages, points = [page_key(sample.document, sample.page) for sample in samples], list[CurvePoint]()
    for number, (planned, count) in enumerate(zip(runs, counts, strict=True), 1):
        run = train_run(planned, f"{number} of {len(runs)}: {count} samples", done)
        data = {"dataset": opened.card.hashes, "fold": opened.fold}
        score = partial(score_run, run, samples)
        rates = keep_reading(folder / f"lines-{count}.json", run, data, score, hint=_HINT_OVERWRITE)
        lines = [
            ScoredLine(errors, length, sample.writer, page)
            for (errors, length), sample, page in zip(rates, samples, pages, strict=True)
        ]
        points.append(CurvePoint(count, planned.steps, lines))
        current_reporter().message(f"{count} lines, {planned.steps} steps: CER {100 * points[-1].cer:.2f} %")
    result = Forecast(points, more)
    remove_drafts(folder, is_locked=False)
    write_file(folder / "forecast.json", to_json(result.to_dict()))
    return result


def score_run(run: RunFolder, samples: list[Sample]) -> list[tuple[int, int]]:
    """Return the character errors of a finished run on each sample, and the characters of its reference."""
    from dsocr.inference.reader import LocalReader  # loads torch

    return [(rate.errors, rate.length) for rate in count_errors(LocalReader.of_run(run), samples)]
