"""Groups stay whole, every split gets its share, and the same seed gives the same splits."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr.data.splits import (
    SplitCandidate,
    assign_balanced,
    assign_groups,
    compute_strata,
    group_candidates,
    imbalance,
    parse_fractions,
    parse_units,
    script_of,
)
from dsocr.document import Split
from tests.raising import raises_code

EIGHT_ONE_ONE = parse_fractions("0.8/0.1/0.1")
FRACTIONS = st.sampled_from(["0.8/0.1/0.1", "0.5/0.25/0.25", "0.9/0/0.1", "1/0/0", "70/15/15", "0.34/0.33/0.33"])
SIZES = st.lists(st.integers(1, 60), min_size=3, max_size=40).map(
    lambda sizes: {f"g{number}": size for number, size in enumerate(sizes)}
)
SEEDS = st.integers(0, 2**32)


def counts(sizes: dict[str, int], assigned: dict[str, Split]) -> dict[Split, int]:
    return {split: sum(sizes[group] for group in sizes if assigned[group] == split) for split in Split}


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS)
@settings(max_examples=30)
def test_every_group_is_in_one_split_and_sizes_are_near_the_fractions(
    sizes: dict[str, int], fractions: str, seed: int
) -> None:
    shares = parse_fractions(fractions)
    assigned = assign_groups(sizes, shares, seed)
    assert assigned.keys() == sizes.keys()
    assert set(assigned.values()) == {split for split in Split if shares[split] > 0}
    for split, filled in counts(sizes, assigned).items():
        assert abs(filled - shares[split] * sum(sizes.values())) <= 2 * max(sizes.values())
    assert assign_groups(dict(reversed(sizes.items())), shares, seed) == assigned, "the order does not matter"


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS)
@settings(max_examples=25)
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


@given(sizes=SIZES, fractions=FRACTIONS, seed=SEEDS, data=st.data())
@settings(max_examples=25)
def test_fixed_groups_keep_their_split_and_an_overfull_split_gets_no_more(
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


def test_too_few_groups_are_an_error() -> None:
    with raises_code("too-few-groups"):
        assign_groups({"a": 5, "b": 5}, EIGHT_ONE_ONE, 1)


@pytest.mark.parametrize(
    "text", ["0.8/0.2", "0.8/0.1/0.2", "a/b/c", "1.2/-0.1/-0.1", "", "nan/0/0", "inf/0/0", "0/0/0"]
)
def test_fractions_that_make_no_whole_are_an_error(text: str) -> None:
    assert parse_fractions("80/10/10") == EIGHT_ONE_ONE
    with raises_code("bad-fractions"):
        parse_fractions(text)


def candidate(text: str = "т", **known: str) -> SplitCandidate:
    return SplitCandidate("p", "p.xml:1", text, **known)  # type: ignore[arg-type]


def own_keys(one: SplitCandidate, units: str) -> set[str]:
    return {next(one.keys(unit)) for unit in parse_units(units)}


@pytest.mark.parametrize(
    ("known", "units", "keys"),
    [
        pytest.param({"writer": "a", "page": "1"}, "writer", ("writer a",), id="the unit that is asked for"),
        pytest.param({"page": "1"}, "writer", ("page 1",), id="where there is no writer, the page"),
        pytest.param({"document": "d", "page": "1"}, "writer", ("document d",), id="before the page, the document"),
        pytest.param({"document": "d", "page": "1"}, "page", ("page d/1",), id="two documents may have a page 1"),
        pytest.param({}, "document", ("text т",), id="else the text"),
        pytest.param({"writer": "a"}, "writer+text", ("writer a", "text т"), id="both"),
        pytest.param({}, "writer+text", ("text т",), id="the same key once"),
        pytest.param({"text": " а  б"}, "text", ("text а б",), id="spaces do not count"),
    ],
)
def test_groups_of_a_sample_follow_its_metadata(known: dict[str, str], units: str, keys: tuple[str, ...]) -> None:
    assert own_keys(candidate(**known), units) == set(keys)


CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.sampled_from("абвгдежз"),
        writer=st.sampled_from(["", "a", "b", "c", "d", "e"]),
        page=st.sampled_from("12"),
    ),
    min_size=1,
    max_size=30,
)


@given(candidates=CANDIDATES)
def test_joined_groups_share_nothing_and_are_no_larger_than_they_must_be(candidates: list[SplitCandidate]) -> None:
    """Whatever is in one group is reached from its first sample by steps over a shared key."""
    groups = group_candidates(candidates, ["writer", "text"])
    keys = [own_keys(candidate, "writer+text") for candidate in candidates]
    by_group = {group: [key for key, its in zip(keys, groups, strict=True) if its == group] for group in groups}
    for group, members in by_group.items():
        reached = members[0].copy()
        for _ in members:
            reached = reached.union(*(member for member in members if member & reached))
        assert all(member <= reached for member in members)
        assert not any(reached & one for other, others in by_group.items() if other != group for one in others)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        pytest.param("Ёлка № 5", "Cyrillic", id="digits and signs beside letters do not count"),
        pytest.param("Noël", "Latin", id="accents"),
        pytest.param("1905", "digits", id="digits alone"),
        pytest.param("USB-кабель", "mixed", id="two scripts"),
        pytest.param("— …", "other", id="no letters"),
        pytest.param("λόγος", "other", id="another script"),
        pytest.param("λ и λ", "mixed", id="another script and Cyrillic"),
    ],
)
def test_scripts(text: str, script: str) -> None:
    assert script_of(text) == script


def lines_by_writers(seed: int, writers: int = 40) -> tuple[list[str], list[str]]:
    """Lines by writers of whom a quarter write short lines, and a quarter Latin ones."""
    draw = random.Random(seed)
    groups, texts = [], []
    for writer in range(writers):
        length, letter = (3, 40)[writer % 4 > 0], "яn"[writer % 4 == 1]
        for _ in range(draw.randint(5, 40)):
            groups.append(f"w{writer}")
            texts.append(letter * (length + draw.randint(0, 9)))
    return groups, texts


@pytest.mark.parametrize(("writers", "factor"), [pytest.param(9, 1, id="draws differ in size"), (40, 0.7)])
def test_stratified_splits_are_nearer_to_the_whole_and_no_farther_from_the_fractions(
    writers: int, factor: float
) -> None:
    before = after = 0.0
    for seed in range(3):
        groups, texts = lines_by_writers(seed, writers)
        sizes, strata = Counter(groups), compute_strata(texts)

        def distance(assigned: dict[str, Split], sizes: dict[str, int] = sizes) -> float:
            total = sum(sizes.values())
            return sum((count - EIGHT_ONE_ONE[split] * total) ** 2 for split, count in counts(sizes, assigned).items())

        plain = assign_groups(sizes, EIGHT_ONE_ONE, seed)
        balanced = assign_balanced(groups, texts, EIGHT_ONE_ONE, seed)
        assert distance(balanced) <= distance(plain)
        before += imbalance(strata, np.array([plain[group] for group in groups]))
        after += imbalance(strata, np.array([balanced[group] for group in groups]))
    assert after < factor * before


def test_a_seed_gives_the_same_splits_in_any_order_and_fixed_groups_stay() -> None:
    groups, texts = lines_by_writers(1)
    fixed = {"w0": Split.TEST, "w1": Split.VALIDATION}
    order = random.Random(3).sample(range(len(groups)), len(groups))
    shuffled = [groups[place] for place in order], [texts[place] for place in order]
    assigned = assign_balanced(groups, texts, EIGHT_ONE_ONE, 1, fixed=fixed)
    assert assign_balanced(*shuffled, EIGHT_ONE_ONE, 1, fixed=fixed) == assigned
    assert assigned.items() >= fixed.items()
