"""Settings of text generation, and the order in which images are batched; needs no torch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class Generation:
    """How text is generated.

    The loop guard forbids repeating an n-gram of `no_repeat_ngram_size` tokens within the last `no_repeat_ngram_window`
    ones; 0 switches it off. It spares the tokens of `no_repeat_ngram_whitelist`, given by their text. `num_beams` over
    1 is beam search. `prefetch_batches` batches are opened and sorted by length before they are read. With
    `language_model` "none" the language model that a run may have is not used. With `script` "latin" or "cyrillic"
    line recognisers leave the other script's letters out; "auto" is "any" until a job or a page decides it.
    """

    max_new_tokens: int = 256
    no_repeat_ngram_size: int = 20
    no_repeat_ngram_window: int = 90
    batch_size: int = 16
    no_repeat_ngram_whitelist: Sequence[str] = ("<td>", "</td>")
    num_beams: int = 1
    prefetch_batches: int = 8
    language_model: str = "auto"
    script: str = "auto"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self) | {"no_repeat_ngram_whitelist": list(self.no_repeat_ngram_whitelist)}


Item = TypeVar("Item")


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` items from the first to the last, evenly spread; all if there are fewer."""
    last = len(items) - 1
    places = [last * place / max(1, count - 1) for place in range(count)] if count <= last else range(len(items))
    return [items[round(place)] for place in places]


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
