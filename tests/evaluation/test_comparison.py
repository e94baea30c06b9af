"""Readings side by side: the sentence, the refusals, the plot."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from lxml import etree

from dsocr.errors import DataError
from dsocr.evaluation.compare import Comparison, Group, NamedLines, compare, difference_between
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report.comparison import writers_svg
from dsocr.evaluation.report.plots import MOST_WRITERS, shown_groups, writers_label
from dsocr.evaluation.scores import LineScore, score_lines

TEXT = "съешь ещё этих мягких французских булок да выпей чаю"


@dataclass(frozen=True)
class Line:
    id: str
    text: str
    writer: str | None = None
    page: str | None = None
    document: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Read:
    text: str
    truncated: bool = False
    looping: bool = False


def read(errors: Sequence[int], writers: Sequence[str | None], *, page: str | None = None) -> list[LineScore]:
    """A line for each number, with so many letters of it misread."""
    lines = [Line(f"test/{n}.png", TEXT, writer, page) for n, writer in enumerate(writers)]
    readings = {line.id: Read("x" * wrong + TEXT[wrong:]) for line, wrong in zip(lines, errors, strict=True)}
    return score_lines(lines, readings)


def against(first: Sequence[int], second: Sequence[int], writers: Sequence[str | None]) -> Comparison:
    return compare([NamedLines("base", read(first, writers)), NamedLines("adapter", read(second, writers))])


TEN = [f"w{n % 10}" for n in range(40)]


@pytest.mark.parametrize(
    ("first", "second", "writers", "verdict", "begins"),
    [
        pytest.param(
            [10 + n % 7 for n in range(40)],
            [3 + n % 4 for n in range(40)],
            TEN,
            "better",
            "adapter is better than base: better on 10 of 10 writers; CER 24.8 -> 8.7 %, -16.1 points, 95 % CI -",
            id="better everywhere",
        ),
        pytest.param(
            [3 + n % 4 for n in range(40)],
            [10 + n % 7 for n in range(40)],
            TEN,
            "worse",
            "adapter is worse than base: worse on 10 of 10 writers; CER 8.7 -> 24.8 %, +16.1 points, 95 % CI +",
            id="worse everywhere",
        ),
        pytest.param(
            [5] * 40,
            [5 + (-2) ** (n % 10 % 2) for n in range(40)],
            TEN,
            "unclear",
            "10 writers show no sure difference: adapter is better on 5, worse on 5; CER ",
            id="up and down",
        ),
        pytest.param(
            [9, 8, 7, 9, 9],
            [1, 2, 1, 2, 3],
            [f"w{n}" for n in range(5)],
            "too few",
            "not enough writers to tell: adapter is better on 5 of 5, worse on 0; CER ",
            id="five writers cannot be told from chance",
        ),
        pytest.param(
            [4, 8, 7],
            [5, 9, 8],
            [None] * 3,
            "too few",
            "not enough lines to tell: adapter is better on 0 of 3, worse on 3; CER ",
            id="three lines",
        ),
        pytest.param(
            [4] * 40,
            [4] * 40,
            TEN,
            "same",
            "adapter makes as many errors as base on every line",
            id="the same",
        ),
    ],
)
def test_the_result_is_a_sentence(
    first: list[int], second: list[int], writers: list[str | None], verdict: str, begins: str
) -> None:
    (difference,) = against(first, second, writers).differences
    assert (difference.verdict, difference.sentence[: len(begins)]) == (verdict, begins)


def test_a_loop_in_one_hand_does_not_hide_that_all_others_are_better() -> None:
    lines = read([9, 8, 7, 9, 9, 8, 7] * 2, [f"w{n}" for n in range(14)])
    looping = [score_lines([Line(lines[0].id, TEXT, "w0")], {lines[0].id: Read("да " * 5000, truncated=True)})[0]]
    better = read([2, 3] * 7, [f"w{n}" for n in range(14)])
    (difference,) = compare([NamedLines("a", looping + lines[1:]), NamedLines("b", better)]).differences
    assert difference.verdict == "better"
    assert difference.sentence.endswith("the size of the difference hangs on one of 14 writers")


def test_lines_are_listed_by_how_much_they_changed() -> None:
    (difference,) = against([5, 9, 2, 3], [5, 1, 4, 2], ["a", "b", "c", "d"]).differences
    assert [(line.first.id, line.saved) for line in difference.better] == [("test/1.png", 8), ("test/3.png", 1)]
    assert [(line.first.id, line.saved) for line in difference.worse] == [("test/2.png", -2)]


def test_writers_stand_in_the_order_of_their_change() -> None:
    errors = [9, 5, 5, 5, 5]
    found = against(errors, [1, 6, 4, 5, 3], ["a", "b", "c", "d", "e"])
    assert [group.name for group in found.groups] == ["a", "e", "c", "d", "b"]


@pytest.mark.parametrize(
    ("writers", "page", "caution"),
    [
        pytest.param(TEN, None, None, id="ten writers"),
        pytest.param(
            ["anna", "boris"] * 20,
            None,
            "the intervals are over lines: they tell of more lines by these 2 writers, not of others",
            id="two writers",
        ),
        pytest.param(
            [None] * 40,
            None,
            "the intervals are over lines, as no writer is known: where one hand wrote several, they are too narrow",
            id="nobody",
        ),
    ],
)
def test_what_the_intervals_do_not_tell_is_said(
    writers: list[str | None], page: str | None, caution: str | None
) -> None:
    lines = read([3] * 40, writers, page=page)
    assert compare([NamedLines("a", lines), NamedLines("b", lines)]).cautions == ([caution] if caution else [])


def test_a_line_that_holds_many_of_the_errors_is_named() -> None:
    lines = read([3] * 40, TEN)
    loop = score_lines([Line(lines[0].id, TEXT, "w0")], {lines[0].id: Read("да " * 100, truncated=True)})
    cautions = compare([NamedLines("a", lines), NamedLines("b", loop + lines[1:])]).cautions
    assert cautions == ["71 % of all errors of b are in one line, test/0.png"]


def test_readings_in_another_order_are_paired_by_id() -> None:
    lines = read([n % 9 for n in range(40)], TEN)
    (difference,) = compare([NamedLines("a", lines), NamedLines("b", lines[::-1])]).differences
    assert difference.verdict == "same"


@pytest.mark.parametrize(
    ("readings", "message"),
    [
        pytest.param([NamedLines("a", read([1], ["w"]))], "only one reading", id="one"),
        pytest.param([NamedLines("a", read([1], ["w"]))] * 2, "two readings are called 'a'", id="one name twice"),
        pytest.param([NamedLines("a", []), NamedLines("b", [])], "no line to compare", id="nothing"),
        pytest.param(
            [NamedLines("a", read([1, 2], ["w"] * 2)), NamedLines("b", read([1], ["w"]))],
            "b and a did not read the same lines: 1 of 2 are missing, 0 are others",
            id="a line less",
        ),
        pytest.param(
            [
                NamedLines("a", read([1], ["w"])),
                NamedLines("b", [replace(read([1], ["w"])[0], reference="иное")]),
            ],
            "b and a were scored against different texts: 1 lines, such as test/0.png",
            id="another text",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(readings: list[NamedLines], message: str) -> None:
    with pytest.raises(DataError, match=message):
        compare(readings)


def test_a_comparison_is_json_without_numbers_that_are_none() -> None:
    found = against([9, 5, 5, 5, 5, 7], [1, 6, 4, 5, 3, 2], ["a", "b", "c", "d", "e", "f"])
    written = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert written["differences"][0]["groups"] == {"better": 4, "worse": 1, "same": 1}
    assert written["readings"][0]["intervals"]["cer"]["unit"] == "writer"


def test_a_writer_of_whom_no_text_is_known_does_not_stop_a_comparison() -> None:
    empty = Line("test/empty.png", "", "w5")
    first = [*read([9, 8, 7, 6, 5], [f"w{n}" for n in range(5)]), *score_lines([empty], {empty.id: Read("")})]
    second = [*read([3, 3, 3, 3, 3], [f"w{n}" for n in range(5)]), *score_lines([empty], {empty.id: Read("да")})]
    found = compare([NamedLines("base", first), NamedLines("adapter", second)])
    assert found.differences[0].typical == pytest.approx(-4 / len(TEXT))
    assert found.differences[0].groups == (5, 1, 0)


def test_the_plot_of_writers_is_an_image_in_which_names_are_escaped() -> None:
    names = ["<script>", "w\x012", "$a$", "w4", "w5"]
    found = compare([NamedLines("<base>", read([9, 8, 7, 6, 5], names)), NamedLines("a & b", read([3] * 5, names))])
    root = etree.fromstring(writers_svg(found, standalone=True))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not root.findall(".//{*}script")
    texts = {text for element in root.iter("{*}text") if (text := element.text)}
    assert {"<base>", "a & b", "<script> (1)", "w\ufffd2 (1)", "$a$ (1)"} <= texts
    assert writers_svg(found, standalone=True) == writers_svg(found, standalone=True)


def test_of_many_writers_those_are_drawn_that_changed_most_both_ways() -> None:
    groups = [Group(f"w{n}", 1, [ErrorRate(500, 1000), ErrorRate(100 + n, 1000)]) for n in range(500)]
    drawn = [group.name for group in shown_groups(groups)]
    assert len(drawn) == MOST_WRITERS
    assert {"w0", "w499"} <= set(drawn)
    assert "60 of 500" in writers_label(["a", "b"], groups, "writer")


def test_two_readings_alone_differ_as_they_do_in_a_comparison() -> None:
    first, second = (NamedLines(name, read([n % size for n in range(40)], TEN)) for name, size in (("a", 7), ("b", 5)))
    turned = NamedLines(second.name, list(reversed(second.lines)))
    assert difference_between(first, turned) == compare([first, second]).differences[0]
    with pytest.raises(DataError, match="did not read the same lines"):
        difference_between(first, NamedLines("b", second.lines[1:]))
