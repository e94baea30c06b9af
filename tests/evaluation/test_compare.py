"""Systems compared: the verdict, what it does not show, and what cannot be compared."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dsocr.evaluation.compare import Comparison, System, compare, render_comparison
from dsocr.evaluation.scores import LineScore
from tests.evaluation.making_runs import scored
from tests.raising import raises_code

TEXT = "съешь ещё этих мягких французских булок да выпей чаю"
TEN = [f"w{n % 10}" for n in range(40)]
Writers = Sequence[str | None]


def read(errors: Sequence[int], writers: Writers) -> list[LineScore]:
    """Make a line for each number, with that many letters misread."""
    return scored(*((TEXT, "x" * wrong + TEXT[wrong:]) for wrong in errors), writers=writers)


def against(first: Sequence[int], second: Sequence[int], writers: Writers) -> Comparison:
    return compare([System("base", read(first, writers)), System("adapter", read(second, writers))])


HARD, EASY = [10 + n % 7 for n in range(40)], [3 + n % 4 for n in range(40)]


@pytest.mark.parametrize(
    ("first", "second", "writers", "verdict", "groups"),
    [
        pytest.param(HARD, EASY, TEN, "better", (10, 0, 0), id="better everywhere"),
        pytest.param(EASY, HARD, TEN, "worse", (0, 10, 0), id="worse everywhere"),
        pytest.param([5] * 40, [5 + (-2) ** (n % 2) for n in range(40)], TEN, "unclear", (5, 5, 0), id="up and down"),
        pytest.param([20] * 6, [19, 19, 19, 19, 18, 19], TEN[:6], "unclear", (6, 0, 0), id="an interval around zero"),
        pytest.param([9, 8, 7, 9, 9], [1, 2, 1, 2, 3], TEN[:5], "too few", (5, 0, 0), id="five writers"),
        pytest.param([4, 8, 7], [5, 9, 8], [None] * 3, "too few", (0, 3, 0), id="three lines"),
        pytest.param([4] * 40, [4] * 40, TEN, "same", (0, 0, 10), id="equal"),
    ],
)
def test_the_verdict(
    first: list[int], second: list[int], writers: Writers, verdict: str, groups: tuple[int, int, int]
) -> None:
    comparison = against(first, second, writers)
    (difference,) = comparison.differences
    assert (difference.verdict, difference.groups) == (verdict, groups)
    assert difference.difference == pytest.approx((sum(second) - sum(first)) / len(first) / len(TEXT))
    assert render_comparison(comparison).startswith(difference.summary)
    written = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert written["differences"][0]["verdict"] == verdict


@pytest.mark.parametrize(("known", "named"), [(0, "not known"), (1, "this one writer"), (4, "these 4 writers")])
def test_a_verdict_on_fewer_than_five_writers_says_that_it_is_about_them(known: int, named: str) -> None:
    """With one to four writers, equal readers are called different in 11 to 36 % of cases for other writers."""
    writers = [f"w{number % known}" if known else None for number in range(40)]
    (difference,) = against(HARD, EASY, writers).differences
    assert difference.verdict == "better"
    assert difference.scope is not None
    assert named in difference.scope
    assert difference.summary.startswith(difference.scope)
    assert against(HARD, EASY, TEN).differences[0].scope is None


def test_a_loop_of_one_writer_does_not_hide_that_all_others_are_better() -> None:
    names = [f"w{n}" for n in range(14)]
    lines = read([9, 8, 7, 9, 9, 8, 7] * 2, names)
    loop = scored((TEXT, "да " * 5000), writers=["w0"])
    (difference,) = compare([System("a", loop + lines[1:]), System("b", read([2, 3] * 7, names))]).differences
    assert (difference.verdict, difference.interval.bounds) == ("better", None)
    mixed = System("b", read([4, 6] * 7, names))
    (difference,) = compare([System("a", loop + read([5] * 14, names)[1:]), mixed]).differences
    assert (difference.verdict, difference.interval.bounds) == ("unclear", None), "without an interval the test decides"


def test_lines_and_writers_are_listed_by_how_much_they_changed() -> None:
    (difference,) = against([5, 9, 2, 3], [5, 1, 4, 2], ["a", "b", "c", "d"]).differences
    assert [(line.last.id, line.saved) for line in difference.improved] == [("1", 8), ("3", 1)]
    assert [(line.last.id, line.saved) for line in difference.worsened] == [("2", -2)]
    comparison = against([9, 5, 5, 5, 5], [1, 6, 4, 5, 3], ["a", "b", "c", "d", "e"])
    assert [group.name for group in comparison.groups] == ["a", "e", "c", "d", "b"]


@pytest.mark.parametrize(
    ("writers", "cautions"),
    [
        pytest.param(TEN, 0, id="ten writers"),
        pytest.param(["anna", "boris"] * 20, 1, id="two writers"),
        pytest.param([None] * 40, 1, id="unknown writers"),
    ],
)
def test_limits_of_the_intervals_are_mentioned(writers: Writers, cautions: int) -> None:
    lines = read([3] * 40, writers)
    assert len(compare([System("a", lines), System("b", lines)]).cautions) == cautions


def test_a_line_with_many_of_the_errors_is_named() -> None:
    lines, loop = read([3] * 40, TEN), scored((TEXT, "да " * 100), writers=["w0"])
    (caution,) = compare([System("a", lines), System("b", loop + lines[1:])]).cautions
    assert caution.startswith("71 % of all errors of b ")
    assert caution.endswith(f", {loop[0].id}")


def test_lines_are_paired_by_id() -> None:
    lines = read([n % 7 for n in range(40)], TEN)
    assert compare([System("a", lines), System("b", lines[::-1])]).differences[0].verdict == "same"


ONE = read([1], ["w"])


@pytest.mark.parametrize(
    ("systems", "code"),
    [
        pytest.param([System("a", ONE)], "one-system", id="one"),
        pytest.param([System("a", ONE)] * 2, "duplicate-name", id="the same name twice"),
        pytest.param([System("a", []), System("b", [])], "no-lines", id="no lines"),
        pytest.param([System("a", read([1, 2], ["w"] * 2)), System("b", ONE)], "lines-differ", id="a line less"),
        pytest.param(
            [System("a", ONE), System("b", [replace(ONE[0], reference="иное")])], "references-differ", id="references"
        ),
    ],
)
def test_incomparable_systems_are_rejected(systems: list[System], code: str) -> None:
    with raises_code(code):
        compare(systems)


def test_a_writer_without_reference_text_is_compared() -> None:
    names = [f"w{n}" for n in range(6)]
    texts = [TEXT] * 5 + [""]
    first = scored(*((text, f"x{text[1:]}" if text else "") for text in texts), writers=names)
    second = scored(*((text, text or "да") for text in texts), writers=names)
    (difference,) = compare([System("base", first), System("adapter", second)]).differences
    assert difference.typical == pytest.approx(-1 / len(TEXT))
    assert difference.groups == (5, 1, 0)
