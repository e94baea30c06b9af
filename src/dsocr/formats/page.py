"""PAGE XML of any version from 2010 to 2019, as Transkribus, eScriptorium and Aletheia write it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

from lxml import etree

from dsocr.document import (
    Box,
    Line,
    Outline,
    Page,
    Point,
    ProcessingStep,
    Region,
    Skipped,
    bounds,
    format_points,
    parse_points,
)
from dsocr.formats.format import Columns, Format
from dsocr.formats.xml import (
    XmlPage,
    XmlWriter,
    add_element,
    find_xml,
    integer_attribute,
    line_box,
    material_to_fill,
    name_elements,
    only_page,
    parse_region,
    parse_xml_bytes,
    read_xml_pages,
    region_outline,
    source_line,
    stated_size,
)
from dsocr.formats.xml_edit import (
    FORBIDDEN,
    Edit,
    ElementSpan,
    ScannedXml,
    apply_edits,
    attribute_spans,
    escape_attribute,
    escape_text,
    insert,
    remove,
    scan_xml,
    to_utf8,
)

NEWEST = "2019-07-15"
TRANSKRIBUS = "2013-07-15"
"""The version that Transkribus writes and its tools require; everything written here is in both versions."""

_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/"
_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_SECONDS = _DIGITS = re.compile(r"\d{1,11}", re.ASCII)

_LAST = 1 << 30
"""Reading order of elements without one."""
_CUSTOM_OUTLINE = re.compile(r"outline\s*\{\s*type\s*:\s*(box|image)\b")
"""Written by `convert` for lines of which only the box is known, or that are the whole image."""
_CUSTOM_ORDER = re.compile(r"readingOrder\s*\{\s*index\s*:\s*(\d+)")

_CUSTOM_STYLE = re.compile(r"textStyle\s*\{([^}]*)\}")

_REGIONS = ("TextRegion", "TableCell")
"""Elements that contain lines and have a text of their own; table cells are Transkribus'."""
_BEFORE_TEXT = frozenset({"AlternativeImage", "Coords", "Baseline", "Word"})
"""Children of a line that precede its text."""


