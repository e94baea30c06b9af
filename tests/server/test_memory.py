"""What a server keeps in memory: the images of a queued request, and nothing of an answered one."""

import gc
import json
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from dsocr.errors import DsocrError
from dsocr.inference.confidence import Prediction
from dsocr.server.access import RequestError, ServerLimits
from dsocr.server.engine import QueuedImage
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE
from tests.server.fakes import FakeModels, data_uri, png

_LARGE = 2_000_000
"""Bytes; nothing but request bodies is that large."""
_OURS = (QueuedImage, Prediction, Image.Image, RequestError, DsocrError, RuntimeError)


@contextmanager
def without_collector() -> Iterator[None]:
    """Without the garbage collector, reference cycles are never freed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive() -> Counter[str]:
    """Living objects that belong to requests, by type."""
    return Counter(type(thing).__name__ for thing in gc.get_objects() if issubclass(type(thing), _OURS))


def send_together(client: TestClient, bodies: list[bytes], path: str = "/v1/transcriptions") -> list[int]:
    """The statuses of simultaneous requests."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: client.post(path, content=body).status_code, bodies))


@pytest.mark.parametrize(
    ("bodies", "statuses"),
    [
        pytest.param([png(20), png(21)], [200, 200], id="read"),
        pytest.param([png(20), png(30)[:50]], [200, 422], id="a damaged file"),
        pytest.param([png(20), png(13)], [200, 409], id="the model raises an error"),
        pytest.param([png(20), png(14)], [200, 500], id="a bug"),
        pytest.param([b"no image", png(20)], [422, 200], id="no image"),
        pytest.param([png(1001, 1000), png(20)], [413, 200], id="too many pixels"),
    ],
)
def test_nothing_of_a_request_outlives_its_answer(
    bodies: list[bytes], statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsocr.server.engine._LOG.disabled", True)  # pytest keeps what is logged, frames included
    limits = ServerLimits(max_pixels=1_000_000, batch_wait=0.2)
    app = create_app(FakeModels(), limits=limits)  # type: ignore[arg-type]
    with TestClient(app, raise_server_exceptions=False) as client:
        send_together(client, bodies)  # warm up: what is created only once
        with without_collector():
            before = alive()
            assert send_together(client, bodies) == statuses
            until = time.monotonic() + PATIENCE
            while alive() - before and time.monotonic() < until:
                time.sleep(0.01)  # the reading thread lets go a moment after it has answered
            assert alive() - before == Counter()


def test_a_queued_chat_holds_its_images_once() -> None:
    image = png() + Random(17).randbytes(_LARGE)  # data behind a PNG's end is ignored
    chat = {"model": "mine", "messages": [{"role": "user", "content": [part(image)]}]}
    body = json.dumps(chat).encode()
    models = FakeModels()
    models.gate.clear()
    with TestClient(create_app(models, limits=ServerLimits(deadline=PATIENCE))) as client:  # type: ignore[arg-type]
        tracemalloc.start()
        thread = threading.Thread(target=send_together, args=(client, [body], "/v1/chat/completions"))
        thread.start()
        assert models.started.wait(PATIENCE)
        held = [trace.size for trace in tracemalloc.take_snapshot().traces if trace.size >= _LARGE]
        tracemalloc.stop()
        models.gate.set()
        thread.join()
    assert len(held) == 1


def part(image: bytes) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": data_uri(image)}}
