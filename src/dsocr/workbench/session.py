"""What a workbench works with and shows, and what it does meanwhile; knows nothing of windows.

A model reads unread lines in a thread, and a training runs in another process.
"""

import io
import logging
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.document import SkipReason
from dsocr.errors import DataError, DsocrError, RunError
from dsocr.evaluation.metrics import ErrorRate, character_errors
from dsocr.inference.pages import ImageReader
from dsocr.io.cropping import CropFailure
from dsocr.models.base_folder import SINGLE
from dsocr.runs import RunFolder, read_history, write_atomically
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_export import export_dataset
from dsocr.workbench.store import CorrectionStore, State, StoredLine, StoredPage

_LOG = logging.getLogger(__name__)
_CHECKPOINT_TIMEOUT = 60
"""Seconds for a training that is stopped to write its checkpoint."""
_NUMBERED = re.compile(r"(?:run|dataset)-(\d+)(?:\.yaml)?")
_CACHED_IMAGES = 24


class BackgroundReader:
    """A thread that reads all unread lines, page by page.

    `skipped` has a message for each line that has no image; `error` says why the thread ended early.
    """

    def __init__(self, store: CorrectionStore, archive: Archive, load_reader: Callable[[], ImageReader]) -> None:
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

    def _read_page(self, reader: ImageReader, page: StoredPage, lines: list[StoredLine]) -> None:
        cut: Sequence[Image.Image | CropFailure]
        try:
            cut = self._archive.cut(page, lines)
        except DataError as error:
            cut = [CropFailure(SkipReason.BAD_IMAGE, error.message)] * len(lines)
        self.skipped += [f"{page.name}: {one.message}" for one in cut if isinstance(one, CropFailure)]
        by_id = {str(line.number): line for line in lines}
        images = [(id_, one) for id_, one in zip(by_id, cut, strict=True) if isinstance(one, Image.Image)]
        for prediction in reader.read(images):
            line = by_id[prediction.id]
            self._store.add_reading(line, prediction.text, prediction.characters, prediction.confidence)
        self.done += len(lines)


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
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
            # Ctrl-C in a terminal does not reach it: a training that is interrupted twice writes no checkpoint.
            if sys.platform == "win32":
                options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
            else:
                options["start_new_session"] = True
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(command, stdout=log, **options)  # noqa: S603
            self._config = config
            return config.output

    def status(self) -> TrainingStatus | None:
        """The progress of the latest training; None if none was started."""
        if self._process is None or self._config is None:
            return None
        exit_code = self._process.poll()
        is_running, error = exit_code is None, None
        if exit_code:
            output = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            error = "\n".join(output[-3:]) or "it ended without a message"
        try:
            history = read_history(self._config.output)
        except DsocrError:  # no step is recorded yet
            return TrainingStatus(is_running, error=error)
        last = history.training[-1]
        cer = (history.best or {}).get("cer")
        training, share = self._config.training, None
        if training.max_steps or training.epochs:
            done = last["step"] / training.max_steps if training.max_steps else last["epoch"] / (training.epochs or 1)
            share = min(1.0, done)
        return TrainingStatus(is_running, int(last["step"]), share, cer, error)

    def stop(self) -> None:
        """Stop a running training; it writes a checkpoint first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(_CHECKPOINT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()


def find_training_config(run: Path | None, config: Path | None) -> RunConfig | None:
    """The settings to train with: a configuration file's, else those of the run that reads, else the defaults.

    With the run's settings, training starts from what it learnt. None for an adapter folder, which has no settings.
    """
    if config is not None:
        return load_config(config)
    if run is None or not run.exists():
        base = {} if run is None else {"base": str(run)}
        return RunConfig.model_validate({**base, "dataset": Path(), "output": Path()})
    if not RunFolder(run).config.is_file():
        return None
    settings = load_run_config(RunFolder(run).config)
    if (RunFolder(run).adapter / SINGLE).is_file():
        return settings.model_copy(update={"base": run.as_posix(), "base_revision": None})
    return settings.model_copy(update={"adapter": settings.adapter.model_copy(update={"init_from": run})})


@dataclass(frozen=True, slots=True)
class Statistics:
    """Lines by state, and the pooled errors of the model on the `judged` lines: accepted ones that it had read."""

    counts: Mapping[State, int]
    errors: ErrorRate
    judged: int

    @property
    def reviewed(self) -> int:
        """The number of lines that are accepted or unreadable."""
        return self.counts[State.ACCEPTED] + self.counts[State.UNREADABLE]


class Session:
    """One source with its corrections; `reader` is None without a model, `training` without settings to train with.

    `only` has the numbers of the lines to review, in their order; all if empty.
    """

    def __init__(
        self,
        name: str,
        store: CorrectionStore,
        archive: Archive,
        work: Path,
        *,
        reader: BackgroundReader | None = None,
        training: BackgroundTraining | None = None,
        only: Sequence[int] = (),
    ) -> None:
        self.only = only
        self.name = name
        self.store = store
        self.archive = archive
        self.work = work
        self.reader = reader
        self.training = training
        self.pages = {page.number: page for page in store.pages()}
        self.id = store.setting("id") or secrets.token_hex(8)  # tells sources of the same name apart
        store.set_setting("id", self.id)
        self._images: OrderedDict[object, bytes] = OrderedDict()
        self._images_lock = threading.Lock()
        self._statistics: tuple[int, Statistics] | None = None
        self._statistics_lock = threading.Lock()

    def page_jpeg(self, number: int) -> bytes:
        """A page as a JPEG file, upright, in full size. Raises DataError if there is none."""
        page = self._page(number)
        return self._cached(("page", number), lambda: _jpeg(self.archive.page_image(page)))

    def line_jpeg(self, number: int) -> bytes:
        """A line as a JPEG file, cut as for the model. Raises DataError if there is none."""
        line = self.store.line(number)
        if line is None:
            raise DataError(f"there is no line {number}", code="no-such-line")
        page = self._page(line.page)

        def cut() -> bytes:
            (image,) = self.archive.cut(page, [line])
            if isinstance(image, CropFailure):
                raise DataError(image.message, code="line-not-cut", where=page.name)
            return _jpeg(image)

        return self._cached(("line", number, line.outline), cut)

    def why_no_image(self, number: int) -> str:
        """Why a line cannot be shown; empty if it can."""
        try:
            self.line_jpeg(number)
        except DataError as error:
            return error.message
        return ""

    def statistics(self) -> Statistics:
        """Counts and the model's errors, computed once after each change for all windows."""
        stamp = self.store.stamp()
        with self._statistics_lock:
            if self._statistics is None or self._statistics[0] != stamp:
                pairs = self.store.judged()
                errors = sum((character_errors(*pair) for pair in pairs), ErrorRate())
                self._statistics = (stamp, Statistics(self.store.counts(), errors, len(pairs)))
            return self._statistics[1]

    def most_doubtful(self, except_for: StoredLine | None = None) -> StoredLine | None:
        """The most doubtful line that is not reviewed, or the first of `only`; None if there is no other."""
        waiting = self.store.by_doubt()
        if self.only:
            left = set(waiting)
            waiting = [number for number in self.only if number in left]
        number = next((one for one in waiting if except_for is None or one != except_for.number), None)
        return None if number is None else self.store.line(number)

    def _page(self, number: int) -> StoredPage:
        if number not in self.pages:
            raise DataError(f"there is no page {number}", code="no-such-page")
        return self.pages[number]

    def _cached(self, key: object, make: Callable[[], bytes]) -> bytes:
        with self._images_lock:
            if key not in self._images:
                self._images[key] = make()
            self._images.move_to_end(key)
            while len(self._images) > _CACHED_IMAGES:
                self._images.popitem(last=False)
            return self._images[key]


def _jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
