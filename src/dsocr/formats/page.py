"""PAGE XML of any version from 2010 to 2019, as Transkribus, eScriptorium and Aletheia write it."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, cast

from lxml import etree

from dsocr.document import (
    AlignmentMark,
    Box,
    Line,
    Outline,
    Page,
    ProcessingStep,
    Region,
    word_boxes,
)
from dsocr.formats import xml
from dsocr.formats.format import Format, stated_size
from dsocr.formats.table_regions import TableWriter, add_outlined, cells_together, drawable_points, parse_tables
from dsocr.formats.xml import LineTexts, XmlPage, add_element, escape_text, integer_attribute
from dsocr.formats.xml_tree import Element, XmlTree
from dsocr.text import is_right_to_left

NEWEST = "2019-07-15"
TRANSKRIBUS = "2013-07-15"
"""The version that Transkribus writes and its tools require; everything written here is in both versions."""

_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/"

_LAST = 1 << 30
"""Reading order of elements without one."""
_DIGITS = re.compile(r"\d{1,11}", re.ASCII)

REGION_TYPES = (
    "paragraph",
    "heading",
    "marginalia",
    "page-number",
    "header",
    "footer",
    "caption",
    "footnote",
    "footnote-continued",
    "endnote",
    "signature-mark",
    "catch-word",
    "drop-capital",
    "floating",
    "credit",
    "TOC-entry",
    "list-label",
    "other",
)
"""The types of text regions that the schema of 2019 knows."""
_REGIONS = ("TextRegion", "TableCell")
"""Elements that contain lines and have a text of their own; table cells are Transkribus'."""
ALIGNMENT = "alignment"
"""The tag in `custom` of a line whose text was aligned and that no person has accepted; its `conf` is the score."""
_ALIGNMENT_TAG = re.compile(rf"(?<!\w){ALIGNMENT}\s*{{[^}}]*}}\s*")
_PROGRAM = re.compile(r"(?!.*(?:\bgt\b|truth|manual|correct)).*(?:ocr|htr|predict|recogn|model|machine)", re.IGNORECASE)
"""What `dataType` and `dataTypeDetails` say of a text that a program has read."""
_UNCLEAR_TAGS = frozenset({"unclear", "gap", "supplied"})
_TEXT_TAG = re.compile(r"[\w-]+\s*{(?:[^};]*;)*\s*offset\s*:[^}]*}\s*")
"""Transkribus' tags on parts of a line's text, as `abbrev {offset:2; length:3;}` in `custom`."""
_BEFORE_TEXT = frozenset({"AlternativeImage", "Coords", "Baseline", "Word"})
"""Children of a line that precede its text."""


def parse_page(root: etree._Element, where: str = "") -> XmlPage:
    """Parse a PAGE document; `where` begins the place of each line."""
    page = xml.only_page(root)
    indices = {line: index for index, line in enumerate(page.iter("{*}TextLine"))}
    refs = [ref for order in page.iterchildren("{*}ReadingOrder") for group in order for ref in _region_refs(group)]
    ranks = {ref: rank for rank, ref in enumerate(refs)}
    parsed = {line: _LineText.parse(line, ranks) for line in indices}
    lines = [
        Line(
            parsed[line].texts.text,
            f"{where}:{xml.source_line(line)}",
            _line_outline(line),
            region,
            indices[line],
            line.get("id") or "",
            struck=parsed[line].spans("struck"),
            alignment=_parse_alignment(line),
            kind=xml.parse_kind(line, {}),
            unclear=parsed[line].spans("unclear"),
            untranscribed=parsed[line].texts.fault,
        )
        for region, region_lines in _regions_in_order(page, ranks)
        for line in region_lines
    ]
    of_regions = (
        (region, _region_texts(region))
        for region in page.iter("{*}TextRegion")
        if region.find(".//{*}TextLine") is None
    )
    region_texts = [
        Line(
            texts.text,
            f"{where}:{xml.source_line(region)}",
            xml.parse_outline(region),
            xml.parse_region(region, {}),
            untranscribed=texts.fault,
        )
        for region, texts in of_regions
        if texts.text or texts.fault
    ]
    read = XmlPage(
        image=(page.get("imageFilename") or "").strip() or None,
        size=stated_size(integer_attribute(page, "imageWidth"), integer_attribute(page, "imageHeight")),
        lines=lines,
        is_line_image=len(indices) == 1 and xml.custom_value(next(iter(indices)), "outline", "type") == "image",
        region_texts=region_texts,
        tables=list(parse_tables(page)),
        readings={index: parsed[line].texts for line, index in indices.items() if parsed[line].texts.read is not None},
    )
    return read.without_readings(read.layers)


