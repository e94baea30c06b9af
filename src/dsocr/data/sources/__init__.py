"""The source formats that can be read, one file each, and how a folder's format is told from its content."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.sources.alto import find_alto, read_alto
from dsocr.data.sources.coco import find_coco, read_coco
from dsocr.data.sources.hkr import find_hkr, read_hkr
from dsocr.data.sources.iam import find_iam, read_iam
from dsocr.data.sources.layout import LeftOut, SourceImage
from dsocr.data.sources.messages import find_messages, read_messages
from dsocr.data.sources.page import find_page, read_page
from dsocr.data.sources.pairs import find_pairs, read_pairs
from dsocr.data.sources.parquet import find_parquet, read_parquet
from dsocr.data.sources.tables import Columns, check_roles, find_tables, read_tables
from dsocr.errors import DataError


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A way transcriptions are kept: `find` lists what of a folder is in this format, `read` reads all of that.

    Naming columns asks for a format that has them.
    """

    name: str
    title: str
    find: Callable[[Path, Columns], list[Path]]
    read: Callable[[Path, Columns], Iterator[SourceImage | LeftOut]]
    has_columns: bool = False


FORMATS = {
    format_.name: format_
    for format_ in (
        SourceFormat("alto", "ALTO XML files", lambda path, _: find_alto(path), lambda path, _: read_alto(path)),
        SourceFormat("page", "PAGE XML files", lambda path, _: find_page(path), lambda path, _: read_page(path)),
        SourceFormat("table", "tables of images and texts", find_tables, read_tables, has_columns=True),
        SourceFormat("parquet", "Parquet files of images and texts", find_parquet, read_parquet, has_columns=True),
        SourceFormat("coco", "COCO files", lambda path, _: find_coco(path), read_coco, has_columns=True),
        SourceFormat("hkr", "HKR annotations", lambda path, _: find_hkr(path), lambda path, _: read_hkr(path)),
        SourceFormat("iam", "IAM lists of lines", lambda path, _: find_iam(path), lambda path, _: read_iam(path)),
        SourceFormat(
            "messages", "conversations", lambda path, _: find_messages(path), lambda path, _: read_messages(path)
        ),
        SourceFormat(
            "pairs", "images with a text file", lambda path, _: find_pairs(path), lambda path, _: read_pairs(path)
        ),
    )
}


def choose_format(source: Path, name: str | None, columns: Columns) -> SourceFormat:
    """The format that was asked for, else the only one the source holds."""
    check_roles(columns)
    if name is not None and name not in FORMATS:
        raise DataError(f"unknown source format {name!r}; the formats are: {', '.join(FORMATS)}")
    if not source.exists():
        raise DataError("the source does not exist", where=source)
    if name is None and source.is_file():
        # Any file may be a table, so the others are asked first.
        others = (other.name for other in FORMATS.values() if other.name != "table" and other.find(source, columns))
        name = next(others, "table")
    return FORMATS[name] if name else _detect(source, columns)


def _detect(source: Path, columns: Columns) -> SourceFormat:
    asked = [format_ for format_ in FORMATS.values() if format_.has_columns or not columns]
    counts = {format_.name: len(format_.find(source, columns)) for format_ in asked}
    held = [name for name, count in counts.items() if count]
    if columns and not held:
        # It says which columns there are.
        return FORMATS["table"]
    if not held:
        known = ", ".join(format_.title for format_ in FORMATS.values())
        raise DataError(f"nothing in this folder can be read; looked for: {known}", where=source)
    if len(held) > 1:
        told = ", ".join(f"{counts[name]} {FORMATS[name].title} ({name})" for name in held)
        raise DataError(f"the folder holds more than one format: {told}", where=source, hint="name one as the format")
    return FORMATS[held[0]]
