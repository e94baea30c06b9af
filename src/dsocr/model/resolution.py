"""How an image enters a model: the names of its resolutions, their sizes, and the image slots they need.

Knows nothing about weights; `views.py` turns an image into pixels at one of these resolutions.
"""

from dataclasses import dataclass
from typing import Literal

from dsocr.errors import ConfigError

Layout = Literal["fold", "pad", "squash"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """One way to show an image: a square canvas of `size` pixels, filled by `layout`.

    `pad` keeps the aspect ratio and centres the image on grey; `squash` does not keep it (what the authors' tiny and
    small do); `fold` cuts a line image into rows of at most `tallest_row` pixels. `token_pixels` is the side of the
    square of pixels that becomes one vision token.
    """

    name: str
    size: int
    layout: Layout
    token_pixels: int
    tallest_row: int = 0

    @property
    def slots(self) -> int:
        """Image slots in the input ids: one a vision token, one at each row's end, one after the view."""
        side = self.size // self.token_pixels
        return side * (side + 1) + 1


_DEEPSEEK = [
    Resolution("tiny", 512, "squash", 64),
    Resolution("small", 640, "squash", 64),
    Resolution("base", 1024, "pad", 64),
    Resolution("large", 1280, "pad", 64),
]
_NANO = [Resolution("fold", 128, "fold", 32, tallest_row=32)]

_RESOLUTIONS_BY_FAMILY = {"deepseek_ocr": _DEEPSEEK, "nano": _NANO}
_DEFAULT_BY_FAMILY = {"deepseek_ocr": "base", "nano": "fold"}

Family = Literal["deepseek_ocr", "nano"]
"""Base models that are prepared for alike; `deepseek_ocr` is the published network, `nano` its small sibling."""


def find_resolution(family: Family, name: str | None) -> Resolution:
    """The family's resolution of that name, its default for None. Raises ConfigError listing the names."""
    resolutions = {resolution.name: resolution for resolution in _RESOLUTIONS_BY_FAMILY[family]}
    chosen = resolutions.get(name or _DEFAULT_BY_FAMILY[family])
    if chosen is None:
        raise ConfigError(
            f"input.resolution: this base has no resolution {name!r}", hint=f"it has {', '.join(resolutions)}"
        )
    return chosen
