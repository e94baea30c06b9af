"""Where samples go when some have no choice: fixed names, earlier datasets, folds, units joined."""

import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.data.dataset import FixedListCard, SourceReport
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


def lines(sizes: dict[str, int], *splits: Split | None) -> list[SplitCandidate]:
    """As many lines of each writer, and what the source says of their splits, again and again."""
    named = [(writer, number) for writer, size in sizes.items() for number in range(size)]
    return [
        SplitCandidate(f"{writer}-{number}", f"t:{number}", f"{writer} {number}", writer=writer, split=split)
        for (writer, number), split in zip(named, [*(splits or (None,))] * len(named), strict=False)
    ]


TWENTY = lines({f"w{number}": 10 for number in range(20)})


def assign(candidates: list[SplitCandidate], **options: Any) -> tuple[SplitAssignment, list[str]]:
    """The assignment and the notes."""
    report = SourceReport(strict=True)
    return assign_splits(candidates, SplitPlan(**{"fractions": EIGHT_ONE_ONE, **options}), report), report.notes


def earlier(candidates: list[SplitCandidate], assignment: SplitAssignment) -> EarlierDataset:
    stored = zip(candidates, assignment.splits, assignment.folds, strict=True)
    samples = tuple(replace(one, split=split, fold=fold) for one, split, fold in stored)
    return EarlierDataset("old", assignment.unit, samples)


def by_writer(candidates: list[SplitCandidate], labels: list[Any]) -> dict[str | None, set[Any]]:
    found = defaultdict(set)
    for candidate, label in zip(candidates, labels, strict=True):
        found[candidate.writer].add(label)
    return dict(found)


def fixed(**splits: Split) -> FixedList:
    entries = [FixedEntry(name, split, f"list:{line}") for line, (name, split) in enumerate(splits.items(), start=1)]
    return FixedList(FixedListCard(file="list", sha256="0" * 64, names=len(entries)), tuple(entries))


WRITERS = st.lists(st.integers(1, 12), min_size=4, max_size=20).map(
    lambda sizes: {f"w{number}": size for number, size in enumerate(sizes)}
)


@given(sizes=WRITERS, share=st.sampled_from([0.1, 0.5, 1.0]), seed=st.integers(0, 99), stratify=st.booleans())
@settings(max_examples=10)
def test_no_writer_is_in_two_splits_or_moves_when_writers_are_added(
    sizes: dict[str, int], share: float, seed: int, stratify: bool
) -> None:
    old = lines(sizes)
    before, _ = assign(old, seed=seed, stratify=stratify)
    both = lines({f"new {number}": 1 + number % 17 for number in range(max(1, round(len(sizes) * share)))}) + old
    after, _ = assign(both, seed=seed, stratify=stratify, earlier=earlier(old, before))
    assert by_writer(both, after.splits).items() >= by_writer(old, before.splits).items()
    assert all(len(splits) == 1 for splits in by_writer(both, after.splits).values())


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_new_writers_bring_the_sizes_near_the_fractions(share: float) -> None:
    old = lines({f"w{number}": 5 + number % 11 for number in range(40)})
    both = old + lines({f"n{number}": 5 + number % 7 for number in range(round(40 * share))})
    after, notes = assign(both, earlier=earlier(old, assign(old)[0]))
    counts = Counter(after.splits)
    assert {split: counts[split] / len(both) for split in Split} == pytest.approx(EIGHT_ONE_ONE, abs=0.01)
    assert re.findall(r"\d+", notes[0]) == ["40", str(round(40 * share))]


def test_a_unit_that_comes_nearer_to_the_fractions_is_named() -> None:
    three = [replace(line, page=f"page {place // 2}") for place, line in enumerate(lines({"a": 20, "b": 20, "c": 20}))]
    assert "--split-by page" in assign(three)[1][-1]
    _, notes = assign(lines({"a": 3, "b": 3, "c": 3}))
    assert "--split-by" not in notes[-1], "nine texts come no nearer either"


def test_a_writer_who_becomes_known_stays_where_the_page_was() -> None:
    old = [replace(line, writer=None, page=f"page {line.writer}") for line in lines({"a": 8, "b": 4, "c": 4})]
    before, _ = assign(old)
    now = [replace(one, writer=one.page and one.page[-1]) for one in old]
    assert assign(now, split_by="writer", earlier=earlier(old, before))[0].splits == before.splits


def test_an_earlier_dataset_that_disagrees_with_the_unit_is_reported() -> None:
    old = [replace(line, page=line.name) for line in lines({"a": 10})]
    with raises_code("earlier-split-conflict"):
        assign(old, split_by="writer", earlier=earlier(old, assign(old, split_by="page")[0]))


