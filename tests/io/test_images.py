"""Any image file opens upright, 8-bit and opaque, or is an error."""

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageFile

from dsocr.images import decode_image, open_image
from tests.raising import raises_code

RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def corner_marked(mode: str = "RGB") -> Image.Image:
    """White, 4 wide and 2 high, with one dark pixel top left: no turn of it looks like another."""
    image = Image.new("RGB", (4, 2), "white")
    image.putpixel((0, 0), BLACK)
    return image.convert(mode)


def stored(image: Image.Image, format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def turned(orientation: int, format_: str = "PNG") -> bytes:
    """A picture stored the way a camera would that marks it with `orientation`."""
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}
    image = corner_marked()
    if orientation > 1:
        image = image.transpose(Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    return stored(image, format_, exif=exif)


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_rotated_upright(orientation: int, format_: str) -> None:
    options = turned(orientation, format_)
    image = decode_image(options, name="p").image
    assert image.size == (4, 2)
    assert np.asarray(image.convert("L")).argmin() == 0


def deep(values: Sequence[float], mode: str, kind: npt.DTypeLike) -> Image.Image:
    array: npt.NDArray[Any] = np.array([values], dtype=kind)
    return Image.fromarray(array) if mode != "I;16B" else Image.frombytes(mode, (len(values), 1), array.tobytes())


@pytest.mark.parametrize(
    ("image", "format_", "expected"),
    [
        pytest.param(deep([0, 32768, 65535], "I;16", np.uint16), "PNG", [0, 128, 255], id="16-bit PNG"),
        pytest.param(deep([0, 32768, 65535], "I;16", np.uint16), "TIFF", [0, 128, 255], id="16-bit TIFF"),
        pytest.param(deep([0, 32768, 65535], "I;16B", np.dtype(">u2")), "TIFF", [0, 128, 255], id="16-bit big-endian"),
        pytest.param(deep([0, 100, 255], "I", np.int32), "TIFF", [0, 100, 255], id="32-bit holding 8 bits"),
        pytest.param(deep([0, 32768, 65535], "I", np.int32), "TIFF", [0, 128, 255], id="32-bit holding 16 bits"),
        pytest.param(deep([-5, 0, 100_000], "I", np.int32), "TIFF", [0, 0, 255], id="32-bit beyond 16 bits"),
        pytest.param(deep([0.0, 0.5, 1.0], "F", np.float32), "TIFF", [0, 128, 255], id="floats up to one"),
        pytest.param(deep([0.0, 128.0, 255.0], "F", np.float32), "TIFF", [0, 128, 255], id="floats up to 255"),
    ],
)
def test_deep_grey_keeps_its_shades(image: Image.Image, format_: str, expected: list[int]) -> None:
    opened = decode_image(stored(image, format_), name="p").image
    assert opened.mode == "L"
    assert np.asarray(opened).tolist() == [expected]


def palette_with_transparency() -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpalette([*BLACK, *RED])
    image.putpixel((1, 0), 1)
    image.info["transparency"] = 0
    return image


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        pytest.param(Image.new("RGBA", (1, 1), (0, 0, 0, 0)), WHITE, id="transparent black is paper"),
        pytest.param(Image.new("RGBA", (1, 1), (0, 0, 0, 255)), BLACK, id="opaque black is ink"),
        pytest.param(Image.new("LA", (1, 1), (0, 0)), 255, id="transparent grey stays grey"),
        pytest.param(palette_with_transparency(), WHITE, id="palette with transparency"),
        pytest.param(Image.new("L", (1, 1), 77), 77, id="grey"),
        pytest.param(Image.new("1", (1, 1), 1), 255, id="one bit"),
    ],
)
def test_transparency_becomes_white(image: Image.Image, expected: object) -> None:
    opened = decode_image(stored(image, "PNG"), name="p").image
    assert opened.mode in {"RGB", "L"}
    assert opened.getpixel((0, 0)) == expected


def test_palette_colours_survive() -> None:
    opened = decode_image(stored(palette_with_transparency(), "PNG"), name="p").image
    assert opened.getpixel((1, 0)) == RED


@pytest.mark.parametrize("format_", ["JPEG", "TIFF"])
def test_cmyk_becomes_rgb(format_: str) -> None:
    opened = decode_image(stored(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), format_), name="p").image
    assert opened.mode == "RGB"
    red, green, blue = np.asarray(opened)[0, 0]
    assert red > 240
    assert max(green, blue) < 15


