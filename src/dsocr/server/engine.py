"""One thread that reads: requests wait in a bounded queue, and those for one model are read together.

Knows nothing of HTTP: bytes of images in, predictions out.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import torch
from PIL import Image
from starlette.requests import Request

from dsocr.errors import DataError, DsocrError, ModelError
from dsocr.images import decode_image
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.inference.generation import Generation
from dsocr.inference.reader import Transcriber
from dsocr.models.adapters import add_adapter
from dsocr.models.deepseek_ocr import load_encoder
from dsocr.runs import ReadingSettings
from dsocr.server.limits import Limits, Measures, RefusedError, busy, fault, pixels_of
from dsocr.server.naming import BASE, demand_name

_FIRST_GUESS = 0.5
"""Seconds for an image, before any was read."""
_KEPT = 0.8
"""What a batch still counts for after the next one."""


class Pace:
    """Seconds for an image: of the last batches together, so that a large one counts for more than a small one."""

    def __init__(self) -> None:
        self._seconds = _FIRST_GUESS
        self._images = 1.0
        self._under_way = 0
        self._unanswered = 0
        self._since = 0.0

    @property
    def is_idle(self) -> bool:
        """True while nobody waits for an image that is being read."""
        return not self._unanswered

    def begin(self, images: int) -> None:
        """A batch of so many images is begun."""
        self._since = time.monotonic()
        self._under_way = self._unanswered = images

    def answer(self) -> None:
        """An image of the batch is about to be answered: who asks for the next one upon it finds nothing in its way."""
        self._unanswered -= 1

    def end(self) -> float:
        """The batch was read; the seconds it took."""
        seconds = time.monotonic() - self._since
        self._seconds = _KEPT * self._seconds + seconds
        self._images = _KEPT * self._images + self._under_way
        self._under_way = self._unanswered = 0
        return seconds

    def seconds_of(self, images: int) -> float:
        """How long it should take to read the rest of the batch that is under way, and so many images behind it."""
        each, rest = self._seconds / self._images, 0.0
        if self._under_way:
            passed = time.monotonic() - self._since
            each = max(each, passed / self._under_way)  # it takes longer than expected already
            rest = self._under_way * each - passed
        return rest + images * each


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


_LOOK = 0.25
"""Seconds between two looks whether the client is still there."""


async def read_images(
    request: Request, images: Sequence[bytes], model: str, engine: Engine, limits: Limits
) -> list[Prediction]:
    """What is read of the images. Raises RefusedError where they cannot be read in time, or nobody waits any longer."""
    engine.demand_room(len(images))
    sizes = [await asyncio.to_thread(pixels_of, data, limits) for data in images]
    expires = time.monotonic() + limits.deadline
    jobs = [Job(data, pixels, model, expires) for data, pixels in zip(images, sizes, strict=True)]
    engine.submit(jobs)
    answers = [asyncio.wrap_future(job.answer) for job in jobs]
    try:
        await _all_of(request, answers, expires, limits)
        return [answer.result() for answer in answers]
    finally:
        for job, answer in zip(jobs, answers, strict=True):
            answer.cancel()
            job.answer.cancel()
            if answer.done() and not answer.cancelled():
                answer.exception()  # looked at, so that nobody complains that it was not


async def _all_of(
    request: Request, answers: "Sequence[asyncio.Future[Prediction]]", expires: float, limits: Limits
) -> None:
    waiting = set(answers)
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=_LOOK, return_when=asyncio.FIRST_EXCEPTION)
        for answer in done:
            if answer.cancelled():  # the engine let go of it at its deadline
                raise _too_late(limits)
            if error := answer.exception():
                raise _refusal(error)  # the others need not be waited for
        if not waiting:
            return
        if time.monotonic() > expires:
            raise _too_late(limits)
        if await request.is_disconnected():
            raise RefusedError(499, "client_gone", "the client went away")


def _refusal(error: BaseException) -> RefusedError:
    """What to answer for an error; a new one, since the frames it is raised through hold the first, and all images."""
    match error:
        case RefusedError():
            return RefusedError(error.status, error.code, error.message, retry_after=error.retry_after)
        case DataError():
            return RefusedError(422, "unreadable_image", str(error))
        case DsocrError():
            return RefusedError(409, "cannot_read", str(error))
        case _:
            return fault()


def _too_late(limits: Limits) -> RefusedError:
    return RefusedError(504, "too_late", f"not read within {limits.deadline:g} s", retry_after=5)


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
