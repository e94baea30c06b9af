"""Texts drawn on images: COCO files with texts, and exports of Label Studio.

Each annotation of a COCO file, as school_notebooks and Digital Peter are published, is a line cut by its polygon, even
if it is a single word; categories and labels are the types of regions. Neither format states a reading order, so lines
are sorted by their places.

Exports of Label Studio are JSON, where the parts of a region share an id, or JSON_MIN, with one text per image. Of an
image's annotations that were not cancelled, the ground truth is read, else the newest; predictions are not read.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dsocr.document import Item, Line, Note, Outline, Page, Point, Region, Skipped, SkipReason, bounds
from dsocr.errors import DataError
from dsocr.formats.format import LARGEST_COORDINATE, Columns, Format, SourceFile, read_files, source_files, stated_size
from dsocr.formats.tables import USUAL_NAMES
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_json, writable
from dsocr.outlines import reading_rows
from dsocr.text import is_right_to_left

_COCO = re.compile(rb'\A\s*\{.*"(?:images|annotations)"\s*:\s*\[', re.DOTALL)
_CONVERSATIONS = re.compile(rb'"(?:messages|conversations)"\s*:')
_COCO_TEXTS = ("translation", "utf8_string", *USUAL_NAMES["text"])


def find_coco(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the COCO files of a folder, judged by their first kilobytes, or the one file named."""
    heads = ((path, head(path)) for path in source_files(source, {".json"}))
    return [path for path, start in heads if _COCO.match(start) and not _CONVERSATIONS.search(start)]


def _read_coco_file(file: SourceFile, columns: Columns) -> Iterator[Item]:
    """Read the images with their annotations, in the order of the file.

    The text is an attribute with a usual name, or the one that `columns` names.
    """
    text_names = (columns["text"],) if "text" in columns else _COCO_TEXTS
    data = read_json(file.path)
    entries, annotations = _list(data, "images"), _list(data, "annotations")
    categories = _dicts(data.get("categories")) if isinstance(data, dict) else []
    types = {str(category.get("id")): str(category.get("name", "")) for category in categories}
    yield from _arrange(_read_images(file, entries, annotations, text_names, types), file.where)
    read = [list(_texts(annotation, text_names).items()) for annotation in _dicts(annotations)]
    unread = Counter(name for (_, text), *others in filter(None, read) for name, other in others if other != text)
    for name, count in unread.items():
        message = f"{count} annotations also have another text in {name}, which columns text={name} reads instead"
        yield Note(f"{file.where}: {message}")


