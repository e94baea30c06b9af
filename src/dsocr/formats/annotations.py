"""Texts drawn on images: COCO files with texts, and exports of Label Studio.

Each annotation of a COCO file, as school_notebooks and Digital Peter are published, is a line cut by its polygon, even
if it is a single word; categories and labels are the types of regions. Neither format states a reading order, so lines
are sorted by their places.

Exports of Label Studio are JSON, where the parts of a region share an id, or JSON_MIN, with one text per image. Of an
image's annotations that were not cancelled, the ground truth is read, else the newest; predictions are not read.
"""

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from dsocr.document import Item, Line, Note, Outline, Page, Region, Skipped, SkipReason, bounds
from dsocr.errors import DataError
from dsocr.formats.format import (
    Columns,
    Format,
    SourceFile,
    outlined_page,
    read_files,
    round_points,
    source_files,
    stated_size,
)
from dsocr.formats.tables import USUAL_NAMES
from dsocr.formats.xml import summarize
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, read_json, writable
from dsocr.io.files import list_files
from dsocr.outlines import reading_rows
from dsocr.text import is_right_to_left

ItemT = TypeVar("ItemT")

_COCO = re.compile(rb'\A\s*\{.*"(?:images|annotations)"\s*:\s*\[', re.DOTALL)
_NO_COCO = re.compile(rb'"(?:messages|conversations|@context)"\s*:')
"""Keys of conversations and of IIIF."""
_COCO_TEXTS = ("translation", "utf8_string", *USUAL_NAMES["text"])


def find_coco(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the COCO files of a folder, judged by their first kilobytes, or the one file named."""
    heads = ((path, head(path)) for path in source_files(source, {".json"}))
    return [path for path, start in heads if _COCO.match(start) and not _NO_COCO.search(start)]


def _read_coco_file(file: SourceFile, columns: Columns) -> Iterator[Item]:
    """Read the images in the file's order; the text is an attribute with a usual name, or the one of `columns`."""
    text_names = (columns["text"],) if "text" in columns else _COCO_TEXTS
    data = read_json(file.path)
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in ("images", "annotations")):
        raise DataError("it has no lists of images and annotations", code="annotation-invalid")
    types = {str(category.get("id")): str(category.get("name", "")) for category in _dicts(data.get("categories"))}
    items: list[Item] = []
    by_image: dict[str, list[Line | Skipped]] = defaultdict(list)
    for number, annotation in enumerate(data["annotations"], start=1):
        if isinstance(annotation, dict) and "image_id" in annotation:
            by_image[str(annotation["image_id"])].append(_read_annotation(file, annotation, text_names, types))
        else:
            items.append(Skipped(SkipReason.BAD_SOURCE, f"{file.where}#{number}", "the annotation names no image"))
    for number, entry in enumerate(data["images"], start=1):
        if isinstance(entry, dict) and "id" in entry:
            items += _read_image(file, entry, by_image.pop(str(entry["id"]), []))
        else:
            items.append(Skipped(SkipReason.BAD_SOURCE, f"{file.where}#{number}", "the image has no id"))
    for image_id, orphans in by_image.items():
        message = f"no image has the id {image_id!r}, or an earlier one has it too"
        items += (Skipped(SkipReason.NO_IMAGE, orphan.where, message) for orphan in orphans)
    yield from _arrange(_require_own(items), file.where)
    read = [list(_texts(annotation, text_names).items()) for annotation in _dicts(data["annotations"])]
    unread = Counter(name for (_, text), *others in filter(None, read) for name, other in others if other != text)
    for name, count in unread.items():
        message = f"{count} annotations also have another text in {name}, which column text={name} reads instead"
        yield Note(f"{file.where}: {message}")


