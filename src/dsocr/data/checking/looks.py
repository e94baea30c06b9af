"""What an image looks like in a few numbers, taken while it is decoded: its light, and what it is known again by."""

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


@dataclass(frozen=True, slots=True)
class Look:
    """How an image looks.

    `darkest` and `lightest` are grey levels (0-255) without specks; `black` and `white` are the shares of pixels at
    either end; `hash` is its dHash (64 bit: where it grows lighter from left to right, on a grid of 8 x 8); `small` is
    the image at 64 x 16 pixels, its mean 0 and its length 1, so that a product of two is their correlation.
    """

    darkest: int
    lightest: int
    black: float
    white: float
    hash: int
    small: npt.NDArray[np.float32]


def look_at(image: Image.Image) -> Look:
    """The look of an upright picture, RGB or L."""
    shrink = max(1, max(image.size) // _SIDE)
    grey = (image.reduce(shrink) if shrink > 1 else image).convert("L")
    counts = np.asarray(grey.histogram(), dtype=np.float64)
    shares = np.cumsum(counts) / counts.sum()
    darkest, lightest = np.searchsorted(shares, (_FEW, 1 - _FEW))
    black, white = shares[2], 1 - shares[252]
    return Look(int(darkest), int(lightest), float(black), float(white), _difference_hash(grey), _small(grey))


def _difference_hash(grey: Image.Image) -> int:
    cells = np.asarray(grey.resize(_HASH, Image.Resampling.BOX), dtype=np.int16)
    return int.from_bytes(np.packbits(cells[:, 1:] > cells[:, :-1]).tobytes(), "big")


def _small(grey: Image.Image) -> npt.NDArray[np.float32]:
    values = np.asarray(grey.resize(_SMALL, Image.Resampling.BOX), dtype=np.float32).ravel()
    values -= values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length else values
