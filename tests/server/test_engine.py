"""The reading thread: batching, dropped requests, and deadlines."""

import asyncio
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any
from unittest.mock import AsyncMock

import pytest
import torch
from PIL import Image

from dsocr.errors import DsocrError, ModelError
from dsocr.images import DecodedImage, decode_image
from dsocr.inference.confidence import Prediction
from dsocr.server.access import RequestError
from dsocr.server.engine import Engine, Job, read_images
from dsocr.server.limits import Metrics, ServerLimits
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, png

LIMITS = ServerLimits(max_queued=6, max_batch_pixels=1000, batch_wait=0.05)


@pytest.fixture
def models() -> FakeModels:
    return FakeModels()


@pytest.fixture
def engine(models: FakeModels) -> Iterator[Engine]:
    engine = Engine(models, LIMITS, Metrics())  # type: ignore[arg-type]
    engine.start()
    yield engine
    models.gate.set()
    engine.close()


def job(width: int = 20, model: str = "mine", seconds: float = PATIENCE) -> Job:
    return Job(png(width), width * 10, model, time.monotonic() + seconds)


def texts(jobs: list[Job]) -> list[str]:
    return [job.result.result(PATIENCE).prediction.text for job in jobs]


def block(engine: Engine, models: FakeModels) -> Job:
    """A job that is being read until `models.gate` opens."""
    models.gate.clear()
    first = job(1)
    engine.submit([first])
    while not first.result.running():
        time.sleep(0.005)
    return first


def test_queued_images_of_one_model_are_read_together(engine: Engine, models: FakeModels) -> None:
    block(engine, models)
    jobs = [job(20), job(21, "other"), job(22), job(23, "other"), job(24)]
    for one in jobs:
        engine.submit([one])
    models.gate.set()
    assert texts(jobs) == ["mine 20", "other 21", "mine 22", "other 23", "mine 24"]
    assert models.batches[1:] == [("mine", [20, 22, 24]), ("other", [21, 23])]


def test_a_batch_has_a_limit_of_pixels(engine: Engine, models: FakeModels) -> None:
    block(engine, models)
    jobs = [job(60), job(50), job(30)]
    engine.submit(jobs)
    models.gate.set()
    texts(jobs)
    assert models.batches[1:] == [("mine", [60, 30]), ("mine", [50])]


def test_a_line_does_not_wait_for_pages(models: FakeModels) -> None:
    engine = Engine(models, ServerLimits(max_batch_pixels=20_000_000), Metrics())  # type: ignore[arg-type]
    engine.start()
    block(engine, models)
    pages = [Job(png(width), 9_000_000, "mine", time.monotonic() + PATIENCE) for width in (50, 51, 52)]
    jobs = [*pages, job(20), job(21)]
    engine.submit(jobs)
    models.gate.set()
    texts(jobs)
    engine.close()
    assert models.batches[1:] == [("mine", [50, 51]), ("mine", [20, 21]), ("mine", [52])]


def test_the_queue_is_bounded_and_takes_all_images_of_a_request_or_none(engine: Engine, models: FakeModels) -> None:
    block(engine, models)
    engine.submit([job() for _ in range(4)])
    with pytest.raises(RequestError) as error:
        engine.submit([job() for _ in range(3)])
    assert (error.value.status, error.value.code) == (429, "busy")
    assert (error.value.retry_after or 0) >= 1
    engine.submit([job(), job()])
    with pytest.raises(RequestError) as error:
        engine.submit([job() for _ in range(7)])
    assert (error.value.status, error.value.code, error.value.retry_after) == (413, "too_many_images", None)


