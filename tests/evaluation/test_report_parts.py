"""The parts of a report: which lines it shows, how differences and rates are drawn."""

import html
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.breakdown import Characters, Confusion
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report.bars import Axis
from dsocr.evaluation.report.characters import heat_map, letter, render_characters
from dsocr.evaluation.report.charts import Group, Rate, bars
from dsocr.evaluation.report.choosing import chapters_of, read_lines
from dsocr.evaluation.report.lines import render_chapters
from dsocr.evaluation.report.markdown import code
from dsocr.evaluation.report.marks import LONGEST, differences, shortened, visible
from dsocr.evaluation.report.sections import changes
from dsocr.evaluation.scores import LineScore, Score
from dsocr.evaluation.statistics import Interval
from dsocr.text import comparable
from tests.pages.html import Page


def line(number: int, errors: int, *, looping: bool = False) -> LineScore:
    """A line of a hundred characters with so many errors."""
    return LineScore(
        f"{number}.png", "a" * 100, "b", ErrorRate(errors, 100), ErrorRate(1, 1), not errors, False, looping=looping
    )


def test_a_line_stands_in_every_chapter_it_belongs_to() -> None:
    base = [line(number, 10) for number in range(6)]
    adapter = [line(0, 0), line(1, 10), line(2, 30, looping=True), *base[3:]]
    chapters = {
        one.key: one for one in chapters_of(read_lines({"base": base, "adapter": adapter}), ["base", "adapter"])
    }
    numbers = {key: [one.number for one in chapter.lines] for key, chapter in chapters.items()}
    assert numbers == {
        "sample": [1, 2, 3, 4, 5, 6],
        "worst": [3, 2, 4, 5, 6],
        "better": [1],
        "worse": [3],
        "failures": [3],
    }
    assert chapters["sample"].told.startswith("All 6,")


def test_the_fair_sample_is_the_same_each_time_and_knows_nothing_of_errors() -> None:
    good = read_lines({"adapter": [line(number, 0) for number in range(500)]})
    bad = read_lines({"adapter": [line(number, number) for number in range(500)]})
    (drawn,) = chapters_of(good, ["adapter"])
    assert len(drawn.lines) == 30
    assert [one.number for one in drawn.lines] == [one.number for one in chapters_of(bad, ["adapter"])[0].lines]


def test_writers_with_odd_names_can_be_chosen_and_cannot_turn_the_page_around() -> None:
    odd = [replace(line(number, 5), writer=name) for number, name in enumerate(["A  B ", "\u202eb", "<i>"])]
    lines = read_lines({"adapter": odd})
    page = Page(render_chapters(chapters_of(lines, ["adapter"]), lines, ["adapter"], {}))
    assert sorted(page.values("data-writer")) == sorted({"A  B ", "\u202eb", "<i>"}), "what the script compares with"
    assert {"A  B ", "\u202eb", "<i>"} <= set(page.values("value"))
    assert "\u202e" not in page.words
    assert "<i>" in page.words


def test_a_reading_alone_is_better_and_worse_than_nothing() -> None:
    keys = [one.key for one in chapters_of(read_lines({"adapter": [line(1, 5)]}), ["adapter"])]
    assert keys == ["sample", "worst"]


@given(st.text("аб <&>'\"ё", max_size=14), st.text("аб <&>'\"ё", max_size=14))
def test_both_texts_can_be_read_out_of_the_html(reference: str, prediction: str) -> None:
    drawn = differences(reference, prediction)
    written = re.sub("<ins>.*?</ins>|</?del>", "", drawn)
    read = re.sub("<del>.*?</del>|</?ins>", "", drawn)
    assert html.unescape(written) == comparable(reference)
    assert html.unescape(read) == comparable(prediction)


