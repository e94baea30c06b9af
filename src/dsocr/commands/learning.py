"""Public functions that train: a run, a dry run, and many runs to forecast and audit."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

from dsocr.commands.scoring import Run
from dsocr.console import progress_bar
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.io.encodings import text_encoding
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import Fetch, FetchOptions
from dsocr.job import Config, complete_config, expand_changes, resolve, with_texts
from dsocr.options import (
    IN_PYTHON,
    ON,
    Changes,
    Columns,
    Count,
    Output,
    Paths,
    Rare,
    RecipeKeys,
    RunConfigKeys,
    StrPath,
    between,
    read_pairs,
)
from dsocr.runs import RunFolder
from dsocr.training.train import train as train_reader

if TYPE_CHECKING:
    from dsocr.evaluation.audit import Audit
    from dsocr.evaluation.learning_curve import Forecast
    from dsocr.training.align import AlignReport
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
        config: YAML file (configs/ holds recipes), or a dataset folder; none if there are only unlabelled scans. In
            Python also a mapping or a `RunConfig`.
        dataset: The dataset, if the configuration does not name it.
        texts: Text file of the archive (names, places, formulas), which a line recogniser's language model learns too.
        unlabelled: Untranscribed scans for self-training: folder, ALTO, PAGE, PDF, archive, dataset; repeatable. Their
            readings are kept only if they improve the validation split. Without a dataset, nothing is measured.
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
    result = train_reader(settings, overwrite=overwrite, preflight=preflight, callbacks=callbacks)
    return Run(result.run.path, result)


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
        unlabelled: Untranscribed scans for self-training; repeatable.
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
    from dsocr.training.dry_run import dry_run as check_and_plan
    from dsocr.training.lifecycle import preserved_process

    with preserved_process(), progress_bar(progress, "overfitting five samples", "steps") as done:
        return check_and_plan(job, preflight=preflight, progress=done)


def forecast(
    config: Config = None,
    *,
    dataset: Annotated[StrPath | Dataset | None, IN_PYTHON] = None,
    changes: Changes | None = None,
    more: Count | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "Forecast":
    """Forecast the gain of more lines. Trains on a quarter, a half and all, and extends the learning curve.

    Args:
        config: YAML file (configs/ holds recipes), or a dataset folder. In Python all that `train` takes.
        dataset: The dataset, if the configuration does not name it.
        changes: Change a setting, as section.key=value; repeatable.
        more: Number of additional lines to forecast for; as many again if not given.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the steps done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    A stopped forecast resumes when it is called again. Writes numbers and a plot into the run folder.

    Raises:
        ConfigError: The configuration cannot be used, or there are too few lines for a forecast.
        DataError: There is nothing to train on or to score.
        RunError: A folder holds another run.
    """
    from dsocr.evaluation.evaluate import require_samples

    job = resolve(complete_config(config, dataset, changes, keys), overwrite=True)
    require_samples(job.samples_from, Split.VALIDATION)
    from dsocr.training.forecast import forecast as follow_curve
    from dsocr.training.lifecycle import preserved_process

    with preserved_process(), progress_bar(progress, "training", "steps") as done:
        return follow_curve(job, more=more, overwrite=overwrite, progress=done)


def audit(
    dataset: StrPath | Dataset,
    *,
    changes: Changes | None = None,
    output: Output | None = None,
    folds: Annotated[int, between(3)] | None = None,
    lines: Count = 100,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RecipeKeys],
) -> "Audit":
    """Find lines whose transcription is wrong. Every line is read by a model that never saw it.

    Args:
        dataset: Dataset folder.
        changes: Change a setting, as section.key=value; repeatable.
        output: Work folder, where it resumes; runs/NAME-audit if not given.
        folds: Number of folds for a dataset without any; 5 if not given.
        lines: Number of lines on the page and in the table.
        overwrite: Train again what was trained on other data or with other settings.
        progress: Called with the work done and in total, in lines, instead of a progress bar.
        keys: Keys of the configuration, as `base="nano"` or `max_steps=200`.

    Takes minutes with the default base.

    Raises:
        ConfigError: The settings have problems.
        DataError: There is no dataset, or it cannot be divided into folds.
        RunError: The work folder holds other runs.
    """
    folder = dataset.folder if isinstance(dataset, Dataset) else Path(dataset)
    settings, overrides = expand_changes(changes, keys)
    Dataset.open(folder)
    from dsocr.training.folds import audit as audit_lines
    from dsocr.training.lifecycle import preserved_process

    with preserved_process(), progress_bar(progress, "auditing", "lines") as done:
        return audit_lines(
            folder,
            output=None if output is None else Path(output),
            folds=folds,
            lines=lines,
            overrides=overrides,
            changes=settings,
            overwrite=overwrite,
            progress=done,
        )


def align(
    scans: Paths,
    texts: StrPath,
    output: Output,
    *,
    run: StrPath = "small",
    rounds: Count = 1,
    sure: Annotated[float, between(0.5, 1.0)] = 0.93,
    segmenter: str = "ppocr",
    columns: Columns | None = None,
    encoding: str | None = None,
    fetch: Fetch | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "AlignReport":
    """Find the lines of a text that you already have on its scans, and make a dataset of those that are sure.

    Args:
        scans: Images, PDF, ALTO, PAGE, archives, folders, IIIF or METS.
        texts: Their text, in one file or a folder with a file a page: text, Markdown, Word, TEI, PDF, XML or a table.
        output: Folder to write, with pages, a table of the lines and a dataset. Resumes what was interrupted.
        run: Reader of the lines: a run, or the base small.
        rounds: How often the lines are read and aligned; after each but the last the reader learns from the sure ones.
        sure: How likely a line's text must be exactly right to count as sure.
        segmenter: Line segmentation of page images: ppocr, or a run that trained a detector.
        columns: Column of a table, as image=NAME, text=NAME; repeatable.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the work done and in total, in pages read, aligned or learnt from, instead of a bar.

    A line's text is what the text says, never what was read. Aligned lines train only, until a person has accepted all
    of their page in the workbench.

    Raises:
        DataError: The scans or texts cannot be read, no line is sure, or the folder cannot be written.
        RunError: The reader is missing, unfinished or damaged.
    """
    folder = RunFolder.to_read_with(Path(run))
    places = [Path(scans)] if isinstance(scans, str | PathLike) else [Path(path) for path in scans]
    from dsocr.data.page_texts import read_page_texts
    from dsocr.data.sources import require_source
    from dsocr.training.align import align as align_pages
    from dsocr.training.align import require_free_alignment
    from dsocr.training.lifecycle import preserved_process

    for place in places:
        require_source(place)
    require_free_alignment(Path(output), [*places, Path(texts)], overwrite=overwrite)
    with text_encoding(encoding):
        given = read_page_texts(Path(texts), read_pairs("columns", columns))
    with preserved_process(), progress_bar(progress, "aligning", "steps") as done:
        return align_pages(
            folder,
            places,
            given,
            Path(output),
            rounds=rounds,
            threshold=sure,
            segmenter=segmenter,
            fetch=FetchOptions.parse(fetch),
            progress=done,
        )
