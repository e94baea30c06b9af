"""Checks of images alone: nothing to see in them, too small, lying on their side, out of shape for a resolution."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dsocr.data.check.findings import Checked, Findings, Look, is_inverted, likeness

MOST_DISTORTION = 1.5
"""Letters this many times taller or wider than they are on paper are no longer what a model has learnt to read."""

LEAST_CONTRAST = 32
"""Grey levels between paper and ink below which there is nothing to read; the grain of empty paper has some twenty."""
CLIPPED = 0.5
FAINT = 115
"""Ink that differs from a clipped paper by less than this has lost its thin strokes."""
LEAST_HEIGHT = 20
"""Pixels; letters of a line this low have about ten."""
LINE_ASPECT = 2.0
"""A dataset whose images are typically at least this many times as wide as high holds lines."""
TURNED = 1.2
"""A line so many times higher than wide lies on its side, if it has more than a word's worth of text."""
TURNED_CHARACTERS = 4


TWO_LINES = 1.85
"""Times the usual height of a page's lines; slanting lines of real pages reach 1.7."""
HALF_A_LINE = 0.45
LONG_ENOUGH = 10
"""Characters; a shorter text may have neither ascenders nor descenders, and be low for that."""
ENOUGH = 5
"""Lines of a page from which its usual height is known."""


def is_blank_look(look: Look) -> bool:
    """Whether there is nothing to see in an image."""
    return look.lightest - look.darkest < LEAST_CONTRAST


def check_looks(checked: Sequence[Checked], findings: Findings) -> None:
    """Images with nothing to see in them, and such as have lost their ink to the light."""
    for item in checked:
        look = item.look
        if look is None:
            continue
        contrast = look.lightest - look.darkest
        if is_blank_look(look):
            message = "the image is blank, or nearly so"
            findings.add("blank-image", "warning", message, item, f"its grey levels span {contrast} of 255")
        elif contrast < FAINT and max(look.white, look.black) > CLIPPED:
            share, kind = (look.white, "white") if look.white > look.black else (look.black, "black")
            message = "the image is over- or underexposed"
            detail = f"{share:.0%} is pure {kind}, and what is left differs by {contrast} of 255"
            findings.add("saturated-image", "warning", message, item, detail)


def check_inverted(checked: Sequence[Checked], findings: Findings) -> None:
    """Light writing on dark among dark writing on light, or the other way round."""
    seen = [item for item in checked if item.look and not is_blank_look(item.look)]
    inverted = [item for item in seen if item.look and is_inverted(item.look)]
    if 2 * len(inverted) > len(seen):
        kept = {item.where for item in inverted}
        odd, what = [item for item in seen if item.where not in kept], "dark on light among light on dark"
    else:
        odd, what = inverted, "light on dark among dark on light"
    for item in odd:
        findings.add("inverted-image", "warning", f"the writing is {what}", item)


def check_aspects(checked: Sequence[Checked], findings: Findings) -> None:
    """Lines of unusual height for their page: two lines in one image, or a part of a line."""
    pages: dict[tuple[str | None, ...], list[Checked]] = defaultdict(list)
    for item in checked:
        if item.size and item.sample.page and item.sample.text.strip() and "\n" not in item.sample.text:
            pages[item.sample.writer, item.sample.document, item.sample.page].append(item)
    for page in pages.values():
        if len(page) >= ENOUGH:
            _check_page(page, findings)


def _check_page(page: Sequence[Checked], findings: Findings) -> None:
    usual = statistics.median(item.size[1] for item in page if item.size)
    for item in page:
        width, height = item.size or (0, 0)
        higher = height / usual
        if higher > TWO_LINES or (higher < HALF_A_LINE and len(item.sample.text) >= LONG_ENOUGH):
            message = "the image has an unusual height for its page: several lines in one, or a part of a line"
            detail = f"{width} x {height} pixels, {higher:.2g} times as high as usual there"
            findings.add("unusual-aspect", "warning", message, item, detail)


def check_sizes(checked: Sequence[Checked], findings: Findings) -> None:
    """Images too small to read, and lines that lie on their side."""
    sized = [(item, *item.size) for item in checked if item.size]
    if not sized:
        return
    lines = statistics.median(width / height for _, width, height in sized) >= LINE_ASPECT
    for item, width, height in sized:
        detail = f"{width} x {height} pixels"
        if min(width, height) < LEAST_HEIGHT and len(item.sample.text.strip()) > 1:
            message = f"the image has fewer than {LEAST_HEIGHT} pixels in height or width"
            findings.add("low-resolution", "warning", message, item, detail)
        if lines and height > TURNED * width and len(item.sample.text.strip()) >= TURNED_CHARACTERS:
            message = "the image is higher than wide among lines, and may lie on its side"
            findings.add("turned-image", "warning", message, item, detail)


def check_shapes(checked: Sequence[Checked], findings: Findings, distortion: Callable[[int, int], float]) -> None:
    """Images whose letters the chosen resolution would squeeze or stretch."""
    factors = [(item, distortion(*item.size)) for item in checked if item.size is not None]
    told = [(item, factor) for item, factor in factors if not 1 / MOST_DISTORTION <= factor <= MOST_DISTORTION]
    if not told:
        return
    typical = statistics.median(factor for _, factor in told)
    shown = f"{typical:.1f} times too tall" if typical > 1 else f"{1 / typical:.1f} times too wide"
    message = f"at this resolution letters are shown out of shape, here typically {shown}; the resolution base keeps it"
    for item, factor in told:
        width, height = item.size or (0, 0)
        detail = f"{width} x {height} pixels, height is stretched {factor:.2f} times as much as width"
        findings.add("distorted-image", "warning", message, item, detail)


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
