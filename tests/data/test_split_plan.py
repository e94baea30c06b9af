"""Where samples go when some have no choice: fixed names, earlier datasets, folds, units joined."""

import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.data.dataset import FixedListCard
from dsocr.data.source_report import SourceReport
from dsocr.data.split_plan import (
    EarlierDataset,
    FixedEntry,
    FixedList,
    SplitAssignment,
    SplitPlan,
    assign_splits,
    match_fixed,
    read_fixed_list,
)
from dsocr.data.splits import SplitCandidate, parse_fractions, split_of_fold
from dsocr.document import Split
from tests.data.making import write
from tests.raising import raises_code

EIGHT_ONE_ONE = parse_fractions("0.8/0.1/0.1")
PLAN = SplitPlan(EIGHT_ONE_ONE)


def lines(sizes: dict[str, int]) -> list[SplitCandidate]:
    return [
        SplitCandidate(f"{writer}-{number}", f"t:{number}", f"{writer} {number}", writer=writer)
        for writer, size in sizes.items()
        for number in range(size)
    ]


def placed(facts: list[SplitCandidate], plan: SplitPlan) -> tuple[SplitAssignment, SourceReport]:
    notes = SourceReport(strict=True)
    return assign_splits(facts, plan, notes), notes


def earlier(facts: list[SplitCandidate], placing: SplitAssignment) -> EarlierDataset:
    stored = zip(facts, placing.splits, placing.folds, strict=True)
    return EarlierDataset(
        "old", placing.unit, tuple(replace(fact, split=split, fold=fold) for fact, split, fold in stored)
    )


def by_writer(facts: list[SplitCandidate], placing: SplitAssignment) -> dict[str, set[Split | None]]:
    found = defaultdict(set)
    for fact, split in zip(facts, placing.splits, strict=True):
        found[fact.writer or ""].add(split)
    return dict(found)


WRITERS = st.dictionaries(st.text("абвгде", min_size=1, max_size=4), st.integers(1, 30), min_size=4, max_size=25)


@given(sizes=WRITERS, share=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 99), stratify=st.booleans())
@settings(max_examples=40)
def test_no_known_writer_moves_when_writers_are_added(
    sizes: dict[str, int], share: float, seed: int, stratify: bool
) -> None:
    plan = SplitPlan(EIGHT_ONE_ONE, seed=seed, stratify=stratify)
    old = lines(sizes)
    before, _ = placed(old, plan)
    added = {f"new {number}": 1 + number % 17 for number in range(max(1, round(len(sizes) * share)))}
    both = lines(added) + old
    after, _ = placed(both, replace(plan, earlier=earlier(old, before)))
    assert by_writer(both, after).items() >= by_writer(old, before).items()


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_new_writers_bring_the_sizes_near_the_fractions(share: float) -> None:
    old = lines({f"w{number}": 5 + number % 11 for number in range(40)})
    before, _ = placed(old, PLAN)
    both = old + lines({f"n{number}": 5 + number % 7 for number in range(round(40 * share))})
    after, notes = placed(both, replace(PLAN, earlier=earlier(old, before)))
    counts = Counter(after.splits)
    assert {split: counts[split] / len(both) for split in Split} == pytest.approx(EIGHT_ONE_ONE, abs=0.01)
    assert re.findall(r"\d+", notes.notes[0]) == ["40", str(round(40 * share))]


def test_more_lines_of_a_known_writer_go_where_the_writer_is() -> None:
    old = lines({"a": 8, "b": 4, "c": 4})
    before, _ = placed(old, PLAN)
    grown = lines({"a": 8, "b": 40, "c": 4})
    after, notes = placed(grown, replace(PLAN, earlier=earlier(old, before)))
    assert by_writer(grown, after) == by_writer(old, before)
    assert any("whole groups come no nearer" in remark for remark in notes.notes)


