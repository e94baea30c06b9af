"""Checks of images: unreadable exposure, size, orientation and shape, and images that are nearly the same."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dsocr.data.check.findings import Findings
from dsocr.data.check.sample_stats import CheckedSample, ImageStats

MAX_DISTORTION = 1.5
"""Letters shown this many times too tall or too wide no longer look like those a model has learned."""
_CLIPPED = 0.5
_FAINT = 115
"""Ink on clipped paper with less contrast than this has lost its thin strokes."""
_MIN_PIXELS = 20
"""Letters of a line this low have about ten pixels."""
_LINE_ASPECT = 2.0
"""A dataset whose median image is at least this many times as wide as high holds lines."""
_SIDEWAYS = 1.2
"""A line this many times higher than wide is probably sideways, if its text is longer than a word."""
_SIDEWAYS_CHARACTERS = 4
_TWO_LINES = 1.85
"""Times the median height of a page's lines; slanting lines of real pages reach 1.7."""
_HALF_A_LINE = 0.45
_HALF_A_LINE_CHARACTERS = 10
"""A shorter text may have neither ascenders nor descenders, and be low because of that."""
_LINES_PER_PAGE = 5
"""Lines of a page needed to know its usual height."""


def check_brightness(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find blank images, and those whose ink is lost to over- or underexposure."""
    for item in samples:
        stats = item.stats
        if stats is None:
            continue
        contrast = stats.lightest - stats.darkest
        if stats.is_blank:
            findings.add("blank-image", "warning", "Image is blank or nearly so", item, f"contrast {contrast} of 255")
        elif contrast < _FAINT and max(stats.white, stats.black) > _CLIPPED:
            share, name = (stats.white, "white") if stats.white > stats.black else (stats.black, "black")
            detail = f"{share:.0%} is pure {name}, and the rest has a contrast of {contrast} of 255"
            findings.add("saturated-image", "warning", "Image is over- or underexposed", item, detail)


def check_inverted(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find light writing on dark among dark writing on light, or the other way round."""
    measured = [(item, item.stats.is_inverted) for item in samples if item.stats and not item.stats.is_blank]
    mostly_inverted = 2 * sum(inverted for _, inverted in measured) > len(measured)
    kind = "dark on light, others light on dark" if mostly_inverted else "light on dark, others dark on light"
    for item, inverted in measured:
        if inverted != mostly_inverted:
            findings.add("inverted-image", "warning", f"Writing is {kind}", item)


def check_outlines(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find lines whose outline on the page is not around their baseline, so that the image shows something else."""
    for item in samples:
        if item.is_off_baseline:
            message = "Outline of the line is off its baseline, so the image may show another part of the page"
            findings.add("outline-off-baseline", "warning", message, item)


def check_line_heights(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find images of unusual height for their page: two lines in one, or part of a line."""
    pages: dict[tuple[str | None, ...], list[tuple[CheckedSample, int, int]]] = defaultdict(list)
    for item in samples:
        if item.size and item.sample.page and item.text.strip() and "\n" not in item.text:
            pages[item.sample.writer, item.sample.document, item.sample.page].append((item, *item.size))
    for page in pages.values():
        if len(page) < _LINES_PER_PAGE:
            continue
        usual = statistics.median(height for _, _, height in page)
        for item, width, height in page:
            ratio = height / usual
            if ratio > _TWO_LINES or (ratio < _HALF_A_LINE and len(item.text) >= _HALF_A_LINE_CHARACTERS):
                message = "Image has an unusual height for its page: it may hold several lines, or part of one"
                detail = f"{width} x {height} pixels, {ratio:.2g} times the page's median height"
                findings.add("unusual-aspect", "warning", message, item, detail)


def check_sizes(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find images too small to read, and lines that are sideways."""
    sized = [(item, *item.size) for item in samples if item.size]
    if not sized:
        return
    are_lines = statistics.median(width / height for _, width, height in sized) >= _LINE_ASPECT
    for item, width, height in sized:
        detail, characters = f"{width} x {height} pixels", len(item.text.strip())
        if min(width, height) < _MIN_PIXELS and characters > 1:
            message = f"Image has fewer than {_MIN_PIXELS} pixels in height or width"
            findings.add("low-resolution", "warning", message, item, detail)
        if are_lines and height > _SIDEWAYS * width and characters >= _SIDEWAYS_CHARACTERS:
            message = "Line image is higher than wide and may be sideways"
            findings.add("turned-image", "warning", message, item, detail)


def check_distortion(
    samples: Sequence[CheckedSample], findings: Findings, distortion: Callable[[int, int], float]
) -> None:
    """Find images whose letters the chosen resolution would squeeze or stretch."""
    factors = [(item, *item.size, distortion(*item.size)) for item in samples if item.size]
    distorted = [found for found in factors if not 1 / MAX_DISTORTION <= found[3] <= MAX_DISTORTION]
    if not distorted:
        return
    typical = statistics.median(factor for *_, factor in distorted)
    amount = f"{typical:.1f} times too tall" if typical > 1 else f"{1 / typical:.1f} times too wide"
    message = f"This resolution distorts letters, typically {amount}; the resolution base does not"
    for item, width, height, factor in distorted:
        detail = f"{width} x {height} pixels, height is stretched {factor:.2f} times as much as width"
        findings.add("distorted-image", "warning", message, item, detail)


_MAX_BITS = 12
"""Of 64. Between two lines of the shipped sample the median is 31; one pair in a hundred is below 20."""
_MIN_CORRELATION = 0.8
"""Between thumbnails; at most 0.69 for two different lines of the shipped sample (145,530 pairs)."""
_MAX_BITS_ANY_TEXT = 3
_MIN_CORRELATION_ANY_TEXT = 0.97
"""What a second scan or another JPEG of an image reaches, even if nothing is known about their texts."""
ALL_PAIRS_LIMIT = 1000
"""Up to this many images of one text are compared all with all; of more, those that share a band of the hash."""
MAX_PER_BAND = 32
"""An image is compared with at most this many earlier ones of a band, the latest."""
_BANDS = 4
_BAND_BITS = 16

_Measured = tuple[CheckedSample, ImageStats]


def similar_with_same_text(group: Sequence[CheckedSample]) -> Iterator[tuple[CheckedSample, list[CheckedSample]]]:
    """Yield each image of one text with the earlier ones that are nearly the same."""
    items = _measured(group)
    pairs = _all_pairs(items) if len(items) <= ALL_PAIRS_LIMIT else _pairs_by_band(items)
    yield from _similar(items, pairs, _MAX_BITS, _MIN_CORRELATION)


def similar_with_any_text(samples: Sequence[CheckedSample]) -> Iterator[tuple[CheckedSample, list[CheckedSample]]]:
    """Yield each image with earlier ones that look identical, whatever their texts."""
    items = _measured(samples)
    yield from _similar(items, _pairs_by_band(items), _MAX_BITS_ANY_TEXT, _MIN_CORRELATION_ANY_TEXT)


def _measured(samples: Sequence[CheckedSample]) -> list[_Measured]:
    return [(item, item.stats) for item in samples if item.stats]


def _similar(
    items: Sequence[_Measured], pairs: Iterator[tuple[int, list[int]]], max_bits: int, min_correlation: float
) -> Iterator[tuple[CheckedSample, list[CheckedSample]]]:
    for place, earlier in pairs:
        item, stats = items[place]
        similar = [
            other
            for other, other_stats in (items[index] for index in earlier)
            if (stats.dhash ^ other_stats.dhash).bit_count() <= max_bits
            and other.digest != item.digest
            and other_stats.correlation(stats) >= min_correlation
        ]
        if similar:
            yield item, similar


def _all_pairs(items: Sequence[_Measured]) -> Iterator[tuple[int, list[int]]]:
    hashes = np.array([stats.dhash for _, stats in items], dtype=np.uint64)
    for place in range(1, len(items)):
        near = np.flatnonzero(np.bitwise_count(hashes[:place] ^ hashes[place]) <= _MAX_BITS)
        if len(near):
            yield place, near.tolist()


def _pairs_by_band(items: Sequence[_Measured]) -> Iterator[tuple[int, list[int]]]:
    """Candidates that share a band of 16 bits, so that the work does not grow with the square of the images."""
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, (_, stats) in enumerate(items):
        earlier: set[int] = set()
        for band in range(_BANDS):
            bucket = buckets[band, stats.dhash >> (_BAND_BITS * band) & (1 << _BAND_BITS) - 1]
            earlier.update(bucket[-MAX_PER_BAND:])
            bucket.append(place)
        if earlier:
            yield place, sorted(earlier)
