"""Exports of Label Studio: JSON, where the parts of a region share an id, and JSON_MIN, with one text per image.

The newest annotation of an image that was not cancelled is read.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dsocr.document import Line, Outline, Page, Point, Skipped, SkipReason, Split, bounds
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.formats.image_finder import ImageFinder
from dsocr.formats.xml import LARGEST_COORDINATE
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_json, writable
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_HEAD = re.compile(rb'\A\s*\[\s*\{.*"(?:annotations"\s*:\s*\[|annotation_id"\s*:|lead_time"\s*:)', re.DOTALL)
_IMAGE_NAMES = ("image", "ocr", "captioning", "img")
_TEXT_NAMES = ("transcription", "text", "caption")
_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""Prefix that Label Studio adds to the name of an uploaded file."""
_SIDES = range(1, LARGEST_COORDINATE + 1)
_LARGEST_PERCENTAGE = 1_000.0
"""Coordinates are percentages of the image's sides; anything larger is on no image."""
_WITHOUT_SHAPE = frozenset({"labels", "choices", "rating", "number", "taxonomy", "pairwise", "datetime", "relation"})


def find_label_studio(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the exports in a folder, judged by their first kilobytes, or the one file named."""
    files = [source] if source.is_file() and source.suffix.lower() == ".json" else list_files(source, {".json"})
    return [path for path in files if _HEAD.match(head(path))]


def read_label_studio(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read every annotated image of every export."""
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    for path in find_label_studio(source):
        where = relative(path, root)
        try:
            tasks = read_json(path)
            if not isinstance(tasks, list):
                raise DataError("it is not a list of tasks", code="json-not-list")
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        split = split_of_name(path.stem) or split_of_folder(path.relative_to(root).parent)
        for number, task in enumerate(tasks, start=1):
            yield from _Task(path, root, images, split, f"{where}#{number}").read(task)


@dataclass(frozen=True, slots=True)
class _Task:
    """What is needed to read one task; `where` is its place in the export."""

    path: Path
    root: Path
    images: ImageFinder
    split: Split | None
    where: str

    def read(self, task: object) -> Iterator[Page | Skipped]:
        if not isinstance(task, dict):
            yield Skipped(SkipReason.BAD_SOURCE, self.where, "the task is not a JSON object")
            return
        reason = SkipReason.NO_IMAGE
        try:
            image = self._find_image(_image_reference(task))
            reason = SkipReason.BAD_SOURCE
            found = self._read_lines(task)
        except DataError as error:
            yield Skipped(reason, self.where, error.message)
            return
        skipped = [item for item in found if isinstance(item, Skipped)]
        yield from skipped
        lines = tuple(item for item in found if isinstance(item, Line))
        if not lines:
            return
        name = relative(image.with_suffix(""), self.root)
        size = _stated_size(task)
        unusable = tuple(Line("", item.where) for item in skipped if item.reason.is_fault)
        yield Page(image, name, self.where, lines, size, page=name, split=self.split, skipped=unusable)

    def _find_image(self, reference: str) -> Path:
        for name in _file_names(reference):
            try:
                return self.images.find(name, near=self.path.parent)
            except DataError as error:
                problem = error
        raise DataError(f"{problem.message}, which {reference[:200]!r} names", code="image-not-found")

    def _read_lines(self, task: Mapping[str, Any]) -> list[Line | Skipped]:
        if not isinstance(task.get("annotations"), list):
            return [Line(_json_min_text(task), self.where)]
        newest, skipped = _newest_annotation(task["annotations"], self.where)
        return [*skipped, *(read_regions(newest, self.where) if newest else ())]


def _newest_annotation(annotations: list[Any], where: str) -> tuple[dict[str, Any] | None, list[Skipped]]:
    """Return the annotation to read, and the others: cancelled, or older."""
    valid = [annotation for annotation in annotations if isinstance(annotation, dict)]
    kept = [annotation for annotation in valid if not annotation.get("was_cancelled")]
    cancelled = Skipped(SkipReason.NO_TRANSCRIPTION, where, "the annotation was cancelled")
    skipped = [cancelled] * (len(valid) - len(kept))
    if not valid:
        skipped = [Skipped(SkipReason.NO_TRANSCRIPTION, where, "the image is not annotated")]
    if not kept:
        return None, skipped
    # ISO 8601 times compare as texts; of equal ones the last counts.
    newest = max(reversed(kept), key=lambda annotation: str(annotation.get("updated_at") or ""))
    older = Skipped(SkipReason.SUPERSEDED, where, "the image has a newer annotation")
    return newest, skipped + [older] * (len(kept) - 1)


def read_regions(annotation: Mapping[str, Any], where: str) -> list[Line | Skipped]:
    """Return a line for each region, in the order they were drawn; a text without a region is the whole image's."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for number, item in enumerate(_dicts(annotation.get("result"))):
        groups.setdefault(str(item.get("id", number)), []).append(item)
    found = [line for id_, items in groups.items() for line in _read_region(items, f"{where}#{writable(id_)}")]
    whole = [line for line in found if isinstance(line, Line) and line.outline is None]
    if not found:
        return [Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")]
    if len(found) > 1 and whole:
        message = "the text belongs to no region, and is not the only one"
        return [Skipped(SkipReason.NO_OUTLINE, line.where, message) if line in whole else line for line in found]
    return found


def _read_region(items: Sequence[Mapping[str, Any]], where: str) -> Iterator[Line | Skipped]:
    """Yield the line that the parts of a region make; nothing if they are neither a shape nor a text."""
    try:
        shapes = [item for item in items if _has_shape(item)]
        texts = [item for item in items if item.get("type") == "textarea"]
        if not shapes and not texts:
            return
        outline = _outline(shapes[0]) if shapes else None
        text = _region_text(texts)
    except DataError as error:
        yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
        return
    if shapes and outline is None:
        message = f"its shape is {shapes[0].get('type')!r}, not a rectangle or a polygon"
        yield Skipped(SkipReason.NO_OUTLINE, where, message)
    else:
        yield Line(text, where, outline)


def _has_shape(item: Mapping[str, Any]) -> bool:
    value = item.get("value")
    if item.get("type") == "textarea":
        return isinstance(value, dict) and ("x" in value or "points" in value)
    return str(item.get("type")) not in _WITHOUT_SHAPE


def _region_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the text that was typed; of several fields, the one with a usual name."""
    if len(items) > 1:
        usual = [item for item in items if item.get("from_name") in _TEXT_NAMES]
        if len(usual) != 1:
            names = ", ".join(writable(item.get("from_name")) for item in items)
            raise DataError(f"the region has {len(items)} texts: {names}"[:300], code="region-texts-ambiguous")
        items = usual
    value = items[0].get("value") if items else None
    return _join_text(value.get("text") if isinstance(value, dict) else None)


def _join_text(text: object) -> str:
    """Join the parts of a text as lines."""
    parts = text if isinstance(text, list) else [text]
    return "\n".join(part for part in parts if isinstance(part, str))


def _json_min_text(task: Mapping[str, Any]) -> str:
    """Return the text of a JSON_MIN task, which does not say which box a text belongs to."""
    if any(isinstance(value, list) and any(isinstance(part, dict) for part in value) for value in task.values()):
        raise DataError(
            "JSON_MIN does not tell which text belongs to which box; export as JSON", code="json-min-ambiguous"
        )
    name = next((name for name in _TEXT_NAMES if isinstance(task.get(name), str | list)), None)
    if name is None:
        has = ", ".join(map(writable, task))
        raise DataError(f"it has no text called {', '.join(_TEXT_NAMES)}; it has: {has}"[:300], code="text-missing")
    return _join_text(task[name])


def _image_reference(task: Mapping[str, Any]) -> str:
    """Return what the task says its image is."""
    data = task.get("data", task)
    texts = {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}
    usual = [texts[name] for name in _IMAGE_NAMES if name in texts]
    images = [value for value in texts.values() if PurePosixPath(value).suffix.lower() in IMAGE_SUFFIXES]
    if not usual and not images:
        raise DataError("the task names no image", code="image-unnamed")
    return (usual or images)[0]


def _file_names(reference: str) -> list[str]:
    """Return possible file names of an image: with its folder or alone, with Label Studio's prefix or without."""
    try:
        parts = urlsplit(reference.replace("\\", "/"))
        local_path = parse_qs(parts.query).get("d", [""])[0]
    except ValueError as error:
        raise DataError(f"the task's image is no address: {error}", code="image-address-invalid") from error
    path = PurePosixPath(local_path or unquote(parts.path))
    names = [path.name, _UPLOAD_PREFIX.sub("", path.name)]
    if local_path and path.parent.name:
        names.insert(0, f"{path.parent.name}/{path.name}")
    return list(dict.fromkeys(names))


def _stated_size(task: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the image size that the annotations of a task were made for."""
    items = [item for annotation in _dicts(task.get("annotations")) for item in _dicts(annotation.get("result"))]
    return next((size for item in items if (size := _size(item))), None)


def _size(item: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = item.get("original_width"), item.get("original_height")
    if isinstance(width, int) and isinstance(height, int) and width in _SIDES and height in _SIDES:
        return width, height
    return None


def _outline(item: Mapping[str, Any]) -> Outline | None:
    """Return the outline in pixels; None for shapes that are neither rectangles nor polygons."""
    value, size = item.get("value"), _size(item)
    if not isinstance(value, dict) or not ({"x", "y", "width", "height"} <= value.keys() or "points" in value):
        return None
    if size is None:
        raise DataError("the region does not say how large its image is", code="image-size-missing")
    if item.get("image_rotation"):
        raise DataError(
            "the image was turned in Label Studio: turn the file itself, and annotate that", code="image-rotated"
        )
    if "points" in value:
        return _polygon(value["points"], size)
    left, top, width, height = (_number(value[name]) for name in ("x", "y", "width", "height"))
    angle = math.radians(_number(value.get("rotation") or 0))
    corners = [(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)]
    # The rotation is clockwise about the upper left corner, and in pixels: percentages across and down differ.
    across, down = size[0] / 100, size[1] / 100
    pixels = [
        (
            round(left * across + x * across * math.cos(angle) - y * down * math.sin(angle)),
            round(top * down + x * across * math.sin(angle) + y * down * math.cos(angle)),
        )
        for x, y in corners
    ]
    if angle:
        return Outline.of_polygon(tuple(pixels))
    return Outline((*pixels[0], *pixels[2]))


def _polygon(points: object, size: tuple[int, int]) -> Outline:
    pairs = [pair for pair in points if isinstance(pair, list) and len(pair) == 2] if isinstance(points, list) else []
    if len(pairs) < 3 or len(pairs) != len(points):  # type: ignore[arg-type]
        raise DataError("its polygon is no list of three points or more", code="polygon-invalid")
    corners: list[Point] = [(round(_number(x) * size[0] / 100), round(_number(y) * size[1] / 100)) for x, y in pairs]
    return Outline(bounds(corners), tuple(corners))


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) <= _LARGEST_PERCENTAGE:
        raise DataError(f"a coordinate is no number on an image: {str(value)[:40]!r}", code="coordinates-invalid")
    return float(value)


def _dicts(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


FORMATS = (
    Format(
        name="label-studio",
        title="exports of Label Studio",
        find=find_label_studio,
        read=read_label_studio,
        example="project-1.json -o data/mine",
    ),
)
