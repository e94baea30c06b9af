"""The thread that reads: what is read together, what is let go, and that nothing waits for ever."""

import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr.errors import DsocrError, ModelError
from dsocr.images import DecodedImage, decode_image
from dsocr.inference.confidence import Prediction
from dsocr.server.engine import Engine, Job
from dsocr.server.limits import Limits, Measures, RefusedError
from tests.conftest import PATIENCE
from tests.serving.making import FakeModels, png

LIMITS = Limits(waiting=6, batch_pixels=1000, gather=0.05)


@pytest.fixture
def models() -> FakeModels:
    return FakeModels()


@pytest.fixture
def engine(models: FakeModels) -> Iterator[Engine]:
    engine = Engine(models, LIMITS, Measures())
    engine.start()
    yield engine
    models.gate.set()
    engine.close()


def job(width: int = 20, model: str = "mine", seconds: float = PATIENCE) -> Job:
    return Job(png(width), width * 10, model, time.monotonic() + seconds)


def texts(jobs: list[Job]) -> list[str]:
    return [job.answer.result(PATIENCE).text for job in jobs]


def held(engine: Engine, models: FakeModels) -> Job:
    """A job that is being read, and held there."""
    models.gate.clear()
    first = job(1)
    engine.submit([first])
    while not first.answer.running():
        time.sleep(0.005)
    return first


