"""One thread that reads: images wait in a bounded queue, and those for one model are read in batches.

Knows nothing of routes: image files in, predictions out.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from starlette.requests import Request

from dsocr.document import Unit
from dsocr.errors import DataError, DsocrError, ModelError
from dsocr.images import decode_image
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.inference.inputs import guess_shows
from dsocr.inference.reader import LocalReader
from dsocr.io.processes import return_free_memory
from dsocr.models.adapters import add_adapter, is_whole_network
from dsocr.models.family import load_processor
from dsocr.models.generation import Generation
from dsocr.runs import ReadingSettings
from dsocr.server import BASE, check_adapter_name
from dsocr.server.access import RequestError
from dsocr.server.limits import Metrics, ServerLimits, busy, check_image, internal_error, too_many_images

_LOG = logging.getLogger(__name__)
_CLOSING = ("shutting_down", "the server is shutting down")
_FAILED = ("engine_failed", "the reading thread has ended; restart the server")
_SMALL_IMAGE = 2_000_000
"""Pixels of the largest image that is read before larger ones, if these were read last."""
_DISCONNECT_INTERVAL = 0.25
"""Seconds between two checks whether the client is still connected."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A prediction with the reasons to review it; `page_shaped` means a page was sent to a model of lines."""

    prediction: Prediction
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """A queued image file, its size in pixels, and the time (monotonic) after which it is dropped from the queue."""

    data: bytes
    pixels: int
    model: str
    expires: float
    result: "Future[Transcript]" = field(default_factory=Future)


