"""HKR, the handwritten Kazakh and Russian database: `img/*.jpg`, and for each image `ann/*.json` with a `description`.

`HKR_splitting.csv`, published separately, gives the splits if it is in the folder: `test1` and `test2` are both the
test split. Its other splits share nearly all of their texts; `prepare` counts that.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dsocr.document import Item, Line
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format, SourceFile, read_files
from dsocr.io.encodings import head, read_json, read_text
from dsocr.io.files import list_files, split_of_folder, split_of_name

_PATTERNS = [re.compile(pattern) for pattern in (rb"\A\s*\{", rb'"name"\s*:', rb'"description"\s*:')]


def find_hkr(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the annotations of a folder: JSON files in a folder `ann` that have a name and a description."""
    files = list_files(source, {".json"})
    heads = ((path, head(path)) for path in files if path.parent.name.lower() == "ann")
    return [path for path, start in heads if all(pattern.search(start) for pattern in _PATTERNS)]


def read_hkr(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every annotation with its image."""
    return read_files(source, find_hkr(source), partial(_read_annotation, stages=_read_stages(source)))


def _read_annotation(file: SourceFile, stages: dict[str, str]) -> Iterator[Item]:
    data = read_json(file.path)
    name, text = (data.get(key) if isinstance(data, dict) else None for key in ("name", "description"))
    if not isinstance(name, str) or not isinstance(text, str):
        message = "its name and description are not texts"
        raise DataError(message, code="annotation-incomplete", where=file.path)
    in_folder = split_of_folder(file.path.parent.relative_to(file.root))
    split = split_of_name(stages.get(name, "")) if stages else in_folder
    yield file.find_page(name, file.where, [Line(text, file.where)], folder="img", split=split)


def _read_stages(source: Path) -> dict[str, str]:
    """Return image name -> stage; empty if the folder has no table of stages."""
    for path in list_files(source, {".csv"}):
        if head(path).splitlines()[:1] == [b"id,stage"]:
            rows = (row.partition(",") for row in read_text(path).splitlines()[1:])
            return {name.strip(): stage.strip() for name, _, stage in rows}
    return {}


FORMATS = (
    Format(
        name="hkr",
        title="HKR annotations",
        find=find_hkr,
        read=read_hkr,
        example="HKR_Dataset -o data/mine --split-by text",
    ),
)
