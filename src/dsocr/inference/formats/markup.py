"""What was read as PAGE or ALTO: a file that came in is filled and else untouched, of an image a new one is written."""

from collections.abc import Callable, Iterable
from pathlib import Path

from lxml import etree

from dsocr.data.images import decode_image
from dsocr.data.sources.layout import SourceLine
from dsocr.data.sources.markup import parse_xml
from dsocr.data.targets.alto import alto_document
from dsocr.data.targets.alto_text import Fill
from dsocr.data.targets.filling import Step, fill_markup
from dsocr.data.targets.images import WholeImage
from dsocr.data.targets.page import page_document
from dsocr.errors import DataError
from dsocr.inference.pages import ReadLine, ReadPage

Document = Callable[[WholeImage], tuple[etree._Element, int]]


def write_page(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """PAGE XML of 2019; a PAGE file that came in is filled."""
    for page in pages:
        _write(page, path, step, "PcGts", page_document)


def write_alto(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """ALTO 4.2, a `String` for each word; an ALTO file that came in is filled, and keeps what it has for a `String`."""
    for page in pages:
        _write(page, path, step, "alto", alto_document)


def write_filled(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """An ALTO or PAGE file as it came, with its texts."""
    for page in pages:
        if page.page.kind != "markup":
            hint = "give --format page or --format alto for images"
            raise DataError("is no ALTO or PAGE file that could be filled", where=page.page.id, hint=hint)
        path.write_bytes(_filled(page, step))


def _write(page: ReadPage, path: Path, step: Step, root: str, document: Document) -> None:
    if page.page.kind == "markup" and etree.QName(parse_xml(page.page.path)).localname == root:
        path.write_bytes(_filled(page, step))
        return
    image = page.page.image or page.page.path
    if page.page.kind == "pdf":
        # Programs want the image that the file names, and no file holds this one alone.
        content = page.page.content()
        is_jpeg = decode_image(content, name=page.page.id).format == "JPEG"
        image = path.with_suffix(".jpg" if is_jpeg else ".png")
        image.write_bytes(content)
    path.write_bytes(_new(page, image.name, step, document))


def _filled(page: ReadPage, step: Step) -> bytes:
    read = {line.place: _fill(line) for line in page.written if line.place is not None and not line.was_there}
    return fill_markup(page.page.path.read_bytes(), read, step)


def _new(page: ReadPage, image: str, step: Step, document: Document) -> bytes:
    """A new document without texts, filled as others are: confidences and steps are written in one place."""
    drawn = tuple(SourceLine("", line.id, line.outline, line.region) for line in page.lines)
    root, _ = document(WholeImage(image, page.size, drawn))
    raw = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)
    fills = {place: _fill(line) for place, line in enumerate(page.lines) if line.text}
    return fill_markup(raw, fills, step, in_words=True)


def _fill(line: ReadLine) -> Fill:
    return Fill(
        line.text,
        line.confidence,
        line.outline.box if line.outline else None,
        {word["start"]: word["confidence"] for word in line.told.get("words", ())},
        line.told.get("characters", ()),
    )