def test_what_is_too_long_is_cut_and_counted() -> None:
    drawn = differences("a", "a" + "b" * LONGEST * 2)
    assert drawn.count("b") < LONGEST + 10
    assert f"and {LONGEST + 1:,} characters more" in drawn
    assert shortened("a" * LONGEST) == "a" * LONGEST
    assert f"and {5:,} characters more" in shortened("a" * (LONGEST + 5))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\u202eabc", "\ufffdabc", id="what would turn the page around"),
        pytest.param("\x00\x1b[0m", "\ufffd\ufffd[0m", id="what would drive a terminal"),
        pytest.param("\ud800", "\ufffd", id="half a character, which no file can hold"),
        pytest.param("می\u200cخواهم", "می\u200cخواهم", id="a joiner that belongs to the spelling"),
        pytest.param("<b>", "&lt;b&gt;", id="markup"),
    ],
)
def test_signs_that_cannot_be_shown_are_replaced(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.lists(st.floats(0, 5), max_size=5))
def test_everything_has_its_place_on_an_axis(values: list[float]) -> None:
    axis = Axis.over([*values, math.inf])
    assert axis.ticks[0] == 0
    assert axis.ticks[-1] == pytest.approx(axis.most)
    assert axis.most >= max(values, default=0)
    assert all(0 <= axis.place(value) <= 100 for value in (*values, math.inf))


def test_a_group_shows_its_rates_as_words_and_as_bars() -> None:
    interval = Interval(0.05, 0.3, 0.95, "writer", 9)
    drawn = bars("writer", [Group("<b>", 1200, [Rate(0.2, interval), None])], ["base", "adapter"])
    page = Page(drawn)
    assert "<b>" in page.words
    assert "1,200" in page.words
    assert "20.0\N{NO-BREAK SPACE}%" in page.words
    assert page.values("class").count("whisker ") == 1
    assert page.tags.count("rect") == 1


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        pytest.param(Rate.of(ErrorRate(1, 0)), "no text", id="nothing to divide by"),
        pytest.param(Rate.of(ErrorRate(7, 5)), "140.0\N{NO-BREAK SPACE}%", id="more errors than characters"),
    ],
)
def test_rates_are_told_as_they_are(rate: Rate, told: str) -> None:
    assert rate.told() == told


def test_the_map_holds_the_commonest_confusions_with_their_counts() -> None:
    drawn = heat_map([Confusion("ш", "щ", 12), Confusion(" ", "<", 3)])
    page = Page(drawn)
    assert re.findall(r"<td[^>]*>(\d+)</td>", drawn) == ["3", "12"]
    assert {"␣", "<", "ш", "щ"} <= set(page.words)
    assert letter(" ") == "␣"
    many = [Confusion(chr(0x430 + place), chr(0x451 + place), 9) for place in range(31)]
    assert Page(heat_map(many)).values("scope").count("row") == 16


def test_letters_of_two_scripts_that_look_the_same_are_told_apart() -> None:
    score = replace(line(1, 1), reference="а", prediction="a")
    drawn = render_characters({"adapter": Characters.of([score])})
    assert "а (Cyrillic) read as a (Latin)" in drawn


def test_without_an_error_there_is_no_map() -> None:
    assert render_characters({"adapter": Characters.of([line(1, 0)])}) == ""


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        pytest.param("a", "` a `", id="plain"),
        pytest.param("a ``b`", "``` a ``b` ```", id="with ticks of its own"),
        pytest.param("a\nb", "` a\ufffdb `", id="on one line"),
    ],
)
def test_a_code_span_ends_where_it_should(text: str, drawn: str) -> None:
    assert code(text) == drawn


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        pytest.param(2_010, "-0.0005\N{NO-BREAK SPACE}points better", id="in digits that tell it from none"),
        pytest.param(2_025, "+0.001\N{NO-BREAK SPACE}points worse", id="the other way"),
        pytest.param(2_015, "same", id="none"),
    ],
)
def test_a_tiny_change_is_not_told_as_none(errors: int, told: str) -> None:
    first, second = (Score.of([replace(line(0, 0), cer=ErrorRate(wrong, 1_000_000))]) for wrong in (2_015, errors))
    assert told in changes([first, second], ["base", "adapter"])
