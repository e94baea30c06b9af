"""What ALTO and PAGE have in common: XML that is parsed without trust, and pages that name their image.

Element names are matched without their namespace, as each of the two formats has had many.
"""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import cast
from xml.parsers import expat

from lxml import etree

from dsocr.document import NUMBER, Box, Line, Outline, Page, Region, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.writing import Added, Pictures, WholeImage, copy_image
from dsocr.io.encodings import head
from dsocr.io.files import list_files, relative, split_of_folder

MAX_XML_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class XmlLine:
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
class XmlPage:
    """What a page's XML says: the image it belongs to, that image's size where it is told, lines in reading order."""

    image: str | None
    size: tuple[int, int] | None
    lines: list[XmlLine]


def find_xml(source: Path, root_element: str) -> list[Path]:
    """XML files under `source` whose outermost element has this name, judged by their first kilobytes."""
    pattern = re.compile(rb"<(?:!DOCTYPE\s+)?(?:[\w.-]+:)?" + root_element.encode("ascii") + rb"[\s>]")
    return [path for path in list_files(source, {".xml"}) if pattern.search(head(path).replace(b"\0", b""))]


def read_pages(
    source: Path, files: list[Path], describe: Callable[[etree._Element], XmlPage]
) -> Iterator[Page | Skipped]:
    """The pages of a source, each with its image found; a page that cannot be used is left out, with the reason."""
    pictures = Pictures(source)
    names = _page_names(source, files)
    for file in files:
        where = relative(file, source)
        try:
            page = describe(parse_xml(file))
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        try:
            image = pictures.find(page.image or file.stem, near=file.parent)
        except DataError as error:
            yield Skipped(SkipReason.NO_IMAGE, where, error.message)
            continue
        yield from _source_image(
            page, image, where, names[file], split=split_of_folder(file.parent.relative_to(source))
        )


def _source_image(page: XmlPage, image: Path, where: str, name: str, **known: object) -> Iterator[Page | Skipped]:
    lines, lost = [], []
    for line in page.lines:
        read = Line(line.text, f"{where}:{line.row}", line.outline, line.region, line.place, line.id)
        if line.is_whole and len(page.lines) == 1:
            lines.append(replace(read, outline=None, region=None))
        elif line.outline is None and line.text.strip():
            yield Skipped(SkipReason.NO_OUTLINE, read.where, "the line has neither a polygon nor a box")
            lost.append(read)
        else:
            lines.append(read)
    known |= {"size": page.size, "page": name, "skipped": tuple(lost)}
    yield Page(image, name, where, tuple(lines), **known)  # type: ignore[arg-type]


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


FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may hold, half characters among it."""


def without_forbidden(text: str) -> str:
    """The text with a mark for each character that no XML document may hold."""
    return FORBIDDEN.sub("\ufffd", text)


class MarkupWriter:
    """An XML file for each image in a folder of that name, images one level up; splits in folders of their own."""

    def __init__(self, folder: Path, name: str, document: Callable[[WholeImage], tuple[etree._Element, int]]) -> None:
        self.folder = folder
        self.name = name
        self.document = document

    def add(self, image: Page, stem: str) -> Added:
        """Copies the image and describes it."""
        folder = self.folder / image.split if image.split else self.folder
        whole = copy_image(image, folder, stem)
        if isinstance(whole, Skipped):
            return Added(0, [whole])
        root, moved = self.document(whole)
        (folder / self.name).mkdir(exist_ok=True)
        content = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)
        (folder / self.name / f"{stem}.xml").write_bytes(content)
        return Added(len(whole.lines), moved=moved)

    def close(self) -> None:
        """Nothing is left to do: each file is whole when it is written."""


def regions(whole: WholeImage) -> Iterator[list[Line]]:
    """The lines in reading order, those together that follow each other in one region of the source."""
    for _, lines in groupby(whole.lines, key=lambda line: line.region):
        yield list(lines)


def box_of(line: Line, whole: WholeImage) -> Box:
    """The line's box; the whole image where the line is all there is on it."""
    return line.outline.box if line.outline else (0, 0, *whole.size)


def region_outline(lines: list[Line], whole: WholeImage) -> Outline:
    """Where the lines' region stands: what the source says, else the smallest box around the lines."""
    region = lines[0].region
    if region and region.outline:
        return region.outline
    left, top, right, bottom = zip(*(box_of(line, whole) for line in lines), strict=True)
    return Outline((min(left), min(top), max(right), max(bottom)))


def element(parent: etree._Element, name: str, attributes: Mapping[str, object], text: str = "") -> etree._Element:
    """A child in the parent's namespace; attributes are written as texts, in this order."""
    namespace = etree.QName(parent).namespace
    child = etree.SubElement(parent, f"{{{namespace}}}{name}", {key: str(value) for key, value in attributes.items()})
    child.text = text or None
    return child


