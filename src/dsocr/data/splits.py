"""Who goes where: groups that must stay together are given to splits so that their sizes come near the fractions.

What a sample's group is, `units.py` says; that the splits are alike, `strata.py` sees to. Knows nothing about files.
"""

import random
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dsocr.document import Split
from dsocr.errors import DataError
from dsocr.text import comparable

_NAMES = {
    "train": Split.TRAIN,
    "training": Split.TRAIN,
    "validation": Split.VALIDATION,
    "val": Split.VALIDATION,
    "valid": Split.VALIDATION,
    "dev": Split.VALIDATION,
    "test": Split.TEST,
    "testing": Split.TEST,
}
_PARSE_HINT = "write train/validation/test, e.g. 0.8/0.1/0.1"


def split_called(name: str) -> Split | None:
    """The split that a word in somebody's folder or table stands for."""
    return _NAMES.get(name.strip().lower())


def split_of_folder(folder: PurePath) -> Split | None:
    """The split that one of a path's folders is named after; the outermost counts."""
    return next((split for part in folder.parts if (split := split_called(part))), None)


def split_of_name(stem: str) -> Split | None:
    """The split that a word of a file's name stands for (`train-00000-of-00002`); None where two words disagree."""
    found = {split for word in re.split(r"[\W\d_]+", stem) if (split := split_called(word))}
    return found.pop() if len(found) == 1 else None


def parse_fractions(text: str) -> dict[Split, float]:
    """`0.8/0.1/0.1` (or `80/10/10`) as each split's share; a share may be zero, and the sum is the whole."""
    parts = text.split("/")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise DataError(f"the split {text!r} is not three numbers", hint=_PARSE_HINT) from None
    whole = sum(numbers)
    if len(numbers) != len(Split) or min(numbers) < 0 or not any(abs(whole - unit) < 1e-6 * unit for unit in (1, 100)):
        raise DataError(f"the split {text!r} is not three shares that sum up to 1", hint=_PARSE_HINT)
    return {split: number / whole for split, number in zip(Split, numbers, strict=True)}


Label = TypeVar("Label", bound=str | int)
"""A split, or the number of a fold."""


def assign_groups(
    sizes: Mapping[str, int],
    fractions: Mapping[Label, float],
    seed: int | str,
    *,
    unit: str = "group",
    held: Mapping[str, Label] | None = None,
) -> dict[str, Label]:
    """Group -> split (or fold), so that their sizes come as near the fractions as moving and swapping groups gets.

    The groups in `held` stay where it says; a split that they overfill gets no more, and the others share what is left
    by their fractions. The same groups, sizes, fractions and seed give the same answer, whatever the order of `sizes`.
    Every split with a fraction above zero receives a group while there are free ones; fewer groups than such splits
    are an error.
    """
    held = held or {}
    wanted = {label: share for label, share in fractions.items() if share > 0}
    if len(sizes) < len(wanted):
        counted = f"1 {unit}" if len(sizes) == 1 else f"{len(sizes)} {unit}s"
        hint = "split by something smaller (--split-by page, or text), or leave splits out, e.g. --split 1/0/0"
        raise DataError(f"{counted} cannot fill {len(wanted)} splits without standing in two of them", hint=hint)
    kept = Counter(dict.fromkeys(wanted, 0))
    for group, label in held.items():
        kept[label] += sizes.get(group, 0)
    shelves = _Shelves(_targets(wanted, kept, sum(sizes.values())), kept)
    for group in _shuffled(sizes.keys() - held.keys(), seed):
        shelves.put(group, sizes[group], shelves.neediest())
    shelves.fill_empty()
    while change := shelves.best_change():
        shelves.apply(change)
    return shelves.assigned() | {group: held[group] for group in sizes if group in held}


def _targets(fractions: Mapping[Label, float], kept: Mapping[Label, int], total: int) -> dict[Label, float]:
    """How many samples each split should get; one that holds more already is full, and the others share the rest."""
    open_ = dict(fractions)
    while True:
        rest = total - sum(count for label, count in kept.items() if label not in open_)
        scale = rest / sum(open_.values())
        over = [label for label, share in open_.items() if kept[label] > share * scale + 1e-9]
        if not over or len(over) == len(open_):
            return {label: share * scale for label, share in open_.items()}
        for label in over:
            del open_[label]


