"""Charts show every value, and nothing in a name becomes part of the page."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dsocr.data.check.findings_page import bar_chart, histogram
from dsocr.html import plot_svg


@example([5])
@example([5, 5, 5])
@example([0, 0])
@example([1, 1_000_000])
@settings(max_examples=25)
@given(st.lists(st.one_of(st.integers(0, 10_000), st.floats(0, 1e6, allow_nan=False)), min_size=1, max_size=60))
def test_a_histogram_counts_every_value(values: list[float]) -> None:
    chart = histogram(values, "Width", "pixels")
    assert chart is not None
    axes = Figure().subplots()
    chart.paint(axes)
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert sum(bar.get_height() for bar in bars) == len(values)
    assert len(bars) <= 80
    assert axes.get_xlabel() == "pixels"


def test_nothing_to_count_is_no_chart() -> None:
    assert (histogram([], "a", "b"), bar_chart([], "a", "b")) == (None, None)


def test_an_svg_escapes_names_is_repeatable_and_fetches_nothing() -> None:
    chart = bar_chart([("<", 3), ("$x^2$", 2), ("漢", 1)], "<b>", "")
    assert chart is not None
    drawn = plot_svg(chart.paint, '<b> "')
    assert drawn == plot_svg(chart.paint, '<b> "')
    assert {"&lt;", "$x^2$", "漢"} <= {text.rpartition(">")[2] for text in drawn.split("</text>")}
    assert "<b>" not in drawn
    assert "http" not in drawn
    assert "var(--bar" in drawn
