"""The largest images that are opened, and all that are rejected, take a bounded amount of memory."""

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs a peak that can be reset")

WIDTH = 8000
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6

MEASURE = """
import json, sys
from pathlib import Path
from dsocr.document import Line, Outline, Page
from dsocr.errors import DataError
from dsocr.images import open_image
from dsocr.images import CropFailure, crop_page

def crop(path):
    outline = Outline.of_polygon(((10, 10), (500, 10), (500, 60), (10, 60)))
    page = Page(path, "p", "p.xml", (Line("t", "p.xml:1", outline),))
    found = crop_page(page, path.read_bytes(), path.parent, "line")
    return found.reason.name if isinstance(found, CropFailure) else "cropped"

measured = {}
for path in map(Path, sys.argv[1:]):
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak
    try:
        result = crop(path) if path.name.startswith("page") else open_image(path).mode
    except DataError as error:
        result = error.code
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    measured[path.stem] = result, int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps(measured))
"""


def png(height: int, kind: int, depth: int = 8, *, turned: bool = False, size: tuple[int, int] | None = None) -> bytes:
    """A PNG of one colour, 8000 pixels wide, made without holding its pixels; `size` is what its header declares."""
    channels = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}[kind]
    row = b"\0" + b"\x40" * (WIDTH * channels * depth // 8)
    packer = zlib.compressobj(1)
    pixels = b"".join(packer.compress(row * 100) for _ in range(height // 100)) + packer.flush()
    exif = Image.Exif()
    exif[0x0112] = 6
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", *(size or (WIDTH, height)), depth, kind, 0, 0, 0))]
    chunks += [(b"PLTE", bytes(768)), (b"tRNS", b"\x80" * 256)] if kind == PALETTE else []
    chunks += [(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))] if turned else []
    chunks += [(b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


@pytest.mark.slow
def test_no_image_takes_more_memory_than_its_limit(tmp_path: Path) -> None:
    images = {
        "grey": (png(5000, GREY), "L"),
        "grey of 16 bits": (png(5000, GREY, depth=16), "L"),
        "colour": (png(5000, RGB), "RGB"),
        "colour, turned": (png(3400, RGB, turned=True), "RGB"),
        "transparent": (png(3400, RGBA), "RGB"),
        "transparent grey": (png(5000, GREY_ALPHA), "L"),
        "transparent palette": (png(5000, PALETTE), "RGB"),
        "more pixels than any may have": (png(5100, GREY), "too-large"),
        "many, turned": (png(4800, RGB, turned=True), "too-large"),
        "many, transparent": (png(4800, RGBA), "too-large"),
        "a bomb": (png(100, RGB, size=(60_000, 60_000)), "too-large"),
        "cut short": (png(5000, RGB)[:-5000], "image-damaged"),
        "page, the largest": (png(25_000, RGB), "cropped"),
        "page, larger": (png(100, RGB, size=(8000, 26_000)), "BAD_IMAGE"),
    }
    paths = [tmp_path / f"{name}.png" for name in images]
    for path, (data, _) in zip(paths, images.values(), strict=True):
        path.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", MEASURE, *map(str, paths)], capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout)
    assert {name: result for name, (result, _) in measured.items()} == {
        name: wanted for name, (_, wanted) in images.items()
    }
    peaks = {name: peak for name, (_, peak) in measured.items()}
    assert peaks.pop("page, the largest") <= 1_500_000_000
    assert {name: peak for name, peak in peaks.items() if peak > 310_000_000} == {}
