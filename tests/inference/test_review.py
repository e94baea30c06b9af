"""The benefit of reviewing the least confident lines, measured and estimated."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.inference.review import (
    CheckedShare,
    EstimatedCer,
    checking_curve,
    describe_gain,
    estimated_checking_curve,
    point_at,
    share_for,
    worth_checking,
    write_review,
)

LINES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50)), max_size=30)


def test_every_checked_line_takes_its_errors_away() -> None:
    curve = checking_curve([(6, 10), (2, 10), (0, 20)])
    assert estimated_checking_curve([]) == [CheckedShare(0, 0, 0, 1)]
    assert curve == [
        CheckedShare(0, 0, 8 / 40, 0),
        CheckedShare(1 / 3, 1 / 4, 2 / 30, 0.75),
        CheckedShare(2 / 3, 2 / 4, 0, 1),
        CheckedShare(1, 1, 0, 1),
    ]
    gain = describe_gain(checking_curve([(6, 2), (2, 8), *[(0, 10)] * 9]))
    assert "lines hold 75 % of the errors (8.2 times chance)" in gain
    assert "letters 100 % of the errors (10.0 times chance)" in gain


def test_a_line_is_worth_checking_for_the_errors_expected_in_it_and_not_for_its_length() -> None:
    certain, short, long = worth_checking(0.99, 80), worth_checking(0.5, 2), worth_checking(0.8, 60)
    assert certain < short < long
    assert worth_checking(0.7, 60) < worth_checking(0.6, 60) < worth_checking(None, 60)


@given(LINES)
def test_the_most_doubtful_first_never_makes_the_rest_worse(lines: list[tuple[float, int]]) -> None:
    curve = estimated_checking_curve(sorted(lines))
    assert all(0 <= point.rest <= 1 and -1e-9 <= point.errors_found <= 1 for point in curve)
    rests = [point.rest for point in curve]
    assert all(after <= before + 1e-9 for before, after in pairwise(rests))
    assert rests[-1] == 0


@pytest.mark.parametrize(
    "line",
    [pytest.param((None, 7), id="nothing is known of it"), pytest.param((0.2, 0), id="nothing was read")],
)
def test_a_line_without_confidence_or_text_estimates_nothing(line: tuple[float | None, int]) -> None:
    curve = estimated_checking_curve([line, (0.7, 10)])
    assert [point.rest for point in curve] == pytest.approx([0.3, 0.3, 0])
    assert [point.errors_found for point in curve] == pytest.approx([0, 0, 1])


def test_reviewing_the_uncertain_third_halves_the_estimated_errors() -> None:
    estimated = EstimatedCer.of(estimated_checking_curve([(0.5, 10), (0.9, 10), (0.9, 10)]))
    assert (estimated.cer, estimated.check, estimated.rest) == pytest.approx((7 / 30, 1 / 3, 0.1))


def test_a_point_is_found_by_its_share_and_by_its_rate() -> None:
    curve = checking_curve([(5, 10), (1, 10), (0, 20)])
    assert point_at(curve, 0.34) is curve[1]
    assert share_for(curve, 0.05) == pytest.approx(1 / 3)


def line(page: str, number: int, confidence: float | None, text: str = "а" * 40) -> dict[str, Any]:
    return {"id": f"{page}:{number}", "page": page, "text": text, "confidence": confidence, "flags": []}


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        pytest.param(
            [*(line("bad", number, 0.5) for number in range(10)), *(line(f"p{n}", 0, 0.7) for n in range(5))],
            ["bad:0", "bad:1", *(f"p{n}:0" for n in range(4))],
            id="spread over pages",
        ),
        pytest.param(
            [line("a", 0, None, ""), line("b", 0, 0.9), line("c", 0, 0.2)],
            ["c:0", "a:0", "b:0"],
            id="what was read as empty is in the middle",
        ),
        pytest.param(
            [{**line("", 0, 0.5), "id": name} for name in ("a/1.png", "a/2.png", "b/3.png")],
            ["a/1.png", "b/3.png", "a/2.png"],
            id="a folder of line images is a page",
        ),
        pytest.param([line("a", 0, 0.9, "в"), line("b", 0, 0.9)], ["b:0", "a:0"], id="more errors to find"),
    ],
)
def test_the_lines_to_transcribe_next(rows: list[dict[str, Any]], chosen: list[str], tmp_path: Path) -> None:
    curve, confidences = write_review(rows, tmp_path / "next.tsv", 6)
    listed = (tmp_path / "next.tsv").read_text(encoding="utf-8").splitlines()
    assert [row.split("\t")[2] for row in listed] == chosen
    assert len(curve) == len(rows) + 1, "the estimate is of all lines"
    assert len(confidences) == sum(row["confidence"] is not None for row in rows)
