"""Pages, lines and samples: the types that every format reads into and writes from."""

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dsocr.errors import DataError
from dsocr.text import is_right_to_left

Unit = Literal["line", "region", "page"]
"""The unit of reading."""
SampleUnit = Literal["line", "region", "page", "layout"]
"""The subject of a sample; a page's layout is its lines and regions, whether or not they are transcribed."""

Point = tuple[int, int]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are exclusive."""


class Split(StrEnum):
    """A part of a dataset."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class PackedImage:
    """An image file inside a row of a Parquet file; rows count from 0."""

    file: Path
    row: int

    def __str__(self) -> str:
        return f"{self.file}#{self.row}"


@dataclass(frozen=True, slots=True)
class Sample:
    """An image of a line, a region or a page, with its transcription.

    `id` is unique in the dataset and does not depend on the order of samples: it is the image's path inside the
    dataset folder, with forward slashes. `writer`, `page`, `document` and `source` are None where unknown. `geometry`
    says where on the page the image was cut: any of `bbox` (left, top, right, bottom in page pixels), `polygon` and
    `baseline` (lists of [x, y]). `fold` counts from 1 in datasets that have folds. `aligned` is how likely a text is
    exactly right that `align` gave the line and that no person has accepted, None for all others. `page_xml` describes
    the lines and regions of a whole page as PAGE XML.
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
    page_xml: str = ""
    geometry: dict[str, Any] = field(default_factory=dict)
    aligned: float | None = None

    @property
    def place(self) -> str:
        """Where the archive has it, see `describe_place`; its id if that is unknown."""
        return describe_place(self.source, self.page) or self.id


def describe_place(source: str | None, page: str | None) -> str:
    """Describe a place in a source, as `0008.xml:43`: its page, and the line of the file that describes it."""
    match = re.fullmatch(r"(.+):(\d+)", source or "")
    line = f"line {match[2]} of {match[1]}" if match else source
    return ", ".join(filter(None, (page and f"page {page}", line)))


class SkipReason(StrEnum):
    """Why an item of the source is not in the dataset."""

    NO_TEXT = "no text"
    NO_TRANSCRIPTION = "image without transcription"
    GAP = "not transcribed throughout"
    SUPERSEDED = "older annotation"
    OTHER_LAYER = "another file describes the scan"
    OTHER_IMAGE = "another image of the line"
    NO_IMAGE = "image not found"
    NO_OUTLINE = "line without outline"
    NO_SPLIT = "no split given"
    OUTSIDE = "outside the image"
    TOO_SMALL = "too small"
    OTHER_SIZE = "outlines of another image"
    STRUCK = "struck-out text"
    UNCLEAR = "unclear text"
    IN_DOUBT = "aligned text in doubt"
    OTHER_REGION = "region of another type"
    BAD_SOURCE = "source cannot be read"
    BAD_IMAGE = "image cannot be read"
    TWICE = "line drawn twice"
    UNWRITABLE = "no place in the target format"
    ARCHIVE = "archive inside an archive"
    NOT_FETCHED = "not fetched"

    @property
    def is_fault(self) -> bool:
        """False for items that are just not transcribed yet or not wanted; `strict` stops at the first fault."""
        untranscribed = "NO_TEXT", "NO_TRANSCRIPTION", "GAP", "IN_DOUBT"
        unwanted = "STRUCK", "UNCLEAR", "OTHER_REGION", "SUPERSEDED", "OTHER_LAYER", "OTHER_IMAGE"
        return self.name not in untranscribed + unwanted


@dataclass(frozen=True, slots=True)
class Skipped:
    """An item of the source that is not in the dataset; `where` is its place in the source, `file` or `file:line`."""

    reason: SkipReason
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Note:
    """A message about how a source was read, for the dataset card."""

    message: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The place of a line or region on its image, in pixels; `polygon` is empty where only the box is known."""

    box: Box
    polygon: tuple[Point, ...] = ()
    baseline: tuple[Point, ...] = ()

    @classmethod
    def of_polygon(cls, polygon: tuple[Point, ...], baseline: tuple[Point, ...] = ()) -> "Outline":
        """Return the outline of a polygon with its bounding box; fewer than three points are just a box."""
        return cls(bounds(polygon), polygon if len(polygon) >= 3 else (), baseline)

    @property
    def border(self) -> tuple[Point, ...]:
        """The polygon, or the corners of the box where only that is known."""
        left, top, right, bottom = self.box
        return self.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))

    def scaled(self, across: float, down: float) -> "Outline":
        """Return the same outline on the image at another size."""
        left, top, right, bottom = self.box
        box = (round(left * across), round(top * down), round(right * across), round(bottom * down))
        polygon, baseline = (
            tuple((round(x * across), round(y * down)) for x, y in points) for points in (self.polygon, self.baseline)
        )
        return Outline(box, polygon, baseline)


