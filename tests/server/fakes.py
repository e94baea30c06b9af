"""Models without a network, images to send them, and a server on a free port."""

import base64
import io
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

import psutil
from fastapi import FastAPI
from PIL import Image

from dsocr.document import Unit
from dsocr.errors import ModelError
from dsocr.inference.confidence import Prediction
from dsocr.models.generation import TokenScore
from dsocr.server.access import ServerLimits
from dsocr.server.routes import make_server
from tests.conftest import PATIENCE


class FakeModels:
    """Reads the width of an image as its text.

    `gate` blocks reading while it is cleared, `started` is set when reading begins, `batches` are the widths read
    together. Widths 13 and 14 fail, 99 is truncated.
    """

    default = "mine"

    def __init__(self, *, batch_size: int = 4) -> None:
        self.names = ["mine", "other"]
        self.units: dict[str, Unit] = {"mine": "line", "other": "page"}
        self.batch_size = batch_size
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.batches: list[tuple[str, list[int]]] = []

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        self.started.set()
        self.gate.wait(PATIENCE)
        opened = list(images)
        self.batches.append((model, [image.width for _, image in opened]))
        for name, image in opened:
            if image.width == 13:
                raise ModelError("thirteen columns cannot be read")
            if image.width == 14:
                raise RuntimeError("a bug")
            text = f"{model} {image.width}"
            end = len(text)
            # the last letter is made of two tokens, as a byte-level tokenizer writes Cyrillic; then the end token
            spans = ((0, end - 1, -0.5), (end - 1, end, -0.25), (end - 1, end, -0.25), (end, end, float("-inf")))
            scores = tuple(TokenScore(*span) for span in spans)
            yield Prediction(name, text, tokens=4, truncated=image.width == 99, scores=scores)


@contextmanager
def listening(app: FastAPI, limits: ServerLimits | None = None) -> Iterator[str]:
    """The address of a server on a free port of this machine, as `dsocr serve` runs it."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        server = make_server(app, limits or ServerLimits())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def png(width: int = 20, height: int = 10) -> bytes:
    """A PNG of a size."""
    file = io.BytesIO()
    Image.new("L", (width, height), 200).save(file, "PNG")
    return file.getvalue()


def data_uri(data: bytes) -> str:
    """An image as chat clients send it."""
    return "data:image/png;base64," + base64.b64encode(data).decode()


def _host(make_app: Callable[[], FastAPI], addresses: Any, stopping: Event) -> None:
    with listening(make_app()) as address:
        addresses.put(address)
        stopping.wait()


@contextmanager
def hosted(make_app: Callable[[], FastAPI]) -> Iterator[tuple[str, psutil.Process]]:
    """A server in another process: its address, and the process."""
    spawn = multiprocessing.get_context("spawn")
    addresses, stopping = spawn.Queue(), spawn.Event()
    child = spawn.Process(target=_host, args=(make_app, addresses, stopping))
    child.start()
    try:
        yield addresses.get(timeout=PATIENCE), psutil.Process(child.pid)
    finally:
        stopping.set()
        child.join()
