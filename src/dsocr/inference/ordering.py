"""Things in batches, read in the order that pads least, and told in the order they came in."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

Thing = TypeVar("Thing")
Answer = TypeVar("Answer")


def batches(things: Iterable[Thing], size: int) -> Iterator[list[Thing]]:
    """The things in lists of `size`, the last one shorter."""
    iterator = iter(things)
    while batch := list(islice(iterator, size)):
        yield batch


def read_by_length(
    things: Iterable[Thing],
    read: Callable[[Sequence[Thing]], Iterable[Answer]],
    *,
    length: Callable[[Thing], float],
    weight: Callable[[Thing], int],
    most: int,
    heaviest: int,
) -> Iterator[tuple[Thing, Answer]]:
    """Each thing with what `read` says of it, in the order of the things; `read` gets them longest first.

    `most` of them are held at once, and fewer where together they weigh more than `heaviest`. `read` has to give an
    answer for each, in the order it gets them.
    """
    for window in _windows(things, weight, most, heaviest):
        order = sorted(range(len(window)), key=lambda place: -length(window[place]))
        answers = dict(zip(order, read([window[place] for place in order]), strict=True))
        yield from ((thing, answers[place]) for place, thing in enumerate(window))


def _windows(
    things: Iterable[Thing], weight: Callable[[Thing], int], most: int, heaviest: int
) -> Iterator[list[Thing]]:
    window: list[Thing] = []
    held = 0
    for thing in things:
        window.append(thing)
        held += weight(thing)
        if len(window) >= most or held >= heaviest:
            yield window
            window, held = [], 0
    if window:
        yield window
