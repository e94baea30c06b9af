"""Small PDF files to test with, written by hand so that every object in them is known."""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw


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


def stream(head: str, data: bytes) -> bytes:
    return f"<< {head} /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream"


def image_object(image: Image.Image, *, as_jpeg: bool = True, more: str = "") -> bytes:
    head = f"/Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} /BitsPerComponent 8 {more}"
    if as_jpeg:
        return stream(f"{head} /ColorSpace /DeviceRGB /Filter /DCTDecode", jpeg(image))
    return stream(f"{head} /ColorSpace /DeviceRGB", image.tobytes())


def write_pdf(
    path: Path,
    images: Sequence[bytes],
    *,
    box: tuple[float, float] = (96, 144),
    draw: str = "q 96 0 0 144 0 0 cm /Im Do Q",
    page: str = "",
) -> Path:
    """A PDF with a page for each image object, which `draw` puts on the page; `page` is added to its dictionary."""
    count = len(images)
    kids = " ".join(f"{3 + 3 * place} 0 R" for place in range(count))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
    ]
    for place, image in enumerate(images):
        own = 3 + 3 * place
        font = "/Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
        resources = f"<< /XObject << /Im {own + 2} 0 R >> {font} >>"
        head = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {box[0]} {box[1]}] {page} /Resources {resources}"
        objects += [f"{head} /Contents {own + 1} 0 R >>".encode(), stream("", draw.encode()), image]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_file(objects))
    return path


def _file(objects: Sequence[bytes], trailer: str = "") -> bytes:
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    start = len(data)
    rows = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    data += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{rows}".encode()
    return data + f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\nstartxref\n{start}\n%%EOF".encode()


def encrypted_pdf() -> bytes:
    """A PDF that cannot be opened: no key in it matches a password."""
    keys = f"/O <{'28' * 32}> /U <{'42' * 32}>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
        f"<< /Filter /Standard /V 1 /R 2 {keys} /P -4 >>".encode(),
    ]
    return _file(objects, f"/Encrypt 4 0 R /ID [<{'00' * 16}> <{'00' * 16}>]")
