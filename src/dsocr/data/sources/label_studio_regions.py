"""The regions of one annotation of Label Studio: geometry, labels and texts that share an id, made into lines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsocr.data.sources.layout import LeftOut, Outline, Point, Reason, SourceLine, bounds
from dsocr.data.sources.texts import writable
from dsocr.errors import DataError

_LARGEST = 1_000_000
_FARTHEST = 1_000.0
"""Pixels of an image, and per cent of it; a coordinate farther out than this is on no image."""
_WITHOUT_SHAPE = frozenset({"labels", "choices", "rating", "number", "taxonomy", "pairwise", "datetime", "relation"})
_TEXT_NAMES = ("transcription", "text", "caption")


def read_regions(annotation: Mapping[str, Any], where: str) -> list[SourceLine | LeftOut]:
    """A line for each region, in the order they were drawn; a text without a region is the whole image's."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for number, item in enumerate(_dicts(annotation.get("result"))):
        groups.setdefault(str(item.get("id", number)), []).append(item)
    found = [line for id_, items in groups.items() for line in _line(items, f"{where}#{writable(id_)}")]
    whole = [line for line in found if isinstance(line, SourceLine) and line.outline is None]
    if not found:
        return [LeftOut(Reason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")]
    if len(found) > 1 and whole:
        told = "the text belongs to no region, and is not the only one"
        return [LeftOut(Reason.NO_OUTLINE, line.where, told) if line in whole else line for line in found]
    return found


def _line(items: Sequence[Mapping[str, Any]], where: str) -> Iterator[SourceLine | LeftOut]:
    """The line that the parts of a region make; nothing where they are neither a shape nor a text."""
    try:
        shaped = [item for item in items if _has_shape(item)]
        texts = [item for item in items if item.get("type") == "textarea"]
        if not shaped and not texts:
            return
        outline = _outline(shaped[0]) if shaped else None
        text = _text(texts)
    except DataError as error:
        yield LeftOut(Reason.BAD_SOURCE, where, error.message)
        return
    if shaped and outline is None:
        yield LeftOut(Reason.NO_OUTLINE, where, f"its shape is {shaped[0].get('type')!r}, not a rectangle or a polygon")
    else:
        yield SourceLine(text, where, outline)


def _has_shape(item: Mapping[str, Any]) -> bool:
    value = item.get("value")
    if item.get("type") == "textarea":
        return isinstance(value, dict) and ("x" in value or "points" in value)
    return str(item.get("type")) not in _WITHOUT_SHAPE


def _text(items: Sequence[Mapping[str, Any]]) -> str:
    """What was typed; where there were several fields, in the one with a usual name."""
    if len(items) > 1:
        usual = [item for item in items if item.get("from_name") in _TEXT_NAMES]
        if len(usual) != 1:
            names = ", ".join(writable(item.get("from_name")) for item in items)
            raise DataError(f"the region has {len(items)} texts: {names}"[:300])
        items = usual
    value = items[0].get("value") if items else None
    return joined_text(value.get("text") if isinstance(value, dict) else None)


def joined_text(text: object) -> str:
    """A text as it stands, or its parts under each other, as they were entered."""
    parts = text if isinstance(text, list) else [text]
    return "\n".join(part for part in parts if isinstance(part, str))


def stated_size(task: Mapping[str, Any]) -> tuple[int, int] | None:
    """The image size that the annotations of a task were made for."""
    items = [item for annotation in _dicts(task.get("annotations")) for item in _dicts(annotation.get("result"))]
    return next((size for item in items if (size := _size(item))), None)


def _size(item: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = item.get("original_width"), item.get("original_height")
    if isinstance(width, int) and isinstance(height, int) and 0 < width <= _LARGEST and 0 < height <= _LARGEST:
        return width, height
    return None


def _outline(item: Mapping[str, Any]) -> Outline | None:
    """Where the region stands, in pixels; None for shapes that are neither rectangles nor polygons."""
    value, size = item.get("value"), _size(item)
    if not isinstance(value, dict) or not ({"x", "y", "width", "height"} <= value.keys() or "points" in value):
        return None
    if size is None:
        raise DataError("the region does not say how large its image is")
    if item.get("image_rotation"):
        raise DataError("the image was turned in Label Studio: turn the file itself, and annotate that")
    if "points" in value:
        return _polygon(value["points"], size)
    left, top, width, height = (_number(value[name]) for name in ("x", "y", "width", "height"))
    turn = math.radians(_number(value.get("rotation") or 0))
    corners = [(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)]
    # The turn is about the upper left corner, clockwise, and in pixels: per cents across and down differ.
    across, down = size[0] / 100, size[1] / 100
    pixels = [
        (
            round(left * across + x * across * math.cos(turn) - y * down * math.sin(turn)),
            round(top * down + x * across * math.sin(turn) + y * down * math.cos(turn)),
        )
        for x, y in corners
    ]
    if turn:
        return Outline.of_polygon(tuple(pixels))
    return Outline((*pixels[0], *pixels[2]))


def _polygon(points: object, size: tuple[int, int]) -> Outline:
    pairs = [pair for pair in points if isinstance(pair, list) and len(pair) == 2] if isinstance(points, list) else []
    if len(pairs) < 3 or len(pairs) != len(points):  # type: ignore[arg-type]
        raise DataError("its polygon is no list of three points or more")
    corners: list[Point] = [(round(_number(x) * size[0] / 100), round(_number(y) * size[1] / 100)) for x, y in pairs]
    return Outline(bounds(corners), tuple(corners))


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) <= _FARTHEST:
        raise DataError(f"a coordinate is no number on an image: {str(value)[:40]!r}")
    return float(value)


def _dicts(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
