"""Things made ready while others are used: one group ahead, in a thread, in their order."""

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def made_ahead(groups: Iterable[Sequence[T]], make: Callable[[T], R]) -> Generator[list[R], None, None]:
    """What `make` gives for the things of each group; those of the next one are made while one is used.

    `groups` is advanced here, in the thread that iterates, and `make` called in another. What it raises is raised when
    its group's turn comes. Closed early, the generator waits for the one thing that is being made.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="dsocr-ahead")
    try:
        coming: list[Future[R]] | None = None
        for group in groups:
            made, coming = coming, [thread.submit(make, thing) for thing in group]
            if made is not None:
                yield _taken(made)
        if coming is not None:
            yield _taken(coming)
    finally:
        thread.shutdown(cancel_futures=True)


def _taken(made: list[Future[R]]) -> list[R]:
    """The results; the futures keep none of them."""
    results = [future.result() for future in made]
    made.clear()
    return results