def test_a_writer_who_becomes_known_stays_where_the_page_was() -> None:
    old = [replace(fact, writer=None, page=f"page {fact.writer}") for fact in lines({"a": 8, "b": 4, "c": 4})]
    before, _ = placed(old, PLAN)
    now = [replace(fact, writer=fact.page and fact.page[-1]) for fact in old]
    after, _ = placed(now, replace(PLAN, split_by="writer", earlier=earlier(old, before)))
    assert after.splits == before.splits


def test_an_earlier_dataset_that_disagrees_with_the_unit_is_reported() -> None:
    old = [replace(fact, page=fact.name) for fact in lines({"a": 10})]
    before, _ = placed(old, replace(PLAN, split_by="page"))
    with raises_code("earlier-split-conflict"):
        placed(old, replace(PLAN, split_by="writer", earlier=earlier(old, before)))


def test_new_samples_that_join_two_splits_are_reported() -> None:
    old = lines({"a": 8, "b": 4, "c": 4})
    plan = replace(PLAN, split_by="writer+text")
    before, _ = placed(old, plan)
    bridge = [SplitCandidate("x", "new.tsv:7", text, writer="x") for text in ("a 0", "b 0")]
    with raises_code("earlier-split-conflict"):
        placed(old + bridge, replace(plan, earlier=earlier(old, before)))


def fixed(**splits: Split) -> FixedList:
    names = tuple(FixedEntry(name, split, f"list:{line}") for line, (name, split) in enumerate(splits.items(), start=1))
    return FixedList(FixedListCard(file="list", sha256="0" * 64, names=len(names)), names)


def test_listed_writers_keep_their_split_and_the_rest_share_the_remainder() -> None:
    facts = lines({f"w{number}": 10 for number in range(20)})
    plan = replace(PLAN, fixed=fixed(**{f"w{number}": Split.TEST for number in range(6)}))
    placing, notes = placed(facts, plan)
    assert Counter(placing.splits) == {"train": 120, "validation": 20, "test": 60}
    assert all(by_writer(facts, placing)[f"w{number}"] == {Split.TEST} for number in range(6))
    (note,) = notes.notes
    assert ("0.60/0.10/0.30" in note, "0.80/0.10/0.10" in note) == (True, True)


def test_the_group_of_a_fixed_image_follows_it() -> None:
    facts = lines({f"w{number}": 10 for number in range(20)})
    placing, notes = placed(facts, replace(PLAN, fixed=fixed(**{"w3-0": Split.VALIDATION})))
    assert by_writer(facts, placing)["w3"] == {Split.VALIDATION}
    assert re.findall(r"\d+", notes.notes[0]) == ["1", "9"]


def test_a_list_that_parts_a_group_is_reported() -> None:
    facts = lines({f"w{number}": 10 for number in range(20)})
    with raises_code("split-conflict"):
        placed(facts, replace(PLAN, fixed=fixed(**{"w3-0": Split.TEST, "w3-1": Split.TRAIN})))


def test_fixed_names_overrule_the_splits_of_the_source() -> None:
    facts = [replace(fact, split=split) for fact, split in zip(lines({"a": 2}), (Split.TRAIN, Split.TEST), strict=True)]
    placing, _ = placed(facts, replace(PLAN, fixed=fixed(**{"a-1": Split.VALIDATION})))
    assert (placing.unit, placing.splits) == ("given", [Split.TRAIN, Split.VALIDATION])


