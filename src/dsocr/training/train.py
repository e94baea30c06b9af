"""Train, or check without training; torch is loaded when all that the configuration names was found."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Unpack

from dsocr.config import RunConfig
from dsocr.console import Reporter, current_reporter, reporting_to, shows_progress
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import DataError, DsocrError, RunError, option
from dsocr.evaluation.run import Run
from dsocr.io.processes import ProgressCallback, rank_and_count
from dsocr.job import Config, Job, complete_config, require_trainable, resolve, with_texts
from dsocr.options import IN_PYTHON, ON, Changes, Paths, Rare, RunConfigKeys, StrPath
from dsocr.runs import RunFolder

if TYPE_CHECKING:
    from dsocr.training.dry_run import DryRun
    from dsocr.training.trainer import Callback


def train(
    config: Config = None,
    *,
    dataset: Annotated[StrPath | Dataset | None, IN_PYTHON] = None,
    texts: StrPath | None = None,
    unlabelled: Paths | None = None,
    changes: Changes | None = None,
    overwrite: bool = False,
    preflight: Rare[Annotated[bool, ON]] = True,
    callbacks: "Sequence[Callback]" = (),
    **keys: Unpack[RunConfigKeys],
) -> Run:
    """Train a reader or a detector of lines, or resume an interrupted run.

    Args:
        config: YAML file, recipe such as deepseek_ocr, or dataset folder; none if there are only unlabelled scans. In
            Python also a mapping or a `RunConfig`.
        dataset: The dataset, if the configuration does not name it.
        texts: Text file of the archive (names, places, formulas), which a line recogniser's language model learns too.
        unlabelled: Untranscribed scans: folder, PDF, archive, dataset, or ALTO and PAGE, also with another program's
            texts; repeatable. Readings are kept only if they improve the validation split, if there is a dataset.
        changes: Change a setting, as section.key=value; repeatable. In Python also a mapping of dotted keys to values.
        overwrite: Replace what an earlier command wrote there.
        preflight: Try on a few samples first that it learns.
        callbacks: Your own hooks into the training; one may end it with `trainer.stop(save=True)`.
        keys: Keys of the configuration, as `base="nano"`, `output="runs/mine"`, `max_steps=500` or `adapter={"r": 16}`.

    Changes and keys win over `config`. Without `output`, the run goes to `runs/NAME`, named as the dataset. Shows
    progress in a terminal or notebook, and leaves random numbers, warnings and logging of the process as they were.

    Raises:
        ConfigError: The configuration has problems; all are listed.
        DataError: The dataset cannot be trained on.
        ModelError: The base cannot be loaded.
        RunError: The run folder is in use or holds something else, or a check before training fails.
    """
    settings = complete_config(config, dataset, changes, with_texts(keys, texts), unlabelled, may_learn_alone=True)
    rank, _ = rank_and_count()
    reporter = Reporter() if rank else current_reporter()
    job = _resolve(settings, rank, overwrite=overwrite)
    scans = ", ".join(settings.training.unlabelled)
    lines = f"readings of {scans}" if settings.learns_alone else settings.dataset
    reporter.message(f"training {settings.output} on {lines} from {settings.base}")
    preflight = preflight and job.detector is None
    begins = rank == 0 and (overwrite or not job.run.has_begun)
    if begins and not (job.detector or settings.learns_alone or settings.adapter.init_from):
        from dsocr.evaluation.decide import name_better_base

        with suppress(DataError):  # the training names all that is wrong with the dataset
            if better := name_better_base(settings.base, job.samples_from.samples(Split.VALIDATION)):
                reporter.message(better)
    if preflight and begins:
        skip = option("preflight", False)
        reporter.message(f"checking first that it learns, a few minutes at most; {skip} skips this")
    from dsocr.training.recipe import run_job
    from dsocr.training.unlabelled import train_with_unlabelled

    with reporting_to(reporter):
        train_job = train_with_unlabelled if settings.training.unlabelled else run_job
        result = train_job(job, preflight=preflight, callbacks=callbacks)
    return Run(result.run.path, result)


def _resolve(settings: RunConfig, rank: int, *, overwrite: bool) -> Job:
    """Resolve a run; of several processes only the first says why it cannot begin."""
    try:
        if rank == 0:  # other processes may look when the first is at work there
            require_trainable(RunFolder(settings.output), overwrite=overwrite)
        return resolve(settings, overwrite=overwrite, finds_lines=True)
    except DsocrError as error:
        if rank == 0:
            raise
        raise RunError("the first process says why it cannot train", code="peer-failed") from error


@shows_progress("overfitting five samples", "steps")
def dry_run(
    config: Config = None,
    *,
    dataset: Annotated[StrPath | Dataset | None, IN_PYTHON] = None,
    texts: StrPath | None = None,
    unlabelled: Paths | None = None,
    changes: Changes | None = None,
    preflight: Rare[Annotated[bool, ON]] = True,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "DryRun":
    """Check that a run would learn and fit into memory, and how long it would take, without starting it.

    Args:
        config: As for `train`, as are `dataset`, `texts`, `unlabelled`, `changes` and further keys.
        dataset: The dataset, if the configuration does not name it.
        texts: Text file of the archive, which a line recogniser's language model learns too.
        unlabelled: Untranscribed scans, or readings of them by other programs; repeatable.
        changes: Change a setting, as section.key=value; repeatable.
        preflight: Try on a few samples first that it learns.
        progress: Called with the steps of overfitting done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    Nothing is written. `result.errors` has the checks that failed, `result.plan` time and memory.

    Raises:
        ConfigError: The configuration has problems; all are listed.
        DataError: There is no dataset.
        ModelError: There is no such base.
    """
    settings = complete_config(config, dataset, changes, with_texts(keys, texts), unlabelled, may_learn_alone=True)
    job = resolve(settings, overwrite=True)
    from dsocr.training.dry_run import check_and_plan

    return check_and_plan(job, preflight=preflight, progress=progress)
