"""Read and write the XML of ALTO and PAGE.

Element names are matched without their namespace, as both have had many.

Where several files describe a scan, one is read, as one of two pages could be trained on and the other tested on:
HTR-United keeps a normalised copy beside the original (`x.chocomufin.xml`), and eScriptorium exports each layer of
transcriptions by itself.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from html import unescape
from itertools import groupby
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import NamedTuple, cast
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from dsocr.document import (
    Box,
    Item,
    Line,
    Note,
    Outline,
    Page,
    Point,
    Region,
    Skipped,
    SkipReason,
    Table,
    bounds,
    bounds_of_boxes,
    parse_points,
)
from dsocr.errors import DataError, option, typed
from dsocr.formats.format import Columns, ImageFinder, SourceFile, WritePage, Written, copy_page_image, read_files
from dsocr.images import IMAGE_SUFFIXES, decode_image, read_bytes
from dsocr.io.budget import MB, Budget
from dsocr.io.encodings import head
from dsocr.io.files import list_files, relative, split_of_folder
from dsocr.text import is_blank

MAX_XML_BYTES = 32 * MB
_MAX_ELEMENTS = 1_000_000
"""Elements, attributes and coordinates of a file; editing takes some 500 bytes for each."""
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")

FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML forbids, unpaired surrogates included."""

_CUSTOM_TAG = re.compile(r"([\w-]+)\s*\{([^}]*)\}")
_CUSTOM_VALUE = re.compile(r"\s*([^:;]*?)\s*:\s*([^;]*?)\s*(?:;|$)")
_ESCAPED_SIGN = re.compile(r"\\u([0-9a-f]{4})", re.IGNORECASE)
_CONFIDENCE = re.compile(r"0(\.\d{1,19})?|1(\.0{1,19})?|\d(\.\d{1,19})?[eE]-0?[1-9]\d?", re.ASCII)
_NUMBER = re.compile(r"[-+]?\d{1,9}(?:\.\d+)?(?:[eE][-+]?\d)?")
BOX_ATTRIBUTES = ("HPOS", "VPOS", "WIDTH", "HEIGHT")
"""Of an element of ALTO."""


class LineTexts(NamedTuple):
    """The transcription of a line and what a program `read`, named by `mark`; None if the file has none.

    It `is_sure` to be a program's if not only a confidence says so, which a corrected text can have kept. A `fault`
    says why there is no text. `confidence` is the one stated for a text that only a program has read.
    """

    typed: str | None = None
    read: str | None = None
    mark: str = ""
    is_sure: bool = False
    fault: str = ""
    confidence: float | None = None

    @property
    def text(self) -> str:
        """The transcription, else what a program read."""
        return self.typed if self.typed is not None else self.read or ""


@dataclass(frozen=True, slots=True)
class XmlPage:
    """The content of an ALTO or PAGE file: the name of its image, the image's size if stated, lines in reading order.

    With `is_line_image` the only line is the whole image; its outline is just the frame of the image. `region_texts`
    are the texts of regions without lines, `tables` say which regions are cells. `readings` are the texts of lines that
    a program has read, too, by index. `confidences` are those of other texts, by index. `remarks` are messages on
    lines, each with the place.
    """

    image: str | None
    size: tuple[int, int] | None
    lines: list[Line]
    is_line_image: bool = False
    region_texts: Sequence[Line] = ()
    tables: Sequence[Table] = ()
    readings: Mapping[int | None, LineTexts] = field(default_factory=dict)
    confidences: Mapping[int | None, float | None] = field(default_factory=dict)
    remarks: Sequence[tuple[str, str]] = ()

    @property
    def layers(self) -> set[str]:
        """Whether lines were "typed" by a person, and whether a program's text is "beside" a transcription."""
        typed = {"typed" for line in self.lines if line.text and not self._is_only_read(line)}
        return typed | {"beside" for texts in self.readings.values() if texts.typed is not None}

    def _is_only_read(self, line: Line) -> bool:
        return line.index in self.readings and self.readings[line.index].typed is None

    def without_readings(self, layers: Container[str]) -> "XmlPage":
        """Return the page without texts that only a program has read, where the `layers` of its source have others."""
        lines = []
        for line in self.lines:
            texts = self.readings.get(line.index, LineTexts())
            if line.text and self._is_only_read(line) and ("typed" if texts.is_sure else "beside") in layers:
                why = f"only a program has read this line ({texts.mark}), and other lines were typed: type it too"
                line = replace(line, text="", struck=(), unclear=(), untranscribed=why)
            lines.append(line)
        return replace(self, lines=lines)

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield the remarks, and messages on lines whose texts are a program's or no transcription."""
        yield from self.remarks
        for line in self.lines:
            if line.untranscribed:
                yield "have texts but no usable transcription, and count as not transcribed", line.where
            elif line.text and line.index in self.readings:
                taken = "a transcription, which is taken, beside a program's text"
                taken = "one text, which is taken but marked like a program's" if self._is_only_read(line) else taken
                yield f"have {taken} ({self.readings[line.index].mark})", line.where

    def rated_texts(self) -> dict[int | None, tuple[str, float | None]]:
        """Return the text of each line by index, also one that only a program has read, with its confidence."""
        stated = {line.index: (line.text, self.confidences.get(line.index)) for line in self.lines}
        read = {index: (texts.typed or texts.read or "", texts.confidence) for index, texts in self.readings.items()}
        return stated | read

    def placed_lines(self) -> list[Line]:
        """Return the lines, a line image's without an outline."""
        return [replace(line, outline=None, region=None) if self.is_line_image else line for line in self.lines]


