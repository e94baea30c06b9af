"""Where the lines of a page are, and their reading order: found by a text detector.

It also finds lines on pages that lie on their side, and says where lines are too small.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PIL import Image

from dsocr.document import Line, Outline
from dsocr.errors import DataError
from dsocr.images import decode_image
from dsocr.layout.lines import arrange_lines, find_outlines
from dsocr.outlines import quarter_turns
from dsocr.runs import SHIPPED_DETECTOR, RunFolder, adapter_digest

FindLines = Callable[[bytes, str], Sequence[Line]]
"""Finds the lines on the image in a file's content; the page's id begins their `where`."""
DetectOutlines = Callable[[Image.Image, int], list[Outline]]
"""Finds the outlines of lines on an image, scaled so that its longer side has so many pixels."""

DETECTOR = "ppocr"
"""Name of the segmenter that ships with dsocr, a network."""

# Measured on pages of copiste and of registers, upright, turned and side by side (lab/verdicts.md, "Finding lines").
_ON_SIDE = 0.5
"""A page lies on its side if more than this share of its lines' length runs sideways; upright pages have 0.02."""
_SMALL, _LARGE = 13, 84
"""Height of lines in pixels of the detector: small ones may be joined, and then they look lower or higher than this,
or seem to run along the side of the page."""
_PART = 3
"""Sides of the middle of a page, by those of the page, in which it is seen whether lines are too small."""
_MANY = 5
"""Lines in the middle of the page, and twice as many as were found there on the whole page, that show it."""


def choose_segmenter(name: str) -> FindLines:
    """Return a segmenter: `ppocr`, or a run that trained a detector.

    Raises DataError if there is none of the name, RunError if the run is unfinished, damaged or a reader.
    """
    return partial(detect_lines, detector=_detector_folder(name))  # unlike a closure, it can be sent to another process


def choose_detector(segmenter: str) -> DetectOutlines:
    """Return the detector of a segmenter for parts of pages; errors are those of `choose_segmenter`."""
    return partial(detect_outlines, detector=_detector_folder(segmenter))


def _detector_folder(segmenter: str) -> Path:
    if segmenter == DETECTOR:
        return SHIPPED_DETECTOR
    if not Path(segmenter).is_dir():
        message = f"unknown segmenter {segmenter!r}; give {DETECTOR} or the folder of a run that trained a detector"
        raise DataError(message, code="segmenter-unknown")
    return RunFolder.to_find_lines_with(Path(segmenter)).absolute()


def identify_segmenter(name: str) -> str:
    """Return the identity of a segmenter: its name, with a hash of a run's weights."""
    return f"{name} {adapter_digest(RunFolder.to_find_lines_with(Path(name)))}" if Path(name).is_dir() else name


def detect_lines(content: bytes, where: str, detector: Path = SHIPPED_DETECTOR) -> Sequence[Line]:
    """Detect the lines of the image in a file's content, with the shipped detector or that of a folder.

    Lines of a page that lies on its side get baselines that say so: upwards, until `read_locally` has seen which way
    they are read. Raises DataError if there are no lines, or if they are too small.
    """
    page = decode_image(content, name=where).image
    outlines = detect_outlines(page, detector=detector)
    on_side = lies_on_side(outlines)
    if on_side or not outlines or not _SMALL <= _usual_height(outlines, page.size) <= _LARGE:
        _require_large_lines(page, outlines, detector)
    if on_side and (turned := detect_outlines(page.transpose(Image.Transpose.ROTATE_270), detector=detector)):
        return [_turn_back(line, page.height) for line in arrange_lines(turned, where)]
    return arrange_lines(outlines, where)


def detect_outlines(image: Image.Image, side: int | None = None, detector: Path = SHIPPED_DETECTOR) -> list[Outline]:
    """Detect the outlines of lines on an image, scaled so that its longer side has `side` pixels; in no order."""
    from dsocr.layout.text_detector import SIDE, detect_text, keep_detector

    return find_outlines(detect_text(image, keep_detector(detector), side or SIDE), image.size)


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


def _turn_back(line: Line, height: int) -> Line:
    """Return a line of a page that was turned clockwise as it is on the page, which has this height."""

    def back(outline: Outline) -> Outline:
        left, top, right, bottom = outline.box
        parts = (tuple((y, height - 1 - x) for x, y in points) for points in (outline.polygon, outline.baseline))
        return Outline((top, height - right, bottom, height - left), *parts)

    assert line.outline
    assert line.region
    assert line.region.outline
    return replace(line, outline=back(line.outline), region=replace(line.region, outline=back(line.region.outline)))


def _require_large_lines(page: Image.Image, outlines: Sequence[Outline], detector: Path) -> None:
    """Raise DataError if the middle of a page, seen enlarged, has many small lines that were not found."""
    from dsocr.layout.text_detector import SIDE

    left, top, right, bottom = (round(length * share / _PART) for share in (1, 2) for length in page.size)
    enlarged = detect_outlines(page.crop((left, top, right, bottom)), detector=detector)
    small = [outline for outline in enlarged if _usual_height([outline], page.size) < _SMALL]
    known = [
        outline
        for outline in outlines
        if outline.box[0] < right and outline.box[2] > left and outline.box[1] < bottom and outline.box[3] > top
    ]
    if len(small) >= max(_MANY, 2 * len(known), len(enlarged) / 2):
        raise DataError(
            "lines are too small for the detector: cut the page into parts of at most 60 lines from top to bottom",
            code="lines-too-small",
            hint=f"the detector sees a page with {SIDE} pixels on its longer side",
        )
