"""What was read as a searchable PDF: the scans as they are, and over each the text, invisible.

Letters stand where their line stands, spread over its width, so that a found word is marked where it is written.
"""

import math
from collections.abc import Iterable
from pathlib import Path

from dsocr.data.cutting import encoded
from dsocr.data.images import decode_image
from dsocr.data.pdf import page_size
from dsocr.data.targets.filling import Step
from dsocr.inference.formats.hocr import box_of
from dsocr.inference.formats.pdf_file import PdfFile
from dsocr.inference.pages import ReadLine, ReadPage

_POINTS = 72
_DPI = 300
"""Dots to the inch of a scan that says nothing believable: what scans of handwriting usually have."""
_BELIEVABLE = range(100, 2401)
"""Screens and cameras write 72 or 96 into files that were never measured."""

_HEIGHT = 0.7
"""Of a line's box that its letters take, from their foot to the top of a capital."""
_FOOT = 0.25
"""Of a line's box that lies below its baseline where none is drawn."""


def write_pdf(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """A page for each image, in its size; one image is in memory at a time."""
    with path.open("wb") as stream:
        file = PdfFile(stream, path.stem, f"{step.software} {step.version}")
        for page in pages:
            _add(file, page)
        file.close()


def _add(file: PdfFile, page: ReadPage) -> None:
    content = page.page.content()
    decoded = decode_image(content, name=page.page.id)
    image = decoded.image
    if not (decoded.as_stored and decoded.format == "JPEG"):
        content, _ = encoded(image, decoded.format)
    scale = _scale(page, image.info.get("dpi"))
    text = "".join(_drawn(line, page, scale) for line in page.written)
    file.add_page(content, image.size, (image.width * scale, image.height * scale), text)


def _scale(page: ReadPage, dpi: object) -> float:
    """Points a pixel."""
    if page.page.kind == "pdf":
        return page_size(page.page.path, page.page.number)[0] / page.size[0]
    stated = round(float(dpi[0])) if isinstance(dpi, tuple) and dpi and math.isfinite(float(dpi[0])) else 0
    return _POINTS / (stated if stated in _BELIEVABLE else _DPI)


def _drawn(line: ReadLine, page: ReadPage, scale: float) -> str:
    """The operators that write a line's text where it stands; its line breaks share its height."""
    left, top, right, bottom = box_of(line, page)
    texts = line.text.split("\n")
    share = (bottom - top) / len(texts)
    baseline = line.outline.baseline if line.outline and len(texts) == 1 else ()
    parts = []
    for number, text in enumerate(texts):
        foot = top + (number + 1 - _FOOT) * share
        begin, end = (left, foot), (right, foot)
        if len(baseline) >= 2 and baseline[0][0] < baseline[-1][0]:
            begin, end = baseline[0], baseline[-1]
        parts.append(_written(text, begin, end, _HEIGHT * share, page.size[1], scale))
    return "".join(parts)


def _written(
    text: str, begin: tuple[float, float], end: tuple[float, float], height: float, page_height: int, scale: float
) -> str:
    codes = text.encode("utf-16-be", "replace").hex()
    if not codes or height <= 0:
        return ""
    across, down = end[0] - begin[0], end[1] - begin[1]
    length = math.hypot(across, down) or 1.0
    cos, sin = across / length, -down / length
    size = height * scale
    # Each code is half as wide as it is high in the font that is used.
    stretch = 100 * length * scale / (0.5 * size * (len(codes) / 4))
    x, y = begin[0] * scale, (page_height - begin[1]) * scale
    place = f"{cos:.5f} {sin:.5f} {-sin:.5f} {cos:.5f} {x:.2f} {y:.2f} Tm"
    return f"BT 3 Tr /F {size:.2f} Tf {stretch:.2f} Tz {place} <{codes}> Tj ET\n"
