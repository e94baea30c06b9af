"""Public functions that score, report, compare and export runs, and the class of a run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dsocr.config import RunConfig, load_run_config
from dsocr.console import current_reporter, progress_bar
from dsocr.document import Sample, Split
from dsocr.errors import ConfigError, DsocrError, option
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import write_file
from dsocr.options import (
    ON,
    Columns,
    Count,
    ExportForm,
    Output,
    Rare,
    ScriptName,
    Share,
    SplitName,
    StrPath,
    read_pairs,
)
from dsocr.runs import History, RunFolder, read_history, to_json
from dsocr.text import percentage

if TYPE_CHECKING:
    from dsocr.data.dataset import Dataset
    from dsocr.evaluation.compare import Comparison
    from dsocr.evaluation.layout_scores import LayoutScores
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.inference.transcribe import Reader
    from dsocr.models.export import Export
    from dsocr.runs import TrainResult


def evaluate(
    run: StrPath,
    *,
    dataset: StrPath | None = None,
    split: SplitName = "test",
    limit: Rare[Count | None] = None,
    base: Annotated[bool, ON] = True,
    report: Annotated[bool, ON] = True,
    calibrate: Rare[bool] = False,
    script: ScriptName | None = None,
    folds: bool = False,
    output: Output | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "Scorecard":
    """Score a run on lines it never saw, beside its base.

    Args:
        run: Run folder, exported adapter, or a base: small, a folder, a Hub id; for `folds` also a configuration or a
            dataset, nothing trained yet.
        dataset: Another dataset folder than the run's own.
        split: Split to score.
        limit: Score the first samples only, this many.
        base: Also score the base as it was before training.
        report: Also write report.html, a page with images of the lines.
        calibrate: Fit the confidences again first, on the validation split.
        script: Script that line recognisers keep to; auto decides it by the lines; as trained if not given.
        folds: Train as the run on all folds but one, for each, and score all lines.
        output: Folder for the scores of a base or an export; runs/NAME-DATASET if not given.
        overwrite: For `folds`: train again what has other settings or data.
        progress: Called with the lines done and in total, instead of a progress bar.

    The scorecard and the scored lines of a run are written into its folder. Those of a base or an export make a folder
    of their own, which `report` and `compare` take; a base is scored alone.

    Raises:
        ConfigError: Options do not go together.
        DataError: There is no dataset, or no such split of it.
        ModelError: The base cannot be loaded.
        RunError: The run is missing, unfinished or damaged.
    """
    if folds:
        if dataset or split != "test" or limit or calibrate or script or output:
            names = ("dataset", "split", "limit", "calibrate", "script", "output")
            hint = f"leave {', '.join(option(name, ...) for name in names)} out"
            message = f"{option('folds')} scores all lines of the run's own dataset"
            raise ConfigError(message, code="option-invalid", hint=hint)
        return _evaluate_folds(Path(run), base, report, overwrite, progress)
    if overwrite:
        raise ConfigError(f"{option('overwrite')} is for {option('folds')}", code="option-invalid")
    folder, printer = RunFolder.to_read_with(Path(run)), current_reporter()
    is_run = folder.config.is_file()
    if output is not None and is_run:
        message = f"{option('output', output)} is for a base or an export: the scores of a run are kept in it"
        raise ConfigError(message, code="option-invalid", hint=f"leave {option('output', ...)} out")
    if calibrate and not is_run:
        message = f"{option('calibrate')} is for a run, which keeps the calibration of its confidences"
        raise ConfigError(message, code="option-invalid", hint=f"leave {option('calibrate')} out")
    from dsocr.evaluation.evaluate import evaluate as score
    from dsocr.evaluation.evaluate import open_results
    from dsocr.evaluation.report import drop_reports
    from dsocr.evaluation.scorecard import open_dataset

    data = None if dataset is None else Path(dataset)
    opened = open_dataset(folder, data) if is_run or data else None
    results = folder if is_run else open_results(folder, data, None if output is None else Path(output))
    with progress_bar(progress, "reading", "lines") as done:
        card = score(
            folder,
            results=results,
            dataset=data,
            opened=opened,
            split=Split(split),
            limit=limit,
            with_base=base,
            calibrate=calibrate,
            script=script,
            progress=done,
        )
    outdated = drop_reports(results, drawn=report)
    if report:
        _draw_report(results, opened)
    for sentence in outdated:
        printer.complain(f"note: {sentence}")
    return card


def evaluate_layout(
    run: StrPath,
    *,
    dataset: StrPath | None = None,
    split: SplitName = "test",
    limit: Rare[Count | None] = None,
    base: Annotated[bool, ON] = True,
    progress: ProgressCallback | None = None,
) -> "LayoutScores":
    """Score how many lines a detector finds on pages it never saw, beside the shipped detector.

    Args:
        run: Run folder of a detector, or `detector`, which ships with dsocr.
        dataset: Another dataset of layouts than the run's own.
        split: Split to score.
        limit: Score the first samples only, this many.
        base: Also score the shipped detector.
        progress: Called with the pages done and in total, instead of a progress bar.

    A found line counts where it and a drawn line have half of what they cover together in common, each line once. The
    scores of a run are written to layout.json in its folder.

    Raises:
        ConfigError: Options do not go together.
        DataError: There is no dataset of layouts, or no such split of it.
        RunError: The run is missing, unfinished or damaged, or is a reader.
    """
    folder, results = RunFolder.to_find_lines_with(Path(run)), RunFolder(Path(run))
    config = load_run_config(results.config) if results.config.is_file() else None
    if config is None and dataset is None:
        hint = f"give {option('dataset', 'FOLDER')}"
        raise ConfigError("the shipped detector has no dataset of its own", code="dataset-missing", hint=hint)
    from dsocr.data.dataset import Dataset
    from dsocr.data.layouts import require_layouts
    from dsocr.evaluation.evaluate import require_samples
    from dsocr.evaluation.layout_scores import LayoutScores, score_layouts
    from dsocr.layout.text_detector import load_detector, load_shipped_detector

    opened = (
        Dataset.open(config.dataset, fold=config.fold) if dataset is None and config else Dataset.open(str(dataset))
    )
    require_layouts(opened)
    samples = require_samples(opened, Split(split), limit)
    with progress_bar(progress, "finding lines", "pages") as done:
        compared = load_shipped_detector() if base and config is not None else None
        pages = score_layouts(samples, load_detector(folder), compared, done)
    scores = LayoutScores(fspath(run), opened.folder.as_posix(), split, pages)
    if config is not None:
        _warn_of_pages_learnt(config, samples)
        write_file(results.layout, to_json(scores.to_dict()))
    return scores


def _warn_of_pages_learnt(config: RunConfig, samples: Sequence[Sample]) -> None:
    """Say on how many of the pages a detector, or those that it started from, was trained, as far as that is known."""
    from dsocr.data.dataset import image_hash, training_images

    complain = current_reporter().complain
    trained: set[str] = set()
    while True:
        try:
            trained |= training_images(config)
        except DsocrError as error:
            complain(f"warning: it is not known whether the detector was trained on these pages: {error}")
        start = RunFolder(Path(config.base))
        if not start.config.is_file():
            break
        config = load_run_config(start.config)  # a run that started from a run
    if known := sum(image_hash(sample) in trained for sample in samples):
        complain(f"warning: the detector was trained on {known} of these pages")


def _evaluate_folds(
    recipe: Path, base: bool, report: bool, overwrite: bool, progress: ProgressCallback | None
) -> "Scorecard":
    from dsocr.training.folds import cross_validate, recipe_of

    config = recipe_of(recipe)
    with progress_bar(progress, "cross-validating", "lines") as done:
        card = cross_validate(config, with_base=base, overwrite=overwrite, progress=done)
    if report:
        write_report(RunFolder(config.output).folds)
    return card


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """The page that `report` wrote, and what is doubtful about the scores."""

    path: Path
    warnings: Sequence[str]

    def to_dict(self) -> dict[str, object]:
        """Return the page, its size and the warnings in JSON's types."""
        return {"report": str(self.path), "bytes": self.path.stat().st_size, "warnings": list(self.warnings)}