def test_cancelled_and_expired_images_are_dropped(engine: Engine, models: FakeModels) -> None:
    block(engine, models)
    cancelled, late, wanted = job(30), job(31, seconds=0.0), job(32)
    engine.submit([cancelled, late, wanted])
    cancelled.result.cancel()
    models.gate.set()
    assert texts([wanted]) == ["mine 32"]
    assert models.batches[1:] == [("mine", [32])]
    with pytest.raises(CancelledError):
        late.result.result(PATIENCE)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(png(13), ModelError, id="the model raises an error"),
        pytest.param(png(14), RuntimeError, id="a bug in the model"),
        pytest.param(png(40)[:45], DsocrError, id="a damaged file"),
        pytest.param(png(33), RuntimeError, id="a bug in the decoder"),
        pytest.param(png(34), RequestError, id="no memory to decode it"),
    ],
)
def test_an_unreadable_image_does_not_affect_its_batch(
    engine: Engine, models: FakeModels, monkeypatch: pytest.MonkeyPatch, bad: bytes, error: type[Exception]
) -> None:
    decode = decode_image

    def failing(data: bytes, **settings: Any) -> DecodedImage:
        if data == png(33):
            raise RuntimeError("a bug")
        if data == png(34):
            raise MemoryError
        return decode(data, **settings)

    monkeypatch.setattr("dsocr.server.engine.decode_image", failing)
    block(engine, models)
    jobs = [job(20), Job(bad, 100, "mine", time.monotonic() + PATIENCE), job(22)]
    engine.submit(jobs)
    models.gate.set()
    assert texts([jobs[0], jobs[2]]) == ["mine 20", "mine 22"]
    with pytest.raises(error):
        jobs[1].result.result(PATIENCE)
    assert engine.is_alive


def test_images_of_a_client_that_has_left_are_not_queued(engine: Engine, models: FakeModels) -> None:
    request = AsyncMock()
    request.is_disconnected.return_value = True

    def read() -> None:
        asyncio.run(read_images(request, [png()], "mine", engine, LIMITS))

    # In a thread of its own, because a browser test of this process may have left an event loop running.
    with ThreadPoolExecutor(1) as thread, pytest.raises(RequestError) as error:
        thread.submit(read).result()
    assert error.value.code == "client_disconnected"
    assert models.batches == []


def test_closing_finishes_the_batch_and_rejects_the_rest(engine: Engine, models: FakeModels) -> None:
    first, queued, cancelled = block(engine, models), job(), job()
    engine.submit([queued, cancelled])
    cancelled.result.cancel()
    engine.close(timeout=0)
    models.gate.set()
    engine.close()
    assert texts([first]) == ["mine 1"]
    for rejected in (
        lambda: queued.result.result(PATIENCE),
        lambda: engine.submit([job()]),
    ):
        with pytest.raises(RequestError) as error:
            rejected()
        assert (error.value.status, error.value.code) == (503, "shutting_down")
    assert not engine.is_alive


def test_a_bug_in_the_thread_rejects_everything(engine: Engine, models: FakeModels) -> None:
    block(engine, models)
    queued, cancelled = job(), job()
    engine.submit([queued, cancelled])
    cancelled.result.cancel()
    models.batch_size = None  # type: ignore[assignment]
    models.gate.set()
    for rejected in (
        lambda: queued.result.result(PATIENCE),
        lambda: engine.submit([job()]),
    ):
        with pytest.raises(RequestError) as error:
            rejected()
        assert error.value.code == "engine_failed"
    assert not engine.is_alive


def test_memory_of_a_failed_batch_is_free_when_its_images_are_read_alone(engine: Engine, models: FakeModels) -> None:
    class Tensors:
        """Stands for what a batch that ran out of memory held."""

    created: list[weakref.ref[Tensors]] = []
    alive: list[bool] = []

    def read(model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        opened = list(images)
        tensors = Tensors()
        if len(opened) > 1:
            created.append(weakref.ref(tensors))
            raise torch.OutOfMemoryError("too large")
        alive.extend(one() is not None for one in created)
        yield Prediction("0", "read", tokens=1, truncated=False)

    block(engine, models)
    models.read = read  # type: ignore[method-assign]
    jobs = [job(20), job(21)]
    engine.submit(jobs)
    models.gate.set()
    assert texts(jobs) == ["read", "read"]
    assert alive == [False, False]
