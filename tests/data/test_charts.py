"""Charts show every value, whatever it is, and nothing in a name becomes part of the page."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.checking.charts import HEIGHT, WIDTH, columns, histogram, letter_columns


def counts(chart: str) -> list[int]:
    """What the bars of a chart say they count; the chart must be well-formed."""
    ET.fromstring(chart)
    return [int(count) for count in re.findall(r": (\d+)</title>", chart)]


@given(st.lists(st.one_of(st.integers(0, 10_000), st.floats(0, 1e6, allow_nan=False)), min_size=1, max_size=60))
def test_a_histogram_counts_every_value(values: list[float]) -> None:
    chart = histogram(values, "Width", "pixels")
    assert sum(counts(chart)) == len(values)
    assert len(counts(chart)) <= 80


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60))
def test_bars_stay_inside(values: list[int]) -> None:
    chart = columns([(str(value), value) for value in values], "Writers", "")
    assert counts(chart) == values
    for x, y, width, height in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', chart):
        assert float(x) + float(width) <= WIDTH + 0.2
        assert 0 <= float(y) <= float(y) + float(height) <= HEIGHT


@pytest.mark.parametrize("values", [[5], [5, 5, 5], [0, 0], [1, 1_000_000]], ids=["one", "equal", "none", "far"])
def test_values_without_a_spread_have_a_chart(values: list[float]) -> None:
    assert sum(counts(histogram(values, "Height", "pixels"))) == len(values)


def test_nothing_to_show_is_nothing() -> None:
    assert (histogram([], "a", "b"), columns([], "a", "b"), letter_columns([], "a", "b")) == ("", "", "")


def test_names_are_escaped() -> None:
    chart = letter_columns([("<", 3), ('"&', 2)], "<b>", "'note'")
    assert counts(chart) == [3, 2]
    assert "<b>Most" not in chart
    assert "&lt;b&gt;" in chart
