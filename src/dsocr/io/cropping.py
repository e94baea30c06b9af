"""Crop the lines of a page image into image files. Each page is independent of the others."""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.document import Box, Line, Outline, Page, SkipReason
from dsocr.errors import DataError
from dsocr.images import MAX_PIXELS, Colour, DecodedImage, decode_image, median_colour
from dsocr.outlines import quarter_turns

MIN_SIDE = 5
"""Pixels; a smaller crop is a stray mark, not a line."""

MARGIN = 1 / 550
"""Margin kept around a line's polygon, as a fraction of the image's longer side.

Automatic outlines cut through accents and descenders. On 150 lines of 300 dpi pages, the least ink crossed the outline
with a margin of 6 pixels (median 0.40 % of its length; 0.51 % at 0 pixels, 0.52 % at 12, where other lines begin).
"""

VERSION = 2
"""Increase when the same image and outlines give other pixels, so that cached crops are not reused."""

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png"}
_MAX_ASPECT_CHANGE = 0.02


@dataclass(frozen=True, slots=True)
class CroppedLine:
    """A stored crop: file name and SHA-256."""

    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CropFailure:
    """Why a line or a whole page could not be cropped."""

    reason: SkipReason
    message: str


@dataclass(frozen=True, slots=True)
class CroppedPage:
    """The size of a page image in pixels and the crop of each of its lines."""

    size: tuple[int, int]
    lines: tuple[CroppedLine | CropFailure, ...]


@dataclass(frozen=True, slots=True)
class LineFile:
    """The content and suffix of a line's image file; `is_whole_page` if it is not cropped."""

    content: bytes
    suffix: str
    is_whole_page: bool


def crop_page(page: Page, data: bytes, folder: Path, stem: str) -> CroppedPage | CropFailure:
    """Crop the lines of a page with the file content `data` into files of `folder` that begin with `stem`."""
    found = crop_lines(page, data)
    if isinstance(found, CropFailure):
        return found
    size, files = found
    lines: list[CroppedLine | CropFailure] = []
    for number, file in enumerate(files, start=1):
        if isinstance(file, LineFile):
            name = f"{stem}{file.suffix}" if file.is_whole_page else f"{stem}_{number:04d}{file.suffix}"
            (folder / name).write_bytes(file.content)
            lines.append(CroppedLine(name, hashlib.sha256(file.content).hexdigest()))
        else:
            lines.append(file)
    return CroppedPage(size, tuple(lines))


def crop_lines(page: Page, data: bytes) -> tuple[tuple[int, int], Iterator[LineFile | CropFailure]] | CropFailure:
    """The size of a page and the image file of each of its lines, one at a time; the page is decoded once."""
    try:
        decoded = decode_image(data, name=page.image)
        outlines = [scale_outline(line.outline, page, decoded.image.size) for line in page.lines]
    except DataError as error:
        is_size = error.code == "image-size-mismatch"
        return CropFailure(SkipReason.OTHER_SIZE if is_size else SkipReason.BAD_IMAGE, error.message)
    paper = paper_colour(decoded.image) if any(outlines) else 0
    return decoded.image.size, (_line_file(outline, decoded, data, paper) for outline in outlines)


def crop_key(page: Page, data: bytes) -> str:
    """A key that changes with the pixels of the crops; texts and names do not matter."""
    outlines = [(o.box, o.polygon, o.baseline) if (o := line.outline) else None for line in page.lines]
    settings = json.dumps([VERSION, page.size, outlines], separators=(",", ":"))
    return hashlib.sha256(hashlib.sha256(data).digest() + settings.encode()).hexdigest()


