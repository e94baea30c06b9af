"""RIMES as it was published for ICDAR 2011: `training_2011.xml` and `eval_2011_annotated.xml`, many pages to a file.

The evaluation is the test split; a validation split was never published, so papers take a part of the training split.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lxml import etree

from dsocr.document import Item, Line, Outline, Region, Skipped, SkipReason, Split
from dsocr.formats.format import LARGEST_COORDINATE, Columns, Format, SourceFile, read_files
from dsocr.formats.xml import find_xml, integer_attribute, parse_xml, source_line
from dsocr.io.files import split_of_name


def find_rimes(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the files of a folder that contain RIMES' pages, or the one that was named."""
    files = find_xml(source.parent if source.is_file() else source, "SinglePage")
    return [path for path in files if source in (path, *path.parents)]


def read_rimes(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every page with its lines; the paragraphs are the regions."""
    return read_files(source, find_rimes(source), _read_file)


def _read_file(file: SourceFile) -> Iterator[Item]:
    split = Split.TEST if "eval" in file.path.stem.lower() else split_of_name(file.path.stem)
    for element in list(parse_xml(file.path).iter("{*}SinglePage")):
        page = file.find_page(element.get("FileName") or "", f"{file.where}:{source_line(element)}", split=split)
        if isinstance(page, Skipped):
            yield page
            continue
        lines, skipped = [], []
        for line in _lines(element, file):
            if line.outline is None and line.text:
                yield Skipped(SkipReason.NO_OUTLINE, line.where, "the line has no box on an image")
                skipped.append(line)
            else:
                lines.append(line)
        yield replace(page, lines=tuple(lines), page=page.name, skipped=tuple(skipped))


def _lines(page: etree._Element, file: SourceFile) -> Iterator[Line]:
    for number, paragraph in enumerate(page.iter("{*}Paragraph"), start=1):
        region = Region(str(number), _outline(paragraph))
        for line in paragraph.iter("{*}Line"):
            text = (line.get("Value") or "").strip()
            yield Line(text, f"{file.where}:{source_line(line)}", _outline(line), region)


def _outline(element: etree._Element) -> Outline | None:
    """Return the box; None if a side is missing or the box is empty."""
    sides = [integer_attribute(element, name) for name in ("Left", "Top", "Right", "Bottom")]
    known = [side for side in sides if side is not None and abs(side) <= LARGEST_COORDINATE]
    if len(known) < 4 or known[0] >= known[2] or known[1] >= known[3]:
        return None
    return Outline((known[0], known[1], known[2], known[3]))


FORMATS = (Format(name="rimes", title="RIMES pages", find=find_rimes, read=read_rimes, example="rimes -o data/mine"),)
