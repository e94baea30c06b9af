"""Lines that nobody read, read by a model while people correct others."""

import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from PIL import Image

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.document import SkipReason
from dsocr.errors import DataError, DsocrError, RunError
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.history import read_history
from dsocr.inference.confidence import Prediction
from dsocr.io.cropping import CropFailure
from dsocr.runs import RunFolder, write_atomically
from dsocr.workbench.archive import Shelf, export_dataset
from dsocr.workbench.store import Line, Page, State, Store

_LOG = logging.getLogger(__name__)


class Reads(Protocol):
    """Reads pictures, as a Transcriber does."""

    def read(self, images: list[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""


class Reading:
    """A thread that reads all unread lines, page by page.

    `left_out` says of lines that have no picture why, a sentence each; `fault` why it ended early.
    """

    def __init__(self, store: Store, shelf: Shelf, open_reader: Callable[[], Reads]) -> None:
        self._store = store
        self._shelf = shelf
        self._open_reader = open_reader
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dsocr-reading", daemon=True)
        self.done = 0
        self.total = sum(line.state is State.UNREAD for line in store.lines())
        self.left_out: list[str] = []
        self.fault: str | None = None

    def start(self) -> None:
        """Begin, if there is anything to read."""
        if self.total:
            self._thread.start()

    def end(self) -> None:
        """Stop after the page at hand."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(60)

    @property
    def is_at_work(self) -> bool:
        """True while lines are being read."""
        return self._thread.is_alive()

    def _work(self) -> None:
        try:
            reader = self._open_reader()
            pages = {page.number: page for page in self._store.pages()}
            unread = [line for line in self._store.lines() if line.state is State.UNREAD]
            for number, lines in groupby(unread, key=lambda line: line.page):
                if self._ending.is_set():
                    return
                self._read_page(reader, pages[number], list(lines))
        except DsocrError as error:
            self.fault = str(error)
        except Exception as error:  # noqa: BLE001 - no memory left, say: windows tell it, else people would wait
            self.fault = f"{type(error).__name__}: {error}"
            _LOG.exception("reading ended by a fault")

    def _read_page(self, reader: Reads, page: Page, lines: list[Line]) -> None:
        by_id = {str(line.number): line for line in lines}
        images = [(id_, picture) for id_, picture in zip(by_id, self._cut(page, lines), strict=True) if picture]
        for prediction in reader.read(images):
            line = by_id[prediction.id]
            self._store.read_by_machine(line, prediction.text, prediction.characters, prediction.confidence)
        self.done += len(lines)

    def _cut(self, page: Page, lines: list[Line]) -> list[Image.Image | None]:
        """The pictures of lines, None where there is none, which is told."""
        try:
            found = self._shelf.cut(page, lines)
        except DataError as error:
            found = [CropFailure(SkipReason.BAD_IMAGE, error.message)] * len(lines)
        self.left_out += [f"{page.name}: {one.message}" for one in found if isinstance(one, CropFailure)]
        return [None if isinstance(one, CropFailure) else one for one in found]


_PATIENCE = 60
"""Seconds in which a training that is told to end writes its checkpoint."""
_IN_WORK = re.compile(r"(?:run|dataset)-(\d+)(?:\.yaml)?")


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a training is: steps made, epochs done of all, the best CER read on its validation split.

    `fault` says why it ended without an adapter.
    """

    is_at_work: bool
    steps: int = 0
    share: float | None = None
    cer: float | None = None
    fault: str | None = None


class Training:
    """One training after another, in the work folder of a workbench."""

    def __init__(self, store: Store, shelf: Shelf, work: Path, recipe: RunConfig) -> None:
        self._store = store
        self._shelf = shelf
        self._work = work
        self._recipe = recipe
        self._process: subprocess.Popen[bytes] | None = None
        self._config: RunConfig | None = None
        self._beginning = threading.Lock()
        self._said = work / "training.log"

    @property
    def run(self) -> Path | None:
        """The run folder of the latest training."""
        return self._config.output if self._config else None

    def start(self) -> Path:
        """Make a dataset of the accepted lines and begin to train on it; gives the run folder.

        Raises DataError where there are none, RunError where one is training already.
        """
        with self._beginning:
            return self._start()

    def _start(self) -> Path:
        if self._process is not None and self._process.poll() is None:
            raise RunError("is training already", where=self._config.output if self._config else self._work)
        taken = [int(found[1]) for path in self._work.iterdir() if (found := _IN_WORK.fullmatch(path.name))]
        number = 1 + max(taken, default=0)
        dataset = self._work / f"dataset-{number}"
        export_dataset(self._store, self._shelf, dataset)
        config = self._recipe.model_copy(
            update={"dataset": dataset, "output": self._work / f"run-{number}", "fold": None}
        )
        path = self._work / f"run-{number}.yaml"
        write_atomically(path, config.to_yaml())
        command = [sys.executable, "-m", "dsocr", "train", str(path), "--quiet"]
        with self._said.open("wb") as said:
            self._process = _begun(command, said)
        self._config = config
        return config.output

    def standing(self) -> Standing | None:
        """How far the latest training is; None where none was begun."""
        if self._process is None or self._config is None:
            return None
        ended = self._process.poll()
        fault = self._last_words() if ended else None
        try:
            history = read_history(self._config.output)
        except DsocrError:  # it has not written down a step yet
            return Standing(ended is None, fault=fault)
        last = history.training[-1]
        return Standing(ended is None, int(last["step"]), self._share(last), (history.best or {}).get("cer"), fault)

    def end(self) -> None:
        """End a training that is at work, in good order: its checkpoint stays."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _share(self, last: "dict[str, float]") -> float | None:
        training = self._config.training if self._config else None
        if training is None:
            return None
        if training.max_steps:
            return min(1.0, last["step"] / training.max_steps)
        return min(1.0, last["epoch"] / training.epochs) if training.epochs else None

    def _last_words(self) -> str:
        lines = self._said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(lines[-3:]) or "it ended and said nothing"


def _begun(command: Sequence[str], said: BinaryIO) -> subprocess.Popen[bytes]:
    """A process that a terminal's Ctrl-C does not reach: a training that is told twice to end writes no checkpoint."""
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **apart)  # noqa: S603


def recipe_of(run: Path | None, config: Path | None) -> RunConfig | None:
    """The settings to train with: those of a configuration file, else of the run that reads; None without both."""
    if config is not None:
        return load_config(config)
    if run is not None and RunFolder(run).config.is_file():
        return load_run_config(RunFolder(run).config)
    return None


@dataclass(frozen=True, slots=True)
class Tally:
    """How many lines are in each state, and the pooled errors of the model in the lines that were `judged`."""

    counts: Mapping[State, int]
    errors: ErrorRate
    judged: int

    @classmethod
    def of(cls, store: Store) -> "Tally":
        """What a store holds at this moment."""
        pairs = store.judged()
        return cls(store.counts(), sum((character_errors(*pair) for pair in pairs), ErrorRate()), len(pairs))
