"""PDF: pages as images to read, and transcribed pages as a searchable PDF.

A page is read as the scan that is stored in it if it consists of nothing else, and rendered otherwise. PDFium is not
thread-safe, and allocates whatever a file asks for: 62 kB can hold six million letters, which take 4 GB. So it runs in
a process of its own under limits, and one document is open at a time, only as long as it is needed. So does qpdf where
it reads a PDF from outside.

A searchable PDF shows each scan unchanged, with its text invisible on top. The text of a line is stretched over the
line's width, so that a viewer highlights a found word where it is written. The font has one blank glyph for every
UTF-16 code and a table that maps codes to letters, so any script can be searched and copied without a font for it (ISO
32000-1, 9.7 and 9.10).
"""

import io
import math
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from PIL import Image

from dsocr.document import Item, Line, Page, ProcessingStep, Skipped, SkipReason
from dsocr.errors import DataError
from dsocr.formats.format import Columns, Format, SourceFile, image_bytes, read_files, require_packages
from dsocr.images import MAX_PIXELS, decode_image, encode_image
from dsocr.io.encodings import read_text
from dsocr.io.files import list_files, relative, split_of_folder
from dsocr.io.processes import LimitedProcess, OverLimit

if TYPE_CHECKING:  # the libraries for PDF take a third of a second, and few commands need them
    import pikepdf
    import pypdfium2

R = TypeVar("R")

PDF_SUFFIXES = frozenset({".pdf"})
_PACKAGES = ("pypdfium2", "pikepdf", "fontTools")

POINTS_PER_INCH = 72
DPI = 300
"""Resolution of rendered pages, and of images without a plausible one: the usual for scans of handwriting."""
_PLAUSIBLE_DPI = range(100, 2401)
"""Screens and cameras write 72 or 96 into files that were never measured."""

_MAX_SCAN_PIXELS = 4 * MAX_PIXELS
"""Pixels of an image on a page that is rendered; A2 at 600 dpi has 139 million."""

_INVISIBLE = 3
"""Text rendering mode of text that programs put over a scan so that it can be searched."""
_SAME_ASPECT = 0.02
_THUMBNAIL_SIDE = 32
_SAME_APPEARANCE = 8.0
"""Mean difference in levels (of 255) allowed between the thumbnails of a scan and its page."""

_NUMBERED = re.compile(r"(?P<name>.+)[_-]0*(?P<page>\d{1,9})")

_LETTER_HEIGHT = 0.7
"""Height of letters, from baseline to the top of a capital, as a fraction of the line's box."""
_DESCENT = 0.25
"""Part of a line's box below its baseline if none is known."""

_MEMORY = 256 * 2**20
"""Bytes of images kept in memory before the document is saved to disk and reopened."""

_KEPT_OF_PAGE = {"/Type", "/Parent", "/MediaBox", "/CropBox", "/UserUnit", "/Annots", "/Tabs"}
"""Keys of a page whose contents are replaced."""

_PDFIUM = LimitedProcess(memory=960 * 2**20, seconds=60)
"""A4 at 300 dpi takes 220 MB and 1 s, A2 at 600 dpi with a text on it 510 MB and 5 s."""
_QPDF = LimitedProcess(memory=512 * 2**20, seconds=60)
"""A file within these limits takes as much again where the transcribed pages are written."""


def find_pdf(source: Path, columns: Columns | None = None) -> list[Path]:
    """List the PDF files of a folder that have a text beside them, or the one that was named."""
    if source.is_file():
        return [source] if source.suffix.lower() in PDF_SUFFIXES else []
    return [path for path, texts in _pair(source).items() if texts]


def read_pdf(source: Path, columns: Columns | None = None) -> Iterator[Item]:
    """Read every page of every PDF with its text; a file without texts, and a text without a page, is skipped."""
    pairs = _pair(source.parent if source.is_file() else source)
    files = [source] if source.is_file() else pairs
    return read_files(source, files, lambda file: _read_pages(file, pairs.get(file.path, [])))


