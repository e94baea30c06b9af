"""How text is generated: settings alone, so that whoever hands them on needs no torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Generation:
    """How text is generated; 0 as `no_repeat_ngram_size` switches the guard off.

    The guard forbids an n-gram of tokens to come back within the last `no_repeat_ngram_window` tokens. It spares the
    tokens of `no_repeat_ngram_whitelist`, named by their text; one that a base does not have is never written there.
    `num_beams` over 1 is beam search. `prefetch_batches` batches are sorted by length before they are read.
    """

    max_new_tokens: int = 256
    no_repeat_ngram_size: int = 20
    no_repeat_ngram_window: int = 90
    batch_size: int = 16
    no_repeat_ngram_whitelist: Sequence[str] = ("<td>", "</td>")
    num_beams: int = 1
    prefetch_batches: int = 8

    def as_dict(self) -> dict[str, Any]:
        """The settings as they stand in a run folder and on a scorecard."""
        return asdict(self) | {"no_repeat_ngram_whitelist": list(self.no_repeat_ngram_whitelist)}


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