find_page = partial(xml.find_xml, root_element="PcGts")
read_page = partial(xml.read_xml_pages, root_element="PcGts", parse=parse_page)


def _line_outline(line: etree._Element) -> Outline | None:
    """Return a line's outline; without a baseline, `orientation` around it (degrees clockwise) says how it is read."""
    outline = xml.parse_outline(line)
    if outline is None or outline.baseline:
        return outline
    stated = (integer_attribute(element, "orientation") for element in line.iterancestors())
    quarters = round(next((angle for angle in stated if angle is not None), 0) / 90)
    left, top, right, bottom = outline.box
    upwards, downwards = ((right, bottom), (right, top)), ((left, top), (left, bottom))
    return replace(outline, baseline={1: upwards, -1: downwards}.get(quarters, ()))


def _regions_in_order(
    page: etree._Element, ranks: Mapping[str, int]
) -> Iterator[tuple[Region | None, list[etree._Element]]]:
    """Sort regions by `ReadingOrder`, else by Transkribus' `custom`, else as in the file; so with their lines."""
    regions = dict.fromkeys(cast("etree._Element", line.getparent()) for line in page.iter("{*}TextLine"))
    for region in sorted(regions, key=lambda region: _rank(region, ranks)):
        lines = sorted(region.iterchildren("{*}TextLine"), key=lambda line: _own_rank(line, ranks))
        yield None if region is page else xml.parse_region(region, {}), lines


def _region_refs(group: etree._Element) -> Iterator[str]:
    """Yield the ids of a group's regions in their order, nested groups flattened."""
    if region := group.get("regionRef"):
        yield region
    for child in sorted(group.iterchildren("{*}*"), key=lambda child: _to_rank(child.get("index"))):
        yield from _region_refs(child)


def _rank(region: etree._Element, ranks: Mapping[str, int]) -> int:
    if not ranks:
        return _custom_rank(region)
    family = [region, *region.iterancestors()]
    return next((ranks[id_] for element in family if (id_ := element.get("id", "")) in ranks), _LAST)


def _own_rank(element: etree._Element, ranks: Mapping[str, int]) -> int:
    return ranks.get(element.get("id", ""), _custom_rank(element))


def _custom_rank(element: etree._Element) -> int:
    return _to_rank(xml.custom_value(element, "readingOrder", "index"))


def _to_rank(index: str | None) -> int:
    return int(index) if index and _DIGITS.fullmatch(index) else _LAST