def report(
    run: StrPath,
    *,
    dataset: StrPath | None = None,
    output: Output | None = None,
    markdown: bool = False,
    progress: ProgressCallback | None = None,
) -> WrittenReport:
    """Write the report of an evaluated run.

    Args:
        run: An evaluated run.
        dataset: Dataset folder that was scored, if it has moved.
        output: File to write; report.html in the run if not given.
        markdown: Write Markdown, to report.md in the run if no file is given.
        progress: Called with the lines drawn and in total, instead of a progress bar.

    Raises:
        DataError: The report cannot be written there.
        RunError: The run is missing, or was not evaluated.
    """
    folder = RunFolder.begun(Path(run))
    data, out = (None if path is None else Path(path) for path in (dataset, output))
    return _draw_report(folder, data, out=out, markdown=markdown, progress=progress)


def _draw_report(
    run: RunFolder,
    dataset: "Path | Dataset | None",
    *,
    out: Path | None = None,
    markdown: bool = False,
    progress: ProgressCallback | None = None,
) -> WrittenReport:
    from dsocr.evaluation.report import write_report as draw_report

    with progress_bar(progress, "drawing", "lines") as done:
        page, contents = draw_report(run, dataset=dataset, out=out, markdown=markdown, progress=done)
    for warning in contents.warnings:
        current_reporter().complain(f"warning: {warning}")
    return WrittenReport(page, list(contents.warnings))


write_report = report  # `evaluate` has an option of this name