def find_xml(source: Path, columns: Columns | None = None, *, root_element: str) -> list[Path]:
    """List the XML files under `source` whose root element has this name, judged by their first kilobytes."""
    pattern = re.compile(rb"<(?:!DOCTYPE\s+)?(?:[\w.-]+:)?" + root_element.encode("ascii") + rb"[\s>]")
    return [path for path in list_files(source, {".xml"}) if pattern.search(head(path).replace(b"\0", b""))]


def read_xml_pages(
    source: Path,
    columns: Columns | None = None,
    *,
    root_element: str,
    parse: Callable[[etree._Element, str], XmlPage],
) -> Iterator[Item]:
    """Read the pages of a source and find their images, one for each scan; a page that cannot be used is skipped."""
    images = ImageFinder(source.parent if source.is_file() else source)
    files = find_xml(source, root_element=root_element)
    chosen, others = choose_files(files, images, lambda path: parse(parse_xml(path), ""))
    yield from others
    stems = Counter(file.stem for file in chosen)
    notes: list[tuple[str, str]] = []

    @cache
    def layers() -> set[str]:
        known: set[str] = set()
        for path in chosen:
            with suppress(DataError):  # reported when the file is read
                known |= parse(parse_xml(path), "").layers
            if len(known) == 2:
                break
        return known

    def read(file: SourceFile) -> Iterator[Item]:
        page = parse(parse_xml(file.path), file.where)
        if page.readings:
            page = page.without_readings(layers())
        notes.extend(page.notes())
        yield from _read_page(file, page, stems)

    yield from read_files(source, chosen, read)
    yield from map(Note, summarize(notes))


