"""The source formats that can be read, one file each, and how a folder's format is told from its content."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dsocr.document import Item, Unit
from dsocr.errors import DataError
from dsocr.formats.alto import find_alto, read_alto, write_alto
from dsocr.formats.coco import find_coco, read_coco
from dsocr.formats.hkr import find_hkr, read_hkr
from dsocr.formats.iam import find_iam, read_iam
from dsocr.formats.label_studio import find_label_studio, read_label_studio
from dsocr.formats.messages import (
    LLAMA_FACTORY,
    MESSAGES_FORBIDDEN,
    MS_SWIFT,
    UNSLOTH,
    Convention,
    MessagesWriter,
    find_messages,
    read_messages,
)
from dsocr.formats.page import TRANSKRIBUS, find_page, read_page, write_page
from dsocr.formats.parquet import ORIGIN, PARQUET_COLUMNS, ParquetWriter, find_parquet, read_parquet
from dsocr.formats.pdf import find_pdf, read_pdf
from dsocr.formats.rimes import find_rimes, read_rimes
from dsocr.formats.tables import (
    COLUMNS_HINT,
    TSV_COLUMNS,
    TSV_FORBIDDEN,
    Columns,
    TsvWriter,
    check_roles,
    find_tables,
    read_tables,
    why_no_table,
)
from dsocr.formats.text_files import find_pairs, read_pairs
from dsocr.formats.writing import NOT_UTF8, Writer
from dsocr.formats.xml import FORBIDDEN as NOT_XML
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import list_files

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
        hint = f"{why}; {COLUMNS_HINT}" if why else "`dsocr prepare --formats` shows a command for each"
        if list_files(source, IMAGE_SUFFIXES):
            hint += "; images without texts are read with `dsocr transcribe`, or transcribed in `dsocr workbench`"
        raise DataError(message, code="no-format-found", where=source, hint=hint)
    if len(held) > 1:
        told = ", ".join(f"{counts[name]} {FORMATS[name].title} ({name})" for name in held)
        raise DataError(f"the folder holds more than one format: {told}", where=source, hint="name one as the format")
    return FORMATS[held[0]]


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """A way to keep transcriptions: `open` begins to write into a folder, with the source's own columns by name.

    `forbidden` is what no text of this format can hold. `whole` formats have the images as they are, with outlines on
    them, and keep lines that are not transcribed yet; the others have line images. `columns` are the names this format
    uses itself, None where it has no place for other columns; those in `origin` it takes from a source of line images.
    Without `names` there is no place for writers, and none for pages but the file names; `regions` have one where it
    says so. `next` is what to do with it.
    """

    name: str
    title: str
    open: Callable[[Path, Sequence[str]], Writer]
    forbidden: re.Pattern[str]
    next: str
    whole: bool = False
    names: bool = True
    regions: bool = False
    columns: tuple[str, ...] | None = None
    origin: frozenset[str] = frozenset()


def _conversations(name: str, title: str, convention: Convention, next_: str) -> TargetFormat:
    def open_(folder: Path, _: Sequence[str]) -> Writer:
        return MessagesWriter(folder, convention)

    return TargetFormat(name, title, open_, MESSAGES_FORBIDDEN, next_)


TARGETS = {
    target.name: target
    for target in (
        TargetFormat(
            "page",
            "PAGE XML of 2019 beside the images",
            lambda folder, _: write_page(folder),
            NOT_XML,
            "import {out} into eScriptorium, images and page/ together (for Transkribus there is page-2013)",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "page-2013",
            "PAGE XML of 2013, as Transkribus writes it",
            lambda folder, _: write_page(folder, TRANSKRIBUS),
            NOT_XML,
            "import {out} into Transkribus, images and page/ together",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "alto",
            "ALTO XML beside the images",
            lambda folder, _: write_alto(folder),
            NOT_XML,
            "import {out} into eScriptorium, images and alto/ together",
            whole=True,
            names=False,
            regions=True,
        ),
        TargetFormat(
            "tsv",
            "a table of lines with outlines",
            TsvWriter,
            TSV_FORBIDDEN,
            "open {out}/lines.tsv as UTF-8, or dsocr prepare {out} -o data/mine",
            whole=True,
            columns=TSV_COLUMNS,
        ),
        TargetFormat(
            "parquet",
            "Parquet files with line images inside",
            ParquetWriter,
            NOT_UTF8,
            "datasets.load_dataset({out!r}), or hf upload NAME {out} --repo-type dataset",
            columns=PARQUET_COLUMNS,
            origin=ORIGIN,
        ),
        _conversations(
            "ms-swift",
            "conversations for ms-swift, line images beside",
            MS_SWIFT,
            "in {out}: swift sft --dataset FILE.jsonl ... (images are named as seen from there)",
        ),
        _conversations(
            "llama-factory",
            "conversations for LLaMA-Factory, line images beside",
            LLAMA_FACTORY,
            "in a LLaMA-Factory recipe: dataset_dir and media_dir {out}, dataset as in its dataset_info.json",
        ),
        _conversations(
            "unsloth",
            "conversations for Unsloth, line images beside",
            UNSLOTH,
            "in {out}: datasets.load_dataset('json', data_files='FILE.jsonl') for Unsloth's trainer",
        ),
    )
}


def choose_target(name: str) -> TargetFormat:
    """The target format of this name."""
    if name not in TARGETS:
        raise DataError(f"unknown target format {name!r}; the formats are: {', '.join(TARGETS)}")
    return TARGETS[name]