class Engine:
    """Reads submitted images in one thread until it is closed."""

    def __init__(self, models: "ServedModels", limits: ServerLimits, metrics: Metrics) -> None:
        self._models = models
        self._limits = limits
        self._metrics = metrics
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._ended: tuple[str, str] | None = None
        self._was_large = False
        self._thread = threading.Thread(target=self._run, name="dsocr-engine", daemon=True)
        metrics.queued.set_function(lambda: len(self._queue))

    def start(self) -> None:
        """Start the reading thread."""
        self._thread.start()

    def close(self, timeout: float = 30.0) -> None:
        """Finish the current batch, reject everything queued, and stop."""
        with self._changed:
            self._ended = self._ended or _CLOSING
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        """True while images can be submitted."""
        return self._thread.is_alive() and self._ended is None

    def check_room(self, images: int = 1) -> None:
        """Raise the RequestError that `submit` would raise for that many images."""
        with self._changed:
            if self._ended is not None:
                raise RequestError(503, *self._ended)
            limit = self._limits.max_queued
            if images > limit:
                raise too_many_images(f"{images} images at once; the queue holds {limit}")
            if len(self._queue) + images > limit:
                raise busy()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue all jobs or none; their `result` is set when they are read. Raises RequestError."""
        with self._changed:
            self.check_room(len(jobs))
            self._queue.extend(jobs)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._step():
                if self._was_large:
                    return_free_memory()
        except Exception:  # noqa: BLE001 - the last place to report it
            _LOG.exception("the reading thread ended with an error")
        finally:
            self._reject_all()

    def _step(self) -> bool:
        """Wait for work and do one piece of it; False when closed. Keeps no reference to what it did."""
        with self._changed:
            while not (self._queue or self._ended):
                self._changed.wait()
            if self._ended:
                return False
        if batch := self._next_batch():
            started = time.monotonic()
            self._read(batch)
            self._metrics.batches.observe(len(batch))
            self._metrics.batch_seconds.observe(time.monotonic() - started)
        return True

    def _reject_all(self) -> None:
        with self._changed:
            self._ended = self._ended or _FAILED
            pending = [job.result for job in self._queue]
            self._queue.clear()
            for result in pending:
                if result.set_running_or_notify_cancel():
                    result.set_exception(RequestError(503, *self._ended))

    def _next_batch(self) -> list[Job]:
        """The first job in the queue and later ones that can be read with it, in order; obsolete jobs are dropped."""
        size = self._models.batch_size
        until = time.monotonic() + self._limits.batch_wait
        with self._changed:
            while len(self._queue) < size and (left := until - time.monotonic()) > 0 and not self._ended:
                self._changed.wait(left)
            for job in self._queue:
                if time.monotonic() > job.expires:
                    job.result.cancel()
            queued = [job for job in self._queue if not job.result.cancelled()]
            # A line does not wait for pages: they are not read together, and after some pages it is the line's turn.
            small = [job for job in queued if job.pixels <= _SMALL_IMAGE]
            first = (small if self._was_large and small else queued)[:1]
            batch: list[Job] = []
            others: deque[Job] = deque()
            pixels = 0
            for job in queued:
                fits = len(batch) < size and pixels + job.pixels <= self._limits.max_batch_pixels
                is_alike = (job.model, job.pixels <= _SMALL_IMAGE) == (first[0].model, first[0] in small)
                if job is first[0] or (fits and is_alike):
                    batch.append(job)
                    pixels += job.pixels
                else:
                    others.append(job)
            self._queue = others
            self._was_large = bool(batch) and batch[0].pixels > _SMALL_IMAGE
        # A result that is running can no longer be cancelled, so it can be set.
        return [job for job in batch if job.result.set_running_or_notify_cancel()]

    def _read(self, batch: Sequence[Job]) -> None:
        """Set the result of every job; an image that cannot be read does not affect the others."""
        opened: list[tuple[Job, Image.Image]] = []
        for job in batch:
            try:
                opened.append((job, decode_image(job.data, name="image", max_pixels=self._limits.max_pixels).image))
            except Exception as error:  # noqa: BLE001 - reported to the client
                self._fail(job, error)
        if opened and not self._predict(opened):
            for pair in opened:  # outside the `except` block, so what the failed batch held in memory is free
                self._predict([pair])

    def _predict(self, opened: Sequence[tuple[Job, Image.Image]]) -> bool:
        """Read the images and set their results; False if several images failed together and have no result yet."""
        model = opened[0][0].model
        images = [(str(place), image) for place, (_, image) in enumerate(opened)]
        try:
            predictions = list(self._models.read(model, images))
            unit = self._models.unit(model)
        except Exception as error:  # noqa: BLE001 - reported to the client
            if len(opened) == 1:
                self._fail(opened[0][0], error)
            return len(opened) == 1
        for (job, image), prediction in zip(opened, predictions, strict=True):
            is_page = unit == "line" and guess_shows(image.size) == "page"
            flags = (*prediction.flags, *(["page_shaped"] if is_page else []))
            self._metrics.images.inc()
            self._metrics.tokens.inc(prediction.tokens)
            for flag in flags:
                self._metrics.flagged.labels(flag).inc()
            job.result.set_result(Transcript(prediction, flags))
        return True

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            error = RequestError(503, "out_of_memory", "not enough memory for the image", retry_after=5)
        if not isinstance(error, DsocrError | RequestError):
            _LOG.error("an image could not be read", exc_info=error)
        job.result.set_exception(_without_frames(error))


def _without_frames(error: Exception) -> Exception:
    """The error without its traceback, whose frames refer to the batch and its images, and those to the error.

    Only the garbage collector would free such a cycle, and it counts objects, not the megabytes in them.
    """
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


async def read_images(
    request: Request, images: Sequence[bytes], model: str, engine: Engine, limits: ServerLimits
) -> list[Transcript]:
    """Transcripts of image files. Raises RequestError if they cannot be read in time or the client disconnects."""
    engine.check_room(len(images))
    sizes = [await asyncio.to_thread(check_image, data, limits) for data in images]
    if await request.is_disconnected():  # before others have to wait for it
        raise _disconnected()
    now = time.monotonic()
    jobs = [Job(data, pixels, model, now + limits.queue_timeout) for data, pixels in zip(images, sizes, strict=True)]
    engine.submit(jobs)
    results = [asyncio.wrap_future(job.result) for job in jobs]
    try:
        await _wait_for_all(request, results, now + limits.deadline, limits)
        return [result.result() for result in results]
    finally:
        for job, result in zip(jobs, results, strict=True):
            result.cancel()
            job.result.cancel()
            if result.done() and not result.cancelled():
                result.exception()  # otherwise asyncio logs that nobody looked at it


async def _wait_for_all(
    request: Request, results: "Sequence[asyncio.Future[Transcript]]", expires: float, limits: ServerLimits
) -> None:
    pending = set(results)
    while pending:
        done, pending = await asyncio.wait(pending, timeout=_DISCONNECT_INTERVAL, return_when=asyncio.FIRST_EXCEPTION)
        for result in done:
            if result.cancelled():  # dropped from the queue
                raise _too_late(limits)
            if error := result.exception():
                raise _request_error(error)
        if pending and time.monotonic() > expires:
            raise _too_late(limits)
        if pending and await request.is_disconnected():
            raise _disconnected()


def _request_error(error: BaseException) -> RequestError:
    """The answer to an error: a new exception, since the frames it is raised through refer to all images."""
    match error:
        case RequestError():
            return RequestError(error.status, error.code, error.message, retry_after=error.retry_after)
        case DataError():
            return RequestError(422, "unreadable_image", str(error))
        case DsocrError():
            return RequestError(409, "cannot_read", str(error))
        case _:
            return internal_error()


def _disconnected() -> RequestError:
    return RequestError(499, "client_disconnected", "the client disconnected")


def _too_late(limits: ServerLimits) -> RequestError:
    return RequestError(504, "deadline_exceeded", f"not read within {limits.deadline:g} s", retry_after=5)


@dataclass(frozen=True, slots=True)
class _LoadedAdapter:
    """An adapter in memory, with the name it has in the network."""

    reader: LocalReader
    settings: ReadingSettings
    key: str


class ServedModels:
    """Adapters of one base by name, and the base itself; the first adapter is the default.

    `script` replaces `generation.script` of each; where that is auto, a line is read in any script, because what else a
    server is asked must not change it.
    """

    def __init__(self, adapters: Mapping[str, Path], *, precision: str = "auto", script: str | None = None) -> None:
        self._script = script
        names = iter(adapters.items())
        name, folder = next(names)
        check_adapter_name(name)
        reader = LocalReader.of_adapter(folder, precision=precision).with_script(script)
        self.default = name
        self._network: Any = reader.network
        key = "" if is_whole_network(folder) else "default"
        self._adapters = {name: _LoadedAdapter(reader, ReadingSettings.load(folder), key)}
        for number, (name, folder) in enumerate(names, 1):
            self._adapters[name] = self._load(name, folder, f"served{number}")

    @property
    def names(self) -> list[str]:
        """The model names that a request may give."""
        return [*self._adapters, BASE]

    @property
    def batch_size(self) -> int:
        """The largest number of images to read together."""
        return self._adapters[self.default].reader.generation.batch_size

    def unit(self, model: str) -> Unit:
        """What the images showed that the model was trained on."""
        return self._adapter(model).settings.unit

    def _load(self, name: str, folder: Path, key: str) -> _LoadedAdapter:
        """Load an adapter under a key of the network. Raises ModelError if it belongs to another base.

        A network all of whose weights were trained has its own copy of everything, and fits beside any other.
        """
        check_adapter_name(name)
        if is_whole_network(folder):
            reader = LocalReader.of_adapter(folder).with_script(self._script)
            return _LoadedAdapter(reader, ReadingSettings.load(folder), "")
        settings, default = ReadingSettings.load(folder), self._adapters[self.default].settings
        if (settings.base, settings.base_revision) != (default.base, default.base_revision):
            hint = "start another server for it"
            message = f"the adapter is for base {settings.base}, not {default.base}"
            raise ModelError(message, code="adapter-of-other-base", where=folder, hint=hint)
        add_adapter(self._network, folder, key)
        encoder = load_processor(settings.base, settings.resolution, settings.prompt, settings.base_revision)
        generation, calibration = Generation(**settings.generation), Calibration.load(folder)
        reader = LocalReader(self._network, encoder, generation, settings.text_policy, calibration=calibration)
        return _LoadedAdapter(reader.with_script(self._script), settings, key)

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        adapter = self._adapter(model)
        if model == BASE:
            with adapter.reader.base() as base:
                yield from base.read(images)
            return
        if adapter.key:
            self._network.set_adapter(adapter.key)
        yield from adapter.reader.read(images)

    def _adapter(self, model: str) -> _LoadedAdapter:
        return self._adapters[self.default if model == BASE else model]
