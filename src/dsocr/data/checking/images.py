"""Checks of images alone: nothing to see in them, too small, lying on their side, out of shape for a resolution."""

import statistics
from collections.abc import Callable, Sequence

from dsocr.data.checking.findings import Checked, Findings

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


def check_looks(checked: Sequence[Checked], findings: Findings) -> None:
    """Images with nothing to see in them, and such as have lost their ink to the light."""
    for item in checked:
        look = item.look
        if look is None:
            continue
        contrast = look.lightest - look.darkest
        if contrast < LEAST_CONTRAST:
            message = "the image is blank, or nearly so"
            findings.add("blank-image", "warning", message, item, f"its grey levels span {contrast} of 255")
        elif contrast < FAINT and max(look.white, look.black) > CLIPPED:
            share, kind = (look.white, "white") if look.white > look.black else (look.black, "black")
            message = "the image is over- or underexposed"
            detail = f"{share:.0%} is pure {kind}, and what is left differs by {contrast} of 255"
            findings.add("saturated-image", "warning", message, item, detail)


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


def check_shapes(checked: list[Checked], findings: Findings, distortion: Callable[[int, int], float]) -> None:
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
