"""ALTO XML, version 4 and its predecessors, as eScriptorium, kraken and library scanners write it.

Coordinates must be pixels. `SUBS_CONTENT`, the unhyphenated word, is not used: a line is transcribed as it is written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.data.sources.layout import LeftOut, Outline, Point, SourceImage, points
from dsocr.data.sources.markup import (
    Line,
    Page,
    find_xml,
    read_pages,
    region_of,
    row_of,
    stated_size,
    the_only_page,
    whole_number,
)
from dsocr.errors import DataError

_NO_REGION = "eSc_dummyblock_"
"""The block in which eScriptorium writes the lines that stand in no region."""


def find_alto(source: Path) -> list[Path]:
    """The ALTO files of a folder."""
    return find_xml(source, "alto")


def read_alto(source: Path) -> Iterator[SourceImage | LeftOut]:
    """The pages of a folder of ALTO files, lines in the order of the file."""
    return read_pages(source, find_alto(source), describe_page)


def describe_page(root: etree._Element) -> Page:
    """What one ALTO document says about its page."""
    unit = root.findtext("{*}Description/{*}MeasurementUnit", "").strip()
    if unit != "pixel":
        raise DataError(f"MeasurementUnit is {unit!r}, where only 'pixel' tells which part of the image is meant")
    page = the_only_page(root)
    image = root.findtext("{*}Description/{*}sourceImageInformation/{*}fileName", "").strip()
    blocks = [block for block in page.iter("{*}TextBlock") if block.get("ID") != _NO_REGION]
    regions = {block: region_of(block, "ID", _outline) for block in blocks}
    lines = [
        Line(
            _text(line),
            row_of(line),
            _outline(line),
            region=regions.get(cast("etree._Element", line.getparent())),
            place=place,
            id=line.get("ID") or "",
        )
        for place, line in enumerate(page.iter("{*}TextLine"))
    ]
    return Page(image or None, stated_size(page, "WIDTH", "HEIGHT"), lines)


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
    polygon = points(None if shape is None else shape.get("POINTS"))
    baseline = _baseline(element)
    if len(polygon) >= 3:
        return Outline.of_polygon(polygon, baseline)
    box = [whole_number(element, name) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT")]
    if any(side is None for side in box):
        return None
    left, top, width, height = (side or 0 for side in box)
    return Outline((left, top, left + width, top + height), (), baseline)


def _baseline(line: etree._Element) -> tuple[Point, ...]:
    """Version 4 gives points; earlier ones a single height, which runs along the whole line."""
    text = (line.get("BASELINE") or "").strip()
    height = whole_number(line, "BASELINE")
    if height is None:
        return points(text)
    left, width = whole_number(line, "HPOS") or 0, whole_number(line, "WIDTH") or 0
    return ((left, height), (left + width, height))
