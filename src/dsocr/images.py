"""Open image files, and crop the lines of pages, in training, checking and transcription alike.

The result is always upright, 8 bits per channel, RGB or L (grey), without transparency. Files that cannot be opened
faithfully raise DataError. An image is a file of its own or a row of a Parquet file. Each page is independent of the
others.
"""

import hashlib
import io
import json
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, UnidentifiedImageError

from dsocr.document import Box, Line, Outline, PackedImage, Page, SkipReason, Split
from dsocr.errors import DataError
from dsocr.io import arrow
from dsocr.io.budget import Budget
from dsocr.outlines import fill_polygon, has_only_baseline, is_backward, quarter_turns, turn_baselines

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF", "JPEG2000")
"""Pillow's names of the formats that are always supported."""

HEIC_SUFFIXES = frozenset({".heic", ".heif"})
"""Photographs of telephones, which the extra `heic` opens."""
_READS_HEIC = find_spec("pillow_heif") is not None

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".gif", ".jp2", ".j2k", ".jpf", ".jpx"}
    | (HEIC_SUFFIXES if _READS_HEIC else set())
)
"""Suffixes of image files when a folder is searched, in lower case."""

UNSUPPORTED_SUFFIXES = frozenset(
    {".avif", ".jxl", ".djvu", ".djv", ".psd", ".svg", ".eps", ".tga", ".pcx", ".raw"}
    | {".pnm", ".pbm", ".pgm", ".ppm", ".pam"}
    | {".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2"}
    | (set() if _READS_HEIC else HEIC_SUFFIXES)
)
"""Suffixes of image files that cannot be opened, so that they are reported instead of overlooked."""

_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"GIF8")

SHARDS_FOLDER = "shards"
"""Folder of a dataset with the Parquet files that hold its images."""

MAX_PIXELS = 40_000_000
"""The largest image that a model is shown: a sample, or a request to a server."""
MAX_PAGE_PIXELS = 200_000_000
"""The largest page that lines are cropped from; archives scan at 45-100 megapixels."""
MAX_ASPECT_RATIO = 200
"""Longer side by shorter side; enlarged to a line's height, a longer image would be huge."""
_SHORT = 2000
"""Pixels; sides of images that may have any aspect ratio."""
MAX_FRAMES = 1000
"""Images in a TIFF file: finding the last of 12,000 takes seconds, and is done for each of them."""
_MAX_PREVIEWS = 32
_DECODED_BYTES = 5.5
"""Bytes per allowed pixel that decoding, rotating and converting an image may take: 1.1 GB for the largest page."""

# Sizes are checked here, before anything is decoded.
Image.MAX_IMAGE_PIXELS = MAX_PAGE_PIXELS

_FREE_PIECES, _MIN_PIECE = 20_000, 64
"""Pieces that a file may be read in, and bytes for each further one; blocks of a GIF file have 255, read in two."""
_STRIP = 64
"""Rows converted at a time where Pillow's own conversion needs more memory than its result."""
_MAX_TILE = 40_000_000
"""Pixels of a tile of a TIFF or JPEG 2000 file; OpenJPEG takes 16 bytes for each, 2.0 GB for 100 megapixels."""
_SUPPORT = 3
"""Rows above and below a place that enlarging looks at."""
_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
"""Bytes per pixel in Pillow's memory; 4 in all other modes, RGB included."""
_MAX_PREVIEW_SKEW = 0.05

_ORIENTATION = 0x0112
_PHOTOMETRIC = 0x0106
_TILE_SIDES = (0x0142, 0x0143)
_SIDEWAYS = range(5, 9)
"""EXIF orientations that swap width and height."""
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_HEADER_ERRORS = (OSError, SyntaxError, ValueError, *_TOO_LARGE)
_DAMAGE = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)
"""Errors that Pillow's decoders raise on damaged files."""

