"""Look again at the narrow columns of tables: numbers, days and sums that are lost on a page as the detector sees it.

The columns are put side by side on a sheet, upright, which the detector sees enlarged: it costs less than a page, and
what is in one column is not joined with what is beside it. What was found before stays, but for numbers of several rows
that had been taken for one line.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from dsocr.data.grid import find_tables
from dsocr.data.lines import find_outlines
from dsocr.document import Box, Line, Outline, Point, Table, TableCell
from dsocr.outlines import quarter_turns

if TYPE_CHECKING:
    from dsocr.models.text_detector import Detector

# Chosen on ten pages of registers (docs/lab/experiments.md, 2026-11-27).
_NARROW = 0.15
"""Share of the width of a table up to which its columns are looked at again."""
_ENLARGED = 1.75
"""By how much larger than the page the detector sees them."""
_GAP = 24
"""Pixels of paper around a column."""
_PAPER = 70
"""Percentile of the pixels of a column that is the colour of its paper."""
_SAME = 0.3
"""Share of the narrower of two lines that the other is above or below of, from which they may be the same."""
_WITHIN, _APART = 0.6, 0.4
"""Share of a line that is within another, and heights from middle to middle, from which there it is one of several."""


class _Column(NamedTuple):
    """A column of a table: its corners on the page from the upper left one downwards, and its picture upright."""

    corners: tuple[Point, Point, Point, Point]
    picture: Image.Image


def complete_columns(page: Image.Image, outlines: Sequence[Outline], detector: "Detector | None") -> list[Outline]:
    """Return the outlines of the lines of a page with those that were not found in narrow columns of its tables.

    Lines over several columns are cut; a page without tables keeps its outlines.
    """
    parts, tables = find_tables(page, [Line("", str(number), outline) for number, outline in enumerate(outlines)])
    columns = [column for table in tables for column in _narrow_columns(page, table)]
    if not columns:
        return list(outlines)
    return _merge([part.outline for part in parts if part.outline], list(_find_in(columns, max(page.size), detector)))


def _narrow_columns(page: Image.Image, table: Table) -> Iterator[_Column]:
    columns: dict[int, list[TableCell]] = {}
    for cell in table.cells:
        if cell.outline and cell.column_span == 1:
            columns.setdefault(cell.column, []).append(cell)
    assert table.outline
    left, _, right, _ = table.outline.box
    for _, cells in sorted(columns.items()):
        ends = (min(cells, key=lambda cell: cell.row), max(cells, key=lambda cell: cell.row + cell.row_span))
        (upper_left, _, _, upper_right), (_, lower_left, lower_right, _) = (
            cell.outline.border for cell in ends if cell.outline
        )
        width, height = (
            round(max(np.hypot(*np.subtract(*side)) for side in sides))
            for sides in (
                ((upper_left, upper_right), (lower_left, lower_right)),
                ((upper_left, lower_left), (upper_right, lower_right)),
            )
        )
        if 0 < width <= _NARROW * (right - left) and height:
            corners = upper_left, lower_left, lower_right, upper_right
            quad = tuple(length for corner in corners for length in corner)
            yield _Column(
                corners, page.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)
            )


def _find_in(columns: Sequence[_Column], longest: int, detector: "Detector | None") -> Iterator[Outline]:
    """Yield the outlines of upright lines in columns of a page whose longer side is given."""
    from dsocr.models.text_detector import SIDE, detect_text

    width = sum(column.picture.width + _GAP for column in columns)
    height = max(column.picture.height for column in columns) + 2 * _GAP
    sheet = Image.new("RGB", (width, height))
    starts: list[int] = []
    for column in columns:
        picture = column.picture.convert("RGB")
        paper = np.percentile(np.asarray(picture).reshape(-1, 3), _PAPER, axis=0).round().astype(int)
        begin = sum(other.picture.width + _GAP for other in columns[: len(starts)])
        sheet.paste(tuple(paper.tolist()), (begin, 0, begin + picture.width + _GAP, height))
        sheet.paste(picture, (begin + _GAP // 2, _GAP))
        starts.append(begin)
    side = round(_ENLARGED * SIDE * max(sheet.size) / longest)
    for outline in find_outlines(detect_text(sheet, detector, side), sheet.size):
        middle = statistics.fmean(x for x, _ in outline.baseline)
        place = int(np.searchsorted(starts, middle, side="right")) - 1
        begin = starts[place] + _GAP // 2
        polygon, baseline = (_to_page(columns[place], points, begin) for points in (outline.polygon, outline.baseline))
        if len(set(baseline)) > 1 and not quarter_turns(outline):
            yield Outline.of_polygon(polygon, baseline)


def _to_page(column: _Column, points: Sequence[Point], begin: int) -> tuple[Point, ...]:
    """Return where points of the sheet are on the page; what is beyond a column is at its border."""
    picture, corners = column.picture, np.array(column.corners, dtype=np.float64)
    across, down = np.clip((np.array(points) - (begin, _GAP)) / picture.size, 0, 1).T[:, :, None]
    left, right = (
        first + down * (last - first) for first, last in ((corners[0], corners[1]), (corners[3], corners[2]))
    )
    return tuple((x, y) for x, y in (left + across * (right - left)).round().astype(int).tolist())


def _merge(known: Sequence[Outline], again: Sequence[Outline]) -> list[Outline]:
    """Return the known outlines and those that are none of these; a known one of several lines is replaced by them."""
    kept: list[Outline] = []
    taken: set[int] = set()
    boxes = [outline.box for outline in again]
    for outline in known:
        box = outline.box
        if _are_apart([other for other in boxes if _shared(box, other) >= _WITHIN * _area(other)]):
            continue
        kept.append(outline)
        taken |= {number for number, other in enumerate(boxes) if _are_same(box, other)}
    return kept + [outline for number, outline in enumerate(again) if number not in taken]


def _are_same(box: Box, other: Box) -> bool:
    """Whether the middle of one of two lines beside each other is in the other."""
    left, top, right, bottom = box
    other_left, other_top, other_right, other_bottom = other
    overlap = min(right, other_right) - max(left, other_left)
    is_beside = overlap < _SAME * min(right - left, other_right - other_left)
    middle, other_middle = (top + bottom) / 2, (other_top + other_bottom) / 2
    return not is_beside and (top <= other_middle <= bottom or other_top <= middle <= other_bottom)


def _are_apart(boxes: Sequence[Box]) -> bool:
    """Whether there are several lines, one below the other."""
    if len(boxes) < 2:
        return False
    usual = statistics.median(bottom - top for _, top, _, bottom in boxes)
    middles = sorted((top + bottom) / 2 for _, top, _, bottom in boxes)
    return all(below - above >= _APART * usual for above, below in pairwise(middles))


def _shared(box: Box, other: Box) -> int:
    left, top, right, bottom = (
        max(box[0], other[0]),
        max(box[1], other[1]),
        min(box[2], other[2]),
        min(box[3], other[3]),
    )
    return max(right - left, 0) * max(bottom - top, 0)


def _area(box: Box) -> int:
    return max((box[2] - box[0]) * (box[3] - box[1]), 1)
