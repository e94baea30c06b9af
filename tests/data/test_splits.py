"""Groups stay whole, every split gets its share, and the same seed gives the same answer."""

import random
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.data.splits import assign_groups, find_crossing, parse_fractions
from dsocr.document import Split
from dsocr.io.files import split_of_folder
from tests.raising import raises_code

EIGHT_ONE_ONE = parse_fractions("0.8/0.1/0.1")
FRACTIONS = st.sampled_from(["0.8/0.1/0.1", "0.5/0.25/0.25", "0.9/0/0.1", "1/0/0", "70/15/15", "0.34/0.33/0.33"])
SIZES = st.dictionaries(st.text(min_size=1, max_size=6), st.integers(1, 60), min_size=3, max_size=80)
SEEDS = st.integers(0, 2**32)


def counts(sizes: dict[str, int], assigned: dict[str, Split]) -> dict[Split, int]:
    return {split: sum(sizes[group] for group in sizes if assigned[group] == split) for split in Split}


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS)
def test_every_group_is_in_one_split_and_no_wanted_split_is_empty(
    sizes: dict[str, int], fractions: str, seed: int
) -> None:
    shares = parse_fractions(fractions)
    assigned = assign_groups(sizes, shares, seed)
    assert assigned.keys() == sizes.keys()
    assert set(assigned.values()) == {split for split in Split if shares[split] > 0}


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS)
def test_sizes_are_off_by_no_more_than_two_groups(sizes: dict[str, int], fractions: str, seed: int) -> None:
    shares = parse_fractions(fractions)
    filled = counts(sizes, assign_groups(sizes, shares, seed))
    for split in Split:
        if shares[split] > 0:
            assert abs(filled[split] - shares[split] * sum(sizes.values())) <= 2 * max(sizes.values())


@given(sizes=SIZES, seed=SEEDS)
def test_the_order_of_groups_does_not_matter(sizes: dict[str, int], seed: int) -> None:
    shuffled = list(sizes.items())
    random.Random(seed).shuffle(shuffled)
    assert assign_groups(sizes, EIGHT_ONE_ONE, seed) == assign_groups(dict(shuffled), EIGHT_ONE_ONE, seed)


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS)
@settings(max_examples=50)
def test_no_single_move_would_come_nearer(sizes: dict[str, int], fractions: str, seed: int) -> None:
    shares = parse_fractions(fractions)
    assigned = assign_groups(sizes, shares, seed)
    wanted = [split for split in Split if shares[split] > 0]

    def distance(assigned: dict[str, Split]) -> float:
        filled = counts(sizes, assigned)
        return sum((filled[split] - shares[split] * sum(sizes.values())) ** 2 for split in wanted)

    best = distance(assigned)
    for group, split in assigned.items():
        if list(assigned.values()).count(split) > 1:
            assert all(distance({**assigned, group: other}) > best - 1e-6 for other in wanted)


def test_single_samples_are_split_exactly() -> None:
    sizes = {str(number): 1 for number in range(1000)}
    assert counts(sizes, assign_groups(sizes, EIGHT_ONE_ONE, 1)) == {"train": 800, "validation": 100, "test": 100}


def test_another_seed_is_another_draw() -> None:
    sizes = {str(number): 1 for number in range(100)}
    assert assign_groups(sizes, EIGHT_ONE_ONE, 1) != assign_groups(sizes, EIGHT_ONE_ONE, 2)


def test_many_groups_of_many_sizes_take_no_time() -> None:
    sizes = {str(number): number for number in range(1, 5000)}
    filled = counts(sizes, assign_groups(sizes, EIGHT_ONE_ONE, 1))
    assert abs(filled[Split.TEST] - sum(sizes.values()) * 0.1) <= 1


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS, data=st.data())
def test_held_groups_stay_and_what_they_overfill_gets_no_more(
    sizes: dict[str, int], fractions: str, seed: int, data: st.DataObject
) -> None:
    shares = parse_fractions(fractions)
    held = data.draw(st.dictionaries(st.sampled_from(sorted(sizes)), st.sampled_from(list(Split))))
    assigned = assign_groups(sizes, shares, seed, fixed=held)
    assert assigned.keys() == sizes.keys()
    assert assigned.items() >= held.items()
    total = sum(sizes.values())
    for split in Split:
        kept = sum(sizes[group] for group in held if held[group] == split)
        free = sum(size for group, size in sizes.items() if group not in held and assigned[group] == split)
        if kept > shares[split] * total + 1e-6 or shares[split] == 0:
            assert free == 0


def test_what_is_left_beside_held_groups_is_shared_by_the_fractions() -> None:
    sizes = {str(number): 1 for number in range(1000)}
    held = {str(number): Split.TEST for number in range(280)}
    assert counts(sizes, assign_groups(sizes, EIGHT_ONE_ONE, 1, fixed=held)) == {
        "train": 640,
        "validation": 80,
        "test": 280,
    }


def test_folds_are_dealt_as_splits_are() -> None:
    sizes = {str(number): 1 + number % 7 for number in range(50)}
    assigned = assign_groups(sizes, dict.fromkeys(range(1, 6), 0.2), 1)
    filled = [sum(sizes[group] for group in sizes if assigned[group] == fold) for fold in range(1, 6)]
    assert max(filled) - min(filled) <= 1


def test_too_few_groups_are_an_error() -> None:
    with raises_code("too-few-groups"):
        assign_groups({"a": 5, "b": 5}, EIGHT_ONE_ONE, 1, unit="writer")


@pytest.mark.parametrize(
    "text", ["0.8/0.2", "0.8/0.1/0.2", "a/b/c", "1.2/-0.1/-0.1", "", "nan/0/0", "inf/0/0", "0/0/0"]
)
def test_shares_that_make_no_whole_are_an_error(text: str) -> None:
    with raises_code("bad-fractions"):
        parse_fractions(text)


def test_percentages_are_shares() -> None:
    assert parse_fractions("80/10/10") == EIGHT_ONE_ONE


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        pytest.param("train/images", Split.TRAIN, id="train"),
        pytest.param("data/Training", Split.TRAIN, id="capital, long form"),
        pytest.param("val", Split.VALIDATION, id="val"),
        pytest.param("dev", Split.VALIDATION, id="dev"),
        pytest.param("tests", None, id="another word"),
        pytest.param("", None, id="no folder"),
    ],
)
def test_folders_named_after_splits(folder: str, split: Split | None) -> None:
    assert split_of_folder(PurePath(folder)) == split


def test_crossing_names_what_stands_in_two_splits() -> None:
    values = [("a", Split.TEST), ("a", Split.TRAIN), ("b", Split.TRAIN), (None, Split.TRAIN), (None, Split.TEST)]
    assert find_crossing(values) == {"a": [Split.TRAIN, Split.TEST]}
