"""Look again at the narrow columns of tables: numbers, days and sums that are lost on a page as the detector sees it.

The columns are put side by side and upright on a sheet, which the detector sees enlarged. That costs less than a page,
and text of one column is not joined with text beside it. Earlier outlines that cover several rows are replaced.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from dsocr.document import Outline, Point, Table, TableCell
from dsocr.images import paper_colour
from dsocr.layout import DetectOutlines
from dsocr.outlines import quarter_turns
from dsocr.registers.rulings import Floats

# Chosen on ten pages of registers (lab/verdicts.md, "Registers").
_NARROW = 0.15
"""Maximum width of a narrow column, as a share of the table's."""
_SIDE = 1680
"""Longer side of the page, in pixels, when narrow columns are cut out of it."""
_LARGEST = 4
"""Maximum area of the sheet, relative to a whole page as the detector sees it."""
_GAP = 24
"""Pixels of paper around a column."""
_SAME = 0.3
"""Minimum horizontal overlap of two outlines of one line, as a share of the narrower."""
_WITHIN, _APART = 0.6, 0.4
"""Minimum share of a line inside another, and minimum distance between two lines in heights."""


class _Column(NamedTuple):
    """A column of a table: its corners on the page from the upper left one downwards, and its picture upright."""

    corners: Floats
    picture: Image.Image


def complete_columns(
    page: Image.Image, outlines: Sequence[Outline], tables: Sequence[Table], detect: DetectOutlines
) -> list[Outline]:
    """Return the outlines of the lines of a page, completed in the narrow columns of its tables."""
    corners = [column for table in tables for column in _narrow_columns(table)]
    if not corners:
        return list(outlines)
    scale = _SIDE / max(page.size)
    width, height = (max(round(length * scale), 1) for length in page.size)
    seen = page.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2).convert("RGB")
    columns = [_Column(column, _cut(seen, column * scale)) for column in corners]
    return _merge(outlines, list(_find_in(columns, detect)))


def _narrow_columns(table: Table) -> Iterator[Floats]:
    """Yield the corners `(4, 2)` of narrow columns, from the upper left one downwards, on the page."""
    columns: dict[int, list[TableCell]] = {}
    for cell in table.cells:
        if cell.outline and cell.place.column_span == 1:
            columns.setdefault(cell.place.column, []).append(cell)
    assert table.outline
    left, _, right, _ = table.outline.box
    for _, cells in sorted(columns.items()):
        ends = (min(cells, key=lambda cell: cell.place.row), max(cells, key=lambda cell: cell.place.rows.stop))
        upper, lower = (cell.outline.border for cell in ends if cell.outline)
        corners = np.array([upper[0], lower[1], lower[2], upper[3]], dtype=np.float64)
        width, height = _size(corners)
        if 1 <= width <= _NARROW * (right - left) and height >= 1:
            yield corners


def _size(corners: Floats) -> tuple[float, float]:
    """Return the width and the height of a column, each of the longer side."""
    sides = np.hypot(*(corners - np.roll(corners, -1, axis=0)).T)
    return float(max(sides[1], sides[3])), float(max(sides[0], sides[2]))


def _cut(page: Image.Image, corners: Floats) -> Image.Image:
    width, height = (max(round(length), 1) for length in _size(corners))
    quad = tuple(corners.ravel().tolist())
    return page.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)


def _find_in(columns: Sequence[_Column], detect: DetectOutlines) -> Iterator[Outline]:
    """Yield the outlines of upright lines in columns, on the page."""
    from dsocr.layout.text_detector import SIDE

    *starts, width = np.cumsum([0, *(column.picture.width + _GAP for column in columns)]).tolist()
    height = max(column.picture.height for column in columns) + 2 * _GAP
    sheet = Image.new("RGB", (width, height))
    for begin, (_, picture) in zip(starts, columns, strict=True):
        sheet.paste(paper_colour(picture), (begin, 0, begin + picture.width + _GAP, height))
        sheet.paste(picture, (begin + _GAP // 2, _GAP))
    shrunk = min(1.0, SIDE * math.sqrt(_LARGEST / (width * height)))
    for outline in detect(sheet, round(shrunk * max(sheet.size))):
        middle = statistics.fmean(x for x, _ in outline.baseline)
        place = int(np.searchsorted(starts, middle, side="right")) - 1
        begin = starts[place] + _GAP // 2
        polygon, baseline = (_to_page(columns[place], points, begin) for points in (outline.polygon, outline.baseline))
        if len(set(baseline)) > 1 and not quarter_turns(outline):
            yield Outline.of_polygon(polygon, baseline)


def _to_page(column: _Column, points: Sequence[Point], begin: int) -> tuple[Point, ...]:
    """Return where points of the sheet are on the page; points beyond a column are at its border."""
    corners, picture = column
    across, down = np.clip((np.array(points) - (begin, _GAP)) / picture.size, 0, 1).T[:, :, None]
    left, right = (
        first + down * (last - first) for first, last in ((corners[0], corners[1]), (corners[3], corners[2]))
    )
    return tuple((x, y) for x, y in (left + across * (right - left)).round().astype(int).tolist())


def _merge(known: Sequence[Outline], again: Sequence[Outline]) -> list[Outline]:
    """Return the known outlines and the new ones; a known outline that covers several lines is replaced by them."""
    kept: list[Outline] = []
    boxes = np.array([outline.box for outline in again], dtype=np.float64).reshape(-1, 4)
    sizes, middles = boxes[:, 2:] - boxes[:, :2], boxes[:, 1::2].mean(axis=1)
    is_new = np.ones(len(boxes), dtype=np.bool_)
    for outline in known:
        box = np.array(outline.box, dtype=np.float64)
        shared = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
        is_within = shared.clip(min=0).prod(axis=1) >= _WITHIN * sizes.prod(axis=1)
        steps = np.diff(np.sort(middles[is_within]))
        if len(steps) and (steps >= _APART * np.median(sizes[is_within, 1])).all():
            continue
        kept.append(outline)
        smaller = np.minimum(box[2:] - box[:2], sizes)
        is_level = np.abs(box[1::2].mean() - middles) < _APART * smaller[:, 1]
        is_new &= ~(is_level & (shared[:, 0] >= _SAME * smaller[:, 0]))
    return kept + [outline for outline, is_other in zip(again, is_new, strict=True) if is_other]
