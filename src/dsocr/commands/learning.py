"""Public functions that train: a run, a dry run, and many runs to forecast and audit."""

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from dsocr.commands.datasets import print_finding
from dsocr.commands.scoring import Run
from dsocr.config import RunConfig, expand_keys, load_config
from dsocr.console import current_printer, progress_bar, training_progress
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.errors import ConfigError, DsocrError, RunError, option
from dsocr.io.encodings import text_encoding
from dsocr.io.processes import ProgressCallback, rank_and_count
from dsocr.io.web import Fetch, FetchOptions
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
    Share,
    SplitName,
    StrPath,
    between,
    read_pairs,
)
from dsocr.runs import RunFolder, is_detector_base

if TYPE_CHECKING:
    from dsocr.evaluation.learning_curve import CurvePoint, Forecast
    from dsocr.evaluation.report.audit_page import Audit
    from dsocr.training.align import AlignReport
    from dsocr.training.callbacks import Callback
    from dsocr.training.dry_run import DryRun

Config = StrPath | RunConfig | Mapping[str, Any] | None


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
    settings = complete_config(config, dataset, changes, _with_texts(keys, texts), unlabelled, may_learn_alone=True)
    rank, _ = rank_and_count()
    printer, run = current_printer(), RunFolder(settings.output)
    if rank > 0:
        printer.quiet = True
    require_sound(settings, run, rank, overwrite=overwrite)
    lines = (
        f"its own readings of {', '.join(settings.training.unlabelled)}" if settings.learns_alone else settings.dataset
    )
    printer.message(f"training {settings.output} on {lines} from {settings.base}")
    if preflight and not is_detector_base(settings.base) and (overwrite or not any(run.checkpoints.glob("step-*"))):
        skip = option("preflight", False)
        printer.message(f"checking first that it learns, a few minutes at most; {skip} skips this")
    from dsocr.training.layout import train_layout
    from dsocr.training.train import train as train_reader

    with preserved_process(), training_progress(printer) as (on_progress, on_stage):
        reports: dict[str, Any] = {
            "on_progress": on_progress,
            "on_stage": on_stage,
            "on_message": printer.complain,
            "callbacks": callbacks,
        }
        if is_detector_base(settings.base):
            result = train_layout(settings, overwrite=overwrite, **reports)
        else:
            result = train_reader(
                settings,
                overwrite=overwrite,
                preflight=preflight,
                on_warning=lambda finding: print_finding(printer, finding),
                **reports,
            )
    return Run(result.run.path, result)


def require_sound(settings: RunConfig, run: RunFolder, rank: int, *, overwrite: bool) -> None:
    """Raise before anything slow is loaded if a run cannot start; of several processes only the first says why."""
    from dsocr.training.lifecycle import require_sources, require_trainable

    try:
        if rank == 0:  # other processes may look when the first is at work there
            require_trainable(run, overwrite=overwrite)
        require_sources(settings, finds_lines=True)
    except DsocrError as error:
        if rank == 0:
            raise
        raise RunError("the first process says why it cannot train", code="peer-failed") from error


@contextmanager
def preserved_process() -> Iterator[None]:
    """Restore the random numbers, warning filters and log levels that a training changes in its process."""
    import numpy as np
    import torch
    from transformers.utils import logging

    state, drawn, verbosity = random.getstate(), np.random.get_state(), logging.get_verbosity()
    threads = torch.get_num_threads()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices), warnings.catch_warnings():
            yield
    finally:
        random.setstate(state)
        np.random.set_state(drawn)
        logging.set_verbosity(verbosity)
        torch.set_num_threads(threads)


def complete_config(
    config: Config,
    dataset: StrPath | Dataset | None,
    changes: Changes | None,
    keys: Mapping[str, object],
    unlabelled: Paths | None = None,
    *,
    may_learn_alone: bool = False,
) -> RunConfig:
    """Return the configuration of a run from what its caller gave; changes and keys win over `config`.

    Raises ConfigError if it has no dataset; with `may_learn_alone`, if it has no unlabelled scans either.
    """
    settings, overrides = expand_changes(changes, keys)
    if isinstance(dataset, Dataset):
        settings |= {"dataset": dataset.folder} | ({} if dataset.fold is None else {"fold": dataset.fold})
    elif dataset is not None:
        settings["dataset"] = Path(dataset)
    if unlabelled:
        settings["training.unlabelled"] = unlabelled
    if isinstance(config, RunConfig):
        config = config.given()
    if config is None:
        scans = [unlabelled] if isinstance(unlabelled, str | PathLike) else unlabelled or ()
        sources = [Path(str(source)).resolve() for source in (settings.get("dataset"), *scans) if source is not None]
        if not sources:
            raise _no_dataset()
        config = {"output": f"runs/{sources[0].stem if sources[0].is_file() else sources[0].name}"}
    completed = load_config(config, overrides, changes=settings)
    if completed.learns_alone and not may_learn_alone:
        raise _no_dataset()
    return completed


