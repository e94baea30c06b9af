"""Boxes and polygons in the cells of tables: points as this project writes them, or a list of four numbers.

A list is two corners, or a corner and a size: all rows of a table decide which.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsocr.document import Box, Point
from dsocr.errors import DataError
from dsocr.formats.format import LARGEST_COORDINATE
from dsocr.images import upright_size

Notation = Literal["corners", "size"]

_NUMBER = r"-?\d{1,7}(?:\.\d{1,20})?"
_POINTS = re.compile(rf"{_NUMBER},{_NUMBER}(?: {_NUMBER},{_NUMBER}){{1,5000}}")
_LIST = re.compile(rf"\[?{_NUMBER}(?:, ?{_NUMBER}){{3}}\]?")
_BOX = 4
"""Numbers of a box."""
SIDES: dict[tuple[str, ...], str] = {
    ("left", "top", "right", "bottom"): "bbox_xyxy",
    ("xmin", "ymin", "xmax", "ymax"): "bbox_xyxy",
    ("x1", "y1", "x2", "y2"): "bbox_xyxy",
    ("x0", "y0", "x1", "y1"): "bbox_xyxy",
    ("x", "y", "width", "height"): "bbox_xywh",
    ("x", "y", "w", "h"): "bbox_xywh",
    ("left", "top", "width", "height"): "bbox_xywh",
}
"""Columns that are a side each, and the name of a column with all of them."""
_CLEAR = 3
"""How many times fewer faults the boxes of a table have in one notation than in the other to be read so."""
_TOLERANCE = 1.02
"""Part of the image's sides that a box may reach."""

MEANINGS: dict[Notation, str] = {"corners": "left, top, right, bottom", "size": "left, top, width, height"}
BOX_HINT = "`left,top right,bottom`"


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a cell: points, or a list of four if it `is_list`."""

    numbers: tuple[float, ...]
    is_list: bool = False

    @property
    def points(self) -> tuple[Point, ...]:
        """The numbers as rounded points."""
        rounded = list(map(round, self.numbers))
        return tuple(zip(rounded[::2], rounded[1::2], strict=True))

    def box(self, notation: Notation | None = None) -> Box | None:
        """Return the box of four numbers, with the notation of a list; None if it is empty or unknown."""
        if len(self.numbers) > _BOX or (self.is_list and notation is None):
            return None
        left, top, right, bottom = self.numbers
        if self.is_list and notation == "size":
            right, bottom = left + right, top + bottom
        box = round(left), round(top), round(right), round(bottom)
        return box if box[0] < box[2] and box[1] < box[3] else None


def parse_shape(cell: str) -> Shape | None:
    """Parse `1,2 3,4`, `1,2 3,2 3,4` or `[1, 2, 3, 4]`; None for other notations, and for shares of the image."""
    is_list = bool(_LIST.fullmatch(cell.strip()))
    if not is_list and not _POINTS.fullmatch(cell.strip()):
        return None
    numbers = tuple(map(float, re.findall(_NUMBER, cell)))
    is_share = any(not number.is_integer() for number in numbers) and all(abs(number) <= 1 for number in numbers)
    return None if is_share or max(map(abs, numbers)) > LARGEST_COORDINATE else Shape(numbers, is_list)


def decide_notation(column: str, boxes: Iterable[tuple[Path, str]]) -> Notation | None:
    """Return the notation of lists in a column, in its order and with their images; None without any.

    It is the one in which boxes lie inside their images and apart, unless the column's name says which.
    Raises DataError if both are possible.
    """
    shapes = [(image, shape) for image, cell in boxes if (shape := parse_shape(cell)) and shape.is_list]
    if not shapes:
        return None
    if column.lower().endswith(("xywh", "xyxy")):
        return "size" if column.lower().endswith("xywh") else "corners"
    sides = dict.fromkeys((image for image, _ in shapes), (LARGEST_COORDINATE, LARGEST_COORDINATE))
    for image in sides:
        with suppress(DataError):  # reported when it is cut
            sides[image] = upright_size(image)
    faults = {notation: _faults(shapes, notation, sides) for notation in MEANINGS}
    better, worse = sorted(faults, key=faults.__getitem__)
    if faults[better] * _CLEAR > faults[worse] or not faults[worse]:
        both = " or ".join(MEANINGS.values())
        message = f"the boxes in the column {column!r} are {both}: write {BOX_HINT}, or call it bbox_xyxy or bbox_xywh"
        raise DataError(message, code="boxes-ambiguous")
    return better


def _faults(shapes: Iterable[tuple[Path, Shape]], notation: Notation, sides: Mapping[Path, tuple[int, int]]) -> int:
    """Count boxes that are empty, outside their images, or over the box before them."""
    faults, before = 0, (Path(), (0, 0, 0, 0))
    for image, shape in shapes:
        box = shape.box(notation)
        if not box or any(box[place] > sides[image][place - 2] * _TOLERANCE for place in (2, 3)):
            faults += 1
        elif image == before[0]:
            faults += all(_overlap(box[side::2], before[1][side::2]) for side in (0, 1))
        before = image, box or before[1]
    return faults


def _overlap(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether half of the shorter interval is inside the other."""
    shorter = min(first[1] - first[0], second[1] - second[0])
    return 2 * (min(first[1], second[1]) - max(first[0], second[0])) > shorter