def test_new_samples_that_join_two_splits_are_reported() -> None:
    old = lines({"a": 8, "b": 4, "c": 4})
    before, _ = assign(old, split_by="writer+text")
    bridge = [SplitCandidate("x", "new.tsv:7", text, writer="x") for text in ("a 0", "b 0")]
    with raises_code("earlier-split-conflict", "new.tsv:7"):
        assign(old + bridge, split_by="writer+text", earlier=earlier(old, before))


def test_listed_writers_keep_their_split_and_the_rest_share_the_remainder() -> None:
    assignment, notes = assign(TWENTY, fixed=fixed(**{f"w{number}": Split.TEST for number in range(6)}))
    assert Counter(assignment.splits) == {"train": 120, "validation": 20, "test": 60}
    assert set(assignment.splits[:60]) == {Split.TEST}
    (note,) = notes
    assert ("0.60/0.10/0.30" in note, "0.80/0.10/0.10" in note) == (True, True)


def test_the_group_of_a_fixed_image_follows_it() -> None:
    assignment, notes = assign(TWENTY, fixed=fixed(**{"w3-0": Split.VALIDATION}))
    assert by_writer(TWENTY, assignment.splits)["w3"] == {Split.VALIDATION}
    assert re.findall(r"\d+", notes[0]) == ["1", "9"]


def test_a_list_that_parts_a_group_is_reported() -> None:
    with raises_code("split-conflict", "list:2"):
        assign(TWENTY, fixed=fixed(**{"w3-0": Split.TEST, "w3-1": Split.TRAIN}))


@given(sizes=WRITERS, folds=st.integers(3, 4), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_each_writer_is_in_one_fold_and_no_fold_is_empty(sizes: dict[str, int], folds: int, seed: int) -> None:
    candidates = lines(sizes)
    assignment, _ = assign(candidates, folds=folds, seed=seed, stratify=False)
    assert all(len(found) == 1 for found in by_writer(candidates, assignment.folds).values())
    assert set(assignment.folds) == set(range(1, folds + 1))
    assert assignment.splits == [split_of_fold(fold or 0, 1, folds) for fold in assignment.folds]


def test_folds_stay_when_writers_are_added() -> None:
    old = lines({f"w{number}": 5 + number % 11 for number in range(20)})
    before, _ = assign(old, folds=5)
    after, _ = assign(old + lines({f"n{number}": 7 for number in range(10)}), folds=5, earlier=earlier(old, before))
    assert after.folds[: len(old)] == before.folds
    counts = Counter(after.folds).values()
    assert max(counts) - min(counts) <= 7


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"folds": 2}, "too-few-groups", id="nothing would train"),
        pytest.param({"folds": 5, "split_by": "given"}, "folds-conflict", id="folds and given splits"),
        pytest.param({"folds": 5, "fixed": fixed(a=Split.TEST)}, "folds-conflict", id="folds and a list"),
        pytest.param({"split_by": "font"}, "unit-unknown", id="no unit"),
        pytest.param({"folds": 21}, "too-few-groups", id="fewer writers than folds"),
    ],
)
def test_impossible_plans_are_reported(options: dict[str, Any], code: str) -> None:
    with raises_code(code):
        assign(TWENTY, **options)


@pytest.mark.parametrize(("pages", "named"), [(2, "text"), (9, "page or --split-by text")])
def test_units_with_enough_groups_are_named(pages: int, named: str) -> None:
    two = [replace(line, page=f"page {place % pages}") for place, line in enumerate(lines({"a": 9, "b": 9}))]
    with raises_code("too-few-groups") as error:
        assign(two, split_by="writer")
    assert f"--split-by {named})" in error.value.render()


def test_where_joined_units_merge_most_samples_one_of_them_is_named() -> None:
    candidates = [replace(line, text="one text") for line in lines({f"w{number}": 10 for number in range(9)})]
    with raises_code("too-few-groups") as error:
        assign(candidates, split_by="writer+text")
    assert "(--split-by writer)" in error.value.render()
    _, notes = assign(candidates + lines({"x": 3, "y": 4}), split_by="writer+text")
    assert all(part in notes[0] for part in ("0.93/", "--split-by writer does"))


@pytest.mark.parametrize(
    ("splits", "missing"),
    [
        pytest.param((Split.TEST,), "no train and no validation split", id="only test"),
        pytest.param((Split.VALIDATION, Split.TEST), "no train split", id="no train"),
        pytest.param((Split.TRAIN, Split.TEST), "no validation split", id="no validation"),
        pytest.param((Split.TRAIN, Split.VALIDATION), "no test split", id="no test"),
    ],
)
def test_splits_of_the_source_are_kept_and_missing_ones_noted(splits: tuple[Split, ...], missing: str) -> None:
    candidates = lines({"a": 2, "b": 2}, *splits)
    assignment, notes = assign(candidates)
    assert (assignment.unit, assignment.splits) == ("given", [candidate.split for candidate in candidates])
    assert all(part in notes[0] for part in (missing, "--split-by writer"))


