"""Cutting an image's lines out of it and storing them: the part of `prepare` that works on pixels.

One image is one task that knows nothing of the others, so tasks may run anywhere in any order.
"""

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.data.colours import Colour, median_colour
from dsocr.data.images import DecodedImage, decode_image, read_bytes
from dsocr.data.sources.layout import Box, LeftOut, Outline, Reason, SourceImage, SourceLine
from dsocr.errors import DataError

SMALLEST_SIDE = 5
"""Pixels; what is smaller in either direction is a stray mark, not a line."""

MARGIN = 1 / 550
"""How far around its polygon a line is kept, as a part of the image's longer side.

Outlines that a program drew cut through accents and tails. On 150 lines of 300 dpi pages, ink under the outline was
least at 6 pixels around it (median 0.40 % of the outline; 0.51 % at 0 pixels, 0.52 % at 12, where other lines begin).
"""

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png"}
_SAME_SHAPE = 0.02


@dataclass(frozen=True, slots=True)
class CutTask:
    """An image of the source, and the folder and file stem that its samples are stored under."""

    image: SourceImage
    folder: Path
    stem: str


@dataclass(frozen=True, slots=True)
class CutSample:
    """A stored sample: its file's name and SHA-256, its line, and the image it comes from."""

    file: str
    digest: str
    line: SourceLine
    image: SourceImage


def cut_image(task: CutTask) -> tuple[list[CutSample], list[LeftOut]]:
    """The samples of one image, stored, and what had to be left out; the image is decoded once."""
    image = task.image
    try:
        data = image.content() if image.content else read_bytes(image.image)
        decoded = decode_image(data, name=image.image)
        across, down = _scale(decoded.image.size, image.size)
    except DataError as error:
        return [], [LeftOut(_reason(error), image.where, error.message)]
    samples, left_out = [], []
    paper = paper_colour(decoded.image)
    for number, line in enumerate(image.lines, start=1):
        if line.outline is None:
            samples.append(_store_whole(task, line, data, decoded))
            continue
        scaled = replace(line, outline=line.outline.scaled(across, down))
        problem = _problem(scaled, decoded.image)
        if problem:
            left_out.append(problem)
        else:
            samples.append(_store_line(task, number, scaled, decoded, paper))
    return samples, left_out


class _OtherSizeError(DataError):
    """The outlines were drawn on an image of another shape."""


def _reason(error: DataError) -> Reason:
    return Reason.OTHER_SIZE if isinstance(error, _OtherSizeError) else Reason.BAD_IMAGE


def _scale(actual: tuple[int, int], stated: tuple[int, int] | None) -> tuple[float, float]:
    """How much larger the image is than the one its outlines were drawn on; both must have the same shape."""
    if stated is None or stated == actual:
        return 1.0, 1.0
    across, down = actual[0] / stated[0], actual[1] / stated[1]
    if abs(across / down - 1) > _SAME_SHAPE:
        sizes = f"{stated[0]}x{stated[1]}, the image is {actual[0]}x{actual[1]}"
        raise _OtherSizeError(f"the outlines are for an image of {sizes}: another shape, so they do not fit")
    return across, down


def _problem(line: SourceLine, image: Image.Image) -> LeftOut | None:
    assert line.outline is not None
    left, top, right, bottom = crop_box(line.outline, image.size)
    if right <= left or bottom <= top:
        return LeftOut(Reason.OUTSIDE, line.where, "the line lies outside the image")
    if min(right - left, bottom - top) < SMALLEST_SIDE:
        return LeftOut(Reason.TOO_SMALL, line.where, f"the line is {right - left}x{bottom - top} pixels")
    return None


def crop_box(outline: Outline, size: tuple[int, int]) -> Box:
    """The part of the image that is cut out; empty or turned around where the outline lies beside the image."""
    margin = _margin(size) if outline.polygon else 0
    left, top, right, bottom = outline.box
    return max(left - margin, 0), max(top - margin, 0), min(right + margin, size[0]), min(bottom + margin, size[1])


def _margin(size: tuple[int, int]) -> int:
    return round(max(size) * MARGIN)


def paper_colour(page: Image.Image) -> Colour:
    """The page's median colour: that of its paper, as ink covers less than half of it."""
    # Every eighth pixel in each direction says the same as all of them.
    step = 8 if min(page.size) > 256 else 1
    return median_colour(page, step)


def crop_line(page: Image.Image, outline: Outline, paper: Colour) -> Image.Image:
    """The line alone: its box cut out, and paper laid over what is well outside its polygon."""
    box = crop_box(outline, page.size)
    crop = page.crop(box)
    if not outline.polygon:
        return crop
    inside = Image.new("1", crop.size)
    corners = [(x - box[0], y - box[1]) for x, y in outline.polygon]
    drawing = ImageDraw.Draw(inside)
    drawing.polygon(corners, fill=1, outline=1)
    if margin := _margin(page.size):
        drawing.line([*corners, corners[0]], fill=1, width=2 * margin, joint="curve")
    line = Image.new(page.mode, crop.size, paper)
    line.paste(crop, mask=inside)
    return line


def encoded(image: Image.Image, format_: str) -> tuple[bytes, str]:
    """File content and suffix: JPEG stays JPEG, at a quality that adds no visible loss; all else becomes PNG."""
    buffer = io.BytesIO()
    if format_ == "JPEG":
        image.save(buffer, "JPEG", quality=95, subsampling=0)
    else:
        format_ = "PNG"
        image.save(buffer, "PNG")
    return buffer.getvalue(), _SUFFIXES[format_]


def _store_line(task: CutTask, number: int, line: SourceLine, decoded: DecodedImage, paper: Colour) -> CutSample:
    assert line.outline is not None
    content, suffix = encoded(crop_line(decoded.image, line.outline, paper), decoded.format)
    outline = replace(line.outline, box=crop_box(line.outline, decoded.image.size))
    return _store(task, f"{task.stem}_{number:04d}{suffix}", content, replace(line, outline=outline))


def _store_whole(task: CutTask, line: SourceLine, data: bytes, decoded: DecodedImage) -> CutSample:
    """The file as it is where it shows the picture as it is, else the picture written anew."""
    if decoded.as_stored and decoded.format in _SUFFIXES:
        return _store(task, task.stem + _SUFFIXES[decoded.format], data, line)
    content, suffix = encoded(decoded.image, decoded.format)
    return _store(task, task.stem + suffix, content, line)


def _store(task: CutTask, file: str, content: bytes, line: SourceLine) -> CutSample:
    (task.folder / file).write_bytes(content)
    return CutSample(file, hashlib.sha256(content).hexdigest(), line, task.image)