def compare(
    *systems: StrPath,
    base: bool = False,
    dataset: StrPath | None = None,
    split: SplitName | None = None,
    missing: Rare[Literal["error", "empty"]] = "error",
    pages: bool = False,
    columns: Columns | None = None,
    encoding: str | None = None,
    output: Output | None = None,
    overwrite: bool = False,
) -> "Comparison":
    """Compare models, and test whether the difference is significant. Scores predictions for the same lines.

    Args:
        systems: Evaluated runs, or files of predictions; NAME=PATH names one.
        base: Also compare with the base of the first run.
        dataset: Dataset that the predictions are of, if not the first run's.
        split: Split that they are of; the first run's if not given, else test.
        missing: What a line without a prediction is: an error, or an empty text.
        pages: Compare whole pages, whatever lines a tool found and in which order.
        columns: Column of a table, as image=NAME, text=NAME, writer=NAME; repeatable.
        encoding: Encoding of texts and tables that are not UTF-8, e.g. cp1251.
        output: Page.html, or a folder for the page, numbers and changed lines.
        overwrite: Replace what an earlier command wrote there.

    A single run is compared with its base.

    Raises:
        DataError: Predictions cannot be read, or do not fit the dataset.
        RunError: A run was not evaluated, or on other lines.
    """
    from dsocr.evaluation.predictions import compare_paths
    from dsocr.evaluation.result_pages import require_free_comparison, write_comparison

    out = None if output is None else Path(output)
    if out is not None:
        require_free_comparison(out, overwrite=overwrite)
    comparison = compare_paths(
        [fspath(system) for system in systems],
        base=base,
        dataset=None if dataset is None else Path(dataset),
        split=None if split is None else Split(split),
        missing=missing,
        columns=read_pairs("columns", columns),
        encoding=encoding,
        pages=pages,
    )
    if out is not None:
        with progress_bar(None, "drawing", "lines") as done:
            write_comparison(comparison, out, done)
    return comparison


def export(
    run: StrPath,
    output: Output,
    *,
    form: ExportForm | None = None,
    scale: Rare[Share] = 1.0,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "Export":
    """Export a run for other programs.

    Args:
        run: Run folder; to publish also a dataset folder.
        output: Folder to write.
        form: The adapter for peft or vllm, or merged weights; peft, or merged if all weights were trained.
        scale: Strength of the adapter in the export, up to 1.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the tensors written and in total, instead of a progress bar.

    Writes a model card with the settings to read with.

    Raises:
        ConfigError: The folder is not free, or the weights cannot have this form.
        ModelError: The base cannot be found.
        RunError: The run is missing, unfinished or damaged.
    """
    from dsocr.models.base_folder import require_free_export, require_readable_adapter

    if not 0 <= scale <= 1:
        raise ConfigError(f"{option('scale', scale)} must be from 0 to 1", code="option-invalid")
    folder, target = RunFolder.open_reader(Path(run)), Path(output)
    require_free_export(target, folder.adapter, overwrite=overwrite)
    if form == "merged":
        require_readable_adapter(folder.adapter)
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.models.adapters import is_whole_network
    from dsocr.models.export import export_adapter, export_merged

    form = form or ("merged" if is_whole_network(folder.adapter) else "peft")
    scores = Scorecard.load(folder.scorecard).to_dict() if folder.scorecard.is_file() else None
    if form != "merged":
        return export_adapter(folder, target, form, scores=scores, scale=scale, overwrite=overwrite)
    with progress_bar(progress, "writing", "tensors") as done:
        return export_merged(folder, target, scores=scores, scale=scale, overwrite=overwrite, progress=done)


class Run:
    """A run folder: its configuration, metrics and scores, and what can be done with its adapter.

    `result` is what the training reached that made the run, None if the run was opened. Raises RunError if no training
    was started in the folder.
    """

    def __init__(self, path: StrPath, result: "TrainResult | None" = None) -> None:
        self.path, self.result = Path(path), result
        self._folder = RunFolder.begun(self.path)

    @property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        return load_run_config(self._folder.config)

    @property
    def history(self) -> History:
        """The logged steps and validations."""
        return read_history(self.path)

    @property
    def scorecard(self) -> "Scorecard | None":
        """The scores of the last evaluation, None before the first."""
        from dsocr.evaluation.scorecard import Scorecard

        return Scorecard.load(self._folder.scorecard) if self._folder.scorecard.is_file() else None

    # Functions that take a run first are its methods too.
    evaluate = evaluate
    evaluate_layout = evaluate_layout
    export = export
    report = report

    def reader(self) -> "Reader":
        """Load the run's reader."""
        from dsocr.inference.transcribe import load

        return load(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return the folder and what the training reached in JSON's types."""
        reached = {} if self.result is None else {**asdict(self.result), "run": str(self.path)}
        return {"run": str(self.path), **reached}

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        config, card = self.config, self.scorecard
        rows = {"run": str(self.path), "base": config.base, "dataset": str(config.dataset)}
        if self._folder.metrics.is_file() and (history := self.history).training:
            rows["steps"] = f"{history.training[-1]['step']:.0f}"
            if history.best is not None:
                rows["best validation CER"] = f"{percentage(history.best['cer'])} at step {history.best['step']:.0f}"
        rows["finished"] = "yes" if self._folder.adapter.is_dir() else f"no; resume with {self._folder.resume_command}"
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>" + ("" if card is None else card._repr_html_())
