"""Cutting an image's lines out of it and storing them: the part of `prepare` that works on pixels.

One image is one task that knows nothing of the others, so tasks may run anywhere in any order.
"""

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw

from dsocr.document import Box, Line, Outline, Page, SkipReason
from dsocr.errors import DataError
from dsocr.images import Colour, DecodedImage, decode_image, median_colour

SMALLEST_SIDE = 5
"""Pixels; what is smaller in either direction is a stray mark, not a line."""

MARGIN = 1 / 550
"""How far around its polygon a line is kept, as a part of the image's longer side.

Outlines that a program drew cut through accents and tails. On 150 lines of 300 dpi pages, ink under the outline was
least at 6 pixels around it (median 0.40 % of the outline; 0.51 % at 0 pixels, 0.52 % at 12, where other lines begin).
"""

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png"}
_SAME_SHAPE = 0.02


VERSION = 1
"""Raised whenever the same image and outlines would be cut into other pixels, so that nothing cut before is taken."""


@dataclass(frozen=True, slots=True)
class CutTask:
    """An image of the source with its content, and the folder and file stem that its samples are stored under."""

    image: Page
    data: bytes
    folder: Path
    stem: str


@dataclass(frozen=True, slots=True)
class CutLine:
    """A stored sample: its file's name in the folder, and its SHA-256."""

    file: str
    digest: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a line, or a whole image, could not be cut."""

    reason: SkipReason
    message: str


@dataclass(frozen=True, slots=True)
class Cut:
    """What became of an image: its size in pixels, and for each of its lines the stored sample or a refusal."""

    size: tuple[int, int]
    lines: tuple[CutLine | Refusal, ...]


@dataclass(frozen=True, slots=True)
class LineFile:
    """What the file of a sample holds, before anything is stored, and its suffix; `is_whole` is the image itself."""

    content: bytes
    suffix: str
    is_whole: bool


def cut_image(task: CutTask) -> Cut | Refusal:
    """The samples of one image, stored; the image is decoded once."""
    found = cut_lines(task.image, task.data)
    if isinstance(found, Refusal):
        return found
    size, files = found
    lines = (_store(task, number, file) for number, file in enumerate(files, start=1))
    return Cut(size, tuple(lines))


def cut_lines(image: Page, data: bytes) -> tuple[tuple[int, int], Iterator[LineFile | Refusal]] | Refusal:
    """The image's size and its samples as their files hold them, one at a time; what reads them sees the same pixels.

    `data` is the image's content.
    """
    try:
        decoded = decode_image(data, name=image.image)
        outlines = [scaled_outline(line, image, decoded.image.size) for line in image.lines]
    except DataError as error:
        return Refusal(_reason(error), error.message)
    paper = paper_colour(decoded.image) if any(outlines) else 0
    return decoded.image.size, (_line_file(outline, decoded, data, paper) for outline in outlines)


def task_key(image: Page, data: bytes) -> str:
    """Says which pixels come out: the same key, the same cut. Texts and names are not in it."""
    outlines = [astuple(line.outline) if line.outline else None for line in image.lines]
    told = json.dumps([VERSION, image.size, outlines], separators=(",", ":"))
    return hashlib.sha256(hashlib.sha256(data).digest() + told.encode()).hexdigest()


class _OtherSizeError(DataError):
    """The outlines were drawn on an image of another shape."""


def _reason(error: DataError) -> SkipReason:
    return SkipReason.OTHER_SIZE if isinstance(error, _OtherSizeError) else SkipReason.BAD_IMAGE


def scaled_outline(line: Line, image: Page, size: tuple[int, int]) -> Outline | None:
    """The line's outline in pixels of the image as it is, which may be larger or smaller than the source states."""
    across, down = _scale(size, image.size)
    return line.outline.scaled(across, down) if line.outline else None


def scaled_line(line: Line, image: Page, size: tuple[int, int]) -> Line:
    """The line with its outline and its region's in pixels of the image as it is."""
    region = line.region
    if region and region.outline:
        around = replace(line, outline=region.outline)
        region = replace(region, outline=scaled_outline(around, image, size))
    return replace(line, outline=scaled_outline(line, image, size), region=region)


def stored_outline(line: Line, image: Page, size: tuple[int, int]) -> Outline | None:
    """Where the stored sample stands on its page: the outline with the box that was cut out."""
    outline = scaled_outline(line, image, size)
    return replace(outline, box=crop_box(outline, size)) if outline else None


def _scale(actual: tuple[int, int], stated: tuple[int, int] | None) -> tuple[float, float]:
    """How much larger the image is than the one its outlines were drawn on; both must have the same shape."""
    if stated is None or stated == actual:
        return 1.0, 1.0
    across, down = actual[0] / stated[0], actual[1] / stated[1]
    if abs(across / down - 1) > _SAME_SHAPE:
        sizes = f"{stated[0]}x{stated[1]}, the image is {actual[0]}x{actual[1]}"
        raise _OtherSizeError(f"the outlines are for an image of {sizes}: another shape, so they do not fit")
    return across, down


def _problem(outline: Outline, image: Image.Image) -> Refusal | None:
    left, top, right, bottom = crop_box(outline, image.size)
    if right <= left or bottom <= top:
        return Refusal(SkipReason.OUTSIDE, "the line lies outside the image")
    if min(right - left, bottom - top) < SMALLEST_SIDE:
        return Refusal(SkipReason.TOO_SMALL, f"the line is {right - left}x{bottom - top} pixels")
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


def _line_file(outline: Outline | None, decoded: DecodedImage, data: bytes, paper: Colour) -> LineFile | Refusal:
    if outline is None:
        return _whole_file(decoded, data)
    if problem := _problem(outline, decoded.image):
        return problem
    return LineFile(*encoded(crop_line(decoded.image, outline, paper), decoded.format), is_whole=False)


def _whole_file(decoded: DecodedImage, data: bytes) -> LineFile:
    """The file as it is where it shows the picture as it is, else the picture written anew."""
    if decoded.as_stored and decoded.format in _SUFFIXES:
        return LineFile(data, _SUFFIXES[decoded.format], is_whole=True)
    return LineFile(*encoded(decoded.image, decoded.format), is_whole=True)


def _store(task: CutTask, number: int, line: LineFile | Refusal) -> CutLine | Refusal:
    if isinstance(line, Refusal):
        return line
    file = f"{task.stem}{line.suffix}" if line.is_whole else f"{task.stem}_{number:04d}{line.suffix}"
    (task.folder / file).write_bytes(line.content)
    return CutLine(file, hashlib.sha256(line.content).hexdigest())
