"""A line is cropped along its polygon, with the page's own paper around it."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dsocr.document import Line, Outline, Page, SkipReason
from dsocr.images import (
    MARGIN,
    CropFailure,
    CroppedLine,
    crop_box,
    crop_key,
    crop_line,
    crop_page,
    paper_colour,
)
from tests.data.making import picture

PAPER, INK = (240, 230, 200), (20, 20, 90)
TRIANGLE = Outline.of_polygon(((10, 10), (50, 10), (10, 30)))


def page_of(image: Path, outline: Outline | None, size: tuple[int, int] | None = None) -> Page:
    return Page(image, "p", "p.xml", (Line("т", "p.xml:1", outline),), size)


def cropped(
    folder: Path, outline: Outline | None, image: Path, size: tuple[int, int] | None = None
) -> CroppedLine | CropFailure:
    found = crop_page(page_of(image, outline, size), image.read_bytes(), folder, "p")
    return found if isinstance(found, CropFailure) else found.lines[0]


def cropped_file(folder: Path, outline: Outline | None, image: Path) -> str:
    """The name of the file of the only line."""
    line = cropped(folder, outline, image)
    assert isinstance(line, CroppedLine)
    assert hashlib.sha256((folder / line.file).read_bytes()).hexdigest() == line.sha256
    return line.file


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_crop_is_the_pixels_of_its_box_and_paper_outside_the_polygon(mode: str) -> None:
    noise = np.random.default_rng(1).integers(0, 200, (50, 100, 3), dtype=np.uint8)
    page = Image.fromarray(noise).convert(mode)
    pixels = np.asarray(page)
    box = crop_line(page, Outline((7, 5, 31, 15)), 255 if mode == "L" else PAPER)
    assert np.array_equal(np.asarray(box), pixels[5:15, 7:31])
    paper = page.convert("L").point(lambda _: 255).convert(mode).getpixel((0, 0))
    triangle = np.asarray(crop_line(page, TRIANGLE, paper))  # type: ignore[arg-type]
    rows, columns = np.mgrid[0:21, 0:41]
    inside, outside = columns / 40 + rows / 20 <= 0.97, columns / 40 + rows / 20 >= 1.03
    assert triangle.shape[:2] == (21, 41)
    assert np.array_equal(triangle[inside], pixels[10:31, 10:51][inside])
    assert (triangle[outside] == 255).all()


def test_large_pages_leave_a_margin_around_the_polygon() -> None:
    size = (2200, 3300)
    margin = round(3300 * MARGIN)
    assert crop_box(TRIANGLE, size) == (10 - margin, 10 - margin, 51 + margin, 31 + margin)
    crop = crop_line(Image.new("L", size, 0), TRIANGLE, 255)
    assert crop.getpixel((margin, margin // 2)) == 0, "just outside the polygon"
    assert crop.getpixel((crop.width - 1, crop.height - 1)) == 255, "far outside"


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_paper_is_the_median_not_the_mean(mode: str) -> None:
    page = Image.new("RGB", (600, 400), PAPER)
    page.paste(INK, (0, 0, 200, 400))
    assert paper_colour(page.convert(mode)) == page.convert(mode).getpixel((599, 399))


def test_a_key_changes_with_the_pixels_and_nothing_else() -> None:
    page = page_of(Path("p.png"), TRIANGLE, (100, 50))
    key = crop_key(page, b"picture")
    assert key == crop_key(replace(page, name="q", writer="anna", where="elsewhere"), b"picture")
    assert key == crop_key(replace(page, lines=(replace(page.lines[0], text="другой"),)), b"picture")
    others = [
        crop_key(page, b"another picture"),
        crop_key(replace(page, size=(50, 25)), b"picture"),
        crop_key(replace(page, lines=()), b"picture"),
        crop_key(replace(page, lines=(Line("т", "p.xml:1", Outline(TRIANGLE.box)),)), b"picture"),
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
        pytest.param(
            Outline((10, 10, 90, 31), (), ((10, 30), (90, 10))), (100, 50), SkipReason.NO_OUTLINE, id="only a baseline"
        ),
        pytest.param(
            Outline.of_polygon(tuple((number % 100, number % 2 * 49) for number in range(60_000))),
            (100, 50),
            SkipReason.BAD_SOURCE,
            id="a border that crosses 3,000,000 rows",
        ),
    ],
)
def test_a_line_that_cannot_be_cropped_is_skipped(
    tmp_path: Path, outline: Outline, size: tuple[int, int], reason: SkipReason
) -> None:
    line = cropped(tmp_path, outline, picture(tmp_path / "p.png"), size)
    assert isinstance(line, CropFailure)
    assert line.reason == reason


def test_lines_of_a_jpeg_stay_jpeg_at_full_colour(tmp_path: Path) -> None:
    file = cropped_file(tmp_path, TRIANGLE, picture(tmp_path / "in.jpg", quality=90))
    with Image.open(tmp_path / file) as line:
        assert (file, line.format) == ("p_0001.jpg", "JPEG")
        assert [(layer[1], layer[2]) for layer in line.layer] == [(1, 1)] * 3, "colour is not subsampled"  # type: ignore[attr-defined]
        assert max(line.quantization[0]) <= 12, "quality 95"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "options", "is_copied", "file"),
    [
        pytest.param("in.png", {}, True, "p.png", id="PNG"),
        pytest.param("in.jpg", {}, True, "p.jpg", id="JPEG"),
        pytest.param("in.tif", {}, False, "p.png", id="TIFF"),
        pytest.param("in.png", {"format": "TIFF"}, False, "p.png", id="TIFF called PNG"),
        pytest.param("in.png", {"format": "JPEG"}, True, "p.jpg", id="JPEG called PNG"),
    ],
)
def test_a_whole_image_is_copied_if_every_program_reads_it(
    tmp_path: Path, name: str, options: dict[str, Any], is_copied: bool, file: str
) -> None:
    image = picture(tmp_path / name, **options)
    assert cropped_file(tmp_path, None, image) == file
    assert ((tmp_path / file).read_bytes() == image.read_bytes()) is is_copied


def test_a_turned_photograph_is_stored_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = cropped_file(tmp_path, None, picture(tmp_path / "in.jpg", exif=exif))
    with Image.open(tmp_path / file) as line:
        assert (line.size, 0x0112 in line.getexif()) == ((50, 100), False)