def _own_texts(element: etree._Element) -> LineTexts:
    """Return a line's, word's, glyph's or region's texts with the lowest index, none being 0, and the best `conf`."""
    by_program: dict[bool, list[tuple[tuple[int, bool, float], str, str, bool, float | None]]] = {False: [], True: []}
    is_aligned = bool(xml.custom_value(element, ALIGNMENT, "text"))
    for equiv in element.iterchildren("{*}TextEquiv"):
        index, conf, text = integer_attribute(equiv, "index"), equiv.get("conf"), equiv.findtext("{*}Unicode", "")
        kind = " ".join(filter(None, map(equiv.get, ("dataType", "dataTypeDetails"))))
        mark = ", ".join(filter(None, ["no index" if index is None else f"index {index}", conf and "conf", kind]))
        is_sure = (index or 0) > 0 or bool(_PROGRAM.match(kind))
        confidence = xml.parse_confidence(conf)
        rank = index or 0, not text.strip(), -(confidence or 0.0)
        by_program[is_sure or bool(conf and not is_aligned)].append((rank, text.strip(), mark, is_sure, confidence))
    typed, read = (sorted(texts, key=itemgetter(0)) for texts in by_program.values())
    first = typed or read
    if equals := [text for rank, text, *_ in first if rank == first[0][0] and text != first[0][1]]:
        fault = f"two texts have the same index, {first[0][1][:40]!r} and {equals[0][:40]!r}: remove one"
        return LineTexts(fault=fault)
    transcription = typed[0][1] if typed else None
    if not read:
        return LineTexts(transcription)
    others = "".join(f", not {mark}" for _, _, mark, *_ in read[1:])
    _, text, mark, is_sure, confidence = read[0]
    stated = confidence if transcription is None else None
    return LineTexts(transcription, text, f"TextEquiv {mark}{others}", is_sure, confidence=stated)


def _region_texts(region: etree._Element) -> LineTexts:
    """Return the texts of a region without lines, whose other texts do not decide about one that a program has read."""
    texts = _own_texts(region)
    is_read = bool(texts.read) and texts.is_sure and texts.typed is None
    return LineTexts(fault=f"only a program has read this region ({texts.mark}): type it") if is_read else texts


def _join(parts: Sequence[LineTexts], separator: str) -> LineTexts:
    """Join the texts of words or glyphs; all are a program's if one is."""
    empty, read = sum(not part.text for part in parts), next((part for part in parts if part.typed is None), None)
    if empty == len(parts) or any(part.fault for part in parts):
        return LineTexts(fault=next((part.fault for part in parts if part.fault), ""))
    if empty:
        return LineTexts(fault=f"{empty} of {len(parts)} words or glyphs have no text: type them, or the line")
    text = separator.join(part.text for part in parts)
    stated = xml.mean_confidence(part.confidence for part in parts)
    return LineTexts(None, text, read.mark, read.is_sure, confidence=stated) if read else LineTexts(text)


class _LineText(NamedTuple):
    """The texts of a line with (kind, start, end) of marked parts."""

    texts: LineTexts
    marked: list[tuple[str, int, int]]

    def spans(self, kind: str) -> tuple[tuple[int, int], ...]:
        return tuple(sorted({(start, end) for of_kind, start, end in self.marked if of_kind == kind}))

    @classmethod
    def parse(cls, line: etree._Element, ranks: Mapping[str, int]) -> "_LineText":
        """Return the line's own text, else its words', or their glyphs'."""
        texts, words = _own_texts(line), dict[etree._Element, LineTexts]()
        is_own = bool(texts.text or texts.fault or texts.read)
        if not is_own or line.find("{*}Word/{*}TextStyle[@strikethrough]") is not None:
            listed = sorted(line.iterchildren("{*}Word"), key=partial(_own_rank, ranks=ranks))
            words = {word: _word_texts(word) for word in listed}
        joined = _join(list(words.values()), " ")
        if not is_own:
            fault = "words without a stated order are not in that of their places: state it, or type the line"
            texts = joined if _is_order_known(words, ranks) else LineTexts(fault=fault)
        marked, at = _marks(line, texts.text), 0
        for word, of_word in words.items() if texts.text == joined.text else ():
            marked += [(kind, at + start, at + end) for kind, start, end in _marks(word, of_word.text)]
            at += len(of_word.text) + 1
        return cls(texts, marked)


def _word_texts(word: etree._Element) -> LineTexts:
    texts = _own_texts(word)
    glyphs = sorted(word.iterchildren("{*}Glyph"), key=_custom_rank)
    return texts if texts.text or texts.fault else _join([*map(_own_texts, glyphs)], "")


