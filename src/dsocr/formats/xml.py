"""Shared by the XML formats: safe parsing, pages that name their image, and writing.

Element names are matched without their namespace, as ALTO and PAGE have had many.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.document import Box, Line, Outline, Page, Region, Skipped, SkipReason, bounds_of_boxes
from dsocr.errors import DataError
from dsocr.formats.format import Written
from dsocr.formats.image_export import copy_page_image
from dsocr.formats.image_finder import ImageFinder
from dsocr.images import decode_image
from dsocr.io.encodings import head
from dsocr.io.files import list_files, relative, split_of_folder

MAX_XML_BYTES = 32 * 1024 * 1024

_NUMBER = re.compile(r"[-+]?\d{1,9}(?:\.\d+)?(?:[eE][-+]?\d)?")

LARGEST_COORDINATE = 1_000_000
"""Pixels; larger coordinates are on no image, and more than a drawing can take."""


@dataclass(frozen=True, slots=True)
class XmlPage:
    """The content of an ALTO or PAGE file: the name of its image, the image's size if stated, lines in reading order.

    With `is_line_image` the only line is the whole image; its outline is just the frame of the image. `region_texts`
    are the texts of regions without lines.
    """

    image: str | None
    size: tuple[int, int] | None
    lines: list[Line]
    is_line_image: bool = False
    region_texts: Sequence[Line] = ()

    def placed_lines(self) -> list[Line]:
        """Return the lines, a line image's without an outline."""
        return [replace(line, outline=None, region=None) if self.is_line_image else line for line in self.lines]


def find_xml(source: Path, root_element: str) -> list[Path]:
    """List the XML files under `source` whose root element has this name, judged by their first kilobytes."""
    pattern = re.compile(rb"<(?:!DOCTYPE\s+)?(?:[\w.-]+:)?" + root_element.encode("ascii") + rb"[\s>]")
    return [path for path in list_files(source, {".xml"}) if pattern.search(head(path).replace(b"\0", b""))]


def read_xml_pages(
    source: Path, files: list[Path], parse: Callable[[etree._Element, str], XmlPage]
) -> Iterator[Page | Skipped]:
    """Read the pages of a source and find their images; a page that cannot be used is skipped."""
    images = ImageFinder(source)
    stems = Counter(file.stem for file in files)
    for file in files:
        where = relative(file, source)
        try:
            xml_page = parse(parse_xml(file), where)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        try:
            image = _find_image(images, xml_page.image or file.stem, file)
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            continue
        lines, skipped = [], []
        for line in xml_page.placed_lines():
            if line.outline is None and line.text.strip() and not xml_page.is_line_image:
                yield Skipped(SkipReason.NO_OUTLINE, line.where, "the line has neither a polygon nor a box")
                skipped.append(line)
            else:
                lines.append(line)
        for line in xml_page.region_texts:
            if line.outline and len(line.text.splitlines()) == 1:
                lines.append(line)
            else:
                message = "the text of the region is not divided into lines with outlines"
                yield Skipped(SkipReason.NO_OUTLINE, line.where, message)
                skipped.append(line)
        yield Page(
            image=image,
            # The stem is ambiguous if two folders have it.
            name=(name := relative(file.with_suffix(""), source) if stems[file.stem] > 1 else file.stem),
            where=where,
            lines=tuple(lines),
            size=xml_page.size,
            page=name,
            split=split_of_folder(file.parent.relative_to(source)),
            skipped=tuple(skipped),
            xml=file,
        )


def _find_image(images: ImageFinder, name: str, file: Path) -> Path:
    """Return the image that a file names, else the one with the file's own name."""
    try:
        return images.find(name, near=file.parent)
    except DataError as error:
        if error.code != "image-not-found" or name == file.stem:
            raise
        try:
            return images.find(file.stem, near=file.parent)
        except DataError:
            raise error from None


def parse_xml(path: Path) -> etree._Element:
    """Parse a file and return the root; entities are not resolved, nothing else is opened, and the size is limited."""
    try:
        if path.stat().st_size > MAX_XML_BYTES:
            raise DataError(
                f"the XML file is larger than {MAX_XML_BYTES // 2**20} MB", code="xml-too-large", where=path
            )
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the XML cannot be read: {error}", code="xml-invalid", where=path) from error
    return parse_xml_bytes(raw, where=path)


def parse_xml_bytes(raw: bytes, *, where: Path | None = None) -> etree._Element:
    """Parse the content of a file as `parse_xml` does."""
    # A parser per file costs nothing and keeps pages independent of each other.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(raw, parser)
    except (ValueError, etree.XMLSyntaxError) as error:
        raise DataError(f"the XML cannot be read: {error}", code="xml-invalid", where=where) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise DataError(
            "the XML declares a document type, which neither ALTO nor PAGE does", code="xml-doctype", where=where
        )
    return root


