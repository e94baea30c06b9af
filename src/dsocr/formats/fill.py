"""Texts filled into an ALTO or PAGE file that is there already: every byte that is no text of a filled line stays.

Works on the file's bytes, not on a tree that is written anew, so that spaces, the order of attributes, prefixes, the
declaration and whatever no format knows are as they were.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dsocr.document import Box
from dsocr.formats.alto import Fill, box_attributes, content, one_string, strings, sureness
from dsocr.formats.page import REGIONS, fill_line, fill_regions
from dsocr.formats.xml import (
    Edit,
    Marked,
    as_utf8,
    attributes_of,
    edited,
    escaped,
    indent_before,
    inserted,
    marked_in,
    without_forbidden,
)

_ALTO_TEXT = frozenset({"String", "SP", "HYP"})
_STALE = ("WC", "CC", "SUBS_TYPE", "SUBS_CONTENT")
"""What an ALTO `String` says of the text that it had: how sure it was, and the whole word where it is parted."""


@dataclass(frozen=True, slots=True)
class Step:
    """How the texts came about: the program and its version, what it did, its settings, and when (ISO 8601)."""

    software: str
    version: str
    description: str
    settings: str
    date: str


def fill_markup(raw: bytes, fills: Mapping[int, Fill], step: Step | None = None, *, in_words: bool = False) -> bytes:
    """The file with the lines in `fills`, counted from 0 in the file's order, given these texts.

    What text a filled line had goes, in PAGE with the words that it was made of; a text of the whole region that it
    came from is made anew. In ALTO a line that had one `String` or none has one, and a line that had several has one
    for each word, as all have with `in_words`. `raw` must be a file that the readers of ALTO or PAGE took. The encoding
    stays; what it cannot write becomes a reference. PAGE's `LastChange` becomes the date of the step.
    """
    data, restored = as_utf8(raw)
    found = marked_in(data, {"TextLine", "Description", "Metadata", *REGIONS})
    is_alto = found.root == "alto"
    lines = [element for element in found.elements if element.name == "TextLine"]
    fill = partial(_fill_alto, in_words=in_words) if is_alto else _fill_page
    edits = [edit for place, line in enumerate(lines) if place in fills for edit in fill(data, line, fills[place])]
    if edits and not is_alto:
        edits += fill_regions(raw, data, found.elements, {place: told.text for place, told in fills.items()})
    if step and edits:
        edits += _told(data, found.elements, found.namespace, step, is_alto=is_alto)
    return restored(edited(data, edits))


def _fill_alto(data: bytes, line: Marked, fill: Fill, *, in_words: bool) -> list[Edit]:
    texts = [child for child in line.children if child.name in _ALTO_TEXT]
    if not in_words and len(texts) == 1 and texts[0].name == "String" and not texts[0].children:
        return _changed_string(data, texts[0], fill)
    place, box = _alto_place(data, line, fill.box)
    if in_words or sum(child.name == "String" for child in texts) > 1:
        indent = indent_before(data, texts[0]).decode() if texts else ""
        new = strings(line.prefix, fill, place, box, indent)
    else:
        new = one_string(line.prefix, fill, place)
    if texts:
        return [Edit(texts[0].start, texts[-1].end, new.encode())]
    return [inserted(data, line, [child for child in line.children if child.name == "Shape"], new)]


def _fill_page(data: bytes, line: Marked, fill: Fill) -> list[Edit]:
    return fill_line(data, line, fill.text, fill.confidence)


def _changed_string(data: bytes, string: Marked, fill: Fill) -> list[Edit]:
    """The one `String` of a line with another text and confidence, and all else that it says."""
    found = attributes_of(data, string)
    edits = [Edit(*found["CONTENT"].value, content(fill).encode())] if "CONTENT" in found else []
    more = "" if edits else f" CONTENT={content(fill)}"
    for stale in _STALE:
        if stale in found:
            edits.append(Edit(*found[stale].whole, b""))
    more += sureness(fill)
    return [*edits, Edit(string.name_end, string.name_end, more.encode())] if more else edits


def _alto_place(data: bytes, line: Marked, box: Box | None) -> tuple[str, Box | None]:
    """The line's own place as its file writes it, and in whole units; else the box, in pixels."""
    names = ("HPOS", "VPOS", "WIDTH", "HEIGHT")
    found = attributes_of(data, line)
    if not all(name in found for name in names):
        return box_attributes(box), box
    values = [data[slice(*found[name].value)].decode() for name in names]
    written = "".join(f" {name}={value}" for name, value in zip(names, values, strict=True))
    try:
        left, top, width, height = (round(float(value.strip("\"'"))) for value in values)
    except (ValueError, OverflowError):
        return written, None
    return written, (left, top, left + width, top + height)


def _told(data: bytes, elements: Sequence[Marked], namespace: str, step: Step, *, is_alto: bool) -> list[Edit]:
    """The processing step, where the format's version has a place for one."""
    head = next((element for element in elements if element.name == ("Description" if is_alto else "Metadata")), None)
    if head is None:
        return []
    told = _alto_step(data, head, namespace, step) if is_alto else _page_step(head, namespace, step)
    edits = [inserted(data, head, head.children, told)] if told else []
    changed = next((child for child in head.children if child.name == "LastChange" and not is_alto), None)
    if changed is not None and step.date and not changed.is_closed:
        edits.append(Edit(changed.tag_end, data.rindex(b"</", changed.tag_end, changed.end), step.date.encode()))
    return edits


def _alto_step(data: bytes, head: Marked, namespace: str, step: Step) -> str:
    prefix = head.prefix
    number, id_ = 1, "dsocr"
    while f'"{id_}"'.encode() in data:
        number += 1
        id_ = f"dsocr-{number}"
    is_new = namespace.endswith(("ns-v4#", "ns-v5#"))
    category = f"<{prefix}processingCategory>contentGeneration</{prefix}processingCategory>" if is_new else ""
    parts = "".join(
        f"<{prefix}{name}>{escaped(value)}</{prefix}{name}>"
        for name, value in (
            ("processingDateTime", step.date),
            ("processingStepDescription", step.description),
            ("processingStepSettings", step.settings),
        )
        if value
    )
    software = "".join(
        f"<{prefix}{name}>{escaped(value)}</{prefix}{name}>"
        for name, value in (("softwareName", step.software), ("softwareVersion", step.version))
    )
    inner = f"{category}{parts}<{prefix}processingSoftware>{software}</{prefix}processingSoftware>"
    if is_new:
        return f'<{prefix}Processing ID="{id_}">{inner}</{prefix}Processing>'
    inner = f"<{prefix}ocrProcessingStep>{inner}</{prefix}ocrProcessingStep>"
    return f'<{prefix}OCRProcessing ID="{id_}">{inner}</{prefix}OCRProcessing>'


def _page_step(head: Marked, namespace: str, step: Step) -> str:
    """PAGE has had a place for steps since 2018."""
    if not namespace.endswith(("2018-07-15", "2019-07-15")):
        return ""
    attributes = {"type": "processingStep", "name": step.description, "value": f"{step.software} {step.version}"}
    if step.date:
        attributes["date"] = step.date
    told = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    prefix = head.prefix
    label = f'<{prefix}Label type="settings" value="{_attribute(step.settings)}"/>'
    return f"<{prefix}MetadataItem{told}><{prefix}Labels>{label}</{prefix}Labels></{prefix}MetadataItem>"


def _attribute(text: str) -> str:
    return escaped(without_forbidden(text), quotes=True)
