"""Contact sheets: rows of images with their transcriptions in one HTML page."""

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


@dataclass(frozen=True, slots=True)
class SheetRow:
    """One sample: its transcription, a line of details, and its images from left to right, each with a caption."""

    text: str
    details: str
    images: Sequence[tuple[str, Image.Image]]


def sheet_writer(path: Path) -> Callable[[str, Iterable[SheetRow]], None]:
    """A function that writes a sheet with a title to this path.

    Raises DataError at once if the folder or suffix is wrong, before anybody waits for images.
    """
    if path.suffix.lower() not in {".html", ".htm"}:
        hint = f"for example {path.with_suffix('.html').name}"
        raise DataError("contact sheets are .html files", where=path, hint=hint, code="sheet-format")
    require_output_folder(path)

    def embed(image: Image.Image) -> Markup:
        thumbnail = image.convert("RGB")
        thumbnail.thumbnail(_MAX_SIZE)
        return image_tag(thumbnail, quality=88)

    def write(title: str, rows: Iterable[SheetRow]) -> None:
        page = render(__package__, "contact_sheet.html.jinja", title=title, rows=rows, embed=embed)
        with explain_disk_errors(path.parent, where=path):
            write_file(path, page.encode("utf-8", "replace"))

    return write