def find_page(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the PAGE files of a folder."""
    return find_xml(source, "PcGts")


def read_page(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read the pages of a folder of PAGE files, lines in reading order."""
    return read_xml_pages(source, find_page(source), parse_page)


def parse_page(root: etree._Element, where: str = "") -> XmlPage:
    """Parse a PAGE document; `where` begins the place of each line."""
    page = only_page(root)
    image = (page.get("imageFilename") or "").strip()
    indices = {line: index for index, line in enumerate(page.iter("{*}TextLine"))}
    lines = [
        Line(
            _parse_text(line),
            f"{where}:{source_line(line)}",
            _parse_outline(line),
            region,
            indices[line],
            line.get("id") or "",
            struck=_parse_struck(line),
        )
        for region, region_lines in _regions_in_order(page)
        for line in region_lines
    ]
    is_line_image = len(indices) == 1 and _outline_type(next(iter(indices))) == "image"
    region_texts = [
        Line(text, f"{where}:{source_line(region)}", _parse_outline(region), parse_region(region, "id", _parse_outline))
        for region in page.iter("{*}TextRegion")
        if region.find(".//{*}TextLine") is None and (text := _own_text(region))
    ]
    size = stated_size(page, "imageWidth", "imageHeight")
    return XmlPage(image or None, size, lines, is_line_image, region_texts)


def _regions_in_order(page: etree._Element) -> Iterator[tuple[Region | None, list[etree._Element]]]:
    """Sort regions by `ReadingOrder`, else by Transkribus' `custom`, else as in the file; so with their lines."""
    ranks = _reading_order(page)
    regions = list(
        dict.fromkeys(parent for line in page.iter("{*}TextLine") if (parent := line.getparent()) is not None)
    )
    for element in sorted(regions, key=lambda region: _rank(region, ranks)):
        region = None if element is page else parse_region(element, "id", _parse_outline)
        yield region, sorted(element.iterchildren("{*}TextLine"), key=_custom_rank)


def _reading_order(page: etree._Element) -> dict[str, int]:
    """Return region id -> rank, nested groups flattened; empty if the page has no reading order."""
    order = page.find("{*}ReadingOrder")
    regions = [] if order is None else [ref for group in order for ref in _region_refs(group)]
    return {region: rank for rank, region in enumerate(regions)}


def _region_refs(group: etree._Element) -> Iterator[str]:
    region = group.get("regionRef")
    if region:
        yield region
    for child in sorted(group.iterchildren("{*}*"), key=_index_rank):
        yield from _region_refs(child)


def _index_rank(element: etree._Element) -> int:
    index = integer_attribute(element, "index")
    return _LAST if index is None else index


def _rank(region: etree._Element, ranks: dict[str, int]) -> int:
    if not ranks:
        return _custom_rank(region)
    family = [region, *region.iterancestors()]
    return next((ranks[id_] for element in family if (id_ := element.get("id")) in ranks), _LAST)


def _custom_rank(element: etree._Element) -> int:
    found = _CUSTOM_ORDER.search(element.get("custom") or "")
    return int(found[1]) if found else _LAST


def _parse_text(line: etree._Element) -> str:
    """Return the line's own text, else its words'."""
    return _own_text(line) or " ".join(filter(None, map(_own_text, line.iterchildren("{*}Word"))))


def _own_text(element: etree._Element) -> str:
    """Return the text of a line, word or region with the lowest index; one without an index counts as the first."""
    return _raw_text(element).strip()


def _raw_text(element: etree._Element) -> str:
    texts = sorted(element.iterchildren("{*}TextEquiv"), key=lambda text: integer_attribute(text, "index") or 0)
    return texts[0].findtext("{*}Unicode", "") if texts else ""


def _parse_struck(line: etree._Element) -> tuple[tuple[int, int], ...]:
    """Return the struck-out spans of a line's own text, as Transkribus writes them.

    In `custom`: `textStyle {offset:2; length:3; strikethrough:true;}`. Offsets count the spaces before the text.
    """
    text = _raw_text(line)
    indent, size = len(text) - len(text.lstrip()), len(text.strip())
    spans = []
    for style in _CUSTOM_STYLE.findall(line.get("custom") or ""):
        values = {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in style.split(";"))}
        offset, length = values.get("offset", ""), values.get("length", "")
        if values.get("strikethrough") == "true" and _DIGITS.fullmatch(offset) and _DIGITS.fullmatch(length):
            start, end = max(int(offset) - indent, 0), min(int(offset) - indent + int(length), size)
            spans += [(start, end)] if start < end else []
    return tuple(spans)


def _parse_outline(element: etree._Element) -> Outline | None:
    """Return the outline of a line or a region."""
    polygon, baseline = _parse_coords(element.find("{*}Coords")), _parse_coords(element.find("{*}Baseline"))
    if not polygon:
        return Outline(bounds(baseline), (), baseline) if len(baseline) >= 2 else None
    outline = Outline.of_polygon(polygon, baseline)
    return replace(outline, polygon=()) if _outline_type(element) == "box" else outline


def _outline_type(line: etree._Element) -> str:
    found = _CUSTOM_OUTLINE.search(line.get("custom") or "")
    return found[1] if found else ""


def _parse_coords(element: etree._Element | None) -> tuple[Point, ...]:
    """Return points in an attribute (2013 and later) or in `Point` children (2010)."""
    if element is None:
        return ()
    pairs = [
        (integer_attribute(point, "x"), integer_attribute(point, "y")) for point in element.iterchildren("{*}Point")
    ]
    return parse_points(element.get("points")) or tuple((x, y) for x, y in pairs if x is not None and y is not None)


