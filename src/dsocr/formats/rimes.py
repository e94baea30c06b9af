"""RIMES as it was published for ICDAR 2011: `training_2011.xml` and `eval_2011_annotated.xml`, many pages to a file.

The evaluation is the test split; a validation split was never published, so papers take a part of the training split.
"""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from dsocr.document import Line, Outline, Page, Region, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format
from dsocr.formats.image_finder import ImageFinder
from dsocr.formats.xml import LARGEST_COORDINATE, find_xml, integer_attribute, parse_xml, source_line
from dsocr.io.files import relative, split_of_name


def find_rimes(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the files of a folder that contain RIMES' pages, or the one that was named."""
    files = find_xml(source.parent if source.is_file() else source, "SinglePage")
    return [path for path in files if source in (path, *path.parents)]


def read_rimes(source: Path, columns: Columns | None = None) -> Iterator[Page | Skipped]:
    """Read every page with its lines; the paragraphs are the regions."""
    root = source.parent if source.is_file() else source
    images = ImageFinder(root)
    for path in find_rimes(source):
        try:
            pages = list(parse_xml(path).iter("{*}SinglePage"))
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, relative(path, root), error.message)
            continue
        for page in pages:
            yield from _read_page(page, path, root, images)


def _read_page(page: etree._Element, path: Path, root: Path, images: ImageFinder) -> Iterator[Page | Skipped]:
    file = relative(path, root)
    where = f"{file}:{source_line(page)}"
    try:
        image = images.find(page.get("FileName") or "", near=path.parent)
    except DataError as error:
        yield Skipped(SkipReason.NO_IMAGE, where, error.message)
        return
    lines, skipped = [], []
    for number, paragraph in enumerate(page.iter("{*}Paragraph"), start=1):
        region = Region(str(number), _outline(paragraph))
        for element in paragraph.iter("{*}Line"):
            text = (element.get("Value") or "").strip()
            line = Line(text, f"{file}:{source_line(element)}", _outline(element), region)
            if line.outline is None and line.text:
                yield Skipped(SkipReason.NO_OUTLINE, line.where, "the line has no box on an image")
                skipped.append(line)
            else:
                lines.append(line)
    name = relative(image.with_suffix(""), root)
    split = Split.TEST if "eval" in path.stem.lower() else split_of_name(path.stem)
    yield Page(image, name, where, tuple(lines), page=name, split=split, skipped=tuple(skipped))


def _outline(element: etree._Element) -> Outline | None:
    """Return the box; None if a side is missing or the box is empty."""
    sides = [integer_attribute(element, name) for name in ("Left", "Top", "Right", "Bottom")]
    known = [side for side in sides if side is not None and abs(side) <= LARGEST_COORDINATE]
    if len(known) < 4 or known[0] >= known[2] or known[1] >= known[3]:
        return None
    return Outline((known[0], known[1], known[2], known[3]))


FORMATS = (Format(name="rimes", title="RIMES pages", find=find_rimes, read=read_rimes, example="rimes -o data/mine"),)
