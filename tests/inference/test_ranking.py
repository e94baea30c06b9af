"""Which lines are chosen, in which order, and with which reason."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.inference.suggest import Candidate, TrainingContent, choose

KNOWN = TrainingContent.of([("anna", "аби" * 20)] * 3)


def line(name: str, confidence: float | None = 0.9, text: str = "аби", **facts: str | None) -> Candidate:
    return Candidate(name, text, confidence, **{"page": name, **facts})


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(line("a", 0.6), line("b", 0.9), id="less sure"),
        pytest.param(line("a", writer="new"), line("b", writer="anna"), id="a new writer"),
        pytest.param(line("a", text="абъ"), line("b", text="аби"), id="a rare character"),
        pytest.param(line("a", 0.2), line("b", None, text=""), id="something was read, if unsurely"),
        pytest.param(line("a", None, text=""), line("b", 0.8), id="nothing was read where much should be"),
    ],
)
def test_order_of_the_ranking(better: Candidate, worse: Candidate) -> None:
    for given_order in ([better, worse], [worse, better]):
        assert [choice.candidate.id for choice in choose(given_order, KNOWN, 2)] == ["a", "b"]


def test_lines_of_one_page_do_not_come_all_together() -> None:
    bad = [line(f"bad{number}", 0.5, page="bad") for number in range(10)]
    others = [line(f"other{number}", 0.7) for number in range(5)]
    first = [choice.candidate.page for choice in choose([*bad, *others], KNOWN, 6)]
    assert first.count("bad") == 2


def test_a_rare_character_and_a_new_writer_count_for_less_once_they_are_taken() -> None:
    lines = [line(f"rare{number}", 0.9, text="ъ") for number in range(4)]
    worths = [choice.value for choice in choose(lines, KNOWN, 4)]
    assert worths == sorted(worths, reverse=True)
    assert worths[3] < worths[0] - 0.2
    new = [line(f"new{number}", 0.9, writer="new") for number in range(4)]
    assert choose(new, KNOWN, 4)[3].value < choose(new, KNOWN, 4)[0].value - 0.2


def test_the_reason_is_a_readable_sentence() -> None:
    chosen = choose([line("a", 0.62, text="аъ №", writer="new"), line("b", None, text="")], KNOWN, 2)
    assert {choice.candidate.id: choice.reason for choice in chosen} == {
        "a": "62% of its text is likely right; a new writer; rare in training: ъ №",
        "b": "read as empty",
    }


lines = st.builds(
    Candidate,
    id=st.integers(0, 10**6).map(str),
    text=st.text("абъ ", max_size=4),
    confidence=st.none() | st.floats(0, 1),
    page=st.none() | st.sampled_from("pq"),
    writer=st.sampled_from([None, "anna", "new", "newer"]),
)


@given(st.lists(lines, max_size=25), st.integers(0, 30))
def test_as_many_as_asked_each_once_and_always_the_same(candidates: list[Candidate], count: int) -> None:
    chosen = choose(candidates, KNOWN, count)
    assert len(chosen) == min(count, len(candidates))
    assert chosen == choose(candidates, KNOWN, count)
    worths = [choice.value for choice in chosen]
    assert worths == sorted(worths, reverse=True)
    assert chosen == choose(candidates, KNOWN, 99)[:count]


def test_many_lines_are_ranked_in_time() -> None:
    """Worth falls lazily: fifty thousand lines take a moment, not fifty thousand rounds of them."""
    draw = random.Random(1)
    many = [line(f"{number}", draw.random(), page=f"{number // 30}") for number in range(50_000)]
    assert len({choice.candidate.page for choice in choose(many, KNOWN, 200)}) > 100
