"""Images of samples side by side in one file: a page with their transcriptions, or a PNG without."""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from PIL import Image

from dsocr.errors import DataError
from dsocr.html import image_tag, render

_WIDEST, _TALLEST = 720, 720
"""Pixels; larger pictures are scaled down."""

_GAP, _GROUND = 8, (120, 150, 130)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and what stands under it."""

    caption: str
    image: Image.Image


@dataclass(frozen=True, slots=True)
class Row:
    """One sample: its transcription, what else is told of it, and its pictures from left to right."""

    text: str
    told: str
    pictures: Sequence[Picture]


def sheet_writer(path: Path) -> Callable[[str, Iterable[Row]], None]:
    """The function that writes a sheet, given its title and rows, to this path; its suffix decides the kind.

    Raises DataError where there is no such folder or kind, so that nobody waits for pictures in vain.
    """
    kinds = {".html": _write_page, ".htm": _write_page, ".png": _write_png}
    if path.suffix.lower() not in kinds:
        raise DataError("a sheet is .html or .png", where=path, hint=f"for example {path.with_suffix('.html').name}")
    if not path.absolute().parent.is_dir():
        raise DataError("there is no such folder to write the sheet to", where=path.parent)
    return lambda title, rows: kinds[path.suffix.lower()](path, title, rows)


def _write_page(path: Path, title: str, rows: Iterable[Row]) -> None:
    def embedded(image: Image.Image) -> Markup:
        return image_tag(_small(image), quality=88)

    page = render(__package__, "contact_sheet.html.jinja", title=title, rows=rows, image=embedded)
    _write(path, page.encode("utf-8", "replace"))


def _write_png(path: Path, title: str, rows: Iterable[Row]) -> None:
    table = [[_small(drawn.image) for drawn in row.pictures] for row in rows]
    widths = [max(image.width for image in column) + _GAP for column in zip(*table, strict=True)]
    heights = [max(image.height for image in row) + _GAP for row in table]
    sheet = Image.new("RGB", (sum(widths) + _GAP, sum(heights) + _GAP), _GROUND)
    top = _GAP
    for row, height in zip(table, heights, strict=True):
        left = _GAP
        for image, width in zip(row, widths, strict=True):
            sheet.paste(image, (left, top))
            left += width
        top += height
    file = io.BytesIO()
    sheet.save(file, "PNG")
    _write(path, file.getvalue())


def _small(image: Image.Image) -> Image.Image:
    small = image.convert("RGB")
    small.thumbnail((_WIDEST, _TALLEST))
    return small


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise DataError(f"the sheet cannot be written: {error.strerror}", where=path) from error
