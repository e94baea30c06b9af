"""A reader: a base, or a run's adapter on its base, with the settings it was trained with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image

from dsocr.inference.confidence import UNCALIBRATED, Calibration, Prediction
from dsocr.models.base_folder import is_whole_network
from dsocr.models.ctc import LineRecognizer, require_script
from dsocr.models.family import Processor
from dsocr.models.generation import Decoded, Generation, batches
from dsocr.models.graph import Graph
from dsocr.models.loading import Base, choose_device, choose_dtype, load_base, open_graph
from dsocr.models.scripts import UNSURE
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.text import TextPolicy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_PIXELS = 24_000_000
"""Images are opened ahead until they have this many pixels together, at four bytes each."""
_UNDECIDED = Generation(script=UNSURE)
_MAX_LINES = 512
"""Lines of a page that are read together."""


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LocalReader:
    """Read images with one network, which may carry an adapter."""

    network: Any
    processor: Processor
    generation: Generation
    text_policy: TextPolicy
    calibration: Calibration = UNCALIBRATED
    base_name: tuple[str, str | None] | None = None
    """Name and revision of the base of a network all of whose weights were trained."""
    by_page: bool = False
    """Whether lines come from pages, whose script is decided, or compared with the one of `generation`."""
    otherwise: Generation | None = _UNDECIDED
    """Script and language model of pages whose few lines leave them open; None as lines read together decide it."""

    @classmethod
    def of_run(
        cls,
        run: RunFolder,
        *,
        precision: str | None = None,
        merged: bool = True,
        use_torch: bool = False,
        script: str | None = None,
        base: Base | None = None,
    ) -> "LocalReader":
        """Load a base, or a finished run's adapter on its base with the settings of its training.

        The base is found unless given. The adapter is `merged` into its weights, or stays beside them: slower, but
        `base` can switch it off. A network with a graph is computed by ONNX Runtime, unless `use_torch`, or torch is
        loaded and faster here.
        """
        folder = run.adapter
        base, settings = base or Base.of_adapter(folder), ReadingSettings.load(folder)
        is_whole = is_whole_network(folder)
        network = open_graph(base.folder) if is_whole and precision is None and not use_torch else None
        if network is None:
            device, is_trained_whole = choose_device(), base.family.trains == "all" if run.is_base else is_whole
            if precision is None:  # bf16 is what `auto` chooses where it is fast
                usable = ("fp32",) if device.type == "cpu" else ("fp32", "fp16")
                precision = settings.precision if settings.precision in usable else "auto"
            dtype = choose_dtype(precision, device, whole=is_trained_whole)
            network = load_base(base, dtype=dtype, device=device).network
        if not is_whole:
            from dsocr.models.adapters import load_adapter

            network = load_adapter(network, folder)
        reader = cls(
            network,
            base.processor(settings.resolution, settings.prompt),
            Generation(**settings.generation),
            settings.text_policy,
            Calibration.load(folder),
            (settings.base, settings.base_revision) if is_whole and not run.is_base else None,
        )
        return (reader.merged() if merged else reader).with_script(script)

    def merged(self) -> "LocalReader":
        """Return the reader with its adapter, if it has one, merged into the weights; this one is unusable then."""
        merge = getattr(self.network, "merge_and_unload", None)
        return replace(self, network=merge()) if merge else self

    @contextmanager
    def base(self) -> Iterator["LocalReader"]:
        """Yield a reader of the base alone; inside the block this reader must not be used."""
        if not self.base_name:
            with getattr(self.network, "disable_adapter", nullcontext)():
                yield self
            return
        name, revision = self.base_name
        base, like = Base.find(name, revision), self.network
        network = open_graph(base.folder) if isinstance(like, Graph) else None
        network = network or load_base(base, dtype=like.dtype, device=like.device).network
        processor = base.processor(self.processor.resolution_name, self.processor.prompt)
        yield LocalReader(network, processor, self.generation, self.text_policy)

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """Yield a prediction for every (id, image), in their order; `prefetch_batches` batches are opened at a time."""
        if self.by_page and isinstance(self.processor.family, LineRecognizer) and self.generation.script != "any":
            yield from (self._prediction(name, decoded) for name, decoded in self._read_pages(images))
            return
        together = self.generation.prefetch_batches * self.generation.batch_size
        for window in _windows(images, lambda line: line[1].width * line[1].height, together, _MAX_PIXELS):
            order = sorted(range(len(window)), key=lambda place: -window[place][1].width / window[place][1].height)
            results = dict(zip(order, self._read_lines([window[place][1] for place in order]), strict=True))
            yield from (self._prediction(name, results[place]) for place, (name, _) in enumerate(window))

    def with_script(self, script: str | None) -> "LocalReader":
        """Return the reader in a script; None as it is set. Raises ConfigError if the network cannot keep to it."""
        if script is None:
            return self
        require_script(self.processor.family, script)
        return replace(self, generation=replace(self.generation, script=script))

    def decide_script(self, images: Iterable[Image.Image]) -> "LocalReader":
        """Return the reader in the script of these lines of its job; as it is if it has a script, or can have none.

        The language model is weighed by how well it predicts their clear parts. Decided once, before anything is
        read, so that no line is read otherwise in other company.
        """
        if self.generation.script != "auto" or not isinstance(self.processor.family, LineRecognizer):
            return self
        family: Any = self.processor.family  # a `LineRecognizer`
        samples = [self.processor.encode(image) for image in images]
        if not samples:
            return replace(self, generation=replace(self.generation, script=UNSURE))
        return replace(self, generation=family.decide_reading(self.network, self.processor, samples, self.generation))

    def for_pages(self, images: Iterable[Image.Image] = ()) -> "LocalReader":
        """Return the reader for lines with ids as `PAGE#LINE`; each page has its own script if none is set.

        Pages whose few lines leave it open have that of `images`, which are lines of the job.
        """
        return replace(self, by_page=True, otherwise=self.decide_script(images).generation)

    @property
    def characters(self) -> tuple[str, ...]:
        """The characters of classes 1, 2, ... of `read_steps`; empty for a network that writes tokens."""
        return tuple(getattr(self.processor, "characters", ()))

    def can_write(self, text: str) -> bool:
        """Whether a text has no letters that the network lacks."""
        processor: Any = self.processor
        return not self.characters or set(processor.fold(text)) <= processor.classes.keys()

    def read_steps(self, images: Sequence[tuple[str, Image.Image]]) -> "list[tuple[str, NDArray[np.float32] | None]]":
        """Read the lines of one page without a language model: each text with the probabilities of its steps `(T, C)`.

        A network that writes tokens has no steps.
        """
        family: Any = self.processor.family
        if not isinstance(family, LineRecognizer):
            return [(prediction.text, None) for prediction in self.read(images)]
        encoded = [self.processor.encode(image) for _, image in images]
        return family.read_steps(self.network, self.processor, encoded, self.generation)

    def log_likelihoods(self, image: Image.Image, texts: Sequence[str]) -> list[float]:
        """Return the natural log probability of each text of one image."""
        family = self.processor.family
        return family.log_likelihoods(self.network, self.processor, [image], [texts])[0]

    def _read_lines(self, images: Sequence[Image.Image]) -> list[Decoded]:
        decoded = []
        for batch in batches(images, self.generation.batch_size):
            encoded = [self.processor.encode(image) for image in batch]
            decoded += self.processor.family.decode(self.network, self.processor, encoded, self.generation)
        return self.processor.family.retry_loops(self.network, self.processor, self.generation, images, decoded)

    def _read_pages(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[tuple[str, Decoded]]:
        """Yield each id with its reading; whole pages are read together, so that each decides its script."""

        def page_of(line: tuple[str, Any]) -> str:
            return line[0].rpartition("#")[0] or line[0]  # an image of a line is a page of its own

        encoded = ((name, self.processor.encode(image)) for name, image in images)
        pages = (lines for _, page in groupby(encoded, page_of) for lines in batches(page, _MAX_LINES))
        family: Any = self.processor.family  # a `LineRecognizer`
        together = self.generation.prefetch_batches * self.generation.batch_size
        for window in _windows(pages, len, together, together):
            samples = [[sample for _, sample in page] for page in window]
            read = family.decode_pages(self.network, self.processor, samples, self.generation, self.otherwise)
            for page, decoded in zip(window, read, strict=True):
                yield from zip((name for name, _ in page), decoded, strict=True)

    def _prediction(self, name: str, decoded: Decoded) -> Prediction:
        scored = decoded.scored.rewrite(self.text_policy.apply(decoded.text))
        read = Prediction(
            id=name,
            text=scored.text,
            tokens=decoded.tokens,
            truncated=decoded.truncated,
            retried=decoded.retried,
            looping=decoded.looping,
            overruled=decoded.overruled,
            script=decoded.script,
            plain=None if decoded.plain is None else self.text_policy.apply(decoded.plain),
        )
        return read.rescore(scored, self.calibration)


def _windows(
    items: Iterable[Item], weight: Callable[[Item], int], max_items: int, max_weight: int
) -> Iterator[list[Item]]:
    window: list[Item] = []
    held = 0
    for item in items:
        window.append(item)
        held += weight(item)
        if len(window) >= max_items or held >= max_weight:
            yield window
            window, held = [], 0
    if window:
        yield window
