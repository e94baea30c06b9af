"""Limits on requests: size and duration of a body, memory of all bodies, dimensions of an image.

Connections and headers are limited by uvicorn and by a proxy in front of it.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError
from starlette.requests import ClientDisconnect, Request

from dsocr.images import FORMATS, MAX_PIXELS, open_header
from dsocr.server.access import RequestError

_MAX_ASPECT_RATIO = 200
"""Resized to the height of a line, a longer image of a few kilobytes takes gigabytes."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; times in seconds.

    `max_held_bytes` bounds the bodies of all requests together, and `max_pixels` an image as well as a batch.
    `deadline` is the time from a complete request to its answer, and `batch_wait` the longest wait for further images
    to read in the same batch.
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
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise _too_large(max_bytes)
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
        raise _too_many(max_pixels) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise RequestError(422, "not_an_image", f"the body is not an image ({', '.join(FORMATS)})") from None
    if width * height > max_pixels:
        raise _too_many(max_pixels)
    if max(width, height) > _MAX_ASPECT_RATIO * min(width, height):
        message = f"the image is {width}x{height}, more than {_MAX_ASPECT_RATIO} times as long as it is wide"
        raise RequestError(413, "extreme_aspect_ratio", message)
    return width * height


def _too_large(max_bytes: int) -> RequestError:
    return RequestError(413, "body_too_large", f"the body is larger than {max_bytes / 2**20:.3g} MiB")


def _too_many(max_pixels: int) -> RequestError:
    return RequestError(413, "too_many_pixels", f"the image has more than {max_pixels / 1e6:g} megapixels")
