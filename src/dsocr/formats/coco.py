"""COCO annotations with a text each, as school_notebooks and Digital Peter are published: lines cut by their polygons.

Whatever was transcribed by itself is a line, be it a word: nothing in a COCO file says what stands on one line.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dsocr.document import Line, Outline, Page, Point, Skipped, SkipReason, bounds
from dsocr.errors import DataError
from dsocr.formats.tables import USUAL_NAMES, Columns
from dsocr.formats.writing import Pictures
from dsocr.io.encodings import head, read_json, writable
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_HEAD = re.compile(rb'\A\s*\{.*"(?:images|annotations)"\s*:\s*\[', re.DOTALL)
_OTHER = re.compile(rb'"(?:messages|conversations)"\s*:')
_TEXT_NAMES = ("translation", "utf8_string", *USUAL_NAMES["text"])
_FARTHEST = 1_000_000
"""Pixels; what is farther out is on no image, and larger than a drawing can take."""


def find_coco(source: Path) -> list[Path]:
    """The COCO files of a folder, judged by their first kilobytes, or the one file that was named."""
    files = [source] if source.is_file() and source.suffix.lower() == ".json" else list_files(source, {".json"})
    heads = ((path, head(path)) for path in files)
    return [path for path, start in heads if _HEAD.match(start) and not _OTHER.search(start)]


def read_coco(source: Path, columns: Columns) -> Iterator[Page | Skipped]:
    """The images of all COCO files with what is transcribed on them, in the order of the file.

    The text is an attribute with a usual name, or the one that `columns` calls the text.
    """
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    names = (columns["text"],) if "text" in columns else _TEXT_NAMES
    for path in find_coco(source):
        try:
            data = read_json(path)
            images, annotations = _list(data, "images"), _list(data, "annotations")
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, relative(path, root), error.message)
            continue
        yield from _File(path, root, pictures, names).read(images, annotations)


def _list(data: object, key: str) -> list[object]:
    values = data.get(key) if isinstance(data, dict) else None
    if not isinstance(values, list):
        raise DataError(f"it has no list of {key}")
    return values


class _File:
    """One COCO file: what its images and annotations are read with."""

    def __init__(self, path: Path, root: Path, pictures: Pictures, names: tuple[str, ...]) -> None:
        self.path = path
        self.root = root
        self.pictures = pictures
        self.names = names
        self.where = relative(path, root)

    def read(self, images: list[object], annotations: list[object]) -> Iterator[Page | Skipped]:
        by_image: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number, annotation in enumerate(annotations, start=1):
            if isinstance(annotation, dict) and "image_id" in annotation:
                by_image[str(annotation["image_id"])].append(annotation)
            else:
                yield Skipped(SkipReason.BAD_SOURCE, f"{self.where}#{number}", "the annotation names no image")
        for number, image in enumerate(images, start=1):
            if isinstance(image, dict) and "id" in image:
                yield from self._image(image, by_image.pop(str(image["id"]), []))
            else:
                yield Skipped(SkipReason.BAD_SOURCE, f"{self.where}#{number}", "the image has no id")
        for image_id, lost in by_image.items():
            message = f"no image has the id {image_id!r}, or one that stands before has it too"
            yield from (Skipped(SkipReason.NO_IMAGE, self._place(annotation), message) for annotation in lost)

    def _place(self, annotation: Mapping[str, Any]) -> str:
        return f"{self.where}#{writable(annotation.get('id', '?'))}"

    def _image(self, entry: Mapping[str, Any], annotations: list[dict[str, Any]]) -> Iterator[Page | Skipped]:
        name = str(entry.get("file_name", ""))
        where = f"{self.where}#{writable(name)}"
        if not annotations:
            yield Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")
            return
        try:
            image = self.pictures.find(name, near=self.path.parent)
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            return
        lines, lost = [], []
        for annotation in annotations:
            line = self._line(annotation)
            if isinstance(line, Skipped):
                yield line
                lost.append(Line(_text(annotation, self.names), line.where))
            else:
                lines.append(line)
        name = relative(image.with_suffix(""), self.root)
        split = split_of_name(self.path.stem) or split_of_folder(self.path.relative_to(self.root).parent)
        size = _size(entry)
        yield Page(image, name, where, tuple(lines), size, page=name, split=split, skipped=tuple(lost))

    def _line(self, annotation: Mapping[str, Any]) -> Line | Skipped:
        place = self._place(annotation)
        text = _text(annotation, self.names)
        try:
            outline = _outline(annotation) if text.strip() else None
        except DataError as error:
            return Skipped(SkipReason.BAD_SOURCE, place, error.message)
        if outline is None and text.strip():
            return Skipped(SkipReason.NO_OUTLINE, place, "the annotation has neither a polygon nor a box")
        return Line(text, place, outline)


def _text(annotation: Mapping[str, Any], names: tuple[str, ...]) -> str:
    attributes = annotation.get("attributes")
    held = {**annotation, **attributes} if isinstance(attributes, dict) else annotation
    return next((held[name] for name in names if isinstance(held.get(name), str)), "")


def _size(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = entry.get("width"), entry.get("height")
    if isinstance(width, int) and isinstance(height, int) and 0 < width <= _FARTHEST and 0 < height <= _FARTHEST:
        return width, height
    return None


def _outline(annotation: Mapping[str, Any]) -> Outline | None:
    """The polygon; a box around all parts where there are several; the box where the shape is a mask or missing."""
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
    """Points written as one row of numbers, rounded."""
    if not isinstance(numbers, list) or not all(isinstance(number, int | float) for number in numbers):
        raise DataError("the coordinates are not numbers")
    # What is not a number at all is not within any bound.
    if not all(abs(number) <= _FARTHEST for number in numbers):
        raise DataError("a coordinate is on no image")
    if len(numbers) % 2:
        raise DataError("an odd number of coordinates")
    rounded = [round(number) for number in numbers]
    return tuple(zip(rounded[::2], rounded[1::2], strict=True))
