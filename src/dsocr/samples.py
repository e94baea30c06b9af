"""The nouns of the domain: a sample and the split it belongs to."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


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
