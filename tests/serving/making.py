"""Models that need no network, and images to ask them about."""

import base64
import io
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from PIL import Image

from dsocr.errors import ModelError
from dsocr.inference.confidence import Prediction
from tests.conftest import PATIENCE


class FakeModels:
    """Reads of an image how wide it is. `gate` holds it back, `asked` says that it was asked to read; `seen` are the
    batches it was shown.
    """

    default = "mine"

    def __init__(self, *, most: int = 4, seconds: float = 0.0) -> None:
        self.names = ["mine", "other", "base"]
        self.samples_per_batch = most
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.seen: list[tuple[str, list[int]]] = []
        self._seconds = seconds

    def read(self, model: str, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        self.asked.set()
        self.gate.wait(PATIENCE)
        shown = list(images)
        self.seen.append((model, [image.width for _, image in shown]))
        time.sleep(self._seconds * len(shown))
        for name, image in shown:
            if image.width == 13:
                raise ModelError("thirteen columns cannot be read")
            if image.width == 14:
                raise RuntimeError("a bug")
            yield Prediction(name, f"{model} {image.width}", tokens=3, truncated=image.width == 99)

    def load(self, name: str, _: object) -> None:
        self.names.insert(0, name)

    def unload(self, name: str) -> None:
        if name not in self.names:
            raise ModelError(f"there is no adapter {name!r}")
        self.names.remove(name)


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """The address of a server that listens at a free port of this machine until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
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
