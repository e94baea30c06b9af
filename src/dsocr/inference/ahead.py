"""Things made ready by other processes while those before them are used: one group ahead, in their order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from dsocr.data.processes import Workers

T = TypeVar("T")
R = TypeVar("R")


def made_ahead(groups: Iterable[Sequence[T]], workers: Workers, make: Callable[[T], R]) -> Iterator[list[R]]:
    """What `make` gives for the things of each group; those of the next one are made while one is used.

    What `make` raises is raised when its group's turn comes.
    """
    coming: list[Future[R]] | None = None
    for group in groups:
        made, coming = coming, [workers.submit(make, thing) for thing in group]
        if made is not None:
            yield _taken(made, workers)
    if coming is not None:
        yield _taken(coming, workers)


def _taken(made: list[Future[R]], workers: Workers) -> list[R]:
    """The results; the futures keep none of them."""
    results = [workers.result(future) for future in made]
    made.clear()
    return results
