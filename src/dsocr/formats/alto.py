"""ALTO XML, version 4 and its predecessors, as eScriptorium, kraken and library scanners write it.

Coordinates must be pixels. `SUBS_CONTENT`, the unhyphenated word, is not used: a line is transcribed as it is written,
with the hyphen that `HYP` stands for.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.document import Box, Line, Outline, Page, Point, ProcessingStep, word_boxes
from dsocr.errors import DataError
from dsocr.formats import xml
from dsocr.formats.format import Format, stated_size
from dsocr.formats.xml import XmlPage, add_element, integer_attribute
from dsocr.formats.xml_tree import Element, XmlTree
from dsocr.text import HYPHENS

NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"

_BLOCKS = ("{*}TextBlock", "{*}Illustration", "{*}GraphicalElement")
_TEXT_ELEMENTS = frozenset({"String", "SP", "HYP"})
_STALE_ATTRIBUTES = ("WC", "CC", "SUBS_TYPE", "SUBS_CONTENT")
"""Attributes of a `String` that describe its former text: confidences, and the whole of a hyphenated word."""


def parse_alto(root: etree._Element, where: str = "") -> XmlPage:
    """Parse an ALTO document; `where` begins the place of each line."""
    unit = root.findtext("{*}Description/{*}MeasurementUnit", "").strip()
    if unit != "pixel":
        message = f"MeasurementUnit is {unit!r}, where only 'pixel' tells which part of the image is meant"
        raise DataError(message, code="alto-unit-not-pixel")
    page = xml.only_page(root)
    image = root.findtext("{*}Description/{*}sourceImageInformation/{*}fileName", "").strip()
    blocks = [block for block in page.iter("{*}TextBlock") if block.get("ID") != xml.UNGROUPED_BLOCK]
    labels = xml.tag_labels(root)
    regions = {block: xml.parse_region(block, labels) for block in blocks}
    ranks = _reading_order(page)
    lines = [
        Line(
            _parse_text(line),
            f"{where}:{xml.source_line(line)}",
            xml.parse_outline(line),
            region=regions.get(cast("etree._Element", line.getparent())),
            index=index,
            id=line.get("ID") or "",
            kind=xml.parse_kind(line, labels),
        )
        for index, line in sorted(enumerate(page.iter("{*}TextLine")), key=lambda item: _rank(item[1], ranks))
    ]
    size = stated_size(integer_attribute(page, "WIDTH"), integer_attribute(page, "HEIGHT"))
    remarks = [
        ("have words without SP between them, which are read as separate words", f"{where}:{xml.source_line(line)}")
        for line in page.iter("{*}TextLine")
        if _is_partly_spaced(line)
    ]
    stated = (
        xml.mean_confidence(xml.parse_confidence(string.get("WC")) for string in line.iter("{*}String"))
        for line in page.iter("{*}TextLine")
    )
    return XmlPage(image or None, size, lines, confidences=dict(enumerate(stated)), remarks=remarks)


find_alto = partial(xml.find_xml, root_element="alto")
read_alto = partial(xml.read_xml_pages, root_element="alto", parse=parse_alto)


def _reading_order(page: etree._Element) -> dict[str, int]:
    """Return the ranks of ids by `ReadingOrder`, else by the chains of `IDNEXT`; empty if neither is stated."""
    ids = dict.fromkeys(ref.get("REF", "") for ref in page.getroottree().iter("{*}ElementRef"))
    following = {block.get("ID", ""): block.get("IDNEXT", "") for block in page.iter(*_BLOCKS)}
    if not ids and (targets := set(following.values()) - {""}):
        for id_ in [first for first in following if first not in targets]:
            while id_ in following and id_ not in ids:
                ids[id_] = None
                id_ = following[id_]
    return {id_: rank for rank, id_ in enumerate(ids)}


def _rank(line: etree._Element, ranks: Mapping[str, int]) -> int:
    """Return the rank of a line, else of the nearest element around it, else of the first inside; others come last."""
    family = (line, *line.iterancestors(), *line.iterdescendants()) if ranks else ()
    return next((ranks[id_] for element in family if (id_ := element.get("ID", "")) in ranks), len(ranks))


def _parse_text(line: etree._Element) -> str:
    """Join the words, whether or not `SP` is between them; the page shows a hyphen even where that of `HYP` is soft."""
    text = ""
    for part in line.iter("{*}String", "{*}HYP"):
        content = part.get("CONTENT", "")
        if etree.QName(part).localname == "String":
            text = f"{text} {content}".strip()
        elif not text.endswith(tuple(HYPHENS)):
            text += content.strip(" \u00ad") or ("-" if text else "")
    return text


def _is_partly_spaced(line: etree._Element) -> bool:
    """Whether some words of a line are separated by `SP` and others are not."""
    parts = [etree.QName(part).localname for part in line.iter("{*}String", "{*}SP")]
    return "SP" in parts and ("String", "String") in pairwise(parts)


def alto_document(page: Page) -> tuple[etree._Element, dict[str, int]]:
    """Return the document of one page, and counts of the changes made for it."""
    root = xml.new_document("alto", NAMESPACE, "http://www.loc.gov/standards/alto/v4/alto-4-2.xsd")
    description = add_element(root, "Description", {})
    add_element(description, "MeasurementUnit", {}, "pixel")
    add_element(add_element(description, "sourceImageInformation", {}), "fileName", {}, page.image.name)
    regions = xml.name_elements(page.lines)
    kinds = dict.fromkeys(lines[0][1].region.kind for _, lines in regions if lines[0][1].region)
    kinds |= dict.fromkeys(line.kind for line in page.lines)
    tags = {kind: f"type_{number}" for number, kind in enumerate(filter(None, kinds))}
    if tags:
        listed = add_element(root, "Tags", {})
        for kind, tag in tags.items():
            add_element(listed, "OtherTag", {"ID": tag, "LABEL": kind})
    width, height = cast("tuple[int, int]", page.size)
    attributes = {"ID": "page", "PHYSICAL_IMG_NR": 1, "WIDTH": width, "HEIGHT": height}
    element = add_element(add_element(root, "Layout", {}), "Page", attributes)
    space = add_element(element, "PrintSpace", box_attributes((0, 0, width, height)))
    for id_, named_lines in regions:
        outline = xml.region_outline([line for _, line in named_lines], page)
        block = _add_outlined(space, "TextBlock", id_, outline, outline.box)
        if (region := named_lines[0][1].region) and region.kind:
            block.set("TAGREFS", tags[region.kind])
        for line_id, line in named_lines:
            box = xml.line_box(line, page)
            element = _add_outlined(block, "TextLine", line_id, line.outline, box)
            if line.kind:
                element.set("TAGREFS", tags[line.kind])
            add_element(element, "String", {"CONTENT": line.text, **box_attributes(box)})
    return root, xml.count_changed_ids(page, regions)


def _add_outlined(parent: etree._Element, name: str, id_: str, outline: Outline | None, box: Box) -> etree._Element:
    baseline = {"BASELINE": _format_points(outline.baseline)} if outline and outline.baseline else {}
    element = add_element(parent, name, {"ID": id_, **baseline, **box_attributes(box)})
    if outline and outline.polygon:
        add_element(add_element(element, "Shape", {}), "Polygon", {"POINTS": _format_points(outline.polygon)})
    return element


def box_attributes(box: Box | None) -> dict[str, str]:
    """Return the attributes of an element with this box; none without one."""
    if box is None:
        return {}
    left, top, right, bottom = box
    return dict(zip(xml.BOX_ATTRIBUTES, map(str, (left, top, right - left, bottom - top)), strict=True))


def _format_points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{x} {y}" for x, y in points)


def write_alto_pages(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write a transcribed page as ALTO 4.2 with a `String` for each word; an ALTO file is filled in place."""
    for page in pages:
        raw, texts, is_new = xml.material_to_fill(page, path, "alto", alto_document)
        path.write_bytes(fill_alto(XmlTree(raw), texts, step, words=is_new))


