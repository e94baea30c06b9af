"""PAGE XML of any version from 2010 to 2019, as Transkribus, eScriptorium and Aletheia write it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from lxml import etree

from dsocr.document import Box, Line, Outline, Page, Point, Region, Skipped, bounds, format_points, parse_points
from dsocr.formats.writing import WholeImage
from dsocr.formats.xml import (
    Edit,
    Marked,
    MarkupWriter,
    XmlLine,
    XmlPage,
    attributes_of,
    box_of,
    element,
    escaped,
    find_xml,
    inserted,
    parse_bytes,
    read_pages,
    region_of,
    region_outline,
    regions,
    removed,
    row_of,
    stated_size,
    the_only_page,
    whole_number,
    without_forbidden,
)

_LAST = 1 << 30
_CUSTOM_OUTLINE = re.compile(r"outline\s*\{\s*type\s*:\s*(box|image)\b")
"""What `convert` writes where less is known of a line than a polygon."""

_CUSTOM_ORDER = re.compile(r"readingOrder\s*\{\s*index\s*:\s*(\d+)")


def find_page(source: Path) -> list[Path]:
    """The PAGE files of a folder."""
    return find_xml(source, "PcGts")


def read_page(source: Path) -> Iterator[Page | Skipped]:
    """The pages of a folder of PAGE files, lines in reading order."""
    return read_pages(source, find_page(source), describe_page)


def describe_page(root: etree._Element) -> XmlPage:
    """What one PAGE document says about its page."""
    page = the_only_page(root)
    image = (page.get("imageFilename") or "").strip()
    places = {line: place for place, line in enumerate(page.iter("{*}TextLine"))}
    lines = [
        XmlLine(
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
    return XmlPage(image or None, stated_size(page, "imageWidth", "imageHeight"), lines)


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
    polygon, baseline = _points_of(element.find("{*}Coords")), _points_of(element.find("{*}Baseline"))
    if not polygon:
        return Outline(bounds(baseline), (), baseline) if len(baseline) >= 2 else None
    outline = Outline.of_polygon(polygon, baseline)
    return replace(outline, polygon=()) if _known(element) == "box" else outline


def _known(line: etree._Element) -> str:
    found = _CUSTOM_OUTLINE.search(line.get("custom") or "")
    return found[1] if found else ""


def _points_of(element: etree._Element | None) -> tuple[Point, ...]:
    """Points as an attribute (2013 and later) or as `Point` children (2010)."""
    if element is None:
        return ()
    pairs = [(whole_number(point, "x"), whole_number(point, "y")) for point in element.iterchildren("{*}Point")]
    return parse_points(element.get("points")) or tuple((x, y) for x, y in pairs if x is not None and y is not None)


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


def _add_region(page: etree._Element, place: int, lines: list[Line], whole: WholeImage) -> None:
    id_ = f"r{place + 1}"
    outline = region_outline(lines, whole)
    region = element(
        page, "TextRegion", {"id": id_, "custom": f"readingOrder {{index:{place};}}{_known_outline(outline)}"}
    )
    element(region, "Coords", {"points": _points(outline.polygon or _corners(outline.box))})
    for number, line in enumerate(lines):
        _add_line(region, f"{id_}l{number + 1}", number, line, whole)


def _add_line(region: etree._Element, id_: str, number: int, line: Line, whole: WholeImage) -> None:
    outline = line.outline
    custom = f"readingOrder {{index:{number};}}{_known_outline(outline)}"
    marked = element(region, "TextLine", {"id": id_, "custom": custom})
    polygon = outline.polygon if outline else ()
    element(marked, "Coords", {"points": _points(polygon or _corners(box_of(line, whole)))})
    if outline and outline.baseline:
        element(marked, "Baseline", {"points": _points(outline.baseline)})
    if line.text:
        element(element(marked, "TextEquiv", {}), "Unicode", {}, line.text)


def _known_outline(outline: Outline | None) -> str:
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
    return format_points(moved * 2 if len(moved) == 1 else moved)


def _leaves_the_image(line: Line) -> bool:
    outline = line.outline or Outline((0, 0, 1, 1))
    return min(*outline.box[:2], *(number for point in (*outline.polygon, *outline.baseline) for number in point)) < 0


REGIONS = ("TextRegion", "TableCell")
"""What lines stand in, and has a text of its own; cells are Transkribus'."""

