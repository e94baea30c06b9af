"""Public functions that read: a reader of images, transcriptions of documents."""

import re
import warnings
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Union, overload

from PIL import Image

from dsocr.console import progress_bar
from dsocr.document import Unit
from dsocr.errors import ConfigError, DataError, option
from dsocr.images import open_image
from dsocr.io.processes import ProgressCallback
from dsocr.io.web import Fetch, FetchOptions
from dsocr.models.generation import spread
from dsocr.options import Count, Output, Paths, Rare, ScriptName, StrPath, Texts
from dsocr.runs import ReadingSettings, RunFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from dsocr.inference.confidence import Prediction
    from dsocr.inference.engines import Cluster, RemoteEngine
    from dsocr.inference.reader import LocalReader
    from dsocr.inference.transcribe import TranscribeReport
    from dsocr.models.family import Processor


def load(source: StrPath, *, revision: str | None = None) -> "Reader":
    """Load a reader: a run, an adapter folder such as an export's, a base by name or folder, or either by its Hub id.

    `revision` is the commit, tag or branch of a Hub id. Raises RunError or ModelError.
    """
    run = RunFolder.to_read_with(Path(source), revision)
    from dsocr.inference.reader import LocalReader

    return Reader(LocalReader.of_run(run), run, name=str(source))


def transcribe(
    run: Union[StrPath, "Reader"],
    inputs: Paths,
    output: Output,
    *,
    format: Texts = (),
    unit: Unit | None = None,
    images: Literal["line", "page"] | None = None,
    segmenter: str = "ppocr",
    tables: bool | None = None,
    regions: Texts = (),
    engine: Rare[str | None] = None,
    engine_model: Rare[str | None] = None,
    actors: Rare[int | None] = None,
    replace: bool = False,
    script: ScriptName | None = None,
    shard: Rare[str] = "1/1",
    review: StrPath | None = None,
    first: Count | None = None,
    layer: Rare[str | None] = None,
    fetch: Fetch | None = None,
    strict: Rare[bool] = False,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> "TranscribeReport":
    """Transcribe scans. Resumes a transcription that was interrupted.

    Args:
        run: Run folder, exported adapter, or a base: small, a folder, a Hub id. In Python also a `Reader`.
        inputs: Images, PDF, ALTO, PAGE, archives, folders, IIIF or METS.
        output: One file, whose suffix says the format, or a folder.
        format: Format in a folder: text, page, ...; csv, xlsx or parquet for registers; repeatable.
        unit: What the model is shown; as trained if not given.
        images: What images show; judged by shape if not given.
        segmenter: Line segmentation of page images: ppocr, or a run that trained a detector.
        tables: Find the rows and columns of registers; for csv, xlsx and parquet if not given.
        regions: Read only regions that ALTO or PAGE files give this type, such as MainZone, or none; repeatable.
        engine: Where to run the model: http://HOST:PORT/v1 of a server, or ray for a cluster.
        engine_model: Name of the model on the server; the run's name if not given.
        actors: Number of Ray actors; one per GPU or machine if not given.
        replace: Also transcribe lines that have a text already.
        script: Script that line recognisers keep to; auto decides it by page; as trained if not given.
        shard: Transcribe one share of the pages, as 2/5: the second of five.
        review: Also write all lines to this file, least certain first.
        first: List only this many lines there, those to transcribe next: uncertain ones, spread over the pages.
        layer: Part of the path of the file to take where several describe a scan, such as chocomufin; the file named as
            its image if not given.
        fetch: How IIIF and METS are fetched: size=2000 (or max), pages=50, ...; repeatable.
        strict: Stop at the first fault instead of counting and listing it.
        overwrite: Replace what an earlier command wrote there.
        progress: Called with the pages done and in total, instead of a progress bar.

    Raises:
        ConfigError: Options do not go together.
        DataError: An input is missing, or the output cannot be written.
        ModelError: The base cannot be found or loaded.
        RunError: The run is missing, unfinished or damaged.
    """
    share = _parse_shard(shard)
    reader = run if isinstance(run, Reader) else None
    folder = RunFolder.to_read_with(Path(run)) if not isinstance(run, Reader) else run._run
    from dsocr.formats.xml import preferred_layer
    from dsocr.inference.transcribe import transcribe as transcribe_pages

    with preferred_layer(layer), progress_bar(progress, "transcribing", "pages") as done:
        return transcribe_pages(
            folder,
            [Path(inputs)] if isinstance(inputs, str | PathLike) else [Path(path) for path in inputs],
            Path(output),
            formats=[format] if isinstance(format, str) else list(format),
            unit=unit,
            shows=images,
            segmenter=segmenter,
            tables=tables,
            regions=[regions] if isinstance(regions, str) else list(regions),
            replace_texts=replace,
            script=script,
            shard=share,
            review=None if review is None else Path(review),
            first=first,
            engine=choose_engine(engine, engine_model or folder.name, actors),
            strict=strict,
            overwrite=overwrite,
            reader=None if reader is None else reader._local,
            fetch=FetchOptions.parse(fetch),
            progress=done,
        )


def choose_engine(engine: str | None, model: str, actors: int | None) -> "RemoteEngine | Cluster | None":
    """Return a Ray cluster, or the server at an address that knows the model by this name, or None for this process."""
    from dsocr.inference.engines import Cluster, RemoteEngine

    if actors is not None and engine != "ray":
        message = f"{option('actors', actors)} goes with {option('engine', 'ray')}"
        raise ConfigError(message, code="option-invalid")
    if engine == "ray":
        return Cluster(actors)
    return RemoteEngine(engine, model) if engine else None


def _parse_shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        message = f"{option('shard', text)} is not a share"
        raise ConfigError(message, hint="the second of five is 2/5", code="option-invalid")
    return int(match[1]), int(match[2])


class Reader:
    """Reads images of lines, and transcribes whole documents; made by `dsocr.load`."""

    def __init__(self, local: "LocalReader", run: RunFolder, *, name: str) -> None:
        self._local, self._run, self._name = local, run, name
        self._reads_lines = not run.is_base and ReadingSettings.load(run.adapter).unit == "line"

    @overload
    def read(  # type: ignore[overload-overlap]
        self, images: "StrPath | Image.Image", *, script: ScriptName | None = None
    ) -> "Prediction": ...
    @overload
    def read(
        self, images: "Sequence[StrPath | Image.Image]", *, script: ScriptName | None = None
    ) -> "list[Prediction]": ...
    def read(
        self, images: "StrPath | Image.Image | Sequence[StrPath | Image.Image]", *, script: ScriptName | None = None
    ) -> "Prediction | list[Prediction]":
        """Read one image, or several: paths or PIL images of what the model was trained on, mostly lines.

        A line recogniser keeps to `script`, by default that of its training; auto decides it by these images together.
        Warns of an image that looks like a page if the model reads lines; `transcribe` finds the lines of pages.
        Raises DataError for what is not an image or cannot be read.
        """
        single = not isinstance(images, Iterable) or isinstance(images, (str, bytes)) or hasattr(images, "shape")
        several: Iterable[StrPath | Image.Image] = [images] if single else images  # type: ignore[list-item, assignment]
        local = self._local.with_script(script)
        if script == "auto":
            from dsocr.models.scripts import SAMPLE_LINES

            several = list(several)
            local = local.decide_script(self._open(image, 0)[1] for image in spread(several, SAMPLE_LINES))
        predictions = list(local.read(self._open(image, place) for place, image in enumerate(several)))
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

    # A function that takes a reader first is its method too.
    transcribe = transcribe

    def __repr__(self) -> str:
        return f"Reader({self._name!r})"
