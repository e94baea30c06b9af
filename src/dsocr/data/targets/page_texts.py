"""Texts in PAGE: of a line, and of the regions around it, which must not contradict their lines."""

from collections.abc import Mapping, Sequence

from dsocr.data.sources.markup import parse_bytes
from dsocr.data.sources.page import describe_page, own_text
from dsocr.data.targets.markup import without_forbidden
from dsocr.data.targets.spans import Edit, Marked, attributes_of, escaped, inserted, removed

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
