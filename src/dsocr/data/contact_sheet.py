"""Contact sheets: rows of images in one file, an HTML page with transcriptions or a PNG without.

The PNG has no texts, because the only font that is always there, Pillow's own, has no Cyrillic.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from PIL import Image

from dsocr.errors import DataError
from dsocr.html import image_tag, render
from dsocr.io.work import explain_disk_errors, require_output_folder, write_file

_MAX_SIZE = (720, 720)
"""Width and height in pixels; larger images are scaled down."""
_GAP, _BACKGROUND = 8, (120, 150, 130)


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One sample: its transcription, a line of details, and its images from left to right, each with a caption."""

    text: str
    details: str
    images: Sequence[tuple[str, Image.Image]]


def sheet_writer(path: Path) -> Callable[[str, Iterable[SheetRow]], None]:
    """A function that writes a sheet with a title to this path, as HTML or PNG by its suffix.

    Raises DataError at once if the folder or kind is wrong, before anybody waits for images.
    """
    writers = {".html": _render_page, ".htm": _render_page, ".png": _draw_png}
    if path.suffix.lower() not in writers:
        hint = f"for example {path.with_suffix('.html').name}"
        raise DataError("contact sheets are .html or .png", where=path, hint=hint, code="sheet-format")
    require_output_folder(path)
    make = writers[path.suffix.lower()]

    def write(title: str, rows: Iterable[SheetRow]) -> None:
        with explain_disk_errors(path.parent, where=path):
            write_file(path, make(title, rows))

    return write


def _render_page(title: str, rows: Iterable[SheetRow]) -> bytes:
    def embed(image: Image.Image) -> Markup:
        return image_tag(_thumbnail(image), quality=88)

    page = render(__package__, "contact_sheet.html.jinja", title=title, rows=rows, embed=embed)
    return page.encode("utf-8", "replace")


def _draw_png(title: str, rows: Iterable[SheetRow]) -> bytes:
    table = [[_thumbnail(image) for _, image in row.images] for row in rows]
    widths = [max(image.width for image in column) + _GAP for column in zip(*table, strict=True)]
    heights = [max(image.height for image in row) + _GAP for row in table]
    sheet = Image.new("RGB", (sum(widths) + _GAP, sum(heights) + _GAP), _BACKGROUND)
    top = _GAP
    for row, height in zip(table, heights, strict=True):
        left = _GAP
        for image, width in zip(row, widths, strict=True):
            sheet.paste(image, (left, top))
            left += width
        top += height
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _thumbnail(image: Image.Image) -> Image.Image:
    thumbnail = image.convert("RGB")
    thumbnail.thumbnail(_MAX_SIZE)
    return thumbnail
