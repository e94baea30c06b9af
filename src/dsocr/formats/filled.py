"""ALTO and PAGE files as they came, with the transcribed texts filled in."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lxml import etree

from dsocr.document import Line, Page, ProcessingStep
from dsocr.errors import DataError
from dsocr.formats.alto import fill_alto, parse_alto
from dsocr.formats.format import Format
from dsocr.formats.page import fill_page, parse_page
from dsocr.formats.xml import XmlPage, parse_xml, parse_xml_bytes, predicted_lines

_FILL: Mapping[str, Callable[[bytes, Mapping[int, Line], ProcessingStep | None], bytes]]
_FILL = {"alto": fill_alto, "PcGts": fill_page}
_PARSE = {"alto": parse_alto, "PcGts": parse_page}


def parse_xml_page(path: Path, where: str = "") -> XmlPage:
    """Parse an ALTO or PAGE file; `where` begins the place of each line."""
    root = parse_xml(path)
    name = etree.QName(root).localname
    if name not in _PARSE:
        raise DataError(
            f"the XML is neither ALTO nor PAGE: its outermost element is {name!r}", code="xml-format-unknown"
        )
    return _PARSE[name](root, where)


def fill_xml(raw: bytes, texts: Mapping[int, Line], step: ProcessingStep | None = None) -> bytes:
    """Return an ALTO or PAGE file with new texts in the lines `texts`, by their index."""
    return _FILL[etree.QName(parse_xml_bytes(raw)).localname](raw, texts, step)


def write_filled_files(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write an ALTO or PAGE file with its transcribed texts."""
    for page in pages:
        if page.xml is None:
            hint = "give --format page or --format alto for images"
            raise DataError(
                "is no ALTO or PAGE file that could be filled", code="xml-missing", where=page.where, hint=hint
            )
        path.write_bytes(fill_xml(page.xml.read_bytes(), predicted_lines(page), step))


FORMATS = (
    Format(
        name="filled",
        title="ALTO and PAGE files as they came, with their texts",
        write_pages=write_filled_files,
        suffix=".xml",
        one_page_per_file=True,
    ),
)
