"""A run folder as an object, and its export for other programs."""

from dataclasses import asdict, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsocr.config import RunConfig, load_run_config
from dsocr.console import shows_progress
from dsocr.errors import ConfigError, option, require_package
from dsocr.evaluation.evaluate import evaluate
from dsocr.evaluation.layout_scores import evaluate_layout
from dsocr.evaluation.report import report as write_report
from dsocr.evaluation.scorecard import Scorecard
from dsocr.inference.transcribe import Reader, load
from dsocr.io.processes import ProgressCallback
from dsocr.models.base_folder import require_free_export, require_readable_adapter
from dsocr.options import ExportForm, Output, Rare, Share, StrPath
from dsocr.runs import History, RunFolder, TrainResult, read_history
from dsocr.text import percentage

if TYPE_CHECKING:
    from dsocr.models.export import Export


@shows_progress("writing", "tensors")
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
        run: Run folder.
        output: Folder to write.
        form: The adapter for peft or vllm, or merged weights; peft, or merged if all weights were trained.
        scale: Strength of the adapter in the export, up to 1.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the tensors written and in total, instead of a progress bar.

    Writes a model card with the settings to read with.

    Raises:
        ConfigError: The folder is not free, or the weights cannot have this form or scale.
        ModelError: The base cannot be found.
        RunError: The run is missing, unfinished or damaged.
    """
    if not 0 <= scale <= 1:
        raise ConfigError(f"{option('scale', scale)} must be from 0 to 1", code="option-invalid")
    folder, target = RunFolder.open_reader(Path(run)), Path(output)
    require_free_export(target, folder.adapter, overwrite=overwrite)
    if form == "merged":
        require_readable_adapter(folder.adapter)
    from dsocr.models.base_folder import is_whole_network

    require_package("exporting")
    from dsocr.models.export import export_adapter, export_merged

    form = form or ("merged" if is_whole_network(folder.adapter) else "peft")
    scores = Scorecard.load(folder.scorecard).to_dict() if folder.scorecard.is_file() else None
    options: dict[str, Any] = {"scores": scores, "scale": scale, "overwrite": overwrite}
    if form == "merged":
        exported = export_merged(folder, target, progress=progress, **options)
    else:
        exported = export_adapter(folder, target, form, **options)
    return replace(exported, folder=target)


class Run:
    """A run folder: its configuration, metrics and scores, and functions that take a run.

    `result` is the result of `dsocr.train`, None if an earlier run was opened. Raises RunError for other folders.
    """

    def __init__(self, path: StrPath, result: TrainResult | None = None) -> None:
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
    def scorecard(self) -> Scorecard | None:
        """The scores of the last evaluation, None before the first."""
        return Scorecard.load(self._folder.scorecard) if self._folder.scorecard.is_file() else None

    # Functions that take a run first are its methods too.
    evaluate = evaluate
    evaluate_layout = evaluate_layout
    export = export
    report = write_report

    def reader(self) -> Reader:
        """Load the run's reader."""
        return load(self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return the folder and the result in JSON's types."""
        return {**({} if self.result is None else asdict(self.result)), "run": str(self.path)}

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
