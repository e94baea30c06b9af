"""Which images are the same picture in another guise, among as many as there are, without comparing all with all.

A dHash has 64 bits. Cut into four bands of 16, two hashes that differ in at most three bits agree in one band at least,
so only images that share a band are compared. Where a text is known to be the same, the images are few, and all of them
are compared: there a hash may differ in more bits.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from dsocr.data.checking.findings import Checked
from dsocr.data.checking.looks import Look, likeness

MOST_BITS = 12
"""Of 64. Between two lines of the shipped sample it is 31 at the median, and under 20 for one pair in a hundred."""
LEAST_LIKENESS = 0.8
"""Correlation of two images at 64 x 16 pixels: at most 0.69 between two lines of the shipped sample (145,530 pairs)."""
SAME_BITS = 3
SAME_LIKENESS = 0.97
"""What a second scan or another JPEG of one image reaches, even if nothing is known of their texts."""
FEW = 1000
"""Images of one text that are still compared all with all; of more, those that share a band."""
MOST_IN_A_BAND = 32
"""An image is compared with at most so many earlier ones of a band, the last of them."""
_BANDS = 4
_BAND_BITS = 16


def with_text_alike(group: Sequence[Checked]) -> Iterator[tuple[Checked, list[Checked]]]:
    """Each image of one text with the earlier ones it is nearly the same as; all must have a look."""
    pairs = _all_pairs(group) if len(group) <= FEW else _pairs_by_band(group)
    yield from _alike(group, pairs, MOST_BITS, LEAST_LIKENESS)


def alike_anywhere(items: Sequence[Checked]) -> Iterator[tuple[Checked, list[Checked]]]:
    """Each image with earlier ones it can hardly be told from, whatever their texts; all must have a look."""
    yield from _alike(items, _pairs_by_band(items), SAME_BITS, SAME_LIKENESS)


def _alike(
    items: Sequence[Checked], pairs: Iterator[tuple[int, list[int]]], bits: int, least: float
) -> Iterator[tuple[Checked, list[Checked]]]:
    for place, earlier in pairs:
        item, look = items[place], _look(items[place])
        near = [other for other in earlier if (look.hash ^ _look(items[other]).hash).bit_count() <= bits]
        same = [
            items[other]
            for other in near
            if items[other].digest != item.digest and likeness(_look(items[other]), look) >= least
        ]
        if same:
            yield item, same


def _all_pairs(group: Sequence[Checked]) -> Iterator[tuple[int, list[int]]]:
    hashes = np.array([_look(item).hash for item in group], dtype=np.uint64)
    for place in range(1, len(group)):
        near = np.flatnonzero(np.bitwise_count(hashes[:place] ^ hashes[place]) <= MOST_BITS)
        if len(near):
            yield place, near.tolist()


def _pairs_by_band(items: Sequence[Checked]) -> Iterator[tuple[int, list[int]]]:
    shelves: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(_BANDS)]
    for place, item in enumerate(items):
        earlier: set[int] = set()
        for band, shelf in enumerate(shelves):
            bucket = shelf[_look(item).hash >> (_BAND_BITS * band) & (1 << _BAND_BITS) - 1]
            earlier.update(bucket[-MOST_IN_A_BAND:])
            bucket.append(place)
        if earlier:
            yield place, sorted(earlier)


def _look(item: Checked) -> Look:
    assert item.look is not None
    return item.look