def _no_dataset() -> ConfigError:
    hint = "give a dataset folder, or a configuration that names it"
    return ConfigError("there is no dataset to train on", code="dataset-missing", hint=hint)


def _with_texts(keys: Mapping[str, object], texts: StrPath | None) -> Mapping[str, object]:
    """Return the keys with a file of texts. Raises ConfigError for a second one."""
    if texts is None:
        return keys
    if "language_model" in keys:
        message = f"{option('texts', texts)} and language_model both name texts"
        raise ConfigError(message, code="option-invalid", hint="give one of them")
    return {**keys, "language_model": Path(texts).as_posix()}


def expand_changes(changes: Changes | None, keys: Mapping[str, object]) -> tuple[dict[str, object], Sequence[str]]:
    """Return changes by their dotted keys, and those that are texts."""
    if isinstance(changes, Mapping) or changes is None:
        return expand_keys({**(changes or {}), **keys}), ()
    return expand_keys(keys), changes


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
    from dsocr.training.lifecycle import require_sources

    settings = complete_config(config, dataset, changes, _with_texts(keys, texts), unlabelled, may_learn_alone=True)
    require_sources(settings)
    from dsocr.training.dry_run import dry_run as check_and_plan

    with preserved_process(), progress_bar(progress, "overfitting five samples", "steps") as done:
        return check_and_plan(settings, preflight=preflight, progress=done)


def forecast(
    config: Config = None,
    *,
    dataset: Annotated[StrPath | Dataset | None, IN_PYTHON] = None,
    changes: Changes | None = None,
    more: Sequence[Count] = (),
    target: Sequence[Share] = (),
    sizes: Rare[Sequence[Share]] = (),
    split: SplitName = "validation",
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **keys: Unpack[RunConfigKeys],
) -> "Forecast":
    """Forecast what more lines would bring. Trains on growing parts of the data and follows the learning curve.

    Args:
        config: YAML file (configs/ holds recipes), or a dataset folder. In Python all that `train` takes.
        dataset: The dataset, if the configuration does not name it.
        changes: Change a setting, as section.key=value; repeatable.
        more: Number of additional lines to forecast for; repeatable.
        target: CER to reach, as 0.05: how many lines does it take? Repeatable.
        sizes: Share of the training split; repeatable; 0.125 0.25 0.5 1 if not given.
        split: Split to score on.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the steps done and in total, instead of a progress bar.
        keys: Keys of the configuration.

    A stopped forecast resumes when it is called again. Writes numbers, a page and a plot into the run folder.

    Raises:
        ConfigError: The configuration or the sizes cannot be used.
        DataError: There is nothing to train on or to score.
        RunError: A folder holds another run.
    """
    from dsocr.evaluation.evaluate import require_samples
    from dsocr.training.lifecycle import require_sources

    settings, printer = complete_config(config, dataset, changes, keys), current_printer()
    require_sources(settings)
    require_samples(Dataset.open(settings.dataset, fold=settings.fold), Split(split))
    from dsocr.training.forecast import SIZES
    from dsocr.training.forecast import forecast as follow_curve

    def on_point(point: "CurvePoint") -> None:
        trained = f"{point.samples} lines, {point.steps} steps" if point.samples else "the base, untrained"
        printer.message(f"{trained}: CER {100 * point.cer:.2f} %")

    with preserved_process(), progress_bar(progress, "training", "steps") as done:
        return follow_curve(
            settings,
            sizes=sizes or SIZES,
            split=Split(split),
            more=more,
            targets=target,
            overwrite=overwrite,
            progress=done,
            on_point=on_point,
            on_message=printer.complain,
        )


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
    (settings, overrides), printer = expand_changes(changes, keys), current_printer()
    Dataset.open(folder)
    from dsocr.training.folds import audit as audit_lines

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
            on_message=printer.complain,
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
        segmenter: Line segmentation of page images: ppocr, a run that trained a detector, or kraken if installed.
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
    folder, printer = RunFolder.to_read_with(Path(run)), current_printer()
    places = [Path(scans)] if isinstance(scans, str | PathLike) else [Path(path) for path in scans]
    from dsocr.data.page_texts import read_page_texts
    from dsocr.data.sources import require_source
    from dsocr.training.align import align as align_pages
    from dsocr.training.align import require_free_alignment

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
            on_message=printer.complain,
        )
