"""Texts that people have beside their scans: one file a page, or one for all pages, without the lines."""

import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from lxml import etree

from dsocr.document import Line
from dsocr.errors import DataError, first_few
from dsocr.formats import XML_PARSERS
from dsocr.formats.pdf import PDF_SUFFIXES, page_texts
from dsocr.formats.sheets import SHEET_SUFFIXES, mark_struck
from dsocr.formats.tables import open_table
from dsocr.formats.xml import MAX_XML_BYTES, parse_xml, parse_xml_bytes, source_line
from dsocr.io.budget import Budget
from dsocr.io.encodings import MAX_TEXT_BYTES, read_text
from dsocr.io.files import list_files, relative
from dsocr.text import is_blank

_TABLES = frozenset({".csv", ".tsv", ".jsonl"}) | SHEET_SUFFIXES
SUFFIXES = _TABLES | PDF_SUFFIXES | {".txt", ".md", ".docx", ".xml"}
"""Files that texts are read from."""
_HINT = f"texts are in files that end in {', '.join(sorted(SUFFIXES))}"

_EMPHASIS = re.compile(r"\*(?=\S)([^*\n]+)(?<=\S)\*")
_MARKDOWN = (
    (re.compile(r"^\s{0,3}(?:#{1,6}|>|[-*+]|\d+\.)\s+", re.MULTILINE), ""),
    (re.compile(r"!\[[^\[\]\n]*\]\((?:[^()\n]|\([^()\n]*\))*\)"), ""),
    (re.compile(r"\[([^\[\]\n]*)\]\((?:[^()\n]|\([^()\n]*\))*\)"), r"\1"),
    *[(_EMPHASIS, r"\1")] * 3,  # italic, bold, both
    (re.compile(r"__(?=\S)((?:[^_\n]|_(?!_))+)(?<=\S)__"), r"\1"),
    (re.compile(r"`([^`\n]+)`"), r"\1"),
    (re.compile(r"^[ \t]{0,3}(?:[-*_][ \t]*){3,}$", re.MULTILINE), ""),
)
"""Signs of Markdown, in patterns that never look at a place twice, and their replacements."""
_MAX_PAGES = 100_000
"""Pages of a source of texts."""
_NOT_WRITTEN = frozenset({"note", "teiHeader", "fw", "facsimile", "sourceDoc", "figDesc", "ex", "supplied"})
"""Elements of TEI whose text is not on the page, or stands there apart."""
_VARIANTS = frozenset({"choice", "app"})
"""Elements of TEI that give the same place in several readings."""
_EDITED = frozenset({"expan", "corr", "reg", "rdg", "rdgGrp", "note"})
"""Readings that the page does not have: those of the editor, and of other witnesses than the edition follows."""
_BREAKS = frozenset({"p", "lb", "ab", "l", "lg", "head", "div", "cell", "row", "item", "opener", "closer", "salute"})


@dataclass(frozen=True, slots=True)
class PageText:
    """A text and its place; `name` is that of the page that it belongs to, empty where the source does not say."""

    text: str
    where: str
    name: str = ""


def read_page_texts(source: Path, columns: Mapping[str, str] | None = None) -> list[PageText]:
    """Read the texts of a file, or of all files of a folder, in their order.

    Text files are parted by form feeds, TEI by `pb`, PDF by its pages, tables by their rows; ALTO and PAGE files, and
    the files of a folder, are a page each. Raises DataError if nothing can be read.
    """
    if not source.exists():
        raise DataError("no such file or folder", code="input-missing", where=source)
    files = [source] if source.is_file() else list_files(source, SUFFIXES)
    root = source.parent if source.is_file() else source
    texts: list[PageText] = []
    budget = Budget(elements=_MAX_PAGES)
    for path in files:
        where, pages = relative(path, root), list[PageText]()
        for page in _read_file(path, where, columns or {}):
            budget.take(path, elements=1)
            pages.append(page)
        if len(pages) == 1 and not pages[0].name and len(files) > 1:
            pages = [PageText(pages[0].text, where, path.stem)]
        texts += [page for page in pages if not is_blank(page.text)]
    if not texts:
        if not files:
            raise DataError("there is no text in it", code="texts-missing", where=source, hint=_HINT)
        hint = _HINT
        if any(path.suffix.lower() in PDF_SUFFIXES for path in files):
            hint = "a PDF of images has no text; give a text file, or read it with an OCR program first"
        names = first_few([relative(path, root) for path in files], 5)
        raise DataError(f"nothing is written in {names}", code="texts-missing", where=source, hint=hint)
    return texts


