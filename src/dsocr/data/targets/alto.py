"""ALTO 4.2 in pixels: images, and beside them a folder `alto` with a file for each.

A line is one `String` with its spaces inside, as eScriptorium writes it, so that the text is the same to the letter.
Where no polygon is known there is no `Shape`, only the box.
"""

from pathlib import Path

from lxml import etree

from dsocr.data.sources.layout import Box, Outline, SourceLine
from dsocr.data.targets.images import WholeImage
from dsocr.data.targets.markup import MarkupWriter, box_of, element, region_outline, regions

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


def _add_line(block: etree._Element, id_: str, line: SourceLine, whole: WholeImage) -> None:
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
