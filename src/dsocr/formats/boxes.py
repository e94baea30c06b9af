"""Boxes and polygons in the cells of tables, in the notations of other programs.

Four plain numbers are two corners, or a corner and a size: all rows of a table decide which.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsocr.document import Box, Point
from dsocr.errors import DataError
from dsocr.images import upright_size

Notation = Literal["points", "corners", "size", "plain"]

_MAX_LENGTH = 100_000
"""Characters of a cell; the longest outlines that programs write have some 300 points."""
_BOX = 4
"""Numbers of a box."""
_NUMBER = re.compile(r"[-+]?\d{1,7}(?:\.\d{1,20})?(?![\d.])")
_NAME = re.compile(r"([a-z]\w*)\s*[:=]")
_BEFORE = re.compile(r"(?:polygon|box)?[\[({]*")
_BETWEEN = re.compile(r"[])}]*[,; ]?[\[({]*")
SIDES: dict[tuple[str, ...], Notation] = {
    ("left", "top", "right", "bottom"): "corners",
    ("xmin", "ymin", "xmax", "ymax"): "corners",
    ("x1", "y1", "x2", "y2"): "corners",
    ("x0", "y0", "x1", "y1"): "corners",
    ("x", "y", "width", "height"): "size",
    ("x", "y", "w", "h"): "size",
    ("left", "top", "width", "height"): "size",
}
_STATED: dict[str, Notation] = {"xywh": "size", "xyxy": "corners"}
_CLEAR = 3
"""How many times fewer faults the boxes of a table have in one notation than in the other to be read so."""
_TOLERANCE = 1.02
"""Part of the image's sides that a box may reach."""

MEANINGS: dict[Notation, str] = {"corners": "left, top, right, bottom", "size": "left, top, width, height"}
BOX_HINT = "`left,top right,bottom`"


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a cell: points, two corners, a corner and a size, or either of these (`plain`)."""

    notation: Notation
    numbers: tuple[float, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """The numbers as rounded points."""
        rounded = list(map(round, self.numbers))
        return tuple(zip(rounded[::2], rounded[1::2], strict=True))

    def box(self, plain: Notation | None = None) -> Box | None:
        """Return the box of four numbers, with the notation of plain ones; None if it is empty or unknown."""
        notation = plain if self.notation == "plain" else self.notation
        left, top, right, bottom = self.numbers[:_BOX]
        if notation == "size":
            right, bottom = left + right, top + bottom
        box = round(left), round(top), round(right), round(bottom)
        return box if notation in {"corners", "size"} and box[0] < box[2] and box[1] < box[3] else None


def parse_shape(cell: str) -> Shape | None:
    """Parse a cell such as `1,2 3,4`, `[1, 2, 3, 4]`, `{"x": 1, "y": 2, "w": 3, "h": 4}` or `1,2 3,2 3,4`.

    None for other notations, and for shares of the image instead of pixels.
    """
    text = re.sub(r"[\"']|pixel:", "", cell[: _MAX_LENGTH + 1].lower())
    names = [name.replace("_", "") for name in _NAME.findall(text)]
    before, *gaps = ["".join(gap.split()) for gap in _NUMBER.split(_NAME.sub("", text))]
    after = gaps.pop() if gaps else ""
    numbers = tuple(map(float, _NUMBER.findall(_NAME.sub("", text))))
    is_share = any(not number.is_integer() for number in numbers) and all(abs(number) <= 1 for number in numbers)
    is_known = _BEFORE.fullmatch(before) and all(map(_BETWEEN.fullmatch, gaps)) and not after.strip("])}")
    if len(numbers) not in range(_BOX, _MAX_LENGTH, 2) or is_share or not is_known or len(text) > _MAX_LENGTH:
        return None
    for sides, notation in SIDES.items():
        if sorted(names) == sorted(sides) and len(numbers) == _BOX:
            by_name = dict(zip(names, numbers, strict=True))
            return Shape(notation, tuple(by_name[side] for side in sides))
    if len(numbers) == _BOX and len(names) == 1:
        return Shape(_STATED[names[0]], numbers) if names[0] in _STATED else None
    if (names and names != ["x", "y"] * (len(numbers) // 2)) or len({*gaps[::2]}) > 1 or len({*gaps[1::2]}) > 1:
        return None
    return Shape("points" if len(numbers) > _BOX else "plain" if gaps[0] == gaps[1] else "corners", numbers)


def decide_notation(column: str, boxes: Iterable[tuple[Path, str]]) -> Notation | None:
    """Return the notation of plain boxes in a table, in its order and with their images; None without any.

    It is the one in which boxes lie inside their images and apart, unless the column's name says which.
    Raises DataError if both are possible.
    """
    shapes = [(image, shape) for image, cell in boxes if (shape := parse_shape(cell)) and shape.notation == "plain"]
    if not shapes:
        return None
    if stated := _STATED.get(column.lower().rpartition("_")[2]):
        return stated
    sides: dict[Path, tuple[int, int]] = {}
    for image in {image for image, _ in shapes}:
        sides[image] = _MAX_LENGTH, _MAX_LENGTH
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