_TAG = re.compile(rb"""<([^\s/>"'=]+)(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=/>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_DECLARED = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_QUOTED = {**_ESCAPES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}


@dataclass(slots=True)
class Marked:
    """An element: its name without its prefix, where its tag stands, and its children.

    `start` and `end` hold all of it, `name_end` is where its attributes begin, `tag_end` where its content does.
    `is_closed` is an element written `<name/>`. A child has only the names of its own children.
    """

    name: str
    prefix: str
    start: int
    name_end: int
    tag_end: int
    is_closed: bool
    end: int = 0
    children: list["Marked"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """The elements that were asked for, in the file's order, and the root's name and namespace."""

    elements: list[Marked]
    root: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes that take the place of those from `start` to `end`."""

    start: int
    end: int
    new: bytes


@dataclass(frozen=True, slots=True)
class Attribute:
    """Where an attribute stands: its value with the quotes, and the whole with the space before it."""

    value: tuple[int, int]
    whole: tuple[int, int]


def as_utf8(raw: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """A file's bytes in UTF-8, and what brings such bytes back into the encoding that the file has."""
    encoding = next((name for mark, name in _MARKS if raw.startswith(mark)), None)
    if encoding is None:
        declared = _DECLARED.search(raw[:200])
        encoding = declared[1].decode("ascii") if declared else "utf-8"
    try:
        text = raw.decode(encoding)
        if text.encode(encoding) != raw:
            raise DataError(f"the file is not plain {encoding}, so it cannot be filled in without changing more")
    except (LookupError, UnicodeError) as error:
        raise DataError(f"the file is not in the encoding that it states, {encoding}: {error}") from error
    return text.encode("utf-8"), lambda data: data.decode("utf-8").encode(encoding, "xmlcharrefreplace")


def marked_in(data: bytes, names: Collection[str]) -> Found:
    """The elements of these names in an XML file in UTF-8. One that declares a document type is refused."""
    # The encoding is given, as the file may declare the one it had before.
    parser = expat.ParserCreate("utf-8", " ")
    elements: list[Marked] = []
    path: list[Marked] = []
    root: list[str] = []

    def begun(full: str, _: dict[str, str]) -> None:
        namespace, name = full.rpartition(" ")[::2]
        root.extend((name, namespace) if not root else ())
        element = _marked(data, parser.CurrentByteIndex, name)
        if name in names:
            elements.append(element)
        if path:
            path[-1].children.append(element)
        path.append(element)

    def ended(_: str) -> None:
        element = path.pop()
        at = parser.CurrentByteIndex
        element.end = element.tag_end if element.is_closed else data.index(b">", at) + 1
        # Only what was asked for is kept whole, so a page with a description of each letter stays small.
        if element.name not in names:
            for child in element.children:
                if child.name not in names:
                    child.children = []

    def refused(*_: object) -> None:
        raise DataError("the XML declares a document type, which neither ALTO nor PAGE does")

    parser.StartElementHandler, parser.EndElementHandler = begun, ended
    parser.StartDoctypeDeclHandler = refused
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DataError(f"the XML cannot be read: {error}") from error
    return Found(elements, root[0], root[1])


def _marked(data: bytes, start: int, name: str) -> Marked:
    tag = _TAG.match(data, start)
    if tag is None:  # the parser took it for a tag, so this is ours to know
        raise DataError("the XML cannot be read: a tag is written in an unknown way")
    prefix = tag[1][: len(tag[1]) - len(name.encode("utf-8"))].decode("utf-8")
    return Marked(name, prefix, start, tag.end(1), tag.end(), data[tag.end() - 2 : tag.end()] == b"/>")


def attributes_of(data: bytes, element: Marked) -> dict[str, Attribute]:
    """Where an element's attributes stand, by name."""
    found = _ATTRIBUTE.finditer(data, element.name_end, element.tag_end)
    return {match[1].decode("utf-8"): Attribute(match.span(2), match.span()) for match in found}


def indent_before(data: bytes, element: Marked) -> bytes:
    """The white space before an element, if it stands on a line of its own."""
    begin = element.start
    while begin and data[begin - 1 : begin].isspace():
        begin -= 1
    space = data[begin : element.start]
    return space if b"\n" in space else b""


def removed(data: bytes, element: Marked) -> Edit:
    """An element taken out, with the white space before it if it stands on a line of its own."""
    return Edit(element.start - len(indent_before(data, element)), element.end, b"")


def inserted(data: bytes, parent: Marked, before: Sequence[Marked], new: str) -> Edit:
    """A child put in behind the last of the children `before`, else as the first, indented as its neighbours are."""
    if parent.is_closed:
        tag = f"{parent.prefix}{parent.name}"
        return Edit(parent.tag_end - 2, parent.tag_end, f">{new}</{tag}>".encode())
    place = before[-1].end if before else parent.tag_end
    model = before[-1] if before else parent.children[0] if parent.children else None
    return Edit(place, place, (indent_before(data, model) if model else b"") + new.encode())


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes with all edits made, none of which may overlap another."""
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        pieces += [data[at : edit.start], edit.new]
        at = edit.end
    return b"".join([*pieces, data[at:]])


def escaped(text: str, *, quotes: bool = False) -> str:
    """A text as it stands between tags, or with `quotes` as the value of an attribute."""
    escapes = _QUOTED if quotes else _ESCAPES
    return "".join(escapes.get(letter, letter) for letter in text)
