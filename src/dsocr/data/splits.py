"""Who goes where: groups that must stay together are given to splits so that their sizes come near the fractions.

A group is a writer, else a page, else a text; what a sample's group is, `prepare` says. Knows nothing about files.
"""

import random
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from dsocr.errors import DataError
from dsocr.samples import Split

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


def assign_groups(
    sizes: Mapping[str, int], fractions: Mapping[Split, float], seed: int, *, unit: str = "group"
) -> dict[str, Split]:
    """Group -> split, so that the samples in each split come as near its fraction as moving and swapping groups gets.

    The same groups, sizes, fractions and seed give the same answer, whatever the order of `sizes`. Every split with a
    fraction above zero receives a group; fewer groups than such splits are an error.
    """
    wanted = [split for split in Split if fractions[split] > 0]
    if len(sizes) < len(wanted):
        counted = f"1 {unit}" if len(sizes) == 1 else f"{len(sizes)} {unit}s"
        hint = "split by a smaller unit (page or text), or leave splits out, e.g. 1/0/0"
        raise DataError(f"{counted} cannot fill {len(wanted)} splits without standing in two of them", hint=hint)
    total = sum(sizes.values())
    shelves = _Shelves({split: total * fractions[split] for split in wanted})
    for group in _shuffled(sizes, seed):
        shelves.put(group, sizes[group], shelves.neediest())
    shelves.fill_empty()
    while change := shelves.best_change():
        shelves.apply(change)
    return shelves.assigned()


def _shuffled(sizes: Mapping[str, int], seed: int) -> list[str]:
    order = sorted(sizes)
    random.Random(seed).shuffle(order)  # noqa: S311 - a fair draw, not a secret
    return order


class _Change(NamedTuple):
    """A group of `size` goes from one split to another; one of size `back`, if any, comes back for it."""

    gain: float
    source: Split
    target: Split
    size: int
    back: int


class _Shelves:
    """Groups by split and size. Only sizes matter for what to move, so the search stays small with many groups."""

    def __init__(self, targets: Mapping[Split, float]) -> None:
        self.targets = targets
        self.filled = dict.fromkeys(targets, 0)
        self.groups: dict[Split, dict[int, list[str]]] = {split: defaultdict(list) for split in targets}

    def put(self, group: str, size: int, split: Split) -> None:
        self.groups[split][size].append(group)
        self.filled[split] += size

    def take(self, size: int, split: Split) -> str:
        group = self.groups[split][size].pop()
        if not self.groups[split][size]:
            del self.groups[split][size]
        self.filled[split] -= size
        return group

    def neediest(self) -> Split:
        """The split that is, for its size, farthest from full."""
        return min(self.targets, key=lambda split: self.filled[split] / self.targets[split])

    def count(self, split: Split) -> int:
        return sum(map(len, self.groups[split].values()))

    def fill_empty(self) -> None:
        """A smallest group of the split with most groups, for each split that got none."""
        for split in self.targets:
            if not self.count(split):
                richest = max(self.targets, key=self.count)
                size = min(self.groups[richest])
                self.put(self.take(size, richest), size, split)

    def best_change(self) -> _Change | None:
        """The change that brings the splits nearest to their targets, None where none brings them nearer."""
        return max((change for change in self._changes() if change.gain > 1e-9), default=None)

    def apply(self, change: _Change) -> None:
        there = self.take(change.size, change.source)
        if change.back:
            self.put(self.take(change.back, change.target), change.back, change.source)
        self.put(there, change.size, change.target)

    def _changes(self) -> Iterator[_Change]:
        for source in self.targets:
            for target in self.targets:
                if source is not target:
                    yield from self._changes_between(source, target)

    def _changes_between(self, source: Split, target: Split) -> Iterator[_Change]:
        """For each size, the moves and swaps that come nearest to what ideally moves between the two."""
        ideal = (self.filled[source] - self.targets[source] + self.targets[target] - self.filled[target]) / 2
        backs = sorted(self.groups[target])
        if self.count(source) > 1:
            backs = [0, *backs]
        for size in self.groups[source]:
            nearest = bisect_left(backs, size - ideal)
            for back in backs[max(0, nearest - 1) : nearest + 1]:
                yield _Change(self._gain(source, target, size - back), source, target, size, back)

    def _gain(self, source: Split, target: Split, moved: int) -> float:
        """How much the squared distances to the targets shrink when so many samples move."""
        over = self.filled[source] - self.targets[source]
        under = self.targets[target] - self.filled[target]
        return over**2 + under**2 - (over - moved) ** 2 - (under - moved) ** 2

    def assigned(self) -> dict[str, Split]:
        return {group: split for split, shelf in self.groups.items() for groups in shelf.values() for group in groups}


def crossing(values: Iterable[tuple[str | None, Split]]) -> dict[str, list[Split]]:
    """Value -> its splits, for every value (a writer, page or text) that stands in more than one."""
    splits: dict[str, Counter[Split]] = defaultdict(Counter)
    for value, split in values:
        if value is not None:
            splits[value][split] += 1
    return {value: [split for split in Split if split in seen] for value, seen in splits.items() if len(seen) > 1}
