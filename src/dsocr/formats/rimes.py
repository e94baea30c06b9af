"""RIMES as it was published for ICDAR 2011: `training_2011.xml` and `eval_2011_annotated.xml`, many pages to a file.

The evaluation is the test; a validation set was never published, so papers take a part of the training.
"""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from dsocr.document import Line, Outline, Page, Region, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.formats.writing import Pictures
from dsocr.formats.xml import find_xml, parse_xml, row_of, whole_number
from dsocr.io.files import relative, split_of_name

_FARTHEST = 1_000_000


def find_rimes(source: Path) -> list[Path]:
    """The files of a folder that hold RIMES' pages, or the one that was named."""
    files = find_xml(source.parent if source.is_file() else source, "SinglePage")
    return [path for path in files if source in (path, *path.parents)]


def read_rimes(source: Path) -> Iterator[Page | Skipped]:
    """Every page with its lines; the paragraphs are the regions."""
    root = source.parent if source.is_file() else source
    pictures = Pictures(root)
    for path in find_rimes(source):
        where = relative(path, root)
        try:
            pages = list(parse_xml(path).iter("{*}SinglePage"))
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)
            continue
        for page in pages:
            yield from _page(page, path, root, pictures)


def _page(page: etree._Element, path: Path, root: Path, pictures: Pictures) -> Iterator[Page | Skipped]:
    file = relative(path, root)
    where = f"{file}:{row_of(page)}"
    try:
        image = pictures.find(page.get("FileName") or "", near=path.parent)
    except DataError as error:
        yield Skipped(SkipReason.NO_IMAGE, where, error.message)
        return
    lines, lost = [], []
    for number, paragraph in enumerate(page.iter("{*}Paragraph"), start=1):
        region = Region(str(number), _outline(paragraph))
        for element in paragraph.iter("{*}Line"):
            line = Line((element.get("Value") or "").strip(), f"{file}:{row_of(element)}", _outline(element), region)
            if line.outline is None and line.text:
                yield Skipped(SkipReason.NO_OUTLINE, line.where, "the line has no box on an image")
                lost.append(line)
            else:
                lines.append(line)
    name = relative(image.with_suffix(""), root)
    yield Page(image, name, where, tuple(lines), page=name, split=_split(path), skipped=tuple(lost))


def _split(path: Path) -> Split | None:
    return Split.TEST if "eval" in path.stem.lower() else split_of_name(path.stem)


def _outline(element: etree._Element) -> Outline | None:
    """The box; None where a side is missing or the box is none."""
    sides = [whole_number(element, name) for name in ("Left", "Top", "Right", "Bottom")]
    known = [side for side in sides if side is not None and abs(side) <= _FARTHEST]
    if len(known) < 4 or known[0] >= known[2] or known[1] >= known[3]:
        return None
    return Outline((known[0], known[1], known[2], known[3]))
