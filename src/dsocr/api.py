"""The functions and classes of `import dsocr`: the library with progress bars, and paths as str or Path.

Networks are imported only when a function needs one.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from PIL import Image

from dsocr.config import RunConfig, expand_keys, load_config, load_run_config
from dsocr.console import Printer, training_progress
from dsocr.data.convert import convert as _convert
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import prepare as _prepare
from dsocr.data.synthesize import synthesize as _synthesize
from dsocr.document import Split, Unit
from dsocr.errors import ConfigError, DataError, ModelError
from dsocr.images import open_image
from dsocr.io.hub import fetch_model, is_hub_id
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import FetchOptions
from dsocr.options import ExportForm, RunConfigKeys, StrPath
from dsocr.runs import READING, History, ReadingSettings, RunFolder, read_history

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

    from dsocr.evaluation.compare import Comparison
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.inference.confidence import Prediction
    from dsocr.inference.engines import Cluster, RemoteEngine
    from dsocr.inference.reader import LocalReader
    from dsocr.inference.transcribe import TranscribeReport
    from dsocr.models.family import Processor
    from dsocr.models.model_card import Export
    from dsocr.publish import Publication
    from dsocr.training.callbacks import Callback

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def progress_bar(progress: ProgressCallback | None, label: str, unit: str) -> "Iterator[ProgressCallback | None]":
    """The caller's callback, else a progress bar if one can be drawn."""
    printer = Printer()
    if progress is not None or not printer.interactive:
        yield progress
    else:
        with printer.progress(label, unit) as bar:
            yield bar


def without_note(progress: ProgressCallback | None) -> "Callable[[int, int, str], None] | None":
    """A callback that gets no note on what is done now."""
    return None if progress is None else lambda done, total, note: progress(done, total)


def _with_progress(function: Callable[P, R], label: str, unit: str) -> Callable[P, R]:
    """The same function, which shows a progress bar unless it is called with `progress`."""

    @wraps(function)
    def shown(*args: P.args, **kwargs: P.kwargs) -> R:
        with progress_bar(kwargs.get("progress"), label, unit) as progress:  # type: ignore[arg-type]
            return function(*args, **{**kwargs, "progress": progress})  # type: ignore[arg-type]

    return shown


prepare = _with_progress(_prepare, "preparing", "images")
convert = _with_progress(_convert, "converting", "images")
synthesize = _with_progress(_synthesize, "drawing", "lines")


def train(
    config: "StrPath | RunConfig | Mapping[str, Any] | None" = None,
    *,
    dataset: "StrPath | Dataset | None" = None,
    overwrite: bool = False,
    preflight: bool = True,
    changes: Mapping[str, object] | None = None,
    callbacks: "Sequence[Callback]" = (),
    **keys: Unpack[RunConfigKeys],
) -> "Run":
    """Train a reader, or resume an interrupted training.

    Args:
        config: A YAML file, a dataset folder, a mapping, or a `RunConfig`; None takes the defaults.
        dataset: The dataset, if the configuration does not name it.
        overwrite: Replace a finished run in the same folder.
        preflight: Overfit a few samples first, to find mistakes in seconds.
        changes: Dotted keys of the configuration and their values, as `{"training.batch_size": 8}`.
        callbacks: Your own hooks into the training; one may end it with `trainer.stop(save=True)`.
        keys: Keys of the configuration, as `base="nano"`, `output="runs/mine"`, `max_steps=500` or `adapter={"r": 16}`.

    Changes and keys win over `config`. Without `output`, the run goes to `runs/NAME`, named as the dataset. Shows
    progress in a terminal or notebook.

    Raises:
        ConfigError: The configuration has problems; all are listed.
        DataError: The dataset cannot be trained on.
        RunError: The run folder is in use or holds something else, or a check before training fails.
    """
    from dsocr.io.processes import rank_and_count
    from dsocr.training.train import train as run_training

    complete = training_config(config, dataset, {**(changes or {}), **keys})
    printer = Printer(quiet=rank_and_count()[0] > 0)
    with training_progress(printer) as (on_progress, on_stage):
        result = run_training(
            complete,
            overwrite=overwrite,
            preflight=preflight,
            on_progress=on_progress,
            on_stage=on_stage,
            on_warning=lambda finding: printer.complain(f"{finding.severity}: {finding.where}: {finding.message}"),
            on_message=printer.complain,
            callbacks=callbacks,
        )
    return Run(result.run.path)


