"""Reading of images in batches: they wait in a bounded queue, and one thread reads those for one model together.

Knows nothing of routes: image files in, predictions out.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from PIL import Image
from prometheus_client import Counter, Gauge, Histogram
from starlette.requests import Request

from dsocr.document import Unit
from dsocr.errors import DataError, DsocrError, ModelError
from dsocr.images import decode_image
from dsocr.inference.confidence import Calibration, Prediction
from dsocr.inference.inputs import guess_shows
from dsocr.inference.reader import LocalReader
from dsocr.io.processes import return_free_memory
from dsocr.models.base_folder import is_whole_network
from dsocr.models.generation import Generation
from dsocr.models.loading import is_out_of_memory, load_processor
from dsocr.runs import ReadingSettings, RunFolder
from dsocr.server.access import RequestError, ServerLimits, busy, check_image, disconnected

_LOG = logging.getLogger(__name__)
_QUEUED = Gauge("dsocr_queued_images", "Images in the queue.")
_SECONDS = Histogram("dsocr_request_seconds", "Time from a complete request to its answer.")
_BATCHES = Histogram("dsocr_batch_images", "Images per batch.", buckets=(1, 2, 4, 8, 16, 32, 64))
_BATCH_SECONDS = Histogram("dsocr_batch_seconds", "Time to read a batch.")
_TOKENS = Counter("dsocr_tokens", "Tokens generated.")
_FLAGGED = Counter("dsocr_flagged_images", "Images to review, by flag.", ["flag"])

_LINE_PIXELS = 2_000_000
"""Pixels of the largest image that counts as a line."""
_DISCONNECT_INTERVAL = 0.25
"""Seconds between two checks whether the client is still connected."""
_MAX_WAIT = 0.75
"""Share of the deadline that an image may wait: begun later, it would hardly be read in time."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedImage:
    """An image file in the queue; its result is set when it is read. To be made in the event loop."""

    data: bytes
    pixels: int
    model: str
    since: float = field(default_factory=time.monotonic)
    result: "asyncio.Future[Prediction]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def kind(self) -> tuple[str, bool]:
        """The model, and whether the image may be a line; only images of one kind are read together."""
        return self.model, self.pixels <= _LINE_PIXELS


