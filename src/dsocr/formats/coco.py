"""COCO annotations with a text each, as school_notebooks and Digital Peter are published: lines cut by their polygons.

Each annotation is a line, even if it is a single word: a COCO file does not say which words are on one line.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.document import Line, Outline, Page, Point, Skipped, SkipReason, bounds
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.formats.image_finder import ImageFinder
from dsocr.formats.tables import USUAL_NAMES
from dsocr.formats.xml import LARGEST_COORDINATE
from dsocr.io.encodings import head, read_json, writable
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_HEAD = re.compile(rb'\A\s*\{.*"(?:images|annotations)"\s*:\s*\[', re.DOTALL)
_OTHER = re.compile(rb'"(?:messages|conversations)"\s*:')
_SIDES = range(1, LARGEST_COORDINATE + 1)
_TEXT_NAMES = ("translation", "utf8_string", *USUAL_NAMES["text"])


def find_coco(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the COCO files of a folder, judged by their first kilobytes, or the one file named."""
    files = [source] if source.is_file() and source.suffix.lower() == ".json" else list_files(source, {".json"})
    heads = ((path, head(path)) for path in files)
    return [path for path, start in heads if _HEAD.match(start) and not _OTHER.search(start)]


def read_coco(source: Path, columns: Columns) -> Iterator[Page | Skipped]:
    """Read the images of all COCO files with their annotations, in the order of the file.

    The text is an attribute with a usual name, or the one that `columns` names.
    """
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    text_names = (columns["text"],) if "text" in columns else _TEXT_NAMES
    for path in find_coco(source):
        file = _CocoFile(path, root, relative(path, root), images, text_names)
        try:
            data = read_json(path)
            entries = _list(data, "images"), _list(data, "annotations")
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, file.where, error.message)
            continue
        yield from file.read(*entries)


def _list(data: object, key: str) -> list[object]:
    values = data.get(key) if isinstance(data, dict) else None
    if not isinstance(values, list):
        raise DataError(f"it has no list of {key}", code="coco-list-missing")
    return values


@dataclass(frozen=True, slots=True)
class _CocoFile:
    """One COCO file with what is needed to read it."""

    path: Path
    root: Path
    where: str
    images: ImageFinder
    text_names: Sequence[str]

    def read(self, entries: list[object], annotations: list[object]) -> Iterator[Page | Skipped]:
        by_image: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for number, annotation in enumerate(annotations, start=1):
            if isinstance(annotation, dict) and "image_id" in annotation:
                by_image[str(annotation["image_id"])].append(annotation)
            else:
                yield Skipped(SkipReason.BAD_SOURCE, f"{self.where}#{number}", "the annotation names no image")
        for number, entry in enumerate(entries, start=1):
            if isinstance(entry, dict) and "id" in entry:
                yield from self._read_image(entry, by_image.pop(str(entry["id"]), []))
            else:
                yield Skipped(SkipReason.BAD_SOURCE, f"{self.where}#{number}", "the image has no id")
        for image_id, orphans in by_image.items():
            message = f"no image has the id {image_id!r}, or an earlier one has it too"
            yield from (Skipped(SkipReason.NO_IMAGE, self._place(annotation), message) for annotation in orphans)

    def _place(self, annotation: Mapping[str, Any]) -> str:
        return f"{self.where}#{writable(annotation.get('id', '?'))}"

    def _read_image(self, entry: Mapping[str, Any], annotations: list[dict[str, Any]]) -> Iterator[Page | Skipped]:
        name = str(entry.get("file_name", ""))
        where = f"{self.where}#{writable(name)}"
        if not annotations:
            yield Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")
            return
        try:
            image = self.images.find(name, near=self.path.parent)
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            return
        lines, skipped = [], []
        for annotation in annotations:
            line = self._read_line(annotation)
            if isinstance(line, Skipped):
                yield line
                skipped.append(Line(_text(annotation, self.text_names), line.where))
            else:
                lines.append(line)
        name = relative(image.with_suffix(""), self.root)
        split = split_of_name(self.path.stem) or split_of_folder(self.path.relative_to(self.root).parent)
        size = _size(entry)
        yield Page(image, name, where, tuple(lines), size, page=name, split=split, skipped=tuple(skipped))

    def _read_line(self, annotation: Mapping[str, Any]) -> Line | Skipped:
        place = self._place(annotation)
        text = _text(annotation, self.text_names)
        try:
            outline = _outline(annotation) if text.strip() else None
        except DataError as error:
            return Skipped(SkipReason.BAD_SOURCE, place, error.message)
        if outline is None and text.strip():
            return Skipped(SkipReason.NO_OUTLINE, place, "the annotation has neither a polygon nor a box")
        return Line(text, place, outline)


def _text(annotation: Mapping[str, Any], names: Sequence[str]) -> str:
    attributes = annotation.get("attributes")
    values = {**annotation, **attributes} if isinstance(attributes, dict) else annotation
    return next((values[name] for name in names if isinstance(values.get(name), str)), "")


def _size(entry: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = entry.get("width"), entry.get("height")
    if isinstance(width, int) and isinstance(height, int) and width in _SIDES and height in _SIDES:
        return width, height
    return None


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
        raise DataError("an odd number of coordinates", code="coordinates-odd")
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