def _line_file(outline: Outline | None, decoded: DecodedImage, data: bytes, paper: Colour) -> LineFile | CropFailure:
    left, top, right, bottom = crop_box(outline, decoded.image.size) if outline else (0, 0, *decoded.image.size)
    width, height = right - left, bottom - top
    if outline and min(width, height) <= 0:
        return CropFailure(SkipReason.OUTSIDE, "the line is outside the image")
    if outline and min(width, height) < MIN_SIDE:
        return CropFailure(SkipReason.TOO_SMALL, f"the line is {width}x{height} pixels")
    if width * height > MAX_PIXELS:
        sizes = f"{width}x{height} pixels, the limit is {MAX_PIXELS // 1_000_000} megapixels"
        return CropFailure(SkipReason.BAD_IMAGE, f"the image is too large for a sample: {sizes}")
    if outline:
        crop = crop_line(decoded.image, outline, paper)
        return LineFile(*encode_image(crop, decoded.format), is_whole_page=False)
    # A file that already shows the decoded image is copied.
    if decoded.as_stored and decoded.format in _SUFFIXES:
        return LineFile(data, _SUFFIXES[decoded.format], is_whole_page=True)
    return LineFile(*encode_image(decoded.image, decoded.format), is_whole_page=True)


def scale_outline(outline: Outline | None, page: Page, size: tuple[int, int]) -> Outline | None:
    """An outline on a page in pixels of an image of this size, which may differ from the size the source states.

    Raises DataError if the image has another shape.
    """
    if outline is None or page.size is None or page.size == size:
        return outline
    across, down = size[0] / page.size[0], size[1] / page.size[1]
    if abs(across / down - 1) > _MAX_ASPECT_CHANGE:
        sizes = f"{page.size[0]}x{page.size[1]}, but the image has {size[0]}x{size[1]}"
        message = f"the outlines do not fit: they are for an image of {sizes}, which is another shape"
        raise DataError(message, code="image-size-mismatch")
    return outline.scaled(across, down)


def scale_line(line: Line, page: Page, size: tuple[int, int]) -> Line:
    """The line with its outline and that of its region in pixels of an image of this size."""
    region = line.region and replace(line.region, outline=scale_outline(line.region.outline, page, size))
    return replace(line, outline=scale_outline(line.outline, page, size), region=region)


def cropped_outline(line: Line, page: Page, size: tuple[int, int]) -> Outline | None:
    """The line's outline with the box that is actually cropped, margin included."""
    outline = scale_outline(line.outline, page, size)
    return replace(outline, box=crop_box(outline, size)) if outline else None


def crop_box(outline: Outline, size: tuple[int, int]) -> Box:
    """The box to crop, within an image of this size; empty or inverted if the outline is outside it."""
    margin = _margin(size) if outline.polygon else 0
    left, top, right, bottom = outline.box
    return max(left - margin, 0), max(top - margin, 0), min(right + margin, size[0]), min(bottom + margin, size[1])


def crop_line(page: Image.Image, outline: Outline, paper: Colour) -> Image.Image:
    """Crop the line's box, fill it with paper colour outside the polygon and its margin, and turn a sideways line."""
    box = crop_box(outline, page.size)
    line = page.crop(box)
    if outline.polygon:
        mask = Image.new("1", line.size)
        corners = [(x - box[0], y - box[1]) for x, y in outline.polygon]
        drawing = ImageDraw.Draw(mask)
        drawing.polygon(corners, fill=1, outline=1)
        if margin := _margin(page.size):
            drawing.line([*corners, corners[0]], fill=1, width=2 * margin, joint="curve")
        line = Image.composite(line, Image.new(page.mode, line.size, paper), mask)
    turns = quarter_turns(outline)
    if not turns:
        return line
    return line.transpose(Image.Transpose.ROTATE_90 if turns > 0 else Image.Transpose.ROTATE_270)


def _margin(size: tuple[int, int]) -> int:
    return round(max(size) * MARGIN)


def paper_colour(page: Image.Image) -> Colour:
    """The median colour of a page, estimated from every eighth pixel in each direction."""
    return median_colour(page, 8 if min(page.size) > 256 else 1)


def encode_image(image: Image.Image, format_: str) -> tuple[bytes, str]:
    """File content and suffix: JPEG for images from JPEG files, at a quality without visible loss, else PNG."""
    buffer = io.BytesIO()
    if format_ == "JPEG":
        image.save(buffer, "JPEG", quality=95, subsampling=0)
        return buffer.getvalue(), ".jpg"
    image.save(buffer, "PNG")
    return buffer.getvalue(), ".png"