def _is_order_known(words: Mapping[etree._Element, LineTexts], ranks: Mapping[str, int]) -> bool:
    """Whether the order of words is stated, or is that of their places as they are read."""
    stated = {_own_rank(word, ranks) for word in words} - {_LAST}
    sides = [outline.box[0] for word in words if (outline := xml.parse_outline(word))]
    from_right = is_right_to_left("".join(texts.text for texts in words.values()))
    return len(stated) == len(words) or sides == sorted(sides, reverse=from_right)


def _parse_alignment(line: etree._Element) -> AlignmentMark | None:
    """Return the mark that `page_document` writes for an aligned text."""
    mark = xml.custom_value(line, ALIGNMENT, "text")
    if not mark:
        return None
    conf = next((text.get("conf") or "" for text in line.iterchildren("{*}TextEquiv")), "")
    return AlignmentMark(xml.parse_confidence(conf) or 0.0, mark == "sure")


def _marks(element: etree._Element, text: str) -> list[tuple[str, int, int]]:
    """Return the struck and unclear spans of an element's stripped text, as its tags and `TextStyle` say.

    Transkribus has tags in `custom`: `textStyle {offset:2; length:3; strikethrough:true;}`, `unclear {offset:2;
    length:3;}`; offsets count the spaces before the text. What is unclear is on the page, so its span is empty, while
    that of `gap` and `supplied` is not on the page.
    """
    written = (unicode.text or "" for unicode in element.iterfind("{*}TextEquiv/{*}Unicode"))
    raw = next((raw for raw in written if raw.strip() == text), text)
    indent, spans = len(raw) - len(raw.lstrip()), list[tuple[str, int, int]]()
    for tag, values in xml.custom_tags(element):
        offset, length = values.get("offset", "0"), values.get("length", "0")
        is_struck = tag == "textStyle" and values.get("strikethrough") == "true"
        if (is_struck or tag in _UNCLEAR_TAGS) and _DIGITS.fullmatch(offset) and _DIGITS.fullmatch(length):
            places = int(offset), int(offset) + (0 if tag == "unclear" else int(length))
            start, end = (min(max(place - indent, 0), len(text)) for place in places)
            spans += [("struck" if is_struck else "unclear", start, end)] if start < end or not is_struck else []
    style = element.find("{*}TextStyle")
    is_struck = style is not None and style.get("strikethrough") in ("true", "1")
    return [*spans, ("struck", 0, len(text))] if is_struck and text else spans


def page_document(page: Page, version: str = NEWEST) -> tuple[etree._Element, dict[str, int]]:
    """Return the document of one page, and counts of the changes made for it."""
    namespace = _NAMESPACE + version
    root = xml.new_document("PcGts", namespace, f"{namespace}/pagecontent.xsd")
    metadata = add_element(root, "Metadata", {})
    add_element(metadata, "Creator", {}, "dsocr")
    for name in ("Created", "LastChange"):
        add_element(metadata, name, {}, _creation_time())
    width, height = cast("tuple[int, int]", page.size)
    attributes = {"imageFilename": page.image.name, "imageWidth": width, "imageHeight": height}
    element = add_element(root, "Page", attributes)
    regions = xml.name_elements(cells_together(page))
    taken = {id_ for region, lines in regions for id_ in (region, *(line for line, _ in lines))}
    order = None
    if regions or page.tables:
        order = add_element(add_element(element, "ReadingOrder", {}), "OrderedGroup", {"id": "order"})
    tables = TableWriter(page, element, taken, version == NEWEST)
    cells, ordered = page.cells, dict[str, None]()
    for index, (id_, lines) in enumerate(regions):
        known, outline = lines[0][1].region, xml.region_outline([line for _, line in lines], page)
        table, cell = cells.get(known.id if known else "", (None, None))
        if table and cell:
            region = tables.add_cell(cell, table, id_, index, outline)
        else:
            region = add_outlined(element, "TextRegion", id_, index, outline)
        ordered[tables.name(table) if table else id_] = None
        if known and known.kind in REGION_TYPES:
            region.set("type", known.kind)
        elif known and known.kind:
            region.set("custom", f"{region.get('custom')} {xml.custom_kind(known.kind)}")
        for line_index, (line_id, line) in enumerate(lines):
            child = add_outlined(region, "TextLine", line_id, line_index, line.outline, (width, height))
            if line.kind:
                child.set("custom", f"{child.get('custom')} {xml.custom_kind(line.kind)}")
            if line.outline and line.outline.baseline:
                add_element(child, "Baseline", {"points": drawable_points(line.outline.baseline)})
            if line.text:
                conf = {"conf": f"{line.alignment.score:.4f}"} if line.alignment else {}
                add_element(add_element(child, "TextEquiv", conf), "Unicode", {}, line.text)
            if line.alignment:
                mark = "sure" if line.alignment.sure else "doubt"
                child.set("custom", f"{child.get('custom')} {ALIGNMENT} {{text:{mark};}}")
    tables.finish()
    ordered |= dict.fromkeys(map(tables.name, page.tables))
    for index, id_ in enumerate(ordered):
        add_element(cast("etree._Element", order), "RegionRefIndexed", {"index": index, "regionRef": id_})
    changes = xml.count_changed_ids(page, regions)
    # PAGE allows no negative coordinates.
    changes["outlines that began outside their image, and were moved to its edge"] = sum(map(_is_moved, page.lines))
    return root, changes


