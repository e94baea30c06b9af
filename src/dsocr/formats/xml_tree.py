"""The XML of ALTO, PAGE and METS as a tree of written parts, so that untouched elements keep their bytes.

Elements may be changed, moved, added and removed; white space, the order of attributes, prefixes and unknown elements
stay as they are.
"""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape

from dsocr.document import Box, Line
from dsocr.errors import DataError
from dsocr.formats.xml import parse_outline, parse_xml_bytes, quote_attribute, take_id

_PART = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|[^<]+|"
    r"""<(?P<closes>/?)(?P<prefix>[^\s/>"'=:]+:)?(?P<name>[^\s/>"'=]+)(?:[^>"']|"[^"]*"|'[^']*')*>""",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""\s+([^\s=/>"']+)\s*=\s*("[^"]*"|'[^']*')""")
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(slots=True, eq=False)
class Element:
    """An element: its name without prefix, its tags as they are written, and between them text and elements.

    `prefix` ends in a colon; `end` is empty for an element written `<name/>`.
    """

    name: str
    prefix: str
    tag: str
    end: str = ""
    content: list["Element | str"] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the element as it is written."""
        return "".join([self.tag, *map(str, self.content), self.end])

    @property
    def children(self) -> list["Element"]:
        """The elements in it."""
        return [part for part in self.content if isinstance(part, Element)]

    def all(self, *names: str) -> list["Element"]:
        """Return the children of these names."""
        return [child for child in self.children if child.name in names]

    def iter(self, *names: str) -> Iterator["Element"]:
        """Yield the elements of these names in it, or all elements, in the file's order."""
        for child in self.children:
            if not names or child.name in names:
                yield child
            yield from child.iter(*names)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes with their values."""
        return {name: unescape(quoted[1:-1]) for name, quoted in _ATTRIBUTE.findall(self.tag)}

    def get(self, name: str) -> str:
        """Return the value of an attribute; empty if it has none."""
        return self.attributes.get(name, "")

    def set(self, values: Mapping[str, str | None], *, add: bool = True) -> None:
        """Give attributes other values; None removes one. Without `add`, only those are changed that it has."""
        missing = dict(values)

        def changed(match: re.Match[str]) -> str:
            name, quoted = match.groups()
            if name not in values:
                return match[0]
            if (value := missing.pop(name)) is None:
                return ""
            return match[0].removesuffix(quoted) + quote_attribute(value)

        self.tag = _ATTRIBUTE.sub(changed, self.tag)
        if add:
            at = 1 + len(self.prefix + self.name)
            self.tag = self.tag[:at] + _written(missing) + self.tag[at:]

    def insert(self, *new: "Element", after: Sequence["Element"] = ()) -> None:
        """Insert children after the last of the children `after`, else as the first, indented like its neighbours."""
        if not self.end:
            self.tag, self.end = f"{self.tag[:-2]}>", f"</{self.prefix}{self.name}>"
        neighbour = next(iter(after[-1:] or self.children), None)
        indent = self.indent_before(neighbour) if neighbour else ""
        at = self.content.index(after[-1]) + 1 if after else 0
        self.content[at:at] = [indent, *new] if indent else new

    def replace(self, former: Sequence["Element"], *new: "Element", after: Sequence["Element"] = ()) -> None:
        """Insert children where the first of the former ones was, which are removed; without any, like `insert`."""
        self.insert(*new, after=former[:1] or after)
        for child in former:
            self.remove(child)

    def remove(self, child: "Element") -> None:
        """Remove a child, with its indent if it begins a line of the file."""
        at, indent = self.content.index(child), self.indent_before(child)
        del self.content[at]
        if indent:
            self.content[at - 1] = str(self.content[at - 1]).removesuffix(indent)

    def indent_before(self, child: "Element") -> str:
        """Return the white space before a child that begins a line of the file, else nothing."""
        at = self.content.index(child)
        before = str(self.content[at - 1]) if at else ""
        space = before[len(before.rstrip(" \t\r\n")) :]
        return space if "\n" in space else ""


class XmlTree:
    """An XML file to edit: its outermost element is `root`, with the `namespace`; `parsed` is the file as it was.

    The encoding stays; characters that it does not have become references.
    """

    def __init__(self, raw: bytes) -> None:
        """Parse a file; a document type declaration is an error."""
        self.parsed = parse_xml_bytes(raw)
        marked = (name for mark, name in _BYTE_ORDER_MARKS.items() if raw.startswith(mark))
        self._encoding = next(marked, self.parsed.getroottree().docinfo.encoding or "utf-8")
        self._document = _parse(_decode(raw, self._encoding))
        (self.root,) = self._document.children
        self._taken: set[str] = set()
        self.namespace = self.root.get(f"xmlns:{self.root.prefix[:-1]}" if self.root.prefix else "xmlns")

    def iter(self, *names: str) -> Iterator[Element]:
        """Yield the elements of these names, or all, in the file's order."""
        return self._document.iter(*names)

    def lines(self, texts: Mapping[int, Line]) -> Iterator[tuple[Element, Line, Box | None]]:
        """Yield the lines to fill in with their `texts` and boxes: those in the file, else the known ones."""
        elements = zip(list(self.iter("TextLine")), self.parsed.iter("{*}TextLine"), strict=True)
        for index, (element, parsed) in enumerate(elements):
            if line := texts.get(index):
                outline = parse_outline(parsed) or line.outline
                yield element, line, outline.box if outline else None

    def parents(self) -> dict[Element, Element]:
        """Return the parent of each element."""
        return {child: parent for parent in (self._document, *self.iter()) for child in parent.children}

    def new(self, name: str, attributes: Mapping[str, str | None], *content: Element | str) -> Element:
        """Return an element to insert, in the root's namespace; attributes that are None are omitted."""
        prefix = self.root.prefix
        start, end = f"<{prefix}{name}{_written(attributes)}", f"</{prefix}{name}>"
        return Element(name, prefix, f"{start}>", end, [*content]) if content else Element(name, prefix, f"{start}/>")

    def free_id(self, id_: str) -> str:
        """Return this id, numbered if an attribute has it already; it is taken now."""
        if not self._taken:
            self._taken = {value for element in self.iter() for value in element.attributes.values()}
        return take_id("", id_, self._taken)

    def content(self) -> bytes:
        """Return the file."""
        return str(self._document).encode(self._encoding, "xmlcharrefreplace")


def _written(attributes: Mapping[str, str | None]) -> str:
    return "".join(f" {name}={quote_attribute(value)}" for name, value in attributes.items() if value is not None)


def _parse(text: str) -> Element:
    """Return a whole well-formed file as an element without tags."""
    path = [Element("", "", "")]
    for part in _PART.finditer(text):
        written, name = part[0], part["name"]
        if name is None:  # text, a comment, an instruction
            path[-1].content.append(written)
        elif part["closes"]:
            path.pop().end = written
        else:
            element = Element(name, part["prefix"] or "", written)
            path[-1].content.append(element)
            if not written.endswith("/>"):
                path.append(element)
    return path[0]


def _decode(raw: bytes, encoding: str) -> str:
    with suppress(LookupError, UnicodeError):
        text = raw.decode(encoding)
        if text.encode(encoding) == raw:
            return text
    message = f"the file is not plain {encoding}, so it cannot be filled in without changing more: save it as UTF-8"
    raise DataError(message, code="xml-encoding")
