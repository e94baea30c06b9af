"""Checks of images alone."""

import statistics
from collections.abc import Callable

from dsocr.data.checking.findings import Checked, Findings

MOST_DISTORTION = 1.5
"""Letters this many times taller or wider than they are on paper are no longer what a model has learnt to read."""


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
