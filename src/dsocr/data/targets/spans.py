"""Where elements of an XML file begin and end, in bytes, and how bytes there are exchanged for others.

Knows nothing about what elements mean.
"""

import codecs
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from dsocr.errors import DataError

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