_PARQUET_ERRORS = (OSError, ValueError, KeyError, IndexError)
"""Base classes of pyarrow's own errors."""
_OPEN_FILES = 16
_CACHED_GROUPS = 4


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An image and its file format; `as_stored` if the file shows exactly this image, so that it may be copied."""

    image: Image.Image
    format: str
    as_stored: bool


def is_image(head: bytes) -> bool:
    """True if a file that begins like this is a PNG, JPEG, TIFF, GIF or WebP file."""
    return head.startswith(_SIGNATURES) or (head[:4], head[8:12]) == (b"RIFF", b"WEBP")


class _Pieces(io.BytesIO):
    """The bytes of a file, read in no more pieces than files of any real program have.

    Pillow reads chunks, segments and frames one by one, and files with millions of empty ones take seconds.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = _FREE_PIECES + len(data) // _MIN_PIECE

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise OSError("it consists of too many pieces")
        return super().read(size)


def open_header(source: Path | bytes) -> Image.Image:
    """Open an image file, recognised by its content, without decoding it, or raise `PIL.UnidentifiedImageError`."""
    try:
        return Image.open(_Pieces(source) if isinstance(source, bytes) else source, formats=FORMATS)
    except UnidentifiedImageError:
        if not _READS_HEIC:
            raise
        import pillow_heif

        pillow_heif.register_heif_opener(thumbnails=False)
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=("HEIF",))


