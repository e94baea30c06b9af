"""What ALTO and PAGE have in common: an image beside each XML file, and regions that lines stand in."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from lxml import etree

from dsocr.data.sources.layout import Box, LeftOut, Outline, SourceImage, SourceLine
from dsocr.data.targets.images import WholeImage, copy_image
from dsocr.data.targets.layout import Added

FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may hold, half characters among it."""


def without_forbidden(text: str) -> str:
    """The text with a mark for each character that no XML document may hold."""
    return FORBIDDEN.sub("\ufffd", text)


class MarkupWriter:
    """An XML file for each image in a folder of that name, images one level up; splits in folders of their own."""

    def __init__(self, folder: Path, name: str, document: Callable[[WholeImage], tuple[etree._Element, int]]) -> None:
        self.folder = folder
        self.name = name
        self.document = document

    def add(self, image: SourceImage, stem: str) -> Added:
        """Copies the image and describes it."""
        folder = self.folder / image.split if image.split else self.folder
        whole = copy_image(image, folder, stem)
        if isinstance(whole, LeftOut):
            return Added(0, [whole])
        root, moved = self.document(whole)
        (folder / self.name).mkdir(exist_ok=True)
        content = etree.tostring(root, encoding="UTF-8", xml_declaration=True, pretty_print=True)
        (folder / self.name / f"{stem}.xml").write_bytes(content)
        return Added(len(whole.lines), moved=moved)

    def close(self) -> None:
        """Nothing is left to do: each file is whole when it is written."""


def regions(whole: WholeImage) -> Iterator[list[SourceLine]]:
    """The lines in reading order, those together that follow each other in one region of the source."""
    for _, lines in groupby(whole.lines, key=lambda line: line.region):
        yield list(lines)


def box_of(line: SourceLine, whole: WholeImage) -> Box:
    """The line's box; the whole image where the line is all there is on it."""
    return line.outline.box if line.outline else (0, 0, *whole.size)


def region_outline(lines: list[SourceLine], whole: WholeImage) -> Outline:
    """Where the lines' region stands: what the source says, else the smallest box around the lines."""
    region = lines[0].region
    if region and region.outline:
        return region.outline
    left, top, right, bottom = zip(*(box_of(line, whole) for line in lines), strict=True)
    return Outline((min(left), min(top), max(right), max(bottom)))


def element(parent: etree._Element, name: str, attributes: Mapping[str, object], text: str = "") -> etree._Element:
    """A child in the parent's namespace; attributes are written as texts, in this order."""
    namespace = etree.QName(parent).namespace
    child = etree.SubElement(parent, f"{{{namespace}}}{name}", {key: str(value) for key, value in attributes.items()})
    child.text = text or None
    return child
