"""What a server takes upon itself: sizes, numbers and times, and the errors that say they were passed."""

from dataclasses import dataclass

from dsocr.data.images import MAX_PIXELS


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
