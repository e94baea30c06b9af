"""What ALTO and PAGE have in common: XML that is parsed without trust, and pages that name their image.

Element names are matched without their namespace, as each of the two formats has had many.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.data.paths import list_files, relative
from dsocr.data.sources.layout import NUMBER, LeftOut, Outline, Reason, Region, SourceImage, SourceLine
from dsocr.data.sources.pictures import Pictures
from dsocr.data.sources.texts import head
from dsocr.data.splits import split_of_folder
from dsocr.errors import DataError

MAX_XML_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """A line as its page describes it; `row` is the line of the XML file it starts in.

    `is_whole` says that it is the only one, and the whole image its own. `place` counts the lines in the file's order,
    from 0; `id` is what the file calls it.
    """

    text: str
    row: int
    outline: Outline | None
    is_whole: bool = False
    region: Region | None = None
    place: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page's XML says: the image it belongs to, that image's size where it is told, lines in reading order."""

    image: str | None
    size: tuple[int, int] | None
    lines: list[Line]


def find_xml(source: Path, root_element: str) -> list[Path]:
    """XML files under `source` whose outermost element has this name, judged by their first kilobytes."""
    pattern = re.compile(rb"<(?:!DOCTYPE\s+)?(?:[\w.-]+:)?" + root_element.encode("ascii") + rb"[\s>]")
    return [path for path in list_files(source, {".xml"}) if pattern.search(head(path).replace(b"\0", b""))]


def read_pages(
    source: Path, files: list[Path], describe: Callable[[etree._Element], Page]
) -> Iterator[SourceImage | LeftOut]:
    """The pages of a source, each with its image found; a page that cannot be used is left out, with the reason."""
    pictures = Pictures(source)
    names = _page_names(source, files)
    for file in files:
        where = relative(file, source)
        try:
            page = describe(parse_xml(file))
        except DataError as error:
            yield LeftOut(Reason.BAD_SOURCE, where, error.message)
            continue
        try:
            image = pictures.find(page.image or file.stem, near=file.parent)
        except DataError as error:
            yield LeftOut(Reason.NO_IMAGE, where, error.message)
            continue
        yield from _source_image(
            page, image, where, names[file], split=split_of_folder(file.parent.relative_to(source))
        )


def _source_image(page: Page, image: Path, where: str, name: str, **known: object) -> Iterator[SourceImage | LeftOut]:
    lines, lost = [], []
    for line in page.lines:
        read = SourceLine(line.text, f"{where}:{line.row}", line.outline, line.region, line.place, line.id)
        if line.is_whole and len(page.lines) == 1:
            lines.append(replace(read, outline=None, region=None))
        elif line.outline is None and line.text.strip():
            yield LeftOut(Reason.NO_OUTLINE, read.where, "the line has neither a polygon nor a box")
            lost.append(read)
        else:
            lines.append(read)
    known |= {"size": page.size, "page": name, "lost": tuple(lost)}
    yield SourceImage(image, name, where, tuple(lines), **known)  # type: ignore[arg-type]


def _page_names(source: Path, files: list[Path]) -> dict[Path, str]:
    """Each page's name: the file's stem, or its whole path where two folders hold the same stem."""
    count = Counter(file.stem for file in files)
    return {file: relative(file.with_suffix(""), source) if count[file.stem] > 1 else file.stem for file in files}


def parse_xml(path: Path) -> etree._Element:
    """The outermost element. No entity is resolved, nothing else is opened, and the size is limited."""
    try:
        if path.stat().st_size > MAX_XML_BYTES:
            raise DataError(f"the XML file is larger than {MAX_XML_BYTES // 2**20} MB", where=path)
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"the XML cannot be read: {error}", where=path) from error
    return parse_bytes(raw, where=path)


def parse_bytes(raw: bytes, *, where: Path | None = None) -> etree._Element:
    """The outermost element of what a file holds, as `parse_xml` gives it."""
    # Parsers are not shared: one per file costs nothing and keeps pages independent of each other.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(raw, parser)
    except (ValueError, etree.XMLSyntaxError) as error:
        raise DataError(f"the XML cannot be read: {error}", where=where) from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise DataError("the XML declares a document type, which neither ALTO nor PAGE does", where=where)
    return root


def row_of(element: etree._Element) -> int:
    """The line of the XML file an element starts in."""
    return cast("int", element.sourceline or 0)


def whole_number(element: etree._Element, attribute: str) -> int | None:
    """An attribute that should hold a number, rounded; None where it does not."""
    text = (element.get(attribute) or "").strip()
    return round(float(text)) if NUMBER.fullmatch(text) else None


def region_of(element: etree._Element, id_: str, outline: Callable[[etree._Element], Outline | None]) -> Region:
    """A region as its element says it, named by its attribute `id_`, else by its place; no outline from nonsense."""
    try:
        known = outline(element)
    except DataError:
        # Its lines have outlines of their own, and it can do without.
        known = None
    return Region(element.get(id_) or f"line {row_of(element)}", known)


def stated_size(page: etree._Element, across: str, down: str) -> tuple[int, int] | None:
    """The image size a page states, None where it states none or nonsense."""
    width, height = whole_number(page, across), whole_number(page, down)
    return (width, height) if width and height and width > 0 and height > 0 else None


def the_only_page(root: etree._Element) -> etree._Element:
    """The `Page` element of a file that must hold exactly one."""
    pages = list(root.iter("{*}Page"))
    if len(pages) != 1:
        raise DataError(f"{len(pages)} pages in one file, where one is expected")
    return pages[0]