def fill_alto(
    tree: XmlTree, texts: Mapping[int, Line], step: ProcessingStep | None = None, *, words: bool = False
) -> bytes:
    """Return an ALTO file with new texts in the lines `texts`, by their index; everything else stays as it is.

    A line with one `String` or none gets one, and a line with several gets one for each word, as all do with `words`.
    `step` is added where the version allows.
    """
    for element, line, box in tree.lines(texts):
        _fill_line(tree, element, line, box, words=words)
    if step and texts:
        _add_step(tree, step)
    return tree.content()


def _fill_line(tree: XmlTree, element: Element, line: Line, box: Box | None, *, words: bool) -> None:
    former = element.all(*_TEXT_ELEMENTS)
    if not words and len(former) == 1 and former[0].name == "String" and not former[0].children:
        # Its other attributes stay.
        former[0].set(dict.fromkeys(_STALE_ATTRIBUTES), add=False)
        former[0].set({"CONTENT": line.text, **_confidences(line, line.confidence, 0, len(line.text))})
        return
    strings = _strings(tree, line, box, words=words or len(element.all("String")) > 1)
    element.replace(former, *strings, after=element.all("Shape"))


def _strings(tree: XmlTree, line: Line, box: Box | None, *, words: bool) -> list[Element]:
    """Return one element, or with `words` one for each word and space if single spaces separate words."""
    split, known = word_boxes(line.text, box, line.word_sides), line.word_confidences
    if not words or not split or " ".join(word for word, _, _ in split) != line.text:
        split, known = [(line.text, 0, box)], {}
    parts: list[Element] = []
    before: Box | None = None
    for word, start, word_box in split:
        if parts:
            gap = (before[2], before[1], word_box[0], before[3]) if before and word_box else None
            parts.append(tree.new("SP", box_attributes(gap)))
        confidences = _confidences(line, known.get(start, line.confidence), start, start + len(word))
        parts.append(tree.new("String", {"CONTENT": word, **box_attributes(word_box), **confidences}))
        before = word_box
    return parts


