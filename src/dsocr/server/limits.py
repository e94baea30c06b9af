"""What a server accepts: sizes, deadlines and connections; and the metrics that count it."""

import asyncio
import base64
import binascii
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from PIL import Image, UnidentifiedImageError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsocr.images import FORMATS, MAX_PIXELS, open_header
from dsocr.server.access import RequestError

MAX_TEXT_BYTES = 2**20
"""Bytes that a chat may have beside its images: parsed, JSON takes many times its size."""
_MAX_URI_HEAD = 100
_MAX_IMAGES_SENT = 256
"""Images in all messages of a chat, of which only those of one message are read."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of a server; a request that exceeds one is answered with an HTTP status and a message. Times in seconds.

    `max_held_bytes` bounds the bodies of all requests together, from their first byte to their answer, and
    `max_batch_pixels` what is decoded at once. `deadline` is the time from a complete request to its answer, and
    `batch_wait` how long a single request waits for others to be read with it. A connection is idle while it has not
    sent the whole header of a request.
    """

    max_body_bytes: int = 16 * 2**20
    max_held_bytes: int = 256 * 2**20
    max_pixels: int = MAX_PIXELS
    max_aspect_ratio: int = 200
    max_batch_pixels: int = MAX_PIXELS
    max_open_requests: int = 256
    max_uploads_per_address: int = 64
    max_queued: int = 64
    max_images_per_request: int = 16
    body_timeout: float = 30.0
    deadline: float = 60.0
    batch_wait: float = 0.01
    header_timeout: float = 10.0
    max_idle_connections: int = 640

    @property
    def queue_timeout(self) -> float:
        """Seconds after which a queued image is dropped: begun later, it would hardly be read before the deadline."""
        return 0.75 * self.deadline


def internal_error() -> RequestError:
    """The answer to a bug."""
    return RequestError(500, "internal_error", "internal server error; see the server log")


def busy() -> RequestError:
    """The answer while the queue is full."""
    return RequestError(429, "busy", "the queue is full; try again in 1 s", retry_after=1)


class Uploads:
    """The bodies that are arriving from each address; used from the event loop only.

    With a limit, slow bodies from one address cannot take the places of all others.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[str, int] = {}

    @contextmanager
    def of(self, request: Request) -> Iterator[None]:
        """Count a body while it arrives. Raises RequestError if there are too many."""
        address = request.client.host if request.client else ""
        others = self._open.get(address, 0)
        if others >= self._limit:
            message = f"{self._limit} requests from your address are arriving; try again in 1 s"
            raise RequestError(503, "too_many_uploads", message, retry_after=1)
        self._open[address] = others + 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


class ByteBudget:
    """The bytes that all requests hold together; used from the event loop only."""

    def __init__(self, size: int) -> None:
        self.free = size


class ByteAccount:
    """The bytes that one request holds of a budget, inside a `with` block."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shrink(0)

    def grow(self, size: int) -> None:
        """Hold `size` more bytes. Raises RequestError if the server has no room for them."""
        if size > self._budget.free:
            raise busy()
        self._budget.free -= size
        self._held += size

    def shrink(self, size: int) -> None:
        """Hold at most `size` bytes from now on."""
        released = max(0, self._held - size)
        self._budget.free += released
        self._held -= released


async def read_body(request: Request, max_bytes: int, limits: ServerLimits, account: ByteAccount) -> bytes:
    """The whole body. Raises RequestError if it is too large or too slow, or the server holds too much already."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise _too_large(max_bytes)
                account.grow(len(chunk))
                body += chunk
    except TimeoutError:
        raise RequestError(408, "slow_body", f"the body did not arrive within {limits.body_timeout:g} s") from None
    except ClientDisconnect:
        raise RequestError(499, "client_disconnected", "the client disconnected") from None
    return bytes(body)


def check_chat_body(body: bytes) -> None:
    """Raise RequestError if a chat has more text, or more images, than can be parsed in a moment.

    Nothing is parsed for that: an image is what begins like a data URI, up to the next quotation mark.
    """
    beside, end = len(body), 0
    for _ in range(_MAX_IMAGES_SENT + 1):
        start = body.find(b'"data:image', end)
        end = body.find(b'"', start + 1) if start >= 0 else -1
        if end < 0:
            break
        beside -= end - start
    else:
        raise too_many_images(f"more than {_MAX_IMAGES_SENT} images in a chat")
    if beside > MAX_TEXT_BYTES:
        message = f"the chat has more than {MAX_TEXT_BYTES // 2**20} MiB beside its images"
        raise RequestError(413, "text_too_large", message)


def decode_data_uri(url: str, limits: ServerLimits) -> bytes:
    """The image file in a `data:` URI. Raises RequestError for any other URL: none is ever fetched."""
    comma = url.find(",", 0, _MAX_URI_HEAD)
    head = url[: max(comma, 0)]
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        message = "URLs are never fetched; send the image as a data URI: data:image/png;base64,..."
        raise RequestError(400, "not_a_data_uri", message)
    try:
        data = base64.b64decode(url[comma + 1 :], validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, "invalid_base64", "the data URI is not valid base64") from None
    if len(data) > limits.max_body_bytes:
        raise _too_large(limits.max_body_bytes)
    return data


def check_image(data: bytes, limits: ServerLimits) -> int:
    """The number of pixels by the file's header. Raises RequestError if it is no image, too large or too narrow."""
    try:
        with open_header(data) as file:
            width, height = file.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(limits) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise RequestError(422, "not_an_image", f"the body is not an image ({', '.join(FORMATS)})") from None
    if width * height > limits.max_pixels:
        raise _too_many_pixels(limits)
    if max(width, height) > limits.max_aspect_ratio * min(width, height):
        # Resized to the height of a line, such a file of a few kilobytes takes gigabytes.
        message = f"the image is {width}x{height}, more than {limits.max_aspect_ratio} times as long as it is wide"
        raise RequestError(413, "extreme_aspect_ratio", message)
    return width * height


