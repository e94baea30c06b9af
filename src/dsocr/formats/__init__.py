"""The file formats that can be read and written: a module each, and the registry.

To add a format, write a module with `FORMATS` and list the module in `_MODULES`.
"""

from collections.abc import Sequence
from pathlib import Path

from dsocr.errors import DataError
from dsocr.formats import (
    alto,
    coco,
    filled,
    hkr,
    hocr,
    iam,
    label_studio,
    messages,
    page,
    parquet,
    pdf,
    rimes,
    tables,
    tei,
    text_files,
)
from dsocr.formats.format import Columns, Format
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import list_files

_MODULES = (
    *(alto, page, tables, parquet, coco, hkr, iam, rimes, messages, label_studio, pdf, text_files),
    *(hocr, tei, filled),
)

FORMATS: dict[str, Format] = {format_.name: format_ for module in _MODULES for format_ in module.FORMATS}
"""Every format by name."""

SOURCE_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.can_read}
"""The formats of sources, for `prepare` and `convert`."""

TARGET_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.can_convert_to}
"""The formats that `convert` writes."""

OUTPUT_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.can_write_pages}
"""The formats that `transcribe` writes."""

_OUTPUT_BY_SUFFIX = {format_.suffix: format_ for format_ in OUTPUT_FORMATS.values() if format_.suffix != ".xml"}


def detect_format(source: Path, name: str | None, columns: Columns) -> Format:
    """Return the format with this name, or the only format that the source has.

    Raises DataError if the format is unknown, or the source has no format that can be read, or several.
    """
    tables.check_roles(columns)
    if name is not None and name not in SOURCE_FORMATS:
        raise DataError(
            f"unknown source format {name!r}; the formats are: {', '.join(SOURCE_FORMATS)}", code="format-unknown"
        )
    if not source.exists():
        raise DataError("the source does not exist", code="source-missing", where=source)
    if source.is_file() and source.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError(
            "is an image, without a transcription",
            code="source-is-image",
            where=source,
            hint="name the folder that it is in",
        )
    if name is None and source.is_file():
        # Any file may be a table, so the others are asked first.
        others = (other for other in SOURCE_FORMATS.values() if other.name != "table")
        name = next((other.name for other in others if other.find(source, columns)), "table")
    return SOURCE_FORMATS[name] if name else _detect_in_folder(source, columns)


def _detect_in_folder(source: Path, columns: Columns) -> Format:
    candidates = [format_ for format_ in SOURCE_FORMATS.values() if format_.takes_columns or not columns]
    counts = {format_.name: len(format_.find(source, columns)) for format_ in candidates}
    found = [name for name, count in counts.items() if count]
    if columns and not found:
        # Its error lists the columns that there are.
        return SOURCE_FORMATS["table"]
    if not found:
        known = ", ".join(format_.title for format_ in SOURCE_FORMATS.values())
        message = f"nothing in this folder can be read; looked for: {known}"
        problem = tables.explain_unknown_table(source)
        hint = f"{problem}; {tables.COLUMNS_HINT}" if problem else "`dsocr prepare --formats` shows a command for each"
        if list_files(source, IMAGE_SUFFIXES):
            hint += "; images without texts are read with `dsocr transcribe`, or transcribed in `dsocr workbench`"
        raise DataError(message, code="no-format-found", where=source, hint=hint)
    if len(found) > 1:
        listed = ", ".join(f"{counts[name]} {SOURCE_FORMATS[name].title} ({name})" for name in found)
        raise DataError(
            f"the folder holds more than one format: {listed}",
            code="formats-mixed",
            where=source,
            hint="name one as the format",
        )
    return SOURCE_FORMATS[found[0]]


def target_format(name: str) -> Format:
    """Return the format of this name that a dataset can be converted to."""
    if name not in TARGET_FORMATS:
        raise DataError(
            f"unknown target format {name!r}; the formats are: {', '.join(TARGET_FORMATS)}", code="format-unknown"
        )
    return TARGET_FORMATS[name]


def output_formats(out: Path, names: Sequence[str], *, all_xml: bool) -> tuple[list[Format], bool]:
    """Return the formats of a transcription, and whether `out` is a folder.

    These are the formats named, else the one of the suffix of `out`, else PAGE, which says most and which the programs
    of archives read. With `all_xml`, when all inputs are ALTO and PAGE files, they are filled by default. A folder is a
    path without a known suffix, or one that exists.
    """
    for name in names:
        if name not in OUTPUT_FORMATS:
            raise DataError(
                f"unknown output format {name!r}; the formats are: {', '.join(OUTPUT_FORMATS)}", code="format-unknown"
            )
    suffix = out.suffix.lower()
    formats = [OUTPUT_FORMATS[name] for name in dict.fromkeys(names)]
    if not formats and suffix in _OUTPUT_BY_SUFFIX:
        formats = [_OUTPUT_BY_SUFFIX[suffix]]
    if not formats and suffix in {"", ".xml"} and all_xml:
        formats = [OUTPUT_FORMATS["filled"]]
    if not formats and suffix == ".xml":
        raise DataError(
            "both PAGE and ALTO end in .xml",
            code="output-ambiguous",
            where=out,
            hint="give --format page or --format alto",
        )
    if not formats and suffix:
        endings = ", ".join(_OUTPUT_BY_SUFFIX)
        raise DataError(
            f"is no kind of output: give a folder, or a file ending in {endings}",
            code="output-suffix-unknown",
            where=out,
        )
    formats = formats or [OUTPUT_FORMATS["page"]]
    is_folder = out.is_dir() or suffix not in {format_.suffix for format_ in formats}
    if not is_folder and len(formats) > 1:
        raise DataError("a file holds one format", code="output-not-folder", where=out, hint="name a folder")
    return formats, is_folder