@pytest.mark.parametrize("others", [Split.TRAIN, None], ids=["all", "some"])
def test_splits_are_drawn_with_a_note_where_the_source_names_only_train(others: Split | None) -> None:
    candidates = lines({f"w{number}": 2 for number in range(20)}, Split.TRAIN, others)
    assignment, notes = assign(candidates)
    assert (assignment.unit, set(assignment.splits)) == ("writer", set(Split))
    (note,) = notes
    assert "--split-by given" in note
    assert assign(candidates, split_by="writer")[1] == []
    kept, _ = assign(lines({"a": 2}, Split.TRAIN), split_by="given")
    assert (kept.unit, kept.splits) == ("given", [Split.TRAIN, Split.TRAIN])


@pytest.mark.parametrize("split_by", [None, "writer", "text"])
def test_samples_that_the_source_puts_into_test_stay_there_while_the_others_are_drawn(split_by: str | None) -> None:
    candidates = [*TWENTY]
    candidates[30] = replace(candidates[30], split=Split.TEST)
    candidates[50] = replace(candidates[50], split=Split.VALIDATION)
    assignment, notes = assign(candidates, split_by=split_by)
    assert (assignment.splits[30], assignment.splits[50]) == (Split.TEST, Split.VALIDATION)
    assert Counter(assignment.splits) == {Split.TRAIN: 160, Split.VALIDATION: 20, Split.TEST: 20}
    assert re.findall(r"\d+", notes[0]) == ["2", "0" if split_by == "text" else "18"]


def test_one_group_that_the_source_puts_into_two_splits_is_reported() -> None:
    candidates = [*TWENTY]
    candidates[30] = replace(candidates[30], split=Split.TEST)
    candidates[31] = replace(candidates[31], split=Split.VALIDATION)
    with raises_code("split-conflict", candidates[31].where) as error:
        assign(candidates)
    assert "a smaller unit" in str(error.value.hint)


NAMED = [
    SplitCandidate("lines/a01/a01-000u-00", "l:1", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/a01/a01-000u-01", "l:2", "т", writer="000", page="a01-000u"),
    SplitCandidate("lines/b02/b02-001-00", "l:3", "т", writer="001", page="b02"),
    SplitCandidate("lines/b02/b02", "l:4", "т", writer="002", page="b03"),
    SplitCandidate("old/b02-001-00", "l:5", "т", writer="003", page="b04"),
]


@pytest.mark.parametrize(
    ("text", "splits"),
    [
        pytest.param("000\n", {0: "test", 1: "test"}, id="a writer, in test where no split is named"),
        pytest.param("a01-000u\ttrain\n", {0: "train", 1: "train"}, id="a page, with its split"),
        pytest.param("a01-000u-01.png\tval\n", {1: "validation"}, id="an image with its suffix"),
        pytest.param("lines\\b02\\b02-001-00.png\n", {2: "test"}, id="a whole path, written as on Windows"),
        pytest.param("# published\n\n001\r\n002\tdev\r\n", {2: "test", 3: "validation"}, id="comments, empty lines"),
        pytest.param("page:b02\n", {2: "test"}, id="the kind that is meant"),
        pytest.param("000\ttest\na01-000u\ttest\n", {0: "test", 1: "test"}, id="the same twice"),
    ],
)
def test_names_are_found(tmp_path: Path, text: str, splits: dict[int, str]) -> None:
    entries = read_fixed_list(write(tmp_path / "list.tsv", text)).entries
    assert {place: entry.split.value for place, entry in match_fixed(entries, NAMED).items()} == splits


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        pytest.param("000\nq99\n", "fixed-list-invalid", "list.tsv:2", id="nothing"),
        pytest.param("b02\n", "fixed-list-invalid", "list.tsv:1", id="two kinds"),
        pytest.param("\nb02-001-00\n", "fixed-list-invalid", "list.tsv:2", id="two images"),
        pytest.param("000\na01-000u\ttrain\n", "fixed-list-invalid", "list.tsv:2", id="two splits"),
        pytest.param("000\tsometimes\n", "fixed-list-invalid", "list.tsv:1", id="no split"),
        pytest.param("# none\n", "fixed-list-invalid", "list.tsv", id="nothing named"),
        pytest.param("writer:b02\n", "fixed-list-invalid", "list.tsv:1", id="not of the kind that is named"),
    ],
)
def test_invalid_rows_are_reported_with_their_line(tmp_path: Path, text: str, code: str, where: str) -> None:
    with raises_code(code, where):
        match_fixed(read_fixed_list(write(tmp_path / "list.tsv", text)).entries, NAMED)