def _read_file(path: Path, where: str, columns: Mapping[str, str]) -> Iterator[PageText]:
    suffix = path.suffix.lower()
    if suffix in _TABLES:
        roles, table = open_table(path, columns)
        table.require_whole(path)
        for number, cells in table.rows:
            name = Path(cells.get(roles["image"], "").replace("\\", "/")).stem
            yield PageText(mark_struck(cells.get(roles["text"], "")), f"{where}:{number}", name)
    elif suffix in PDF_SUFFIXES:
        yield from _numbered(page_texts(path), where)
    elif suffix == ".xml":
        yield from _read_xml(path, where)
    elif suffix == ".docx":
        yield from _numbered(_docx_pages(path), where)
    elif suffix in SUFFIXES:
        text = read_text(path)
        Budget(elements=_MAX_PAGES).take(path, elements=text.count("\f"))
        for pattern, replacement in _MARKDOWN if suffix == ".md" else ():
            text = pattern.sub(replacement, text)
        yield from _numbered(text.split("\f"), where)
    else:
        message = f"texts are not read from {suffix or 'files without a suffix'}"
        raise DataError(message, code="texts-format", where=path, hint=_HINT)


def _numbered(pages: Iterable[str], where: str) -> Iterator[PageText]:
    texts = list(pages)
    for number, text in enumerate(texts, start=1):
        yield PageText(text, f"{where}#{number}" if len(texts) > 1 else where)


def _read_xml(path: Path, where: str) -> Iterator[PageText]:
    root = parse_xml(path)
    kind = etree.QName(root).localname
    if kind in XML_PARSERS:
        page = XML_PARSERS[kind](root, where)
        lines: Iterable[Line] = [*page.lines, *page.region_texts]
        yield PageText("\n".join(line.text for line in lines if line.text), where, Path(page.image or path.name).stem)
    elif kind in {"TEI", "TEI.2", "teiCorpus"}:
        parts: list[str] = []
        place, name = where, ""
        for part in _walk_tei(root):  # the name of a page is the file that its `facs` names
            if isinstance(part, str):
                parts.append(part)
                continue
            yield PageText("".join(parts), place, name)
            parts, place = [], f"{where}:{source_line(part)}"
            name = Path((part.get("facs") or "").replace("\\", "/")).stem
        yield PageText("".join(parts), place, name)
    else:
        hint = "TEI, ALTO and PAGE are read; save other texts as a text file"
        raise DataError(f"the XML is <{kind}>, in which no text is known", code="texts-format", where=path, hint=hint)


def _walk_tei(element: etree._Element) -> Iterator[str | etree._Element]:
    """Yield the texts that stand on the pages, and the `pb` elements between them."""
    tag = etree.QName(element).localname
    if tag in _NOT_WRITTEN:
        return
    if tag == "pb":
        yield element
    if tag in _BREAKS and element.get("break") != "no":
        yield "\n"
    children = [child for child in element if isinstance(child.tag, str)]
    if tag in _VARIANTS and children:
        yield from _walk_tei(min(children, key=lambda child: etree.QName(child).localname in _EDITED))
        return
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str):  # not a comment
            yield from _walk_tei(child)
        yield child.tail or ""


_NOT_SHOWN = frozenset({"del", "moveFrom", "Fallback"})
"""Elements of Word files whose text was deleted or moved away, or stands there a second time for older programs."""


def _docx_pages(path: Path) -> list[str]:
    """Return the texts between the page breaks of a Word file, those in tables, links and text boxes included."""
    content = Budget(size=MAX_TEXT_BYTES).read(path)
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            links = parse_xml_bytes(_unpack(archive, "_rels/.rels", path), where=path)
            targets = [link.get("Target", "") for link in links if link.get("Type", "").endswith("/officeDocument")]
            root = parse_xml_bytes(_unpack(archive, targets[0].lstrip("/"), path), where=path)
    except (BadZipFile, LookupError, NotImplementedError, OSError, RuntimeError, zlib.error) as error:
        message, hint = f"the Word file cannot be read: {error}", "open it in Word and save it as .docx again"
        raise DataError(message, code="docx-damaged", where=path, hint=hint) from error
    return "".join(_walk_docx(root)).replace("~~~~", "").split("\f")


def _unpack(archive: ZipFile, name: str, path: Path) -> bytes:
    entry = archive.getinfo(name)
    Budget(size=MAX_XML_BYTES).unpack(path, packed=entry.compress_size, unpacked=entry.file_size)
    return archive.read(entry)


def _is_struck(run: etree._Element) -> bool:
    marks = [mark for name in ("strike", "dstrike") for mark in run.iterfind(f"{{*}}rPr/{{*}}{name}")]
    return any({"0", "false", "off"}.isdisjoint(mark.values()) for mark in marks)


def _walk_docx(root: etree._Element) -> Iterator[str]:
    """Yield the text that Word shows, `~~` around what is struck; lines end with line breaks, pages with form feeds."""
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = etree.QName(element).localname if isinstance(element.tag, str) else ""
        if event == "end":
            if tag == "p":
                yield "\n"
        elif tag in _NOT_SHOWN:
            walk.skip_subtree()
        elif tag == "t":
            yield f"~~{element.text}~~" if element.text and _is_struck(element.getparent()) else element.text or ""
        elif tag == "noBreakHyphen":
            yield "-"
        elif tag == "tab" and etree.QName(element.getparent()).localname == "r":  # else it says where tabs stop
            yield "\t"
        elif tag in {"br", "cr"}:
            yield "\f" if "page" in element.values() else "\n"
