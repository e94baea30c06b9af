"""ALTO XML, version 4 and its predecessors, as eScriptorium, kraken and library scanners write it.

Coordinates must be pixels. `SUBS_CONTENT`, the unhyphenated word, is not used: a line is transcribed as it is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.document import Box, Line, Outline, Page, Point, Skipped, bounds, parse_points
from dsocr.errors import DataError
from dsocr.formats.writing import PlacedWord, WholeImage, placed_words
from dsocr.formats.xml import (
    MarkupWriter,
    XmlLine,
    XmlPage,
    box_of,
    element,
    escaped,
    find_xml,
    read_pages,
    region_of,
    region_outline,
    regions,
    row_of,
    stated_size,
    the_only_page,
    whole_number,
    without_forbidden,
)

_NO_REGION = "eSc_dummyblock_"
"""The block in which eScriptorium writes the lines that stand in no region."""


def find_alto(source: Path) -> list[Path]:
    """The ALTO files of a folder."""
    return find_xml(source, "alto")


def read_alto(source: Path) -> Iterator[Page | Skipped]:
    """The pages of a folder of ALTO files, lines in the order of the file."""
    return read_pages(source, find_alto(source), describe_page)


def describe_page(root: etree._Element) -> XmlPage:
    """What one ALTO document says about its page."""
    unit = root.findtext("{*}Description/{*}MeasurementUnit", "").strip()
    if unit != "pixel":
        raise DataError(f"MeasurementUnit is {unit!r}, where only 'pixel' tells which part of the image is meant")
    page = the_only_page(root)
    image = root.findtext("{*}Description/{*}sourceImageInformation/{*}fileName", "").strip()
    blocks = [block for block in page.iter("{*}TextBlock") if block.get("ID") != _NO_REGION]
    regions = {block: region_of(block, "ID", _outline) for block in blocks}
    lines = [
        XmlLine(
            _text(line),
            row_of(line),
            _outline(line),
            region=regions.get(cast("etree._Element", line.getparent())),
            place=place,
            id=line.get("ID") or "",
        )
        for place, line in enumerate(page.iter("{*}TextLine"))
    ]
    return XmlPage(image or None, stated_size(page, "WIDTH", "HEIGHT"), lines)


def _text(line: etree._Element) -> str:
    """Words as they follow each other; where no space is marked at all, words are taken to be apart."""
    parts = list(line.iter("{*}String", "{*}SP", "{*}HYP"))
    kinds = [etree.QName(part).localname for part in parts]
    gap = "" if "SP" in kinds else " "
    text = ""
    for part, kind in zip(parts, kinds, strict=True):
        content = " " if kind == "SP" else part.get("CONTENT") or ""
        text += gap + content if kind == "String" and text else content
    return text


def _outline(element: etree._Element) -> Outline | None:
    """Of a line or a block: its polygon, else its box."""
    shape = element.find("{*}Shape/{*}Polygon")
    polygon = parse_points(None if shape is None else shape.get("POINTS"))
    baseline = _baseline(element)
    if len(polygon) >= 3:
        return Outline.of_polygon(polygon, baseline)
    box = [whole_number(element, name) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
    if any(side is None for side in box):
        return Outline(bounds(baseline), (), baseline) if len(baseline) >= 2 else None
    left, top, width, height = (side or 0 for side in box)
    return Outline((left, top, left + width, top + height), (), baseline)


def _baseline(line: etree._Element) -> tuple[Point, ...]:
    """Version 4 gives points; earlier ones a single height, which runs along the whole line."""
    text = (line.get("BASELINE") or "").strip()
    height = whole_number(line, "BASELINE")
    if height is None:
        return parse_points(text)
    left, width = whole_number(line, "HPOS") or 0, whole_number(line, "WIDTH") or 0
    return ((left, height), (left + width, height))


NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_PREFIXES: dict[str, str] = {None: NAMESPACE, "xsi": _INSTANCE}  # type: ignore[dict-item]
_LOCATION = f"{NAMESPACE} http://www.loc.gov/standards/alto/v4/alto-4-2.xsd"


def write_alto(folder: Path) -> MarkupWriter:
    """Writes ALTO files into the folder."""
    return MarkupWriter(folder, "alto", alto_document)


def alto_document(whole: WholeImage) -> tuple[etree._Element, int]:
    """The document of one image; no outline had to be moved for it."""
    root = etree.Element(f"{{{NAMESPACE}}}alto", nsmap=_PREFIXES)
    root.set(f"{{{_INSTANCE}}}schemaLocation", _LOCATION)
    description = element(root, "Description", {})
    element(description, "MeasurementUnit", {}, "pixel")
    element(element(description, "sourceImageInformation", {}), "fileName", {}, whole.file)
    width, height = whole.size
    number = {"ID": "page", "PHYSICAL_IMG_NR": 1}
    page = element(element(root, "Layout", {}), "Page", {**number, "WIDTH": width, "HEIGHT": height})
    space = element(page, "PrintSpace", _place((0, 0, width, height)))
    for place, lines in enumerate(regions(whole), start=1):
        outline = region_outline(lines, whole)
        block = element(space, "TextBlock", {"ID": f"r{place}", **_place(outline.box)})
        _add_shape(block, outline)
        for number_, line in enumerate(lines, start=1):
            _add_line(block, f"r{place}l{number_}", line, whole)
    return root, 0


def _add_line(block: etree._Element, id_: str, line: Line, whole: WholeImage) -> None:
    place = _place(box_of(line, whole))
    outline = line.outline
    baseline = {"BASELINE": _points(outline.baseline)} if outline and outline.baseline else {}
    marked = element(block, "TextLine", {"ID": id_, **baseline, **place})
    if outline:
        _add_shape(marked, outline)
    element(marked, "String", {"CONTENT": line.text, **place})


def _add_shape(parent: etree._Element, outline: Outline) -> None:
    if outline.polygon:
        element(element(parent, "Shape", {}), "Polygon", {"POINTS": _points(outline.polygon)})


def _place(box: Box) -> dict[str, object]:
    left, top, right, bottom = box
    return {"HPOS": left, "VPOS": top, "WIDTH": right - left, "HEIGHT": bottom - top}


def _points(points: tuple[tuple[int, int], ...]) -> str:
    return " ".join(f"{x} {y}" for x, y in points)


@dataclass(frozen=True, slots=True)
class Fill:
    """What a line is filled with; `box` is where the line stands.

    `confidence` is 0-1, None where it is not known; `words` has that of each word by its first character's place,
    `characters` that of each character. A word of which none is known has its line's.
    """

    text: str
    confidence: float | None = None
    box: Box | None = None
    words: Mapping[int, float] = field(default_factory=dict)
    characters: Sequence[float] = ()


def content(fill: Fill) -> str:
    """The value of CONTENT for the whole text, in its quotes."""
    return f'"{_quoted(fill.text)}"'


def sureness(fill: Fill) -> str:
    """The attributes that say how sure all of the text is."""
    return _sureness(fill, fill.confidence, 0, len(fill.text))


def one_string(prefix: str, fill: Fill, place: str) -> str:
    """The text as one element; `place` are the attributes that say where it stands."""
    return f"<{prefix}String CONTENT={content(fill)}{place}{sureness(fill)}/>"


def strings(prefix: str, fill: Fill, place: str, box: Box | None, indent: str) -> str:
    """An element for each word and space, each after `indent` but the first.

    One for all where other white space than single spaces divides the words.
    """
    words = list(placed_words(fill.text, box))
    if not words or " ".join(word.text for word in words) != fill.text:
        return one_string(prefix, fill, place)
    further = [
        part for before, word in pairwise(words) for part in (_space(prefix, before, word), _word(prefix, fill, word))
    ]
    return indent.join([_word(prefix, fill, words[0]), *further])


def _word(prefix: str, fill: Fill, word: PlacedWord) -> str:
    told = _sureness(fill, fill.words.get(word.start, fill.confidence), word.start, word.end)
    return f'<{prefix}String CONTENT="{_quoted(word.text)}"{box_attributes(word.box)}{told}/>'


def _space(prefix: str, word: PlacedWord, then: PlacedWord) -> str:
    if word.box is None or then.box is None:
        return f"<{prefix}SP/>"
    return f"<{prefix}SP{box_attributes((word.box[2], word.box[1], then.box[0], word.box[3]))}/>"


def box_attributes(box: Box | None) -> str:
    """The attributes for a box, each with a space before it; none where it is not known."""
    if box is None:
        return ""
    left, top, right, bottom = box
    places = zip(("HPOS", "VPOS", "WIDTH", "HEIGHT"), (left, top, right - left, bottom - top), strict=True)
    return "".join(f' {name}="{number}"' for name, number in places)


def _sureness(fill: Fill, confidence: float | None, start: int, end: int) -> str:
    told = "" if confidence is None else f' WC="{confidence:.4f}"'
    if len(fill.characters) == len(fill.text):
        told += f' CC="{" ".join(str(_doubt(one)) for one in fill.characters[start:end])}"'
    return told


def _doubt(confidence: float) -> int:
    """A confidence as ALTO counts it for characters: tenths that are missing, from 0 to 9."""
    return min(max(int(10 * (1 - confidence) + 1e-9), 0), 9)


def _quoted(text: str) -> str:
    return escaped(without_forbidden(text), quotes=True)
