"""The file formats that can be read and written: a module each, and the registry.

To add a format, write a module with `FORMATS` and list the module in `_MODULES`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lxml import etree

from dsocr.document import Line, Page, ProcessingStep
from dsocr.errors import DataError, option
from dsocr.formats import (
    alto,
    annotations,
    documents,
    iiif,
    messages,
    mets,
    page,
    parquet,
    pdf,
    published,
    registers,
    tables,
)
from dsocr.formats.format import Columns, Format, require_packages, unsupported
from dsocr.formats.unread import describe_files, explain_unread
from dsocr.formats.xml import XmlPage, parse_xml, predicted_lines, read_xml
from dsocr.formats.xml_tree import XmlTree
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.files import list_files

_MODULES = (
    alto,
    page,
    tables,
    parquet,
    annotations,
    published,
    messages,
    pdf,
    documents,
    registers,
    iiif,
    mets,
)

XML_PARSERS = {"alto": alto.parse_alto, "PcGts": page.parse_page}
"""Outermost element -> parser of a page."""
_FILLERS = {"alto": alto.fill_alto, "PcGts": page.fill_page}


def parse_xml_page(path: Path, where: str = "") -> XmlPage:
    """Parse an ALTO or PAGE file; `where` begins the place of each line."""
    root = parse_xml(path)
    name = etree.QName(root).localname
    if name not in XML_PARSERS:
        message = f"the XML is neither ALTO nor PAGE: its outermost element is {name!r}"
        raise DataError(message, code="xml-format-unknown")
    return XML_PARSERS[name](root, where)


def fill_xml(raw: bytes, texts: Mapping[int, Line], step: ProcessingStep | None = None) -> bytes:
    """Return an ALTO or PAGE file with new texts in the lines `texts`, by their index."""
    tree = XmlTree(raw)
    return _FILLERS[tree.root.name](tree, texts, step)


def _write_filled_files(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    for source in pages:
        xml = _require_xml(source.where, source.xml)
        path.write_bytes(fill_xml(read_xml(xml), predicted_lines(source), step))


def _require_xml(where: str, file: Path | None) -> Path:
    if file is None:
        hint = f"give {option('format', 'page')} or {option('format', 'alto')} for images"
        raise DataError("is no ALTO or PAGE file that could be filled", code="xml-missing", where=where, hint=hint)
    return file


_FILLED = Format(
    name="filled",
    title="ALTO and PAGE files as they came, with their texts",
    write_pages=_write_filled_files,
    suffix=".xml",
    one_page_per_file=True,
    require_original=lambda path, image: _require_xml(path.name, image),
)

FORMATS: dict[str, Format] = {format_.name: format_ for module in _MODULES for format_ in module.FORMATS}
FORMATS["filled"] = _FILLED
"""Every format by name."""

SOURCE_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.read is not unsupported}
"""The formats of sources, for `prepare` and `convert`."""


def source_formats() -> Sequence[Format]:
    """Return the formats that `prepare` reads."""
    return list(SOURCE_FORMATS.values())


TARGET_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.writing is not unsupported}
"""The formats that `convert` writes."""

OUTPUT_FORMATS = {name: format_ for name, format_ in FORMATS.items() if format_.write_pages is not unsupported}
"""The formats that `transcribe` writes."""

_OUTPUT_BY_SUFFIX = {format_.suffix: format_ for format_ in OUTPUT_FORMATS.values() if format_.suffix != ".xml"}


def detect_format(source: Path, name: str | None, columns: Columns) -> Format:
    """Return the format with this name, or the only format that the source has.

    Raises DataError if the format is unknown, or the source has no format that can be read, or several.
    """
    if unknown := sorted(set(columns) - set(tables.USUAL_NAMES)):
        message = f"unknown column role {unknown[0]!r}; the roles are: {', '.join(tables.USUAL_NAMES)}"
        raise DataError(message, code="column-role-unknown", hint=tables.COLUMNS_HINT)
    if name is not None:
        _require_known(name, SOURCE_FORMATS, "source")
    if not source.exists():
        raise DataError("no such file or folder", code="input-missing", where=source)
    if source.is_file() and source.suffix.lower() in IMAGE_SUFFIXES:
        message, hint = "is an image, without a transcription", "name the folder that it is in"
        raise DataError(message, code="source-is-image", where=source, hint=hint)
    if name is None and source.is_file():
        # Any file may be a table, so the others are asked first.
        others = (other for other in SOURCE_FORMATS.values() if other.name != "table")
        name = next((other.name for other in others if other.find(source, columns)), "table")
        if name == "table" and not tables.has_tables(source, columns) and (unread := explain_unread(source)):
            raise DataError("the file is not read", code="no-format-found", where=source, hint=unread)
    return SOURCE_FORMATS[name] if name else _detect_in_folder(source, columns)


def _require_known(name: str, formats: Mapping[str, Format], kind: str) -> None:
    if name not in formats:
        message = f"unknown {kind} format {name!r}; the formats are: {', '.join(formats)}"
        hint = "leave it out, and it is detected" if kind == "source" else "name one of them"
        raise DataError(message, code="format-unknown", hint=hint)


def _detect_in_folder(source: Path, columns: Columns) -> Format:
    candidates = [format_ for format_ in SOURCE_FORMATS.values() if format_.takes_columns or not columns]
    files = {format_.name: set(format_.find(source, columns)) for format_ in candidates}
    # Any file may be a table, so those of other formats are none.
    files["table"] -= {path for name, paths in files.items() if name != "table" for path in paths}
    names = [name for name, paths in files.items() if paths]
    if columns and not names:
        # Its error lists the columns that there are.
        return SOURCE_FORMATS["table"]
    if not names:
        message = f"nothing in this folder can be read; it holds {describe_files(list_files(source))}"
        usual = f"{option('format', ...)} names a format, and `dsocr prepare --formats` lists them"
        hint = explain_unread(source) or tables.explain_unknown_table(source) or usual
        if list_files(source, IMAGE_SUFFIXES | pdf.PDF_SUFFIXES):
            hint += "; images and PDFs without texts are for `dsocr transcribe` and `dsocr workbench`"
        raise DataError(message, code="no-format-found", where=source, hint=hint)
    if len(names) == 2 and "table" in names and not tables.has_tables(source, columns):
        (chosen,) = (SOURCE_FORMATS[name] for name in names if name != "table")
        return replace(chosen, read=partial(tables.read_beside, chosen.read))
    if len(names) > 1:
        listed = ", ".join(f"{len(files[name])} {SOURCE_FORMATS[name].title} ({name})" for name in names)
        message = f"the folder holds more than one format: {listed}"
        raise DataError(message, code="formats-mixed", where=source, hint="name one as the format")
    return SOURCE_FORMATS[names[0]]


def target_format(name: str) -> Format:
    """Return the format of this name that a dataset can be converted to; documents hold the texts of all pages."""
    whole = (*documents.DOCUMENTS, *registers.TARGETS)
    known = TARGET_FORMATS | {document: OUTPUT_FORMATS[document] for document in whole}
    _require_known(name, known, "target")
    require_packages(known[name].title, known[name].packages)
    return documents.as_target(known[name]) if name in whole else known[name]


def same_format(name: str) -> Format:
    """Return the format to convert a source of this format to if none is named: its own, or the nearest to it."""
    if name in TARGET_FORMATS:
        return TARGET_FORMATS[name]
    return TARGET_FORMATS["tsv" if name in {"table", "dataset", "pairs"} else "page"]


def output_formats(out: Path, names: Sequence[str], *, all_xml: bool) -> tuple[list[Format], bool]:
    """Return the formats of a transcription, and whether `out` is a folder.

    These are the formats named, else the one of the suffix of `out`, else PAGE, which says most and which the programs
    of archives read. With `all_xml`, when all inputs are ALTO and PAGE files, they are filled by default. A folder is a
    path without a known suffix, or one that exists.
    """
    for name in names:
        _require_known(name, OUTPUT_FORMATS, "output")
    suffix = out.suffix.lower()
    formats = [OUTPUT_FORMATS[name] for name in dict.fromkeys(names)]
    if not formats:
        formats = [_default_output(out, suffix, all_xml=all_xml)]
    for format_ in formats:
        require_packages(format_.title, format_.packages)
    is_folder = out.is_dir() or suffix not in {format_.suffix for format_ in formats}
    if not is_folder and len(formats) > 1:
        raise DataError("a file holds one format", code="output-not-folder", where=out, hint="name a folder")
    return formats, is_folder


def _default_output(out: Path, suffix: str, *, all_xml: bool) -> Format:
    if suffix in _OUTPUT_BY_SUFFIX:
        return _OUTPUT_BY_SUFFIX[suffix]
    if suffix in {"", ".xml"} and all_xml:
        return _FILLED
    if suffix == ".xml":
        hint = f"give {option('format', 'page')} or {option('format', 'alto')}"
        raise DataError("both PAGE and ALTO end in .xml", code="output-ambiguous", where=out, hint=hint)
    if suffix:
        message = f"is no kind of output: give a folder, or a file ending in {', '.join(_OUTPUT_BY_SUFFIX)}"
        raise DataError(message, code="output-suffix-unknown", where=out)
    return OUTPUT_FORMATS["page"]