def open_page_writer(folder: Path, columns: Sequence[str] = (), *, version: str = NEWEST) -> XmlWriter:
    """Write PAGE files of a version into the folder."""
    return XmlWriter(folder, "page", partial(page_document, version=version))


def page_document(page: Page, version: str = NEWEST) -> tuple[etree._Element, int]:
    """Return the document of one page, and the number of lines with negative coordinates, which PAGE does not allow."""
    namespace = _NAMESPACE + version
    prefixes: dict[str, str] = {None: namespace, "xsi": _INSTANCE}  # type: ignore[dict-item]
    root = etree.Element(f"{{{namespace}}}PcGts", nsmap=prefixes)
    root.set(f"{{{_INSTANCE}}}schemaLocation", f"{namespace} {namespace}/pagecontent.xsd")
    metadata = add_element(root, "Metadata", {})
    add_element(metadata, "Creator", {}, "dsocr")
    for name in ("Created", "LastChange"):
        add_element(metadata, name, {}, _creation_time())
    width, height = cast("tuple[int, int]", page.size)
    attributes = {"imageFilename": page.image.name, "imageWidth": width, "imageHeight": height}
    element = add_element(root, "Page", attributes)
    regions = name_elements(page.lines)
    if regions:
        order = add_element(add_element(element, "ReadingOrder", {}), "OrderedGroup", {"id": "order"})
        for index, (id_, _) in enumerate(regions):
            add_element(order, "RegionRefIndexed", {"index": index, "regionRef": id_})
    for index, (id_, named_lines) in enumerate(regions):
        _add_region(element, index, id_, named_lines, page)
    return root, sum(map(_has_negative_coordinates, page.lines))


def _creation_time() -> str:
    """Return SOURCE_DATE_EPOCH, else 1970: PAGE requires a time, and the same source gives the same bytes."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    time = datetime.fromtimestamp(int(seconds) if _SECONDS.fullmatch(seconds) else 0, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _add_region(parent: etree._Element, index: int, id_: str, named_lines: list[tuple[str, Line]], page: Page) -> None:
    outline = region_outline([line for _, line in named_lines], page)
    custom = f"readingOrder {{index:{index};}}{_custom_outline(outline)}"
    region = add_element(parent, "TextRegion", {"id": id_, "custom": custom})
    add_element(region, "Coords", {"points": _format_points(outline.polygon or _corners(outline.box))})
    for line_index, (line_id, line) in enumerate(named_lines):
        _add_line(region, line_id, line_index, line, page)


def _add_line(region: etree._Element, id_: str, index: int, line: Line, page: Page) -> None:
    outline = line.outline
    custom = f"readingOrder {{index:{index};}}{_custom_outline(outline)}"
    element = add_element(region, "TextLine", {"id": id_, "custom": custom})
    polygon = outline.polygon if outline else ()
    add_element(element, "Coords", {"points": _format_points(polygon or _corners(line_box(line, page)))})
    if outline and outline.baseline:
        add_element(element, "Baseline", {"points": _format_points(outline.baseline)})
    if line.text:
        add_element(add_element(element, "TextEquiv", {}), "Unicode", {}, line.text)


def _custom_outline(outline: Outline | None) -> str:
    """Return what `custom` says about corners that are not a polygon that somebody drew."""
    if outline is None:
        return " outline {type:image;}"
    return "" if outline.polygon else " outline {type:box;}"


def _corners(box: Box) -> tuple[Point, ...]:
    """Return the corners of a box by its outermost pixels."""
    left, top, right, bottom = box
    return (left, top), (right - 1, top), (right - 1, bottom - 1), (left, bottom - 1)


def _format_points(points: Iterable[Point]) -> str:
    """Format points as PAGE allows them: none negative, and at least two."""
    moved = [(max(x, 0), max(y, 0)) for x, y in points]
    return format_points(moved * 2 if len(moved) == 1 else moved)


def _has_negative_coordinates(line: Line) -> bool:
    outline = line.outline or Outline((0, 0, 1, 1))
    return min(*outline.box[:2], *(number for point in (*outline.polygon, *outline.baseline) for number in point)) < 0


def write_page_files(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write a transcribed page as PAGE XML of 2019; a PAGE file is filled in place."""
    for page in pages:
        raw, texts, _ = material_to_fill(page, path, "PcGts", page_document)
        path.write_bytes(fill_page(raw, texts, step))