def _texts(annotation: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return the texts of an annotation by the names of their fields, the one to be read first."""
    attributes = annotation.get("attributes")
    values = {**annotation, **attributes} if isinstance(attributes, dict) else annotation
    return {name: text for name in names if isinstance(text := values.get(name), str) and text.strip()}


def _read_images(
    file: SourceFile, entries: list[object], annotations: list[object], text_names: Sequence[str], types: Columns
) -> Iterator[Item]:
    by_image: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, annotation in enumerate(annotations, start=1):
        if isinstance(annotation, dict) and "image_id" in annotation:
            by_image[str(annotation["image_id"])].append(annotation)
        else:
            yield Skipped(SkipReason.BAD_SOURCE, f"{file.where}#{number}", "the annotation names no image")
    for number, entry in enumerate(entries, start=1):
        if isinstance(entry, dict) and "id" in entry:
            yield from _read_image(file, entry, by_image.pop(str(entry["id"]), []), text_names, types)
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
    file: SourceFile,
    entry: Mapping[str, Any],
    annotations: list[dict[str, Any]],
    text_names: Sequence[str],
    types: Mapping[str, str],
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
        text = next(iter(_texts(annotation, text_names).values()), "")
        line = Line(text, _place(file, annotation), region=_region(annotation, types))
        try:
            line = replace(line, outline=_shape_outline(annotation))
            fault = Skipped(SkipReason.NO_OUTLINE, line.where, "the annotation has neither a polygon nor a box")
        except DataError as error:
            fault = Skipped(SkipReason.BAD_SOURCE, line.where, error.message)
        if text and line.outline is None:
            yield fault
            skipped.append(line)
        else:
            lines.append(line)
    yield replace(page, lines=tuple(lines), page=page.name, skipped=tuple(skipped))


def _region(annotation: Mapping[str, Any], types: Mapping[str, str]) -> Region | None:
    """Return the annotation as a region of the type that its category is."""
    kind = types.get(str(annotation.get("category_id")), "")
    return Region(writable(annotation.get("id", "?")), kind=kind) if kind else None


def _shape_outline(annotation: Mapping[str, Any]) -> Outline | None:
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
    if not isinstance(numbers, list) or len(numbers) % 2:
        raise DataError("the coordinates are not a list of pairs", code="coordinates-invalid")
    rounded = [round(_number(number, LARGEST_COORDINATE)) for number in numbers]
    return tuple(zip(rounded[::2], rounded[1::2], strict=True))


def _arrange(items: Iterable[Item], where: str) -> Iterator[Item]:
    """Yield the items of a file with the lines of its pages in reading order, and without types that have no texts."""
    items = list(items)
    lines = [line for item in items if isinstance(item, Page) for line in item.lines]
    written = {line.region.kind for line in lines if line.region and line.text.strip()}
    without = Counter(line.region.kind for line in lines if written and line.region and line.region.kind not in written)
    changed, of_words = [], []
    for item in items:
        if not isinstance(item, Page):
            yield item
            continue
        kept = []
        for line in item.lines:
            if line.region and line.region.kind in without:
                yield Skipped(SkipReason.NO_TEXT, line.where, f"nothing of the type {line.region.kind} has a text")
            else:
                kept.append(line)
        ordered = _sort_lines(kept)
        changed += [item.where] if [line.where for line in ordered] != [line.where for line in kept] else []
        of_words += [item.where] if any(line.row is not None for line in ordered) else []
        if kept:
            yield replace(item, lines=tuple(ordered))
    for kind, count in without.items():
        yield Note(f"{where}: none of the {count} annotations of the type {kind} has a text")
    if changed:
        message = "the file states no reading order, so lines are sorted by their places"
        yield Note(f"{where}: {message} ({len(changed)} pages, first {changed[0]})")
    if of_words:
        message = "the lines are words, and a page has those of a row in one line"
        yield Note(f"{where}: {message} ({len(of_words)} pages, first {of_words[0]})")


def _sort_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page in reading order, the rows numbered if most lines are words; last those unplaced."""
    texts = [line.text for line in lines if line.text.strip()]
    are_words = 2 * sum(len(text.split()) == 1 for text in texts) > len(texts) > 1
    from_right = 2 * sum(map(is_right_to_left, texts)) > len(texts)
    placed = [(line, line.outline.box) for line in lines if line.outline]
    rows = reading_rows([box for _, box in placed], are_words=are_words, from_right=from_right)
    is_joined = any(len(row) > 1 for row in rows)
    ordered = [
        replace(placed[place][0], row=number if is_joined else None) for number, row in enumerate(rows) for place in row
    ]
    return ordered + [line for line in lines if line.outline is None]


_EXPORT = re.compile(rb'\A\s*\[\s*\{.*"(?:annotations"\s*:\s*\[|annotation_id"\s*:|lead_time"\s*:)', re.DOTALL)
_IMAGE_NAMES = ("image", "ocr", "captioning", "img")
_TEXT_NAMES = ("transcription", "text", "caption")
_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""Prefix that Label Studio adds to the name of an uploaded file."""
_LARGEST_PERCENTAGE = 1_000.0
"""Coordinates are percentages of the image's sides; anything larger is on no image."""
_WITHOUT_SHAPE = frozenset({"labels", "choices", "rating", "number", "taxonomy", "pairwise", "datetime", "relation"})


def find_label_studio(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the exports in a folder, judged by their first kilobytes, or the one file named."""
    return [path for path in source_files(source, {".json"}) if _EXPORT.match(head(path))]


def _read_export(file: SourceFile) -> Iterator[Item]:
    tasks = read_json(file.path)
    if not isinstance(tasks, list):
        raise DataError("it is not a list of tasks", code="annotation-invalid")
    for number, task in enumerate(tasks, start=1):
        yield from _read_task(file, task, f"{file.where}#{number}")


def _read_task(file: SourceFile, task: object, where: str) -> Iterator[Item]:
    if not isinstance(task, dict):
        yield Skipped(SkipReason.BAD_SOURCE, where, "the task is not a JSON object")
        return
    page = _task_page(file, task, where)
    if isinstance(page, Skipped):
        yield page
        return
    try:
        items = _read_annotations(task, where)
    except DataError as error:
        yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
        return
    skipped = [item for item in items if isinstance(item, Skipped)]
    yield from skipped
    if lines := tuple(item for item in items if isinstance(item, Line)):
        unusable = tuple(Line("", item.where) for item in skipped if item.reason.is_fault)
        results = (
            result for annotation in _dicts(task.get("annotations")) for result in _dicts(annotation.get("result"))
        )
        size = next((size for result in results if (size := _size(result))), None)
        yield replace(page, lines=lines, size=size, page=page.name, split=file.split, skipped=unusable)


def _task_page(file: SourceFile, task: Mapping[str, Any], where: str) -> Page | Skipped:
    try:
        reference = _image_reference(task)
        names = _file_names(reference)
    except DataError as error:
        return Skipped(SkipReason.NO_IMAGE, where, error.message)
    for name in names:
        page = file.find_page(name, where)
        if isinstance(page, Page):
            return page
    assert isinstance(page, Skipped)
    return replace(page, message=f"{page.message}, which {reference[:200]!r} names")


def _image_reference(task: Mapping[str, Any]) -> str:
    """Return the task's image as it is named there."""
    data = task.get("data", task)
    texts = {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}
    usual = [texts[name] for name in _IMAGE_NAMES if name in texts]
    images = [value for value in texts.values() if PurePosixPath(value).suffix.lower() in IMAGE_SUFFIXES]
    if not usual and not images:
        raise DataError("the task names no image", code="annotation-invalid")
    return (usual or images)[0]


def _file_names(reference: str) -> list[str]:
    """Return possible file names of an image: with its folder or alone, with Label Studio's prefix or without."""
    try:
        parts = urlsplit(reference.replace("\\", "/"))
        local_path = parse_qs(parts.query).get("d", [""])[0]
    except ValueError as error:
        raise DataError(f"the task's image is no address: {error}", code="annotation-invalid") from error
    path = PurePosixPath(local_path or unquote(parts.path))
    names = [path.name, _UPLOAD_PREFIX.sub("", path.name)]
    if local_path and path.parent.name:
        names.insert(0, f"{path.parent.name}/{path.name}")
    return names


def _read_annotations(task: Mapping[str, Any], where: str) -> list[Line | Skipped]:
    """Return the lines of the newest annotation, and why the others are skipped."""
    if not isinstance(task.get("annotations"), list):
        return [Line(_json_min_text(task), where)]
    annotations = _dicts(task["annotations"])
    kept = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
    cancelled = Skipped(SkipReason.NO_TRANSCRIPTION, where, "the annotation was cancelled")
    superseded = Skipped(SkipReason.SUPERSEDED, where, "the image has a newer annotation")
    skipped = [cancelled] * (len(annotations) - len(kept)) + [superseded] * (len(kept) - 1)
    if not kept:
        return [*skipped] or [Skipped(SkipReason.NO_TRANSCRIPTION, where, "the image is not annotated")]
    # ISO 8601 times compare as texts; of equal ones the last counts.
    newest = max(reversed(kept), key=lambda annotation: str(annotation.get("updated_at") or ""))
    return [*skipped, *_read_regions(newest, where)]


def _json_min_text(task: Mapping[str, Any]) -> str:
    """Return the text of a JSON_MIN task, which does not say which box a text belongs to."""
    if any(_dicts(value) for value in task.values()):
        message = "JSON_MIN does not tell which text belongs to which box; export as JSON"
        raise DataError(message, code="annotation-invalid")
    name = next((name for name in _TEXT_NAMES if isinstance(task.get(name), str | list)), None)
    if name is None:
        has = ", ".join(map(writable, task))
        raise DataError(
            f"it has no text called {', '.join(_TEXT_NAMES)}; it has: {has}"[:300], code="annotation-invalid"
        )
    return _join_text(task[name])


def _read_regions(annotation: Mapping[str, Any], where: str) -> list[Line | Skipped]:
    """Return a line for each region, in the order they were drawn; a text without a region is the whole image's."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, item in enumerate(_dicts(annotation.get("result"))):
        groups[str(item.get("id", number))].append(item)
    read = (_read_region(items, f"{where}#{writable(id_)}") for id_, items in groups.items())
    lines = [line for line in read if line is not None]
    if not lines:
        return [Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")]
    if len(lines) == 1:
        return lines
    message = "the text belongs to no region, and is not the only one"
    return [
        Skipped(SkipReason.NO_OUTLINE, line.where, message) if isinstance(line, Line) and line.outline is None else line
        for line in lines
    ]


def _read_region(items: Sequence[Mapping[str, Any]], where: str) -> Line | Skipped | None:
    """Return the line that the parts of a region make; None if they are neither a shape nor a text."""
    shapes = [item for item in items if _has_shape(item)]
    texts = [item for item in items if item.get("type") == "textarea"]
    if not shapes and not texts:
        return None
    try:
        outline = _region_outline(shapes[0]) if shapes else None
        text = _region_text(texts)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, where, error.message)
    if shapes and outline is None:
        message = f"its shape is {shapes[0].get('type')!r}, not a rectangle or a polygon"
        return Skipped(SkipReason.NO_OUTLINE, where, message)
    return Line(text, where, outline)


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
            raise DataError(f"the region has {len(items)} texts: {names}"[:300], code="annotation-invalid")
        items = usual
    value = items[0].get("value") if items else None
    return _join_text(value.get("text") if isinstance(value, dict) else None)


def _join_text(text: object) -> str:
    """Join the parts of a text as lines."""
    parts = text if isinstance(text, list) else [text]
    return "\n".join(part for part in parts if isinstance(part, str))


def _size(item: Mapping[str, Any]) -> tuple[int, int] | None:
    return stated_size(item.get("original_width"), item.get("original_height"))


def _region_outline(item: Mapping[str, Any]) -> Outline | None:
    """Return the outline in pixels; None for shapes that are neither rectangles nor polygons."""
    value, size = item.get("value"), _size(item)
    if not isinstance(value, dict) or not ({"x", "y", "width", "height"} <= value.keys() or "points" in value):
        return None
    if size is None:
        raise DataError("the region does not say how large its image is", code="annotation-invalid")
    if item.get("image_rotation"):
        message = "the image was turned in Label Studio: turn the file itself, and annotate that"
        raise DataError(message, code="image-rotated")
    across, down = size[0] / 100, size[1] / 100
    if "points" in value:
        points = value["points"]
        if (
            not isinstance(points, list)
            or len(points) < 3
            or not all(isinstance(point, list) and len(point) == 2 for point in points)
        ):
            raise DataError("its polygon is no list of three points or more", code="annotation-invalid")
        return Outline.of_polygon(tuple((round(_number(x) * across), round(_number(y) * down)) for x, y in points))
    left, top, width, height = (_number(value[name]) for name in ("x", "y", "width", "height"))
    angle = math.radians(_number(value.get("rotation") or 0))
    # The rotation is clockwise about the upper left corner, and in pixels: percentages across and down differ.
    pixels = tuple(
        (
            round(left * across + x * across * math.cos(angle) - y * down * math.sin(angle)),
            round(top * down + x * across * math.sin(angle) + y * down * math.cos(angle)),
        )
        for x, y in ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
    )
    return Outline.of_polygon(pixels) if angle else Outline((*pixels[0], *pixels[2]))


def _number(value: object, largest: float = _LARGEST_PERCENTAGE) -> float:
    if not isinstance(value, int | float) or not abs(value) <= largest:  # NaN is within no bound
        raise DataError(f"a coordinate is no number on an image: {str(value)[:40]!r}", code="coordinates-invalid")
    return float(value)


def _dicts(values: object) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


FORMATS = (
    Format(
        name="coco",
        title="COCO files with texts",
        find=find_coco,
        read=lambda source, columns: read_files(source, find_coco(source), partial(_read_coco_file, columns=columns)),
        example="school_notebooks_RU -o data/mine",
        takes_columns=True,
    ),
    Format(
        name="label-studio",
        title="exports of Label Studio",
        find=find_label_studio,
        read=lambda source, _: read_files(source, find_label_studio(source), _read_export),
        example="project-1.json -o data/mine",
    ),
)
