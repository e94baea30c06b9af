"""HKR, the handwritten Kazakh and Russian database: `img/*.jpg`, and of each image `ann/*.json` with its `description`.

`HKR_splitting.csv`, which is published apart, gives the splits where it lies in the folder: `test1` and `test2` are
both the test. Its other splits share nearly all of their texts; `prepare` counts that.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.writing import Pictures
from dsocr.io.encodings import head, read_json, read_text
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_FOLDER = "ann"
_KEYS = tuple(re.compile(rb'"' + key + rb'"\s*:') for key in (b"name", b"description"))
_STAGES_HEADER = b"id,stage"


def find_hkr(source: Path) -> list[Path]:
    """The annotations of a folder: JSON files in a folder `ann` that have a name and a description."""
    files = (path for path in list_files(source, {".json"}) if path.parent.name.lower() == _FOLDER)
    return [path for path in files if _is_annotation(head(path))]


def read_hkr(source: Path) -> Iterator[Page | Skipped]:
    """Every annotation with its image."""
    pictures = Pictures(source)
    stages = _stages(source)
    for path in find_hkr(source):
        where = relative(path, source)
        try:
            name, text = _described(path)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        try:
            image = pictures.find(name, near=path.parent, folder="img")
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            continue
        known = split_of_name(stages.get(name, "")) if stages else split_of_folder(path.parent.relative_to(source))
        line = Line(text, where)
        yield Page(image, relative(image.with_suffix(""), source), where, (line,), split=known)


def _is_annotation(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and all(key.search(start) for key in _KEYS)


def _described(path: Path) -> tuple[str, str]:
    data = read_json(path)
    name, text = (data.get(key) if isinstance(data, dict) else None for key in ("name", "description"))
    if not isinstance(name, str) or not isinstance(text, str):
        raise DataError("its name and description are not texts", where=path)
    return name, text


def _stages(source: Path) -> dict[str, str]:
    """Image name -> its stage; empty where no table of stages lies in the folder."""
    for path in list_files(source, {".csv"}):
        if head(path).splitlines()[:1] == [_STAGES_HEADER]:
            rows = (row.partition(",") for row in read_text(path).splitlines()[1:])
            return {name.strip(): stage.strip() for name, _, stage in rows}
    return {}
