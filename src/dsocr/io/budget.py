"""Limits on files from outside: one budget of bytes, pixels, elements and seconds for a source or for a file.

A small file can take any amount of memory and time: an archive unpacks to terabytes, a kilobyte of PNG to gigabytes of
pixels, and a list of lists has an object for each byte. Whoever opens a file asks its budget before, so each limit is
checked from the file's own statements, and an error names the file.
"""

import math
import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from dsocr.errors import DataError

MB = 1024 * 1024

MAX_RATIO = 200
"""Largest ratio of unpacked to packed size, checked above `RATIO_FREE_BYTES`."""
RATIO_FREE_BYTES = 64 * MB

_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(slots=True)
class Budget:
    """The remaining limits: bytes, pixels, seconds, and XML elements or attributes, JSON values, cells or images."""

    size: int = 512 * MB
    pixels: int = 200_000_000
    elements: int = 2_000_000
    seconds: float = math.inf
    started: float = field(default_factory=time.monotonic)

    def take(self, where: object = None, *, size: int = 0, pixels: int = 0, elements: int = 0) -> None:
        """Subtract amounts. Raises DataError for the first that exceeds its limit."""
        for unit, amount, left in (
            ("bytes", size, self.size),
            ("pixels", pixels, self.pixels),
            ("elements", elements, self.elements),
        ):
            if amount > left:
                shown = [f"{n // MB:,} MB" if unit == "bytes" and n >= MB else f"{n:,} {unit}" for n in (amount, left)]
                message = f"too large: {shown[0]}, and the limit is {shown[1]}"
                smaller = "scale it down, or save it upright as plain RGB or grey"
                hint = smaller if unit == "pixels" else "divide it into smaller files"
                raise DataError(message, code="too-large", where=where, hint=hint)
        self.size, self.pixels, self.elements = self.size - size, self.pixels - pixels, self.elements - elements

    def unpack(self, where: object = None, *, packed: int, unpacked: int) -> None:
        """Subtract the bytes that a packed file states; far more than any real content packs to is an error."""
        if unpacked > max(RATIO_FREE_BYTES, MAX_RATIO * packed):
            message = f"would unpack to {unpacked // MB:,} MB, {unpacked // max(packed, 1):,} times its own size"
            raise DataError(message, code="too-large", where=where)
        self.take(where, size=unpacked)

    @property
    def seconds_left(self) -> float:
        """Seconds until the budget's time is over; negative afterwards."""
        return self.started + self.seconds - time.monotonic()

    def read(self, path: Path) -> bytes:
        """Return the content of a file. Raises DataError if it is missing, too large, or not a regular file.

        Its size is known before it is read, and opening never waits, as it would for a pipe.
        """
        try:
            with os.fdopen(os.open(path, _OPEN_FLAGS), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise DataError("it is not a regular file", code="file-special", where=path)
                self.take(path, size=status.st_size)
                content = file.read(status.st_size)
        except (OSError, ValueError) as error:
            message = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
            raise DataError(message, code="file-unreadable", where=path) from error
        return content