def _pair(root: Path) -> dict[Path, list[Path]]:
    """Return PDF -> its texts: the one with its name, and those with its name and a number."""
    pairs: dict[Path, list[Path]] = {path: [] for path in list_files(root, PDF_SUFFIXES)}
    by_name = {path.with_suffix(""): path for path in pairs}
    for text in list_files(root, {".txt"}):
        numbered = _NUMBERED.fullmatch(text.stem)
        names = [text.with_suffix("")] + ([text.with_name(numbered["name"])] if numbered else [])
        if pdf := next((by_name[name] for name in names if name in by_name), None):
            pairs[pdf].append(text)
    return pairs


def _read_pages(file: SourceFile, texts: list[Path]) -> Iterator[Item]:
    if not texts:
        yield Skipped(SkipReason.NO_TRANSCRIPTION, file.where, "no text file has its name")
        return
    count = count_pages(file.path)
    page_texts = _page_texts(file, texts, count)
    split = split_of_folder(file.path.parent.relative_to(file.root))
    for number in range(1, count + 1):
        if number not in page_texts:
            yield Skipped(SkipReason.NO_TRANSCRIPTION, f"{file.where}#{number}", "the page has no text file")
            continue
        text, where = page_texts.pop(number)
        name = f"{relative(file.path.with_suffix(''), file.root)}_{number:04d}"
        content = partial(page_image, file.path, number)
        yield Page(file.path, name, where, (Line(text, where),), page=name, split=split, content=content, number=number)
    for _, where in page_texts.values():
        yield Skipped(SkipReason.NO_IMAGE, where, f"the PDF has {count} pages")


def _page_texts(file: SourceFile, texts: list[Path], count: int) -> dict[int, tuple[str, str]]:
    """Return page number -> text and its place."""
    whole = [text for text in texts if text.stem == file.path.stem]
    if whole and len(texts) > 1:
        message = f"it has one text for all pages and others for single ones: {texts[-1].name}"
        raise DataError(message, code="pdf-texts-ambiguous")
    if whole:
        pages = read_text(whole[0]).split("\f")
        if len(pages) == count + 1 and not pages[-1].strip():
            # pdftotext ends every page with a form feed, the last one too.
            del pages[-1]
        if len(pages) != count:
            message = f"the PDF has {count} pages, and its text {len(pages)}, parted by form feeds"
            raise DataError(message, code="pdf-text-page-count")
        where = relative(whole[0], file.root)
        return {number: (text, f"{where}#{number}") for number, text in enumerate(pages, start=1)}
    page_texts: dict[int, tuple[str, str]] = {}
    for path in texts:
        where = relative(path, file.root)
        number = int(path.stem[len(file.path.stem) + 1 :])
        if number in page_texts:
            message = f"two texts are called page {number}: {page_texts[number][1]} and {where}"
            raise DataError(message, code="pdf-texts-ambiguous")
        page_texts[number] = (read_text(path), where)
    return page_texts


def count_pages(path: Path) -> int:
    """Return the number of pages of a PDF; DataError if it is encrypted, damaged or empty."""
    return _call_pdfium(_count_pages, path)


def page_texts(path: Path) -> list[str]:
    """Return the text that each page of a PDF has, empty for a page that is only an image."""
    return [_call_pdfium(_page_text, path, number) for number in range(1, count_pages(path) + 1)]


def page_image(path: Path, number: int) -> bytes:
    """Return a page as the content of an image file (JPEG or PNG); pages count from 1."""
    return _call_pdfium(_page_image, path, number)


def _call_pdfium(function: "Callable[..., R]", path: Path, *number: int) -> R:
    """Call a function with a PDF, and perhaps a page, in PDFium's process. Raises DataError if it takes too much."""
    require_packages("a PDF", _PACKAGES)
    try:
        return _PDFIUM.call(function, path, *number)
    except OverLimit as error:
        raise _too_costly(error, path, *number) from error


def _too_costly(error: OverLimit, path: Path, *number: int) -> DataError:
    subject, where = ("the page", f"{path}#{number[0]}") if number else ("the PDF", str(path))
    hint = f"{subject} is no plain scan; save it as an image at 300 dpi from a PDF viewer, and give that"
    return DataError(f"{subject} {error}", code="pdf-too-costly", where=where, hint=hint)


# Called in PDFium's process


def _count_pages(path: Path) -> int:
    with _open(path) as pdf:
        return len(pdf)


