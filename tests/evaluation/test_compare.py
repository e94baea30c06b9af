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


def read(errors: Sequence[int], writers: Writers, new: int = 0) -> list[LineScore]:
    """Make a line for each number, with that many letters misread; those of new writers come first."""
    lines = scored(*((TEXT, "x" * wrong + TEXT[wrong:]) for wrong in errors), writers=writers)
    if not new:
        return lines
    return [replace(line, writer_status="new" if place < new else "known") for place, line in enumerate(lines)]


def against(first: Sequence[int], second: Sequence[int], writers: Writers) -> Comparison:
    return compare([System("base", read(first, writers)), System("adapter", read(second, writers))])


HARD, EASY = [10 + n % 7 for n in range(40)], [3 + n % 4 for n in range(40)]


@pytest.mark.parametrize(
    ("first", "second", "writers", "verdict", "groups"),
    [
        pytest.param(HARD, EASY, TEN, "better", (10, 0, 0), id="better everywhere"),
        pytest.param(EASY, HARD, TEN, "worse", (0, 10, 0), id="worse everywhere"),
        pytest.param([5] * 40, [5 + (-2) ** (n % 2) for n in range(40)], TEN, "unclear", (5, 5, 0), id="up and down"),
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
    assert difference.change.difference == pytest.approx((sum(second) - sum(first)) / len(first) / len(TEXT))
    text = render_comparison(comparison)
    assert text.startswith(difference.summary)
    first_block = [difference.summary, *difference.harmed, *comparison.answers]
    assert text.index("\n\n") == len("\n".join(first_block)), "answers come first"
    written = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert written["differences"][0]["verdict"] == verdict


@pytest.mark.parametrize(("known", "named"), [(0, "writers not known"), (1, "this one writer"), (4, "these 4 writers")])
def test_a_verdict_on_fewer_than_five_writers_says_that_it_is_about_them(known: int, named: str) -> None:
    """With one to four writers, equal readers are called different in 11 to 36 % of cases for other writers."""
    writers = [f"w{number % known}" if known else None for number in range(40)]
    comparison = against(HARD, EASY, writers)
    (difference,) = comparison.differences
    assert difference.verdict == "better"
    assert difference.rate.scope is not None
    assert named in difference.rate.scope
    assert difference.summary.startswith(difference.rate.scope)
    verdicts = [line for line in render_comparison(comparison).splitlines() if "is better than" in line]
    assert all(named in line for line in verdicts), "wherever it is said"
    written = comparison.to_dict()
    assert all(part["scope"] for part in (written["differences"][0], *written["rates"]))
    assert against(HARD, EASY, TEN).differences[0].rate.scope is None
    assert against(HARD, EASY, [f"w{n % 5}" for n in range(40)]).differences[0].verdict == "too few"


def test_a_typical_writer_and_all_errors_together_must_agree() -> None:
    """Thirteen writers get better, and one with many of the errors worse: the more he has, the less is sure."""
    names, better = [f"w{n}" for n in range(14)], [2, 3] * 6 + [3]
    for errors, verdict in ((21, "better"), (30, "unclear")):
        systems = [System("a", read([5] * 13 + [20], names)), System("b", read([*better, errors], names))]
        (difference,) = compare(systems).differences
        assert difference.verdict == verdict
        assert difference.change.corrected_p is not None
        assert difference.change.corrected_p < 0.01, "the typical writer's test"
        assert f" %, {difference.change.change} (" in difference.summary
        assert f"{difference.change.bounds})" in difference.summary
        assert any("typical writer" in detail for detail in difference.details)
    assert against(HARD, EASY, ["a", "b"] * 20).differences[0].typical is None, "single lines"


def test_writers_who_are_read_worse_are_named() -> None:
    """Nobody is named for what is better, and a rise that may be chance says so."""
    names = [f"w{n // 12}" for n in range(96)]
    before = read([6] * 96, names, new=24)
    after = read([9] * 12 + [6] * 12 + [2] * 72, names, new=24)
    (difference,) = compare([System("a", before), System("b", after)]).differences
    new, one = difference.harmed
    assert new == "worse on new writers: CER 11.5 \N{RIGHTWARDS ARROW} 14.4 %, which may be chance"
    assert one == "worse on writer w0: CER 11.5 \N{RIGHTWARDS ARROW} 17.3 %"
    assert difference.to_dict()["harmed"] == [new, one]
    systems = [
        System(name, read(errors, names, new=12)) for name, errors in (("a", [6] * 96), ("b", [9] * 12 + [2] * 84))
    ]
    assert compare(systems).differences[0].harmed == ["worse on new writer w0: CER 11.5 \N{RIGHTWARDS ARROW} 17.3 %"]
    assert not compare([System("a", after[12:]), System("b", before[12:])]).differences[0].harmed, "worse as a whole"
    mixed = read([9] * 48 + [2] * 48, names)
    (difference,) = compare([System("a", read([6] * 96, names)), System("b", mixed)]).differences
    assert [said.split(":")[0] for said in difference.harmed[:2]] == ["worse on writer w0", "worse on writer w1"]
    assert difference.harmed[3:] == ["worse on 1 more writer"]


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
    comparison = compare([System("a", lines), System("b", loop + lines[1:])])
    assert comparison.cautions[0].startswith("71 % of all errors of b ")
    assert loop[0].id in comparison.cautions[0]
    eleven = read([13] + [3] * 39, TEN)
    assert compare([System("a", lines), System("b", eleven)]).cautions, "a tenth of all errors"
    assert not compare([System("a", lines), System("b", read([10] + [3] * 39, TEN))]).cautions


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
    assert difference.groups == (5, 1, 0)
    assert difference.typical is not None
    assert difference.typical[0] == pytest.approx(1 / 3), "half an error of one and a half"


YO = "ещё её ёж всё ещё цел"


def test_a_tool_that_writes_e_for_yo_is_no_worse_once_they_are_read_alike() -> None:
    names = [f"w{n % 10}" for n in range(40)]
    first = scored(*((YO, YO if n % 4 else f"x{YO[1:]}") for n in range(40)), writers=names)
    second = scored(*((YO, line.prediction.replace("ё", "е")) for line in first), writers=names)
    comparison = compare([System("a", first), System("b", second)])
    found = {rate.name: rate.of_pair("a", "b").verdict for rate in comparison.rates}
    assert (found["CER"], found["CER ё as е"]) == ("worse", "same")
    assert any("ё as е" in caution for caution in comparison.cautions)


def test_all_pairs_are_corrected_together() -> None:
    """Holm's procedure: the smallest p times the number of pairs, and no corrected p below a smaller one's."""
    systems = [System(name, read([wrong] * 36 + [4] * 4, TEN)) for name, wrong in (("a", 9), ("b", 5), ("c", 4))]
    comparison = compare(systems)
    pairs = comparison.rates[0].differences
    assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert all(pair.corrected_p == pytest.approx(3 * pair.p) for pair in pairs if pair.p)
    assert [difference.verdict for difference in comparison.differences] == ["better", "better"]
    six = [System(name, read([wrong] * 6, TEN[:6])) for name, wrong in (("a", 9), ("b", 5), ("c", 1))]
    assert {difference.verdict for difference in compare(six).differences} == {"too few"}, (
        "no result of six writers passes for three"
    )


@pytest.mark.parametrize(("new", "has_interval"), [(1, False), (4, False), (5, True)])
def test_new_writers_have_rates_of_their_own_and_intervals_from_five_on(new: int, has_interval: bool) -> None:
    names = [f"w{n % (6 + new)}" for n in range(60)]
    lines = {
        kind: [
            replace(one, writer_status="new" if int(str(one.writer)[1:]) < new else "known")
            for one in read(errors, names)
        ]
        for kind, errors in (("a", HARD + HARD[:20]), ("b", EASY + EASY[:20]))
    }
    rates = compare([System(name, own) for name, own in lines.items()]).rates
    (rate,) = (rate for rate in rates if (rate.name, rate.part) == ("CER", "new"))
    assert rate.writers == new
    assert f"{new} new writer" in rate.title
    assert (rate.intervals[0].bounds is not None) == (rate.of_pair("a", "b").p is not None) == has_interval
    assert rate.lines < 60
