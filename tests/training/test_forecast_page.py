"""The page and the picture of a forecast."""

from pathlib import Path

from PIL import Image

from dsocr.evaluation.forecast import Forecast, Point, ScoredLine
from dsocr.training.forecast_page import render_page, write_pictures


def forecast(sizes: int, more: list[int]) -> Forecast:
    points = [
        Point(100 * 2**place, 50, [ScoredLine(f"{line}", 300 // (place + 1), 1000) for line in range(20)])
        for place in range(sizes)
    ]
    return Forecast.of("validation", points, more=more, targets=[0.05])


def test_the_page_shows_points_curve_band_and_what_was_asked_and_runs_nothing() -> None:
    page = render_page(forecast(4, [300]), "<script>alert(1)</script>")
    assert "<script" not in page
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert page.count("<circle") == 5
    assert page.count("<polygon") == page.count("<polyline") == 1
    assert "about 300 more lines -&gt; CER" in page


def test_without_a_curve_the_points_are_shown_and_why_there_is_none() -> None:
    page = render_page(forecast(2, [300]), "two")
    assert page.count("<circle") == 2
    assert "<polyline" not in page
    assert "cannot tell: 2 sizes are no curve" in page


def test_what_lies_too_far_ahead_does_not_stretch_the_plot(tmp_path: Path) -> None:
    write_pictures(forecast(4, [50_000_000]), "far", tmp_path)
    assert (tmp_path / "forecast.html").read_text(encoding="utf-8").count("<circle") == 4
    with Image.open(tmp_path / "forecast.png") as picture:
        assert picture.width < 1500
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["forecast.html", "forecast.png"]
