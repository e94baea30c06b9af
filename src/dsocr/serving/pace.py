"""How fast images are read, learned from the batches that were, and what that says about those that wait."""

import time

_FIRST_GUESS = 0.5
"""Seconds for an image, before any was read."""
_KEPT = 0.8
"""What a batch still counts for after the next one."""


class Pace:
    """Seconds for an image: of the last batches together, so that a large one counts for more than a small one."""

    def __init__(self) -> None:
        self._seconds = _FIRST_GUESS
        self._images = 1.0
        self._under_way = 0
        self._unanswered = 0
        self._since = 0.0

    @property
    def is_idle(self) -> bool:
        """True while nobody waits for an image that is being read."""
        return not self._unanswered

    def begin(self, images: int) -> None:
        """A batch of so many images is begun."""
        self._since = time.monotonic()
        self._under_way = self._unanswered = images

    def answer(self) -> None:
        """An image of the batch is about to be answered: who asks for the next one upon it finds nothing in its way."""
        self._unanswered -= 1

    def end(self) -> float:
        """The batch was read; the seconds it took."""
        seconds = time.monotonic() - self._since
        self._seconds = _KEPT * self._seconds + seconds
        self._images = _KEPT * self._images + self._under_way
        self._under_way = self._unanswered = 0
        return seconds

    def seconds_of(self, images: int) -> float:
        """How long it should take to read the rest of the batch that is under way, and so many images behind it."""
        each, rest = self._seconds / self._images, 0.0
        if self._under_way:
            passed = time.monotonic() - self._since
            each = max(each, passed / self._under_way)  # it takes longer than expected already
            rest = self._under_way * each - passed
        return rest + images * each
