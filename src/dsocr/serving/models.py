"""The models of a server: one base in memory, and adapters on it that are read with by name.

Used from one thread, the engine's, but for the listing of names.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr.errors import ModelError
from dsocr.inference.confidence import Calibration
from dsocr.inference.generation import Generation
from dsocr.inference.transcriber import Prediction, Transcriber
from dsocr.model.adapters import add_adapter
from dsocr.model.tokenizing import load_encoder
from dsocr.runs import ReadingSettings
from dsocr.serving.naming import BASE, demand_name


@dataclass(frozen=True, slots=True)
class _Served:
    """An adapter in memory: how to read with it, and what the network calls it."""

    transcriber: Transcriber
    settings: ReadingSettings
    key: str


class ServedModels:
    """Adapters of one base by name, and the base itself; the first that was given reads where nobody names one."""

    def __init__(self, adapters: Mapping[str, Path], *, precision: str = "auto") -> None:
        names = iter(adapters.items())
        name, folder = next(names)
        demand_name(name)
        transcriber = Transcriber.of_adapter(folder, precision=precision)
        self.default = name
        self._network: Any = transcriber.network
        self._keys = (f"served{number}" for number in count(1))
        self._served = {name: _Served(transcriber, ReadingSettings.load(folder), "default")}
        for name, folder in names:
            self.load(name, folder)

    @property
    def names(self) -> list[str]:
        """What can be asked for: the adapters, and the base."""
        return [*self._served, BASE]

    @property
    def samples_per_batch(self) -> int:
        """How many images are read together at most."""
        return self._served[self.default].transcriber.generation.samples_per_batch

    def load(self, name: str, folder: Path) -> None:
        """Take an adapter in, in the place of one of the same name. Raises ModelError where it is of another base."""
        demand_name(name)
        settings, first = ReadingSettings.load(folder), self._served[self.default].settings
        if (settings.base, settings.base_revision) != (first.base, first.base_revision):
            hint = "serve it by a server of its own"
            raise ModelError(f"is of the base {settings.base}, not of {first.base}", where=folder, hint=hint)
        key = next(self._keys)
        add_adapter(self._network, folder, key)
        transcriber = _reading_as(folder, settings, self._network)
        former = self._served.get(name)
        self._served = {**self._served, name: _Served(transcriber, settings, key)}
        if former is not None:
            self._delete(former, instead=key)

    def unload(self, name: str) -> None:
        """Forget an adapter. Raises ModelError where there is none of that name, or where it is the default."""
        if name not in self._served:
            raise ModelError(f"there is no adapter {name!r}", hint=f"there are {', '.join(self._served)}")
        if name == self.default:
            raise ModelError(f"{name!r} reads where nobody names a model, so it stays")
        former = self._served[name]
        self._served = {other: served for other, served in self._served.items() if other != name}
        self._delete(former, instead=self._served[self.default].key)

    def _delete(self, served: _Served, *, instead: str) -> None:
        self._network.set_adapter(instead)  # PEFT warns where the one that goes is the one it reads with
        self._network.delete_adapter(served.key)

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order, each image read by itself."""
        served = self._served.get(self.default if model == BASE else model)
        if served is None:  # it was unloaded while its image waited
            raise ModelError(f"there is no model {model!r}", hint=f"there are {', '.join(self.names)}")
        with self._as(model, served):
            yield from served.transcriber.read(images)

    def _as(self, model: str, served: _Served) -> AbstractContextManager[Any]:
        if model == BASE:
            return served.transcriber.without_adapter()
        self._network.set_adapter(served.key)
        return nullcontext()


def _reading_as(folder: Path, settings: ReadingSettings, network: Any) -> Transcriber:
    """A transcriber with an adapter's own settings on a network that is loaded."""
    encoder = load_encoder(settings.base, settings.resolution, settings.prompt, settings.base_revision)
    generation, calibration = Generation(**settings.generation), Calibration.load(folder)
    return Transcriber(network, encoder, generation, settings.text_policy, calibration=calibration)
