"""What a workbench does while people correct: a model reads unread lines, and a training runs in another process."""

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
from dsocr.inference.confidence import Prediction
from dsocr.io.cropping import CropFailure
from dsocr.runs import RunFolder, read_history, write_atomically
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_export import export_dataset
from dsocr.workbench.store import CorrectionStore, State, StoredLine, StoredPage

_LOG = logging.getLogger(__name__)
_CHECKPOINT_TIMEOUT = 60
"""Seconds for a training that is stopped to write its checkpoint."""
_NUMBERED = re.compile(r"(?:run|dataset)-(\d+)(?:\.yaml)?")


class LineReader(Protocol):
    """Reads images, as a Transcriber does."""

    def read(self, images: list[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""


class BackgroundReader:
    """A thread that reads all unread lines, page by page.

    `skipped` has a message for each line that has no image; `error` says why the thread ended early.
    """

    def __init__(self, store: CorrectionStore, archive: Archive, load_reader: Callable[[], LineReader]) -> None:
        self._store = store
        self._archive = archive
        self._load_reader = load_reader
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dsocr-reading", daemon=True)
        self.done = 0
        self.total = sum(line.state is State.UNREAD for line in store.lines())
        self.skipped: list[str] = []
        self.error: str | None = None

    def start(self) -> None:
        """Start reading, if there is anything to read."""
        if self.total:
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current page."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(60)

    @property
    def is_running(self) -> bool:
        """True while lines are being read."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            reader = self._load_reader()
            pages = {page.number: page for page in self._store.pages()}
            unread = [line for line in self._store.lines() if line.state is State.UNREAD]
            for number, lines in groupby(unread, key=lambda line: line.page):
                if self._stopping.is_set():
                    return
                self._read_page(reader, pages[number], list(lines))
        except DsocrError as error:
            self.error = str(error)
        except Exception as error:  # noqa: BLE001 - such as out of memory; shown in the window, or people would wait
            self.error = f"{type(error).__name__}: {error}"
            _LOG.exception("the reading thread ended with an error")

    def _read_page(self, reader: LineReader, page: StoredPage, lines: list[StoredLine]) -> None:
        by_id = {str(line.number): line for line in lines}
        cut = zip(by_id, self._cut(page, lines), strict=True)
        images = [(id_, image) for id_, image in cut if isinstance(image, Image.Image)]
        for prediction in reader.read(images):
            line = by_id[prediction.id]
            self._store.add_reading(line, prediction.text, prediction.characters, prediction.confidence)
        self.done += len(lines)

    def _cut(self, page: StoredPage, lines: list[StoredLine]) -> Sequence[Image.Image | CropFailure]:
        """The line images; those that have none are added to `skipped`."""
        found: Sequence[Image.Image | CropFailure]
        try:
            found = self._archive.cut(page, lines)
        except DataError as error:
            found = [CropFailure(SkipReason.BAD_IMAGE, error.message)] * len(lines)
        self.skipped += [f"{page.name}: {one.message}" for one in found if isinstance(one, CropFailure)]
        return found


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """Progress of a training: steps, completed share, and the best CER on its validation split.

    `error` says why it ended without an adapter.
    """

    is_running: bool
    steps: int = 0
    share: float | None = None
    cer: float | None = None
    error: str | None = None


class BackgroundTraining:
    """Trainings on the corrections, one at a time, in the work folder of a workbench."""

    def __init__(self, store: CorrectionStore, archive: Archive, work: Path, config: RunConfig) -> None:
        self._store = store
        self._archive = archive
        self._work = work
        self._base_config = config
        self._config: RunConfig | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._log = work / "training.log"

    @property
    def run(self) -> Path | None:
        """The run folder of the latest training."""
        return self._config.output if self._config else None

    def start(self) -> Path:
        """Make a dataset of the accepted lines and start training on it; returns the run folder.

        Raises DataError if no line is accepted, RunError if a training is running.
        """
        with self._starting:
            if self._process is not None and self._process.poll() is None:
                raise RunError("a training is already running", code="training-running", where=self.run)
            found = (_NUMBERED.fullmatch(path.name) for path in self._work.iterdir())
            number = 1 + max((int(match[1]) for match in found if match), default=0)
            dataset = self._work / f"dataset-{number}"
            export_dataset(self._store, self._archive, dataset)
            changes = {"dataset": dataset, "output": self._work / f"run-{number}", "fold": None}
            config = self._base_config.model_copy(update=changes)
            path = self._work / f"run-{number}.yaml"
            write_atomically(path, config.to_yaml())
            command = [sys.executable, "-m", "dsocr", "train", str(path), "--quiet"]
            with self._log.open("wb") as log:
                self._process = _start_process(command, log)
            self._config = config
            return config.output

    def status(self) -> TrainingStatus | None:
        """The progress of the latest training; None if none was started."""
        if self._process is None or self._config is None:
            return None
        exit_code = self._process.poll()
        is_running, error = exit_code is None, self._last_output() if exit_code else None
        try:
            history = read_history(self._config.output)
        except DsocrError:  # no step is recorded yet
            return TrainingStatus(is_running, error=error)
        last = history.training[-1]
        cer = (history.best or {}).get("cer")
        return TrainingStatus(is_running, int(last["step"]), self._share(last), cer, error)

    def stop(self) -> None:
        """Stop a running training; it writes a checkpoint first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(_CHECKPOINT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _share(self, last: Mapping[str, float]) -> float | None:
        training = self._config.training if self._config else None
        if training and training.max_steps:
            return min(1.0, last["step"] / training.max_steps)
        return min(1.0, last["epoch"] / training.epochs) if training and training.epochs else None

    def _last_output(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "\n".join(lines[-3:]) or "it ended without a message"


def _start_process(command: Sequence[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    """A process that a terminal's Ctrl-C does not reach: a training that is interrupted twice writes no checkpoint."""
    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **options)  # noqa: S603


def find_training_config(run: Path | None, config: Path | None) -> RunConfig | None:
    """The settings to train with: a configuration file's, else those of the run that reads; None without either."""
    if config is not None:
        return load_config(config)
    if run is not None and RunFolder(run).config.is_file():
        return load_run_config(RunFolder(run).config)
    return None