def open_image(path: Path | PackedImage, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Open and decode an image file: upright, RGB or L."""
    return decode_image(read_bytes(path), name=path, max_pixels=max_pixels).image


def upright_size(source: Path | PackedImage | bytes) -> tuple[int, int]:
    """Width and height of the image that `open_image` returns, read from the file's header."""
    data = read_bytes(source) if isinstance(source, PackedImage) else source
    try:
        with open_header(data) as file:
            # Pillow opens a TIFF file with the size that it has upright.
            is_sideways = file.format != "TIFF" and _read_exif(file).get(_ORIENTATION) in _SIDEWAYS
            return (file.height, file.width) if is_sideways else file.size
    except _HEADER_ERRORS as error:
        where = None if isinstance(source, bytes) else source
        raise DataError(f"the image cannot be read: {error}", code="image-unreadable", where=where) from error


def read_bytes(path: Path | PackedImage) -> bytes:
    """The bytes of an image file. Raises DataError if it is missing or too large."""
    if isinstance(path, PackedImage):
        return read_packed(path)
    return Budget().read(path)


def count_frames(path: Path) -> int:
    """The number of pages in a TIFF file, smaller versions of the first not counted; 1 for everything else."""
    try:
        with open_header(path) as file:
            if file.format != "TIFF" or _has_only_previews(file):
                return 1
            with suppress(EOFError):
                file.seek(MAX_FRAMES)
                message = f"the file has more than {MAX_FRAMES} images"
                raise DataError(message, code="image-frames", where=path, hint="divide it into smaller files")
            return int(file.n_frames)  # type: ignore[attr-defined]
    except (*_DAMAGE, *_TOO_LARGE):
        return 1  # The error is reported when the file is read.


def read_frame(path: Path, number: int) -> bytes:
    """A page of a TIFF file, the first being 1, as a PNG file."""
    image = decode_image(read_bytes(path), name=f"{path}#{number}", frame=number - 1).image
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def decode_image(
    data: bytes, *, name: object, max_pixels: int = MAX_PAGE_PIXELS, frame: int | None = None
) -> DecodedImage:
    """Decode an image file's bytes; `name` says in errors which file it is, `frame` which of its images is meant.

    Size and number of images are read from the header and checked before pixels are decoded.
    """
    if not data:
        raise DataError("the image file is empty", code="image-empty", where=name)
    try:
        with open_header(data) as file:
            if frame is not None:
                file.seek(frame)
            _check_size(file, name, max_pixels)
            # The first frame of an MPO file is the photograph, the second a preview.
            if frame is None and file.format != "MPO" and not _has_only_previews(file):
                message, hint = "the file has several images instead of one", "save each image as a file of its own"
                raise DataError(message, code="image-frames", where=name, hint=hint)
            loaded = _load(file, data)
            turn = _TRANSPOSE.get(file.getexif().get(_ORIENTATION, 1))
            image = eight_bit(loaded if turn is None else loaded.transpose(turn))
            return DecodedImage(image, "JPEG" if file.format == "MPO" else str(file.format), as_stored=image is file)
    except UnidentifiedImageError:
        message = f"the file is not an image in a supported format ({', '.join(FORMATS)})"
        raise DataError(message, code="image-format", where=name, hint="save it as JPEG or PNG") from None
    except _TOO_LARGE as error:
        message = f"too large: more pixels than the limit of {max_pixels:,}"
        raise DataError(message, code="too-large", where=name) from error
    except _DAMAGE as error:
        # Not the whole error of the system, which repeats the path.
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(f"the image is damaged: {problem}", code="image-damaged", where=name) from error


def _load(file: Image.Image, data: bytes) -> Image.Image:
    """Decode the pixels, of JPEG 2000 with large tiles at half the size or less, and enlarge them again."""
    size, power = file.size, 0
    if file.format == "JPEG2000":
        start = data.find(b"\xff\x4f\xff\x51")  # the codestream's header: size, offset and size of tiles
        across, down = struct.unpack_from(">II", data, start + 24) if start >= 0 else size
        pixels = min(across, size[0]) * min(down, size[1])
        while pixels >> 2 * power > _MAX_TILE:
            power += 1
        file.reduce = power  # type: ignore[method-assign, assignment]
    file.load()
    if not power:
        return file
    enlarged = Image.new(file.mode, size)
    for box in _strips(enlarged):  # all at once would take half as much memory again
        top, bottom = (edge * file.height / size[1] for edge in (box[1], box[3]))
        first, last = max(int(top) - _SUPPORT, 0), min(int(bottom) + _SUPPORT + 1, file.height)
        rows = file.crop((0, first, file.width, last)).resize((size[0], last - first), Image.Resampling.BICUBIC)
        place = (0, top - first, size[0], bottom - first)
        enlarged.paste(rows.resize((size[0], box[3] - box[1]), Image.Resampling.BICUBIC, place), box)
    return enlarged


def _check_size(file: Image.Image, name: object, max_pixels: int) -> None:
    """Check the number of pixels, and the memory that they take in the file's mode while they are converted."""
    stored = _STORED.get(file.mode, 4)
    is_grey = file.mode in {"1", "L", "LA", "La", "F"} or file.mode.startswith("I")
    converted = 0 if file.mode in {"L", "RGB"} else 1 if is_grey else 4
    rotated = stored if _read_exif(file).get(_ORIENTATION) in _TRANSPOSE else 0
    allowed = round(_DECODED_BYTES * max(max_pixels, MAX_PIXELS)) // (stored + max(rotated, converted))
    Budget(pixels=min(max_pixels, allowed)).take(name, pixels=file.width * file.height)
    if is_extreme(file.size):
        message = f"the image is {file.width}x{file.height}, more than {MAX_ASPECT_RATIO} times as long as wide"
        raise DataError(message, code="image-aspect-ratio", where=name, hint="cut it into lines or pages")
    if file.format == "TIFF":
        tile = math.prod(file.tag_v2.get(tag, 1) for tag in _TILE_SIDES)  # type: ignore[attr-defined]
        Budget(pixels=max(_MAX_TILE, file.width * file.height)).take(name, pixels=tile)


def is_extreme(size: tuple[int, int]) -> bool:
    """True for a width and height that no line or page has, and that no network can be shown."""
    return max(size) > max(_SHORT, MAX_ASPECT_RATIO * min(size))


def _read_exif(file: Image.Image) -> Image.Exif:
    # A PNG file's own getexif decodes the pixels to look for metadata behind them.
    return Image.Image.getexif(file)


def _has_only_previews(file: Image.Image) -> bool:
    """True if there is one frame, or the others are smaller versions of it, as in TIFF files for viewers."""
    if file.format != "TIFF":
        return not getattr(file, "is_animated", False)
    width, height = file.size
    others: list[tuple[int, int]] = []
    with suppress(EOFError):
        for frame in range(1, _MAX_PREVIEWS):
            file.seek(frame)
            others.append(file.size)
    file.seek(0)
    smaller = [(wide, high) for wide, high in others if wide < width and high < height]
    is_alike = all(abs(wide * height / (high * width) - 1) < _MAX_PREVIEW_SKEW for wide, high in smaller)
    return is_alike and smaller == others


def eight_bit(image: Image.Image) -> Image.Image:
    """Convert an image in memory to RGB or L, with white in place of transparency."""
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep_grey(image)
    if image.has_transparency_data:
        flat = Image.new("L" if image.mode in {"L", "LA", "La", "1"} else "RGB", image.size)
        for box in _strips(image):
            coloured = image.crop(box).convert("RGBA")
            on_paper = Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
            flat.paste(on_paper.convert(flat.mode), box)
        return flat
    if image.mode in {"RGB", "L"}:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


_WHITES = (255.0, 1023.0, 4095.0, 16383.0, 65535.0)
"""White of a grey image with 8, 10, 12, 14 and 16 bits."""


def _from_deep_grey(image: Image.Image) -> Image.Image:
    """Scale grey of up to 32 bits to 8, where Pillow would clip.

    Scanners store 10, 12 or 14 bits in a file of 16, so white is that of the fewest bits that hold the brightest pixel;
    beyond 16 bits it is the brightest pixel itself. TIFF files whose white is 0 are inverted.
    """
    whites = (1.0, *_WHITES) if image.mode == "F" else _WHITES
    brightest = max(float(np.asarray(image.crop(box)).max()) for box in _strips(image))
    white = next((level for level in whites if brightest <= level), brightest)
    is_negative = getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0
    grey = Image.new("L", image.size)
    for box in _strips(image):
        values = np.asarray(image.crop(box)).astype(np.float32)
        if not np.isfinite(values).all():
            raise ValueError("some pixels are not finite numbers")
        shades = np.clip(values * (255.0 / white) + 0.5, 0, 255).astype(np.uint8)
        grey.paste(Image.fromarray(255 - shades if is_negative else shades), box)
    return grey


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, image.height, _STRIP):
        yield 0, top, image.width, min(top + _STRIP, image.height)