@dataclass(frozen=True, slots=True)
class Region:
    """A group of lines of a page; `id` is unique on the page, `kind` its type as the source names it, if it does."""

    id: str
    outline: Outline | None = None
    kind: str = ""


def main_type(kind: str) -> str:
    """Return a region type without SegmOnto's additions: `MarginTextZone` of `MarginTextZone:note#1`."""
    return re.split(r"[:#]", kind, maxsplit=1)[0].strip()


@dataclass(frozen=True, slots=True)
class CellPlace:
    """The rows and columns of a table that a cell covers; the first are 0."""

    row: int
    column: int
    row_span: int = 1
    column_span: int = 1
    is_heading: bool = False

    @property
    def rows(self) -> range:
        """The rows that it covers."""
        return range(self.row, self.row + self.row_span)

    @property
    def columns(self) -> range:
        """The columns that it covers."""
        return range(self.column, self.column + self.column_span)

    @property
    def corners(self) -> tuple[list[int], list[int]]:
        """The rows and columns of its upper left, lower left, lower right and upper right corner."""
        (top, bottom), (left, right) = ((span.start, span.stop) for span in (self.rows, self.columns))
        return [top, bottom, bottom, top], [left, left, right, right]

    def overlaps(self, other: "CellPlace") -> bool:
        """Whether both cover a row and column."""
        pairs = (self.rows, other.rows), (self.columns, other.columns)
        return all(max(first.start, second.start) < min(first.stop, second.stop) for first, second in pairs)


@dataclass(frozen=True, slots=True)
class TableCell:
    """A cell of a table. Its text are the lines of the region with the same `id`."""

    id: str
    outline: Outline | None
    place: CellPlace


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page and its cells, the empty ones too, row by row; `id` is unique on the page."""

    id: str
    outline: Outline | None
    cells: tuple[TableCell, ...]

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return max(cell.place.rows.stop for cell in self.cells), max(cell.place.columns.stop for cell in self.cells)


class AlignmentMark(NamedTuple):
    """How likely an aligned text is to be exactly that of its line, and whether that counts as sure."""

    score: float
    sure: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A transcription and its place on the image; without an outline it is the text of the whole image.

    `index` counts the lines of a file in the file's order, from 0, and `id` is the file's own name for the line.
    `where` is the line's place in the source, for messages. `prediction` holds the model's answer about the text it
    read, as in JSON lines (`confidence`, `words`, `characters`, `flags`, ...); None for a text that no model has read.
    `struck` are spans (start, end) of struck-out text that the source records beside the text, not with marks in it.
    `unclear` are spans that the source records as not on the page (gaps, supplied text), empty ones at doubtful places.
    `alignment` marks a text that was aligned with the line and that no person has accepted. `kind` is the line's own
    type as the source names it, if it does. `row` is the row of its page that a word is in, None for a line.
    `untranscribed` says why a text of the source was not taken.
    """

    text: str
    where: str
    outline: Outline | None = None
    region: Region | None = None
    index: int | None = None
    id: str = ""
    prediction: Mapping[str, Any] | None = field(default=None, hash=False)
    struck: tuple[tuple[int, int], ...] = ()
    alignment: AlignmentMark | None = None
    kind: str = ""
    row: int | None = None
    unclear: tuple[tuple[int, int], ...] = ()
    untranscribed: str = ""

    @property
    def confidence(self) -> float | None:
        """The model's confidence in the line, 0-1; None where unknown."""
        known = (self.prediction or {}).get("confidence")
        return float(known) if isinstance(known, int | float) else None

    @property
    def word_confidences(self) -> dict[int, float]:
        """The confidence of each word, by the index of its first character."""
        return {word["start"]: word["confidence"] for word in (self.prediction or {}).get("words", ())}

    @property
    def word_sides(self) -> dict[int, tuple[float, float]]:
        """Where each word begins and ends along the line's box, 0-1, by the index of its first character."""
        words = (self.prediction or {}).get("words", ())
        return {word["start"]: (word["left"], word["right"]) for word in words if "left" in word and "right" in word}

    @property
    def character_confidences(self) -> list[float]:
        """The confidence of each character; empty where unknown."""
        return list((self.prediction or {}).get("characters", ()))

    def is_in(self, types: Set[str]) -> bool:
        """Whether the region's type, whole or its main type, is one of these, in lower case, or unknown."""
        kind = self.region.kind.casefold().strip() if self.region else ""
        return not kind or kind in types or main_type(kind) in types


