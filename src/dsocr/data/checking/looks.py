"""What an image looks like in a few numbers, taken while it is decoded: its light, its ink, what it is known by."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

_FEW = 0.001
"""The share of pixels that may be specks, so that they count as neither the darkest nor the lightest."""
_SIDE = 2048
"""Longer images are made smaller before they are looked at; letters stay."""
_HASH = (9, 8)
_SMALL = (64, 16)
_INK = 0.4
"""Ink differs from the paper by at least this share of what the strongest stroke differs by."""
_FAINTEST = 24


@dataclass(frozen=True, slots=True)
class Look:
    """How an image looks, in about a kilobyte.

    `darkest`, `middle` and `lightest` are grey levels (0-255), the outer two without specks; `black` and `white` are
    the shares of pixels at either end; `ink` is how many pixels wide the writing is, margins left out, at the image's
    own size; `hash` is its dHash (64 bit: where it grows lighter from left to right, on a grid of 8 x 8); `small`
    holds the greys of the image at 64 x 16 pixels.
    """

    darkest: int
    middle: int
    lightest: int
    black: float
    white: float
    ink: int
    hash: int
    small: bytes


def look_at(image: Image.Image) -> Look:
    """The look of an upright picture, RGB or L."""
    shrink = max(1, max(image.size) // _SIDE)
    grey = (image.reduce(shrink) if shrink > 1 else image).convert("L")
    counts = np.asarray(grey.histogram(), dtype=np.float64)
    shares = np.cumsum(counts) / counts.sum()
    darkest, middle, lightest = (int(level) for level in np.searchsorted(shares, (_FEW, 0.5, 1 - _FEW)))
    return Look(
        darkest,
        middle,
        lightest,
        black=float(shares[2]),
        white=float(1 - shares[252]),
        ink=min(image.width, shrink * _ink_width(grey, darkest, middle, lightest)),
        hash=_difference_hash(grey),
        small=grey.resize(_SMALL, Image.Resampling.BOX).tobytes(),
    )


def likeness(one: Look, other: Look) -> float:
    """The correlation of two images at 64 x 16 pixels: 1 for the same picture in any light, 0 for an even one."""
    return float(_standard(one) @ _standard(other))


def is_inverted(look: Look) -> bool:
    """Whether the writing is lighter than what it stands on."""
    return look.lightest - look.middle > 2 * (look.middle - look.darkest)


def _ink_width(grey: Image.Image, darkest: int, middle: int, lightest: int) -> int:
    """From the first column with ink to the last; the whole width where nothing differs from the paper."""
    values = np.asarray(grey)
    inverted = lightest - middle > middle - darkest
    least = max(_FAINTEST, _INK * max(lightest - middle, middle - darkest))
    inked = values.max(axis=0) > middle + least if inverted else values.min(axis=0) < middle - least
    columns = np.flatnonzero(inked)
    return int(columns[-1] - columns[0] + 1) if len(columns) else grey.width


def _difference_hash(grey: Image.Image) -> int:
    cells = np.asarray(grey.resize(_HASH, Image.Resampling.BOX), dtype=np.int16)
    return int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "big")


def _standard(look: Look) -> npt.NDArray[np.float32]:
    """The small image with mean 0 and length 1, so that a product of two is their correlation."""
    values = np.frombuffer(look.small, dtype=np.uint8).astype(np.float32)
    values -= values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length else values
