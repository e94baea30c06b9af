"""Group samples that must stay together, and assign the groups to splits or folds.

Group sizes come as near to the wanted fractions as possible, and lengths and scripts are spread evenly. Knows nothing
about files.
"""

import random
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Generic, TypeVar

import numpy as np

from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.text import comparable, letter_script

GIVEN = "given"
"""Keep the source's own splits instead of splitting by a unit."""

Label = TypeVar("Label", bound=str | int)
"""A split or the number of a fold."""


@dataclass(frozen=True, slots=True)
class SplitCandidate:
    """The properties that decide a sample's split; unknown values are None.

    `name` is the path of its image in the source without suffix, `where` its place for messages. `split` and `fold` are
    those it already has, in the source or in an earlier dataset, `picture` a hash of the image's file. A text that was
    aligned and accepted by nobody is not `is_checked`.
    """

    name: str
    where: str
    text: str
    writer: str | None = None
    document: str | None = None
    page: str | None = None
    split: Split | None = None
    fold: int | None = None
    picture: str | None = None
    is_checked: bool = True

    @classmethod
    def of(cls, sample: Sample, where: str) -> "SplitCandidate":
        """Take a sample of a dataset, at this place, with its split and fold."""
        names = sample.writer, sample.document, sample.page
        return cls(sample.id, where, sample.text, *names, sample.split, sample.fold)

    def keys(self, unit: str) -> Iterator[str]:
        """The key for a unit, then for each smaller unit, as far as known; the text is always known."""
        for smaller in UNITS[UNITS.index(unit) :]:
            value = KEYS[smaller](self)
            if value or smaller == "text":
                yield f"{smaller} {value}"


def page_key(document: str | None, page: str | None) -> str | None:
    """A page's name within the dataset; two documents may each have a page 1."""
    return page if not document or not page else f"{document}/{page}"


KEYS: dict[str, Callable[[Sample | SplitCandidate], str | None]] = {
    "writer": lambda sample: sample.writer,
    "document": lambda sample: sample.document,
    "page": lambda sample: page_key(sample.document, sample.page),
    "text": lambda sample: comparable(sample.text),
}
UNITS = tuple(KEYS)
"""Units to split by, largest first; where one is unknown for a sample, the next smaller one replaces it."""


def parse_fractions(text: str) -> dict[Split, float]:
    """Parse `0.8/0.1/0.1` or `80/10/10` (train/validation/test); a fraction may be zero."""
    hint = "write train/validation/test, e.g. 0.8/0.1/0.1"
    try:
        numbers = [float(part) for part in text.split("/")]
    except ValueError:
        raise DataError(f"the split {text!r} is not three numbers", code="bad-fractions", hint=hint) from None
    total = sum(numbers)
    is_whole = any(abs(total - whole) < 1e-6 * whole for whole in (1, 100))
    if len(numbers) != len(Split) or min(numbers) < 0 or not is_whole:
        raise DataError(f"the split {text!r} is not three fractions with sum 1", code="bad-fractions", hint=hint)
    return {split: number / total for split, number in zip(Split, numbers, strict=True)}


def parse_units(split_by: str) -> tuple[str, ...]:
    """Parse `writer+text` into its units."""
    units = tuple(dict.fromkeys(split_by.split("+")))
    if unknown := [unit for unit in units if unit not in UNITS]:
        message = f"cannot split by {unknown[0]!r}; the units are: {', '.join(UNITS)}, or several joined by +"
        raise DataError(message, code="unit-unknown", hint="for example writer+text")
    return units


def known_units(candidates: Iterable[SplitCandidate]) -> list[str]:
    """The units that are known for at least one sample, largest first; the text always is."""
    known = {unit for candidate in candidates for unit in UNITS if KEYS[unit](candidate)}
    return [unit for unit in UNITS if unit in known or unit == "text"]


def find_copies(candidates: Iterable[SplitCandidate]) -> dict[str, list[str]]:
    """Picture -> names of images, for each picture that is there under several names."""
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for candidate in candidates:
        if candidate.picture:
            names[candidate.picture][candidate.name] = None
    return {picture: [*copies] for picture, copies in names.items() if len(copies) > 1}


def group_candidates(candidates: Sequence[SplitCandidate], units: Sequence[str]) -> list[str]:
    """The group of each sample; samples that share a key of any unit, or a picture, directly or indirectly, are one."""
    keys, copies = [[next(candidate.keys(unit)) for unit in units] for candidate in candidates], find_copies(candidates)
    for candidate, its_keys in zip(candidates, keys, strict=True):
        if candidate.picture in copies:
            its_keys.append(f"picture {candidate.picture}")
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while (parent := parents.get(key, key)) != key:
            parents[key] = parents.get(parent, parent)
            key = parent
        return key

    for first, *others in keys:
        for other in others:
            least, greater = sorted((root(first), root(other)))
            parents[greater] = least
    return [root(first) for first, *_ in keys]


