"""The one way an image file is opened, in training, checking and transcription alike.

Whatever the file holds, the result is an upright 8-bit picture, RGB or L (grey), with nothing transparent in it. What
cannot be opened faithfully is refused with a sentence. Knows nothing about datasets or models.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from dsocr.data.dataset import read_packed
from dsocr.document import PackedImage
from dsocr.errors import DataError
from dsocr.html import image_tag

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP", "GIF")
"""What is opened, judged by the content of a file and not by its name."""

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp", ".gif"})
"""What counts as an image file when a folder is searched; lower case."""

MAX_PIXELS = 40_000_000
MAX_BYTES = 512 * 1024 * 1024
MAX_DECODED = 220_000_000
"""Bytes that a picture may take while it is decoded, turned and converted."""

_STRIP = 64
"""Rows that are converted at a time, where Pillow has no conversion that needs no more than its result."""
_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
"""Bytes a pixel in Pillow's memory; four in all other modes, RGB among them."""

_ORIENTATION = 0x0112
_LYING = range(5, 9)
"""The orientations in which a camera was held upright, so that width and height change places."""
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow's decoders are known to raise on damaged files.
_DAMAGE = (
    *(
        OSError,
        EOFError,
        SyntaxError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        ArithmeticError,
        RuntimeError,
    ),
    *(struct.error, zlib.error),
)


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """A picture, the format its file had, and whether the file shows it as it is, so that it may be copied."""

    image: Image.Image
    format: str
    as_stored: bool