def summarize(notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield each message once, after the number of its lines and with the place of the first."""
    by_message: dict[str, list[str]] = defaultdict(list)
    for message, where in notes:
        by_message[message].append(where)
    yield from (f"{len(places)} lines {message}, e.g. {places[0]}" for message, places in by_message.items())


def _read_page(file: SourceFile, xml_page: XmlPage, stems: Counter[str]) -> Iterator[Item]:
    path = file.path
    try:
        image = image_of_page(xml_page, file.images, path)
    except DataError as error:
        yield Skipped(SkipReason.NO_IMAGE, file.where, error.message)
        return
    lines, skipped = list[Line](), list[Line]()
    for line in xml_page.placed_lines():
        is_placed = line.outline or xml_page.is_line_image or not line.text.strip()
        (lines if is_placed else skipped).append(line)
    for line in xml_page.region_texts:
        (lines if line.outline and len(line.text.splitlines()) <= 1 else skipped).append(line)
    for line in skipped:
        unplaced = "the line has no polygon and no box with valid coordinates"
        undivided = "the text of the region is not divided into lines with outlines"
        yield Skipped(SkipReason.NO_OUTLINE, line.where, undivided if line.outline else unplaced)
    # The stem is ambiguous if two folders have it.
    name = relative(path.with_suffix(""), file.root) if stems[path.stem] > 1 else path.stem
    yield Page(
        image=image,
        name=name,
        where=file.where,
        lines=tuple(lines),
        size=xml_page.size,
        page=name,
        split=split_of_folder(path.parent.relative_to(file.root)),
        skipped=tuple(skipped),
        xml=path,
        tables=tuple(xml_page.tables),
    )


def image_of_page(page: XmlPage, images: ImageFinder, file: Path) -> Path:
    """Return the image that a file names, else the one with the file's own name."""
    try:
        return images.find(page.image or file.stem, near=file.parent)
    except DataError as error:
        if error.code == "image-not-found":
            with suppress(DataError):
                return images.find(file.stem, near=file.parent)
        raise


_IMAGE = re.compile(r'\bimageFilename\s*=\s*["\']([^"\']+)|<(?:[\w.-]+:)?fileName>\s*([^<]+?)\s*<')

_layer: ContextVar[str | None] = ContextVar("part of the path of the file to take for a scan", default=None)


@contextmanager
def preferred_layer(name: str | None) -> Iterator[None]:
    """Take the files with this in their path where several describe one scan; a context, as few formats need it."""
    token = _layer.set(name)
    try:
        yield
    finally:
        _layer.reset(token)


def image_stem(file: Path) -> str:
    """Return the stem of the image that an XML file names at its start, else its own, without parsing the file."""
    match = _IMAGE.search(head(file).replace(b"\0", b"").decode("utf-8", "replace"))
    name = unescape(match[1] or match[2]).replace("\\", "/").rpartition("/")[2] if match else file.stem
    path = PurePosixPath(name)
    return (path.stem if path.suffix.lower() in IMAGE_SUFFIXES else name).casefold()


def choose_files(
    files: Sequence[Path], images: ImageFinder, parse: Callable[[Path], XmlPage]
) -> tuple[list[Path], list[Skipped]]:
    """Return one file for each scan, in their order, and the files skipped in favour of each.

    A file that cannot be parsed or whose image cannot be read is returned, and its reader says why.
    Taken is the file that `preferred_layer` names, else the one that is named as its image, else the one with most
    transcribed lines, else the first by its path. Two images are one scan if they have the same name and content and
    are in the same split. Raises DataError if no file is of the preferred layer.
    """
    layer, others, root = (_layer.get() or "").casefold(), dict[Path, Path](), images.source

    def find_image(file: Path) -> Path:
        return image_of_page(parse(file), images, file)

    groups = [group for group in _group(files, root, find_image) if len(group) > 1]

    def rank(file: Path) -> tuple[bool, bool, int, str]:
        where, has_name_of_image = relative(file, root), find_image(file).stem.casefold() == file.stem.casefold()
        texts = sum(not is_blank(line.text) for line in parse(file).lines)
        return layer not in where.casefold(), not has_name_of_image, -texts, where

    for group in groups:
        taken = min(group, key=rank)
        others |= {file: taken for file in group if file != taken}
    if layer and not any(layer in relative(file, root).casefold() for group in groups for file in group):
        named = " and ".join(relative(file, root) for file in groups[0][:2]) if groups else ""
        hint = f"one scan has {named}: name a part of either" if named else f"leave {option('layer', ...)} out"
        message = f"of the files that describe the same scan, none has {_layer.get()!r} in its path"
        raise DataError(message, code="layer-unknown", hint=hint)
    skipped = [
        Skipped(
            SkipReason.OTHER_LAYER,
            relative(file, root),
            f"{relative(taken, root)} describes the same scan; --layer {typed(_difference(file, taken))} takes this",
        )
        for file, taken in others.items()
    ]
    return [file for file in files if file not in others], skipped


def _group(files: Sequence[Path], root: Path, find_image: Callable[[Path], Path]) -> Iterator[list[Path]]:
    """Yield the files that may be of the same scan by the names of their images, those of one scan together."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        by_name[image_stem(file)].append(file)
    for same_name in (group for group in by_name.values() if len(group) > 1):
        images: dict[Path, Path] = {}
        by_scan: dict[object, list[Path]] = defaultdict(list)
        for file in same_name:
            with suppress(DataError):
                images[file] = find_image(file)
        several = len(set(images.values())) > 1
        for file, image in images.items():
            split = split_of_folder(image.parent.relative_to(root))
            with suppress(DataError):
                content = hashlib.sha256(read_bytes(image)).digest() if several else b""
                by_scan[image.name.casefold(), split, content].append(file)
        yield from by_scan.values()


def _difference(file: Path, other: Path) -> str:
    """Return a part of a path that the other does not have."""
    if file.parent != other.parent:
        pairs = zip(reversed(file.parent.parts), reversed(other.parent.parts), strict=False)
        return next((mine for mine, theirs in pairs if mine != theirs and mine not in other.as_posix()), file.name)
    rest = file.stem.removeprefix(other.stem).strip("._- ")
    return rest if rest and rest not in other.name else file.name


def parse_xml(path: Path) -> etree._Element:
    """Parse a file and return the root; entities are not resolved, nothing else is opened, and the size is limited."""
    return parse_xml_bytes(read_xml(path), where=path)


def read_xml(path: Path) -> bytes:
    """Return the content of an XML file. Raises DataError if it is too large."""
    return Budget(size=MAX_XML_BYTES).read(path)


def parse_xml_bytes(raw: bytes, *, where: Path | None = None) -> etree._Element:
    """Parse the content of a file as `parse_xml` does."""
    # Each element has a `<`, each attribute a `=`, and coordinates are digits with a space or comma between them.
    signs = raw.replace(b"\0", b"").translate(_DIGITS_AS_ZEROS)
    Budget(elements=_MAX_ELEMENTS).take(where, elements=sum(map(signs.count, (b"<", b"=", b"0 0", b"0,0"))))
    # A parser per file costs nothing and keeps pages independent of each other.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(raw, parser)
    except (ValueError, etree.XMLSyntaxError) as error:
        raise DataError(f"the XML cannot be read: {error}", code="xml-invalid", where=where) from error
    if root.getroottree().docinfo.internalDTD is not None:
        message = "the XML declares a document type, which neither ALTO nor PAGE does"
        raise DataError(message, code="xml-doctype", where=where)
    return root


def source_line(element: etree._Element) -> int:
    """Return the line of the XML file that an element begins in."""
    return cast("int", element.sourceline or 0)


def integer_attribute(element: etree._Element, name: str) -> int | None:
    """Return a numeric attribute, rounded; None if it is no number."""
    text = (element.get(name) or "").strip()
    return round(float(text)) if _NUMBER.fullmatch(text) else None


def parse_confidence(text: str | None) -> float | None:
    """Return a confidence, 0 to 1; None if there is none, or one in other units."""
    return float(text) if text and _CONFIDENCE.fullmatch(text) else None


def mean_confidence(stated: Iterable[float | None]) -> float | None:
    """Return the mean of the confidences of a text's parts; None unless all are stated."""
    parts = [*stated]
    known = [part for part in parts if part is not None]
    return fmean(known) if known and len(known) == len(parts) else None


def custom_tags(element: etree._Element) -> list[tuple[str, dict[str, str]]]:
    """Return the tags in `custom`, as Transkribus writes them: `structure {type:heading;} abbrev {offset:2;}`."""
    tags = _CUSTOM_TAG.findall(element.get("custom") or "")
    return [(name, dict(_CUSTOM_VALUE.findall(values))) for name, values in tags]


def custom_value(element: etree._Element, tag: str, key: str) -> str:
    """Return a value of a tag in `custom`; empty if there is none."""
    return next((values[key] for name, values in custom_tags(element) if name == tag and key in values), "")


def parse_region(element: etree._Element, labels: Mapping[str, str]) -> Region:
    """Return the region of an element, named by its id, else by its place in the file; see `parse_kind`."""
    id_ = element.get("id") or element.get("ID") or f"line {source_line(element)}"
    return Region(id_, parse_outline(element), parse_kind(element, labels))


def parse_kind(element: etree._Element, labels: Mapping[str, str]) -> str:
    """Return the type of a region or a line: its attribute, the one in `custom`, or the first of its tags' labels."""
    if kind := element.get("type") or custom_value(element, "structure", "type"):
        return _ESCAPED_SIGN.sub(lambda match: chr(int(match[1], 16)), kind)
    return next((labels[tag] for tag in (element.get("TAGREFS") or "").split() if labels.get(tag)), "")


def custom_kind(kind: str) -> str:
    """Return the tag for `custom` that `parse_kind` reads; signs that end it are written as Transkribus does."""
    return "structure {type:" + re.sub(r"[{};\\]", lambda match: f"\\u{ord(match[0]):04x}", kind) + ";}"


def tag_labels(root: etree._Element) -> dict[str, str]:
    """Return the labels of an ALTO document's tags by their ids."""
    return {tag.get("ID", ""): (tag.get("LABEL") or "").strip() for tag in root.iterfind("{*}Tags/{*}*")}


def parse_outline(element: etree._Element) -> Outline | None:
    """Return the outline of a line or a region: its polygon, else its box, else the extent of its baseline.

    None without any, and if coordinates are no numbers, which costs a line and not its page. The type "box" in `custom`
    says that the corners of PAGE are not a drawn polygon.
    """
    left, top, width, height = (integer_attribute(element, name) for name in BOX_ATTRIBUTES)
    at = integer_attribute(element, "BASELINE")  # before version 4 ALTO has a height, which runs along the whole line
    try:
        coords = _parse_points(element, "{*}Coords", "points")
        polygon = coords or _parse_points(element, "{*}Shape/{*}Polygon", "POINTS")
        baseline = _parse_points(element, "{*}Baseline", "points")
        if at is None:
            baseline = baseline or parse_points(element.get("BASELINE"))
        else:
            baseline = ((left or 0, at), ((left or 0) + (width or 0), at))
    except DataError:
        return None
    if len(polygon) >= 3:
        outline = Outline.of_polygon(polygon, baseline)
        return replace(outline, polygon=()) if custom_value(element, "outline", "type") == "box" else outline
    if left is not None and top is not None and width is not None and height is not None:
        return Outline((left, top, left + width, top + height), (), baseline)
    points = coords or (baseline if len(baseline) >= 2 else ())  # two corners are a box in PAGE, but not in ALTO
    return Outline(bounds(points), (), baseline) if points else None


def _parse_points(element: etree._Element, path: str, name: str) -> tuple[Point, ...]:
    """Return the points in an attribute of a child, or in its own `Point` children as PAGE of 2010 has them."""
    child = element.find(path)
    if child is None:
        return ()
    pairs = [(integer_attribute(point, "x"), integer_attribute(point, "y")) for point in child.iterchildren("{*}Point")]
    return parse_points(child.get(name)) or tuple((x, y) for x, y in pairs if x is not None and y is not None)


def only_page(root: etree._Element) -> etree._Element:
    """Return the `Page` element of a file that must have exactly one."""
    pages = list(root.iter("{*}Page"))
    if len(pages) != 1:
        raise DataError(f"{len(pages)} pages in one file, where one is expected", code="xml-page-count")
    return pages[0]


_MOST_ROWS, _MOST_COLUMNS = 20_000, 1_000
"""Larger numbers in a cell are damage."""

UNGROUPED_BLOCK = "eSc_dummyblock_"
"""The block in which eScriptorium puts lines without a region."""


def cell_place(element: etree._Element) -> tuple[int, int, int, int] | None:
    """Return row, column, row span and column span of a cell of PAGE, in the words of its schema or of Transkribus."""
    role = element.find("{*}Roles/{*}TableCellRole")
    names = ("row", "col") if role is None else ("rowIndex", "columnIndex")
    defaults = dict(zip((*names, "rowSpan", "colSpan"), (-1, -1, 1, 1), strict=True))
    stated = {name: integer_attribute(element if role is None else role, name) for name in defaults}
    row, column, rows, columns = (defaults | {name: n for name, n in stated.items() if n is not None}).values()
    is_inside = 0 <= row <= _MOST_ROWS - max(rows, 1) and 0 <= column <= _MOST_COLUMNS - max(columns, 1)
    return (row, column, max(rows, 1), max(columns, 1)) if is_inside else None


Document = Callable[[Page], tuple[etree._Element, dict[str, int]]]
"""Makes the XML of a page, and counts the changes made for it."""


@contextmanager
def writing_xml(out: Path, columns: Sequence[str], *, name: str, document: Document) -> Iterator[WritePage]:
    """Write an XML file for each image in the folder `name`, images one level up; splits have folders of their own."""

    def write(page: Page, stem: str) -> Written:
        folder = out / page.split if page.split else out
        copy = copy_page_image(page, folder, stem)
        if isinstance(copy, Skipped):
            return Written(0, [copy])
        root, changes = document(copy)
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{stem}.xml").write_bytes(serialize(root))
        return Written(len(copy.lines), changes=changes)

    yield write


def material_to_fill(
    page: Page, path: Path, root_element: str, document: Document
) -> tuple[bytes, dict[int, Line], bool]:
    """Return an XML file without the transcribed texts, the lines to fill in by index, and whether the file is new.

    A page that came as an XML file with this root element keeps its file. A new file is to be written to `path`; the
    page of a PDF is written beside it as an image, because programs want the image file that the XML names.
    """
    if page.xml and etree.QName(parse_xml(page.xml)).localname == root_element:
        return read_xml(page.xml), predicted_lines(page), False
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


def new_document(name: str, namespace: str, schema: str) -> etree._Element:
    """Return the root of a new document that states the address of its schema."""
    instance = "http://www.w3.org/2001/XMLSchema-instance"
    prefixes: dict[str, str] = {None: namespace, "xsi": instance}  # type: ignore[dict-item]
    root = etree.Element(f"{{{namespace}}}{name}", nsmap=prefixes)
    root.set(f"{{{instance}}}schemaLocation", f"{namespace} {schema}")
    return root


def add_element(parent: etree._Element, name: str, attributes: Mapping[str, object], text: str = "") -> etree._Element:
    """Add a child in the parent's namespace; attributes keep their order."""
    namespace = etree.QName(parent).namespace
    child = etree.SubElement(parent, f"{{{namespace}}}{name}", {key: str(value) for key, value in attributes.items()})
    child.text = text or None
    return child


_ID = re.compile(
    "[A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff]"
    "[-.0-9A-Z_a-z\u00b7\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u037d\u037f-\u1fff]*"
)
"""An XML name without a colon, as far as scripts of living languages go."""
_PLACE = re.compile(r"line \d+")
"""The name `parse_region` gives a region without an id."""
_TAKEN_IDS = frozenset({"page", "order"})
"""Ids of other elements of the documents written here."""


def take_id(known: str, default: str, taken: set[str]) -> str:
    """Return the known id if it is valid and free, else the default, numbered if it is not free; it is taken now."""
    id_, number = known if _ID.fullmatch(known) and known not in taken | _TAKEN_IDS else default, 1
    while id_ in taken | _TAKEN_IDS:
        number += 1
        id_ = f"{default}-{number}"
    taken.add(id_)
    return id_


def name_elements(lines: Iterable[Line]) -> list[tuple[str, list[tuple[str, Line]]]]:
    """Return the id of each region with its lines and their ids: unique, and the source's where they are valid."""
    taken: set[str] = set()
    regions = group_by_region(lines)
    own_ids = [group[0].region.id if group[0].region else "" for group in regions]
    region_ids = [take_id(known, f"r{number}", taken) for number, known in enumerate(own_ids, start=1)]
    return [
        (id_, [(take_id(line.id, f"r{number}l{place}", taken), line) for place, line in enumerate(group, start=1)])
        for number, (id_, group) in enumerate(zip(region_ids, regions, strict=True), start=1)
    ]


def count_changed_ids(page: Page, regions: Iterable[tuple[str, list[tuple[str, Line]]]]) -> dict[str, int]:
    """Count the ids of the page's ALTO or PAGE file that `name_elements` did not keep."""
    if page.xml is None:
        return {}
    ids = [(id_, line.id) for _, lines in regions for id_, line in lines]
    # A region without an id is called by its place.
    ids += [
        (id_, region.id) for id_, lines in regions if (region := lines[0][1].region) and not _PLACE.fullmatch(region.id)
    ]
    replaced = sum(1 for id_, known in ids if known and id_ != known)
    return {"ids that were invalid or occurred twice, and were replaced": replaced}


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


def replace_forbidden(text: str) -> str:
    """Replace each character that no XML document may contain by U+FFFD."""
    return FORBIDDEN.sub("\ufffd", text)


def escape_text(text: str) -> str:
    """Escape a text for an element's content."""
    return escape(replace_forbidden(text), {"\r": "&#13;"})


def quote_attribute(text: str) -> str:
    """Escape and quote a text for an attribute's value."""
    return quoteattr(replace_forbidden(text))