def find_crossing(values: Iterable[tuple[str | None, Split]]) -> dict[str, list[Split]]:
    """Value -> splits, for each value (a writer, page or text) that occurs in more than one split."""
    splits: dict[str, set[Split]] = defaultdict(set)
    for value, split in values:
        if value is not None:
            splits[value].add(split)
    return {value: [split for split in Split if split in used] for value, used in splits.items() if len(used) > 1}


def count_crossing(candidates: Sequence[Sample | SplitCandidate], splits: Sequence[Split | None]) -> dict[str, int]:
    """Number of writers, documents, pages and texts that occur in more than one split."""
    used = [(candidate, split) for candidate, split in zip(candidates, splits, strict=True) if split is not None]
    return {
        f"{unit}s": len(find_crossing((KEYS[unit](candidate), split) for candidate, split in used)) for unit in UNITS
    }


def split_of_fold(fold: int, tested: int, folds: int) -> Split:
    """The split of a fold when fold `tested` is the test split: the next fold validates, the others train."""
    if fold == tested:
        return Split.TEST
    return Split.VALIDATION if fold == tested % folds + 1 else Split.TRAIN


def assign_groups(
    sizes: Mapping[str, int],
    fractions: Mapping[Label, float],
    seed: int | str,
    *,
    fixed: Mapping[str, Label] | None = None,
) -> dict[str, Label]:
    """Assign groups to splits (or folds) so that the sizes come as near the fractions as moves and swaps allow.

    Groups in `fixed` stay where they are; a split that they overfill gets no more, and the others share the rest in
    proportion. The result does not depend on the order of `sizes`. Every split with a fraction above zero gets a group.
    Raises DataError if there are fewer groups than such splits.
    """
    fixed = fixed or {}
    shares = {label: share for label, share in fractions.items() if share > 0}
    if len(sizes) < len(shares):
        message = f"{len(shares)} splits need at least as many groups, but there are {len(sizes)}"
        raise DataError(message, code="too-few-groups")
    fixed_sizes = Counter(dict.fromkeys(shares, 0))
    for group, label in fixed.items():
        fixed_sizes[label] += sizes.get(group, 0)
    open_, total = dict(shares), sum(sizes.values())
    while True:
        rest = total - sum(count for label, count in fixed_sizes.items() if label not in open_)
        scale = rest / sum(open_.values())
        over = [label for label, share in open_.items() if fixed_sizes[label] > share * scale + 1e-9]
        if not over or len(over) == len(open_):
            break
        for label in over:
            del open_[label]
    bins = _Bins({label: share * scale for label, share in open_.items()}, fixed_sizes)
    order = sorted(sizes.keys() - fixed.keys())
    random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
    for group in order:
        bins.put(group, sizes[group], min(bins.targets, key=lambda label: bins.filled[label] / bins.targets[label]))
    while move := max((move for move in bins.moves() if move[0] > 1e-9), default=None):
        _, source, target, size, back = move
        group = bins.take(size, source)
        if back:
            bins.put(bins.take(back, target), back, source)
        bins.put(group, size, target)
    placed = ((label, group) for label in bins.targets for groups in bins.groups[label].values() for group in groups)
    return {group: label for label, group in placed} | {group: fixed[group] for group in sizes if group in fixed}


class _Bins(Generic[Label]):
    """Groups by split and size. Moves depend on sizes only, which keeps the search small with many groups."""

    def __init__(self, targets: Mapping[Label, float], fixed: Mapping[Label, int]) -> None:
        self.targets = targets
        self.fixed = fixed
        self.filled = {label: fixed.get(label, 0) for label in targets}
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

    def moves(self) -> Iterator[tuple[float, Label, Label, int, int]]:
        """For each pair of splits and each group size, the moves nearest to the ideal number of samples to move.

        A move has its gain in squared distance to the targets, its source and target, the size of the group that moves,
        and of the group that moves back, or 0.
        """
        for source, target in permutations(self.targets, 2):
            over = self.filled[source] - self.targets[source]
            under = self.targets[target] - self.filled[target]
            backs = sorted(self.groups[target])
            if sum(map(len, self.groups[source].values())) > 1 or self.fixed.get(source):
                backs = [0, *backs]
            for size in self.groups[source]:
                nearest = bisect_left(backs, size - (over + under) / 2)
                for back in backs[max(0, nearest - 1) : nearest + 1]:
                    moved = size - back
                    gain = over**2 + under**2 - (over - moved) ** 2 - (under - moved) ** 2
                    yield gain, source, target, size, back


