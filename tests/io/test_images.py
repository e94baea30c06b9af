"""Any image file opens upright, 8-bit and opaque, or is an error."""

import io
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFile

from dsocr import images
from dsocr.errors import DataError
from dsocr.images import (
    IMAGE_SUFFIXES,
    count_frames,
    decode_image,
    median_colour,
    open_image,
    read_frame,
    upright_size,
)
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
    """An image stored the way a camera would that marks it with `orientation`."""
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
    data = turned(orientation, format_)
    image = decode_image(data, name="p").image
    assert image.size == upright_size(data) == (4, 2)
    assert np.asarray(image.convert("L")).argmin() == 0


def deep(values: Sequence[float], kind: npt.DTypeLike, format_: str = "TIFF") -> bytes:
    return stored(Image.fromarray(np.array([values], dtype=kind)), format_)


def palette_with_transparency() -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpalette([*BLACK, *RED])
    image.putpixel((1, 0), 1)
    image.info["transparency"] = 0
    return image


TWELVE_BITS = Image.fromarray(np.array([[0, 2048, 4095]], dtype=np.uint16))
BIG_ENDIAN = Image.frombytes("I;16B", (3, 1), np.array([0, 32768, 65535], dtype=">u2").tobytes())


@pytest.mark.parametrize(
    ("data", "mode", "expected"),
    [
        pytest.param(deep([0, 32768, 65535], np.uint16, "PNG"), "L", [0, 128, 255], id="16-bit PNG"),
        pytest.param(deep([0, 32768, 65535], np.uint16), "L", [0, 128, 255], id="16-bit TIFF"),
        pytest.param(stored(BIG_ENDIAN, "TIFF"), "L", [0, 128, 255], id="16-bit big-endian"),
        pytest.param(deep([0, 100, 255], np.uint16), "L", [0, 100, 255], id="16-bit holding 8 bits"),
        pytest.param(deep([0, 512, 1023], np.uint16, "PNG"), "L", [0, 128, 255], id="10 bits in a PNG"),
        pytest.param(deep([0, 2048, 4095], np.uint16), "L", [0, 128, 255], id="12 bits in a TIFF"),
        pytest.param(deep([0, 2048, 3500], np.uint16, "PNG"), "L", [0, 128, 218], id="12 bits, a dark scan"),
        pytest.param(deep([8000, 16383], np.uint16), "L", [125, 255], id="14 bits, a bright scan"),
        pytest.param(stored(TWELVE_BITS, "TIFF", tiffinfo={262: 0}), "L", [255, 127, 0], id="12 bits, white is 0"),
        pytest.param(deep([0, 2048, 4095], np.int32), "L", [0, 128, 255], id="32-bit holding 12 bits"),
        pytest.param(deep([0, 100, 255], np.int32), "L", [0, 100, 255], id="32-bit holding 8 bits"),
        pytest.param(deep([0, 32768, 65535], np.int32), "L", [0, 128, 255], id="32-bit holding 16 bits"),
        pytest.param(deep([-5, 0, 100_000], np.int32), "L", [0, 0, 255], id="32-bit beyond 16 bits"),
        pytest.param(deep([0.0, 0.5, 1.0], np.float32), "L", [0, 128, 255], id="floats up to one"),
        pytest.param(deep([0.0, 128.0, 255.0], np.float32), "L", [0, 128, 255], id="floats up to 255"),
        pytest.param(stored(Image.new("RGBA", (1, 1), (0, 0, 0, 0)), "PNG"), "RGB", [WHITE], id="transparent is paper"),
        pytest.param(stored(Image.new("RGBA", (1, 1), (0, 0, 0, 255)), "PNG"), "RGB", [BLACK], id="opaque is ink"),
        pytest.param(stored(Image.new("LA", (1, 1), (0, 0)), "PNG"), "L", [255], id="transparent grey stays grey"),
        pytest.param(stored(palette_with_transparency(), "PNG"), "RGB", [WHITE, RED], id="palette with transparency"),
        pytest.param(stored(Image.new("L", (1, 1), 77), "PNG"), "L", [77], id="grey"),
        pytest.param(stored(Image.new("1", (1, 1), 1), "PNG"), "L", [255], id="one bit"),
        pytest.param(stored(Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF"), "RGB", [RED], id="CMYK"),
    ],
)
def test_every_kind_becomes_grey_or_rgb_with_its_shades(data: bytes, mode: str, expected: list[object]) -> None:
    image = decode_image(data, name="p").image
    assert (image.mode, [image.getpixel((x, 0)) for x in range(image.width)]) == (mode, expected)


def png_header(width: int, height: int) -> bytes:
    """A PNG that declares a size and has no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def half(format_: str) -> bytes:
    noise = np.random.default_rng(1).integers(0, 255, (64, 64), dtype=np.uint8)
    data = stored(Image.fromarray(noise), format_)
    return data[: len(data) // 2]


def frames(format_: str) -> bytes:
    return stored(Image.new("RGB", (8, 8)), format_, save_all=True, append_images=[Image.new("RGB", (8, 8), RED)])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"", "image-empty", id="zero bytes"),
        pytest.param(b"%PDF-1.7", "image-format", id="not an image"),
        pytest.param(stored(Image.new("RGB", (8, 8)), "ICO"), "image-format", id="icon"),
        pytest.param(half("JPEG"), "image-damaged", id="half a JPEG"),
        pytest.param(half("PNG"), "image-damaged", id="half a PNG"),
        pytest.param(half("TIFF"), "image-damaged", id="half a TIFF"),
        pytest.param(half("WEBP"), "image-damaged", id="half a WEBP"),
        pytest.param(deep([0.0, float("nan")], np.float32), "image-damaged", id="not a number"),
        pytest.param(stored(Image.new("1", (10_000, 10_000)), "PNG"), "too-large", id="100 megapixels in 12 kB"),
        pytest.param(png_header(8_000, 5_001), "too-large", id="a row too many, never decoded"),
        pytest.param(png_header(60_000, 60_000), "too-large", id="3600 megapixels"),
        pytest.param(frames("TIFF"), "image-frames", id="TIFF of two pages"),
        pytest.param(frames("GIF"), "image-frames", id="animated GIF"),
        pytest.param(frames("PNG"), "image-frames", id="animated PNG"),
        pytest.param(None, "file-unreadable", id="no file"),
    ],
)
def test_a_file_that_cannot_be_opened_faithfully_is_an_error(tmp_path: Path, data: bytes | None, code: str) -> None:
    path = tmp_path / "scan.png"
    if data is not None:
        path.write_bytes(data)
    with raises_code(code, str(path)):
        open_image(path)


def test_the_limit_on_pixels_is_the_largest_size_that_opens(tmp_path: Path) -> None:
    corner_marked().save(tmp_path / "scan.png")
    assert open_image(tmp_path / "scan.png", max_pixels=8).size == (4, 2)
    with raises_code("too-large"):
        open_image(tmp_path / "scan.png", max_pixels=7)


def test_smaller_versions_behind_an_image_are_ignored(tmp_path: Path) -> None:
    photograph = stored(corner_marked(), "MPO", save_all=True, append_images=[Image.new("RGB", (2, 2))])
    assert (decode_image(photograph, name="p").image.size, decode_image(photograph, name="p").format) == (
        (4, 2),
        "JPEG",
    )
    page = Image.effect_noise((400, 300), 50)
    page.save(tmp_path / "a.tif", save_all=True, append_images=[page.resize((200, 150)), page.resize((100, 75))])
    assert open_image(tmp_path / "a.tif").tobytes() == page.tobytes()
    assert count_frames(tmp_path / "a.tif") == 1


def test_pages_of_a_tiff_are_read_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(frames("TIFF"))
    assert count_frames(tmp_path / "a.tif") == 2
    pages = [decode_image(read_frame(tmp_path / "a.tif", number), name="p").image for number in (1, 2)]
    assert [page.getpixel((0, 0)) for page in pages] == [BLACK, RED]


@pytest.mark.parametrize(
    ("data", "is_as_stored"),
    [
        pytest.param(stored(corner_marked(), "PNG"), True, id="plain colour"),
        pytest.param(stored(corner_marked("L"), "JPEG"), True, id="plain grey"),
        pytest.param(turned(6), False, id="turned by its tag"),
        pytest.param(stored(corner_marked("P"), "PNG"), False, id="palette"),
        pytest.param(stored(corner_marked("RGBA"), "PNG"), False, id="alpha channel"),
    ],
)
def test_only_a_file_that_shows_the_image_unchanged_may_be_copied(data: bytes, is_as_stored: bool) -> None:
    assert decode_image(data, name="p").as_stored is is_as_stored


def test_truncated_files_stay_errors_for_the_whole_process() -> None:
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_2000_is_read_as_it_was_written(tmp_path: Path, mode: str) -> None:
    image = Image.effect_noise((60, 40), 50).convert(mode)
    image.save(tmp_path / "a.jp2", irreversible=False)
    found = open_image(tmp_path / "a.jp2")
    assert (found.mode, found.tobytes()) == (mode, image.tobytes())


@pytest.mark.parametrize("tile", [None, (16, 16)], ids=["one tile", "small tiles"])
def test_jpeg_2000_with_large_tiles_is_read_at_half_its_size(
    tmp_path: Path, tile: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "_MAX_TILE", 60 * 40 // 5)
    image = Image.effect_noise((60, 40), 50)
    image.paste(0, (0, 0, 30, 40))
    image.save(tmp_path / "a.jp2", irreversible=False, tile_size=tile)
    found = np.asarray(open_image(tmp_path / "a.jp2"), dtype=int)
    assert found.shape == (40, 60)
    assert (found.tobytes() == np.asarray(image, dtype=int).tobytes()) == (tile is not None)
    assert found[:, :26].max() < 30 < found[:, 34:].mean()


def test_heic_is_read(tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra heic is not installed")
    image = Image.new("RGB", (96, 64), (200, 30, 30))
    image.paste((20, 20, 220), (0, 0, 96, 32))
    pillow_heif.register_heif_opener()
    image.save(tmp_path / "a.heic", "HEIF", quality=90)
    found = open_image(tmp_path / "a.heic")
    assert found.size == upright_size(tmp_path / "a.heic") == (96, 64)
    assert np.asarray(found)[16, 48].tolist() == pytest.approx([20, 20, 220], abs=30)
    assert np.asarray(found)[48, 48].tolist() == pytest.approx([200, 30, 30], abs=30)
    assert ".heic" in IMAGE_SUFFIXES
    (tmp_path / "b.heic").write_bytes((tmp_path / "a.heic").read_bytes()[:-40])
    with raises_code("image-damaged"):
        open_image(tmp_path / "b.heic")


def test_hostile_heic_takes_no_time(tmp_path: Path) -> None:
    """libheif has limits of its own, which no piece that we count goes past."""
    pillow_heif = pytest.importorskip("pillow_heif", reason="the extra heic is not installed")
    pillow_heif.register_heif_opener()
    Image.new("RGB", (640, 640)).save(tmp_path / "a.heic", "HEIF", quality=1)
    intact, boxes = (tmp_path / "a.heic").read_bytes(), struct.pack(">I4s", 8, b"free") * 1_000_000
    meta = intact.index(b"meta") - 4
    (size,) = struct.unpack_from(">I", intact, meta)
    inside = struct.pack(">I", size + len(boxes)) + intact[meta + 4 : meta + size] + boxes
    stated = intact.replace(struct.pack(">II", 640, 640), struct.pack(">II", 64, 64))
    assert stated != intact
    began = time.process_time()
    assert decode_image(intact + boxes, name="a").image.size == (640, 640)
    for content in (intact[:meta] + inside + intact[meta + size :], stated):
        with pytest.raises(DataError):
            decode_image(content, name="a")
    assert time.process_time() - began < 1


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["L", "RGB"]), st.sampled_from([1, 2, 8]))
def test_the_median_colour_is_that_of_numpy(width: int, height: int, mode: str, step: int) -> None:
    noise = np.random.default_rng(width * 41 + height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(noise).convert(mode)
    pixels = np.asarray(image)[::step, ::step].reshape(-1, len(image.getbands()))
    median = np.median(pixels, axis=0).astype(int).tolist()
    assert median_colour(image, step) == (median[0] if mode == "L" else tuple(median))