# Images in the Parquet files of a dataset.


def shard_files(dataset: Path, split: Split) -> list[Path]:
    """The Parquet files of a split, in order."""
    return sorted((dataset / SHARDS_FOLDER).glob(f"{split}-*.parquet"))


def packed_images(dataset: Path, split: Split) -> dict[str, PackedImage]:
    """File name in the metadata -> the row that holds the image."""
    packed: dict[str, PackedImage] = {}
    for file in shard_files(dataset, split):
        try:
            with arrow.parquet.ParquetFile(file) as content:
                paths = _image_field(content.read(columns=["image.path"]), "path")
        except _PARQUET_ERRORS as error:
            raise DataError(f"the Parquet file cannot be read: {error}", code="shard-unreadable", where=file) from error
        packed |= {path: PackedImage(file, row) for row, path in enumerate(paths.to_pylist())}
    return packed


def read_packed(image: PackedImage) -> bytes:
    """The bytes of an image file; its row group is cached for a while, since samples are often read in order."""
    try:
        state = image.file.stat()
        file, starts = _open_shard(image.file, state.st_mtime_ns, state.st_size)
        group = max(group for group, start in enumerate(starts) if start <= image.row)
        content: bytes | None = _read_group(file, group)[image.row - starts[group]].as_py()
    except _PARQUET_ERRORS as error:
        raise DataError(f"the image cannot be read: {error}", code="image-unreadable", where=image) from error
    if not content:
        raise DataError("the row holds no image", code="image-unreadable", where=image)
    return content


@lru_cache(maxsize=_OPEN_FILES)
def _open_shard(path: Path, changed: int, size: int) -> tuple[Any, tuple[int, ...]]:
    """The file and the first row of each group. `changed` and `size` keep a rewritten file from being mistaken."""
    file = arrow.parquet.ParquetFile(path)
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    Budget(size=1 << 50).unpack(path, packed=size, unpacked=sum(group.total_byte_size for group in groups))
    rows = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    return file, tuple(accumulate(rows[:-1], initial=0))


