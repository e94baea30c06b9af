"""The bytes of a request: read within limits, counted against what a server may hold, looked at before decoding."""

import asyncio
import base64
import binascii
import hmac
import io
import json
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from PIL import Image, UnidentifiedImageError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsocr.images import FORMATS, MAX_PIXELS
from dsocr.inference.confidence import Prediction


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server; whatever passes one is answered with a sentence and its HTTP status.

    `open_requests` bounds those that are answered at once, but for who asks whether the server lives. `held_bytes`
    bounds the bodies of all requests together, from their first byte to their answer. `batch_pixels` bounds what is
    decoded at once. Times are in seconds; `gather` is how long a request that is alone waits for others.
    """

    body_bytes: int = 16 * 2**20
    held_bytes: int = 256 * 2**20
    pixels: int = MAX_PIXELS
    batch_pixels: int = 2 * MAX_PIXELS
    open_requests: int = 256
    waiting: int = 64
    images_a_request: int = 16
    body_seconds: float = 30.0
    deadline: float = 60.0
    gather: float = 0.01

    @property
    def longest_wait(self) -> float:
        """Seconds: an image that should take longer until it is read is not taken.

        Half the deadline, for the time that an image takes is known from those before it alone.
        """
        return self.deadline / 2


class RefusedError(Exception):
    """A request that is not served: its HTTP status, a word for programs and a sentence for people.

    `retry_after` is in seconds, where trying again later makes sense.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        super().__init__(message)


def fault() -> RefusedError:
    """The answer where it is the server that is wrong."""
    return RefusedError(500, "fault", "a fault of the server; its log has more")


def busy(retry_after: int) -> RefusedError:
    """The answer where more is asked than can wait."""
    message = f"too many requests are waiting; try again in {retry_after} s"
    return RefusedError(429, "busy", message, retry_after=retry_after)


BASE64_ROOM = 64 * 1024
"""Bytes that a JSON body may have beside its images."""


class Budget:
    """The bytes that all requests hold together; used from the event loop alone."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def account(self) -> Iterator["Account"]:
        """What one request holds, given back in the end."""
        account = Account(self)
        try:
            yield account
        finally:
            self.give_back(account.held)

    def take(self, size: int) -> None:
        """Raise RefusedError where so many more bytes are too many."""
        if size > self._left:
            raise busy(1)
        self._left -= size

    def give_back(self, size: int) -> None:
        """So many bytes are no longer held."""
        self._left += size


class Account:
    """The bytes that one request holds."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0

    def take(self, size: int) -> None:
        """Hold so many bytes more. Raises RefusedError where the server has no room for them."""
        self._budget.take(size)
        self.held += size

    def keep(self, size: int) -> None:
        """Hold no more than so many bytes from here on."""
        if size < self.held:
            self._budget.give_back(self.held - size)
            self.held = size


async def read_body(request: Request, most: int, limits: Limits, account: Account) -> bytes:
    """The whole body. Raises RefusedError where it is too large, comes too slowly, or finds no room."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > most:
        raise _too_large(most)
    parts = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                if len(parts) + len(chunk) > most:
                    raise _too_large(most)
                account.take(len(chunk))
                parts += chunk
    except TimeoutError:
        raise RefusedError(408, "slow_body", f"the body did not arrive within {limits.body_seconds:g} s") from None
    except ClientDisconnect:
        raise RefusedError(499, "client_gone", "the client went away") from None
    return bytes(parts)


def image_of_data_uri(url: str, limits: Limits) -> bytes:
    """The image in a `data:` URI of base64. Raises RefusedError for any other address: none is ever fetched."""
    head, comma, body = url.partition(",")
    if not head.startswith("data:image/") or not head.endswith(";base64") or not comma:
        message = "images are taken as data URIs alone, data:image/png;base64,...; no address is ever fetched"
        raise RefusedError(400, "not_a_data_uri", message)
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(400, "not_base64", "the data URI does not hold base64") from None
    if len(data) > limits.body_bytes:
        raise _too_large(limits.body_bytes)
    return data


def pixels_of(data: bytes, limits: Limits) -> int:
    """The size of an image by its head. Raises RefusedError where it is none, or larger than is read."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as file:
            pixels = file.width * file.height
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(limits) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        message = f"the body is not an image of a format that is read ({', '.join(FORMATS)})"
        raise RefusedError(422, "not_an_image", message) from None
    if pixels > limits.pixels:
        raise _too_many_pixels(limits)
    return pixels


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, "too_large", f"the body is larger than {most / 2**20:.3g} MiB")


