"""Background work of a workbench: a model reads unread lines in a thread, runs train in another process."""

import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.splits import page_key
from dsocr.document import SkipReason, Split
from dsocr.errors import DataError, DsocrError, RunError
from dsocr.evaluation.decide import count_errors, is_better
from dsocr.evaluation.metrics import ErrorRate, pool
from dsocr.images import CropFailure
from dsocr.inference.pages import ImageReader
from dsocr.io.work import write_file
from dsocr.models.base_folder import SINGLE
from dsocr.models.generation import spread
from dsocr.runs import RunFolder, read_history
from dsocr.workbench.archive import Archive
from dsocr.workbench.page_export import export_dataset
from dsocr.workbench.store import CorrectionStore
from dsocr.workbench.stored_lines import State, StoredLine, StoredPage

if TYPE_CHECKING:
    from dsocr.inference.reader import LocalReader

_LOG = logging.getLogger(__name__)
_CHECKPOINT_TIMEOUT = 60
"""Seconds that a run has to write its checkpoint when it is stopped."""
_NICENESS = 10
_LOG_FILE = "training.log"
_NUMBERED = re.compile(r"(?:run|dataset)-(\d+)(?:\.yaml)?")


@dataclass(eq=False)
class PageFinder:
    """A thread that adds pages to the store while those that are there are worked on.

    `find` calls its argument after each page, as `import_pages` does. `on_page` is called after the first page, every
    two seconds, and at the end. `error` says why it ended early.
    """

    find: Callable[[Callable[[int, int], None]], None]
    on_page: Callable[[], None]
    done: int = 0
    total: int = 0
    error: Exception | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="dsocr-finding", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True while pages are being added."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until that is true after a page, or there is none left. Raises the error that ended it before."""
        while self.is_running and not until():
            self._changed.wait(_POLL_SECONDS)
            self._changed.clear()
        if self.error is not None and not until():
            raise self.error

    def stop(self) -> None:
        """Stop after the current page."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)

    def _run(self) -> None:
        shown = -math.inf

        def report(done: int, total: int) -> None:
            nonlocal shown
            self.done, self.total = done, total
            if time.monotonic() >= shown + _POLL_SECONDS:
                self.on_page()
                self._changed.set()
                shown = time.monotonic()
            if self._stopping.is_set():
                raise InterruptedError

        try:
            self.find(report)
        except InterruptedError:
            pass
        except Exception as error:  # noqa: BLE001 - such as out of memory
            self.error = error
        self.on_page()
        self._changed.set()


@dataclass(eq=False)
class BackgroundReader:
    """A thread that reads all unread lines, page by page; with `again` also untouched readings.

    `skipped` has a message for each line that has no image; `error` says why the thread ended early.
    """

    store: CorrectionStore
    archive: Archive
    load_reader: Callable[[], ImageReader]
    again: bool = False
    done: int = 0
    total: int = 0
    skipped: list[str] = field(default_factory=list)
    error: str | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _starting: threading.Lock = field(default_factory=threading.Lock)
    _has_new: bool = False
    _reader: ImageReader | None = None
    _loading: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        read = (line for line in self.store.lines() if self.again and line.is_reading and line.state is State.READ)
        self._former = {line.number for line in read}

    def start(self) -> None:
        """Start reading unread lines, those too that were added since."""
        self.total = self.done + self.store.counts()[State.UNREAD] + len(self._former)
        if self.total > self.done:
            with self._starting:
                self._has_new = True
                if not self.is_running:
                    self._thread = threading.Thread(target=self._run, name="dsocr-reading", daemon=True)
                    self._thread.start()

    def stop(self) -> None:
        """Stop after the current page."""
        self._stopping.set()
        if (thread := self._thread) is not None:
            thread.join(60)

    @property
    def is_running(self) -> bool:
        """True while lines are being read."""
        return self._thread is not None and self._thread.is_alive()

    def reader(self) -> ImageReader:
        """The reader, loaded when it is first needed."""
        with self._loading:
            if self._reader is None:
                self._reader = self.load_reader()
            return self._reader

    def _is_wanted(self, line: StoredLine) -> bool:
        return line.state is State.UNREAD or (line.number in self._former and line.is_reading)

    def _take_new(self) -> bool:
        """Whether lines were added since the last call; if not, the thread ends and `start` makes another."""
        with self._starting:
            has_new, self._has_new = self._has_new, False
            if not has_new:
                self._thread = None
            return has_new

    def _run(self) -> None:
        try:
            reader = self.reader()
            tried: set[StoredLine] = set()
            while self._take_new():
                while unread := [line for line in self.store.lines() if self._is_wanted(line) and line not in tried]:
                    pages = {page.number: page for page in self.store.pages()}
                    tried.update(unread)
                    for number, lines in groupby(unread, key=lambda line: line.page):
                        if self._stopping.is_set():
                            return
                        self._read_page(reader, pages[number], list(lines))
        except Exception as error:  # noqa: BLE001 - such as out of memory
            self.error = _described(error)

    def _read_page(self, reader: ImageReader, page: StoredPage, lines: list[StoredLine]) -> None:
        cut: Sequence[Image.Image | CropFailure]
        try:
            cut = self.archive.cut(page, lines)
        except DataError as error:
            cut = [CropFailure(SkipReason.BAD_IMAGE, error.message)] * len(lines)
        self.skipped += [f"{page.name}: {part.message}" for part in cut if isinstance(part, CropFailure)]
        by_id = {f"{page.number}#{line.number}": line for line in lines}  # of one page, which decides its script
        images = [(id_, part) for id_, part in zip(by_id, cut, strict=True) if isinstance(part, Image.Image)]
        for prediction in reader.read(images):
            line = by_id[prediction.id]
            self.store.add_reading(line, prediction.text, prediction.characters, prediction.confidence)
        self._former.difference_update(line.number for line in lines)
        self.done += len(lines)


_PAGES, _LINES = 6, 8
"""Pages, and lines of each, that decide the script of an archive."""


def load_reader(
    run: RunFolder,
    store: CorrectionStore,
    archive: Archive,
    script: str | None = None,
) -> "LocalReader":
    """Load a run to read lines with ids as `PAGE#LINE`, each page in its script where none is set."""
    from dsocr.inference.reader import LocalReader

    return LocalReader.of_run(run, script=script).for_pages(_sample_lines(store, archive))


def _sample_lines(store: CorrectionStore, archive: Archive) -> Iterator[Image.Image]:
    lines = {number: list(page) for number, page in groupby(store.lines(), key=lambda line: line.page)}
    for page in spread([page for page in store.pages() if page.number in lines], _PAGES):
        with suppress(DataError):
            cut = archive.cut(page, spread(lines[page.number], _LINES))
            yield from (image for image in cut if isinstance(image, Image.Image))


def _described(error: Exception) -> str:
    """An error that ends a thread as the window shows it, or people would wait; a bug is logged too."""
    if isinstance(error, DsocrError):
        return str(error)
    _LOG.error("a thread ended with an error", exc_info=error)
    return f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """Steps of a run, completed share, best CER on its validation split; `error`: why it ended without an adapter."""

    is_running: bool
    steps: int = 0
    share: float | None = None
    cer: float | None = None
    error: str | None = None


@dataclass(eq=False)
class BackgroundTraining:
    """Runs that train on the accepted lines, one at a time, in the work folder of a workbench."""

    store: CorrectionStore
    archive: Archive
    work: Path
    config: RunConfig
    run: Path | None = None
    """The run folder of the latest training."""
    _process: subprocess.Popen[bytes] | None = None
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> Path:
        """Train on the corrections; returns the run folder. DataError if there are none, RunError if a run trains."""
        with self._starting:
            if self.is_running():
                raise RunError("a run is already being trained", code="training-running", where=self.run)
            matches = (_NUMBERED.fullmatch(path.name) for path in self.work.iterdir())
            number = 1 + max((int(match[1]) for match in matches if match), default=0)
            dataset, output = (self.work / f"{name}-{number}" for name in ("dataset", "run"))
            export_dataset(self.store, self.archive, dataset)
            config = self.config.model_copy(update={"dataset": dataset, "output": output, "fold": None})
            path = output.with_suffix(".yaml")
            write_file(path, config.to_yaml(complete=False))
            command = [sys.executable, "-m", "dsocr", "train", str(path), "--quiet"]
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
            # Ctrl-C in a terminal does not reach it: a run that is interrupted twice writes no checkpoint.
            if sys.platform == "win32":
                options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.BELOW_NORMAL_PRIORITY_CLASS
            else:
                options["start_new_session"] = True
            with (self.work / _LOG_FILE).open("wb") as log:
                self._process = subprocess.Popen(command, stdout=log, **options)  # noqa: S603
            if sys.platform != "win32":  # people work meanwhile
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
            self.run = output
            return output

    def is_running(self) -> bool:
        """Whether a run is being trained."""
        return self._process is not None and self._process.poll() is None

    def status(self) -> TrainingStatus | None:
        """The progress of the latest training; None if none was started."""
        if self._process is None or self.run is None:
            return None
        exit_code = self._process.poll()
        is_running, error = exit_code is None, None
        if exit_code:
            output = (self.work / _LOG_FILE).read_text(encoding="utf-8", errors="replace").strip().splitlines()
            error = "\n".join(output[-3:]) or "it ended without a message"
        try:
            history = read_history(self.run)
        except DsocrError:  # no step is recorded yet
            return TrainingStatus(is_running, error=error)
        last = history.training[-1]
        cer = (history.best or {}).get("cer")
        training = self.config.training
        done = last["step"] / training.max_steps if training.max_steps else last["epoch"] / (training.epochs or 1)
        return TrainingStatus(is_running, int(last["step"]), min(1.0, done), cer, error)

    def stop(self) -> None:
        """Stop a running training; it writes a checkpoint first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
        try:
            self._process.wait(_CHECKPOINT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()


_POLL_SECONDS = 2.0
_NEW_SHARE, _LEAST_NEW = 0.2, 10
_LEARNT = "learnt"
"""The setting of a store with the run that reads, as it learnt from accepted lines and was better than the first."""


def learnt_run(store: CorrectionStore) -> Path | None:
    """The run that learnt from the accepted lines, if it was adopted and is still there."""
    run = Path(store.setting(_LEARNT) or "-")
    return run if run.is_dir() else None


@dataclass(frozen=True, slots=True)
class Lesson:
    """Errors of the former reader and of one that `learnt` from accepted lines, on the `lines` kept for validation.

    `before` is None if there was no reader; the new one is better then. With few pages, both are of the `same_pages`.
    """

    learnt: int
    lines: int
    before: ErrorRate | None
    after: ErrorRate
    same_pages: bool
    is_better: bool = True

    @property
    def is_worse(self) -> bool:
        """Whether the new reader makes as many errors as the first one, or more."""
        return self.before is not None and self.after.errors >= self.before.errors


@dataclass(eq=False)
class Learner:
    """Trains on the accepted lines while people work, and lets a reader that became better read the rest again.

    A run starts when there are `least` accepted lines, and again when a fifth of the last number is new; it always
    starts from the reader that the workbench was opened with, so it has never seen its validation lines. `adopt` gets
    what loads a reader that is better on these; if a later one, which learnt more, is worse than the first reader,
    that one reads again. `load` takes a finished run. `lesson` is the latest result, `error` why there is none.
    """

    store: CorrectionStore
    training: BackgroundTraining
    adopt: Callable[[Callable[[], ImageReader]], None]
    load: Callable[[Path], ImageReader]
    first: Callable[[], ImageReader] | None = None
    least: int = 50
    lesson: Lesson | None = None
    error: str | None = None
    _learnt_from: int = 0
    _pending: Path | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        if learnt_run(self.store) is not None:
            self._learnt_from = self.store.counts()[State.ACCEPTED]

    @property
    def is_on(self) -> bool:
        """Whether runs start by themselves; kept in the corrections file."""
        return self.store.setting("learn") == "yes"

    @is_on.setter
    def is_on(self, value: bool) -> None:
        self.store.set_setting("learn", "yes" if value else "no")

    @property
    def is_learning(self) -> bool:
        """Whether a run is being trained or judged."""
        return self._pending is not None

    def start(self) -> None:
        """Start to watch the accepted lines."""
        self._thread = threading.Thread(target=self._run, name="dsocr-learning", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; a run is not stopped by this."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(60)

    def wanted(self) -> int:
        """How many accepted lines the next training waits for."""
        learnt_from = self._learnt_from
        return learnt_from + max(_LEAST_NEW, int(_NEW_SHARE * learnt_from)) if learnt_from else self.least

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - such as out of memory
                self.error, self._pending = _described(error), None

    def step(self) -> None:
        """Start a run if there is enough to learn from, or judge one that has finished."""
        status = self.training.status()
        if status is not None and status.is_running:
            self._pending = self.training.run
            return
        accepted = self.store.counts()[State.ACCEPTED]
        if self._pending is not None:
            run, self._pending = self._pending, None
            self._learnt_from = accepted
            if status is not None and status.error is None:
                self.error = None
                self.lesson = self._judge(run)
                if self.lesson.is_better:
                    self.store.set_setting(_LEARNT, str(run))
                    self.adopt(lambda: self.load(run))
                elif self.lesson.is_worse and learnt_run(self.store) is not None and self.first is not None:
                    self.store.set_setting(_LEARNT, "")
                    self.adopt(self.first)
        elif self.is_on and accepted >= self.wanted():
            self._learnt_from = accepted  # a run that cannot start is not tried again at once
            self._pending = self.training.start()

    def _judge(self, run: Path) -> Lesson:
        dataset = Dataset.open(load_run_config(RunFolder(run).config).dataset)
        samples, learnt = dataset.samples(Split.VALIDATION), dataset.samples(Split.TRAIN)
        pages, learnt_pages = (
            {page_key(sample.document, sample.page) or sample.id for sample in part} for part in (samples, learnt)
        )
        same_pages = not pages.isdisjoint(learnt_pages)
        before = None if self.first is None else count_errors(self.first(), samples)
        after = count_errors(self.load(run), samples)
        better = before is None or is_better(samples, (old.errors for old in before), (new.errors for new in after))
        former = None if before is None else pool(before)
        return Lesson(len(learnt), len(samples), former, pool(after), same_pages, better)


def find_training_config(run: Path | None, config: Path | None) -> RunConfig | None:
    """The settings to train with: a configuration file's, else those of the run that reads, else the defaults.

    With the run's settings, training starts from what it learnt. None for an adapter folder, which has no settings.
    """
    if config is not None:
        return load_config(config)
    if run is None or not run.exists() or (folder := RunFolder(run)).is_base:
        base = {} if run is None else {"base": str(run)}
        return RunConfig.model_validate({**base, "dataset": Path(), "output": Path()})
    if not folder.config.is_file():
        return None
    settings = load_run_config(folder.config)
    if (folder.adapter / SINGLE).is_file():
        return settings.model_copy(update={"base": run.as_posix(), "base_revision": None})
    return settings.model_copy(update={"adapter": settings.adapter.model_copy(update={"init_from": run})})