def fill_page(raw: bytes, texts: Mapping[int, Line], step: ProcessingStep | None = None) -> bytes:
    """Return a PAGE file with new texts in the lines `texts`, by their index; everything else stays as it is.

    The former text of a line goes, with the words that it was made of, and the text of a whole region that consisted of
    its lines' is made anew. The encoding stays; characters that it does not have become references. `step` is added
    where the version allows.
    """
    data, to_original = to_utf8(raw)
    scanned = scan_xml(data, {"TextLine", "Metadata", *_REGIONS})
    elements = [element for element in scanned.elements if element.name == "TextLine"]
    edits = [
        edit
        for index, element in enumerate(elements)
        if index in texts
        for edit in _fill_line(data, element, texts[index])
    ]
    if edits:
        edits += _fill_regions(raw, data, scanned.elements, {index: line.text for index, line in texts.items()})
    if step and edits:
        edits += _add_step(data, scanned, step)
    return to_original(apply_edits(data, edits))


def _fill_line(data: bytes, element: ElementSpan, line: Line) -> list[Edit]:
    new = _text_equiv(element.prefix, line.text, line.confidence)
    former = _text_equivs(element)
    edits = [] if _has_text(data, former, line.text) else _remove_text_tags(data, element)
    # Words with a text would contradict the line; words without one only say where words are, and stay.
    stale = [
        child
        for child in element.children
        if child.name == "Word" and any(part.name == "TextEquiv" for part in child.children)
    ]
    edits += [remove(data, word) for word in stale]
    if former:
        return [*edits, *_replace_texts(data, former, new)]
    before = [child for child in element.children if child.name in _BEFORE_TEXT and child not in stale]
    return [*edits, insert(data, element, before, new)]


def _has_text(data: bytes, texts: Sequence[ElementSpan], text: str) -> bool:
    """Return whether a line has exactly this text, written as it would be here."""
    written = f"Unicode>{escape_text(text)}</".encode()
    return len(texts) == 1 and written in data[texts[0].start : texts[0].end]


def _remove_text_tags(data: bytes, line: ElementSpan) -> list[Edit]:
    """Remove Transkribus' tags on parts of a line's text, as `abbrev {offset:2; length:3;}` in `custom`.

    Tags on the whole line, as `readingOrder {index:0;}`, stay.
    """
    custom = attribute_spans(data, line).get("custom")
    if custom is None:
        return []
    begin, end = custom.value
    value = data[begin + 1 : end - 1]
    kept = b"}".join(part for part in value.split(b"}") if not _has_offset(part))
    if kept == value:
        return []
    return [Edit(begin + 1, end - 1, kept.strip())] if kept.strip() else [Edit(*custom.whole, b"")]


def _has_offset(tag: bytes) -> bool:
    """Return whether `abbrev {offset:2; length:3;`, a tag without its closing brace, is about a part of the text."""
    return any(key.partition(b":")[0].strip() == b"offset" for key in tag.partition(b"{")[2].split(b";"))


