"""What is made one group ahead."""

import threading
from collections.abc import Iterator

import pytest

from dsocr.inference.ahead import made_ahead


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([[1, 2], [3], [4, 5]], id="groups"),
        pytest.param([[], [1], [], []], id="empty ones among them"),
        pytest.param([[1]], id="one"),
    ],
)
def test_results_come_in_order_and_by_group(groups: list[list[int]]) -> None:
    assert list(made_ahead(groups, lambda number: -number)) == [[-number for number in group] for group in groups]


def test_nothing_comes_of_nothing() -> None:
    assert list(made_ahead([], abs)) == []


def test_the_next_group_is_made_while_one_is_used_and_no_more_than_that() -> None:
    made: list[int] = []
    second = threading.Event()

    def make(number: int) -> int:
        made.append(number)
        if number == 2:
            second.set()
        return number

    coming = made_ahead([[1], [2], [3], [4]], make)
    assert next(coming) == [1]
    assert second.wait(10)
    coming.close()
    assert made == [1, 2]


def test_an_error_is_raised_when_its_turn_comes() -> None:
    def make(number: int) -> int:
        return 1 // number

    coming = made_ahead([[1], [0], [1]], make)
    assert next(coming) == [1]
    with pytest.raises(ZeroDivisionError):
        next(coming)


def test_groups_are_asked_for_in_the_thread_that_takes_them() -> None:
    asking: set[int] = set()

    def groups() -> Iterator[list[int]]:
        for number in range(3):
            asking.add(threading.get_ident())
            yield [number]

    makers = {thread for group in made_ahead(groups(), lambda _: threading.get_ident()) for thread in group}
    assert asking == {threading.get_ident()}
    assert len(makers) == 1
    assert not makers & asking