@lru_cache(maxsize=_CACHED_GROUPS)
def _read_group(file: Any, group: int) -> Any:
    return _image_field(file.read_row_group(group, columns=["image.bytes"]), "bytes")


def _image_field(table: Any, name: str) -> Any:
    return table.column("image").combine_chunks().field(name)


Colour = int | tuple[int, int, int]
"""A grey level, or red, green and blue, 0-255."""


def median_colour(image: Image.Image, step: int = 1) -> Colour:
    """The median per channel of every `step`-th pixel in each direction; expects mode L or RGB.

    This is the colour of the paper, as ink covers less than half of it. For an even count it is the mean of the two
    middle values.
    """
    if step > 1:
        size = (-(-image.width // step), -(-image.height // step))
        scale = (step, 0, (1 - step) / 2, 0, step, (1 - step) / 2)
        image = image.transform(size, Image.Transform.AFFINE, scale, Image.Resampling.NEAREST)
    pixels = image.width * image.height
    median = []
    for below in np.reshape(image.histogram(), (-1, 256)).cumsum(axis=1):
        low, high = np.searchsorted(below, [(pixels - 1) // 2, pixels // 2], side="right")
        median.append(int(low + high) // 2)
    return median[0] if len(median) == 1 else (median[0], median[1], median[2])


# Lines of pages.

MIN_SIDE = 5
"""Pixels; a smaller crop is a stray mark, not a line."""

MARGIN = 1 / 550
"""Margin kept around a line's polygon, as a fraction of the image's longer side.

Automatic outlines cut through accents and descenders. On 150 lines of 300 dpi pages, the least ink crossed the outline
with a margin of 6 pixels (median 0.40 % of its length; 0.51 % at 0 pixels, 0.52 % at 12, where other lines begin).
"""

CROP_VERSION = 4
"""Increase when the same image and outlines give other pixels or records, so that cached crops are not reused."""

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png"}
_MAX_ASPECT_CHANGE = 0.02


class CroppedLine(NamedTuple):
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
    """The content and suffix of a line's image file."""

    content: bytes
    suffix: str


def crop_page(
    page: Page, data: bytes, folder: Path, stem: str, max_pixels: int = MAX_PIXELS
) -> CroppedPage | CropFailure:
    """Crop the lines of a page with the file content `data` into files of `folder` that begin with `stem`."""
    crops = crop_lines(page, data, max_pixels)
    if isinstance(crops, CropFailure):
        return crops
    size, files = crops
    lines: list[CroppedLine | CropFailure] = []
    for number, (line, file) in enumerate(zip(page.lines, files, strict=True), start=1):
        if isinstance(file, LineFile):
            name = f"{stem}_{number:04d}{file.suffix}" if line.outline else f"{stem}{file.suffix}"
            (folder / name).write_bytes(file.content)
            lines.append(CroppedLine(name, hashlib.sha256(file.content).hexdigest()))
        else:
            lines.append(file)
    return CroppedPage(size, tuple(lines))


def crop_lines(
    page: Page, data: bytes, max_pixels: int = MAX_PIXELS
) -> tuple[tuple[int, int], Iterator[LineFile | CropFailure]] | CropFailure:
    """The size of a page, decoded once, and the image file of each line; more than `max_pixels` are refused."""
    page, _ = turn_baselines(page)
    try:
        decoded = decode_image(data, name=page.image)
        outlines = [scale_outline(line.outline, page, decoded.image.size) for line in page.lines]
    except DataError as error:
        is_size = error.code == "image-size-mismatch"
        return CropFailure(SkipReason.OTHER_SIZE if is_size else SkipReason.BAD_IMAGE, error.message)
    paper = paper_colour(decoded.image) if any(outlines) else 0
    files = (
        _line_file(outline, decoded, data, paper, max_pixels)
        if line.outline is None or not has_only_baseline(line.outline)
        else CropFailure(
            SkipReason.NO_OUTLINE, "the line has a baseline only, and no other says its height: outline it"
        )
        for line, outline in zip(page.lines, outlines, strict=True)
    )
    return decoded.image.size, files


def crop_key(page: Page, data: bytes, max_pixels: int = MAX_PIXELS) -> str:
    """A key that changes with the pixels of the crops; texts and names do not matter."""
    outlines = [(o.box, o.polygon, o.baseline) if (o := line.outline) else None for line in page.lines]
    settings = json.dumps([CROP_VERSION, page.size, outlines, max_pixels], separators=(",", ":"))
    return hashlib.sha256(hashlib.sha256(data).digest() + settings.encode()).hexdigest()


def _line_file(
    outline: Outline | None, decoded: DecodedImage, data: bytes, paper: Colour, max_pixels: int
) -> LineFile | CropFailure:
    left, top, right, bottom = crop_box(outline, decoded.image.size) if outline else (0, 0, *decoded.image.size)
    width, height = right - left, bottom - top
    if outline and min(width, height) <= 0:
        return CropFailure(SkipReason.OUTSIDE, "the line is outside the image")
    if outline and min(width, height) < MIN_SIDE:
        return CropFailure(SkipReason.TOO_SMALL, f"the line is {width}x{height} pixels")
    if width * height > max_pixels or is_extreme((width, height)):
        sizes = f"{width}x{height} pixels, the limits are {max_pixels // 1_000_000} megapixels and"
        message = f"the image is too large for a sample: {sizes} {MAX_ASPECT_RATIO} times as long as wide"
        return CropFailure(SkipReason.BAD_IMAGE, message)
    if outline:
        try:
            return encode_image(crop_line(decoded.image, outline, paper), decoded.format)
        except DataError as error:
            return CropFailure(SkipReason.BAD_SOURCE, error.message)
    # A file that already shows the decoded image is copied.
    if decoded.as_stored and decoded.format in _SUFFIXES:
        return LineFile(data, _SUFFIXES[decoded.format])
    return encode_image(decoded.image, decoded.format)


def scale_outline(outline: Outline | None, page: Page, size: tuple[int, int]) -> Outline | None:
    """An outline on a page in pixels of an image of this size; raises DataError if the image has another shape."""
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


def scale_page(page: Page, size: tuple[int, int]) -> Page:
    """The page with the outlines of its lines and tables in pixels of an image of this size."""
    tables = []
    for table in page.tables:
        cells = (replace(cell, outline=scale_outline(cell.outline, page, size)) for cell in table.cells)
        tables.append(replace(table, outline=scale_outline(table.outline, page, size), cells=tuple(cells)))
    lines = tuple(scale_line(line, page, size) for line in page.lines)
    return replace(page, lines=lines, tables=tuple(tables), size=size)


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
    """Crop the line's box, fill it with paper colour outside the polygon and its margin, and turn the line upright.

    A baseline from right to left says that it is upside down (see `turn_baselines`).
    """
    box = crop_box(outline, page.size)
    line = page.crop(box)
    if outline.polygon:
        corners = [(x - box[0], y - box[1]) for x, y in outline.polygon]
        mask = fill_polygon(corners, line.size)
        if margin := _margin(page.size):
            ImageDraw.Draw(mask).line([*corners, corners[0]], fill=1, width=2 * margin, joint="curve")
        line = Image.composite(line, Image.new(page.mode, line.size, paper), mask)
    if turns := quarter_turns(outline):
        return line.transpose(Image.Transpose.ROTATE_90 if turns > 0 else Image.Transpose.ROTATE_270)
    return line.transpose(Image.Transpose.ROTATE_180) if is_backward(outline) else line


def _margin(size: tuple[int, int]) -> int:
    return round(max(size) * MARGIN)


def paper_colour(page: Image.Image) -> Colour:
    """The median colour of a page, estimated from every eighth pixel in each direction."""
    return median_colour(page, 8 if min(page.size) > 256 else 1)


def encode_image(image: Image.Image, format_: str) -> LineFile:
    """Write an image from a JPEG file as JPEG, at a quality without visible loss, any other as PNG."""
    buffer = io.BytesIO()
    if format_ == "JPEG":
        image.save(buffer, "JPEG", quality=95, subsampling=0)
        return LineFile(buffer.getvalue(), ".jpg")
    image.save(buffer, "PNG")
    return LineFile(buffer.getvalue(), ".png")
