"""HKR, the handwritten Kazakh and Russian database: `img/*.jpg`, and for each image `ann/*.json` with a `description`.

`HKR_splitting.csv`, published separately, gives the splits if it is in the folder: `test1` and `test2` are both the
test split. Its other splits share nearly all of their texts; `prepare` counts that.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.formats.image_finder import ImageFinder
from dsocr.io.encodings import head, read_json, read_text
from dsocr.io.files import list_files, relative, split_of_folder, split_of_name

_FOLDER = "ann"
_KEYS = tuple(re.compile(rb'"' + key + rb'"\s*:') for key in (b"name", b"description"))
_STAGES_HEADER = b"id,stage"


def find_hkr(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the annotations of a folder: JSON files in a folder `ann` that have a name and a description."""
    files = (path for path in list_files(source, {".json"}) if path.parent.name.lower() == _FOLDER)
    return [path for path in files if _is_annotation(head(path))]


def read_hkr(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read every annotation with its image."""
    images = ImageFinder(source)
    stages = _read_stages(source)
    for path in find_hkr(source):
        where = relative(path, source)
        try:
            name, text = _read_annotation(path)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        try:
            image = images.find(name, near=path.parent, folder="img")
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            continue
        split = split_of_name(stages.get(name, "")) if stages else split_of_folder(path.parent.relative_to(source))
        yield Page(image, relative(image.with_suffix(""), source), where, (Line(text, where),), split=split)


def _is_annotation(start: bytes) -> bool:
    return start.lstrip().startswith(b"{") and all(key.search(start) for key in _KEYS)


def _read_annotation(path: Path) -> tuple[str, str]:
    data = read_json(path)
    name, text = (data.get(key) if isinstance(data, dict) else None for key in ("name", "description"))
    if not isinstance(name, str) or not isinstance(text, str):
        raise DataError("its name and description are not texts", code="annotation-incomplete", where=path)
    return name, text


def _read_stages(source: Path) -> dict[str, str]:
    """Return image name -> stage; empty if the folder has no table of stages."""
    for path in list_files(source, {".csv"}):
        if head(path).splitlines()[:1] == [_STAGES_HEADER]:
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