def _shuffled(groups: Iterable[str], seed: int | str) -> list[str]:
    order = sorted(groups)
    random.Random(seed).shuffle(order)  # noqa: S311 - a fair draw, not a secret
    return order


class _Change(NamedTuple, Generic[Label]):
    """A group of `size` goes from one split to another; one of size `back`, if any, comes back for it."""

    gain: float
    source: Label
    target: Label
    size: int
    back: int


class _Shelves(Generic[Label]):
    """Groups by split and size. Only sizes matter for what to move, so the search stays small with many groups.

    `kept` are the samples that are there to begin with and never move.
    """

    def __init__(self, targets: Mapping[Label, float], kept: Mapping[Label, int]) -> None:
        self.targets = targets
        self.kept = kept
        self.filled = {label: kept.get(label, 0) for label in targets}
        self.groups: dict[Label, dict[int, list[str]]] = {label: defaultdict(list) for label in targets}

    def put(self, group: str, size: int, label: Label) -> None:
        self.groups[label][size].append(group)
        self.filled[label] += size

    def take(self, size: int, label: Label) -> str:
        group = self.groups[label][size].pop()
        if not self.groups[label][size]:
            del self.groups[label][size]
        self.filled[label] -= size
        return group

    def neediest(self) -> Label:
        """The split that is, for its size, farthest from full."""
        return min(self.targets, key=lambda label: self.filled[label] / self.targets[label])

    def count(self, label: Label) -> int:
        """How many groups of a split may move."""
        return sum(map(len, self.groups[label].values()))

    def fill_empty(self) -> None:
        """A smallest group of the split with most groups, for each split that got none."""
        for label in self.targets:
            richest = max(self.targets, key=self.count)
            if not self.filled[label] and self.count(richest) > (0 if self.kept.get(richest) else 1):
                size = min(self.groups[richest])
                self.put(self.take(size, richest), size, label)

    def best_change(self) -> _Change[Label] | None:
        """The change that brings the splits nearest to their targets, None where none brings them nearer."""
        return max((change for change in self._changes() if change.gain > 1e-9), default=None)

    def apply(self, change: _Change[Label]) -> None:
        there = self.take(change.size, change.source)
        if change.back:
            self.put(self.take(change.back, change.target), change.back, change.source)
        self.put(there, change.size, change.target)

    def _changes(self) -> Iterator[_Change[Label]]:
        for source in self.targets:
            for target in self.targets:
                if source != target:
                    yield from self._changes_between(source, target)

    def _changes_between(self, source: Label, target: Label) -> Iterator[_Change[Label]]:
        """For each size, the moves and swaps that come nearest to what ideally moves between the two."""
        ideal = (self.filled[source] - self.targets[source] + self.targets[target] - self.filled[target]) / 2
        backs = sorted(self.groups[target])
        if self.count(source) > 1 or self.kept.get(source):
            backs = [0, *backs]
        for size in self.groups[source]:
            nearest = bisect_left(backs, size - ideal)
            for back in backs[max(0, nearest - 1) : nearest + 1]:
                yield _Change(self._gain(source, target, size - back), source, target, size, back)

    def _gain(self, source: Label, target: Label, moved: int) -> float:
        """How much the squared distances to the targets shrink when so many samples move."""
        over = self.filled[source] - self.targets[source]
        under = self.targets[target] - self.filled[target]
        return over**2 + under**2 - (over - moved) ** 2 - (under - moved) ** 2

    def assigned(self) -> dict[str, Label]:
        return {group: label for label, shelf in self.groups.items() for groups in shelf.values() for group in groups}


def split_of_fold(fold: int, tested: int, folds: int) -> Split:
    """The split of a fold where `tested` is the test: the fold after it validates, the rest trains; both from 1."""
    if fold == tested:
        return Split.TEST
    return Split.VALIDATION if fold == tested % folds + 1 else Split.TRAIN


def crossing(values: Iterable[tuple[str | None, Split]]) -> dict[str, list[Split]]:
    """Value -> its splits, for every value (a writer, page or text) that stands in more than one."""
    splits: dict[str, Counter[Split]] = defaultdict(Counter)
    for value, split in values:
        if value is not None:
            splits[value][split] += 1
    return {value: [split for split in Split if split in seen] for value, seen in splits.items() if len(seen) > 1}


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


SCRIPTS = ("Cyrillic", "Latin", "digits", "mixed", "other")
BUCKETS = 5
"""Length buckets, each with about as many texts."""

