"""A line is cut along its polygon, with the page's own paper around it."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dsocr.document import Line, Outline, Page, SkipReason
from dsocr.io.cropping import (
    MARGIN,
    CropFailure,
    CroppedLine,
    crop_box,
    crop_key,
    crop_line,
    crop_page,
    cropped_outline,
    paper_colour,
)
from tests.data.making import picture

PAPER, INK = (240, 230, 200), (20, 20, 90)
TRIANGLE = Outline.of_polygon(((10, 10), (50, 10), (10, 30)))


def source_image(image: Path, outline: Outline | None, size: tuple[int, int] | None = None) -> Page:
    return Page(image, "p", "p.xml", (Line("т", "p.xml:1", outline),), size)


def cut(
    folder: Path, outline: Outline | None, image: Path, size: tuple[int, int] | None = None
) -> CroppedLine | CropFailure:
    found = crop_page(source_image(image, outline, size), image.read_bytes(), folder, "p")
    return found if isinstance(found, CropFailure) else found.lines[0]


def stored(folder: Path, outline: Outline | None, image: Path) -> str:
    """The name of the file that was cut."""
    line = cut(folder, outline, image)
    assert isinstance(line, CroppedLine)
    assert hashlib.sha256((folder / line.file).read_bytes()).hexdigest() == line.sha256
    return line.file


def test_outside_the_polygon_is_paper() -> None:
    page = Image.new("RGB", (100, 50), PAPER)
    page.paste(INK, (0, 0, 45, 50))
    crop = crop_line(page, TRIANGLE, PAPER)
    assert crop.size == (41, 21)
    assert crop.getpixel((0, 0)) == INK
    assert crop.getpixel((40, 20)) == PAPER
    assert crop.getpixel((35, 20)) == PAPER, "ink of a neighbour, outside the triangle"


def test_a_box_is_cut_as_it_is() -> None:
    page = Image.new("L", (100, 50), 200)
    assert crop_line(page, Outline((10, 5, 30, 15)), 200).size == (20, 10)


def test_on_large_pages_some_room_is_left_around_the_polygon() -> None:
    size = (2200, 3300)
    margin = round(3300 * MARGIN)
    assert crop_box(TRIANGLE, size) == (10 - margin, 10 - margin, 51 + margin, 31 + margin)
    crop = crop_line(Image.new("L", size, 0), TRIANGLE, 255)
    assert crop.getpixel((margin, margin // 2)) == 0, "just outside the polygon"
    assert crop.getpixel((crop.width - 1, crop.height - 1)) == 255, "far outside"


def test_a_polygon_over_the_edge_is_clipped() -> None:
    outline = Outline.of_polygon(((-20, -20), (30, -20), (30, 30), (-20, 30)))
    assert crop_line(Image.new("L", (20, 20), 9), outline, 0).size == (20, 20)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_paper_is_the_median_not_the_mean(mode: str) -> None:
    page = Image.new("RGB", (600, 400), PAPER)
    page.paste(INK, (0, 0, 200, 400))
    expected = page.convert(mode).getpixel((599, 399))
    assert paper_colour(page.convert(mode)) == expected


def test_outlines_grow_with_the_image() -> None:
    image = source_image(Path("p.png"), TRIANGLE, (100, 50))
    outline = cropped_outline(image.lines[0], image, (200, 100))
    assert outline is not None
    assert outline.polygon == ((20, 20), (100, 20), (20, 60))
    assert outline.box == (20, 20, 102, 62)


def test_a_key_tells_what_changes_the_pixels_and_nothing_else() -> None:
    image = source_image(Path("p.png"), TRIANGLE, (100, 50))
    key = crop_key(image, b"picture")
    assert key == crop_key(replace(image, name="q", writer="anna", where="elsewhere"), b"picture")
    assert key == crop_key(replace(image, lines=(replace(image.lines[0], text="другой"),)), b"picture")
    others = [
        crop_key(image, b"another picture"),
        crop_key(replace(image, size=(50, 25)), b"picture"),
        crop_key(replace(image, lines=()), b"picture"),
        crop_key(replace(image, lines=(Line("т", "p.xml:1", Outline(TRIANGLE.box)),)), b"picture"),
    ]
    assert len({key, *others}) == 5


@pytest.mark.parametrize(
    ("outline", "size", "reason"),
    [
        pytest.param(TRIANGLE, (50, 100), SkipReason.OTHER_SIZE, id="a page turned on its side"),
        pytest.param(Outline((200, 10, 300, 30)), (100, 50), SkipReason.OUTSIDE, id="beside the image"),
        pytest.param(Outline((-50, -50, -10, -10)), (100, 50), SkipReason.OUTSIDE, id="before the image"),
        pytest.param(Outline((10, 10, 14, 40)), (100, 50), SkipReason.TOO_SMALL, id="four pixels wide"),
        pytest.param(Outline((30, 30, 10, 10)), (100, 50), SkipReason.OUTSIDE, id="turned inside out"),
    ],
)
def test_a_line_that_cannot_be_cut_is_skipped(
    tmp_path: Path, outline: Outline, size: tuple[int, int], reason: SkipReason
) -> None:
    line = cut(tmp_path, outline, picture(tmp_path / "p.png"), size)
    assert isinstance(line, CropFailure)
    assert line.reason == reason


def test_an_unreadable_image_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"")
    assert cut(tmp_path, TRIANGLE, tmp_path / "p.png") == CropFailure(SkipReason.BAD_IMAGE, "the image file is empty")


def test_lines_of_a_jpeg_stay_jpeg_at_full_colour(tmp_path: Path) -> None:
    image = picture(tmp_path / "in.jpg", quality=90)
    file = stored(tmp_path, TRIANGLE, image)
    with Image.open(tmp_path / file) as line:
        assert (file, line.format) == ("p_0001.jpg", "JPEG")
        assert [(layer[1], layer[2]) for layer in line.layer] == [(1, 1)] * 3, "colour is not subsampled"  # type: ignore[attr-defined]
        assert max(line.quantization[0]) <= 12, "quality 95"  # type: ignore[attr-defined]


def test_lines_of_anything_else_are_png(tmp_path: Path) -> None:
    file = stored(tmp_path, TRIANGLE, picture(tmp_path / "in.tif"))
    with Image.open(tmp_path / file) as line:
        assert (file, line.format) == ("p_0001.png", "PNG")


@pytest.mark.parametrize(
    ("name", "options", "is_copied", "file"),
    [
        pytest.param("in.png", {}, True, "p.png", id="PNG"),
        pytest.param("in.jpg", {}, True, "p.jpg", id="JPEG"),
        pytest.param("in.tif", {}, False, "p.png", id="TIFF"),
        pytest.param("in.bmp", {}, False, "p.png", id="BMP"),
        pytest.param("in.png", {"format": "TIFF"}, False, "p.png", id="TIFF called PNG"),
        pytest.param("in.png", {"format": "JPEG"}, True, "p.jpg", id="JPEG called PNG"),
    ],
)
def test_a_whole_image_is_copied_where_all_read_it(
    tmp_path: Path, name: str, options: dict[str, Any], is_copied: bool, file: str
) -> None:
    image = picture(tmp_path / name, **options)
    assert stored(tmp_path, None, image) == file
    assert ((tmp_path / file).read_bytes() == image.read_bytes()) is is_copied


def test_a_turned_photograph_is_stored_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = picture(tmp_path / "in.jpg", exif=exif)
    file = stored(tmp_path, None, image)
    with Image.open(tmp_path / file) as line:
        assert line.size == (50, 100)
        assert np.asarray(line).mean() > 0
        assert 0x0112 not in line.getexif()
