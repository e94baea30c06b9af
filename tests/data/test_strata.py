"""Splits are drawn alike in length and script, and their sizes pay nothing for it."""

import random
from collections import Counter

import numpy as np
import pytest

from dsocr.data.splits import (
    assign_balanced,
    assign_groups,
    compute_strata,
    imbalance,
    length_bounds,
    parse_fractions,
    script_of,
)
from dsocr.document import Split

EIGHT_ONE_ONE = parse_fractions("0.8/0.1/0.1")


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


def test_length_buckets_hold_about_as_many_texts_each() -> None:
    assert length_bounds(range(100)) == [20, 40, 60, 80]
    assert length_bounds([7] * 50) == [7], "equal lengths are one bucket"
    assert length_bounds([]) == []


def test_every_text_has_one_length_and_one_script() -> None:
    assert compute_strata(["а", "bb", "333", "", "дд e"]).sum(axis=1).tolist() == [2] * 5


def test_unevenness_is_none_where_splits_are_alike_and_whole_where_they_share_nothing() -> None:
    alike = compute_strata(["а", "aaaaaa"] * 4)
    assert imbalance(alike, np.array([0, 0, 1, 1] * 2)) == 0
    apart = imbalance(alike, np.array([0, 1] * 4))
    assert apart == pytest.approx(2), "lengths and scripts, half the whole away in each of two splits"


def hands(seed: int) -> tuple[list[str], list[str]]:
    """Lines by 40 writers: a quarter of them write short lines, a quarter Latin ones."""
    draw = random.Random(seed)
    groups, texts = [], []
    for writer in range(40):
        length, letter = (3, 40)[writer % 4 > 0], "яn"[writer % 4 == 1]
        for _ in range(draw.randint(5, 40)):
            groups.append(f"w{writer}")
            texts.append(letter * (length + draw.randint(0, 9)))
    return groups, texts


def test_alike_splits_are_nearer_to_the_whole_and_no_farther_from_the_fractions() -> None:
    before = after = 0.0
    for seed in range(5):
        groups, texts = hands(seed)
        plain = assign_groups(Counter(groups), EIGHT_ONE_ONE, seed)
        alike = assign_balanced(groups, texts, EIGHT_ONE_ONE, seed)
        assert off(alike, groups) <= off(plain, groups)
        before += imbalance(compute_strata(texts), np.array([plain[group] for group in groups]))
        after += imbalance(compute_strata(texts), np.array([alike[group] for group in groups]))
    assert after < 0.7 * before


def off(assigned: dict[str, Split], groups: list[str]) -> float:
    """The squared distance of the sizes to the fractions."""
    filled = Counter(assigned[group] for group in groups)
    return sum((filled[split] - EIGHT_ONE_ONE[split] * len(groups)) ** 2 for split in Split)


def test_the_same_seed_draws_the_same_whatever_the_order() -> None:
    groups, texts = hands(1)
    order = random.Random(3).sample(range(len(groups)), len(groups))
    shuffled = [groups[place] for place in order], [texts[place] for place in order]
    assert assign_balanced(*shuffled, EIGHT_ONE_ONE, 1) == assign_balanced(groups, texts, EIGHT_ONE_ONE, 1)


def test_held_groups_do_not_move() -> None:
    groups, texts = hands(2)
    held = {"w0": Split.TEST, "w1": Split.VALIDATION}
    assert assign_balanced(groups, texts, EIGHT_ONE_ONE, 1, fixed=held).items() >= held.items()
