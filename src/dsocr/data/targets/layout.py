"""What every target format is written through: an image at a time, and what became of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dsocr.data.sources.layout import LeftOut, SourceImage

HALF = "\ud800-\udfff"
"""What JSON can write and UTF-8 cannot, as a part of a pattern."""

NOT_UTF8 = re.compile(f"[{HALF}]")

IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Added:
    """What became of an image: how many of its lines were written, what was left out, how many outlines were moved."""

    lines: int
    left_out: Sequence[LeftOut] = ()
    moved: int = 0


class Writer(Protocol):
    """Writes one target format into one folder."""

    def add(self, image: SourceImage, stem: str) -> Added:
        """Writes the image and its lines under the file stem, which no other image has."""
        ...

    def close(self) -> None:
        """Ends what is written; without it the folder is not whole."""
        ...