def _creation_time() -> str:
    """Return SOURCE_DATE_EPOCH, else 1970: PAGE requires a time, and the same source gives the same bytes."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    time = datetime.fromtimestamp(int(seconds) if _DIGITS.fullmatch(seconds) else 0, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_moved(line: Line) -> bool:
    outline = line.outline or Outline((0, 0, 1, 1))
    return min(*outline.box[:2], *(number for point in (*outline.polygon, *outline.baseline) for number in point)) < 0


def write_page_files(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write a transcribed page as PAGE XML of 2019; a PAGE file is filled in place."""
    for page in pages:
        raw, texts, _ = xml.material_to_fill(page, path, "PcGts", page_document)
        path.write_bytes(fill_page(XmlTree(raw), texts, step))


def fill_page(tree: XmlTree, texts: Mapping[int, Line], step: ProcessingStep | None = None) -> bytes:
    """Return a PAGE file with new texts in the lines `texts`, by their index; everything else stays as it is.

    The former text of a line goes, with the words that it was made of, and the text of a whole region that consisted of
    its lines' is made anew. `step` is added where the version allows.
    """
    for element, line, box in tree.lines(texts):
        _fill_line(tree, element, line, box)
    _fill_regions(tree, {index: line.text for index, line in texts.items()})
    if step and texts:
        _add_step(tree, step)
    return tree.content()


def _fill_line(tree: XmlTree, element: Element, line: Line, box: Box | None) -> None:
    former = element.all("TextEquiv")
    if len(former) != 1 or f"Unicode>{escape_text(line.text)}</" not in str(former[0]):
        _remove_tags(element, _TEXT_TAG)
    _remove_tags(element, _ALIGNMENT_TAG)  # the text that is filled in was accepted or read
    # Words with a text would contradict the line; words without one only say where words are, and stay.
    for word in element.all("Word"):
        if word.all("TextEquiv"):
            element.remove(word)
    words = [] if element.all("Word") else _words(tree, element, line, box)
    new = [*words, _text_equiv(tree, line.text, line.confidence)]
    element.replace(former, *new, after=element.all(*_BEFORE_TEXT))


