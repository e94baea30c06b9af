"""An archive's server on this machine: documents, images that it cuts and scales, and every way to answer badly."""

import io
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from PIL import Image, ImageDraw

from dsocr.io.web import WebClient

Misbehave = Callable[[BaseHTTPRequestHandler], None]
_SERVICE = re.compile(r"/(?:img|level0)/(\w+)/([^/]+)/([^/]+)/(\d+)/(?:default|native)\.jpg")


def draw_scan(name: str, size: tuple[int, int] = (600, 800), lines: int = 3) -> Image.Image:
    """A page with bars for lines, another one for each name."""
    image = Image.new("L", size, 235)
    drawing = ImageDraw.Draw(image)
    width, height = size
    for number in range(lines):
        top = height * (2 * number + 1) // (2 * lines + 1)
        left = width // 10 + 3 * (sum(map(ord, name)) % 11)
        drawing.rectangle((left, top, width * 8 // 10, top + height // 20), fill=40 + 10 * number)
    return image


class Archive:
    """What a server has: content by path, sizes of its images by name, and how to misbehave by path."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.images: dict[str, tuple[int, int]] = {}
        self.bad: dict[str, Misbehave] = {}
        self.asked: list[str] = []
        self.url = ""

    def add(self, path: str, content: Any) -> str:
        """Serve a document or bytes; returns its address. `{url}` in JSON becomes the server's address."""
        if not isinstance(content, bytes):
            content = json.dumps(content, ensure_ascii=False).replace("{url}", self.url).encode()
        self.documents[path] = content
        return self.url + path

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        self.asked.append(path)
        if path in self.bad:
            self.bad[path](handler)
        elif path in self.documents:
            kind = "image/png" if path.endswith(".png") else "application/json"
            send(handler, self.documents[path], "Content-Type", kind)
        elif found := _SERVICE.fullmatch(path):
            self._send_image(handler, *map(str, found.groups()))
        else:
            send(handler, b"no such thing", status=404)

    def _send_image(self, handler: BaseHTTPRequestHandler, name: str, region: str, size: str, rotation: str) -> None:
        width, height = self.images[name]
        image = draw_scan(name, (width, height))
        if region != "full":
            left, top, across, down = map(int, region.split(","))
            image = image.crop((left, top, left + across, top + down))
        if size not in {"full", "max"}:
            wide, _, high = size.partition(",")
            image = image.resize((int(wide), int(high or round(image.height * int(wide) / image.width))))
        image = image.rotate(-int(rotation), expand=True)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90)
        send(handler, buffer.getvalue(), "Content-Type", "image/jpeg")


def send(handler: BaseHTTPRequestHandler, body: bytes, *headers: str, status: int = 200) -> None:
    """Answer with headers, given as name, value, name, ...; a length that is not given is the true one."""
    pairs = dict(zip(headers[::2], headers[1::2], strict=True))
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **pairs}.items():
        if value:
            handler.send_header(name, value)
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(body)


def png(size: tuple[int, int] = (60, 80)) -> bytes:
    """A small image file."""
    buffer = io.BytesIO()
    draw_scan("small", size).save(buffer, "PNG")
    return buffer.getvalue()


@contextmanager
def serving(archive: Archive) -> Iterator[Archive]:
    """Serve on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                archive.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    archive.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield archive
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a client would have waited."""
    waited: list[float] = []
    monkeypatch.setattr(WebClient, "sleep", staticmethod(waited.append))
    return waited


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, pauses: list[float]) -> Iterator[Archive]:
    """A server, a cache of its own, and the proof that nothing else is connected to."""
    connect = socket.socket.connect

    def only_loopback(self: socket.socket, address: Any) -> None:
        assert address[0] in {"127.0.0.1", "::1"}, f"connects to {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", only_loopback)
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    with serving(Archive()) as running:
        yield running
