"""The source formats that can be read, one file each, and how a folder's format is told from its content."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.paths import list_files
from dsocr.data.sources.alto import find_alto, read_alto
from dsocr.data.sources.coco import find_coco, read_coco
from dsocr.data.sources.hkr import find_hkr, read_hkr
from dsocr.data.sources.iam import find_iam, read_iam
from dsocr.data.sources.label_studio import find_label_studio, read_label_studio
from dsocr.data.sources.layout import Item, Unit
from dsocr.data.sources.messages import find_messages, read_messages
from dsocr.data.sources.page import find_page, read_page
from dsocr.data.sources.pairs import find_pairs, read_pairs
from dsocr.data.sources.parquet import find_parquet, read_parquet
from dsocr.data.sources.pdf import find_pdf, read_pdf
from dsocr.data.sources.rimes import find_rimes, read_rimes
from dsocr.data.sources.tables import COLUMNS_HINT, Columns, check_roles, find_tables, read_tables, why_no_table
from dsocr.errors import DataError

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A way transcriptions are kept: `find` lists what of a folder is in this format, `read` reads all of that.

    Naming columns asks for a format that has them. `example` is what follows `dsocr prepare`. `unit` is what one
    transcription is of: lines can be put together into regions and pages, but no page be taken apart.
    """

    name: str
    title: str
    example: str
    find: Callable[[Path, Columns], list[Path]]
    read: Callable[[Path, Columns], Iterator[Item]]
    has_columns: bool = False
    unit: Unit = "line"


def _without_columns(function: Callable[[Path], Found]) -> Callable[[Path, Columns], Found]:
    return lambda path, _: function(path)


def _format(
    name: str,
    title: str,
    example: str,
    find: Callable[[Path], list[Path]],
    read: Callable[[Path], Iterator[Item]],
) -> SourceFormat:
    """A format that has no columns."""
    return SourceFormat(name, title, example, _without_columns(find), _without_columns(read))


FORMATS = {
    format_.name: format_
    for format_ in (
        _format("alto", "ALTO XML files", r"escriptorium -o data/mine --writer '(\w+?)_\d+'", find_alto, read_alto),
        _format("page", "PAGE XML files", r"transkribus -o data/mine --writer '(\w+?)_\d+'", find_page, read_page),
        SourceFormat(
            "table",
            "tables of images and texts",
            "letters.tsv -o data/mine --column text=label --writer author",
            find_tables,
            read_tables,
            has_columns=True,
        ),
        SourceFormat(
            "parquet",
            "Parquet files of images and texts",
            "downloaded/data -o data/mine --column text=label",
            find_parquet,
            read_parquet,
            has_columns=True,
        ),
        SourceFormat(
            "coco",
            "COCO files with texts",
            "school_notebooks_RU -o data/mine",
            _without_columns(find_coco),
            read_coco,
            has_columns=True,
        ),
        _format("hkr", "HKR annotations", "HKR_Dataset -o data/mine --split-by text", find_hkr, read_hkr),
        _format("iam", "IAM lists of lines", "iam -o data/mine", find_iam, read_iam),
        _format("rimes", "RIMES pages", "rimes -o data/mine", find_rimes, read_rimes),
        _format(
            "messages", "conversations of ms-swift and others", "train.jsonl -o data/mine", find_messages, read_messages
        ),
        _format(
            "label-studio",
            "exports of Label Studio",
            "project-1.json -o data/mine",
            find_label_studio,
            read_label_studio,
        ),
        SourceFormat(
            "pdf",
            "PDF files with texts",
            r"scans.pdf -o data/mine --writer '(\w+?)_'",
            _without_columns(find_pdf),
            _without_columns(read_pdf),
            unit="page",
        ),
        _format("pairs", "images with a text file", "lines -o data/mine --page '(.+)_'", find_pairs, read_pairs),
    )
}


def choose_format(source: Path, name: str | None, columns: Columns) -> SourceFormat:
    """The format that was asked for, else the only one the source holds."""
    check_roles(columns)
    if name is not None and name not in FORMATS:
        raise DataError(f"unknown source format {name!r}; the formats are: {', '.join(FORMATS)}")
    if not source.exists():
        raise DataError("the source does not exist", where=source)
    if source.is_file() and source.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError("is an image, without a transcription", where=source, hint="name the folder that it lies in")
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
        message = f"nothing in this folder can be read; looked for: {known}"
        why = why_no_table(source)
        hint = f"{why}; {COLUMNS_HINT}" if why else "`dsocr sources` shows a command for each"
        if list_files(source, IMAGE_SUFFIXES):
            hint += "; images without texts are read with `dsocr transcribe`, or transcribed in `dsocr workbench`"
        raise DataError(message, where=source, hint=hint)
    if len(held) > 1:
        told = ", ".join(f"{counts[name]} {FORMATS[name].title} ({name})" for name in held)
        raise DataError(f"the folder holds more than one format: {told}", where=source, hint="name one as the format")
    return FORMATS[held[0]]
