"""Reading by length changes the order of reading and nothing else."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.inference.reader import map_by_length


def read(things: list[int], most: int, heaviest: int) -> tuple[list[tuple[int, str]], list[list[int]]]:
    shown: list[list[int]] = []

    def answers(window: Iterable[int]) -> list[str]:
        shown.append(list(window))
        return [f"read {thing}" for thing in shown[-1]]

    seen = map_by_length(things, answers, length=float, weight=lambda thing: thing, max_items=most, max_weight=heaviest)
    return list(seen), shown


@given(st.lists(st.integers(0, 50)), st.integers(1, 6), st.integers(1, 100))
def test_answers_come_in_the_order_of_the_things(things: list[int], most: int, heaviest: int) -> None:
    seen, shown = read(things, most, heaviest)
    assert seen == [(thing, f"read {thing}") for thing in things]
    assert all(window == sorted(window, reverse=True) for window in shown)
    assert all(len(window) <= most for window in shown)
    assert all(sum(window) - min(window) < heaviest + 50 for window in shown)


def test_no_more_is_opened_ahead_than_may_be_held() -> None:
    opened: list[int] = []

    def things() -> Iterable[int]:
        for thing in range(100):
            opened.append(thing)
            yield thing

    seen = map_by_length(things(), list, length=float, weight=lambda thing: 10, max_items=64, max_weight=40)
    assert next(iter(seen)) == (0, 0)
    assert opened == [0, 1, 2, 3]


def test_an_answer_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(map_by_length([1, 2], lambda window: [1], length=float, weight=int, max_items=9, max_weight=9))
