"""Pages of PDF files as images: the scan as it is stored where a page is nothing else, the rendered page otherwise.

PDFium is not made for threads, so one document is open at a time, and only for as long as it is asked something.
"""

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pypdfium2
import pypdfium2.raw as pdfium
from PIL import Image

from dsocr.document import Line, Page, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.images import MAX_PIXELS
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, relative, split_of_folder

PDF_SUFFIXES = frozenset({".pdf"})

DPI = 300
"""Dots to the inch of a rendered page: what scans of handwriting usually have."""
_POINTS = 72

_LARGEST_SCAN = 4 * MAX_PIXELS
"""Pixels of an image on a page that is rendered; A2 at 600 dpi has 139 million."""

_INVISIBLE = 3
"""The way to show a text that programs lay over a scan so that it can be searched."""
_SAME_SHAPE = 0.02
_THUMBNAIL = 32
_SAME_LOOK = 8.0
"""Levels of 255 that a scan and its page may differ by, shrunk to a thumbnail and averaged."""

_ONE_AT_A_TIME = threading.RLock()


def count_pages(path: Path) -> int:
    """How many pages a PDF has; an error where it is encrypted, damaged or empty."""
    with _document(path) as pdf:
        return len(pdf)


def page_size(path: Path, number: int) -> tuple[float, float]:
    """Width and height of a page in points, the first being 1, as it is shown."""
    with _document(path) as pdf:
        page = pdf[number - 1]
        try:
            width, height = page.get_size()
        finally:
            page.close()
    return float(width), float(height)


def page_image(path: Path, number: int) -> bytes:
    """An image file (JPEG or PNG) of a page, the first being 1."""
    where = f"{path}#{number}"
    with _document(path) as pdf:
        if not 1 <= number <= len(pdf):
            raise DataError(f"the PDF has {len(pdf)} pages", where=where)
        page = pdf[number - 1]
        try:
            return _stored_scan(page) or _rendered(page, where)
        finally:
            page.close()


@contextmanager
def _document(path: Path) -> Iterator[pypdfium2.PdfDocument]:
    with _ONE_AT_A_TIME:
        try:
            with pypdfium2.PdfDocument(path) as pdf:
                yield pdf
        except FileNotFoundError as error:
            raise DataError("the PDF does not exist", where=path) from error
        except pypdfium2.PdfiumError as error:
            raise _told(error, path) from error


def _told(error: pypdfium2.PdfiumError, path: Path) -> DataError:
    # PDFium leaves the code of an earlier file's error standing where a file has no pages.
    if error.err_code == pdfium.FPDF_ERR_PASSWORD and b"/Encrypt" in path.read_bytes():
        return DataError("the PDF is encrypted", where=path, hint="save it without a password")
    message = f"the PDF is damaged or has no pages: {error}"
    return DataError(message, where=path, hint="was it copied or downloaded whole?")


def _rendered(page: pypdfium2.PdfPage, where: str) -> bytes:
    for scan in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE]):
        across, down = scan.get_px_size()
        if across * down > _LARGEST_SCAN:
            raise DataError(f"an image on the page is {across}x{down} pixels, which is no scan", where=where)
    width, height = (round(side / _POINTS * DPI) for side in page.get_size())
    if width * height > MAX_PIXELS:
        message = f"the page has no scan of its own, and would be {width}x{height} pixels at {DPI} dpi"
        raise DataError(f"{message}; {MAX_PIXELS // 10**6} million are the most", where=where)
    return _png(_picture(page.render(scale=DPI / _POINTS)))


def _picture(bitmap: pypdfium2.PdfBitmap) -> Image.Image:
    """The bitmap's pixels, which belong to PDFium, as a picture that lives on."""
    try:
        picture: Image.Image = bitmap.to_pil()
        return picture.copy()
    finally:
        bitmap.close()


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # On a noisy page of A4 at 300 dpi the usual level, 6, takes twice the time (2.0 s for 1.0 s) and saves nothing.
    picture.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _stored_scan(page: pypdfium2.PdfPage) -> bytes | None:
    """The one image that a page shows, if it is upright and looks like the page; a JPEG stays as it is."""
    scan = _only_image(page)
    if scan is None:
        return None
    width, height = scan.get_px_size()
    if not 0 < width * height <= MAX_PIXELS:
        return None
    if scan.get_filters() == ["DCTDecode"]:
        data = bytes(scan.get_data())
        return data if _shows(page, _decoded(data)) else None
    picture = _picture(scan.get_bitmap())
    return _png(picture.convert("RGB" if len(picture.getbands()) > 1 else "L")) if _shows(page, picture) else None


def _only_image(page: pypdfium2.PdfPage) -> pypdfium2.PdfImage | None:
    """The image of a page with nothing beside it but invisible text, neither turned nor mirrored."""
    seen = [part for part in page.get_objects() if not _is_invisible(part)]
    if len(seen) != 1 or not isinstance(seen[0], pypdfium2.PdfImage) or page.get_rotation():
        return None
    across, slant, lean, up = seen[0].get_matrix().get()[:4]
    upright = across > 0 and up > 0 and max(abs(slant), abs(lean)) < 1e-3 * min(across, up)
    return seen[0] if upright else None


