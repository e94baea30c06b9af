"""Charts show every value, and nothing in a name becomes part of the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.check.findings_page import Chart, histogram
from dsocr.html import plot_svg


@given(st.lists(st.one_of(st.integers(0, 10_000), st.floats(0, 1e6, allow_nan=False)), min_size=1, max_size=60))
def test_a_histogram_counts_every_value(values: list[float]) -> None:
    chart = histogram(values, "Width", "pixels")
    assert chart is not None
    assert sum(chart.counts) == len(values)
    assert len(chart.counts) == len(chart.edges) - 1 <= 80


@pytest.mark.parametrize("values", [[5], [5, 5, 5], [0, 0], [1, 1_000_000]], ids=["one", "equal", "zeros", "far"])
def test_values_without_a_spread_have_a_chart(values: list[float]) -> None:
    chart = histogram(values, "Height", "pixels")
    assert chart is not None
    assert sum(chart.counts) == len(values)
    assert "pixels" in plot_svg(chart, "Height")


def test_nothing_to_count_is_no_chart() -> None:
    assert histogram([], "a", "b") is None


def test_an_svg_escapes_names_is_repeatable_and_fetches_nothing() -> None:
    chart = Chart("<b>", "", [3, 2, 1], ["<", "$x^2$", "漢"])
    drawn = plot_svg(chart, '<b> "')
    assert drawn == plot_svg(chart, '<b> "')
    assert {"&lt;", "$x^2$", "漢"} <= {text.rpartition(">")[2] for text in drawn.split("</text>")}
    assert "<b>" not in drawn
    assert "http" not in drawn
    assert "var(--bar" in drawn
