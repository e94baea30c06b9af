"""Write transcribed pages as a searchable PDF: each scan unchanged, with its text invisible on top.

The text of a line is stretched over the line's width, so that a viewer highlights a found word where it is written.
The font has one blank glyph for every UTF-16 code and a table that maps codes to letters, so any script can be
searched and copied without a font for it (ISO 32000-1, 9.7 and 9.10).
"""

import io
import math
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pikepdf
from fontTools.fontBuilder import FontBuilder
from fontTools.ttLib.tables._g_l_y_f import Glyph
from pikepdf import Dictionary, Name
from PIL import Image

from dsocr.formats.fill import Step
from dsocr.formats.pdf import page_size
from dsocr.images import decode_image
from dsocr.inference.hocr import box_of
from dsocr.inference.pages import ReadLine, ReadPage
from dsocr.io.cropping import encode_image

_POINTS = 72
_DPI = 300
"""Dots per inch assumed for a scan whose resolution is missing or implausible."""
_BELIEVABLE = range(100, 2401)
"""Screens and cameras write 72 or 96 whatever the resolution is."""

_HEIGHT = 0.7
"""Share of a line's box between the baseline and the top of a capital."""
_FOOT = 0.25
"""Share of a line's box below the baseline, if the line has none."""

_MEMORY = 256 * 2**20
"""Bytes of images kept in memory before the document is saved to disk and reopened."""


def write_pdf(pages: Iterable[ReadPage], path: Path, step: Step) -> None:
    """Write one PDF page per image, in the size of the image."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".pdf-", ignore_cleanup_errors=True) as folder:
        document, in_memory = pikepdf.new(), 0
        font = document.make_indirect(_blank_font(document))
        for number, page in enumerate(pages):
            in_memory += _add_page(document, page, font)
            if in_memory > _MEMORY:
                document, font = _spill(document, Path(folder, f"{number}.pdf"))
                in_memory = 0
        document.docinfo["/Title"] = path.stem
        document.docinfo["/Producer"] = f"{step.software} {step.version}"
        document.save(path, deterministic_id=True)
        document.close()


def _spill(document: pikepdf.Pdf, path: Path) -> tuple[pikepdf.Pdf, pikepdf.Object]:
    """Save and reopen a document, which frees its images: qpdf reads the streams of a file only when it saves."""
    document.save(path, deterministic_id=True)  # the final ID begins with this one
    document.close()
    for earlier in set(path.parent.iterdir()) - {path}:
        earlier.unlink()
    reopened = pikepdf.open(path, access_mode=pikepdf.AccessMode.stream)
    return reopened, reopened.pages[0].Resources.Font.F


def _add_page(document: pikepdf.Pdf, page: ReadPage, font: pikepdf.Object) -> int:
    """Add a page and return the size of its image in bytes."""
    content = page.page.content()
    decoded = decode_image(content, name=page.page.id)
    image = decoded.image
    if not (decoded.as_stored and decoded.format == "JPEG"):
        content, _ = encode_image(image, decoded.format)
    scale = _scale(page, image.info.get("dpi"))
    width, height = image.width * scale, image.height * scale
    text = "".join(_draw_line(line, page, scale) for line in page.written)
    added = document.add_blank_page(page_size=(round(width, 2), round(height, 2)))
    added.Resources = Dictionary(XObject=Dictionary(I=_image_object(document, content)), Font=Dictionary(F=font))
    drawing = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /I Do Q\n{text}"
    added.Contents = document.make_stream(drawing.encode("ascii"))
    return len(content)


def _image_object(document: pikepdf.Pdf, file: bytes) -> pikepdf.Stream:
    """Make an image object from the compressed pixels of a JPEG or PNG file, without encoding them again."""
    with Image.open(io.BytesIO(file), formats=("JPEG", "PNG")) as image:
        channels = 1 if image.mode == "L" else 3
        (width, height), is_jpeg = image.size, image.format == "JPEG"
    stream = document.make_stream(
        file if is_jpeg else _png_pixels(file),
        Type=Name.XObject,
        Subtype=Name.Image,
        Width=width,
        Height=height,
        BitsPerComponent=8,
        ColorSpace=Name.DeviceGray if channels == 1 else Name.DeviceRGB,
        Filter=Name.DCTDecode if is_jpeg else Name.FlateDecode,
    )
    if not is_jpeg:  # 15 is PNG's own prediction, chosen row by row
        stream.DecodeParms = Dictionary(Predictor=15, Colors=channels, BitsPerComponent=8, Columns=width)
    return stream


def _png_pixels(file: bytes) -> bytes:
    """Return the compressed pixels of a PNG file that Pillow wrote: not interlaced, 8 bits, grey or RGB."""
    start, parts = 8, []
    while start < len(file):
        length, kind = struct.unpack_from(">I4s", file, start)
        if kind == b"IDAT":
            parts.append(file[start + 8 : start + 8 + length])
        start += length + 12
    return b"".join(parts)


def _blank_font(document: pikepdf.Pdf) -> Dictionary:
    descriptor = Dictionary(
        Type=Name.FontDescriptor,
        FontName=Name.Blank,
        Flags=5,
        FontBBox=[0, 0, 500, 1000],
        ItalicAngle=0,
        Ascent=1000,
        Descent=0,
        CapHeight=1000,
        StemV=80,
        FontFile2=document.make_stream(_blank_truetype()),
    )
    descendant = Dictionary(
        Type=Name.Font,
        Subtype=Name.CIDFontType2,
        BaseFont=Name.Blank,
        CIDSystemInfo=Dictionary(Registry="Adobe", Ordering="Identity", Supplement=0),
        DW=500,
        FontDescriptor=document.make_indirect(descriptor),
        CIDToGIDMap=document.make_stream(b"\0\1" * 65536),
    )
    return Dictionary(
        Type=Name.Font,
        Subtype=Name.Type0,
        BaseFont=Name.Blank,
        Encoding=Name("/Identity-H"),
        DescendantFonts=[document.make_indirect(descendant)],
        ToUnicode=document.make_stream(_unicode_map().encode("ascii")),
    )


def _blank_truetype() -> bytes:
    """Build a TrueType font of two empty glyphs, half as wide as high."""
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


def _scale(page: ReadPage, dpi: object) -> float:
    """Return the points per pixel."""
    if page.page.kind == "pdf":
        return page_size(page.page.path, page.page.number)[0] / page.size[0]
    stated = round(float(dpi[0])) if isinstance(dpi, tuple) and dpi and math.isfinite(float(dpi[0])) else 0
    return _POINTS / (stated if stated in _BELIEVABLE else _DPI)


def _draw_line(line: ReadLine, page: ReadPage, scale: float) -> str:
    """Write the operators for the text of a line at its place; the parts between line breaks share its height."""
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
        parts.append(_draw_text(text, begin, end, _HEIGHT * share, page.size[1], scale))
    return "".join(parts)


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