def _is_invisible(part: pypdfium2.PdfObject) -> bool:
    is_text = part.type == pdfium.FPDF_PAGEOBJ_TEXT
    return bool(is_text and pdfium.FPDFTextObj_GetTextRenderMode(part) == _INVISIBLE)


def _decoded(data: bytes) -> Image.Image | None:
    """The picture in a JPEG; None where it is damaged, or a photograph that lies on its side."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as file:
            turned = file.getexif().get(0x0112, 1) != 1
            return None if turned or file.width * file.height > MAX_PIXELS else file.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None


def _shows(page: pypdfium2.PdfPage, scan: Image.Image | None) -> bool:
    """True where the page looks like the scan: all of it, nothing around it, in the same colours."""
    across, up = page.get_size()
    if scan is None or abs(scan.width / scan.height / (across / up) - 1) > _SAME_SHAPE:
        return False
    shown = _picture(page.render(scale=8 * _THUMBNAIL / max(across, up)))
    return float(np.abs(_thumbnail(shown) - _thumbnail(scan)).mean()) < _SAME_LOOK


def _thumbnail(picture: Image.Image) -> np.ndarray:
    small = picture.convert("RGB").resize((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32)


_NUMBERED = re.compile(r"(?P<name>.+)[_-]0*(?P<page>\d{1,9})")


def find_pdf(source: Path) -> list[Path]:
    """The PDF files of a folder that have a text beside them, or the one that was named."""
    if source.is_file():
        return [source] if source.suffix.lower() in PDF_SUFFIXES else []
    return [path for path, texts in _paired(source).items() if texts]


def read_pdf(source: Path) -> Iterator[Page | Skipped]:
    """Every page of every PDF with its text; a file without texts, and texts without a page, are left out."""
    root = source.parent if source.is_file() else source
    for path, texts in _paired(root).items():
        if source.is_file() and path != source:
            continue
        where = relative(path, root)
        if not texts:
            yield Skipped(SkipReason.NO_TRANSCRIPTION, where, "no text file has its name")
            continue
        try:
            yield from _pages(path, texts, root)
        except DataError as error:
            yield Skipped(SkipReason.BAD_SOURCE, where, error.message)


def _paired(root: Path) -> dict[Path, list[Path]]:
    """PDF -> its texts: the one that has its name, and those that have its name and a number."""
    paired: dict[Path, list[Path]] = {path: [] for path in list_files(root, PDF_SUFFIXES)}
    by_name = {path.with_suffix(""): path for path in paired}
    for text in list_files(root, {".txt"}):
        numbered = _NUMBERED.fullmatch(text.stem)
        names = [text.with_suffix("")] + ([text.with_name(numbered["name"])] if numbered else [])
        if pdf := next((by_name[name] for name in names if name in by_name), None):
            paired[pdf].append(text)
    return paired


def _pages(path: Path, texts: list[Path], root: Path) -> Iterator[Page | Skipped]:
    count = count_pages(path)
    found = _texts_of_pages(path, texts, count, root)
    split = split_of_folder(path.parent.relative_to(root))
    for page in range(1, count + 1):
        name = f"{relative(path.with_suffix(''), root)}_{page:04d}"
        if page not in found:
            yield Skipped(SkipReason.NO_TRANSCRIPTION, f"{relative(path, root)}#{page}", "the page has no text file")
            continue
        text, where = found.pop(page)
        content = partial(page_image, path, page)
        yield Page(path, name, where, (Line(text, where),), page=name, split=split, content=content)
    for _, where in found.values():
        yield Skipped(SkipReason.NO_IMAGE, where, f"the PDF has {count} pages")


def _texts_of_pages(path: Path, texts: list[Path], count: int, root: Path) -> dict[int, tuple[str, str]]:
    """Page -> its text and where that stands."""
    whole = [text for text in texts if text.stem == path.stem]
    if whole and len(texts) > 1:
        raise DataError(f"it has one text for all pages and others for single ones: {texts[-1].name}")
    if whole:
        return _of_one_file(whole[0], count, relative(whole[0], root))
    pages: dict[int, tuple[str, str]] = {}
    for text in texts:
        number = int(_NUMBERED.fullmatch(text.stem)["page"])  # type: ignore[index]
        if number in pages:
            raise DataError(f"two texts are called page {number}: {pages[number][1]} and {relative(text, root)}")
        pages[number] = (read_text(text), relative(text, root))
    return pages


def _of_one_file(path: Path, count: int, where: str) -> dict[int, tuple[str, str]]:
    pages = read_text(path).split("\f")
    if len(pages) == count + 1 and not pages[-1].strip():
        # pdftotext ends every page with a form feed, the last one too.
        del pages[-1]
    if len(pages) != count:
        raise DataError(f"the PDF has {count} pages, and its text {len(pages)}, parted by form feeds")
    return {number: (text, f"{where}#{number}") for number, text in enumerate(pages, start=1)}