def open_image(path: Path | PackedImage, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture in a file: upright, RGB or L, fully decoded."""
    return decode_image(read_bytes(path), name=path, max_pixels=max_pixels).image


def upright_size(path: Path | PackedImage) -> tuple[int, int]:
    """Width and height as `open_image` would give them, from the head of the file."""
    try:
        with Image.open(path if isinstance(path, Path) else io.BytesIO(read_bytes(path)), formats=FORMATS) as file:
            # Not the getexif of its own kind of file: a PNG's looks behind the pixels, and decodes them for it.
            lying = Image.Image.getexif(file).get(_ORIENTATION) in _LYING
            return (file.height, file.width) if lying else (file.width, file.height)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"the image cannot be read: {error}", where=path, hint="see `dsocr check`") from error


def read_bytes(path: Path | PackedImage) -> bytes:
    """An image file's bytes; refuses what is missing or larger than any picture we accept."""
    if isinstance(path, PackedImage):
        return read_packed(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DataError(f"the image file is larger than {MAX_BYTES // 2**20} MB", where=path)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"the image cannot be read: {_reason(error)}", where=path) from error


def decode_image(data: bytes, *, name: object, max_pixels: int = MAX_PIXELS) -> DecodedImage:
    """The picture in `data`; `name` stands in the sentence where it is refused."""
    if not data:
        raise DataError("the image file is empty", where=name)
    try:
        with _opened(data, name, max_pixels) as file:
            _refuse_what_takes_too_much(file, name)
            file.load()
            image = _eight_bit(_upright(file))
            format_ = "JPEG" if file.format == "MPO" else str(file.format)
    except _DAMAGE as error:
        raise DataError(f"the image is damaged: {_reason(error)}", where=name) from error
    return DecodedImage(image, format_, as_stored=image is file)


def _opened(data: bytes, name: object, max_pixels: int) -> Image.Image:
    """The file with only its header read, once size and frames are known to be acceptable."""
    try:
        file = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise DataError(f"not an image of a format that is read ({', '.join(FORMATS)})", where=name) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("more", max_pixels, name) from None
    if file.width * file.height > max_pixels:
        raise _too_large(f"{file.width}x{file.height}", max_pixels, name)
    # An MPO file is a photograph with a preview behind it; its first frame is the picture.
    frames = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
    if frames > 1:
        raise DataError(f"the file holds {frames} images, not one", where=name, hint="save each image as its own file")
    return file


def _refuse_what_takes_too_much(file: Image.Image, name: object) -> None:
    stored = _STORED.get(file.mode, 4)
    grey = file.mode in {"1", "L", "LA", "La", "F"} or file.mode.startswith("I")
    turned = stored if Image.Image.getexif(file).get(_ORIENTATION, 1) in _UPRIGHT else 0
    converted = 0 if file.mode in {"L", "RGB"} else 1 if grey else 4
    allowed = MAX_DECODED // (stored + max(turned, converted))
    if file.width * file.height > allowed:
        message = f"the image is too large: {file.width}x{file.height} where {allowed // 1_000_000} megapixels are"
        hint = "scale it down, or save it upright and as plain RGB or grey"
        raise DataError(
            f"{message} allowed of its kind ({file.mode}{', turned' if turned else ''})", where=name, hint=hint
        )


def _too_large(size: str, max_pixels: int, name: object) -> DataError:
    allowed = f"{max_pixels / 1_000_000:g} megapixels"
    return DataError(f"the image is too large: {size} where {allowed} are allowed", where=name, hint="scale it down")


def _upright(image: Image.Image) -> Image.Image:
    """The picture as a camera's orientation tag says it was held."""
    turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def _eight_bit(image: Image.Image) -> Image.Image:
    """The picture as RGB or L, on white where it was transparent."""
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep_grey(image)
    if image.has_transparency_data:
        return _on_white(image)
    if image.mode in {"RGB", "L"}:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _on_white(image: Image.Image) -> Image.Image:
    flat = Image.new("L" if image.mode in {"L", "LA", "La", "1"} else "RGB", image.size)
    for box in _strips(image):
        coloured = image.crop(box).convert("RGBA")
        on_paper = Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
        flat.paste(on_paper.convert(flat.mode), box)
    return flat


def _from_deep_grey(image: Image.Image) -> Image.Image:
    """Grey of 16 or 32 bits brought to 8; Pillow's own conversion would clip nearly all of it to white."""
    white = _white_level(image.mode, _brightest(image))
    grey = Image.new("L", image.size)
    for box in _strips(image):
        values = np.asarray(image.crop(box)).astype(np.float32)
        grey.paste(Image.fromarray(np.clip(values * (255.0 / white) + 0.5, 0, 255).astype(np.uint8)), box)
    return grey


def _brightest(image: Image.Image) -> float:
    found = 0.0
    for box in _strips(image):
        values = np.asarray(image.crop(box))
        if not np.isfinite(values).all():
            raise ValueError("it has pixels that are not numbers")
        found = max(found, float(values.max()))
    return found


def _strips(image: Image.Image) -> Iterator[tuple[int, int, int, int]]:
    for top in range(0, image.height, _STRIP):
        yield 0, top, image.width, min(top + _STRIP, image.height)


def _white_level(mode: str, brightest: float) -> float:
    """The value that stands for white: 16-bit modes define it, 32-bit ones are judged by their brightest pixel."""
    if mode.startswith("I;16"):
        return 65535.0
    levels = (1.0, 255.0, 65535.0) if mode == "F" else (255.0, 65535.0)
    return next((level for level in levels if brightest <= level), brightest)


def _reason(error: Exception) -> str:
    """What went wrong in the decoder's words, without the path, which stands in front anyway."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


Colour = int | tuple[int, int, int]
"""A grey level, or red, green and blue; 0-255."""


def median_colour(image: Image.Image, step: int = 1) -> Colour:
    """The median of every `step`-th pixel in each direction, by channel; of an even number, the mean of the middle two.

    That is the colour of the paper, as ink covers less than half of it. Expects mode L or RGB.
    """
    pixels = np.asarray(image)[::step, ::step]
    channels = pixels.reshape(-1, len(image.getbands())).T
    median = [_median(channel) for channel in channels]
    return median[0] if len(median) == 1 else (median[0], median[1], median[2])


def _median(values: np.ndarray) -> int:
    """Counting bytes is several times faster than sorting them, and says the same."""
    below = np.cumsum(np.bincount(values, minlength=256))
    low, high = np.searchsorted(below, [(len(values) - 1) // 2, len(values) // 2], side="right")
    return int(low + high) // 2


@dataclass
class Thumbnails:
    """Thumbnails of one page: none larger than `largest` (width, height in pixels); each file is opened once.

    Once the page holds `most_bytes` of them, only a sentence stands where a further one would.
    """

    largest: tuple[int, int]
    most_bytes: int
    bytes: int = 0
    known: dict[Path | PackedImage, str] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """True where there is no room for another one."""
        return self.bytes > self.most_bytes

    def of(self, path: Path | PackedImage, *, alt: str = "", missing: str = "") -> str:
        """The image as HTML; `missing`, itself HTML, where it cannot be opened."""
        if self.full:
            return '<p class="quiet">no room for its image in this page</p>'
        if path not in self.known:
            self.known[path] = self._made(path, alt) or missing
        self.bytes += len(self.known[path])
        return self.known[path]

    def _made(self, path: Path | PackedImage, alt: str) -> str:
        try:
            image = open_image(path)
        except DataError:
            return ""
        image.thumbnail(self.largest)
        return image_tag(image, alt=alt)