def _page_text(path: Path, number: int) -> str:
    with _open_page(path, number) as page:
        return str(page.get_textpage().get_text_bounded()).replace("\r\n", "\n")


def _page_image(path: Path, number: int) -> bytes:
    with _open_page(path, number) as page:
        where = f"{path}#{number}"
        return _stored_image(page, where) or _render(page, where)


def _page_width(path: Path, number: int) -> float:
    with _open_page(path, number) as page:
        return float(page.get_width())


@contextmanager
def _open_page(path: Path, number: int) -> "Iterator[pypdfium2.PdfPage]":
    with _open(path) as pdf:
        if not 1 <= number <= len(pdf):
            raise DataError(f"the PDF has {len(pdf)} pages", code="pdf-damaged", where=f"{path}#{number}")
        yield pdf[number - 1]


@contextmanager
def _open(path: Path) -> "Iterator[pypdfium2.PdfDocument]":
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(path) as pdf:
            yield pdf
    except FileNotFoundError as error:
        raise DataError("the PDF does not exist", code="input-missing", where=path) from error
    except pypdfium2.PdfiumError as error:
        # PDFium keeps the error code of an earlier file if a file has no pages.
        if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD and b"/Encrypt" in path.read_bytes():
            hint = "save it without a password"
            raise DataError("the PDF is encrypted", code="pdf-encrypted", where=path, hint=hint) from error
        message, hint = f"the PDF is damaged or has no pages: {error}", "was it copied or downloaded whole?"
        raise DataError(message, code="pdf-damaged", where=path, hint=hint) from error


def _render(page: "pypdfium2.PdfPage", where: str) -> bytes:
    import pypdfium2

    for scan in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE]):
        across, down = scan.get_px_size()
        if across * down > _MAX_SCAN_PIXELS:
            message = f"an image on the page is {across}x{down} pixels, which is no scan"
            raise DataError(message, code="pdf-too-costly", where=where)
    width, height = (round(side / POINTS_PER_INCH * DPI) for side in page.get_size())
    if width * height > MAX_PIXELS:
        message = f"the page has no scan of its own, and would be {width}x{height} pixels at {DPI} dpi"
        limit = f"{MAX_PIXELS // 10**6} million are the most"
        raise DataError(f"{message}; {limit}", code="pdf-too-costly", where=where)
    return _encode_png(_bitmap_image(page.render(scale=DPI / POINTS_PER_INCH)))


def _bitmap_image(bitmap: "pypdfium2.PdfBitmap") -> Image.Image:
    """Copy the pixels of a bitmap, which belong to PDFium."""
    picture: Image.Image = bitmap.to_pil()
    return picture.copy()


def _encode_png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # On a noisy page of A4 at 300 dpi the usual level, 6, takes twice the time (2.0 s for 1.0 s) and saves nothing.
    picture.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def _stored_image(page: "pypdfium2.PdfPage", where: str) -> bytes | None:
    """Return the only image of a page if it is upright and looks like the page; a JPEG stays as it is."""
    scan = _single_image(page)
    if scan is None:
        return None
    width, height = scan.get_px_size()
    if not 0 < width * height <= MAX_PIXELS:
        return None
    if scan.get_filters() == ["DCTDecode"]:
        data = bytes(scan.get_data())
        with suppress(DataError):
            decoded = decode_image(data, name=where, max_pixels=MAX_PIXELS)
            if decoded.as_stored:
                return data if _looks_like(page, decoded.image) else None
    picture = _bitmap_image(scan.get_bitmap())
    if not _looks_like(page, picture):
        return None
    return _encode_png(picture.convert("RGB" if len(picture.getbands()) > 1 else "L"))


def _single_image(page: "pypdfium2.PdfPage") -> "pypdfium2.PdfImage | None":
    """Return the image of a page with nothing else but invisible text, neither rotated nor mirrored."""
    from pypdfium2 import PdfImage, raw

    seen = [
        part
        for part in page.get_objects()
        if part.type != raw.FPDF_PAGEOBJ_TEXT or raw.FPDFTextObj_GetTextRenderMode(part) != _INVISIBLE
    ]
    if len(seen) != 1 or not isinstance(seen[0], PdfImage) or page.get_rotation():
        return None
    across, slant, lean, up = seen[0].get_matrix().get()[:4]
    upright = across > 0 and up > 0 and max(abs(slant), abs(lean)) < 1e-3 * min(across, up)
    return seen[0] if upright else None


