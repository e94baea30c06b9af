"""Bodies made to exhaust a server: each is answered, and memory and processor time stay below a ceiling.

Where these are measured, the server runs in a process of its own, so that its memory is not that of the test.
"""

import json
import math
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import compress

import psutil
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from dsocr.server.access import ServerLimits
from dsocr.server.routes import create_app
from tests.conftest import PATIENCE
from tests.data.hostile_files import chunk, gif_file, stored, tiff_entries, tiff_file
from tests.server.fakes import FakeModels, data_uri, hosted, png

_MIB = 2**20
_LARGEST = 21 * _MIB
"""Bytes of the largest chat that a server takes."""
_CHAT, _IMAGE = "/v1/chat/completions", "/v1/transcriptions"
_HEAD = b'{"model": "mine", "messages": '
_TEXT = b'[{"role": "user", "content": "x"}]'
_URI_HEAD = _HEAD + b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
_URI_END = b'"}}]}]}'

Body = Callable[[], bytes]


def _app() -> FastAPI:
    return create_app(FakeModels(), limits=ServerLimits(deadline=PATIENCE))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class HostedServer:
    """A server in another process."""

    address: str
    process: psutil.Process

    def post(self, path: str, body: bytes) -> tuple[int, str]:
        """The status and the code of the error, empty if there is none."""
        request = urllib.request.Request(self.address + path, body)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["error"]["code"]

    def is_healthy(self) -> bool:
        """Whether /healthz answers."""
        with urllib.request.urlopen(self.address + "/healthz", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)

    def processor_seconds(self) -> float:
        """The processor time that the server has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    @contextmanager
    def watched(self) -> Iterator[list[int]]:
        """Record the memory that the server has in use (bytes), many times a second."""
        sizes, ended = [self.process.memory_info().rss], threading.Event()

        def watch() -> None:
            while not ended.wait(0.002):
                sizes.append(self.process.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield sizes
        finally:
            ended.set()
            watcher.join()


@pytest.fixture(scope="module")
def server() -> Iterator[HostedServer]:
    with hosted(_app) as (address, process):
        server = HostedServer(address, process)
        for path, body in ((_IMAGE, png()), (_CHAT, chat(data_uri(png())))):
            assert server.post(path, body) == (200, "")  # what is loaded at the first request counts as the start
        yield server


def chat(*urls: str) -> bytes:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return json.dumps({"model": "mine", "messages": [{"role": "user", "content": parts}]}).encode()


def padded(head: bytes, filling: bytes, tail: bytes = b"") -> bytes:
    """The largest body that a server takes, filled with repetitions."""
    return head + filling * ((_LARGEST - len(head) - len(tail)) // len(filling)) + tail


def numbered_keys() -> bytes:
    keys = b",".join(b'"k%d":1' % number for number in range(_LARGEST // 12))
    return b'{"model":"mine",' + keys + b',"messages":' + _TEXT + b"}"


def image_parts(count: int, uri: str) -> bytes:
    return chat(*[uri] * count)


# Each is read by a JSON parser or thrown away before; none has an image that could be read.
CHATS: list[tuple[str, Body]] = [
    ("two million ones", lambda: _HEAD + b"[" + b"1," * 2_000_000 + b"1]}"),
    ("valid messages", lambda: padded(_HEAD + _TEXT[:-1], b"," + _TEXT[1:-1], b"]}")),
    ("valid parts", lambda: padded(_HEAD + b'[{"role":"user","content":[{}', b',{"type":"text","text":""}', b"]}]}")),
    ("nested arrays", lambda: padded(_HEAD, b"[")),
    ("closed nesting", lambda: _HEAD + b"[" * 9 * _MIB + b"]" * 9 * _MIB + b"}"),
    ("one long text", lambda: padded(_HEAD + b'[{"role":"user","content":"', b"x", b'"}]}')),
    ("a long text of wide letters", lambda: padded(_HEAD + b'[{"role":"user","content":"', "𝄞".encode(), b'"}]}')),
    ("a long text of escapes", lambda: padded(_HEAD + b'[{"role":"user","content":"', rb"\u0001", b'"}]}')),
    ("many keys", numbered_keys),
    ("a long number", lambda: padded(_HEAD, b"9", b"}")),
    ("invalid UTF-8", lambda: padded(_HEAD + b'[{"role":"user","content":"', b"\xff", b'"}]}')),
    ("a lone surrogate", lambda: _HEAD + rb'[{"role":"user","content":"\ud800"}]}'),
    ("a wrong type everywhere", lambda: b'{"model":[],"messages":"x","stream":{},"stream_options":1,"n":[1]}'),
    ("an image of wide letters", lambda: padded(_URI_HEAD, "𝄞".encode(), _URI_END)),
    ("base64 of zeros", lambda: padded(_URI_HEAD, b"AAAA", _URI_END)),
    ("a hundred thousand images", lambda: image_parts(100_000, data_uri(b""))),
    ("a long type of image", lambda: padded(_URI_HEAD[:-11], b"x", b";base64," + _URI_END)),
]  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(_app()) as client:
        yield client


@pytest.mark.parametrize("name", ["two million ones", "nested arrays", "base64 of zeros"])
def test_a_hostile_chat_is_rejected(client: TestClient, name: str) -> None:
    answer = client.post(_CHAT, content=dict(CHATS)[name]())
    assert 400 <= answer.status_code < 500
    assert answer.json()["error"]["code"]


def test_a_hostile_image_is_answered(client: TestClient) -> None:
    answer = client.post(_IMAGE, content=dict(SMALL_IMAGES)["a TIFF of tiny frames"]())
    assert answer.status_code in {200, 413, 422}


def blank(mode: str, kind: str, size: tuple[int, int] = (6600, 6000), **settings: Any) -> bytes:
    """An image of 39 megapixels that is a small file."""
    return stored(Image.new(mode, size), kind, **settings)


def animated_webp(count: int, side: int) -> bytes:
    frames = [Image.new("L", (side, side), number % 200) for number in range(count)]
    return stored(frames[0], "WEBP", save_all=True, append_images=frames[1:])


def png_with(*chunks: bytes, at_end: bool = False) -> bytes:
    """A small PNG file with further chunks behind its header, or before its end."""
    whole, place = png(), -12 if at_end else 33
    return whole[:place] + b"".join(chunks) + whole[place:]


def sideways() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


LARGE_IMAGES: list[tuple[str, Body]] = [
    ("WebP", lambda: blank("RGB", "WEBP")),
    ("WebP with transparency", lambda: blank("RGBA", "WEBP", lossless=True, quality=0, method=0)),
    ("WebP lying on its side", lambda: blank("RGB", "WEBP", exif=sideways())),
    ("WebP of large frames", lambda: animated_webp(4, 3000)),
    ("PNG with transparency", lambda: blank("RGBA", "PNG")),
    ("PNG of 16 bits", lambda: blank("I;16", "PNG")),
    ("PNG with a palette", lambda: blank("P", "PNG")),
    ("PNG lying on its side", lambda: blank("RGB", "PNG", exif=sideways())),
    ("PNG as wide as allowed", lambda: blank("RGB", "PNG", (88_000, 450))),
    ("progressive JPEG", lambda: blank("RGB", "JPEG", progressive=True)),
    ("JPEG of four inks", lambda: blank("CMYK", "JPEG")),
    ("JPEG 2000", lambda: blank("RGB", "JPEG2000")),
    ("TIFF of floating point", lambda: blank("F", "TIFF", compression="tiff_deflate")),
    ("GIF", lambda: blank("P", "GIF")),
    ("BMP", lambda: blank("1", "BMP")),
]
SMALL_IMAGES: list[tuple[str, Body]] = [
    ("a TIFF of tiny frames", lambda: tiff_file(12_000, tiff_entries(8, 8, 64), bytes(64))),
    ("a GIF of tiny frames", lambda: gif_file(2, 2, 12_000)),
    ("a WebP of tiny frames", lambda: animated_webp(3000, 16)),
    ("a PNG of tiny chunks", lambda: png_with(*[chunk(b"teSt", b"")] * 1_200_000)),
    ("a PNG of tiny chunks behind the pixels", lambda: png_with(*[chunk(b"teSt", b"")] * 1_200_000, at_end=True)),
    ("a PNG of empty pixels", lambda: png_with(*[chunk(b"IDAT", b"")] * 1_200_000, at_end=True)),
    ("a PNG of packed texts", lambda: png_with(*[chunk(b"zTXt", b"k\0\0" + compress(bytes(1_000_000)))] * 60)),
    ("a PNG of a packed profile", lambda: png_with(chunk(b"iCCP", b"k\0\0" + compress(bytes(900_000_000), 1)))),
    ("a JPEG of stuffed bytes", lambda: b"\xff\xd8" + b"\xff\x00" * 8_000_000),
    ("a JPEG of empty segments", lambda: b"\xff\xd8" + b"\xff\xfe\x00\x02" * 4_000_000),
    ("a GIF of comments", lambda: blank("P", "GIF", (2, 2))[:-1] + b"!\xfe\x01x\x00" * 3_000_000 + b";"),
    ("zeros", lambda: bytes(16 * _MIB)),
    ("an SVG of entities", lambda: b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]><svg>' + b"&a;" * 5_000_000 + b"</svg>"),
]  # fmt: skip


ANSWERED = {200, 413, 422}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "statuses", "memory", "seconds"),
    [
        *(pytest.param(_CHAT, body, range(400, 500), 300e6, 1.0, id=name) for name, body in CHATS),
        # Pieces that are not counted take 5 to 8 s.
        *(pytest.param(_IMAGE, body, ANSWERED, 300e6, 3.0, id=name) for name, body in SMALL_IMAGES),
        *(pytest.param(_IMAGE, body, ANSWERED, 1e9, math.inf, id=name) for name, body in LARGE_IMAGES),
    ],
)
def test_a_hostile_body_is_answered_in_little_memory_and_time(
    path: str, body: Body, statuses: Container[int], memory: float, seconds: float, server: HostedServer
) -> None:
    content = body()
    assert len(content) < (22 if path == _CHAT else 17) * _MIB
    before = server.processor_seconds()
    with server.watched() as sizes:
        status, code = server.post(path, content)
        assert server.is_healthy()
    assert status in statuses, code
    assert code or status == 200
    assert max(sizes) - sizes[0] < memory
    assert server.processor_seconds() - before < seconds
