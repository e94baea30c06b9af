"""PAGE XML, laid out as Transkribus exports it: images, and beside them a folder `page` with a file for each.

A line or region of which only a box is known, or a line that is its whole image, is given four corners as everywhere,
and its `custom` attribute says so (`outline {type:box;}`, `outline {type:image;}`): our reader takes no more from it
than was known.
"""

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lxml import etree

from dsocr.data.sources.layout import Box, Outline, Point, SourceLine, written
from dsocr.data.targets.images import WholeImage
from dsocr.data.targets.markup import MarkupWriter, box_of, element, region_outline, regions

NEWEST = "2019-07-15"
TRANSKRIBUS = "2013-07-15"
"""What Transkribus writes and its tools ask for; all that is written here stands in both versions."""

_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_SECONDS = re.compile(r"\d{1,11}", re.ASCII)


def write_page(folder: Path, version: str = NEWEST) -> MarkupWriter:
    """Writes PAGE files of a version into the folder."""
    return MarkupWriter(folder, "page", partial(page_document, version=version))


def page_document(whole: WholeImage, version: str = NEWEST) -> tuple[etree._Element, int]:
    """The document of one image, and how many lines had points above or left of it, where PAGE has no coordinates."""
    namespace = _NAMESPACE + version
    prefixes: dict[str, str] = {None: namespace, "xsi": _INSTANCE}  # type: ignore[dict-item]
    root = etree.Element(f"{{{namespace}}}PcGts", nsmap=prefixes)
    root.set(f"{{{_INSTANCE}}}schemaLocation", f"{namespace} {namespace}/pagecontent.xsd")
    _add_metadata(root)
    width, height = whole.size
    page = element(root, "Page", {"imageFilename": whole.file, "imageWidth": width, "imageHeight": height})
    found = list(regions(whole))
    if found:
        order = element(element(page, "ReadingOrder", {}), "OrderedGroup", {"id": "order"})
        for place in range(len(found)):
            element(order, "RegionRefIndexed", {"index": place, "regionRef": f"r{place + 1}"})
    for place, lines in enumerate(found):
        _add_region(page, place, lines, whole)
    return root, sum(map(_leaves_the_image, whole.lines))


def _add_metadata(root: etree._Element) -> None:
    metadata = element(root, "Metadata", {})
    element(metadata, "Creator", {}, "dsocr")
    for name in ("Created", "LastChange"):
        element(metadata, name, {}, _moment())


def _moment() -> str:
    """PAGE demands a time. The same source gives the same bytes, so it is that of SOURCE_DATE_EPOCH, else of 1970."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(seconds) if _SECONDS.fullmatch(seconds) else 0, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _add_region(page: etree._Element, place: int, lines: list[SourceLine], whole: WholeImage) -> None:
    id_ = f"r{place + 1}"
    outline = region_outline(lines, whole)
    region = element(page, "TextRegion", {"id": id_, "custom": f"readingOrder {{index:{place};}}{_known(outline)}"})
    element(region, "Coords", {"points": _points(outline.polygon or _corners(outline.box))})
    for number, line in enumerate(lines):
        _add_line(region, f"{id_}l{number + 1}", number, line, whole)


def _add_line(region: etree._Element, id_: str, number: int, line: SourceLine, whole: WholeImage) -> None:
    outline = line.outline
    custom = f"readingOrder {{index:{number};}}{_known(outline)}"
    marked = element(region, "TextLine", {"id": id_, "custom": custom})
    polygon = outline.polygon if outline else ()
    element(marked, "Coords", {"points": _points(polygon or _corners(box_of(line, whole)))})
    if outline and outline.baseline:
        element(marked, "Baseline", {"points": _points(outline.baseline)})
    if line.text:
        element(element(marked, "TextEquiv", {}), "Unicode", {}, line.text)


def _known(outline: Outline | None) -> str:
    """What `custom` says where less is known than the corners seem to tell."""
    if outline is None:
        return " outline {type:image;}"
    return "" if outline.polygon else " outline {type:box;}"


def _corners(box: Box) -> tuple[Point, ...]:
    """The corners of a box by its outermost pixels."""
    left, top, right, bottom = box
    return (left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1)


def _points(points: Iterable[Point]) -> str:
    """Points as PAGE takes them: none below zero, and never one alone."""
    moved = [(max(x, 0), max(y, 0)) for x, y in points]
    return written(moved * 2 if len(moved) == 1 else moved)


def _leaves_the_image(line: SourceLine) -> bool:
    outline = line.outline or Outline((0, 0, 1, 1))
    return min(*outline.box[:2], *(number for point in (*outline.polygon, *outline.baseline) for number in point)) < 0
