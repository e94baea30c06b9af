"""The functions of `import dsocr` that help to decide: what is wrong, what to try, and what to transcribe next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dsocr.api import Run, places_of, progress_bar, run_path, training_config, without_note
from dsocr.config import RunConfig, expand_keys
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import FetchOptions
from dsocr.options import RecipeKeys, RunConfigKeys, StrPath
from dsocr.runs import RunFolder

if TYPE_CHECKING:
    from dsocr.evaluation.learning_curve import Forecast
    from dsocr.evaluation.report.audit_page import Audit
    from dsocr.evaluation.tuning import TuneResult
    from dsocr.inference.suggest import Suggestions
    from dsocr.training.dry_run import DryRun

Config = StrPath | RunConfig | Mapping[str, Any] | None


def audit(
    dataset: "StrPath | Dataset",
    *,
    output: StrPath | None = None,
    folds: int | None = None,
    lines: int = 100,
    overwrite: bool = False,
    changes: Mapping[str, object] | None = None,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RecipeKeys],
) -> "Audit":
    """Rank the lines of a dataset by how surely their transcription is wrong, and estimate how many are.

    Args:
        dataset: A dataset folder.
        output: Work folder, in which a stopped audit resumes; `runs/NAME-audit` if None.
        folds: Number of folds to draw for a dataset without any; five if None.
        lines: Lines on the page and in the table.
        overwrite: Train again what was trained on other data or with other settings.
        changes: Dotted keys of the configuration and their values, as in `train`.
        progress: Called with the work done and in total, in lines, instead of a progress bar.
        keys: Keys of the configuration, as `base="nano"` or `max_steps=200`.

    Every line is read by a model that was trained without its fold. Takes minutes with the default base.
    """
    from dsocr.training.audit import audit as audit_lines

    folder = dataset.folder if isinstance(dataset, Dataset) else Path(dataset)
    with progress_bar(progress, "auditing", "lines") as callback:
        return audit_lines(
            folder,
            output=None if output is None else Path(output),
            folds=folds,
            lines=lines,
            changes=expand_keys({**(changes or {}), **keys}),
            overwrite=overwrite,
            progress=without_note(callback),
        )


def dry_run(
    config: Config = None,
    *,
    dataset: "StrPath | Dataset | None" = None,
    preflight: bool = True,
    changes: Mapping[str, object] | None = None,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "DryRun":
    """Check that a training would learn and fit into memory, and how long it would take, without starting it.

    Arguments as for `train`; `progress` is called with the steps of overfitting done and in total, instead of a
    progress bar. Nothing is written. `result.errors` has the checks that failed, `result.plan` time and memory.
    """
    from dsocr.training.dry_run import dry_run as check_and_plan

    complete = training_config(config, dataset, {**(changes or {}), **keys})
    with progress_bar(progress, "overfitting five samples", "steps") as callback:
        return check_and_plan(complete, preflight=preflight, progress=callback)


def forecast(
    config: Config = None,
    *,
    dataset: "StrPath | Dataset | None" = None,
    sizes: Sequence[float] | None = None,
    split: Split | Literal["train", "validation", "test"] = "validation",
    more: Sequence[int] = (),
    targets: Sequence[float] = (),
    overwrite: bool = False,
    changes: Mapping[str, object] | None = None,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "Forecast":
    """Forecast what more lines would bring, from trainings on growing parts of the data.

    Args:
        config: As for `train`, as are `dataset`, `changes` and further keys.
        dataset: The dataset, if the configuration does not name it.
        sizes: Shares of the training split; an eighth, a quarter, half and all if None.
        split: Split to score on.
        more: Numbers of additional lines to forecast for.
        targets: CERs to reach, as fractions: how many lines does it take?
        overwrite: Train again what was trained with other settings.
        changes: Dotted keys of the configuration and their values.
        progress: Called with the steps done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    A stopped forecast resumes when it is called again. Writes numbers, a page and a plot into the run folder.
    """
    from dsocr.training.forecast import SIZES
    from dsocr.training.forecast import forecast as follow_curve

    complete = training_config(config, dataset, {**(changes or {}), **keys})
    with progress_bar(progress, "training", "steps") as callback:
        return follow_curve(
            complete,
            sizes=SIZES if sizes is None else sizes,
            split=Split(split),
            more=more,
            targets=targets,
            overwrite=overwrite,
            progress=without_note(callback),
        )


def tune(
    config: Config = None,
    *,
    dataset: "StrPath | Dataset | None" = None,
    search: Sequence[str] = (),
    trials: int = 20,
    seeds: int = 3,
    minutes: float | None = None,
    sampler: Literal["tpe", "random"] = "tpe",
    prune: bool = True,
    workers: int = 1,
    overwrite: bool = False,
    changes: Mapping[str, object] | None = None,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "TuneResult":
    """Search for settings that read better on the validation split, and tell chance from gain.

    Args:
        config: As for `train`, as are `dataset`, `changes` and further keys.
        dataset: The dataset, if the configuration does not name it.
        search: Settings to search, as "learning_rate=1e-4..2e-3" or "r=8,16,32"; chosen if empty.
        trials: Trainings with different settings; the first has those of the configuration.
        seeds: Other seeds to train the best settings and the configuration's with.
        minutes: Begin no trial after so many minutes of training.
        sampler: Learn from the trials before, or draw at random.
        prune: Stop trials early that are not among the best.
        workers: Trials to train at once, each in a process; a script needs `if __name__ == "__main__":` then.
        overwrite: Replace another search in the same folder.
        changes: Dotted keys of the configuration and their values.
        progress: Called with the steps done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    A stopped search resumes when it is called again. `result.is_better` says whether the best settings are better
    beyond the noise of seeds; `best.yaml` in the run's folder `tune` has them. Needs Optuna (extra `tune`).
    """
    from dsocr.training.tune import tune as search_settings

    complete = training_config(config, dataset, {**(changes or {}), **keys})
    with progress_bar(progress, "training", "steps") as callback:
        return search_settings(
            complete,
            search=search,
            trials=trials,
            seeds=seeds,
            minutes=minutes,
            sampler=sampler,
            prune=prune,
            workers=workers,
            overwrite=overwrite,
            progress=without_note(callback),
        )


def suggest(
    run: "StrPath | Run",
    source: StrPath,
    output: StrPath,
    *,
    count: int = 100,
    format: str | None = None,
    writer: str | None = None,
    encoding: str | None = None,
    second: "StrPath | Sequence[StrPath]" = (),
    strict: bool = False,
    overwrite: bool = False,
    fetch: FetchOptions | None = None,
    progress: ProgressCallback | None = None,
) -> "Suggestions":
    """Suggest which lines to transcribe by hand next: uncertain ones, new writers and rare characters come first.

    Args:
        run: A run, or the base "small".
        source: Anything that `prepare` reads, with lines without text, or a folder of line images.
        output: Folder for the list, a table, a page and the lines' images.
        count: Number of lines to suggest.
        format: Format of the source; detected if None.
        writer: Column, or pattern over file names.
        encoding: Encoding of texts that are not UTF-8.
        second: Other readers, as for `transcribe`; lines that they read differently are less certain.
        strict: Stop at the first fault instead of counting it.
        overwrite: Replace earlier suggestions.
        fetch: How IIIF manifests and METS files are fetched.
        progress: Called with the lines done and in total, instead of a progress bar.
    """
    from dsocr.inference.suggest import suggest as choose_lines

    folder = RunFolder.to_read_with(run_path(run))
    with progress_bar(progress, "reading", "lines") as callback:
        return choose_lines(
            folder,
            Path(source),
            Path(output),
            count=count,
            format=format,
            writer=writer,
            encoding=encoding,
            strict=strict,
            overwrite=overwrite,
            fetch=fetch,
            second=places_of(second),
            progress=callback,
        )