class Engine:
    """Reads submitted images, batch by batch. Used from the event loop; a thread of its own does the reading."""

    def __init__(self, models: "ServedModels", limits: ServerLimits) -> None:
        self._models = models
        self._limits = limits
        self._queue: list[QueuedImage] = []
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._read_pages = False
        _QUEUED.set_function(lambda: len(self._queue))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read inside the block; at its end the current batch is finished."""
        with ThreadPoolExecutor(1, "dsocr-engine") as thread:
            self._task = asyncio.create_task(self._run(thread))
            try:
                yield
            finally:
                self._task.cancel()

    def check_room(self, images: int = 1) -> None:
        """Raise RequestError if the engine has ended or that many images do not fit into the queue."""
        if self._task is None or self._task.done():
            raise RequestError(503, "engine_ended", "the server does not read any more; see its log")
        limit = self._limits.max_queued
        if images > limit:
            raise RequestError(413, "too_many_images", f"{images} images at once; the queue holds {limit}")
        if len(self._queue) + images > limit:
            raise busy()

    def submit(self, jobs: Sequence[QueuedImage]) -> None:
        """Queue all jobs or none. Raises RequestError."""
        self.check_room(len(jobs))
        self._queue.extend(jobs)
        self._has_work.set()

    async def _run(self, thread: ThreadPoolExecutor) -> None:
        try:
            while await self._has_work.wait():
                await asyncio.sleep(self._limits.batch_wait)
                await self._read_batch(thread)
        except Exception:  # noqa: BLE001 - the last place to report it
            _LOG.exception("reading ended with an error")

    async def _read_batch(self, thread: ThreadPoolExecutor) -> None:
        """Read one batch. Leaves no reference to its images while the engine waits for the next."""
        batch = self._next_batch()
        if not self._queue:
            self._has_work.clear()
        if not batch:
            return
        outcomes = await asyncio.get_running_loop().run_in_executor(thread, self._read, batch)
        for job, outcome in zip(batch, outcomes, strict=True):
            if job.result.done():  # its client has left
                continue
            if isinstance(outcome, RequestError):
                job.result.set_exception(outcome)
            else:
                job.result.set_result(outcome)

    def _next_batch(self) -> list[QueuedImage]:
        """Take the first job, and later ones of its kind that fit into a batch with it."""
        latest = time.monotonic() - _MAX_WAIT * self._limits.deadline
        for job in self._queue:
            if job.since < latest and not job.result.done():
                job.result.set_exception(_too_late(self._limits))
        queued = [job for job in self._queue if not job.result.done()]
        # After pages it is the turn of a line: it must not wait for all of them.
        lines = [job for job in queued if job.pixels <= _LINE_PIXELS] if self._read_pages else []
        batch = (lines or queued)[:1]
        for job in queued:
            pixels = sum(each.pixels for each in [*batch, job])
            if job.kind == batch[0].kind and job not in batch and pixels <= self._limits.max_pixels:
                batch.append(job)
        del batch[self._models.batch_size :]
        self._queue = [job for job in queued if job not in batch]
        self._read_pages = bool(batch) and batch[0].pixels > _LINE_PIXELS
        return batch

    def _read(self, batch: Sequence[QueuedImage]) -> list[Prediction | RequestError]:
        """The prediction of every image, or the error; an image that cannot be read does not affect the others."""
        with _BATCH_SECONDS.time():
            outcomes = self._read_together(batch) or [self._read_together([job])[0] for job in batch]
        _BATCHES.observe(len(batch))
        if self._read_pages:
            return_free_memory()
        return outcomes

    def _read_together(self, batch: Sequence[QueuedImage]) -> list[Prediction | RequestError]:
        """The outcomes; empty if several images failed together."""
        model = batch[0].model
        try:
            images = [decode_image(job.data, name="image", max_pixels=self._limits.max_pixels).image for job in batch]
            predictions = list(self._models.read(model, ((str(place), image) for place, image in enumerate(images))))
        except Exception as error:  # noqa: BLE001 - reported to the client
            return [] if len(batch) > 1 else [_request_error(error)]
        for place, image in enumerate(images):
            is_page = self._models.units[model] == "line" and guess_shows(image.size) == "page"
            predictions[place] = replace(predictions[place], page_shaped=is_page)
            _TOKENS.inc(predictions[place].tokens)
            for flag in predictions[place].flags:
                _FLAGGED.labels(flag).inc()
        return [*predictions]


def _request_error(error: Exception) -> RequestError:
    """The answer to an error, without its frames: they refer to the images."""
    match error:
        case _ if is_out_of_memory(error):
            return RequestError(503, "out_of_memory", "not enough memory for the image", retry_after=5)
        case DataError():
            return RequestError(422, "unreadable_image", str(error))
        case DsocrError():
            return RequestError(409, "cannot_read", str(error))
    _LOG.error("an image could not be read", exc_info=error)
    return RequestError(500, "internal_error", "internal server error; see the server log")


async def read_images(
    request: Request, images: Sequence[bytes], model: str, engine: Engine, limits: ServerLimits
) -> list[Prediction]:
    """Read image files. Raises RequestError if that takes too long or the client disconnects."""
    sizes = [await asyncio.to_thread(check_image, data, limits.max_pixels) for data in images]
    jobs = [QueuedImage(data, pixels, model) for data, pixels in zip(images, sizes, strict=True)]
    engine.submit(jobs)
    results = asyncio.gather(*(job.result for job in jobs))
    try:
        with _SECONDS.time():
            while not (await asyncio.wait([results], timeout=_DISCONNECT_INTERVAL))[0]:
                if time.monotonic() - jobs[0].since > limits.deadline:
                    raise _too_late(limits)
                if await request.is_disconnected():
                    raise disconnected()
        return results.result()
    finally:
        results.cancel()
        # The frames of an error refer to these, and they to the error: such a cycle is freed by the garbage collector
        # alone, which counts objects, not the megabytes in them.
        del jobs, results


def _too_late(limits: ServerLimits) -> RequestError:
    return RequestError(504, "deadline_exceeded", f"not read within {limits.deadline:g} s", retry_after=5)


class ServedModels:
    """Adapters of one base by name, and the units of images that they read; the first is the default.

    `script` replaces that of each; auto reads in any script, because other requests must not change a line's text.
    """

    def __init__(self, adapters: Mapping[str, Path], *, script: str | None = None) -> None:
        self.names = list(adapters)
        self.default = self.names[0]
        self._readers: dict[str, LocalReader] = {}
        self.units: dict[str, Unit] = {}
        self._keys: dict[str, str] = {}
        first = ReadingSettings.load(adapters[self.default])
        for number, (name, folder) in enumerate(adapters.items()):
            settings, is_whole = ReadingSettings.load(folder), is_whole_network(folder)
            if not is_whole and len(adapters) > 1:
                self._keys[name] = f"served{number}" if number else "default"
            if number == 0 or is_whole:  # a whole network fits beside any other
                reader = LocalReader.of_run(RunFolder(folder), merged=len(adapters) == 1)
            elif (settings.base, settings.base_revision) == (first.base, first.base_revision):
                from dsocr.models.adapters import add_adapter

                network = self._readers[self.default].network
                add_adapter(network, folder, self._keys[name])
                processor = load_processor(settings.base, settings.resolution, settings.prompt, settings.base_revision)
                generation, calibration = Generation(**settings.generation), Calibration.load(folder)
                reader = LocalReader(network, processor, generation, settings.text_policy, calibration)
            else:
                hint = "start another server for it"
                message = f"the adapter is for base {settings.base}, not {first.base}"
                raise ModelError(message, code="adapter-of-other-base", where=folder, hint=hint)
            self._readers[name] = reader.with_script(script)
            self.units[name] = settings.unit

    @property
    def batch_size(self) -> int:
        """The largest number of images to read together."""
        return self._readers[self.default].generation.batch_size

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every (id, image), in their order."""
        reader = self._readers[model]
        if model in self._keys:
            reader.network.set_adapter(self._keys[model])
        return reader.read(images)