def _words(tree: XmlTree, line: Element, read: Line, box: Box | None) -> list[Element]:
    """Return the words of a line with their boxes, where a model has said where they are."""
    sides, id_ = read.word_sides, line.get("id")
    if box is None or not id_ or not sides or " ".join(read.text.split()) != read.text:
        return []
    words = []
    for number, (word, start, place) in enumerate(word_boxes(read.text, box, sides), start=1):
        left, top, right, bottom = place or box
        corners = (left, top), (max(right - 1, left), top), (max(right - 1, left), bottom - 1), (left, bottom - 1)
        coords = tree.new("Coords", {"points": drawable_points(corners)})
        text = _text_equiv(tree, word, read.word_confidences.get(start))
        words.append(tree.new("Word", {"id": f"{id_}_w{number}"}, coords, text))
    return words


def _remove_tags(line: Element, tag: re.Pattern[str]) -> None:
    kept, count = tag.subn("", line.get("custom"))
    if count:
        line.set({"custom": kept.strip() or None})


def _fill_regions(tree: XmlTree, texts: Mapping[int, str]) -> None:
    """Fill in the texts of the regions around the lines `texts`, by index: a region's text is that of its lines.

    They are joined by line breaks in reading order, as Transkribus writes a region's text and OCR-D requires. A text
    that differs from its lines', while no line gets another text than it had, was written for the region alone and
    stays.
    """
    # In reading order.
    former = {line.index: line.text for line in parse_page(tree.parsed).lines if line.index is not None}
    places = {line: index for index, line in enumerate(tree.iter("TextLine"))}
    region_texts = (_own_texts(region).text for region in tree.parsed.iter(*(f"{{*}}{name}" for name in _REGIONS)))
    for region, text in zip(list(tree.iter(*_REGIONS)), region_texts, strict=True):
        inside = {places[line] for line in region.iter("TextLine")}
        indices = [index for index in former if index in inside]
        if not (equivs := region.all("TextEquiv")) or texts.keys().isdisjoint(indices):
            continue
        joined = "\n".join(former[index] for index in indices)
        changes = any(former[index].split() not in ([], texts[index].split()) for index in indices if index in texts)
        if changes or text.split() in ([], joined.split()):
            whole = "\n".join(texts.get(index, former[index]) for index in indices)
            region.replace(equivs, _text_equiv(tree, whole, None))


def _text_equiv(tree: XmlTree, text: str, confidence: float | None) -> Element:
    conf = None if confidence is None else f"{confidence:.4f}"
    return tree.new("TextEquiv", {"conf": conf}, tree.new("Unicode", {}, escape_text(text)))


def _add_step(tree: XmlTree, step: ProcessingStep) -> None:
    """Update `LastChange`, and add the processing step, for which PAGE has had an element since 2018."""
    metadata = next(tree.iter("Metadata"), None)
    if metadata is None:
        return
    changed = next(iter(metadata.all("LastChange")), None)
    if changed and step.date and changed.end:
        changed.content = [step.date.replace("+00:00", "Z")]
    if tree.namespace.endswith(("2018-07-15", "2019-07-15")):
        values = {"type": "processingStep", "name": step.description, "value": f"{step.software} {step.version}"}
        label = tree.new("Label", {"type": "settings", "value": step.settings})
        item = tree.new("MetadataItem", {**values, "date": step.date or None}, tree.new("Labels", {}, label))
        metadata.insert(item, after=metadata.children)


_FORMAT = partial(Format, forbidden=xml.FORBIDDEN, keeps_pages=True, keeps_regions=True, keeps_tables=True)
FORMATS = (
    _FORMAT(
        name="page",
        title="PAGE XML files",
        find=find_page,
        read=read_page,
        example=r"transkribus -o data/mine --writer '(\w+?)_\d+'",
        writing=partial(xml.writing_xml, name="page", document=page_document),
        next_step="import {out} into eScriptorium, images and page/ together (for Transkribus there is page-2013)",
        write_pages=write_page_files,
        suffix=".xml",
        one_page_per_file=True,
    ),
    _FORMAT(
        name="page-2013",
        title="PAGE XML of 2013, as Transkribus writes it",
        writing=partial(xml.writing_xml, name="page", document=partial(page_document, version=TRANSKRIBUS)),
        next_step="import {out} into Transkribus, images and page/ together",
    ),
)