def png_header(width: int, height: int) -> bytes:
    """A PNG that announces a size and holds nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64), dtype=np.uint8))


def frames(format_: str) -> bytes:
    return stored(Image.new("RGB", (8, 8)), format_, save_all=True, append_images=[Image.new("RGB", (8, 8), RED)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "image-empty", id="zero bytes"),
        pytest.param(b"%PDF-1.7", "image-format", id="not an image"),
        pytest.param(half(stored(noise(), "JPEG")), "image-damaged", id="half a JPEG"),
        pytest.param(half(stored(noise(), "PNG")), "image-damaged", id="half a PNG"),
        pytest.param(half(stored(noise(), "TIFF")), "image-damaged", id="half a TIFF"),
        pytest.param(half(stored(noise(), "WEBP")), "image-damaged", id="half a WEBP"),
        pytest.param(stored(Image.new("1", (10_000, 10_000)), "PNG"), "image-too-large", id="100 megapixels in 12 kB"),
        pytest.param(png_header(10_000, 5_000), "image-too-large", id="50 megapixels, never decoded"),
        pytest.param(png_header(60_000, 60_000), "image-too-large", id="3600 megapixels"),
        pytest.param(frames("TIFF"), "image-frames", id="TIFF of two pages"),
        pytest.param(frames("GIF"), "image-frames", id="animated GIF"),
        pytest.param(frames("PNG"), "image-frames", id="animated PNG"),
        pytest.param(stored(deep([0.0, float("nan")], "F", np.float32), "TIFF"), "image-damaged", id="not a number"),
        pytest.param(stored(Image.new("RGB", (8, 8)), "ICO"), "image-format", id="icon"),
    ],
)
def test_what_cannot_be_opened_faithfully_is_rejected(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "scan.png"
    path.write_bytes(data)
    with raises_code(message) as error:
        open_image(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises_code("image-unreadable"):
        open_image(tmp_path / "gone.png")


def test_a_tiff_named_png_opens_as_a_tiff(tmp_path: Path) -> None:
    path = tmp_path / "scan.png"
    path.write_bytes(stored(corner_marked(), "TIFF"))
    assert open_image(path).size == (4, 2)
    assert decode_image(path.read_bytes(), name=path).format == "TIFF"


def test_the_limit_on_pixels_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "scan.png"
    corner_marked().save(path)
    with raises_code("image-too-large"):
        open_image(path, max_pixels=7)


def test_a_photograph_with_a_preview_is_one_picture() -> None:
    data = stored(corner_marked(), "MPO", save_all=True, append_images=[Image.new("RGB", (2, 2))])
    opened = decode_image(data, name="p")
    assert (opened.image.size, opened.format) == ((4, 2), "JPEG")


@pytest.mark.parametrize(
    ("make", "is_as_stored"),
    [
        pytest.param(lambda: stored(corner_marked(), "PNG"), True, id="plain colour"),
        pytest.param(lambda: stored(corner_marked("L"), "JPEG"), True, id="plain grey"),
        pytest.param(lambda: turned(6), False, id="turned by its tag"),
        pytest.param(lambda: stored(corner_marked("P"), "PNG"), False, id="palette"),
        pytest.param(lambda: stored(corner_marked("RGBA"), "PNG"), False, id="alpha channel"),
    ],
)
def test_only_a_file_that_shows_the_picture_as_it_is_may_be_copied(
    make: Callable[[], bytes], is_as_stored: bool
) -> None:
    assert decode_image(make(), name="p").as_stored is is_as_stored


def test_damaged_files_stay_refused_for_everyone() -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_2000_is_read_as_it_was_written(tmp_path: Path, mode: str) -> None:
    image = Image.effect_noise((60, 40), 50).convert(mode)
    image.save(tmp_path / "a.jp2", irreversible=False)
    found = open_image(tmp_path / "a.jp2")
    assert (found.mode, found.tobytes()) == (mode, image.tobytes())


def test_smaller_versions_behind_the_page_of_a_tiff_are_passed_over(tmp_path: Path) -> None:
    page = Image.effect_noise((400, 300), 50)
    page.save(tmp_path / "a.tif", save_all=True, append_images=[page.resize((200, 150)), page.resize((100, 75))])
    assert open_image(tmp_path / "a.tif").tobytes() == page.tobytes()
