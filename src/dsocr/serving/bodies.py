"""The bytes of a request: read within limits, counted against what a server may hold, looked at before decoding."""

import asyncio
import base64
import binascii
import io
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, UnidentifiedImageError
from starlette.requests import ClientDisconnect, Request

from dsocr.data.images import FORMATS
from dsocr.serving.limits import Limits, RefusedError, busy

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
