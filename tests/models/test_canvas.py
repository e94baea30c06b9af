"""Line images on a square canvas, cut to their writing, and reduced to the size that a resolution can show."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.io.files import shipped_path
from dsocr.models.canvas import PAD_COLOUR, cut_to_writing, find_cuts, show, wrap, wrapped_size
from dsocr.models.deepseek_ocr import Variant, find_resolution


def line_with_gaps(width: int, height: int, gap_every: int) -> np.ndarray:
    """Dark vertical strokes with a white gap of 12 pixels every so often."""
    grey = np.full((height, width), 250, dtype=np.uint8)
    columns = np.arange(width)
    grey[4:-4, (columns % 6 < 3) & (columns % gap_every >= 12)] = 20
    return grey


def cuts(grey: np.ndarray, size: int = 128, max_row_height: int = 32) -> tuple[int, int, tuple[int, ...]]:
    """The height of a row, the width of the scaled line, and where it is cut."""
    rows, width = wrapped_size(grey.shape[1], grey.shape[0], size, max_row_height)
    return size // rows, width, find_cuts(grey, width, size, rows)


@given(width=st.integers(1, 4000), height=st.integers(1, 300), seed=st.integers(0, 5))
def test_every_pixel_column_lands_in_exactly_one_row(width: int, height: int, seed: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    row_height, scaled_width, edges = cuts(grey)
    assert (edges[0], edges[-1]) == (0, scaled_width)
    assert all(0 < right - left <= 128 for left, right in pairwise(edges))
    assert (len(edges) - 1) * row_height <= 128


@pytest.mark.parametrize(
    ("aspect", "row_height"),
    [
        pytest.param(3, 32, id="a short line keeps the tallest row"),
        pytest.param(13, 32, id="an ordinary line fills four rows"),
        pytest.param(20, 25, id="a long line gets a fifth row"),
        pytest.param(200, 16, id="a line too long for eight rows is narrowed to them"),
    ],
)
def test_row_height_follows_the_length_of_the_line(aspect: int, row_height: int) -> None:
    assert cuts(line_with_gaps(60 * aspect, 60, 90))[0] == row_height


def test_cuts_fall_into_gaps_between_words() -> None:
    _, width, edges = cuts(line_with_gaps(700, 64, 90))
    assert len(edges) > 2
    for edge in edges[1:-1]:
        assert (edge * 700 / width) % 90 < 14, "the cut goes through a word"


def test_padding_is_grey() -> None:
    folded = np.asarray(wrap(Image.fromarray(line_with_gaps(200, 60, 90)), 128, 32))
    assert (folded[32:] == PAD_COLOUR).all()
    assert (folded[:32, 110:] == PAD_COLOUR).all()


def test_wrapping_a_large_image_takes_little_memory() -> None:
    large = np.full((2000, 10_000), 200, np.uint8)
    tracemalloc.start()
    cuts(large, 256, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * large.nbytes, "a copy in float64 takes eight times as much"


def line_of_writing(
    height: int, top: int, *, flourish: bool = False, around: int = 230, ruled: bool = False
) -> Image.Image:
    """Strokes 24 pixels high from `top` on, in paper that ends 15 pixels above and below them; `around` is the rest."""
    grey = np.full((height, 900), around, dtype=np.uint8)
    grey[max(top - 15, 0) : top + 39] = 230
    columns = np.arange(900)
    grey[top : top + 24, columns % 12 < 4] = 40
    if flourish:
        grey[4:top, :60] = 230
        grey[4:top, 20:24] = grey[4:top, 40:44] = 40
    if ruled:
        grey[max(top - 15, 0) : top + 39, 300:303] = 60
        grey[top + 30 : top + 32] = 60
    return Image.fromarray(grey)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(line_of_writing(60, 18), (60, 18), id="a line as high as its writing stays"),
        pytest.param(line_of_writing(200, 150, flourish=True), None, id="a flourish is cut off"),
        pytest.param(line_of_writing(200, 150, flourish=True, around=170), None, id="dark paper around the outline"),
        pytest.param(line_of_writing(200, 150, flourish=True, ruled=True), None, id="ruled lines are no writing"),
        pytest.param(line_of_writing(7, 1), (7, 1), id="too low to say"),
        pytest.param(Image.new("L", (600, 50), 220), (50, None), id="an empty line"),
        pytest.param(Image.new("RGB", (8, 50), 220), (50, None), id="hardly wider than a stroke"),
    ],
)
def test_a_line_is_cut_to_its_writing(line: Image.Image, expected: tuple[int, int | None] | None) -> None:
    cut = cut_to_writing(line)
    assert cut.width == line.width
    assert cut_to_writing(cut).height >= 0.9 * cut.height, "cutting again hardly changes it"
    if expected is not None:
        assert cut.size == line.size
        return
    assert 45 <= cut.height <= 90
    ink = (np.asarray(cut)[:, 96::12] < 100).all(axis=1)
    assert 24 <= ink.sum() <= 26, "the writing is whole, with a ruled line of two rows at most"


@given(
    width=st.integers(1, 3000), height=st.integers(1, 400), seed=st.integers(0, 5), mode=st.sampled_from(["L", "RGB"])
)
def test_whatever_is_cut_stays_an_image(width: int, height: int, seed: int, mode: str) -> None:
    drawn = np.random.default_rng(seed)
    grey = drawn.integers(0, 256, (height, 1), dtype=np.uint8).repeat(width, axis=1)
    grey[:: drawn.integers(1, 50), :: drawn.integers(1, 9)] = 0
    cut = cut_to_writing(Image.fromarray(grey).convert(mode))
    assert cut.width == width
    assert height / 8 - 1 <= cut.height <= height
    assert cut.width / cut.height <= max(width / height, 130)


def strokes(width: int, height: int) -> Image.Image:
    """Strokes as wide as a pen's, uneven so that folding has gaps to find."""
    image = Image.new("L", (width, height), 240)
    draw = ImageDraw.Draw(image)
    for place in range(height, width - height, height):
        slope = height // 4 if place // height % 3 else -height // 3
        draw.line((place, height // 5, place + slope, 4 * height // 5), fill=30, width=height // 12)
    return image


@pytest.mark.parametrize(
    ("family", "resolution", "size", "expected"),
    [
        pytest.param("nano", "wrap", (800, 64), (800, 64), id="a line about as large as it is shown"),
        pytest.param("nano", "wrap", (3200, 200), (1232, 77), id="wrapped into rows of 51 pixels"),
        pytest.param("deepseek_ocr", "wrap", (3200, 200), (3200, 200), id="rows of 128 pixels, not worth it"),
        pytest.param("deepseek_ocr", "base", (4000, 160), (1550, 62), id="padded to a square of 1024"),
        pytest.param("nano", "wrap", (2, 5000), (1, 97), id="a strip"),
        pytest.param("deepseek_ocr", "small", (3200, 200), (3200, 200), id="squashed, so its height is stretched"),
        pytest.param("deepseek_ocr", "gundam", (3200, 200), (3200, 200), id="shown in nine tiles"),
    ],
)
def test_size_after_shrinking(
    family: Variant, resolution: str, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert find_resolution(family, resolution).shrink(Image.new("L", size)).size == expected


def test_tiles_stay_as_many_as_they_were() -> None:
    resolution = find_resolution("deepseek_ocr", "gundam")
    for size in ((4000, 3000), (2480, 3508), (9000, 400), (6000, 6000)):
        small = resolution.shrink(Image.new("L", size))
        assert resolution.grid(*small.size) == resolution.grid(*size)


@pytest.mark.parametrize("size", [(3200, 200), (2500, 140), (1500, 190)], ids=str)
def test_shrinking_barely_changes_the_model_input(size: tuple[int, int]) -> None:
    resolution, image = find_resolution("nano", None), strokes(*size)
    assert resolution.shrink(image) is not image
    before, after = (show(item, resolution)["pixel_values"].astype(float) for item in (image, resolution.shrink(image)))
    assert np.abs(before - after).mean() < 1.5


def test_the_shipped_sample_is_not_shrunk() -> None:
    """What the demo measured does not depend on shrinking."""
    resolution = find_resolution("nano", None)
    images = [
        open_image(sample.image) for sample in Dataset.open(shipped_path("examples/handwriting")).samples(Split.TRAIN)
    ]
    assert [image.size for image in images if resolution.shrink(image) is not image] == []
