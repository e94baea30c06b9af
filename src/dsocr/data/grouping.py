"""What must stay together in one split: by writer, document, page or text, or by several of them joined.

Knows nothing about files, nor about which split a group goes to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.text import comparable

UNITS = ("writer", "document", "page", "text")
"""From the largest to the smallest; where one is not known of a sample, the next smaller one stands in for it."""

GIVEN = "given"
"""The splits that the source gives, in place of a unit."""


@dataclass(frozen=True, slots=True)
class Placeable:
    """All of a sample that decides its split.

    `name` is its image's path inside the source, without suffix; `where` is for messages. `split` and `fold` are those
    it has already: in the source, or in the dataset it was read from. What is not known is None.
    """

    name: str
    where: str
    text: str
    writer: str | None = None
    document: str | None = None
    page: str | None = None
    split: Split | None = None
    fold: int | None = None


def page_key(document: str | None, page: str | None) -> str | None:
    """A page's name in the whole dataset: two documents may each have a page 1."""
    return page if not document or not page else f"{document}/{page}"


def parse_units(split_by: str) -> tuple[str, ...]:
    """`writer+text` as its units; an error lists the units there are."""
    units = tuple(dict.fromkeys(split_by.split("+")))
    if unknown := [unit for unit in units if unit not in UNITS]:
        known = ", ".join((*UNITS, "several joined by +"))
        raise DataError(f"cannot split by {unknown[0]!r}; the units are: {known}", hint="for example writer+text")
    return units


def known_units(facts: Iterable[Placeable]) -> list[str]:
    """The units that are known of any sample, the largest first."""
    found = {unit for fact in facts for unit in UNITS if _value(fact, unit)}
    return [unit for unit in UNITS if unit in found or unit == "text"]


def keys_of(fact: Placeable, units: Sequence[str]) -> tuple[str, ...]:
    """What a sample shares with the others of its group, one key a unit."""
    return tuple(dict.fromkeys(next(chain(fact, unit)) for unit in units))


def chain(fact: Placeable, unit: str) -> Iterator[str]:
    """The sample's key by a unit, then by each smaller one, of those that are known."""
    for smaller in UNITS[UNITS.index(unit) :]:
        if value := _value(fact, smaller):
            yield f"{smaller} {value}"
    if not _value(fact, "text"):
        yield "text "


def groups_of(facts: Sequence[Placeable], units: Sequence[str]) -> list[str]:
    """The name of each sample's group: with several units, all that hang together over any of them is one group."""
    keys = [keys_of(fact, units) for fact in facts]
    joined = _Joined()
    for first, *others in keys:
        for other in others:
            joined.join(first, other)
    return [joined.root(first) for first, *_ in keys]


def _value(fact: Placeable, unit: str) -> str | None:
    match unit:
        case "writer":
            return fact.writer
        case "document":
            return fact.document
        case "page":
            return page_key(fact.document, fact.page)
        case _:
            return comparable(fact.text)


class _Joined:
    """Names that were said to belong together; each heap is called by the least of its names."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def root(self, name: str) -> str:
        path = []
        while (above := self._above.get(name, name)) != name:
            path.append(name)
            name = above
        self._above.update(dict.fromkeys(path, name))
        return name

    def join(self, one: str, other: str) -> None:
        least, greater = sorted((self.root(one), self.root(other)))
        if least != greater:
            self._above[greater] = least