@dataclass(frozen=True, slots=True)
class Page:
    """An image and its lines in reading order; `prepare` processes each page independently of all others.

    `name` is the path inside the source without suffix, which `writer` and `page` patterns are matched against.
    `where` is the page's place in the source, for messages. `size` is the width and height that the outlines were drawn
    for, if the source says. `columns` is the row of a table, unchanged. `content` reads the bytes of an image that is
    not a file of its own but part of the file `image`; `number` counts the pages of a PDF file from 1. `skipped` are
    lines that cannot be used, so that the others are not taken for the whole page. `xml` is the ALTO or PAGE file that
    describes the page. `unit` is "line" for the image of a single line. `tables` say which regions are cells.
    `layout` are the lines of a page that is a single sample.
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
    number: int = 0
    skipped: tuple[Line, ...] = ()
    xml: Path | None = None
    unit: Literal["line", "page"] = "page"
    tables: tuple[Table, ...] = ()
    layout: tuple[Line, ...] = ()

    @property
    def transcribed_lines(self) -> tuple[Line, ...]:
        """The lines that have a text."""
        return tuple(line for line in self.lines if line.text)

    @property
    def cells(self) -> dict[str, tuple[Table, TableCell]]:
        """The cells of its tables by their ids, each with its table."""
        return {cell.id: (table, cell) for table in self.tables for cell in table.cells}

    def visible_box(self, line: Line) -> Box:
        """Return the part of a line's box inside the image; the whole image for a line without an outline."""
        assert self.size is not None
        width, height = self.size
        left, top, right, bottom = line.outline.box if line.outline else (0, 0, width, height)
        return max(left, 0), max(top, 0), min(right, width), min(bottom, height)


Item = Page | Skipped | Note
"""An item that a source yields."""


@dataclass(frozen=True, slots=True)
class ProcessingStep:
    """A step in the making of texts: program, version, description, settings and date (ISO 8601)."""

    software: str
    version: str
    description: str
    settings: str
    date: str


def bounds(points: Iterable[Point]) -> Box:
    """Return the smallest box that includes all points."""
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across) + 1, max(down) + 1


def bounds_of_boxes(boxes: Iterable[Box]) -> Box:
    """Return the smallest box around boxes."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


_MAX_POINTS_LENGTH = 100_000
"""Characters; the longest outlines that programs write have some 300 points."""


def parse_points(text: str | None) -> tuple[Point, ...]:
    """Parse points written `x,y x,y` or `x y x y`, rounded; anything but pairs of finite numbers is an error."""
    text = text or ""
    if len(text) > _MAX_POINTS_LENGTH:
        raise DataError("more coordinates than any outline has", code="coordinates-invalid")
    try:
        numbers = [round(float(number)) for number in re.split(r"[\s,]+", text.strip(" \t\r\n,")) if number]
    except (ValueError, OverflowError) as error:
        raise DataError(f"coordinates are not numbers: {text[:60]!r}", code="coordinates-invalid") from error
    if len(numbers) % 2:
        raise DataError(f"an odd number of coordinates: {text[:60]!r}", code="coordinates-invalid")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def format_points(points: Iterable[Point]) -> str:
    """Format points as PAGE XML does, `x,y x,y`; empty for none."""
    return " ".join(f"{x},{y}" for x, y in points)


def word_boxes(
    text: str, box: Box | None, sides: Mapping[int, tuple[float, float]] | None = None
) -> list[tuple[str, int, Box | None]]:
    """Split a line into words: each with the index of its first character and its box.

    A box is where `sides` (see `Line.word_sides`) say; other words share the width of the line's box by their number of
    characters, from the right where the text is written so.
    """
    from_right = is_right_to_left(text)
    words: list[tuple[str, int, Box | None]] = []
    for word in re.finditer(r"\S+", text):
        (start, end), place = word.span(), None
        if box is not None:
            left, top, right, bottom = box
            width = right - left
            share = start / len(text), end / len(text)
            begin, stop = (sides or {}).get(start, (1 - share[1], 1 - share[0]) if from_right else share)
            place = (left + round(begin * width), top, left + round(stop * width), bottom)
        words.append((word[0], start, place))
    return words
