"""Who goes where: groups that must stay together are given to splits so that their sizes come near the fractions.

What a sample's group is, `units.py` says; that the splits are alike, `strata.py` sees to. Knows nothing about files.
"""

import random
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Generic, NamedTuple, TypeVar

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