def _too_many_pixels(limits: Limits) -> RefusedError:
    return RefusedError(
        413, "too_many_pixels", f"the image has more than {limits.pixels / 1e6:g} megapixels: scale it down"
    )


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Measures:
    """Counters of one server; nothing is shared between two in one process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter(
            "dsocr_requests", "Requests answered, by path and status.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "dsocr_request_seconds", "From a request's first byte to its answer.", ["path"], registry=registry
        )
        self._refused = Counter("dsocr_refusals", "Requests that were not served.", ["reason"], registry=registry)
        self._waiting = Gauge("dsocr_waiting_images", "Images that wait to be read.", registry=registry)
        self._batches = Histogram(
            "dsocr_batch_images", "Images read together.", registry=registry, buckets=(1, 2, 4, 8, 16, 32, 64)
        )
        self._reading = Histogram("dsocr_batch_seconds", "Time to read a batch.", registry=registry)
        self._images = Counter("dsocr_images", "Images read.", registry=registry)
        self._tokens = Counter("dsocr_tokens", "Tokens written.", registry=registry)
        self._doubtful = Counter(
            "dsocr_doubtful_images", "Images whose text is to be looked at.", ["kind"], registry=registry
        )

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Ask for the images that wait whenever somebody looks."""
        self._waiting.set_function(count)

    def was_answered(self, path: str, status: int, seconds: float) -> None:
        """A request has its answer."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def was_refused(self, reason: str) -> None:
        """A request was not served, for a reason in a word."""
        self._refused.labels(reason).inc()

    def batch_was_read(self, images: int, seconds: float) -> None:
        """So many images were read together."""
        self._batches.observe(images)
        self._reading.observe(seconds)

    def was_read(self, prediction: Prediction) -> None:
        """An image was read."""
        self._images.inc()
        self._tokens.inc(prediction.tokens)
        for flag in prediction.flags:
            self._doubtful.labels(flag).inc()

    def as_text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry)


OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need no token: they tell nothing but whether the server lives."""


class Gate:
    """Lets a request pass that has the token and asks for a host of ours, `most` at once; counts what is answered.

    The host is looked at because a web page can make its visitor's browser ask a server on the visitor's own machine
    under a name that the page's owner made point there.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, hosts: Collection[str] | None, measures: Measures, most: int
    ) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = hosts
        self._measures = measures
        self._most = most
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, statuses = time.monotonic(), [500]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[0] = message["status"]
            await send(message)

        self._open += 1
        try:
            if refusal := self._refusal(scope):
                self._measures.was_refused(refusal.code)
                await answer_refusal(refusal, sending)
            else:
                await self._app(scope, receive, sending)
        finally:
            self._open -= 1
            route = scope.get("route")
            path = route.path if route is not None else "other"  # what anybody may write is no label
            self._measures.was_answered(path, statuses[0], time.monotonic() - started)

    def _refusal(self, scope: Scope) -> RefusedError | None:
        headers = {name: value for name, value in scope["headers"] if name in {b"host", b"authorization"}}
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self._hosts is not None and _without_port(host) not in self._hosts:
            return RefusedError(421, "other_host", "this server does not answer under that host name")
        if scope["path"] in OPEN:
            return None
        if self._token is not None and not _tells(headers.get(b"authorization", b""), self._token):
            return RefusedError(401, "no_token", "give the server's token: Authorization: Bearer TOKEN")
        if self._open > self._most:
            return RefusedError(503, "crowded", "too many requests are open; try again in 1 s", retry_after=1)
        return None


def refusal_headers(refusal: RefusedError) -> dict[str, str]:
    """The headers that belong to a refusal's status."""
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    return headers


def refusal_body(refusal: RefusedError) -> dict[str, Any]:
    """A refusal as OpenAI's clients read it."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    return {"error": {"message": refusal.message, "type": kind, "code": refusal.code}}


async def answer_refusal(refusal: RefusedError, send: Send) -> None:
    """Send a refusal as an answer of its own."""
    body = json.dumps(refusal_body(refusal)).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal_headers(refusal)}
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def _tells(authorization: bytes, token: bytes) -> bool:
    scheme, _, given = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), token)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0]
