"""Another look at an image: which of a base's other resolutions shows it next larger, else next smaller."""

from collections.abc import Iterable

from dsocr.model.resolution import Resolution
from dsocr.model.views import shown_scale

_MOST_DISTORTED = 2.0
"""How much taller or wider than true letters may be shown; lines squeezed into a square are not legible."""


def another_resolution(
    image_size: tuple[int, int], current: Resolution, others: Iterable[Resolution]
) -> Resolution | None:
    """The resolution that shows an image of (width, height) next larger than `current` does, else next smaller.

    None of them takes tiles, whose tokens may be many more, or distorts the image. None where there is no other.
    """
    scales = {
        other: shown_scale(image_size, other)
        for other in others
        if other != current
        and other.tiling is None
        and 1 / _MOST_DISTORTED <= other.distortion(*image_size) <= _MOST_DISTORTED
    }
    now = shown_scale(image_size, current)
    larger = [other for other, scale in scales.items() if scale > now]
    return min(larger, key=scales.__getitem__) if larger else max(scales, key=scales.__getitem__, default=None)
