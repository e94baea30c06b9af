"""COCO annotations with a text each, as school_notebooks and Digital Peter are published: lines cut by their polygons.

Each annotation is a line, even if it is a single word: a COCO file does not say which words are on one line.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dsocr.document import Item, Line, Outline, Point, Skipped, SkipReason, bounds
from dsocr.errors import DataError
from dsocr.formats.format import LARGEST_COORDINATE, Columns, Format, SourceFile, read_files, source_files, stated_size
from dsocr.formats.tables import USUAL_NAMES
from dsocr.io.encodings import head, read_json, writable

_HEAD = re.compile(rb'\A\s*\{.*"(?:images|annotations)"\s*:\s*\[', re.DOTALL)
_OTHER = re.compile(rb'"(?:messages|conversations)"\s*:')
_TEXT_NAMES = ("translation", "utf8_string", *USUAL_NAMES["text"])


def find_coco(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the COCO files of a folder, judged by their first kilobytes, or the one file named."""
    heads = ((path, head(path)) for path in source_files(source, {".json"}))
    return [path for path, start in heads if _HEAD.match(start) and not _OTHER.search(start)]


def read_coco(source: Path, columns: Columns) -> Iterator[Item]:
    """Read the images of all COCO files with their annotations, in the order of the file.

    The text is an attribute with a usual name, or the one that `columns` names.
    """
    text_names = (columns["text"],) if "text" in columns else _TEXT_NAMES
    return read_files(source, find_coco(source), partial(_read_file, text_names=text_names))


def _read_file(file: SourceFile, text_names: Sequence[str]) -> Iterator[Item]:
    data = read_json(file.path)
    entries, annotations = _list(data, "images"), _list(data, "annotations")
    by_image: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, annotation in enumerate(annotations, start=1):
        if isinstance(annotation, dict) and "image_id" in annotation:
            by_image[str(annotation["image_id"])].append(annotation)
        else:
            yield Skipped(SkipReason.BAD_SOURCE, f"{file.where}#{number}", "the annotation names no image")
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict) and "id" in entry:
            yield from _read_image(file, entry, by_image.pop(str(entry["id"]), []), text_names)
        else:
            yield Skipped(SkipReason.BAD_SOURCE, f"{file.where}#{number}", "the image has no id")
    for image_id, orphans in by_image.items():
        message = f"no image has the id {image_id!r}, or an earlier one has it too"
        yield from (Skipped(SkipReason.NO_IMAGE, _place(file, annotation), message) for annotation in orphans)


def _list(data: object, key: str) -> list[object]:
    values = data.get(key) if isinstance(data, dict) else None
    if not isinstance(values, list):
        raise DataError(f"it has no list of {key}", code="annotation-invalid")
    return values


def _place(file: SourceFile, annotation: Mapping[str, Any]) -> str:
    return f"{file.where}#{writable(annotation.get('id', '?'))}"


def _read_image(
    file: SourceFile, entry: Mapping[str, Any], annotations: list[dict[str, Any]], text_names: Sequence[str]
) -> Iterator[Item]:
    name = str(entry.get("file_name", ""))
    where = f"{file.where}#{writable(name)}"
    if not annotations:
        yield Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")
        return
    page = file.find_page(name, where, size=stated_size(entry.get("width"), entry.get("height")), split=file.split)
    if isinstance(page, Skipped):
        yield page
        return
    lines, skipped = [], []
    for annotation in annotations:
        text, place = _text(annotation, text_names), _place(file, annotation)
        line = _read_line(annotation, text, place)
        if isinstance(line, Skipped):
            yield line
            skipped.append(Line(text, place))
        else:
            lines.append(line)
    yield replace(page, lines=tuple(lines), page=page.name, skipped=tuple(skipped))


def _read_line(annotation: Mapping[str, Any], text: str, place: str) -> Line | Skipped:
    if not text.strip():
        return Line(text, place)
    try:
        outline = _outline(annotation)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, place, error.message)
    if outline is None:
        return Skipped(SkipReason.NO_OUTLINE, place, "the annotation has neither a polygon nor a box")
    return Line(text, place, outline)


def _text(annotation: Mapping[str, Any], names: Sequence[str]) -> str:
    attributes = annotation.get("attributes")
    values = {**annotation, **attributes} if isinstance(attributes, dict) else annotation
    return next((values[name] for name in names if isinstance(values.get(name), str)), "")


def _outline(annotation: Mapping[str, Any]) -> Outline | None:
    """Return the polygon; a box around several parts; the box if the shape is a mask or missing."""
    parts = annotation.get("segmentation")
    if isinstance(parts, list) and parts:
        polygons = [_points(part) for part in (parts if isinstance(parts[0], list) else [parts])]
        polygons = [polygon for polygon in polygons if len(polygon) >= 3]
        if len(polygons) == 1:
            return Outline.of_polygon(polygons[0])
        if polygons:
            return Outline(bounds(point for polygon in polygons for point in polygon))
    box = annotation.get("bbox")
    if not isinstance(box, list) or len(box) != 4:
        return None
    (left, top), (width, height) = _points(box)
    return Outline((left, top, left + width, top + height))


def _points(numbers: object) -> tuple[Point, ...]:
    """Round points written as one row of numbers."""
    if not isinstance(numbers, list) or not all(isinstance(number, int | float) for number in numbers):
        raise DataError("the coordinates are not numbers", code="coordinates-invalid")
    # NaN is within no bound.
    if not all(abs(number) <= LARGEST_COORDINATE for number in numbers):
        raise DataError("a coordinate is on no image", code="coordinates-invalid")
    if len(numbers) % 2:
        raise DataError("an odd number of coordinates", code="coordinates-invalid")
    rounded = [round(number) for number in numbers]
    return tuple(zip(rounded[::2], rounded[1::2], strict=True))


FORMATS = (
    Format(
        name="coco",
        title="COCO files with texts",
        find=find_coco,
        read=read_coco,
        example="school_notebooks_RU -o data/mine",
        takes_columns=True,
    ),
)
