"""Requests that a server takes: their hosts, tokens, origins and limits, and the errors that it answers with.

A web page can make its visitor's browser send requests to a server on the visitor's own machine. The checks of host and
origin here keep such pages out. Connections and headers are limited by uvicorn and by a proxy in front of it.
"""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from PIL import Image, UnidentifiedImageError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from dsocr.images import FORMATS, MAX_PIXELS, open_header

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token."""
_MAX_ASPECT_RATIO = 200
"""Resized to the height of a line, a longer image of a few kilobytes takes gigabytes."""


@dataclass(eq=False)
class RequestError(Exception):
    """A rejected request: HTTP status, code, message, and seconds to `retry_after`, None where it would fail again."""

    status: int
    code: str
    message: str
    retry_after: int | None = None

    def response(self) -> JSONResponse:
        """The answer, in the form that OpenAI's clients expect."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        body = {"error": {"message": self.message, "type": kind, "code": self.code}}
        return JSONResponse(body, self.status, headers)


@dataclass
class AccessMiddleware:
    """Checks host, origin and token before anything else sees a request.

    `hosts` are the host names to answer under, None for any. Without a `token`, requests from pages of other sites are
    rejected too; with one they cannot have it. `csp` is the Content-Security-Policy of every response.
    """

    app: ASGIApp
    hosts: Collection[str] | None
    token: str | None = None
    csp: str = "frame-ancestors 'none'"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] not in {"http", "websocket"}:
            await self.app(scope, receive, send)
            return
        headers = [
            (b"content-security-policy", self.csp.encode()),
            (b"x-frame-options", b"DENY"),
            (b"x-content-type-options", b"nosniff"),
        ]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *headers]}
            await send(message)

        error = self._check(scope)
        if error is None:
            await self.app(scope, receive, send_with_headers)
        elif scope["type"] == "http":
            await error.response()(scope, receive, send_with_headers)
        else:
            await WebSocketClose(1008, error.code)(scope, receive, send)

    def _check(self, scope: Scope) -> RequestError | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "").lower()
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        if self.hosts is not None and name not in self.hosts:
            return RequestError(421, "unknown_host", "this server does not answer under that host name")
        if self.token is None:
            if not _is_same_origin(scope, headers, host):
                return RequestError(403, "cross_origin", "requests from pages of other sites are not accepted")
        elif scope["path"] not in PUBLIC_PATHS:
            scheme, _, given = headers.get(b"authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(
                given.strip().encode("latin-1"), self.token.encode()
            ):
                return RequestError(401, "invalid_token", "send the server's token: Authorization: Bearer TOKEN")
        return None


def _is_same_origin(scope: Scope, headers: dict[bytes, str], host: str) -> bool:
    """Browsers name a page's origin with every POST and websocket; other programs name none."""
    origin = headers.get(b"origin")
    if origin is None:
        return scope["type"] == "http" and (
            scope["method"] in {"GET", "HEAD"} or headers.get(b"sec-fetch-site") != "cross-site"
        )
    return urlsplit(origin).netloc.lower() == host


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; times in seconds.

    `max_held_bytes` bounds the bodies of all requests together, and `max_pixels` an image as well as a batch.
    `deadline` is the time from a complete request to its answer, `batch_wait` the longest wait for a fuller batch.
    """

    max_connections: int = 512
    max_body_bytes: int = 16 * 2**20
    max_held_bytes: int = 256 * 2**20
    max_pixels: int = MAX_PIXELS
    max_queued: int = 64
    body_timeout: float = 30.0
    deadline: float = 60.0
    batch_wait: float = 0.01


def busy() -> RequestError:
    """The answer while the queue is full."""
    return RequestError(429, "busy", "the queue is full; try again in 1 s", retry_after=1)


def disconnected() -> RequestError:
    """The status of a request whose client left before the answer."""
    return RequestError(499, "client_disconnected", "the client disconnected")


class ByteBudget:
    """The bytes that all requests may hold together; used from the event loop only."""

    def __init__(self, size: int) -> None:
        self._free = size

    @contextmanager
    def account(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves bytes until the block ends. It raises RequestError if too few are left."""
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            if size > self._free:
                raise busy()
            self._free -= size
            held += size

        try:
            yield reserve
        finally:
            self._free += held


async def read_body(request: Request, max_bytes: int, timeout: float, reserve: Callable[[int], None]) -> bytes:
    """Read the whole body. Raises RequestError if it is too large or too slow, or the server holds too much already."""
    too_large = RequestError(413, "body_too_large", f"the body is larger than {max_bytes / 2**20:.3g} MiB")
    if int(request.headers.get("content-length", 0)) > max_bytes:  # which uvicorn has checked
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise too_large
                reserve(len(chunk))
                body += chunk
    except TimeoutError:
        raise RequestError(408, "slow_body", f"the body did not arrive within {timeout:g} s") from None
    except ClientDisconnect:
        raise disconnected() from None
    return bytes(body)


def decode_data_uri(url: str) -> bytes:
    """Decode the image file in a `data:` URI. Raises RequestError for any other URL: none is ever fetched."""
    head = url[:100].partition(",")[0]
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        message = "URLs are never fetched; send the image as a data URI: data:image/png;base64,..."
        raise RequestError(400, "not_a_data_uri", message)
    try:
        return base64.b64decode(url[len(head) + 1 :], validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, "invalid_base64", "the data URI is not valid base64") from None


def check_image(data: bytes, max_pixels: int) -> int:
    """Return the number of pixels by the file's header. Raises RequestError for other files and large dimensions."""
    try:
        with open_header(data) as file:
            width, height = file.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        width, height = max_pixels, 2
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise RequestError(422, "not_an_image", f"the body is not an image ({', '.join(FORMATS)})") from None
    if width * height > max_pixels:
        message = f"the image has more than {max_pixels / 1e6:g} megapixels"
        raise RequestError(413, "too_many_pixels", message)
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        message = f"the image is {width}x{height}, more than {_MAX_ASPECT_RATIO} times as long as it is wide"
        raise RequestError(413, "extreme_aspect_ratio", message)
    return width * height
