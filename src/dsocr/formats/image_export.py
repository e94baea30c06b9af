"""Write the images of a converted dataset: whole pages, or lines cut out of them."""

from dataclasses import dataclass, replace
from pathlib import Path

from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.images import decode_image, read_bytes
from dsocr.io.cropping import LineFile, crop_lines, cropped_outline, scale_line
from dsocr.io.files import UniqueStems

IMAGES = "images"
"""The folder of the images beside a table or a file of conversations."""

_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp", "BMP": ".bmp", "GIF": ".gif"}


def image_bytes(page: Page) -> bytes:
    """Return the content of a page's image file."""
    return page.content() if page.content else read_bytes(page.image)


def copy_page_image(page: Page, folder: Path, stem: str) -> Page | Skipped:
    """Copy a page's image file unchanged and return the page with the copy, outlines in its pixels.

    An image that cannot be read completely, or does not fit the outlines, is skipped.
    """
    try:
        data = image_bytes(page)
        decoded = decode_image(data, name=page.image)
    except DataError as error:
        return Skipped(SkipReason.BAD_IMAGE, page.where, error.message)
    size = decoded.image.size
    try:
        lines = tuple(scale_line(line, page, size) for line in page.lines)
    except DataError as error:
        return Skipped(SkipReason.OTHER_SIZE, page.where, error.message)
    suffix = _SUFFIXES[decoded.format] if page.content else page.image.suffix.lower()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}{suffix}").write_bytes(data)
    return replace(page, image=folder / f"{stem}{suffix}", size=size, lines=lines)


@dataclass(frozen=True, slots=True)
class LineImage:
    """A line image: its file name and content, and the line with the box that was cut out of its page, if any."""

    file: str
    content: bytes
    line: Line


class LineCutter:
    """Cuts lines out of pages as `prepare` does, under unique file names."""

    def __init__(self) -> None:
        self._stems = UniqueStems()

    def cut(self, page: Page, stem: str) -> tuple[list[LineImage], list[Skipped]]:
        """Return the line images of a page and what could not be cut."""
        try:
            found = crop_lines(page, image_bytes(page))
        except DataError as error:
            return [], [Skipped(SkipReason.BAD_IMAGE, page.where, error.message)]
        if not isinstance(found, tuple):
            return [], [Skipped(found.reason, page.where, found.message)]
        size, files = found
        images, skipped = [], []
        for number, (line, file) in enumerate(zip(page.lines, files, strict=True), start=1):
            if isinstance(file, LineFile):
                name = self._stems.take_stem(stem if file.is_whole_page else f"{stem}_{number:04d}") + file.suffix
                images.append(LineImage(name, file.content, replace(line, outline=cropped_outline(line, page, size))))
            else:
                skipped.append(Skipped(file.reason, line.where, file.message))
        return images, skipped
