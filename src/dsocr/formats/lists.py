"""Lists of images and their texts as other programs keep them: .txt files with tabs, and JSON.

PaddleOCR, TrOCR and others write an image, a tab and its text into each line of `rec_gt_train.txt`. PPOCRLabel's
`Label.txt` has the lines of a page as JSON in place of the text. docTR's `labels.json` maps images to texts, and
`datasets` writes a list of rows, or one for each split.
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from dsocr.document import format_points
from dsocr.errors import DataError
from dsocr.formats.delimited import is_image
from dsocr.formats.format import round_points
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import head, parse_json
from dsocr.io.files import parse_split

_IMAGE = rb"[^\t\n\"]+\.(?:%b)" % b"|".join(suffix[1:].encode() for suffix in sorted(IMAGE_SUFFIXES))
_SPLITS = rb'"(?:data|train|training|validation|val|valid|dev|test|testing)"'
_HEAD = {
    ".txt": re.compile(rb"\A(?:\xef\xbb\xbf)?\s*%b\t" % _IMAGE, re.IGNORECASE),
    ".json": re.compile(
        rb'\A(?:\xef\xbb\xbf)?\s*(?:\{\s*"%b"\s*:\s*"|(?:\{\s*%b\s*:\s*)?\[\s*\{)' % (_IMAGE, _SPLITS), re.IGNORECASE
    ),
}
_STATES = "filestate.txt"
"""PPOCRLabel's list of the images that somebody has checked."""
_ILLEGIBLE = frozenset({"###", "*"})
"""Transcriptions of lines that nobody can read, as PaddleOCR ignores them."""


def is_list(path: Path) -> bool:
    """Return whether a file begins as such a list does."""
    pattern = _HEAD.get(path.suffix.lower())
    return pattern is not None and path.name.lower() != _STATES and bool(pattern.match(head(path)))


def json_rows(path: Path, text: str, nested: Collection[str] = ()) -> list[tuple[int | str, dict[str, str]]]:
    """Return the place and the cells of each row of JSON, or of JSON lines; `nested` columns are kept as JSON."""
    if path.suffix.lower() == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        return [(number, _cells(parse_json(line, f"{path}:{number}"), number, path, nested)) for number, line in lines]
    content = parse_json(text, path)
    entries = content if isinstance(content, dict) else {}
    if entries and all(is_image(name) and not isinstance(text, dict | list) for name, text in entries.items()):
        texts = [(name, text if isinstance(text, str) else "") for name, text in entries.items()]
        return [(number, {"image": name, "text": text}) for number, (name, text) in enumerate(texts, start=1)]
    parts = [(name, rows) for name, rows in entries.items() if isinstance(rows, list)]
    read: list[tuple[int | str, dict[str, str]]] = []
    for name, rows in parts or [("", content if isinstance(content, list) else [content])]:
        split = {"split": name} if parse_split(name) else {}
        for number, row in enumerate(rows, start=1):
            read.append((f"{name}#{number}" if name else number, split | _cells(row, number, path, nested)))
    return read


def _cells(row: object, number: int, path: Path, nested: Collection[str]) -> dict[str, str]:
    """Return the strings and numbers of a row of JSON, and the path of an image that `datasets` wrote."""
    if not isinstance(row, dict):
        raise DataError(f"row {number} is not a JSON object", code="annotation-invalid", where=path)
    cells: dict[str, str] = {}
    for name, value in row.items():
        holds_image = isinstance(value, dict) and {"bytes", "path"} <= value.keys()
        if holds_image and not value["path"]:
            message = f"row {number} holds its image: save the dataset with `dataset.to_parquet(FILE)`"
            raise DataError(message, code="annotation-invalid", where=path)
        if holds_image or isinstance(value, str | int | float):
            cells[name] = str(value["path"] if holds_image else value)
        elif value and name.lower() in nested:
            cells[name] = json.dumps(value)
    return cells


def is_page(cell: str) -> bool:
    """Return whether a cell holds the lines of a page."""
    return cell.startswith("[{") and '"transcription"' in cell


def page_lines(cell: str, place: object) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place, text and polygon of each line that PPOCRLabel wrote into a cell; DataError for other JSON."""
    lines = parse_json(cell, str(place))
    if lines == []:
        yield str(place), {"2": "", "polygon": ""}
    for number, line in enumerate(lines if isinstance(lines, list) else [lines], start=1):
        try:
            text, points = str(line["transcription"]), round_points(line["points"])
        except (KeyError, TypeError) as error:
            raise DataError(f"its item {number} has no transcription and points", code="annotation-invalid") from error
        yield f"{place}#{number}", {"2": "" if text in _ILLEGIBLE else text, "polygon": format_points(points)}
