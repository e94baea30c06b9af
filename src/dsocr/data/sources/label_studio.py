"""Exports of Label Studio: JSON, where the parts of a region share an id, and JSON_MIN where a text is a whole image's.

The newest annotation of an image that was not cancelled is taken. What a region is, `label_studio_regions.py` knows.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files, relative
from dsocr.data.sources.label_studio_regions import joined_text, read_regions, stated_size
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage, SourceLine
from dsocr.data.sources.pictures import Pictures
from dsocr.data.sources.texts import head, read_json, writable
from dsocr.data.splits import split_of_folder, split_of_name
from dsocr.errors import DataError
from dsocr.samples import Split

_HEAD = re.compile(rb'\A\s*\[\s*\{.*"(?:annotations"\s*:\s*\[|annotation_id"\s*:|lead_time"\s*:)', re.DOTALL)
_IMAGE_NAMES = ("image", "ocr", "captioning", "img")
_TEXT_NAMES = ("transcription", "text", "caption")
_UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts in front of the name of an uploaded file."""


def find_label_studio(source: Path) -> list[Path]:
    """The exports in a folder, judged by their first kilobytes, or the one file that was named."""
    files = [source] if source.is_file() and source.suffix.lower() == ".json" else list_files(source, {".json"})
    return [path for path in files if _HEAD.match(head(path))]


def read_label_studio(source: Path) -> Iterator[SourceImage | LeftOut]:
    """Every annotated image of every export."""
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    for path in find_label_studio(source):
        where = relative(path, root)
        try:
            tasks = read_json(path)
            if not isinstance(tasks, list):
                raise DataError("it is not a list of tasks")
        except DataError as error:
            yield LeftOut(Reason.BAD_SOURCE, where, error.message)
            continue
        split = split_of_name(path.stem) or split_of_folder(path.relative_to(root).parent)
        for number, task in enumerate(tasks, start=1):
            yield from _Task(path, root, pictures, split, f"{where}#{number}").read(task)


@dataclass(frozen=True, slots=True)
class _Task:
    """What one task is read with; `where` is its place in the export."""

    path: Path
    root: Path
    pictures: Pictures
    split: Split | None
    where: str

    def read(self, task: object) -> Iterator[SourceImage | LeftOut]:
        if not isinstance(task, dict):
            yield LeftOut(Reason.BAD_SOURCE, self.where, "the task is not a JSON object")
            return
        reason = Reason.NO_IMAGE
        try:
            image = self._image(_reference(task))
            reason = Reason.BAD_SOURCE
            found = self._lines(task)
        except DataError as error:
            yield LeftOut(reason, self.where, error.message)
            return
        yield from (item for item in found if isinstance(item, LeftOut))
        lines = tuple(item for item in found if isinstance(item, SourceLine))
        if not lines:
            return
        name = relative(image.with_suffix(""), self.root)
        lost = tuple(SourceLine("", item.where) for item in found if isinstance(item, LeftOut) and item.reason.is_fault)
        yield SourceImage(image, name, self.where, lines, stated_size(task), page=name, split=self.split, lost=lost)

    def _image(self, reference: str) -> Path:
        names = _names(reference)
        for name in names:
            try:
                return self.pictures.find(name, near=self.path.parent)
            except DataError as error:
                problem = error
        raise DataError(f"{problem.message}, which {reference[:200]!r} names")

    def _lines(self, task: Mapping[str, Any]) -> list[SourceLine | LeftOut]:
        if not isinstance(task.get("annotations"), list):
            return [SourceLine(_short_text(task), self.where)]
        chosen, left_out = _newest(task["annotations"], self.where)
        return [*left_out, *(read_regions(chosen, self.where) if chosen else ())]


def _newest(annotations: list[Any], where: str) -> tuple[dict[str, Any] | None, list[LeftOut]]:
    """The annotation that counts, and the others: cancelled, or older."""
    told = [annotation for annotation in annotations if isinstance(annotation, dict)]
    kept = [annotation for annotation in told if not annotation.get("was_cancelled")]
    left_out = [
        LeftOut(Reason.NO_TRANSCRIPTION, where, "the annotation was cancelled") for _ in range(len(told) - len(kept))
    ]
    if not told:
        left_out = [LeftOut(Reason.NO_TRANSCRIPTION, where, "the image is not annotated")]
    if not kept:
        return None, left_out
    # Their times are written so that the later one is the greater text; of equal ones the last counts.
    chosen = max(reversed(kept), key=lambda annotation: str(annotation.get("updated_at") or ""))
    older = LeftOut(Reason.SUPERSEDED, where, "the image has a newer annotation")
    return chosen, left_out + [older] * (len(kept) - 1)


def _short_text(task: Mapping[str, Any]) -> str:
    """The text of a JSON_MIN task, which keeps no link between a box and its text."""
    if any(isinstance(value, list) and any(isinstance(part, dict) for part in value) for value in task.values()):
        raise DataError("JSON_MIN does not tell which text belongs to which box; export as JSON")
    name = next((name for name in _TEXT_NAMES if isinstance(task.get(name), str | list)), None)
    if name is None:
        raise DataError(
            f"it has no text called {', '.join(_TEXT_NAMES)}; it has: {', '.join(map(writable, task))}"[:300]
        )
    return joined_text(task[name])


def _reference(task: Mapping[str, Any]) -> str:
    """What the task says its image is."""
    data = task.get("data", task)
    held = {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}
    usual = [held[name] for name in _IMAGE_NAMES if name in held]
    images = [value for value in held.values() if PurePosixPath(value).suffix.lower() in IMAGE_SUFFIXES]
    if not usual and not images:
        raise DataError("the task names no image")
    return (usual or images)[0]


def _names(reference: str) -> list[str]:
    """The names an image may have in the folder: below its own folder or alone, with Label Studio's prefix or not."""
    try:
        parts = urlsplit(reference.replace("\\", "/"))
        asked = parse_qs(parts.query).get("d", [""])[0]
    except ValueError as error:
        raise DataError(f"the task's image is no address: {error}") from error
    path = PurePosixPath(asked or unquote(parts.path))
    alone = [path.name, _UPLOAD_PREFIX.sub("", path.name)]
    return list(dict.fromkeys([f"{path.parent.name}/{path.name}", *alone] if asked and path.parent.name else alone))
