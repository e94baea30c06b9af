"""Which pixels of a page are ink: not paper, not its shadows and edges, not the ruling.

Shapes: `H x W`, rows from the top, at the size the page is worked on.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Ink = NDArray[np.bool_]

_BACKGROUND = 1 / 40
"""Radius of what is taken for paper around a pixel, as a part of the page's longer side."""
_LEAST_CONTRAST = 0.08
"""Parts of the paper's brightness that ink is darker by at least: fainter marks shine through or are noise."""
_OF_INK = 0.6
"""Of the contrast that ink usually has, above which everything is ink."""
_RULE = 1 / 12
"""Of the page's width: what runs on for so long without a turn was printed, not written."""
_RULE_HEIGHT = 4
"""Pixels; thicker strokes are no ruling."""
_UNBROKEN = 0.8
"""Of a rule that is seen: scans and pens break it."""
_EDGE = 0.6
"""Of a row or column near the page's edge that is dark: the scanner's lid, or the table the page lies on."""


def find_ink(page: Image.Image) -> Ink:
    """The ink of a small grey page."""
    radius = max(round(max(page.size) * _BACKGROUND), 3)
    # What is brightest around is paper, even under writing; blurred, it follows shadows and stains.
    small = page.resize((max(page.width // 4, 1), max(page.height // 4, 1)), Image.Resampling.BOX)
    bright = small.filter(ImageFilter.MaxFilter(2 * (radius // 8) + 3)).filter(ImageFilter.BoxBlur(radius / 4))
    paper = np.asarray(bright.resize(page.size, Image.Resampling.BILINEAR), dtype=np.float32)
    contrast = 1 - np.asarray(page, dtype=np.float32) / np.maximum(paper, 1)
    least = _otsu(contrast)
    # On a clean drawing there is nothing between ink and paper, and ink alone would be parted in two.
    if (dark := contrast[contrast > least]).size:
        least = min(least, _OF_INK * float(np.median(dark)))
    ink: Ink = contrast > max(least, _LEAST_CONTRAST)
    return _without_rules(_without_edges(ink))


def _otsu(contrast: NDArray[np.floating[Any]]) -> float:
    """The threshold that parts darker from lighter pixels best (Otsu 1979), among those that are not plain paper."""
    counts, edges = np.histogram(contrast, bins=160, range=(0.02, 1.0))
    total = counts.sum()
    if not total:
        return 1.0
    middle = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    mass = np.cumsum(counts * middle)
    above = total - below
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = (mass[-1] * below / total - mass) ** 2 / (below * above)
    best = int(np.nanargmax(np.where(np.isfinite(apart), apart, -1)))
    return float(edges[best + 1])


def _without_edges(ink: Ink) -> Ink:
    height, width = ink.shape
    cleared = ink.copy()
    for axis, length in ((0, height), (1, width)):
        dark = ink.mean(axis=1 - axis) > _EDGE
        near = np.arange(length)
        near = np.minimum(near, length - 1 - near) < length // 12
        index = np.flatnonzero(dark & near)
        if axis == 0:
            cleared[index, :] = False
        else:
            cleared[:, index] = False
    frame = max(min(height, width) // 200, 1)
    cleared[:frame], cleared[-frame:], cleared[:, :frame], cleared[:, -frame:] = False, False, False, False
    return cleared


def _without_rules(ink: Ink) -> Ink:
    """The ink without long thin strokes along the page or down it."""
    along = max(round(ink.shape[1] * _RULE), 40)
    return _without_strokes(_without_strokes(ink, along).T, 2 * along).T


def _without_strokes(ink: Ink, length: int) -> Ink:
    """The ink without what is thin and part of a stroke along the rows of at least `length`, a few gaps forgiven."""
    # A rule that is not quite level steps from row to row, so rows are looked at three together.
    thick = ink.copy()
    thick[1:] |= ink[:-1]
    thick[:-1] |= ink[1:]
    full = _sums(thick, length) >= _UNBROKEN * length
    rule = _sums(full, length) > 0
    return ink & ~(rule & (_thickness(ink) <= _RULE_HEIGHT))


def _sums(mask: Ink, length: int) -> NDArray[np.int32]:
    """How many of the `length` pixels around each in its row are set."""
    half = length // 2
    sums = np.cumsum(np.pad(mask, ((0, 0), (half + 1, length - half - 1))), axis=1, dtype=np.int32)
    around: NDArray[np.int32] = sums[:, length:] - sums[:, :-length]
    return around


def _thickness(ink: Ink) -> NDArray[np.int32]:
    """The length of the run down the page that each ink pixel belongs to."""
    height = len(ink)
    rows = np.arange(1, height + 1, dtype=np.int32)[:, None]
    before = np.maximum.accumulate(np.where(ink, 0, rows), axis=0)
    after = np.minimum.accumulate(np.where(ink, height + 1, rows)[::-1], axis=0)[::-1]
    thickness: NDArray[np.int32] = np.where(ink, after - before - 1, 0).astype(np.int32)
    return thickness