SCRIPTS = ("Cyrillic", "Latin", "digits", "mixed", "other")
_LENGTH_BUCKETS = 5

_DRAWS = 100
"""Enough for 52 writers, see lab/verdicts.md. More groups are even by themselves and need fewer draws."""
_MAX_ASSIGNMENTS = 20_000
"""Groups assigned over all draws, so that many groups take no longer than few."""

_LETTER = re.compile(r"[^\W_]")


def assign_balanced(
    groups: Sequence[str],
    texts: Sequence[str],
    fractions: Mapping[Label, float],
    seed: int,
    *,
    fixed: Mapping[str, Label] | None = None,
) -> dict[str, Label]:
    """Call `assign_groups` with many seeds and keep the result with the most even lengths and scripts.

    `groups` and `texts` are the samples', in the same order. A draw only counts if its sizes are as near the fractions
    as the first draw's, which uses `seed` itself.
    """
    sizes = Counter(groups)
    places = {group: place for place, group in enumerate(sizes)}
    text_strata = compute_strata(texts)
    strata = np.zeros((len(sizes), text_strata.shape[1]), dtype=np.int64)
    np.add.at(strata, [places[group] for group in groups], text_strata)

    def score(assigned: Mapping[str, Label]) -> float:
        return imbalance(strata, np.array([str(assigned[group]) for group in sizes]))

    best = assign_groups(sizes, fractions, seed, fixed=fixed)
    allowed, lowest = _size_error(best, sizes, fractions), score(best)
    for draw in range(1, min(_DRAWS, max(_MAX_ASSIGNMENTS // len(sizes), 2))):
        tried = assign_groups(sizes, fractions, f"{seed}/{draw}", fixed=fixed)
        if _size_error(tried, sizes, fractions) <= allowed + 1e-9 and (distance := score(tried)) < lowest - 1e-12:
            best, lowest = tried, distance
    return best


def _size_error(assigned: Mapping[str, Label], sizes: Mapping[str, int], fractions: Mapping[Label, float]) -> float:
    """Sum of squared differences between actual and wanted sizes, in samples."""
    filled = dict.fromkeys(fractions, 0)
    for group, label in assigned.items():
        filled[label] = filled.get(label, 0) + sizes[group]
    total = sum(sizes.values())
    return sum((count - total * fractions.get(label, 0)) ** 2 for label, count in filled.items())


def compute_strata(texts: Sequence[str]) -> np.ndarray:
    """One-hot length bucket and script of each text, shape (texts, buckets + scripts)."""
    lengths = [len(comparable(text)) for text in texts]
    bounds = length_bounds(lengths)
    strata = np.zeros((len(texts), len(bounds) + 1 + len(SCRIPTS)), dtype=np.int64)
    places = np.arange(len(texts))
    strata[places, [bisect_right(bounds, length) for length in lengths]] = 1
    strata[places, [len(bounds) + 1 + SCRIPTS.index(script_of(text)) for text in texts]] = 1
    return strata


def imbalance(strata: np.ndarray, labels: np.ndarray) -> float:
    """Total variation distance of each split's lengths and scripts from the whole's, summed; 0 if all are alike."""
    shares = strata.sum(axis=0) / max(strata.sum() / 2, 1)
    total = 0.0
    for label in np.unique(labels):
        rows = strata[labels == label].sum(axis=0)
        total += float(np.abs(rows / max(rows.sum() / 2, 1) - shares).sum() / 2)
    return total


def length_bounds(lengths: Iterable[int]) -> list[int]:
    """Lower bounds, except the first, of buckets with about equally many texts."""
    ordered = sorted(lengths)
    places = range(1, _LENGTH_BUCKETS)
    return sorted({ordered[len(ordered) * place // _LENGTH_BUCKETS] for place in places}) if ordered else []


def script_of(text: str) -> str:
    """The script of a text's letters; "mixed" for several scripts, "digits" for digits without letters."""
    names = map(letter_script, set(_LETTER.findall(text)))
    kinds = {"digits" if name is None else name if name in SCRIPTS else "other" for name in names}
    letters = kinds - {"digits"}
    if len(letters) > 1:
        return "mixed"
    return next(iter(letters or kinds), "other")
