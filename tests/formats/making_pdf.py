"""Small PDF files to test with."""

import io
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