DRAWS = 100
"""What 52 writers need; see docs/experiments.md. More groups are more alike by themselves, and fewer draws do."""
_GROUPS_DRAWN = 20_000
"""Groups that are placed over all draws, so that many groups take no longer than few."""

_LETTER = re.compile(r"[^\W_]")


def script_of(text: str) -> str:
    """The script of a text's letters; digits count where there are no letters, and a text in two scripts is mixed."""
    kinds = {_kind(character) for character in set(_LETTER.findall(text))}
    letters = kinds - {"digits"}
    if len(letters) > 1:
        return "mixed"
    return next(iter(letters or kinds), "other")


@lru_cache(maxsize=4096)
def _kind(character: str) -> str:
    if not character.isalpha():
        return "digits"
    name = unicodedata.name(character, "")
    return next((script for script in ("Cyrillic", "Latin") if name.startswith(script.upper())), "other")


def length_bounds(lengths: Iterable[int], buckets: int = BUCKETS) -> list[int]:
    """Where the buckets of about as many texts each begin, the first one's left out."""
    ordered = sorted(lengths)
    return sorted({ordered[len(ordered) * place // buckets] for place in range(1, buckets)}) if ordered else []


def strata_of(texts: Sequence[str]) -> np.ndarray:
    """(texts, buckets + scripts) ones where a text is of that length, and of that script."""
    lengths = [len(comparable(text)) for text in texts]
    bounds = length_bounds(lengths)
    strata = np.zeros((len(texts), len(bounds) + 1 + len(SCRIPTS)), dtype=np.int64)
    places = np.arange(len(texts))
    strata[places, [bisect_right(bounds, length) for length in lengths]] = 1
    strata[places, [len(bounds) + 1 + SCRIPTS.index(script_of(text)) for text in texts]] = 1
    return strata


def unevenness(strata: np.ndarray, labels: np.ndarray) -> float:
    """How far, summed over the splits, lengths and scripts in a split are from those of the whole.

    Half the sum of differences between shares: 0 where a split is like the whole, 1 where nothing is shared; lengths
    and scripts each count.
    """
    shares = strata.sum(axis=0) / max(strata.sum() / 2, 1)
    found = 0.0
    for label in np.unique(labels):
        rows = strata[labels == label].sum(axis=0)
        found += float(np.abs(rows / max(rows.sum() / 2, 1) - shares).sum() / 2)
    return found


def assign_alike(
    groups: Sequence[str],
    texts: Sequence[str],
    fractions: Mapping[Label, float],
    seed: int,
    *,
    unit: str = "group",
    held: Mapping[str, Label] | None = None,
    draws: int = DRAWS,
) -> dict[str, Label]:
    """What `assign_groups` does, of many draws the one whose splits are most alike in lengths and scripts.

    `groups` and `texts` are of the samples, in one order. No draw counts whose sizes are farther from the fractions
    than those of the first, which is the one that `assign_groups` makes.
    """
    sizes = Counter(groups)
    places = {group: place for place, group in enumerate(sizes)}
    of_texts = strata_of(texts)
    strata = np.zeros((len(sizes), of_texts.shape[1]), dtype=np.int64)
    np.add.at(strata, [places[group] for group in groups], of_texts)

    def score(assigned: Mapping[str, Label]) -> float:
        return unevenness(strata, np.array([str(assigned[name]) for name in sizes]))

    best = assign_groups(sizes, fractions, seed, unit=unit, held=held)
    allowed, lowest = _distance(best, sizes, fractions), score(best)
    for draw in range(1, min(draws, max(_GROUPS_DRAWN // len(sizes), 2))):
        tried = assign_groups(sizes, fractions, f"{seed}/{draw}", unit=unit, held=held)
        if _distance(tried, sizes, fractions) <= allowed + 1e-9 and (reached := score(tried)) < lowest - 1e-12:
            best, lowest = tried, reached
    return best


def _distance(assigned: Mapping[str, Label], sizes: Mapping[str, int], fractions: Mapping[Label, float]) -> float:
    """Sum of the squared distances of the sizes to what the fractions ask for, in samples."""
    filled = dict.fromkeys(fractions, 0)
    for group, label in assigned.items():
        filled[label] = filled.get(label, 0) + sizes[group]
    total = sum(sizes.values())
    return sum((count - total * fractions.get(label, 0)) ** 2 for label, count in filled.items())