def training_config(
    config: "StrPath | RunConfig | Mapping[str, Any] | None",
    dataset: "StrPath | Dataset | None",
    settings: dict[str, Any],
) -> RunConfig:
    """Return the configuration of a training from what its caller gave; `settings` win over `config`."""
    changes = expand_keys(settings)
    if isinstance(dataset, Dataset):
        changes |= {"dataset": dataset.folder} | ({} if dataset.fold is None else {"fold": dataset.fold})
    elif dataset is not None:
        changes["dataset"] = Path(dataset)
    if isinstance(config, RunConfig):
        config = config.model_dump()
    if config is None and "dataset" not in changes:
        hint = "give a dataset folder or a configuration, e.g. dataset='data/mine'"
        raise ConfigError("there is no dataset to train on", code="dataset-missing", hint=hint)
    if config is None:
        config = {"output": f"runs/{Path(str(changes['dataset'])).resolve().name}"}
    return load_config(config, changes=changes)


def load(source: StrPath, *, revision: str | None = None) -> "Reader":
    """Load a reader: a run, an adapter folder such as an export's, a base by name or folder, or either by its Hub id.

    `revision` is the commit, tag or branch of a Hub id. Raises RunError or ModelError.
    """
    from dsocr.inference.reader import LocalReader
    from dsocr.models.base_folder import embedded_bases

    folder = Path(source)
    if not folder.exists():
        folder = embedded_bases().get(str(source), folder)
    if not folder.exists() and is_hub_id(str(source)):
        fetched, _ = fetch_model(str(source), revision)
        folder = fetched if (fetched / READING).is_file() else folder  # a reader that was published
    if (folder / READING).is_file() or (folder / "config.yaml").is_file():
        run = RunFolder.to_read_with(folder)
        return Reader(LocalReader.of_run(run), run)
    return Reader(LocalReader.of_base(str(source), revision), name=str(source))