_BEFORE_TEXT = frozenset({"AlternativeImage", "Coords", "Baseline", "Word"})
"""What stands before a line's text."""


def fill_line(data: bytes, line: Marked, text: str, confidence: float | None) -> list[Edit]:
    """The line with another text; words that were read before go."""
    new = _told(line.prefix, text, confidence)
    former = _texts_of(line)
    tags = [] if _says(data, former, text) else _without_places(data, line)
    # Words that were read before would contradict the line; those without a text say where words stand, and stay.
    stale = [
        child
        for child in line.children
        if child.name == "Word" and any(part.name == "TextEquiv" for part in child.children)
    ]
    if former:
        return [*tags, *(removed(data, element) for element in stale), *_exchanged(data, former, new)]
    before = [child for child in line.children if child.name in _BEFORE_TEXT and child not in stale]
    return [*tags, *(removed(data, element) for element in stale), inserted(data, line, before, new)]


def _says(data: bytes, texts: Sequence[Marked], text: str) -> bool:
    """True where a line has this one text, written as it would be here."""
    written = f"Unicode>{escaped(without_forbidden(text))}</".encode()
    return len(texts) == 1 and written in data[texts[0].start : texts[0].end]


def _has_place(tag: bytes) -> bool:
    """True of `abbrev {offset:2; length:3;`, a tag but for its last brace."""
    return any(key.partition(b":")[0].strip() == b"offset" for key in tag.partition(b"{")[2].split(b";"))


def _without_places(data: bytes, line: Marked) -> list[Edit]:
    """The line without Transkribus' tags on parts of its text, as `abbrev {offset:2; length:3;}` in `custom`.

    What it says of the whole line, as `readingOrder {index:0;}`, stays.
    """
    found = attributes_of(data, line).get("custom")
    if found is None:
        return []
    begin, end = found.value
    value = data[begin + 1 : end - 1]
    kept = b"}".join(part for part in value.split(b"}") if not _has_place(part))
    if kept == value:
        return []
    return [Edit(begin + 1, end - 1, kept.strip())] if kept.strip() else [Edit(*found.whole, b"")]


def fill_regions(raw: bytes, data: bytes, elements: Sequence[Marked], texts: Mapping[int, str]) -> list[Edit]:
    """The texts of the regions around lines that are given `texts`, which are by place: a region's is its lines'.

    They are joined by line breaks in reading order, as Transkribus writes a region's text and OCR-D demands it. A text
    that its lines did not say, while none of them had another text than it gets, was somebody's of the region alone,
    and stays. `raw` is the file, `data` the same in UTF-8, `elements` the lines and regions in it.
    """
    regions = [element for element in elements if element.name in REGIONS]
    lines = [element for element in elements if element.name == "TextLine"]
    if not any(_texts_of(region) for region in regions):
        return []
    root = parse_bytes(raw)
    former = {line.place: line.text for line in describe_page(root).lines}
    said = map(own_text, root.iter(*(f"{{*}}{name}" for name in REGIONS)))
    edits: list[Edit] = []
    for region, text in zip(regions, said, strict=True):
        # `former` is in reading order.
        places = [place for place in former if region.start < lines[place].start < region.end]
        if not (equivs := _texts_of(region)) or texts.keys().isdisjoint(places):
            continue
        was = "\n".join(former[place] for place in places)
        is_replaced = any(former[place].split() not in ([], texts[place].split()) for place in places if place in texts)
        if is_replaced or text.split() in ([], was.split()):
            whole = "\n".join(texts.get(place, former[place]) for place in places)
            edits += _exchanged(data, equivs, _told(region.prefix, whole, None))
    return edits


def _texts_of(element: Marked) -> list[Marked]:
    return [child for child in element.children if child.name == "TextEquiv"]


def _exchanged(data: bytes, former: Sequence[Marked], new: str) -> list[Edit]:
    """The first of an element's texts exchanged for a new one, and the others taken out."""
    return [*(removed(data, other) for other in former[1:]), Edit(former[0].start, former[0].end, new.encode())]


def _told(prefix: str, text: str, confidence: float | None) -> str:
    sure = "" if confidence is None else f' conf="{confidence:.4f}"'
    unicode = f"<{prefix}Unicode>{escaped(without_forbidden(text))}</{prefix}Unicode>"
    return f"<{prefix}TextEquiv{sure}>{unicode}</{prefix}TextEquiv>"
