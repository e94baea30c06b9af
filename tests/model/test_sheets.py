"""Lines drawn on a sheet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.errors import ConfigError
from dsocr.model.folding import PAD_COLOUR, cut_rows
from dsocr.model.resolution import Resolution, find_resolution
from dsocr.model.sheets import Size, demand_sheets, draw_sheet, line_height, row_height, sheet_height

NANO = find_resolution("nano", None)
BASE = find_resolution("deepseek_ocr", "base")
PAPER = (240, 230, 200)
sizes_of_lines = st.lists(st.tuples(st.integers(20, 2500), st.integers(20, 200)), min_size=1, max_size=14)


def marked(size: Size, shade: int) -> Image.Image:
    """A line image of one colour that no paper and no padding has."""
    return Image.new("RGB", size, (255, shade, 0))


def inside(sizes: list[Size], resolution: Resolution) -> list[Size]:
    """The first lines, as many as have room."""
    kept: list[Size] = []
    for size in sizes:
        if sum(line_height(one, resolution) for one in [*kept, size]) <= sheet_height(resolution):
            kept.append(size)
    return kept


@pytest.mark.parametrize("resolution", [NANO, BASE], ids=["folded", "padded"])
@given(sizes=sizes_of_lines)
def test_no_line_is_lower_than_legible(resolution: Resolution, sizes: list[Size]) -> None:
    if kept := inside(sizes, resolution):
        assert row_height(kept, resolution) >= resolution.legible_row


@pytest.mark.parametrize("resolution", [NANO, BASE], ids=["folded", "padded"])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(300, 60)] * 2, id="two short lines"),
        pytest.param([(900, 60), (200, 60), (500, 40)], id="lines of many sizes"),
        pytest.param([(4000, 60), (100, 60)], id="a line too wide for the canvas at legible height"),
        pytest.param([(500, 60)] * 20, id="more lines than are legible"),
    ],
)
def test_every_line_is_drawn_whole_and_in_order(resolution: Resolution, sizes: list[Size]) -> None:
    images = [marked(size, 5 * place) for place, size in enumerate(sizes)]
    sheet = np.asarray(draw_sheet(images, resolution, PAPER))
    height = row_height(sizes, resolution)
    tops = []
    for place, image in enumerate(images):
        mask = (sheet == (255, 5 * place, 0)).all(axis=2)
        tops.append(int(mask.any(axis=1).argmax()))
        if resolution is NANO:
            assert mask.sum() == sum(row.width * row.height for row in cut_rows(image, NANO.size, height))
        else:
            rows, columns = mask.any(axis=1).sum(), mask.any(axis=0).sum()
            assert mask.sum() == rows * columns, "one rectangle"
            assert columns / rows == pytest.approx(image.width / image.height, rel=0.06)
    assert tops == sorted(set(tops))


def test_between_the_lines_is_paper_or_where_lines_are_folded_grey() -> None:
    images = [marked((300, 60), 0)] * 2
    assert draw_sheet(images, BASE, PAPER).getpixel((1023, 1023)) == PAPER
    assert draw_sheet(images, NANO, PAPER).getpixel((255, 255)) == (PAD_COLOUR,) * 3


def test_rows_of_a_line_touch_and_lines_do_not() -> None:
    images = [marked((600, 60), 0), marked((600, 60), 9)]
    sheet = np.asarray(draw_sheet(images, NANO, PAPER))
    inked = (sheet[:, 0] == 255).any(axis=1)
    assert np.flatnonzero(np.diff(inked.astype(int)) == 1).tolist() == [int((sheet[:, 0, 1] == 9).argmax()) - 1]


def test_a_few_lines_are_no_larger_than_one_line_is() -> None:
    assert row_height([(100, 60)] * 2, NANO) == NANO.tallest_row
    assert row_height([(100, 60)] * 2, BASE) == 2 * BASE.legible_row


def test_sheets_are_refused_where_they_would_be_cut_into_tiles() -> None:
    demand_sheets(BASE)
    with pytest.raises(ConfigError, match="gundam shows close-ups of parts"):
        demand_sheets(find_resolution("deepseek_ocr", "gundam"))
