"""The largest pictures that are opened, and all that are refused, take no more than 300 MB."""

import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="the system does not tell a process's peak"
)

MOST = 300_000_000
WIDTH = 8000
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6

OPEN = """
import json, sys
from pathlib import Path
from dsocr.images import open_image
from dsocr.errors import DataError
try:
    result = open_image(Path(sys.argv[1])).mode
except DataError as error:
    result = error.code
# Not ru_maxrss, which begins with what the parent had.
status = Path("/proc/self/status").read_text(encoding="utf-8")
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([result, peak]))
"""


def png(height: int, kind: int, depth: int = 8, exif: bytes = b"", size: tuple[int, int] | None = None) -> bytes:
    """A PNG of one colour, 8000 pixels wide, made without holding its pixels; `size` is what it says it has."""
    channels = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}[kind]
    row = b"\0" + b"\x40" * (WIDTH * channels * depth // 8)
    packer = zlib.compressobj(1)
    pixels = b"".join(packer.compress(row * 100) for _ in range(height // 100)) + packer.flush()
    head = struct.pack(">IIBBBBB", *(size or (WIDTH, height)), depth, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", bytes(768)), (b"tRNS", b"\x80" * 256), (b"eXIf", exif), (b"IDAT", pixels)]
    wanted = [(name, data) for name, data in parts if data and (kind == PALETTE or name not in {b"PLTE", b"tRNS"})]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in [*wanted, (b"IEND", b"")])


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def lying() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes().removeprefix(b"Exif\0\0")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(lambda: png(5000, GREY), "L", id="grey"),
        pytest.param(lambda: png(5000, GREY, depth=16), "L", id="grey of 16 bits"),
        pytest.param(lambda: png(5000, RGB), "RGB", id="colour"),
        pytest.param(lambda: png(3400, RGB, exif=lying()), "RGB", id="colour, turned"),
        pytest.param(lambda: png(3400, RGBA), "RGB", id="transparent"),
        pytest.param(lambda: png(5000, GREY_ALPHA), "L", id="transparent grey"),
        pytest.param(lambda: png(5000, PALETTE), "RGB", id="transparent palette"),
        pytest.param(lambda: png(5100, GREY), "image-too-large", id="more pixels than any may have"),
        pytest.param(lambda: png(4800, RGB, exif=lying()), "image-too-large", id="many, turned"),
        pytest.param(lambda: png(4800, RGBA), "image-too-large", id="many, transparent"),
        pytest.param(lambda: png(100, RGB, size=(60_000, 60_000)), "image-too-large", id="a bomb"),
        pytest.param(lambda: png(5000, RGB)[:-5000], "image-damaged", id="cut short"),
    ],
)
def test_no_picture_takes_more_than_it_may(tmp_path: Path, data: Callable[[], bytes], expected: str) -> None:
    (tmp_path / "p.png").write_bytes(data())
    command = [sys.executable, "-c", OPEN, str(tmp_path / "p.png")]
    result, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert result == expected
    assert peak <= MOST


CROP = """
import json, sys
from pathlib import Path
from dsocr.document import Line, Outline, Page
from dsocr.io.cropping import CroppedPage, crop_page
path = Path(sys.argv[1])
outline = Outline.of_polygon(((10, 10), (500, 10), (500, 60), (10, 60)))
found = crop_page(Page(path, "p", "p.xml", (Line("t", "p.xml:1", outline),)), path.read_bytes(), path.parent, "line")
status = Path("/proc/self/status").read_text(encoding="utf-8")
print(json.dumps([isinstance(found, CroppedPage), int(status.split("VmHWM:")[1].split()[0]) * 1024]))
"""


@pytest.mark.parametrize(
    ("megapixels", "expected"),
    [
        pytest.param(100, True, id="a large scan"),
        pytest.param(200, True, id="the largest"),
        pytest.param(208, False, id="more"),
    ],
)
def test_lines_of_large_scans_are_cropped_within_a_gigabyte_and_a_half(
    tmp_path: Path, megapixels: int, expected: bool
) -> None:
    (tmp_path / "p.png").write_bytes(png(megapixels * 1_000_000 // WIDTH, RGB))
    command = [sys.executable, "-c", CROP, str(tmp_path / "p.png")]
    is_cropped, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert is_cropped is expected
    assert peak <= 1_500_000_000
