"""PAGE XML of any version from 2010 to 2019, as Transkribus, eScriptorium and Aletheia write it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lxml import etree

from dsocr.data.sources.layout import LeftOut, Outline, Point, Region, SourceImage, points
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

_LAST = 1 << 30
_CUSTOM_OUTLINE = re.compile(r"outline\s*\{\s*type\s*:\s*(box|image)\b")
"""What `convert` writes where less is known of a line than a polygon."""

_CUSTOM_ORDER = re.compile(r"readingOrder\s*\{\s*index\s*:\s*(\d+)")


def find_page(source: Path) -> list[Path]:
    """The PAGE files of a folder."""
    return find_xml(source, "PcGts")


def read_page(source: Path) -> Iterator[SourceImage | LeftOut]:
    """The pages of a folder of PAGE files, lines in reading order."""
    return read_pages(source, find_page(source), describe_page)


def describe_page(root: etree._Element) -> Page:
    """What one PAGE document says about its page."""
    page = the_only_page(root)
    image = (page.get("imageFilename") or "").strip()
    places = {line: place for place, line in enumerate(page.iter("{*}TextLine"))}
    lines = [
        Line(
            _text(line),
            row_of(line),
            _outline(line),
            _known(line) == "image",
            region,
            places[line],
            line.get("id") or "",
        )
        for region, region_lines in _regions_in_order(page)
        for line in region_lines
    ]
    return Page(image or None, stated_size(page, "imageWidth", "imageHeight"), lines)


def _regions_in_order(page: etree._Element) -> Iterator[tuple[Region | None, list[etree._Element]]]:
    """Regions by `ReadingOrder`, else by Transkribus' `custom`, else as in the file; lines within them likewise."""
    ranks = _reading_order(page)
    regions = list(
        dict.fromkeys(parent for line in page.iter("{*}TextLine") if (parent := line.getparent()) is not None)
    )
    for region in sorted(regions, key=lambda region: _rank(region, ranks)):
        known = None if region is page else region_of(region, "id", _outline)
        yield known, sorted(region.iterchildren("{*}TextLine"), key=_custom_rank)


def _reading_order(page: etree._Element) -> dict[str, int]:
    """Region id -> place, nested groups flattened; empty where the page has no reading order."""
    order = page.find("{*}ReadingOrder")
    named = [] if order is None else [ref for group in order for ref in _references(group)]
    return {region: place for place, region in enumerate(named)}


def _references(group: etree._Element) -> Iterator[str]:
    region = group.get("regionRef")
    if region:
        yield region
    for child in sorted(group.iterchildren("{*}*"), key=lambda child: _number_or_last(child, "index")):
        yield from _references(child)


def _rank(region: etree._Element, ranks: dict[str, int]) -> int:
    if not ranks:
        return _custom_rank(region)
    family = [region, *region.iterancestors()]
    return next((ranks[id_] for element in family if (id_ := element.get("id")) in ranks), _LAST)


def _custom_rank(element: etree._Element) -> int:
    found = _CUSTOM_ORDER.search(element.get("custom") or "")
    return int(found[1]) if found else _LAST


def _text(line: etree._Element) -> str:
    """The line's own text, else its words'."""
    return own_text(line) or " ".join(filter(None, map(own_text, line.iterchildren("{*}Word"))))


def own_text(element: etree._Element) -> str:
    """A line's, word's or region's: the reading with the lowest index; one without an index counts as the first."""
    readings = sorted(element.iterchildren("{*}TextEquiv"), key=lambda reading: whole_number(reading, "index") or 0)
    return readings[0].findtext("{*}Unicode", "").strip() if readings else ""


def _number_or_last(element: etree._Element, attribute: str) -> int:
    number = whole_number(element, attribute)
    return _LAST if number is None else number


def _outline(element: etree._Element) -> Outline | None:
    """Of a line or a region."""
    polygon = _points_of(element.find("{*}Coords"))
    if not polygon:
        return None
    outline = Outline.of_polygon(polygon, _points_of(element.find("{*}Baseline")))
    return replace(outline, polygon=()) if _known(element) == "box" else outline


def _known(line: etree._Element) -> str:
    found = _CUSTOM_OUTLINE.search(line.get("custom") or "")
    return found[1] if found else ""


def _points_of(element: etree._Element | None) -> tuple[Point, ...]:
    """Points as an attribute (2013 and later) or as `Point` children (2010)."""
    if element is None:
        return ()
    pairs = [(whole_number(point, "x"), whole_number(point, "y")) for point in element.iterchildren("{*}Point")]
    return points(element.get("points")) or tuple((x, y) for x, y in pairs if x is not None and y is not None)