def too_many_images(message: str) -> RequestError:
    """The answer to more images than are read together."""
    return RequestError(413, "too_many_images", message)


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(413, "body_too_large", f"the body is larger than {max_bytes / 2**20:.3g} MiB")


def _too_many_pixels(limits: ServerLimits) -> RequestError:
    message = f"the image has more than {limits.max_pixels / 1e6:g} megapixels; scale it down"
    return RequestError(413, "too_many_pixels", message)


_SWEEP_SECONDS = 0.25
_MIN_CHUNK = 100
"""Bytes per chunk that a body in chunks has on average; smaller ones take more time to parse than to send."""
_FREE_CHUNKS = 8


def guarded_protocol(limits: ServerLimits) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol with a header timeout and a bound on idle connections, for `uvicorn.Config(http=...)`.

    It is the one on h11, which bounds the size of a header (64 KiB), unlike the one on httptools.

    uvicorn itself waits for ever for the header of a first request, so a few hundred connections that never complete
    one would use up its limit of connections. Here there is a timeout, and if there are too many idle connections, the
    address that has most of them loses its oldest: clients at other addresses are not affected.
    """
    idle_since: dict[Any, float] = {}
    last_sweep: float | None = None

    def is_idle(connection: Any) -> bool:
        return connection.cycle is None or connection.cycle.response_complete

    def close(connection: Any) -> None:
        del idle_since[connection]
        connection.transport.close()

    def sweep() -> None:
        nonlocal last_sweep
        now = time.monotonic()
        for connection, since in list(idle_since.items()):
            if connection.transport.is_closing() or connection.transport.get_protocol() is not connection:
                del idle_since[connection]  # gone, or a websocket now
            elif not is_idle(connection):
                idle_since[connection] = now
            elif now - since > limits.header_timeout:
                close(connection)
        make_room()
        last_sweep = now if idle_since else None
        if idle_since:
            asyncio.get_running_loop().call_later(_SWEEP_SECONDS, sweep)

    def make_room() -> None:
        idle = [connection for connection in idle_since if is_idle(connection)]
        by_address: dict[str, list[Any]] = {}
        for connection in sorted(idle, key=idle_since.__getitem__, reverse=True):
            by_address.setdefault(connection.client[0] if connection.client else "", []).append(connection)
        for _ in range(len(idle) - limits.max_idle_connections):
            oldest = max(by_address.values(), key=lambda connections: len(connections)).pop()
            # the header of a connection made after the last sweep may have arrived without having been read yet
            if last_sweep is not None and idle_since[oldest] < last_sweep:
                close(oldest)

    class GuardedProtocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            idle_since[self] = time.monotonic()
            if last_sweep is None:
                sweep()

        def data_received(self, data: bytes) -> None:
            is_chunked = not is_idle(self) and (b"transfer-encoding", b"chunked") in self.headers
            if is_chunked and data.count(b"\r\n") > 2 * (_FREE_CHUNKS + len(data) // _MIN_CHUNK):
                self.transport.close()
            else:
                super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            idle_since.pop(self, None)

    return GuardedProtocol


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Prometheus metrics of one server; servers in one process share none."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "dsocr_requests", "Answered requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "dsocr_request_seconds", "Time from a request's first byte to its answer.", ["path"], registry=registry
        )
        self.rejections = Counter("dsocr_rejections", "Requests that were not served.", ["reason"], registry=registry)
        self.queued = Gauge("dsocr_queued_images", "Images waiting to be read.", registry=registry)
        self.batches = Histogram(
            "dsocr_batch_images", "Images per batch.", registry=registry, buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self.batch_seconds = Histogram("dsocr_batch_seconds", "Time to read a batch.", registry=registry)
        self.images = Counter("dsocr_images", "Images read.", registry=registry)
        self.tokens = Counter("dsocr_tokens", "Tokens generated.", registry=registry)
        self.flagged = Counter("dsocr_flagged_images", "Images to review, by flag.", ["flag"], registry=registry)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class MetricsMiddleware:
    """Counts responses by route and status, and how long they took."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and count its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = scope.get("route")
            path = route.path if route is not None else "other"  # a client must not be able to create labels
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.seconds.labels(path).observe(time.monotonic() - started)