def source_line(element: etree._Element) -> int:
    """Return the line of the XML file that an element begins in."""
    return cast("int", element.sourceline or 0)


def integer_attribute(element: etree._Element, name: str) -> int | None:
    """Return a numeric attribute, rounded; None if it is no number."""
    text = (element.get(name) or "").strip()
    return round(float(text)) if _NUMBER.fullmatch(text) else None


def parse_region(
    element: etree._Element, id_name: str, parse_outline: Callable[[etree._Element], Outline | None]
) -> Region:
    """Return the region of an element, named by its attribute `id_name`, else by its place in the file."""
    try:
        outline = parse_outline(element)
    except DataError:
        # Its lines have outlines of their own, so the region can do without.
        outline = None
    return Region(element.get(id_name) or f"line {source_line(element)}", outline)


def stated_size(page: etree._Element, width_name: str, height_name: str) -> tuple[int, int] | None:
    """Return the image size in two attributes, None if they are missing or not positive."""
    width, height = integer_attribute(page, width_name), integer_attribute(page, height_name)
    return (width, height) if width and height and width > 0 and height > 0 else None


def only_page(root: etree._Element) -> etree._Element:
    """Return the `Page` element of a file that must have exactly one."""
    pages = list(root.iter("{*}Page"))
    if len(pages) != 1:
        raise DataError(f"{len(pages)} pages in one file, where one is expected", code="xml-page-count")
    return pages[0]


Document = Callable[[Page], tuple[etree._Element, int]]
"""Makes the XML of a page, and counts the outlines that had to be moved for it."""


class XmlWriter:
    """Writes an XML file for each image in the folder `name`, images one level up; splits have folders of their own."""

    def __init__(self, folder: Path, name: str, document: Document) -> None:
        self.folder = folder
        self.name = name
        self.document = document

    def add(self, page: Page, stem: str) -> Written:
        """Copy the image and describe it."""
        folder = self.folder / page.split if page.split else self.folder
        copy = copy_page_image(page, folder, stem)
        if isinstance(copy, Skipped):
            return Written(0, [copy])
        root, moved = self.document(copy)
        (folder / self.name).mkdir(exist_ok=True)
        (folder / self.name / f"{stem}.xml").write_bytes(serialize(root))
        return Written(len(copy.lines), moved=moved)

    def close(self) -> None:
        """Do nothing: each file is complete when it is written."""


def material_to_fill(
    page: Page, path: Path, root_element: str, document: Document
) -> tuple[bytes, dict[int, Line], bool]:
    """Return an XML file without the transcribed texts, the lines to fill in by index, and whether the file is new.

    A page that came as an XML file with this root element keeps its file. A new file is to be written to `path`; the
    page of a PDF is written beside it as an image, because programs want the image file that the XML names.
    """
    if page.xml and etree.QName(parse_xml(page.xml)).localname == root_element:
        return page.xml.read_bytes(), predicted_lines(page), False
    image = page.image
    if page.number and page.content:
        content = page.content()
        is_jpeg = decode_image(content, name=page.where).format == "JPEG"
        image = path.with_suffix(".jpg" if is_jpeg else ".png")
        image.write_bytes(content)
    lines = tuple(replace(line, text="", prediction=None) for line in page.lines)
    root, _ = document(replace(page, image=image, lines=lines))
    return serialize(root), {index: line for index, line in enumerate(page.lines) if line.text}, True


def predicted_lines(page: Page) -> dict[int, Line]:
    """Return the lines that a model has read, by their index in the page's file."""
    return {
        line.index: line for line in page.transcribed_lines if line.index is not None and line.prediction is not None
    }


def serialize(root: etree._Element) -> bytes:
    """Return an XML document as the content of a file."""
    return etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)


def group_by_region(lines: Iterable[Line]) -> list[list[Line]]:
    """Group consecutive lines of the same region."""
    return [list(group) for _, group in groupby(lines, key=lambda line: line.region)]


def line_box(line: Line, page: Page) -> Box:
    """Return the box of a line; the whole image for a line without an outline."""
    return line.outline.box if line.outline else (0, 0, *cast("tuple[int, int]", page.size))


def region_outline(lines: list[Line], page: Page) -> Outline:
    """Return the outline of the lines' region as the source says, else the smallest box around the lines."""
    region = lines[0].region
    if region and region.outline:
        return region.outline
    return Outline(bounds_of_boxes(line_box(line, page) for line in lines))


def add_element(parent: etree._Element, name: str, attributes: Mapping[str, object], text: str = "") -> etree._Element:
    """Add a child in the parent's namespace; attributes keep their order."""
    namespace = etree.QName(parent).namespace
    child = etree.SubElement(parent, f"{{{namespace}}}{name}", {key: str(value) for key, value in attributes.items()})
    child.text = text or None
    return child