def _confidences(line: Line, confidence: float | None, start: int, end: int) -> dict[str, str]:
    attributes = {} if confidence is None else {"WC": f"{confidence:.4f}"}
    characters = line.character_confidences
    if line.text and len(characters) == len(line.text):
        # ALTO rates characters from 0, certain, to 9.
        doubts = (min(max(int(10 * (1 - confidence) + 1e-9), 0), 9) for confidence in characters[start:end])
        attributes["CC"] = " ".join(map(str, doubts))
    return attributes


def _add_step(tree: XmlTree, step: ProcessingStep) -> None:
    description = next(tree.iter("Description"), None)
    if description is None:
        return

    def elements(**values: str) -> list[Element]:
        return [tree.new(name, {}, xml.escape_text(value)) for name, value in values.items() if value]

    inner = elements(
        processingDateTime=step.date,
        processingStepDescription=step.description,
        processingStepSettings=step.settings,
    )
    software = elements(softwareName=step.software, softwareVersion=step.version)
    inner.append(tree.new("processingSoftware", {}, *software))
    id_ = tree.free_id("dsocr")
    if tree.namespace.endswith(("ns-v4#", "ns-v5#")):
        new = tree.new("Processing", {"ID": id_}, *elements(processingCategory="contentGeneration"), *inner)
    else:
        new = tree.new("OCRProcessing", {"ID": id_}, tree.new("ocrProcessingStep", {}, *inner))
    description.insert(new, after=description.children)


FORMATS = (
    Format(
        name="alto",
        title="ALTO XML files",
        find=find_alto,
        read=read_alto,
        example=r"escriptorium -o data/mine --writer '(\w+?)_\d+'",
        writing=partial(xml.writing_xml, name="alto", document=alto_document),
        forbidden=xml.FORBIDDEN,
        keeps_pages=True,
        keeps_regions=True,
        next_step="import {out} into eScriptorium, images and alto/ together",
        write_pages=write_alto_pages,
        suffix=".xml",
        one_page_per_file=True,
    ),
)