@given(sizes=WRITERS, folds=st.integers(3, 4), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_each_writer_is_in_one_fold_and_no_fold_is_empty(sizes: dict[str, int], folds: int, seed: int) -> None:
    facts = lines(sizes)
    placing, _ = placed(facts, SplitPlan(EIGHT_ONE_ONE, folds=folds, seed=seed))
    of_writer = defaultdict(set)
    for fact, fold in zip(facts, placing.folds, strict=True):
        of_writer[fact.writer].add(fold)
    assert all(len(found) == 1 for found in of_writer.values())
    assert set(placing.folds) == set(range(1, folds + 1))
    assert placing.splits == [split_of_fold(fold or 0, 1, folds) for fold in placing.folds]


def test_too_few_writers_for_the_folds_are_reported() -> None:
    with raises_code("too-few-groups"):
        placed(lines(dict.fromkeys("abcd", 3)), replace(PLAN, folds=5))


def test_folds_stay_when_writers_are_added() -> None:
    old = lines({f"w{number}": 5 + number % 11 for number in range(20)})
    plan = replace(PLAN, folds=5)
    before, _ = placed(old, plan)
    both = old + lines({f"n{number}": 7 for number in range(10)})
    after, _ = placed(both, replace(plan, earlier=earlier(old, before)))
    assert after.folds[: len(old)] == before.folds
    counts = Counter(after.folds)
    assert max(counts.values()) - min(counts.values()) <= 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"folds": 2}, "too-few-folds", id="nothing would train"),
        pytest.param({"folds": 5, "split_by": "given"}, "folds-conflict", id="folds and given splits"),
        pytest.param({"folds": 5, "fixed": fixed(a=Split.TEST)}, "folds-conflict", id="folds and a list"),
        pytest.param({"split_by": "font"}, "unknown-unit", id="no unit"),
    ],
)
def test_plans_that_contradict_themselves_are_reported(change: dict[str, object], message: str) -> None:
    with raises_code(message):
        replace(PLAN, **change)  # type: ignore[arg-type]


def test_one_lump_of_joined_units_is_reported_with_its_sizes() -> None:
    facts = [replace(fact, text="one text") for fact in lines({f"w{number}": 10 for number in range(9)})]
    with raises_code("group-too-large") as error:
        placed(facts, replace(PLAN, split_by="writer+text"))
    assert "split by writer alone" in str(error.value.hint)
    _, notes = placed(facts + lines({"x": 3, "y": 4}), replace(PLAN, split_by="writer+text"))
    assert re.findall(r"\d+", notes.notes[0]) == ["90", "97", "4", "3"]


def with_splits(facts: list[SplitCandidate], *splits: Split | None) -> list[SplitCandidate]:
    """The samples, each with what the source says of its split."""
    return [replace(fact, split=split) for fact, split in zip(facts, splits, strict=True)]


@pytest.mark.parametrize(
    ("splits", "remark"),
    [
        pytest.param((Split.TEST,) * 4, "no train and no validation split", id="only test"),
        pytest.param((Split.VALIDATION, Split.TEST) * 2, "no train split", id="no train"),
        pytest.param(
            (Split.TRAIN, Split.TEST) * 2,
            "no validation split",
            id="no validation",
        ),
        pytest.param((Split.TRAIN, Split.VALIDATION) * 2, "no test split", id="no test"),
    ],
)
def test_splits_of_the_source_are_kept_and_missing_ones_noted(splits: tuple[Split, ...], remark: str) -> None:
    placing, notes = placed(with_splits(lines({"a": 2, "b": 2}), *splits), PLAN)
    assert (placing.unit, placing.splits) == ("given", list(splits))
    assert all(part in notes.notes[0] for part in (remark, "--split-by writer"))


@pytest.mark.parametrize("others", [Split.TRAIN, None], ids=["all", "some"])
def test_where_the_source_says_nothing_but_train_splits_are_drawn_and_it_is_noted(others: Split | None) -> None:
    sizes = {f"w{number}": 2 for number in range(20)}
    facts = with_splits(lines(sizes), *[Split.TRAIN, others] * 20)
    placing, notes = placed(facts, PLAN)
    assert (placing.unit, set(placing.splits)) == ("writer", set(Split))
    (note,) = notes.notes
    assert "--split-by given" in note
    placing, notes = placed(facts, replace(PLAN, split_by="writer"))
    assert notes.notes == []


def test_train_as_the_only_split_can_be_kept() -> None:
    placing, _ = placed(with_splits(lines({"a": 2}), Split.TRAIN, Split.TRAIN), replace(PLAN, split_by="given"))
    assert (placing.unit, placing.splits) == ("given", [Split.TRAIN, Split.TRAIN])