def _fill_regions(raw: bytes, data: bytes, elements: Sequence[ElementSpan], texts: Mapping[int, str]) -> list[Edit]:
    """Fill in the texts of the regions around the lines `texts`, by index: a region's text is that of its lines.

    They are joined by line breaks in reading order, as Transkribus writes a region's text and OCR-D requires. A text
    that differs from its lines', while no line gets another text than it had, was written for the region alone and
    stays. `raw` is the file, `data` the same in UTF-8, `elements` the lines and regions in it.
    """
    regions = [element for element in elements if element.name in _REGIONS]
    lines = [element for element in elements if element.name == "TextLine"]
    if not any(_text_equivs(region) for region in regions):
        return []
    root = parse_xml_bytes(raw)
    # In reading order.
    former = {line.index: line.text for line in parse_page(root).lines if line.index is not None}
    region_texts = map(_own_text, root.iter(*(f"{{*}}{name}" for name in _REGIONS)))
    edits: list[Edit] = []
    for region, text in zip(regions, region_texts, strict=True):
        indices = [index for index in former if region.start < lines[index].start < region.end]
        if not (equivs := _text_equivs(region)) or texts.keys().isdisjoint(indices):
            continue
        joined = "\n".join(former[index] for index in indices)
        changes = any(former[index].split() not in ([], texts[index].split()) for index in indices if index in texts)
        if changes or text.split() in ([], joined.split()):
            whole = "\n".join(texts.get(index, former[index]) for index in indices)
            edits += _replace_texts(data, equivs, _text_equiv(region.prefix, whole, None))
    return edits


def _text_equivs(element: ElementSpan) -> list[ElementSpan]:
    return [child for child in element.children if child.name == "TextEquiv"]


def _replace_texts(data: bytes, former: Sequence[ElementSpan], new: str) -> list[Edit]:
    """Replace the first of an element's texts and remove the others."""
    return [*(remove(data, other) for other in former[1:]), Edit(former[0].start, former[0].end, new.encode())]


def _text_equiv(prefix: str, text: str, confidence: float | None) -> str:
    conf = "" if confidence is None else f' conf="{confidence:.4f}"'
    return f"<{prefix}TextEquiv{conf}><{prefix}Unicode>{escape_text(text)}</{prefix}Unicode></{prefix}TextEquiv>"


def _add_step(data: bytes, scanned: ScannedXml, step: ProcessingStep) -> list[Edit]:
    """Update `LastChange`, and add the processing step, for which PAGE has had an element since 2018."""
    metadata = next((element for element in scanned.elements if element.name == "Metadata"), None)
    if metadata is None:
        return []
    changed = next((child for child in metadata.children if child.name == "LastChange"), None)
    edits = []
    if changed is not None and step.date and not changed.is_empty:
        date = step.date.replace("+00:00", "Z")
        edits.append(Edit(changed.tag_end, data.rindex(b"</", changed.tag_end, changed.end), date.encode()))
    if not scanned.namespace.endswith(("2018-07-15", "2019-07-15")):
        return edits
    values = {"type": "processingStep", "name": step.description, "value": f"{step.software} {step.version}"}
    if step.date:
        values["date"] = step.date
    attributes = "".join(f' {name}="{escape_attribute(value)}"' for name, value in values.items())
    prefix = metadata.prefix
    label = f'<{prefix}Label type="settings" value="{escape_attribute(step.settings)}"/>'
    new = f"<{prefix}MetadataItem{attributes}><{prefix}Labels>{label}</{prefix}Labels></{prefix}MetadataItem>"
    return [insert(data, metadata, metadata.children, new), *edits]


FORMATS = (
    Format(
        name="page",
        title="PAGE XML files",
        find=find_page,
        read=read_page,
        example=r"transkribus -o data/mine --writer '(\w+?)_\d+'",
        open_writer=open_page_writer,
        forbidden=FORBIDDEN,
        keeps_pages=True,
        keeps_writers=False,
        keeps_regions=True,
        next_step="import {out} into eScriptorium, images and page/ together (for Transkribus there is page-2013)",
        write_pages=write_page_files,
        suffix=".xml",
        one_page_per_file=True,
    ),
    Format(
        name="page-2013",
        title="PAGE XML of 2013, as Transkribus writes it",
        open_writer=partial(open_page_writer, version=TRANSKRIBUS),
        forbidden=FORBIDDEN,
        keeps_pages=True,
        keeps_writers=False,
        keeps_regions=True,
        next_step="import {out} into Transkribus, images and page/ together",
    ),
)
