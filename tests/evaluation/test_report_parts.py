"""The parts of a report: which lines it shows, how differences and rates are shown."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.evaluation.breakdown import CharacterErrors, Confusion
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report.lines import LONGEST, chapters_of, differences, other_lines, read_lines
from dsocr.evaluation.report.report import (
    Axis,
    Rate,
    character_tables,
    code_span,
    confusion_map,
    letter,
    score_changes,
)
from dsocr.evaluation.scores import LineScore, Score
from dsocr.html import percent, printable
from dsocr.text import comparable


def line(number: int, errors: int, *, looping: bool = False) -> LineScore:
    """A line of a hundred characters with the given number of errors."""
    return LineScore(
        f"{number}.png", "a" * 100, "b", ErrorRate(errors, 100), ErrorRate(1, 1), not errors, False, looping=looping
    )


def test_a_line_is_in_every_chapter_it_belongs_to() -> None:
    base = [line(number, 10) for number in range(6)]
    adapter = [line(0, 0), line(1, 10), line(2, 30, looping=True), *base[3:]]
    chapters = chapters_of(read_lines({"base": base, "adapter": adapter}), ["base", "adapter"])
    assert {chapter.key: [one.number for one in chapter.lines] for chapter in chapters} == {
        "sample": [1, 2, 3, 4, 5, 6],
        "worst": [3, 2, 4, 5, 6],
        "better": [1],
        "worse": [3],
        "failures": [3],
    }


def test_the_sample_is_the_same_each_time_and_independent_of_errors() -> None:
    good = read_lines({"adapter": [line(number, 0) for number in range(500)]})
    bad = read_lines({"adapter": [line(number, number) for number in range(500)]})
    (drawn,) = chapters_of(good, ["adapter"])
    assert len(drawn.lines) == 30
    assert [one.number for one in drawn.lines] == [one.number for one in chapters_of(bad, ["adapter"])[0].lines]


def test_a_single_reading_is_not_compared() -> None:
    keys = [one.key for one in chapters_of(read_lines({"adapter": [line(1, 5)]}), ["adapter"])]
    assert keys == ["sample", "worst"]


def test_other_lines_end_where_the_room_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = read_lines({"adapter": [line(number, number % 7) for number in range(500)]})
    chapters = chapters_of(lines, ["adapter"])
    everything, left = other_lines(lines, chapters)
    assert left == 0
    assert [one.last.cer.errors for one in everything] == sorted(
        (one.last.cer.errors for one in everything), reverse=True
    )
    monkeypatch.setattr("dsocr.evaluation.report.lines.MOST_TEXT", 20_000)
    some, left = other_lines(lines, chapters)
    assert 0 < len(some) < 50
    assert some == everything[: len(some)]
    assert left == len(everything) - len(some)


@given(st.text("аб <&>'\"ё", max_size=14), st.text("аб <&>'\"ё", max_size=14))
def test_differences_hold_both_texts(reference: str, prediction: str) -> None:
    parts, hidden = differences(reference, prediction)
    assert hidden == 0
    assert "".join(text for tag, text in parts if tag != "ins") == comparable(reference)
    assert "".join(text for tag, text in parts if tag != "del") == comparable(prediction)


def test_a_long_text_is_cut_and_its_rest_counted() -> None:
    parts, hidden = differences("a", "a" + "b" * LONGEST * 2)
    assert sum(len(text) for _, text in parts) == LONGEST
    assert hidden == LONGEST + 1


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


@given(st.lists(st.floats(0, 5), max_size=5))
def test_everything_has_its_place_on_an_axis(values: list[float]) -> None:
    axis = Axis.of([*map(Rate, values), None])
    assert axis.ticks[0] == 0
    assert axis.ticks[-1] == pytest.approx(axis.most)
    assert axis.most >= min(max(values, default=0), 1)
    assert all(0 <= axis.place(value) <= 100 for value in values)


def test_the_map_holds_the_commonest_confusions() -> None:
    drawn = confusion_map([Confusion("ш", "щ", 12), Confusion(" ", "<", 3)])
    assert drawn is not None
    assert (drawn["columns"], [sign for sign, _ in drawn["rows"]]) == (["<", "щ"], ["␣", "ш"])
    assert [[count for count, _ in cells] for _, cells in drawn["rows"]] == [[3, 0], [0, 12]]
    many = confusion_map([Confusion(chr(0x430 + place), chr(0x451 + place), 9) for place in range(31)])
    assert many is not None
    assert len(many["rows"]) == 16
    assert letter(" ") == "␣"


def test_similar_letters_of_two_scripts_are_named() -> None:
    tables = character_tables(
        {"adapter": CharacterErrors.compute([replace(line(1, 1), reference="а", prediction="a")])}
    )
    assert tables is not None
    assert tables["pairs"][0][:2] == ("а (Cyrillic)", "a (Latin)")
    assert character_tables({"adapter": CharacterErrors.compute([replace(line(1, 0), prediction="a" * 100)])}) is None


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        pytest.param("a", "` a `", id="plain"),
        pytest.param("a ``b`", "``` a ``b` ```", id="with ticks inside"),
        pytest.param("a\nb", "` a\ufffdb `", id="on one line"),
    ],
)
def test_a_code_span_ends_where_it_should(text: str, drawn: str) -> None:
    assert code_span(text) == drawn


@pytest.mark.parametrize(
    ("errors", "change", "kind"),
    [
        pytest.param(2_010, "0.0005", "better", id="with enough digits"),
        pytest.param(2_025, "0.001", "worse", id="the other way"),
        pytest.param(2_015, "same", "", id="none"),
    ],
)
def test_a_tiny_change_is_not_shown_as_none(errors: int, change: str, kind: str) -> None:
    first, second = (Score.compute([replace(line(0, 0), cer=ErrorRate(wrong, 1_000_000))]) for wrong in (2_015, errors))
    row = score_changes([first, second])[0]
    assert re.match(rf"{change}\b", row.change)
    assert row.kind == kind


def test_rates_are_shown_as_they_are() -> None:
    assert percent(None) == "no text"
    assert percent(1.4) == "140.0\N{NO-BREAK SPACE}%"