@pytest.mark.parametrize("split_by", [None, "writer", "text"])
def test_samples_that_the_source_puts_into_test_stay_there_while_the_others_are_drawn(split_by: str | None) -> None:
    facts = lines({f"w{number}": 10 for number in range(20)})
    facts[30] = replace(facts[30], split=Split.TEST)
    facts[50] = replace(facts[50], split=Split.VALIDATION)
    placing, notes = placed(facts, replace(PLAN, split_by=split_by))
    assert placing.splits[30] == Split.TEST
    assert placing.splits[50] == Split.VALIDATION
    assert Counter(placing.splits) == {Split.TRAIN: 160, Split.VALIDATION: 20, Split.TEST: 20}
    followed = 0 if split_by == "text" else 18
    assert re.findall(r"\d+", notes.notes[0]) == ["2", str(followed)]


def test_one_group_that_the_source_puts_into_two_splits_is_reported() -> None:
    facts = lines({f"w{number}": 10 for number in range(20)})
    facts[30], facts[31] = (replace(facts[30], split=Split.TEST), replace(facts[31], split=Split.VALIDATION))
    with raises_code("split-conflict") as error:
        placed(facts, PLAN)
    assert "a smaller unit" in str(error.value.hint)


def test_given_splits_yield_to_folds() -> None:
    facts = [
        replace(fact, split=split)
        for fact, split in zip(lines({"a": 4, "b": 4, "c": 4}), [Split.TRAIN, Split.TEST] * 6, strict=True)
    ]
    placing, _ = placed(facts, replace(PLAN, folds=3))
    assert (placing.unit, Counter(placing.folds)) == ("writer", {1: 4, 2: 4, 3: 4})


FACTS = [
    SplitCandidate("lines/a01/a01-000u-00", "l:1", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/a01/a01-000u-01", "l:2", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/b02/b02-001-00", "l:3", "т", writer="001", page="b02"),
    SplitCandidate("lines/b02/b02", "l:4", "т", writer="002", page="b03"),
    SplitCandidate("old/b02-001-00", "l:5", "т", writer="003", page="b04"),
]


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        pytest.param("000\n", {0: "test", 1: "test"}, id="a writer, in test as no split is said"),
        pytest.param("a01-000u\ttrain\n", {0: "train", 1: "train"}, id="a page, with its split"),
        pytest.param("a01-000u-01.png\tval\n", {1: "validation"}, id="an image with its suffix"),
        pytest.param("lines\\b02\\b02-001-00.png\n", {2: "test"}, id="a whole path, written as on Windows"),
        pytest.param("# published\n\n001\r\n002\tdev\r\n", {2: "test", 3: "validation"}, id="comments, empty lines"),
        pytest.param("page:b02\n", {2: "test"}, id="the kind that is meant"),
        pytest.param("000\ttest\na01-000u\ttest\n", {0: "test", 1: "test"}, id="the same said twice"),
    ],
)
def test_names_are_found(tmp_path: Path, text: str, splits: dict[int, str]) -> None:
    names = read_fixed_list(write(tmp_path / "list.tsv", text)).entries
    assert {place: name.split.value for place, name in match_fixed(names, FACTS).items()} == splits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("000\nq99\n", "fixed-list-unknown", id="nothing"),
        pytest.param("b02\n", "fixed-list-ambiguous", id="two kinds"),
        pytest.param("\nb02-001-00\n", "fixed-list-ambiguous", id="two images"),
        pytest.param("000\na01-000u\ttrain\n", "fixed-list-conflict", id="two splits"),
        pytest.param("000\tsometimes\n", "fixed-list-split", id="no split"),
        pytest.param("# none\n", "fixed-list-empty", id="nothing named"),
        pytest.param("writer:b02\n", "fixed-list-unknown", id="not of the kind that is said"),
    ],
)
def test_invalid_rows_are_reported_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with raises_code(message):
        match_fixed(read_fixed_list(write(tmp_path / "list.tsv", text)).entries, FACTS)