def evaluate(
    run: "StrPath | Run",
    *,
    dataset: StrPath | None = None,
    split: Split | Literal["train", "validation", "test"] = "test",
    limit: int | None = None,
    with_base: bool = True,
    calibrate: bool = False,
    folds: bool = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "Scorecard":
    """Score a run's adapter beside its base on a split of its dataset, or of another one.

    `limit` reads only the first samples. `calibrate` first fits the confidences again, on the validation split. The
    scorecard and the scored lines are written into the run folder. `folds` scores all lines of the run's dataset: for
    each fold a model is trained as the run was, without it. `run` may then be a configuration or a dataset too, and
    `overwrite` trains again what has other settings or data.
    """
    if folds:
        if dataset is not None or Split(split) is not Split.TEST or limit is not None or calibrate:
            message = "folds scores all lines of the run's own dataset"
            hint = "leave dataset, split, limit and calibrate out"
            raise ConfigError(message, code="option-invalid", hint=hint)
        from dsocr.training.folds import cross_validate, recipe_of

        with progress_bar(progress, "cross-validating", "lines") as callback:
            return cross_validate(
                recipe_of(run_path(run)), with_base=with_base, overwrite=overwrite, progress=without_note(callback)
            )
    from dsocr.evaluation.evaluate import evaluate as score

    folder = RunFolder.open(run_path(run))
    with progress_bar(progress, "reading", "lines") as callback:
        return score(
            folder,
            dataset=None if dataset is None else Path(dataset),
            split=Split(split),
            limit=limit,
            with_base=with_base,
            calibrate=calibrate,
            progress=callback,
        )


def compare(
    *systems: "StrPath | Run",
    base: bool = False,
    dataset: StrPath | None = None,
    split: Split | Literal["train", "validation", "test"] | None = None,
    missing: Literal["error", "empty"] = "error",
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    pages: bool = False,
    pool_seeds: bool = False,
) -> "Comparison":
    """Compare evaluated runs and files of predictions on the same lines; a string `NAME=PATH` names one.

    A single run is compared with its base. `base` puts the base of the first run before the others. `missing` says
    whether a line without a prediction is an error or an empty text. `pages` compares whole pages, whatever lines a
    tool found. `pool_seeds` counts runs that differ in seed alone as one.
    """
    from dsocr.evaluation.predictions import compare_paths

    return compare_paths(
        [system if isinstance(system, str) else str(run_path(system)) for system in systems],
        base=base,
        dataset=None if dataset is None else Path(dataset),
        split=None if split is None else Split(split),
        missing=missing,
        columns=columns,
        encoding=encoding,
        pages=pages,
        pool_seeds=pool_seeds,
    )


def transcribe(
    run: "StrPath | Run | Reader",
    inputs: StrPath | Sequence[StrPath],
    output: StrPath,
    *,
    format: str | Sequence[str] = (),
    unit: Unit | None = None,
    shows: Literal["line", "page"] | None = None,
    segmenter: str = "ppocr",
    replace: bool = False,
    shard: tuple[int, int] = (1, 1),
    review: StrPath | None = None,
    engine: "RemoteEngine | Cluster | None" = None,
    second: "StrPath | Sequence[StrPath]" = (),
    strict: bool = False,
    overwrite: bool = False,
    fetch: FetchOptions | None = None,
    progress: ProgressCallback | None = None,
) -> "TranscribeReport":
    """Transcribe images, PDF, ALTO, PAGE, archives, folders, IIIF or METS with a run or an exported adapter.

    Args:
        run: A run folder, the folder of an exported adapter, or a reader of one.
        inputs: Files and folders.
        output: One file, whose suffix says the format, or a folder.
        format: Formats to write into a folder: text, jsonl, page, alto, pdf, ...
        unit: What the model is shown: "line", "region" or "page"; as it was trained if None.
        shows: What images show: "line" or "page"; judged by their shape if None.
        segmenter: Line segmentation of page images.
        replace: Also transcribe lines that have a text already.
        shard: (2, 5) transcribes the second of five shares of the pages.
        review: Also write all lines to this file, least certain first.
        engine: A server or a cluster that runs the model.
        second: Other readers: runs, bases, or predictions of other tools; `NAME=PLACE` names one. What they read
            differently is marked, and checked first.
        strict: Stop at the first input that cannot be read, instead of counting it.
        overwrite: Replace an earlier output.
        fetch: How IIIF manifests and METS files are fetched.
        progress: Called with the numbers of pages done and in total, instead of a progress bar.

    An interrupted transcription resumes when it is called again.
    """
    from dsocr.inference.transcribe import transcribe as transcribe_pages

    reader = run if isinstance(run, Reader) else None
    folder = RunFolder.to_read_with(run_path(run)) if not isinstance(run, Reader) else run._run
    if folder is None:
        message = "transcribing documents needs a run or an exported adapter, not a base alone"
        raise ModelError(message, code="adapter-missing", hint="read() works with a base")
    with progress_bar(progress, "transcribing", "pages") as callback:
        return transcribe_pages(
            folder,
            [Path(inputs)] if isinstance(inputs, str | PathLike) else [Path(path) for path in inputs],
            Path(output),
            formats=[format] if isinstance(format, str) else list(format),
            unit=unit,
            shows=shows,
            segmenter=segmenter,
            replace_texts=replace,
            shard=shard,
            review=None if review is None else Path(review),
            engine=engine,
            strict=strict,
            overwrite=overwrite,
            reader=None if reader is None else reader._local,
            second=places_of(second),
            fetch=fetch,
            progress=callback,
        )


def export(
    run: "StrPath | Run",
    output: StrPath,
    *,
    form: ExportForm | None = None,
    scale: float = 1.0,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "Export":
    """Export a run's adapter for PEFT or vLLM, or the base with the adapter merged in; by default what was trained.

    `scale` multiplies the adapter's effect, up to 1. Writes a model card with the settings to read with.
    """
    from dsocr.models.base_folder import require_free_export, require_readable_adapter

    folder, target = RunFolder.open(run_path(run)), Path(output)
    require_free_export(target, folder.adapter, overwrite=overwrite)
    if form == "merged":
        require_readable_adapter(folder.adapter)
    from dsocr.evaluation.scorecard import Scorecard
    from dsocr.models.export import export_adapter, export_merged
    from dsocr.models.trained import is_whole_network

    form = form or ("merged" if is_whole_network(folder.adapter) else "peft")
    scores = Scorecard.load(folder.scorecard).to_dict() if folder.scorecard.is_file() else None
    if form != "merged":
        return export_adapter(folder, target, form, scores=scores, scale=scale, overwrite=overwrite)
    with progress_bar(progress, "writing", "tensors") as callback:
        return export_merged(folder, target, scores=scores, scale=scale, overwrite=overwrite, progress=callback)


def push(
    source: "StrPath | Run | Dataset",
    repo: str,
    *,
    license: str | None = None,
    form: ExportForm | None = None,
    about: Mapping[str, str] | None = None,
    private: bool = False,
    dry_run: bool = False,
    yes: bool = False,
) -> "Publication":
    """Publish a run or a dataset as `owner/name` on the Hugging Face Hub; nothing is sent without `license` and `yes`.

    Args:
        source: A run or a dataset, or its folder.
        repo: Repository, which is created if need be.
        license: The Hub's identifier of a licence, such as "cc-by-4.0".
        form: What of a run is sent: "peft", "vllm" or "merged"; chosen if None.
        about: For a dataset's card and HTR-United record: title, description, language, time, script_type, author.
        private: Create a private repository.
        dry_run: Only say which files would be sent.
        yes: Send them.
    """
    from dsocr.publish import push as send

    folder = source.folder if isinstance(source, Dataset) else run_path(source)
    options = {"license": license, "form": form, "about": about, "private": private, "dry_run": dry_run}
    return send(folder, repo, confirm=lambda publication: yes, **options)  # type: ignore[arg-type]


class Run:
    """A run folder: its configuration, metrics and scores, and what can be done with its adapter.

    Raises RunError if no training was started in the folder.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
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

    def report(self, output: StrPath | None = None, *, dataset: StrPath | None = None, markdown: bool = False) -> Path:
        """Write the report of the last evaluation, by default `report.html` in the run; return its path."""
        from dsocr.evaluation.report.report import write_report

        with progress_bar(None, "drawing", "lines") as callback:
            page, _ = write_report(
                self._folder,
                dataset=None if dataset is None else Path(dataset),
                out=None if output is None else Path(output),
                markdown=markdown,
                progress=callback,
            )
        return page

    # Functions that take a run first are its methods too.
    evaluate = evaluate
    export = export

    def reader(self) -> "Reader":
        """Load the run's reader."""
        return load(self.path)

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
                rows["best validation CER"] = f"{history.best['cer']:.2%} at step {history.best['step']:.0f}"
        rows["finished"] = "yes" if self._folder.adapter.is_dir() else f"no; resume with {self._folder.resume_command}"
        cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>" + ("" if card is None else card._repr_html_())


class Reader:
    """Reads images of lines, and transcribes whole documents; made by `dsocr.load`."""

    def __init__(self, local: "LocalReader", run: RunFolder | None = None, *, name: str = "base") -> None:
        self._local, self._run, self._name = local, run, name if run is None else str(run.path)
        self._reads_lines = run is not None and ReadingSettings.load(run.adapter).unit == "line"

    @overload
    def read(self, images: "StrPath | Image.Image") -> "Prediction": ...  # type: ignore[overload-overlap]
    @overload
    def read(self, images: "Sequence[StrPath | Image.Image]") -> "list[Prediction]": ...
    def read(
        self, images: "StrPath | Image.Image | Sequence[StrPath | Image.Image]"
    ) -> "Prediction | list[Prediction]":
        """Read one image, or several: paths or PIL images of what the model was trained on, mostly lines.

        Warns of an image that looks like a page if the model reads lines; `transcribe` finds the lines of pages.
        Raises DataError for what is not an image or cannot be read.
        """
        single = not isinstance(images, Iterable) or isinstance(images, (str, bytes)) or hasattr(images, "shape")
        several: Iterable[StrPath | Image.Image] = [images] if single else images  # type: ignore[list-item, assignment]
        predictions = list(self._local.read(self._open(image, place) for place, image in enumerate(several)))
        return predictions[0] if single else predictions

    @property
    def network(self) -> "PreTrainedModel":
        """The network that reads, with its adapter if it has one, in evaluation mode."""
        network: PreTrainedModel = self._local.network
        return network

    @property
    def processor(self) -> "Processor":
        """What turns images and texts into the network's inputs, and its family."""
        return self._local.processor

    def _open(self, image: StrPath | Image.Image, place: int) -> tuple[str, Image.Image]:
        """Return an image with its path, or its place if it has none."""
        from dsocr.inference.inputs import guess_shows

        name, opened = str(place), image
        if not isinstance(opened, (str, Path, Image.Image)):
            message = f"image {name} is neither a path nor a PIL image, but of type {type(opened).__name__}"
            raise DataError(message, code="image-type", hint="PIL.Image.fromarray(...) makes an image of an array")
        if not isinstance(opened, Image.Image):
            name, opened = str(opened), open_image(Path(opened))
        if not all(opened.size):
            message = f"image {name} has no pixels: its size is {opened.width} x {opened.height}"
            raise DataError(message, code="image-empty", hint="check the coordinates that it was cropped with")
        if self._reads_lines and guess_shows(opened.size) == "page":
            message = f"{name} looks like a page and is read as one line; Reader.transcribe finds the lines of pages"
            warnings.warn(message, stacklevel=2)
        return name, opened.convert("RGB")

    def transcribe(
        self,
        inputs: StrPath | Sequence[StrPath],
        output: StrPath,
        *,
        format: str | Sequence[str] = (),
        unit: Unit | None = None,
        shows: Literal["line", "page"] | None = None,
        segmenter: str = "ppocr",
        replace: bool = False,
        review: StrPath | None = None,
        strict: bool = False,
        overwrite: bool = False,
        fetch: FetchOptions | None = None,
        progress: ProgressCallback | None = None,
    ) -> "TranscribeReport":
        """Transcribe files and folders; see `dsocr.transcribe`. Raises ModelError for a base without an adapter."""
        return transcribe(
            self,
            inputs,
            output,
            format=format,
            unit=unit,
            shows=shows,
            segmenter=segmenter,
            replace=replace,
            review=review,
            strict=strict,
            overwrite=overwrite,
            fetch=fetch,
            progress=progress,
        )

    def __repr__(self) -> str:
        return f"Reader({self._name!r})"


def places_of(second: "StrPath | Sequence[StrPath]") -> list[str]:
    """Return the places of other readers as texts."""
    return [str(second)] if isinstance(second, str | PathLike) else list(map(str, second))


def run_path(run: "StrPath | Run") -> Path:
    """Return the folder of a run."""
    return run.path if isinstance(run, Run) else Path(run)
