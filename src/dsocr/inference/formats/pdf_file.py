"""A PDF file of images with invisible text, written object by object, so that memory stays flat.

The font has no shapes: one blank glyph stands for every code, and a table says that codes are letters (UTF-16), so any
script can be searched and copied without a font for it. Its objects follow ISO 32000-1, 9.7 and 9.10.
"""

import hashlib
import io
import struct
import zlib
from typing import BinaryIO

from PIL import Image

_FONT, _CID_FONT, _DESCRIPTOR, _FONT_FILE, _UNICODE, _GLYPHS = range(3, 9)
_CATALOG, _PAGES = 1, 2


class PdfFile:
    """Pages are written as they are added; without `close` the file is not whole."""

    def __init__(self, stream: BinaryIO, title: str, producer: str) -> None:
        self._stream = stream
        self._told = f"<< /Title {_text(title)} /Producer {_text(producer)} >>"
        self._offsets: dict[int, int] = {}
        self._pages: list[int] = []
        self._next = _GLYPHS + 1
        self._hash = hashlib.sha256()
        self._at = 0
        self._write(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
        self._write_font()

    def add_page(self, image: bytes, pixels: tuple[int, int], size: tuple[float, float], text: str) -> None:
        """A page of `size` in points showing a JPEG or PNG file; `text` are operators that use the font `/F`."""
        width, height = size
        shown = self._object(*_image(image, pixels))
        drawn = f"q {width:.2f} 0 0 {height:.2f} 0 0 cm /I Do Q\n{text}".encode("ascii")
        content = self._object("/Filter /FlateDecode", zlib.compress(drawn))
        resources = f"<< /XObject << /I {shown} 0 R >> /Font << /F {_FONT} 0 R >> >>"
        page = f"<< /Type /Page /Parent {_PAGES} 0 R /MediaBox [0 0 {width:.2f} {height:.2f}]"
        self._pages.append(self._object(f"{page} /Resources {resources} /Contents {content} 0 R >>"))

    def close(self) -> None:
        """Writes the list of pages and the table of objects."""
        kids = " ".join(f"{page} 0 R" for page in self._pages)
        self._object(f"<< /Type /Pages /Kids [{kids}] /Count {len(self._pages)} >>", number=_PAGES)
        self._object(f"<< /Type /Catalog /Pages {_PAGES} 0 R >>", number=_CATALOG)
        told = self._object(self._told)
        start, count, digest = self._at, self._next, self._hash.hexdigest()[:32]
        rows = "".join(f"{self._offsets[number]:010d} 00000 n \n" for number in range(1, count))
        trailer = f"<< /Size {count} /Root {_CATALOG} 0 R /Info {told} 0 R /ID [<{digest}> <{digest}>] >>"
        table = f"xref\n0 {count}\n0000000000 65535 f \n{rows}trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n"
        self._write(table.encode("ascii"))

    def _write_font(self) -> None:
        cid = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
        self._object(
            f"<< /Type /Font /Subtype /Type0 /BaseFont /Blank /Encoding /Identity-H"
            f" /DescendantFonts [{_CID_FONT} 0 R] /ToUnicode {_UNICODE} 0 R >>",
            number=_FONT,
        )
        self._object(
            f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Blank {cid} /DW 500"
            f" /FontDescriptor {_DESCRIPTOR} 0 R /CIDToGIDMap {_GLYPHS} 0 R >>",
            number=_CID_FONT,
        )
        self._object(
            "<< /Type /FontDescriptor /FontName /Blank /Flags 5 /FontBBox [0 0 500 1000] /ItalicAngle 0 /Ascent 1000"
            f" /Descent 0 /CapHeight 1000 /StemV 80 /FontFile2 {_FONT_FILE} 0 R >>",
            number=_DESCRIPTOR,
        )
        font = blank_font()
        self._object(f"/Length1 {len(font)} /Filter /FlateDecode", zlib.compress(font), number=_FONT_FILE)
        self._object("/Filter /FlateDecode", zlib.compress(_unicode_map().encode("ascii")), number=_UNICODE)
        self._object("/Filter /FlateDecode", zlib.compress(b"\0\1" * 65536), number=_GLYPHS)

    def _object(self, head: str, data: bytes | None = None, *, number: int | None = None) -> int:
        """Writes an object: a dictionary as it is, or with `data` a stream whose dictionary holds `head`."""
        if number is None:
            number, self._next = self._next, self._next + 1
        self._offsets[number] = self._at
        self._write(f"{number} 0 obj\n".encode())
        if data is None:
            self._write(f"{head}\nendobj\n".encode("ascii"))
        else:
            self._write(f"<< {head} /Length {len(data)} >>\nstream\n".encode("ascii"))
            self._write(data)
            self._write(b"\nendstream\nendobj\n")
        return number

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._hash.update(data)
        self._at += len(data)


def _image(file: bytes, pixels: tuple[int, int]) -> tuple[str, bytes]:
    """The dictionary and data of an image object; the compressed pixels of JPEG and PNG are taken as they are."""
    with Image.open(io.BytesIO(file), formats=("JPEG", "PNG")) as image:
        colours = 1 if image.mode == "L" else 3
        is_jpeg = image.format == "JPEG"
    space = "/DeviceGray" if colours == 1 else "/DeviceRGB"
    head = f"/Type /XObject /Subtype /Image /Width {pixels[0]} /Height {pixels[1]} /BitsPerComponent 8"
    if is_jpeg:
        return f"{head} /ColorSpace {space} /Filter /DCTDecode", file
    # 15 is PNG's own way of predicting pixels, a kind for each row.
    predicted = f"<< /Predictor 15 /Colors {colours} /BitsPerComponent 8 /Columns {pixels[0]} >>"
    return f"{head} /ColorSpace {space} /Filter /FlateDecode /DecodeParms {predicted}", _png_pixels(file)


def _png_pixels(file: bytes) -> bytes:
    """The compressed pixels of a PNG file that Pillow wrote: not interlaced, 8 bits, grey or RGB."""
    at, parts = 8, []
    while at < len(file):
        (length,) = struct.unpack(">I", file[at : at + 4])
        if file[at + 4 : at + 8] == b"IDAT":
            parts.append(file[at + 8 : at + 8 + length])
        at += length + 12
    return b"".join(parts)


def _unicode_map() -> str:
    """Codes are UTF-16; a range may not go beyond its last byte, and a block not hold more than 100 of them."""
    ranges = [f"<{high:02x}00> <{high:02x}ff> <{high:02x}00>" for high in range(256)]
    blocks = [ranges[place : place + 100] for place in range(0, len(ranges), 100)]
    listed = "".join(f"{len(block)} beginbfrange\n" + "\n".join(block) + "\nendbfrange\n" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
        "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
        f"1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n{listed}"
        "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
    )


def blank_font() -> bytes:
    """A TrueType font of two empty glyphs, half as wide as they are high, with the tables that a PDF asks for."""
    tables = {
        b"glyf": b"\0\0\0\0",
        b"head": struct.pack(
            ">IIIIHHqqhhhhHHhhh", 0x10000, 0x10000, 0, 0x5F0F3CF5, 3, 1000, 0, 0, 0, 0, 500, 1000, 0, 8, 2, 0, 0
        ),
        b"hhea": struct.pack(">IhhhHhhhhhh8xhH", 0x10000, 1000, 0, 0, 500, 0, 0, 500, 1, 0, 0, 0, 2),
        b"hmtx": struct.pack(">HhHh", 500, 0, 500, 0),
        b"loca": struct.pack(">HHH", 0, 0, 0),
        b"maxp": struct.pack(">IHHHHHHHHHHHHHH", 0x10000, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0),
    }
    at = 12 + 16 * len(tables)
    directory = struct.pack(">IHHHH", 0x10000, len(tables), 64, 2, 16 * len(tables) - 64)
    content = b""
    for tag, table in sorted(tables.items()):
        padded = table + b"\0" * (-len(table) % 4)
        directory += struct.pack(">4sIII", tag, _checksum(padded), at + len(content), len(table))
        content += padded
    font = directory + content
    head = at + sum(len(table) + -len(table) % 4 for tag, table in sorted(tables.items()) if tag < b"head")
    adjustment = struct.pack(">I", (0xB1B0AFBA - _checksum(font)) & 0xFFFFFFFF)
    return font[: head + 8] + adjustment + font[head + 12 :]


def _checksum(data: bytes) -> int:
    words: tuple[int, ...] = struct.unpack(f">{len(data) // 4}I", data)
    return sum(words) & 0xFFFFFFFF


def _text(text: str) -> str:
    """A text string, in UTF-16 with its mark."""
    return f"<feff{text.encode('utf-16-be', 'replace').hex()}>"
