"""What a server holds: nothing of a request once it has its answer, and no more than its images while it waits."""

import gc
import json
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from dsocr.errors import DsocrError
from dsocr.inference.confidence import Prediction
from dsocr.server.app import create_app
from dsocr.server.engine import Job
from dsocr.server.limits import Limits, RefusedError
from tests.conftest import PATIENCE
from tests.serving.making import FakeModels, data_uri, png

_LARGE = 2_000_000
"""Bytes: of a size that nothing but bodies has."""
_OURS = (Job, Prediction, Image.Image, RefusedError, DsocrError, RuntimeError)


@contextmanager
def without_collector() -> Iterator[None]:
    """Cycles stay: what is not freed by its last owner is not freed at all."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> Counter[str]:
    """How many objects there are that belong to requests."""
    return Counter(type(thing).__name__ for thing in gc.get_objects() if issubclass(type(thing), _OURS))


def ask_together(client: TestClient, bodies: list[bytes], path: str = "/v1/transcriptions") -> list[int]:
    """The statuses of requests that are under way at once."""
    statuses: dict[int, int] = {}

    def ask(number: int, body: bytes) -> None:
        statuses[number] = client.post(path, content=body).status_code

    asking = [threading.Thread(target=ask, args=pair) for pair in enumerate(bodies)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return [statuses[number] for number in range(len(bodies))]


@pytest.mark.parametrize(
    ("bodies", "statuses"),
    [
        pytest.param([png(20), png(21)], [200, 200], id="read"),
        pytest.param([png(20), png(30)[:50]], [200, 422], id="a damaged file keeps the others of its batch"),
        pytest.param([png(20), png(13)], [200, 409], id="the model refuses"),
        pytest.param([png(20), png(14)], [200, 500], id="a bug"),
        pytest.param([b"no image", png(20)], [422, 200], id="no image"),
        pytest.param([png(1001, 1000), png(20)], [413, 200], id="too many pixels"),
    ],
)
def test_nothing_of_a_request_outlives_its_answer(
    bodies: list[bytes], statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.server.engine._LOG.disabled", True)  # pytest keeps what is logged, frames included
    limits = Limits(pixels=1_000_000, gather=0.2)
    app = create_app(FakeModels(), limits=limits)  # type: ignore[arg-type]
    with TestClient(app, raise_server_exceptions=False) as client:
        ask_together(client, bodies)  # what is made once, such as an application's own errors
        with without_collector():
            before = alive()
            assert ask_together(client, bodies) == statuses
            until = time.monotonic() + PATIENCE
            while alive() - before and time.monotonic() < until:
                time.sleep(0.01)  # the thread that reads lets go a moment after it has answered
            assert alive() - before == Counter()


def test_a_chat_that_waits_holds_its_images_once() -> None:
    image = png() + Random(17).randbytes(_LARGE)  # what stands behind a PNG's end is not looked at
    asked = {"model": "mine", "messages": [{"role": "user", "content": [_part(image)]}]}
    body = json.dumps(asked).encode()
    models = FakeModels()
    models.gate.clear()
    with TestClient(create_app(models, limits=Limits(deadline=PATIENCE))) as client:  # type: ignore[arg-type]
        tracemalloc.start()
        asking = threading.Thread(target=ask_together, args=(client, [body], "/v1/chat/completions"))
        asking.start()
        assert models.asked.wait(PATIENCE)
        held = [trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= _LARGE]
        tracemalloc.stop()
        models.gate.set()
        asking.join()
    assert len(held) == 1


def _part(image: bytes) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": data_uri(image)}}
