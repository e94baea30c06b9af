"""Find the lines of page images with a text detector, also where the page lies on its side or its lines are small."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dsocr.document import Line, Outline, Point
from dsocr.errors import DataError
from dsocr.images import decode_image
from dsocr.layout.lines import SegmentedLine, arrange_lines, find_lines
from dsocr.outlines import quarter_turns
from dsocr.registers.narrow_columns import complete_columns

if TYPE_CHECKING:
    from dsocr.layout.text_detector import Detector

# Measured on pages of copiste and of registers, upright, turned and side by side (lab/verdicts.md, "Finding lines").
_ON_SIDE = 0.5
"""Share of the length of a page's lines that are sideways from which the page is: at most 0.02 are on upright pages."""
_SMALL, _LARGE = 13, 84
"""Pixels of the detector: lines may be too small to be told apart where those that are found are lower or higher, or
seem to run along the side of the page, which lines that are taken for a column do."""
_PART = 3
"""Sides of the middle of a page, by those of the page, in which it is seen whether lines are too small."""
_MANY = 5
"""Lines in the middle of the page, and twice as many as were found there on the whole page, that show it."""


def detect_lines(content: bytes, where: str, detector: Path | None = None, *, tables: bool = False) -> Sequence[Line]:
    """Detect the lines of the image in a file's content, with the shipped detector or that of a folder.

    `tables` enlarges their narrow columns and detects again. Lines of a page that lies on its side get baselines that
    say so: upwards, until `read_locally` has seen which way they are read. Raises DataError if there are no lines, or
    if they are too small.
    """
    from dsocr.layout.text_detector import detect_text, keep_detector

    page = decode_image(content, name=where).image
    network = detector and keep_detector(detector)
    try:
        lines = find_lines(detect_text(page, network), page.size)
    except DataError:
        _require_large_lines(page, (), network)
        raise
    outlines = [line.outline for line in lines]
    if (on_side := lies_on_side(outlines)) or not _SMALL <= _usual_height(outlines, page.size) <= _LARGE:
        _require_large_lines(page, outlines, network)
    if on_side:
        upright = page.transpose(Image.Transpose.ROTATE_270)
        turned = _find(upright, network)
        if tables:
            turned = _with_narrow_columns(upright, turned, network)
        lines = [_turn_back(line, page.height) for line in turned] or lines
    elif tables:
        lines = _with_narrow_columns(page, lines, network)
    return [Line("", f"{where}#{number + 1}", line.outline, line.region, number) for number, line in enumerate(lines)]


def _with_narrow_columns(
    page: Image.Image, lines: Sequence[SegmentedLine], detector: "Detector | None"
) -> list[SegmentedLine]:
    """Return the lines of a page, also those found only in enlarged narrow columns of its tables."""
    outlines = [line.outline for line in lines]
    completed = complete_columns(page, outlines, detector)
    return list(lines) if completed == outlines else arrange_lines(completed)


def _find(page: Image.Image, detector: "Detector | None") -> list[SegmentedLine]:
    """Return the lines of a page, none if there are none."""
    from dsocr.layout.text_detector import detect_text

    try:
        return find_lines(detect_text(page, detector), page.size)
    except DataError:
        return []


def lies_on_side(outlines: Sequence[Outline]) -> bool:
    """Whether most of a page's writing runs along its side."""
    lengths = [(max(_sides(outline)), quarter_turns(outline) != 0) for outline in outlines]
    sideways = sum(length for length, is_sideways in lengths if is_sideways)
    return sideways > _ON_SIDE * sum(length for length, _ in lengths)


def _usual_height(outlines: Sequence[Outline], size: tuple[int, int]) -> float:
    """Return the median height of lines on a page of this size, in pixels of the detector."""
    from dsocr.layout.text_detector import SIDE

    return statistics.median(min(_sides(outline)) for outline in outlines) * SIDE / max(size)


def _sides(outline: Outline) -> tuple[int, int]:
    left, top, right, bottom = outline.box
    return right - left, bottom - top


def _turn_back(line: SegmentedLine, height: int) -> SegmentedLine:
    """Return a line of a page that was turned clockwise as it is on the page, which has this height."""

    def back(points: Sequence[Point]) -> tuple[Point, ...]:
        return tuple((y, height - 1 - x) for x, y in points)

    outline = Outline.of_polygon(back(line.outline.polygon), back(line.outline.baseline))
    left, top, right, bottom = line.region.outline.box if line.region.outline else line.outline.box
    region = replace(line.region, outline=Outline((top, height - right, bottom, height - left)))
    return SegmentedLine(outline, region)


def _require_large_lines(page: Image.Image, outlines: Sequence[Outline], detector: "Detector | None") -> None:
    """Raise DataError if the middle of a page, seen enlarged, has many small lines that were not found."""
    from dsocr.layout.text_detector import SIDE

    left, top, right, bottom = (round(length * share / _PART) for share in (1, 2) for length in page.size)
    enlarged = [line.outline for line in _find(page.crop((left, top, right, bottom)), detector)]
    small = [outline for outline in enlarged if _usual_height([outline], page.size) < _SMALL]
    known = [
        outline
        for outline in outlines
        if outline.box[0] < right and outline.box[2] > left and outline.box[1] < bottom and outline.box[3] > top
    ]
    if len(small) >= max(_MANY, 2 * len(known), len(enlarged) / 2):
        raise DataError(
            "lines are too small to be told apart: cut the page into parts of at most 60 lines from top to bottom",
            code="lines-too-small",
            hint=f"the detector sees a page with {SIDE} pixels on its longer side",
        )
