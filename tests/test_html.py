"""A page is self-contained and escaped; its images fit."""

from pathlib import Path

import pytest
from markupsafe import Markup
from matplotlib.axes import Axes
from PIL import Image

from dsocr.html import BAR, Plot, Thumbnails, printable, render
from tests.html_pages import Page


def test_a_page_without_a_script_allows_none_and_escapes_its_title() -> None:
    page = Page(render("dsocr.training", "contact_sheet.html.jinja", title="<b>1 & 2", rows=[], image=str))
    (policy,) = [value for value in page.values("content") if value.startswith("default-src 'none';")]
    assert "script" not in policy
    assert page.words.count("<b>1 & 2") == 2


def test_a_thumbnail_is_small_and_described(tmp_path: Path) -> None:
    Image.new("L", (2000, 100), 200).save(tmp_path / "a.png")
    page = Page(Thumbnails((500, 500), 10**6).of(tmp_path / "a.png", alt='a "line"'))
    assert page.values("width") + page.values("height") + page.values("alt") == ["500", "25", 'a "line"']


@pytest.mark.parametrize(
    ("most_bytes", "shown"),
    [
        pytest.param(0, 1, id="room for none: the first one is let in"),
        pytest.param(10**6, 3, id="room for all"),
    ],
)
def test_thumbnails_end_where_the_room_ends(tmp_path: Path, most_bytes: int, shown: int) -> None:
    for name in "abc":
        Image.new("L", (20, 20), 200).save(tmp_path / f"{name}.png")
    thumbnails = Thumbnails((50, 50), most_bytes)
    pictures = [thumbnails.of(tmp_path / f"{name}.png") for name in "abc"]
    assert sum("<img" in html for html in pictures) == shown


def test_an_image_that_cannot_be_opened_has_a_replacement(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    assert Thumbnails((50, 50), 100).of(tmp_path / "a.png", missing=Markup("<i>gone</i>")) == "<i>gone</i>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\u202eabc", "\ufffdabc", id="would turn the page around"),
        pytest.param("\x00\x1b[0m", "\ufffd\ufffd[0m", id="would control a terminal"),
        pytest.param("\ud800", "\ufffd", id="half a character, which no file can hold"),
        pytest.param("می\u200cخواهم", "می\u200cخواهم", id="a joiner that belongs to the spelling"),
    ],
)
def test_control_characters_are_replaced(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.usefixtures("rendered_plots")
def test_an_svg_escapes_names_is_repeatable_and_fetches_nothing() -> None:
    def paint(axes: Axes) -> None:
        axes.hist([1, 2, 3], color=BAR)
        axes.set_xlabel("<$x^2$ 漢")

    chart = Plot('<b> "', paint)
    drawn = chart.svg()
    assert drawn == chart.svg()
    assert "&lt;$x^2$ 漢" in {text.rpartition(">")[2] for text in drawn.split("</text>")}
    assert "<b>" not in drawn
    assert "http" not in drawn
    assert "var(--bar" in drawn


def test_a_plot_without_matplotlib_is_a_sentence_with_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr.html.find_spec", lambda name: None)
    drawn = Plot("<b>", lambda axes: None).svg()
    assert drawn == "<p>&lt;b&gt; needs matplotlib: pip install &quot;dsocr-hw[train]&quot;</p>"
