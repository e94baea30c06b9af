"""One thread that reads: requests wait in a bounded queue, and those for one model are read together.

Knows nothing of HTTP: bytes of images in, predictions out.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from PIL import Image

from dsocr.data.images import decode_image
from dsocr.errors import DsocrError
from dsocr.inference.transcriber import Prediction
from dsocr.serving.limits import Limits, RefusedError, busy
from dsocr.serving.measures import Measures
from dsocr.serving.pace import Pace

_LOG = logging.getLogger(__name__)
_LONGEST_PAUSE = 60
"""Seconds: the most that `Retry-After` says."""
_CLOSING = ("closing", "the server is shutting down")
_BROKEN = ("not_alive", "the thread that reads has ended: the server must be started again")


class Models(Protocol):
    """What can read, by name."""

    @property
    def samples_per_batch(self) -> int:
        """How many images are read together at most."""

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""


@dataclass(frozen=True, slots=True)
class Job:
    """An image that waits to be read: its file, its size in pixels, and when nobody waits for it any longer."""

    data: bytes
    pixels: int
    model: str
    expires: float
    answer: "Future[Prediction]" = field(default_factory=Future)

    @property
    def is_over(self) -> bool:
        """True where nobody waits any longer."""
        return self.answer.cancelled() or time.monotonic() > self.expires


class Engine:
    """Reads what is submitted, in one thread of its own, until it is closed."""

    def __init__(self, models: Models, limits: Limits, measures: Measures) -> None:
        self._models = models
        self._limits = limits
        self._measures = measures
        self._waiting: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._ended: tuple[str, str] | None = None
        self._pace = Pace()
        self._thread = threading.Thread(target=self._work, name="dsocr-engine", daemon=True)
        measures.watch_waiting(lambda: len(self._waiting))

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self, patience: float = 30.0) -> None:
        """Read what is being read to its end, refuse what waits, and stop."""
        with self._changed:
            self._ended = self._ended or _CLOSING
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(patience)

    @property
    def is_alive(self) -> bool:
        """True while it reads or waits for something to read."""
        return self._thread.is_alive() and self._ended is None

    def demand_room(self, images: int = 1) -> None:
        """Raise the RefusedError that `submit` would raise.

        Where nothing is being done an image is always taken, for there is no other way to learn how long one takes.
        """
        with self._changed:
            self._demand_life()
            if images > self._limits.waiting:
                most = self._limits.waiting
                raise RefusedError(413, "too_many_images", f"{images} images at once, where {most} may wait")
            waiting = len(self._waiting)
            idle = not waiting and self._pace.is_idle
            late = not idle and self._pace.seconds_of(waiting + images) > self._limits.longest_wait
            if late or waiting + images > self._limits.waiting:
                raise busy(max(1, min(_LONGEST_PAUSE, math.ceil(self._pace.seconds_of(waiting)))))

    def submit(self, jobs: Sequence[Job]) -> None:
        """Let the images wait to be read, all or none; their `answer` is set then. Raises RefusedError."""
        with self._changed:
            self.demand_room(len(jobs))
            self._waiting.extend(jobs)
            self._changed.notify_all()

    def call(self, function: Callable[[], Any]) -> "Future[Any]":
        """Have something done between two batches, in the thread that reads. Raises RefusedError where it has ended."""
        answer: Future[Any] = Future()
        with self._changed:
            self._demand_life()
            self._calls.append((function, answer))
            self._changed.notify_all()
        return answer

    def _demand_life(self) -> None:
        if self._ended is not None:
            raise RefusedError(503, *self._ended)

    def _work(self) -> None:
        try:
            self._read_all()
        except Exception:  # noqa: BLE001 - there is nobody else to tell
            _LOG.exception("the thread that reads has ended by a fault")
        finally:
            self._refuse_all()

    def _read_all(self) -> None:
        """Read what waits and carry out what is called for, until it is closed."""
        while True:
            with self._changed:
                while not (self._waiting or self._calls or self._ended):
                    self._changed.wait()
                if self._ended:
                    return
                call = self._calls.popleft() if self._calls else None
            if call is not None:
                _carry_out(*call)
                del call  # until the next one, for it may hold much
            else:
                self._read_next()

    def _read_next(self) -> None:
        """Read a batch, and keep nothing of it."""
        if not (batch := self._next_batch()):
            return
        self._pace.begin(len(batch))
        self._read(batch)
        self._measures.batch_was_read(len(batch), self._pace.end())

    def _refuse_all(self) -> None:
        with self._changed:
            self._ended = self._ended or _BROKEN
            left: list[Future[Any]] = [*(job.answer for job in self._waiting), *(answer for _, answer in self._calls)]
            self._waiting.clear()
            self._calls.clear()
            for answer in left:
                if answer.set_running_or_notify_cancel():
                    answer.set_exception(RefusedError(503, *self._ended))

    def _next_batch(self) -> list[Job]:
        """The first that waits and those behind it that can be read with it, in their order."""
        most = self._models.samples_per_batch
        until = time.monotonic() + self._limits.gather
        with self._changed:
            while len(self._waiting) < most and (left := until - time.monotonic()) > 0 and not self._ended:
                self._changed.wait(left)
            batch: list[Job] = []
            others: deque[Job] = deque()
            pixels = 0
            for job in self._waiting:
                if job.is_over:
                    job.answer.cancel()
                elif len(batch) < most and (not batch or self._fits(job, batch[0], pixels)):
                    batch.append(job)
                    pixels += job.pixels
                else:
                    others.append(job)
            self._waiting = others
        # From here on an answer cannot be cancelled, so it can be set.
        return [job for job in batch if job.answer.set_running_or_notify_cancel()]

    def _fits(self, job: Job, first: Job, pixels: int) -> bool:
        return job.model == first.model and pixels + job.pixels <= self._limits.batch_pixels

    def _read(self, batch: Sequence[Job]) -> None:
        """Answer every job; one that cannot be read takes no other with it."""
        shown: list[tuple[Job, Image.Image]] = []
        for job in batch:
            try:
                shown.append((job, decode_image(job.data, name="image", max_pixels=self._limits.pixels).image))
            except Exception as error:  # noqa: BLE001 - whatever it was, it is told to who asked
                self._refuse(job, error)
        if shown and not self._answer(shown):
            for one in shown:  # no error is at hand here any longer: what it held in memory is free
                self._answer([one])

    def _answer(self, shown: Sequence[tuple[Job, Image.Image]]) -> bool:
        """Answer the jobs; False where several could not be read together, and have no answer yet."""
        images = [(str(place), image) for place, (_, image) in enumerate(shown)]
        try:
            predictions = list(zip(shown, self._models.read(shown[0][0].model, images), strict=True))
        except Exception as error:  # noqa: BLE001
            if len(shown) == 1:
                self._refuse(shown[0][0], error)
            return len(shown) == 1
        for (job, _), prediction in predictions:
            self._measures.was_read(prediction)
            self._pace.answer()
            job.answer.set_result(prediction)
        return True

    def _refuse(self, job: Job, error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            error = RefusedError(503, "out_of_memory", "the image takes more memory than is free", retry_after=5)
        if not isinstance(error, DsocrError | RefusedError):
            _LOG.error("an image could not be read", exc_info=error)
        self._pace.answer()
        job.answer.set_exception(_without_frames(error))


def _carry_out(function: Callable[[], Any], answer: "Future[Any]") -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(function())
    except Exception as error:  # noqa: BLE001 - told to who asked
        answer.set_exception(_without_frames(error))


def _without_frames(error: Exception) -> Exception:
    """The error without the frames it came through: they hold the batch with its pictures, and its jobs hold the error.

    Only the collector would free such a ring, and it counts objects, not the megabytes of pictures.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
