"""Folding a line image onto a square canvas."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dsocr.models.canvas import PAD_COLOUR, plan_wrapping, wrap


def line_with_gaps(width: int, height: int, gap_every: int) -> np.ndarray:
    """Dark vertical strokes with a white gap of 12 pixels every so often."""
    grey = np.full((height, width), 250, dtype=np.uint8)
    columns = np.arange(width)
    grey[4:-4, (columns % 6 < 3) & (columns % gap_every >= 12)] = 20
    return grey


@given(width=st.integers(1, 4000), height=st.integers(1, 300), seed=st.integers(0, 5))
def test_every_pixel_column_lands_in_exactly_one_row(width: int, height: int, seed: int) -> None:
    grey = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    plan = plan_wrapping(grey, 128, 32)
    assert plan.edges[0] == 0
    assert plan.edges[-1] == plan.scaled_width
    assert all(0 < right - left <= 128 for left, right in pairwise(plan.edges))
    assert (len(plan.edges) - 1) * plan.row_height <= 128


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
    assert plan_wrapping(line_with_gaps(60 * aspect, 60, 90), 128, 32).row_height == row_height


def test_cuts_fall_into_gaps_between_words() -> None:
    grey = line_with_gaps(700, 64, 90)
    plan = plan_wrapping(grey, 128, 32)
    scale = 700 / plan.scaled_width
    assert len(plan.edges) > 2
    for edge in plan.edges[1:-1]:
        assert (edge * scale) % 90 < 14, "the cut goes through a word"


def test_padding_is_grey() -> None:
    folded = np.asarray(wrap(Image.fromarray(line_with_gaps(200, 60, 90)), 128, 32))
    assert (folded[32:] == PAD_COLOUR).all()
    assert (folded[:32, 110:] == PAD_COLOUR).all()


def test_wrapping_a_large_image_takes_little_memory() -> None:
    large = np.full((2000, 10_000), 200, np.uint8)
    tracemalloc.start()
    plan_wrapping(large, 256, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * large.nbytes, "a copy in float64 takes eight times as much"
