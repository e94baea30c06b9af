"""Pages as samples: places, types and order of their lines and regions, transcribed or not.

A sample keeps its page as PAGE XML in pixels of its image, so that every program that reads PAGE can read it.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsocr.data.dataset import Dataset, SourceReport
from dsocr.document import Box, Line, Page, Sample, Skipped, SkipReason
from dsocr.errors import DataError, option
from dsocr.formats.page import page_document, parse_page
from dsocr.formats.xml import parse_xml_bytes, serialize
from dsocr.images import MAX_PAGE_PIXELS, MAX_PIXELS, scale_page

_SAME = 0.9
"""If at least this share of two boxes is common, they are one line that was drawn twice."""
_INSIDE = 0.5
"""If less than this share of a line's box is in its region, it is drawn elsewhere."""


def largest_sample(unit: str) -> int:
    """Return the pixels that a sample of a dataset may have: a layout is not read but shrunk, as any scan of a page."""
    return MAX_PAGE_PIXELS if unit == "layout" else MAX_PIXELS


def take_layout(page: Page, report: SourceReport) -> Page | None:
    """Return a page as one sample that holds its lines; None if no line has a place.

    Lines without a place, outside the image and drawn twice are skipped; lines outside their region are noted.
    """
    lines: list[Line] = []
    boxes = np.zeros((len(page.lines), 4), dtype=np.int64)
    for line in page.lines:
        if fault := _fault(line, page, lines, boxes):
            report.skip(fault)
        elif line.outline:
            boxes[len(lines)] = line.outline.box
            lines.append(line)
    astray = []
    for line in lines:
        if line.outline and line.region and line.region.outline:
            box, other = line.outline.box, line.region.outline.box
            common = max(box[0], other[0]), max(box[1], other[1]), min(box[2], other[2]), min(box[3], other[3])
            astray += [line.where] if _area(common) < _INSIDE * _area(box) else []
    if astray:
        report.note(f"{page.where}: {len(astray)} lines are outside their region: {', '.join(astray[:3])}")
    if not lines:
        report.skip(Skipped(SkipReason.NO_OUTLINE, page.where, "no line of the page has an outline"))
        return None
    text = "\n".join(line.text for line in lines if line.text)
    return replace(page, lines=(Line(text, page.where),), skipped=(), layout=tuple(lines))


def _fault(line: Line, page: Page, others: list[Line], boxes: NDArray[np.int64]) -> Skipped | None:
    """The fault of a line beside others, whose boxes come first in `boxes`."""
    if line.outline is None:
        return Skipped(SkipReason.NO_OUTLINE, line.where, "the line has neither a polygon nor a box")
    box = line.outline.box
    if page.size and _area(page.visible_box(line)) == 0:
        return Skipped(SkipReason.OUTSIDE, line.where, f"the line's box {box} is outside the image")
    if min(box[2] - box[0], box[3] - box[1]) < 2:
        return Skipped(SkipReason.TOO_SMALL, line.where, f"the line's box {box} has no area")
    at_same_place = np.flatnonzero(box_overlaps(box, boxes[: len(others)]) >= _SAME)
    if not len(at_same_place):
        return None
    same = others[int(at_same_place[0])]
    return Skipped(SkipReason.TWICE, line.where, f"the line is at the same place as {same.where}")


def _area(box: Box) -> int:
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def box_overlaps(box: Box, others: NDArray[np.int64]) -> NDArray[np.float64]:
    """The intersection of a box with each of others over their union."""
    lower, upper = np.maximum(others[:, :2], box[:2]), np.minimum(others[:, 2:], box[2:])
    common = np.clip(upper - lower, 0, None).prod(axis=1)
    union = _area(box) + np.clip(others[:, 2:] - others[:, :2], 0, None).prod(axis=1) - common
    overlaps: NDArray[np.float64] = common / np.maximum(union, 1)
    return overlaps


def layout_xml(page: Page, size: tuple[int, int]) -> str:
    """Return a page's layout as PAGE XML in pixels of its image, empty without one. DataError for another shape."""
    if not page.layout:
        return ""
    lines = tuple(replace(line, alignment=None) for line in page.layout)
    root, _ = page_document(scale_page(replace(page, lines=lines), size))
    return serialize(root).decode("utf-8")


def require_layouts(dataset: Dataset) -> None:
    """Raise DataError for a dataset without the places of its lines."""
    if dataset.card.unit not in ("layout", "page"):
        message = "the dataset has images of lines, not pages with the places of their lines"
        hint = f"prepare it from ALTO or PAGE with {option('unit', 'layout')}"
        raise DataError(message, code="dataset-not-layout", where=dataset.folder, hint=hint)


def read_layout(sample: Sample) -> Page:
    """Return the page of a sample with its lines. Raises DataError if the sample has none."""
    if not sample.page_xml:
        message = "the sample has no layout: its lines and regions are not known"
        hint = f"prepare the dataset from ALTO or PAGE with {option('unit', 'layout')}"
        raise DataError(message, code="layout-missing", where=sample.id, hint=hint)
    described = parse_page(parse_xml_bytes(sample.page_xml.encode("utf-8")), sample.id)
    image = sample.image if isinstance(sample.image, Path) else sample.image.file
    lines, tables = tuple(described.lines), tuple(described.tables)
    return Page(image, sample.id, sample.place, lines, described.size, page=sample.page, tables=tables)
