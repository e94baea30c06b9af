"""The nouns of the domain: a sample and the split it belongs to."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from dsocr.errors import DataError


class Split(StrEnum):
    """A part of a dataset."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class PackedImage:
    """An image file that lies in a row of a Parquet file, the first row being 0."""

    file: Path
    row: int

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One image with its transcription: a line, a region or a page.

    `id` is unique in its dataset and survives renumbering (the image's path inside the dataset folder, with forward
    slashes). `writer`, `page`, `document` and `source` are None where they are not known. `geometry` tells where on the
    page the image was cut: any of `bbox` (left, top, right, bottom; page pixels), `polygon` and `baseline` (lists of
    [x, y]). `fold` counts from 1, in datasets that have folds.
    """

    id: str
    image: Path | PackedImage
    text: str
    split: Split
    writer: str | None = None
    page: str | None = None
    document: str | None = None
    source: str | None = None
    fold: int | None = None
    geometry: dict[str, Any] = field(default_factory=dict)


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")

Unit = Literal["line", "region", "page"]
"""What a sample is an image of."""

Point = tuple[int, int]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom; right and bottom lie outside."""


class SkipReason(StrEnum):
    """Why something of the source is not in the dataset."""

    NO_TEXT = "no text"
    NO_TRANSCRIPTION = "image without transcription"
    GAP = "not transcribed throughout"
    SUPERSEDED = "older annotation"
    NO_IMAGE = "image not found"
    NO_OUTLINE = "line without outline"
    NO_SPLIT = "no split given"
    OUTSIDE = "outside the image"
    TOO_SMALL = "too small"
    OTHER_SIZE = "outlines of another image"
    STRUCK = "struck-out text"
    UNCLEAR = "unclear text"
    BAD_SOURCE = "source cannot be read"
    BAD_IMAGE = "image cannot be read"
    UNWRITABLE = "no place in the target format"
    ARCHIVE = "archive inside an archive"

    @property
    def is_fault(self) -> bool:
        """False for what is merely not transcribed yet or not wanted; `strict` stops at the first fault."""
        not_wanted = {SkipReason.STRUCK, SkipReason.UNCLEAR, SkipReason.SUPERSEDED}
        return self not in {SkipReason.NO_TEXT, SkipReason.NO_TRANSCRIPTION, SkipReason.GAP} | not_wanted


@dataclass(frozen=True, slots=True)
class Skipped:
    """One thing of the source that is not in the dataset; `where` is inside the source, `file` or `file:line`."""

    reason: SkipReason
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Note:
    """How a source was read, where it could have been read otherwise; stands in the card."""

    message: str


@dataclass(frozen=True, slots=True)
class Outline:
    """Where a line stands on its image, in pixels; `polygon` is empty where only a box is known."""

    box: Box
    polygon: tuple[Point, ...] = ()
    baseline: tuple[Point, ...] = ()

    @classmethod
    def of_polygon(cls, polygon: tuple[Point, ...], baseline: tuple[Point, ...] = ()) -> "Outline":
        """An outline whose box is the polygon's own; fewer than three points are a box and no more."""
        return cls(bounds(polygon), polygon if len(polygon) >= 3 else (), baseline)

    def scaled(self, across: float, down: float) -> "Outline":
        """The same outline on the image at another size."""
        left, top, right, bottom = self.box
        box = (round(left * across), round(top * down), round(right * across), round(bottom * down))
        return Outline(box, _scaled(self.polygon, across, down), _scaled(self.baseline, across, down))


@dataclass(frozen=True, slots=True)
class Region:
    """Lines of a page that belong together; `id` is its own on its page."""

    id: str
    outline: Outline | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A transcription and where it stands on its image; without an outline it is the whole image's.

    `place` counts the lines of its file in the file's order, from 0, and `id` is what the file calls it, where either
    is known.
    """

    text: str
    where: str
    outline: Outline | None = None
    region: Region | None = None
    place: int | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """An image with the lines on it, in reading order: the unit of work of `prepare`, independent of all others.

    `name` is the path inside the source, without suffix, that `writer` and `page` patterns are searched in. `size` is
    the one the outlines were drawn for, where the source says it. `columns` is the row of a table, as it stood.
    `content` reads the image's bytes where it is not a file of its own but stands inside `image`. `skipped` are lines
    that were left out already, so that nobody takes the others for the whole page.
    """

    image: Path
    name: str
    where: str
    lines: tuple[Line, ...]
    size: tuple[int, int] | None = None
    writer: str | None = None
    page: str | None = None
    document: str | None = None
    split: Split | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], bytes] | None = None
    skipped: tuple[Line, ...] = ()


Item = Page | Skipped | Note
"""What a source yields."""


def bounds(points: Iterable[Point]) -> Box:
    """The smallest box around points, the outermost pixels included."""
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across) + 1, max(down) + 1


def _scaled(points: tuple[Point, ...], across: float, down: float) -> tuple[Point, ...]:
    return tuple((round(x * across), round(y * down)) for x, y in points)


def parse_points(text: str | None) -> tuple[Point, ...]:
    """Points written `x,y x,y` or `x y x y`; decimals are rounded, and an odd number of numbers is an error."""
    numbers = [round(float(number)) for number in NUMBER.findall(text or "")]
    if len(numbers) % 2:
        raise DataError(f"an odd number of coordinates: {(text or '')[:60]!r}")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def format_points(points: Iterable[Point]) -> str:
    """Points as PAGE XML writes them, `x,y x,y`; empty for none."""
    return " ".join(f"{x},{y}" for x, y in points)
