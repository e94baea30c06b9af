"""The engine: batching, dropped images, deadlines, and errors of single images."""

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr.images import DecodedImage, decode_image
from dsocr.inference.confidence import Prediction
from dsocr.server.access import RequestError, ServerLimits
from dsocr.server.engine import Engine, QueuedImage
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, png

LIMITS = ServerLimits(max_queued=6, max_pixels=1000, batch_wait=0.05)

Scenario = Callable[[Engine, FakeModels], Coroutine[Any, Any, None]]


def play(scenario: Scenario, limits: ServerLimits = LIMITS) -> None:
    """Run a scenario while an engine reads an image of width 1, until `gate` is set."""
    models = FakeModels()

    async def run() -> None:
        engine = Engine(models, limits)  # type: ignore[arg-type]
        models.gate.clear()
        async with engine.running():
            try:
                engine.submit([job(1)])
                while not models.started.is_set():
                    await asyncio.sleep(0.005)
                await asyncio.wait_for(scenario(engine, models), PATIENCE)
            finally:
                models.gate.set()

    # In a thread of its own, because a browser test of this process may have left an event loop running.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


def job(width: int = 20, model: str = "mine", data: bytes | None = None, pixels: int | None = None) -> QueuedImage:
    return QueuedImage(data or png(width), pixels or width * 10, model)


async def texts(jobs: list[QueuedImage]) -> list[str]:
    return [(await job.result).text for job in jobs]


@pytest.mark.parametrize(
    ("images", "batches"),
    [
        pytest.param(
            [(20, "mine", 1), (21, "other", 1), (22, "mine", 1), (23, "other", 1), (24, "mine", 1)],
            [("mine", [20, 22, 24]), ("other", [21, 23])],
            id="images of one model are read together",
        ),
        pytest.param(
            [(60, "mine", 600), (50, "mine", 500), (30, "mine", 300)],
            [("mine", [60, 30]), ("mine", [50])],
            id="a batch has a limit of pixels",
        ),
        pytest.param(
            [(width, "mine", 1) for width in (20, 21, 22, 23, 24)],
            [("mine", [20, 21, 22, 23]), ("mine", [24])],
            id="and one of images",
        ),
    ],
)
def test_batches(images: list[tuple[int, str, int]], batches: list[tuple[str, list[int]]]) -> None:
    async def scenario(engine: Engine, models: FakeModels) -> None:
        jobs = [job(width, model, pixels=pixels) for width, model, pixels in images]
        for each in jobs:
            engine.submit([each])
        models.gate.set()
        assert await texts(jobs) == [f"{model} {width}" for width, model, _ in images]
        assert models.batches[1:] == batches

    play(scenario)


def test_a_line_does_not_wait_for_pages() -> None:
    async def scenario(engine: Engine, models: FakeModels) -> None:
        jobs = [*(job(width, pixels=9_000_000) for width in (50, 51, 52)), job(20), job(21)]
        engine.submit(jobs)
        models.gate.set()
        await texts(jobs)
        assert models.batches[1:] == [("mine", [50, 51]), ("mine", [20, 21]), ("mine", [52])]

    play(scenario, ServerLimits(max_pixels=20_000_000))


def test_the_queue_is_bounded_and_takes_all_images_of_a_request_or_none() -> None:
    async def scenario(engine: Engine, models: FakeModels) -> None:
        engine.submit([job() for _ in range(4)])
        with pytest.raises(RequestError) as error:
            engine.submit([job() for _ in range(3)])
        assert (error.value.status, error.value.code) == (429, "busy")
        assert (error.value.retry_after or 0) >= 1
        engine.submit([job(), job()])
        with pytest.raises(RequestError) as error:
            engine.submit([job() for _ in range(7)])
        assert (error.value.status, error.value.code, error.value.retry_after) == (413, "too_many_images", None)

    play(scenario)


def test_cancelled_and_expired_images_are_dropped() -> None:
    async def scenario(engine: Engine, models: FakeModels) -> None:
        cancelled, wanted = job(30), job(32)
        late = replace(job(31), since=time.monotonic() - LIMITS.deadline)
        engine.submit([cancelled, late, wanted])
        cancelled.result.cancel()
        models.gate.set()
        assert await texts([wanted]) == ["mine 32"]
        assert models.batches[1:] == [("mine", [32])]
        with pytest.raises(RequestError) as error:
            await late.result
        assert error.value.code == "deadline_exceeded"

    play(scenario)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        pytest.param(png(13), "cannot_read", id="the model raises an error"),
        pytest.param(png(14), "internal_error", id="a bug in the model"),
        pytest.param(png(40)[:45], "unreadable_image", id="a damaged file"),
        pytest.param(png(33), "internal_error", id="a bug in the decoder"),
        pytest.param(png(34), "out_of_memory", id="no memory to decode it"),
    ],
)
def test_an_unreadable_image_does_not_affect_its_batch(monkeypatch: pytest.MonkeyPatch, bad: bytes, code: str) -> None:
    decode = decode_image

    def failing(data: bytes, **settings: Any) -> DecodedImage:
        if data == png(33):
            raise RuntimeError("a bug")
        if data == png(34):
            raise MemoryError
        return decode(data, **settings)

    async def scenario(engine: Engine, models: FakeModels) -> None:
        jobs = [job(20), job(data=bad), job(22)]
        engine.submit(jobs)
        models.gate.set()
        assert await texts([jobs[0], jobs[2]]) == ["mine 20", "mine 22"]
        with pytest.raises(RequestError) as error:
            await jobs[1].result
        assert error.value.code == code
        engine.check_room()

    monkeypatch.setattr("dsocr.server.engine.decode_image", failing)
    play(scenario)


def test_a_bug_in_the_engine_rejects_what_comes_later() -> None:
    async def scenario(engine: Engine, models: FakeModels) -> None:
        models.batch_size = "a bug"  # type: ignore[assignment]
        engine.submit([job()])
        models.gate.set()
        while not models.batches:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # until the engine has taken its next batch
        with pytest.raises(RequestError) as error:
            engine.check_room()
        assert (error.value.status, error.value.code) == (503, "engine_ended")

    play(scenario)


def test_memory_of_a_failed_batch_is_free_when_its_images_are_read_alone() -> None:
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
        alive.extend(reference() is not None for reference in created)
        yield Prediction("0", "read", tokens=1, truncated=False)

    async def scenario(engine: Engine, models: FakeModels) -> None:
        models.read = read  # type: ignore[method-assign]
        jobs = [job(20), job(21)]
        engine.submit(jobs)
        models.gate.set()
        assert await texts(jobs) == ["read", "read"]
        assert alive == [False, False]

    play(scenario)
