"""Edit an XML file in place: every byte that is not edited stays as it is.

Works on the bytes of the file instead of a tree that is written anew, so that white space, the order of attributes,
prefixes, the declaration and unknown elements are kept.
"""

import codecs
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from dsocr.errors import DataError

FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML forbids, unpaired surrogates included."""

_TAG = re.compile(rb"""<([^\s/>"'=]+)(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(rb"""\s+([^\s=/>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_DECLARED = re.compile(rb"""^<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_QUOTED = {**_ESCAPES, '"': "&quot;", "\n": "&#10;", "\t": "&#9;"}


@dataclass(slots=True)
class ElementSpan:
    """The position of an element in a file: its name without prefix, the offsets of its parts, and its children.

    `start` and `end` enclose all of it, its attributes begin at `name_end` and its content at `tag_end`. `is_empty` is
    an element written `<name/>`. A child has the names of its own children only.
    """

    name: str
    prefix: str
    start: int
    name_end: int
    tag_end: int
    is_empty: bool
    end: int = 0
    children: list["ElementSpan"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ScannedXml:
    """The elements asked for, in the file's order, and the name and namespace of the root."""

    elements: list[ElementSpan]
    root: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes that replace those from `start` to `end`."""

    start: int
    end: int
    new: bytes


@dataclass(frozen=True, slots=True)
class AttributeSpan:
    """The position of an attribute: its value with the quotes, and the whole with the space before it."""

    value: tuple[int, int]
    whole: tuple[int, int]


def to_utf8(raw: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return a file's bytes in UTF-8, and a function that converts such bytes back to the encoding of the file."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if raw.startswith(mark)), None)
    if encoding is None:
        declared = _DECLARED.search(raw[:200])
        encoding = declared[1].decode("ascii") if declared else "utf-8"
    try:
        text = raw.decode(encoding)
        if text.encode(encoding) != raw:
            raise DataError(
                f"the file is not plain {encoding}, so it cannot be filled in without changing more",
                code="xml-encoding",
            )
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"the file is not in the encoding that it states, {encoding}: {error}", code="xml-encoding"
        ) from error
    return text.encode("utf-8"), lambda data: data.decode("utf-8").encode(encoding, "xmlcharrefreplace")


def scan_xml(data: bytes, names: Collection[str]) -> ScannedXml:
    """Locate the elements of these names in an XML file in UTF-8; a document type declaration is an error."""
    # The encoding is given because the file may declare the one it had before.
    parser = expat.ParserCreate("utf-8", " ")
    elements: list[ElementSpan] = []
    path: list[ElementSpan] = []
    root: list[str] = []

    def on_start(full: str, _: dict[str, str]) -> None:
        namespace, name = full.rpartition(" ")[::2]
        root.extend((name, namespace) if not root else ())
        element = _element_span(data, parser.CurrentByteIndex, name)
        if name in names:
            elements.append(element)
        if path:
            path[-1].children.append(element)
        path.append(element)

    def on_end(_: str) -> None:
        element = path.pop()
        offset = parser.CurrentByteIndex
        element.end = element.tag_end if element.is_empty else data.index(b">", offset) + 1
        # Only elements asked for are kept whole, so a page with a description of each letter stays small.
        if element.name not in names:
            for child in element.children:
                if child.name not in names:
                    child.children = []

    def on_doctype(*_: object) -> None:
        raise DataError("the XML declares a document type, which neither ALTO nor PAGE does", code="xml-doctype")

    parser.StartElementHandler, parser.EndElementHandler = on_start, on_end
    parser.StartDoctypeDeclHandler = on_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise DataError(f"the XML cannot be read: {error}", code="xml-invalid") from error
    return ScannedXml(elements, root[0], root[1])


def _element_span(data: bytes, start: int, name: str) -> ElementSpan:
    tag = _TAG.match(data, start)
    if tag is None:  # the parser accepted the tag, so the pattern above is wrong
        raise DataError("the XML cannot be read: a tag is written in an unknown way", code="xml-invalid")
    prefix = tag[1][: len(tag[1]) - len(name.encode("utf-8"))].decode("utf-8")
    return ElementSpan(name, prefix, start, tag.end(1), tag.end(), data[tag.end() - 2 : tag.end()] == b"/>")


def attribute_spans(data: bytes, element: ElementSpan) -> dict[str, AttributeSpan]:
    """Return the positions of an element's attributes by name."""
    found = _ATTRIBUTE.finditer(data, element.name_end, element.tag_end)
    return {match[1].decode("utf-8"): AttributeSpan(match.span(2), match.span()) for match in found}


def indent_before(data: bytes, element: ElementSpan) -> bytes:
    """Return the white space before an element that begins a line of the file, else nothing."""
    begin = element.start
    while begin and data[begin - 1 : begin].isspace():
        begin -= 1
    space = data[begin : element.start]
    return space if b"\n" in space else b""


def remove(data: bytes, element: ElementSpan) -> Edit:
    """Remove an element, with its indent if it begins a line of the file."""
    return Edit(element.start - len(indent_before(data, element)), element.end, b"")


def insert(data: bytes, parent: ElementSpan, after: Sequence[ElementSpan], new: str) -> Edit:
    """Insert a child after the last of the children `after`, else as the first, indented like its neighbours."""
    if parent.is_empty:
        tag = f"{parent.prefix}{parent.name}"
        return Edit(parent.tag_end - 2, parent.tag_end, f">{new}</{tag}>".encode())
    offset = after[-1].end if after else parent.tag_end
    model = after[-1] if after else parent.children[0] if parent.children else None
    return Edit(offset, offset, (indent_before(data, model) if model else b"") + new.encode())


def apply_edits(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the bytes with all edits made; edits must not overlap."""
    pieces, offset = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        pieces += [data[offset : edit.start], edit.new]
        offset = edit.end
    return b"".join([*pieces, data[offset:]])


def replace_forbidden(text: str) -> str:
    """Replace each character that no XML document may contain by U+FFFD."""
    return FORBIDDEN.sub("\ufffd", text)


def escape_text(text: str) -> str:
    """Escape a text for an element's content."""
    return "".join(_ESCAPES.get(letter, letter) for letter in replace_forbidden(text))


def escape_attribute(text: str) -> str:
    """Escape a text for an attribute's value in double quotes."""
    return "".join(_QUOTED.get(letter, letter) for letter in replace_forbidden(text))