def _looks_like(page: "pypdfium2.PdfPage", scan: Image.Image) -> bool:
    """Return whether a page shows all of a scan, nothing around it, in the same colours."""
    across, up = page.get_size()
    if abs(scan.width / scan.height / (across / up) - 1) > _SAME_ASPECT:
        return False
    shown = _bitmap_image(page.render(scale=8 * _THUMBNAIL_SIDE / max(across, up)))
    return float(np.abs(_thumbnail(shown) - _thumbnail(scan)).mean()) < _SAME_APPEARANCE


def _thumbnail(picture: Image.Image) -> np.ndarray:
    small = picture.convert("RGB").resize((_THUMBNAIL_SIDE, _THUMBNAIL_SIDE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32)


def write_pdf(pages: Iterable[Page], path: Path, step: ProcessingStep) -> None:
    """Write one PDF page per image, in the size of the image.

    If the first pages are those of a PDF, its bookmarks, title, author and annotations are kept. Raises DataError if
    that takes too much memory or time.
    """
    import pikepdf

    remaining = iter(pages)
    first = list(islice(remaining, 1))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pdf-", ignore_cleanup_errors=True) as folder:
        document, source = _document_for(first, Path(folder, "source.pdf"))
        in_memory, unfilled = 0, set(range(len(document.pages)))
        font = document.make_indirect(_blank_font(document))
        for number, page in enumerate(chain(first, remaining)):
            if not page.number or page.image != source:
                source = None
            index = len(document.pages) if source is None else page.number - 1
            unfilled.discard(index)
            in_memory += _write_page(document, index, page, font)
            if in_memory > _MEMORY:
                document, font = _spill(document, Path(folder, f"{number}.pdf"), index)
                in_memory = 0
        for index in sorted(unfilled, reverse=True):
            del document.pages[index]
        if source is None or not (document.docinfo.get("/Title") or "/Metadata" in document.Root):
            document.docinfo["/Title"] = path.stem
        document.docinfo["/Producer"] = pikepdf.String(f"{step.software} {step.version}")
        document.save(path, deterministic_id=True)
        document.close()


def _document_for(pages: list[Page], copy: Path) -> "tuple[pikepdf.Pdf, Path | None]":
    """Return a copy of the PDF of a page, to fill its pages, with the PDF's path; else an empty one and None."""
    import pikepdf

    path = next((page.image for page in pages if _is_of_pdf(page)), None)
    try:
        if path and _QPDF.call(_copy_without_contents, path, copy):
            return pikepdf.open(copy, access_mode=pikepdf.AccessMode.stream), path
    except OverLimit as error:
        raise _too_costly(error, path or copy) from error
    return pikepdf.new(), None


def _copy_without_contents(path: Path, copy: Path) -> bool:
    """Copy a PDF, its pages upright and without their contents; False if qpdf cannot read it, as PDFium sometimes can.

    Its objects are written plainly, so that the copy takes no more than this when it is opened.
    """
    import pikepdf

    try:
        with pikepdf.open(path) as document:
            for claim in ("/StructTreeRoot", "/MarkInfo"):  # they describe the contents that are replaced
                if claim in document.Root:
                    del document.Root[claim]
            if "/Metadata" in document.Root:
                with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as metadata:
                    for claim in ("pdfaid:part", "pdfaid:conformance"):
                        metadata.pop(claim, None)
            for page in document.pages:
                page.flatten_rotation()  # turns the annotations too
                for key in set(page.obj.keys()) - _KEPT_OF_PAGE:
                    del page.obj[key]
            plain = pikepdf.ObjectStreamMode.disable
            document.save(copy, object_stream_mode=plain, deterministic_id=True)
            if any("bad_alloc" in warning for warning in document.get_warnings()):
                raise MemoryError  # qpdf takes an object too large for null
    except pikepdf.PdfError:
        return False
    return True


def _spill(document: "pikepdf.Pdf", path: Path, filled: int) -> "tuple[pikepdf.Pdf, pikepdf.Object]":
    """Save and reopen a document: qpdf then lets its images go. Returns it and the font of the page at `filled`."""
    import pikepdf

    document.save(path, deterministic_id=True)  # the final ID begins with this one
    document.close()
    for earlier in set(path.parent.iterdir()) - {path}:
        earlier.unlink()
    reopened = pikepdf.open(path, access_mode=pikepdf.AccessMode.stream)
    return reopened, reopened.pages[filled].Resources.Font.F


def _write_page(document: "pikepdf.Pdf", index: int, page: Page, font: "pikepdf.Object") -> int:
    """Replace the page at an index, or add one, by the image with its text; return the image's bytes."""
    from pikepdf import Dictionary, Name

    content = image_bytes(page)
    decoded = decode_image(content, name=page.where)
    image, is_jpeg = decoded.image, decoded.format == "JPEG"
    if not is_jpeg:
        content = zlib.compress(image.tobytes())
    elif not decoded.as_stored:
        content = encode_image(image, "JPEG").content
    scale = _points_per_pixel(page, image)
    width, height = image.width * scale, image.height * scale
    text = "".join(_draw_line(line, page, image.height, scale) for line in page.transcribed_lines)
    drawing = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /I Do Q\n{text}"
    if index == len(document.pages):
        target = document.add_blank_page(page_size=(round(width, 2), round(height, 2)))
    else:
        target = document.pages[index]
        # The lower left corner of the visible page, upright now.
        boxes = [[float(value) for value in box] for box in (target.mediabox, target.cropbox)]
        left, bottom = (max(min(box[at], box[at + 2]) for box in boxes) for at in (0, 1))
        drawing = f"1 0 0 1 {left:.2f} {bottom:.2f} cm\n{drawing}"
    pixels = document.make_stream(
        content,
        Type=Name.XObject,
        Subtype=Name.Image,
        Width=image.width,
        Height=image.height,
        BitsPerComponent=8,
        ColorSpace=Name.DeviceGray if image.mode == "L" else Name.DeviceRGB,
        Filter=Name.DCTDecode if is_jpeg else Name.FlateDecode,
    )
    target.Resources = Dictionary(XObject=Dictionary(I=pixels), Font=Dictionary(F=font))
    target.Contents = document.make_stream(drawing.encode("ascii"))
    return len(content)


def _blank_font(document: "pikepdf.Pdf") -> "pikepdf.Object":
    from pikepdf import Object

    descriptor = Object.parse(
        b"<< /Type /FontDescriptor /FontName /Blank /Flags 5 /FontBBox [0 0 500 1000] /ItalicAngle 0 /Ascent 1000 "
        b"/Descent 0 /CapHeight 1000 /StemV 80 >>"
    )
    descriptor.FontFile2 = document.make_stream(_blank_truetype())
    descendant = Object.parse(
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Blank /DW 500 "
        b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>"
    )
    descendant.FontDescriptor = document.make_indirect(descriptor)
    descendant.CIDToGIDMap = document.make_stream(b"\0\1" * 65536)
    font = Object.parse(b"<< /Type /Font /Subtype /Type0 /BaseFont /Blank /Encoding /Identity-H >>")
    font.DescendantFonts = [document.make_indirect(descendant)]
    font.ToUnicode = document.make_stream(_unicode_map().encode("ascii"))
    return font


def _blank_truetype() -> bytes:
    """Build a TrueType font of two empty glyphs, half as wide as high."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.ttLib.tables._g_l_y_f import Glyph

    glyphs = [".notdef", "blank"]
    builder = FontBuilder(1000, isTTF=True)
    builder.font.recalcTimestamp = False
    builder.setupGlyphOrder(glyphs)
    builder.setupGlyf(dict.fromkeys(glyphs, Glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (500, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupMaxp()
    builder.updateHead(created=0, modified=0)
    file = io.BytesIO()
    builder.save(file)
    return file.getvalue()


def _unicode_map() -> str:
    """Map each UTF-16 code to itself; a range stays within one high byte, and a block holds at most 100 ranges."""
    ranges = [f"<{high:02x}00> <{high:02x}ff> <{high:02x}00>" for high in range(256)]
    blocks = [ranges[first : first + 100] for first in range(0, len(ranges), 100)]
    listed = "".join(f"{len(block)} beginbfrange\n" + "\n".join(block) + "\nendbfrange\n" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{listed}"
        "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
    )


def _is_of_pdf(page: Page) -> bool:
    return bool(page.number) and page.image.suffix.lower() in PDF_SUFFIXES


def _points_per_pixel(page: Page, image: Image.Image) -> float:
    if _is_of_pdf(page):
        return _call_pdfium(_page_width, page.image, page.number) / image.width
    dpi = image.info.get("dpi")
    stated = round(float(dpi[0])) if isinstance(dpi, tuple) and dpi and math.isfinite(float(dpi[0])) else 0
    return POINTS_PER_INCH / (stated if stated in _PLAUSIBLE_DPI else DPI)


def _draw_line(line: Line, page: Page, page_height: int, scale: float) -> str:
    """Return the operators that write a line's text in its place; rows of the text share the line's height."""
    left, top, right, bottom = page.visible_box(line)
    texts = line.text.split("\n")
    share = (bottom - top) / len(texts)
    baseline = line.outline.baseline if line.outline and len(texts) == 1 else ()
    parts = []
    for number, text in enumerate(texts):
        foot = top + (number + 1 - _DESCENT) * share
        begin, end = (left, foot), (right, foot)
        if len(baseline) >= 2 and baseline[0][0] < baseline[-1][0]:
            begin, end = baseline[0], baseline[-1]
        height = _LETTER_HEIGHT * share
        for word, start, stop in _spread(line, left, right, begin[0], end[0]) or [(text, 0.0, 1.0)]:
            first, last = _between(begin, end, start), _between(begin, end, stop)
            parts.append(_draw_text(word, first, last, height, page_height, scale))
    return "".join(parts)


def _spread(line: Line, left: float, right: float, begin: float, end: float) -> list[tuple[str, float, float]]:
    """Return each word, with the space after it, and its share of the way from `begin` to `end`; empty if unknown."""
    sides = sorted(line.word_sides.items())
    if not sides or "\n" in line.text or end <= begin:
        return []
    places = [(left + side * (right - left) - begin) / (end - begin) for _, (side, _) in sides]
    places.append((left + sides[-1][1][1] * (right - left) - begin) / (end - begin))
    if any(stop <= start for start, stop in pairwise(places)):
        return []
    starts = [start for start, _ in sides] + [len(line.text)]
    words = [line.text[start:stop] for start, stop in pairwise(starts)]
    return [(word, start, stop) for word, (start, stop) in zip(words, pairwise(places), strict=True)]


def _between(begin: tuple[float, float], end: tuple[float, float], share: float) -> tuple[float, float]:
    return begin[0] + share * (end[0] - begin[0]), begin[1] + share * (end[1] - begin[1])


def _draw_text(
    text: str, begin: tuple[float, float], end: tuple[float, float], height: float, page_height: int, scale: float
) -> str:
    codes = text.encode("utf-16-be", "replace").hex()
    if not codes or height <= 0:
        return ""
    across, down = end[0] - begin[0], end[1] - begin[1]
    length = math.hypot(across, down) or 1.0
    cos, sin = across / length, -down / length
    size = height * scale
    # In the blank font each code is half as wide as high.
    stretch = 100 * length * scale / (0.5 * size * (len(codes) / 4))
    x, y = begin[0] * scale, (page_height - begin[1]) * scale
    place = f"{cos:.5f} {sin:.5f} {-sin:.5f} {cos:.5f} {x:.2f} {y:.2f} Tm"
    return f"BT 3 Tr /F {size:.2f} Tf {stretch:.2f} Tz {place} <{codes}> Tj ET\n"


FORMATS = (
    Format(
        name="pdf",
        title="PDF files with texts",
        find=find_pdf,
        read=read_pdf,
        example=r"scans.pdf -o data/mine --writer '(\w+?)_'",
        unit="page",
        write_pages=write_pdf,
        suffix=".pdf",
        multipage=True,
        packages=_PACKAGES,
    ),
)
