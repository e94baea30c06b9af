"""How long the texts are and in which script: what should be alike in every split, besides the sizes.

Of many draws that are equally near the fractions, the one is taken whose splits are most alike.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from dsocr.data.splits import Label, assign_groups
from dsocr.text import comparable

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