def _texts(annotation: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Return the texts of an annotation by the names of their fields, the one to be read first."""
    attributes = annotation.get("attributes")
    values = {**annotation, **attributes} if isinstance(attributes, dict) else annotation
    return {name: text for name in names if isinstance(text := values.get(name), str) and text.strip()}


def _read_annotation(
    file: SourceFile, annotation: Mapping[str, Any], text_names: Sequence[str], types: Columns
) -> Line | Skipped:
    """Return an annotation as a line, which is a region of the type that its category is."""
    id_ = writable(annotation.get("id", "?"))
    where = f"{file.where}#{id_}"
    text = next(iter(_texts(annotation, text_names).values()), "")
    kind = types.get(str(annotation.get("category_id")), "")
    try:
        return Line(text, where, _shape_outline(annotation), Region(id_, kind=kind) if kind else None)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, where, error.message)


def _read_image(file: SourceFile, entry: Mapping[str, Any], lines: Sequence[Line | Skipped]) -> Iterable[Item]:
    name = str(entry.get("file_name", ""))
    where = f"{file.where}#{writable(name)}"
    if not lines:
        return [Skipped(SkipReason.NO_TRANSCRIPTION, where, "nothing on the image is annotated")]
    size = stated_size(entry.get("width"), entry.get("height"))
    return outlined_page(file.find_page(name, where, size=size, split=file.split), lines)


def _shape_outline(annotation: Mapping[str, Any]) -> Outline | None:
    """Return the polygon; a box around several parts; the box if the shape is a mask or missing."""
    parts = annotation.get("segmentation")
    if isinstance(parts, list) and parts:
        polygons = [round_points(_pairs(part)) for part in (parts if isinstance(parts[0], list) else [parts])]
        polygons = [polygon for polygon in polygons if len(polygon) >= 3]
        if len(polygons) == 1:
            return Outline.of_polygon(polygons[0])
        if polygons:
            return Outline(bounds(point for polygon in polygons for point in polygon))
    box = annotation.get("bbox")
    if not isinstance(box, list) or len(box) != 4:
        return None
    (left, top), (width, height) = round_points(_pairs(box))
    return Outline((left, top, left + width, top + height))


def _pairs(numbers: Any) -> Iterator[tuple[float, float]]:
    """Yield points written as one row of numbers."""
    yield from zip(numbers[::2], numbers[1::2], strict=True)


def _require_own(items: Collection[ItemT]) -> list[ItemT | Skipped]:
    """Return the items, but skip the pages whose image file several images of the source could be."""
    claims: dict[Path, set[str]] = defaultdict(set)
    for item in items:
        if isinstance(item, Page):
            claims[item.image].add(item.where)
    kept: list[ItemT | Skipped] = []
    for item in items:
        if isinstance(item, Page) and len(claims[item.image]) > 1:
            listed = ", ".join(sorted(claims[item.image]))[:200]
            message = f"several images could be {item.image.name}; keep their names and folders: {listed}"
            kept.append(Skipped(SkipReason.NO_IMAGE, item.where, message))
        else:
            kept.append(item)
    return kept


def _arrange(items: Sequence[Item], where: str) -> Iterator[Item]:
    """Yield the items of a file with the lines of its pages in reading order, and without types that have no texts."""
    lines = [line for item in items if isinstance(item, Page) for line in item.lines]
    written = {line.region.kind for line in lines if line.region and line.text.strip()}
    notes: list[tuple[str, str]] = []
    for item in items:
        if not isinstance(item, Page):
            yield item
            continue
        kept = []
        for line in item.lines:
            if written and line.region and line.region.kind not in written:
                message = f"are of the type {line.region.kind}, which has no texts"
                notes.append((message, line.where))
                yield Skipped(SkipReason.NO_TEXT, line.where, f"nothing of the type {line.region.kind} has a text")
            else:
                kept.append(line)
        ordered = _sort_lines(kept)
        message = "are given as a whole and in parts, so pages have both; choose regions of one type"
        notes += [(message, where) for where in _repeated(kept)]
        message = "are sorted by their places, because the file states no reading order"
        notes += [(message, line.where) for line, old in zip(ordered, kept, strict=True) if line.where != old.where]
        message = "are words, and a page has those of a row in one line"
        notes += [(message, line.where) for line in ordered if line.row is not None]
        if kept:
            yield replace(item, lines=tuple(ordered))
    yield from (Note(f"{where}: {message}") for message in summarize(notes))


def _repeated(lines: Sequence[Line]) -> list[str]:
    """Return the places of lines that have the words of other lines again, whose middles are inside them."""
    placed = [(line, set(line.text.split()), line.outline.box) for line in lines if line.outline]
    boxes = np.array([box for _, _, box in placed]).reshape(-1, 4)
    across, down = boxes[:, [0, 2]].mean(axis=1), boxes[:, [1, 3]].mean(axis=1)
    repeated = []
    for line, words, (left, top, right, bottom) in placed:
        inside = np.flatnonzero((left < across) & (across < right) & (top < down) & (down < bottom))
        if any(placed[number][1] and placed[number][1] < words for number in inside.tolist()):
            repeated.append(line.where)
    return repeated


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


_EXPORT = re.compile(
    rb'\A\s*\[\s*\{.*"(?:annotations"\s*:\s*\[|predictions"\s*:\s*\[\s*\{\s*"|annotation_id"\s*:|lead_time"\s*:)',
    re.DOTALL,
)
_IMAGE_NAMES = ("image", "ocr", "captioning", "img")
_TEXT_NAMES = (*USUAL_NAMES["text"], "caption")
_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""Prefix that Label Studio adds to the name of an uploaded file."""
_WITHOUT_SHAPE = frozenset({"labels", "choices", "rating", "number", "taxonomy", "pairwise", "datetime", "relation"})


def find_label_studio(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the exports in a folder, judged by their first kilobytes, or the one file named."""
    return [path for path in source_files(source, {".json"}) if _EXPORT.match(head(path))]


@dataclass(frozen=True, slots=True)
class _Export:
    """Facts about an export that only all of its tasks tell.

    `fields` counts the texts in each text field of each image of the labeling configuration, `pages` are the pages of
    the images that the tasks name.
    """

    columns: Columns
    fields: Mapping[str, Counter[str]]
    pages: Mapping[str, Page | Skipped]

    def text_field(self, target: str) -> str:
        """Return the field that holds the transcriptions of an image. Raises DataError if several could."""
        names = list(self.fields[target])
        usual = [name for name in names if re.split(r"[\W\d_]", name.casefold())[0] in _TEXT_NAMES]
        likely = [self.columns["text"]] if "text" in self.columns else usual if len(names) > 1 else names
        if len(likely) != 1:
            listed = ", ".join(map(writable, names))[:200]
            message = f"any of the fields {listed} could hold the transcription; name it as the column `text`"
            raise DataError(message, code="annotation-invalid")
        return likely[0]

    def image_of(self, result: Mapping[str, Any], images: Mapping[str, list[str]]) -> str:
        """Return the image of the task that a region is on. Raises DataError if that is not certain."""
        target, is_only = _target(result), len(images) == len(self.fields) == 1
        names = images.get(target) or (next(iter(images.values())) if is_only else [])
        place = result.get("item_index", 0 if len(names) == 1 else None)
        if not isinstance(place, int) or not 0 <= place < len(names):
            message = f"it is on {writable(target)}, none of the images {', '.join(map(writable, images))[:200]}"
            raise DataError(f"{message}; name it so, or name the column `image`", code="annotation-invalid")
        return names[place]


def _read_export(file: SourceFile, columns: Columns) -> Iterator[Item]:
    rows = read_json(file.path)
    if not isinstance(rows, list):
        raise DataError("it is not a list of tasks", code="annotation-invalid")
    tasks, items = _whole_tasks(file, rows, columns)
    annotations = [annotation for task in tasks.values() for annotation in _dicts(task.get("annotations"))]
    fields: dict[str, Counter[str]] = defaultdict(Counter)
    predicted = 0
    for result in (result for annotation in annotations for result in _dicts(annotation.get("result"))):
        is_text = result.get("type") == "textarea"
        if is_text or _has_shape(result):
            fields[_target(result)].update([str(result.get("from_name"))] if is_text else [])
        predicted += is_text and result.get("origin") == "prediction"
    references = [name for task in tasks.values() for names in _images(task, columns).values() for name in names]
    export = _Export(columns, fields, _find_pages(file, references))
    for where, task in tasks.items():
        items += _read_task(export, task, where)
    yield from _arrange(items, file.where)
    for target, names in fields.items():
        with suppress(DataError):
            field = export.text_field(target)
            for name in names.keys() - {field}:
                others = f"{names[name]} texts in {writable(name)} are not read"
                yield Note(f"{file.where}: transcriptions are in the field {writable(field)}; {others}")
    if predicted:
        yield Note(f"{file.where}: {predicted} texts are a model's, and were submitted without a change")


def _whole_tasks(
    file: SourceFile, rows: Sequence[object], columns: Columns
) -> tuple[dict[str, dict[str, Any]], list[Item]]:
    """Return the tasks by their places, JSON_MIN's rows of one task joined, and the rows that are none."""
    tasks: dict[str, dict[str, Any]] = {}
    places: dict[object, str] = {}
    skipped: list[Item] = []
    for number, row in enumerate(rows, start=1):
        where = f"{file.where}#{number}"
        try:
            if not isinstance(row, dict):
                raise DataError("the task is not a JSON object", code="annotation-invalid")
            if isinstance(row.get("annotations"), list) or isinstance(row.get("predictions"), list):
                tasks[where] = row
            else:
                annotation, place = _widen(row, columns), places.setdefault(str(row.get("id", where)), where)
                tasks.setdefault(place, {"data": row, "annotations": []})["annotations"].append(annotation)
        except DataError as error:
            skipped.append(Skipped(SkipReason.BAD_SOURCE, where, error.message))
    return tasks, skipped


def _widen(row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Return the annotation that a row of JSON_MIN has, which does not say which box a text belongs to."""
    if any(_dicts(value) for value in row.values()):
        message = "JSON_MIN does not tell which text belongs to which box; export as JSON"
        raise DataError(message, code="annotation-invalid")
    names = [columns["text"]] if "text" in columns else _TEXT_NAMES
    texts = {name: row[name] for name in names if isinstance(row.get(name), str | list)}
    if len({str(text) for text in texts.values()}) != 1:
        has = ", ".join(map(writable, texts or row))[:200]
        message = f"it has {'several texts' if texts else 'no text'}; name one of {has} as the column `text`"
        raise DataError(message, code="annotation-invalid")
    name, text = next(iter(texts.items()))
    result = {"type": "textarea", "from_name": name, "value": {"text": text}}
    return {**row, "id": row.get("annotation_id"), "result": [result]}


def _images(task: Mapping[str, Any], columns: Columns) -> dict[str, list[str]]:
    """Return the images of a task as they are named there, by their keys; one key can have several."""
    data = task.get("data")
    images = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        names = value if isinstance(value, list) else [value]
        if names and all(isinstance(name, str) for name in names):
            suffixes = {PurePosixPath(part).suffix.lower() for name in names for part in (name, name.partition("?")[0])}
            is_image = key in _IMAGE_NAMES or not suffixes.isdisjoint(IMAGE_SUFFIXES)
            if key == columns["image"] if "image" in columns else is_image:
                images[key] = names
    return images


def _find_pages(file: SourceFile, references: Iterable[str]) -> dict[str, Page | Skipped]:
    """Return the page of each image; a file that several images could be is the page of none."""
    stored: dict[str, set[str]] = defaultdict(set)
    for path in list_files(file.root, IMAGE_SUFFIXES):
        stored[_stored_name(path.name)].add(path.name)
    pages: dict[str, Page | Skipped] = {}
    for reference in dict.fromkeys(references):
        try:
            parts = urlsplit(reference.replace("\\", "/"))
            address = PurePosixPath(parse_qs(parts.query).get("d", [""])[0] or unquote(parts.path))
        except ValueError as error:
            pages[reference] = Skipped(SkipReason.NO_IMAGE, "", f"the task's image is no address: {error}")
            continue
        plain = _UPLOAD_PREFIX.sub("", address.name)
        names = [f"{address.parent.name}/{address.name}".lstrip("/"), address.name, plain]
        names += stored[_stored_name(plain)] if len(stored[_stored_name(plain)]) == 1 else ()
        tried = [file.find_page(name, str(address), split=file.split) for name in names]
        page = next((page for page in tried if isinstance(page, Page)), tried[2])
        if isinstance(page, Skipped):
            page = replace(page, message=f"{page.message}, which {reference[:200]!r} names")
        pages[reference] = page
    return dict(zip(pages, _require_own(pages.values()), strict=True))


def _stored_name(name: str) -> str:
    """Return a file name as Label Studio stores it: with underscores for spaces, without other signs."""
    return re.sub(r"[^-\w.]", "", unicodedata.normalize("NFC", name).strip().replace(" ", "_"))


def _read_task(export: _Export, task: Mapping[str, Any], where: str) -> Iterator[Item]:
    images = _images(task, export.columns)
    if not images:
        yield Skipped(SkipReason.NO_IMAGE, where, "the task names no image")
        return
    annotation, skipped = _choose_annotation(task, where)
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    astray: dict[str, Skipped] = {}
    for result in _dicts(annotation.get("result")):
        try:
            if result.get("type") != "relation":
                results[export.image_of(result, images)].append(result)
        except DataError as error:
            place = f"{where}#{writable(result.get('id'))}"
            astray[place] = Skipped(SkipReason.BAD_SOURCE, place, error.message)
    yield from [*skipped, *astray.values()]
    named = list(dict.fromkeys(name for names in images.values() for name in names))
    for name in named if annotation else ():
        place = where if len(named) == 1 else f"{where}#{writable(PurePosixPath(name).name)}"
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by region; a text without one is the image's
        for number, result in enumerate(results[name]):
            groups[str(result.get("id", number))].append(result)
        read = (_read_region(export, parts, f"{where}#{writable(id_)}") for id_, parts in groups.items())
        page, items = export.pages[name], tuple(item for item in read if item is not None)
        if not items:
            yield from [] if astray else [Skipped(SkipReason.NO_TRANSCRIPTION, place, "nothing on it is annotated")]
        elif isinstance(page, Skipped):
            yield replace(page, where=place)
        else:
            size = next((size for result in results[name] if (size := _size(result))), None)
            page = replace(page, size=size, where=place, skipped=tuple(Line("", place) for place in astray))
            lines = tuple(item for item in items if isinstance(item, Line))
            is_only = len(lines) == len(items) == 1
            yield from [replace(page, lines=lines, page=page.name)] if is_only else outlined_page(page, items)


def _choose_annotation(task: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], list[Skipped]]:
    """Return the ground truth among the annotations, else the newest, and why the others are skipped."""
    annotations = _dicts(task.get("annotations"))
    kept = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
    cancelled = Skipped(SkipReason.NO_TRANSCRIPTION, where, "the annotation was cancelled")
    skipped = [cancelled] * (len(annotations) - len(kept))
    if not kept:
        predicted = ", only predicted by a model" if task.get("predictions") else ""
        return {}, skipped or [Skipped(SkipReason.NO_TRANSCRIPTION, where, f"the image is not annotated{predicted}")]
    # ISO 8601 times compare as texts; of equal ones the last counts.
    chosen = max(reversed(kept), key=lambda each: (bool(each.get("ground_truth")), str(each.get("updated_at") or "")))
    why = "the ground truth" if chosen.get("ground_truth") else "newer"
    for other in kept:
        if other is not chosen:
            message = f"annotation {writable(other.get('id'))} is not read: {writable(chosen.get('id'))} is {why}"
            skipped.append(Skipped(SkipReason.SUPERSEDED, where, message))
    return chosen, skipped


def _read_region(export: _Export, items: Sequence[Mapping[str, Any]], where: str) -> Line | Skipped | None:
    """Return the line that the parts of a region make; None if they are neither a shape nor a transcription."""
    shapes = [item for item in items if _has_shape(item)]
    texts = [item for item in items if item.get("type") == "textarea"]
    try:
        texts = [item for item in texts if str(item.get("from_name")) == export.text_field(_target(item))]
        if not shapes and not texts:
            return None
        outline = _region_outline(shapes[0]) if shapes else None
        text = _region_text(texts)
    except DataError as error:
        return Skipped(SkipReason.BAD_SOURCE, where, error.message)
    if shapes and outline is None:
        message = f"its shape is {shapes[0].get('type')!r}, not a rectangle or a polygon"
        return Skipped(SkipReason.NO_OUTLINE, where, message)
    labels = [label for item in items for label in _entries(item, str(item.get("type")))]
    return Line(text, where, outline, Region(where, kind=labels[0]) if labels and outline else None)


def _has_shape(item: Mapping[str, Any]) -> bool:
    value = item.get("value")
    if item.get("type") == "textarea":
        return isinstance(value, dict) and ("x" in value or "points" in value)
    return str(item.get("type")) not in _WITHOUT_SHAPE


def _region_text(items: Sequence[Mapping[str, Any]]) -> str:
    """Return the only text that was entered. Raises DataError if there are several, as after a correction."""
    texts = list(dict.fromkeys(text for item in items for text in _entries(item, "text") if text.strip()))
    if len(texts) > 1:
        listed = ", ".join(repr(writable(text)) for text in texts)[:200]
        message = f"{len(texts)} texts were entered for it: {listed}; keep the right one in Label Studio"
        raise DataError(message, code="annotation-invalid")
    return texts[0] if texts else ""


def _entries(item: Mapping[str, Any], name: str) -> list[str]:
    value = item.get("value")
    entries = value.get(name) if isinstance(value, dict) else None
    return [entry for entry in (entries if isinstance(entries, list) else [entries]) if isinstance(entry, str)]


def _target(result: Mapping[str, Any]) -> str:
    """Return the image of the labeling configuration that a result is about."""
    return str(result.get("to_name"))


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

    def corners() -> Iterator[tuple[float, float]]:
        if "points" in value:
            yield from ((x * across, y * down) for x, y in value["points"])
            return
        # The rotation is clockwise about the upper left corner, and in pixels: percentages across and down differ.
        left, top, angle = value["x"] * across, value["y"] * down, math.radians(value.get("rotation") or 0)
        width, height = value["width"] * across, value["height"] * down
        for x, y in ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height)):
            yield left + x * math.cos(angle) - y * math.sin(angle), top + x * math.sin(angle) + y * math.cos(angle)

    points = round_points(corners())
    if len(points) < 3:
        raise DataError("its polygon is no list of three points or more", code="annotation-invalid")
    is_box = "points" not in value and not value.get("rotation")
    return Outline((*points[0], *points[2])) if is_box else Outline.of_polygon(points)


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
        read=lambda source, columns: read_files(
            source, find_label_studio(source), partial(_read_export, columns=columns)
        ),
        example="project-1.json -o data/mine",
        takes_columns=True,
    ),
)
