"""Small PDF files to test with."""

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pikepdf
from PIL import Image, ImageDraw

Stream = tuple[str, bytes]
"""The entries of a stream's dictionary, in the syntax of PDF, and its data."""


def scan(size: tuple[int, int] = (200, 300), place: int = 0) -> Image.Image:
    """Paper with writing in its upper left, so that no way of turning it looks the same."""
    image = Image.new("RGB", size, (250, 245, 235))
    drawing = ImageDraw.Draw(image)
    drawing.rectangle((10, 10, size[0] // 2, size[1] // 3), fill=(20, 20, 120))
    drawing.rectangle((10, size[1] // 2 + place, size[0] // 3, size[1] // 2 + place + 5), fill="black")
    return image


def jpeg(image: Image.Image, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def image_object(image: Image.Image, *, as_jpeg: bool = True, more: str = "") -> Stream:
    head = f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} /BitsPerComponent 8 {more}"
    if as_jpeg:
        return f"{head} /ColorSpace /DeviceRGB /Filter /DCTDecode", jpeg(image)
    return f"{head} /ColorSpace /DeviceRGB", image.tobytes()


def write_pdf(
    path: Path,
    images: Sequence[Stream],
    *,
    box: tuple[float, float] = (96, 144),
    draw: str = "q 96 0 0 144 0 0 cm /Im Do Q",
    page: str = "",
) -> Path:
    """A PDF with a page for each image, which `draw` puts on the page; `page` is added to its dictionary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pikepdf.new() as pdf:
        for head, data in images:
            image = pdf.make_stream(data, dict(pikepdf.Object.parse(f"<< {head} >>".encode()).items()))
            added = pdf.add_blank_page(page_size=box)
            font = pikepdf.Object.parse(b"<< /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>")
            added.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(Im=image), Font=font)
            added.Contents = pdf.make_stream(draw.encode())
            for key, value in pikepdf.Object.parse(f"<< {page} >>".encode()).items():
                added.obj[key] = value
        pdf.save(path, compress_streams=False)
    return path


def encrypted_pdf() -> bytes:
    """A PDF that cannot be opened without a password."""
    buffer = io.BytesIO()
    with pikepdf.new() as pdf:
        pdf.add_blank_page()
        pdf.save(buffer, encryption=pikepdf.Encryption(owner="a", user="b"))
    return buffer.getvalue()


def pdf_of_names(path: Path, names: int) -> Path:
    """A PDF of a blank page and, compressed beside it, an array of so many names, invisible to PDFium."""
    packer = zlib.compressobj(9)
    packed = packer.compress(b"9 0 [") + b"".join(packer.compress(b"/A " * 10_000) for _ in range(names // 10_000))
    packed += packer.compress(b"]") + packer.flush()
    head = "/Filter /FlateDecode /Length"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /PieceInfo 9 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 96 144] >>",
        f"<< /Type /ObjStm /N 1 /First 4 {head} {len(packed)} >>\nstream\n".encode() + packed + b"\nendstream",
    ]
    file = b"%PDF-1.5\n"
    places = [struct.pack(">BIH", 0, 0, 65535)]
    for number, content in enumerate(objects, 1):
        places.append(struct.pack(">BIH", 1, len(file), 0))
        file += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    places += [struct.pack(">BIH", 2, 4, 0), struct.pack(">BIH", 1, len(file), 0)]
    table = f"/Type /XRef /Size 11 /W [1 4 2] /Index [0 5 9 2] /Root 1 0 R /Length {7 * len(places)}"
    file += f"10 0 obj\n<< {table} >>\nstream\n".encode() + b"".join(places)
    path.write_bytes(file + f"\nendstream\nendobj\nstartxref\n{file.index(b'10 0 obj')}\n%%EOF\n".encode())
    return path