def test_what_waits_together_for_one_model_is_read_together(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    jobs = [job(20), job(21, "other"), job(22), job(23, "other"), job(24)]
    for one in jobs:
        engine.submit([one])
    models.gate.set()
    assert texts(jobs) == ["mine 20", "other 21", "mine 22", "other 23", "mine 24"]
    assert models.seen[1:] == [("mine", [20, 22, 24]), ("other", [21, 23])]


def test_no_more_pixels_are_decoded_together_than_allowed(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    jobs = [job(60), job(50), job(30)]
    engine.submit(jobs)
    models.gate.set()
    texts(jobs)
    assert models.seen[1:] == [("mine", [60, 30]), ("mine", [50])]


def test_more_than_may_wait_is_refused_with_the_time_to_come_back(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    engine.submit([job() for _ in range(6)])
    with pytest.raises(RefusedError) as refused:
        engine.submit([job()])
    assert (refused.value.status, refused.value.code) == (429, "busy")
    assert refused.value.retry_after
    assert refused.value.retry_after >= 1


def test_images_of_one_request_wait_all_or_none(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    engine.submit([job() for _ in range(4)])
    with pytest.raises(RefusedError):
        engine.submit([job() for _ in range(3)])
    engine.submit([job(), job()])


def test_more_images_than_may_ever_wait_are_not_told_to_come_back(engine: Engine) -> None:
    with pytest.raises(RefusedError) as refused:
        engine.submit([job() for _ in range(7)])
    assert (refused.value.status, refused.value.code, refused.value.retry_after) == (413, "too_many_images", None)


def test_what_nobody_waits_for_is_not_read(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    gone, late, stays = job(30), job(31, seconds=0.0), job(32)
    engine.submit([gone, late, stays])
    gone.answer.cancel()
    models.gate.set()
    assert texts([stays]) == ["mine 32"]
    assert models.seen[1:] == [("mine", [32])]
    with pytest.raises(CancelledError):
        late.answer.result(PATIENCE)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(png(13), ModelError, id="the model refuses it"),
        pytest.param(png(14), RuntimeError, id="the model fails over it"),
        pytest.param(png(40)[:45], DsocrError, id="a damaged file"),
    ],
)
def test_an_image_that_cannot_be_read_takes_no_other_with_it(
    engine: Engine, models: FakeModels, bad: bytes, error: type[Exception]
) -> None:
    held(engine, models)
    jobs = [job(20), Job(bad, 100, "mine", time.monotonic() + PATIENCE), job(22)]
    engine.submit(jobs)
    models.gate.set()
    assert texts([jobs[0], jobs[2]]) == ["mine 20", "mine 22"]
    with pytest.raises(error):
        jobs[1].answer.result(PATIENCE)
    assert engine.is_alive


def test_a_call_is_carried_out_between_batches(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    call = engine.call(lambda: len(models.seen))
    assert not call.done()
    models.gate.set()
    assert call.result(PATIENCE) == 1

    def failing() -> None:
        raise ModelError("no")

    with pytest.raises(ModelError):
        engine.call(failing).result(PATIENCE)


def test_closed_it_reads_to_the_end_and_refuses_what_waits(engine: Engine, models: FakeModels) -> None:
    first, waiting = held(engine, models), job()
    engine.submit([waiting])
    engine.close(patience=0)
    models.gate.set()
    engine.close()
    assert texts([first]) == ["mine 1"]
    with pytest.raises(RefusedError, match="shutting down"):
        waiting.answer.result(PATIENCE)
    with pytest.raises(RefusedError, match="shutting down"):
        engine.submit([job()])
    assert not engine.is_alive


@pytest.mark.parametrize("fault", [RuntimeError("a bug"), MemoryError()], ids=lambda fault: type(fault).__name__)
def test_a_decoder_that_fails_ends_no_more_than_its_own_image(
    engine: Engine, models: FakeModels, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    decode = decode_image

    def failing(data: bytes, **settings: Any) -> DecodedImage:
        if data == png(33):
            raise fault
        return decode(data, **settings)

    monkeypatch.setattr("dsocr.server.engine.decode_image", failing)
    held(engine, models)
    jobs = [job(20), job(33), job(22)]
    engine.submit(jobs)
    models.gate.set()
    assert texts([jobs[0], jobs[2]]) == ["mine 20", "mine 22"]
    with pytest.raises((RuntimeError, RefusedError)):
        jobs[1].answer.result(PATIENCE)
    assert engine.is_alive


def test_what_a_batch_held_is_free_when_its_images_are_read_alone(engine: Engine, models: FakeModels) -> None:
    class Held:
        """Stands for the tensors of a batch that took too much memory."""

    alive: list[weakref.ref[Held]] = []
    left: list[bool] = []

    def read(model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        shown = list(images)
        tensors = Held()
        if len(shown) > 1:
            alive.append(weakref.ref(tensors))
            raise torch.OutOfMemoryError("too large")
        left.extend(one() is not None for one in alive)
        yield Prediction("0", "read", tokens=1, truncated=False)

    held(engine, models)
    models.read = read  # type: ignore[method-assign]
    jobs = [job(20), job(21)]
    engine.submit(jobs)
    models.gate.set()
    assert texts(jobs) == ["read", "read"]
    assert left == [False, False]


def test_where_the_thread_ends_by_a_fault_nobody_waits(
    engine: Engine, models: FakeModels, caplog: pytest.LogCaptureFixture
) -> None:
    held(engine, models)
    waiting, call = job(), engine.call(lambda: None)
    engine.submit([waiting])
    call.cancel()
    models.samples_per_batch = None  # type: ignore[assignment]
    models.gate.set()
    with pytest.raises(RefusedError, match="has ended"):
        waiting.answer.result(PATIENCE)
    assert not engine.is_alive
    for ask in (lambda: engine.submit([job()]), lambda: engine.call(lambda: None)):
        with pytest.raises(RefusedError, match="has ended"):
            ask()
    assert "ended by a fault" in caplog.text


def test_closed_it_carries_nothing_out(engine: Engine, models: FakeModels) -> None:
    held(engine, models)
    given_up, waiting = engine.call(lambda: None), engine.call(lambda: None)
    given_up.cancel()
    engine.close(patience=0)
    models.gate.set()
    with pytest.raises(RefusedError, match="shutting down"):
        waiting.result(PATIENCE)
    with pytest.raises(RefusedError, match="shutting down"):
        engine.call(lambda: None)


def test_what_would_wait_too_long_is_refused_before_the_queue_is_full(models: FakeModels) -> None:
    engine = Engine(models, Limits(waiting=1000, deadline=2 * PATIENCE), Measures())
    engine.start()
    try:
        held(engine, models)
        engine.submit([job()])  # half a second each is the first guess, and half the deadline may be waited
        with pytest.raises(RefusedError) as refused:
            engine.submit([job() for _ in range(2 * PATIENCE)])
        assert refused.value.status == 429
        models.gate.set()
    finally:
        engine.close()


def test_an_idle_server_takes_an_image_however_slow_it_is(models: FakeModels) -> None:
    engine = Engine(models, Limits(deadline=0.1), Measures())
    engine.start()
    try:
        engine.submit([one := job()])
        assert texts([one]) == ["mine 20"]
    finally:
        engine.close()


def test_who_has_an_answer_may_ask_for_the_next_at_once(models: FakeModels) -> None:
    engine = Engine(models, Limits(deadline=0.1), Measures())  # nothing may wait behind anything
    engine.start()
    refused: list[Exception] = []
    again = job()

    def ask_again(_: object) -> None:
        try:
            engine.submit([again])
        except RefusedError as error:
            refused.append(error)

    try:
        one = job()
        one.answer.add_done_callback(ask_again)
        engine.submit([one])
        assert (texts([one]), refused) == (["mine 20"], [])
        assert texts([again]) == ["mine 20"]
    finally:
        engine.close()
