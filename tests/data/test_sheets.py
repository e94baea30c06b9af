"""Which lines share a sheet, in every epoch."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.data.sheets import EpochSheets, SheetLimits, SheetLine, fill_sheets, hand_of
from dsocr.samples import Sample, Split

LIMITS = SheetLimits(height=100, lines=4, tokens=60)


@st.composite
def lines(draw: st.DrawFn) -> list[SheetLine[int]]:
    hands = st.sampled_from(["anna", "boris", "vera", None])
    wanted = draw(st.lists(st.tuples(hands, st.integers(1, 120), st.integers(1, 80)), min_size=1, max_size=40))
    return [SheetLine(place, *line) for place, line in enumerate(wanted)]


@given(lines())
def test_the_lines_come_back_in_their_order(given_lines: list[SheetLine[int]]) -> None:
    assert [line for sheet in fill_sheets(given_lines, LIMITS) for line in sheet] == given_lines


@given(lines(), st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.0, 0.3, 0.9]))
def test_every_epoch_has_each_line_once_on_as_many_sheets_within_the_limits(
    given_lines: list[SheetLine[int]], seed: int, epoch: int, alone: float
) -> None:
    sheets = EpochSheets(given_lines, LIMITS, seed=seed, alone=alone)
    drawn = sheets.of_epoch(epoch)
    assert sorted(place for sheet in drawn for place in sheet) == list(range(len(given_lines)))
    assert len(drawn) == len(sheets)
    assert sum(len(sheet) == 1 for sheet in drawn) >= round(alone * len(given_lines))
    for sheet in drawn:
        on_it = [given_lines[place] for place in sheet]
        if len(sheet) == 1:
            continue
        assert len({line.hand for line in on_it}) == 1
        assert on_it[0].hand is not None
        assert len(on_it) <= 4
        assert sum(line.height for line in on_it) <= 100
        assert sum(line.tokens for line in on_it) <= 60


@given(lines(), st.integers(0, 3), st.integers(0, 3))
def test_an_epoch_is_a_function_of_seed_and_epoch(given_lines: list[SheetLine[int]], seed: int, epoch: int) -> None:
    here, there = (EpochSheets(given_lines, LIMITS, seed=seed) for _ in range(2))
    here.of_epoch(epoch + 1)
    assert here.of_epoch(epoch) == there.of_epoch(epoch)


def test_lines_meet_others_in_the_next_epoch() -> None:
    many = [SheetLine(place, "anna", 25, 1) for place in range(100)]
    sheets = EpochSheets(many, LIMITS, seed=17)
    first, second = ({frozenset(sheet) for sheet in sheets.of_epoch(epoch)} for epoch in (0, 1))
    assert len(first & second) < 3
    assert EpochSheets(many, LIMITS, seed=18).of_epoch(0) != sheets.of_epoch(0)


def test_a_share_of_the_lines_stands_alone_and_others_do_in_the_next_epoch() -> None:
    many = [SheetLine(place, "anna", 25, 1) for place in range(100)]
    sheets = EpochSheets(many, LIMITS, seed=17, alone=0.4)
    first, second = ([sheet[0] for sheet in sheets.of_epoch(epoch) if len(sheet) == 1] for epoch in (0, 1))
    assert len(first) == len(second) == 40
    assert len(sheets) == 40 + 15
    assert set(first) != set(second)


def test_what_is_left_fills_a_smaller_sheet() -> None:
    many = [SheetLine(place, "anna", 25, 1) for place in range(10)]
    sheets = EpochSheets(many, LIMITS, seed=17).of_epoch(5)
    assert Counter(map(len, sheets)) == {4: 2, 2: 1}


@pytest.mark.parametrize(
    ("line", "limits", "sizes"),
    [
        pytest.param(SheetLine(0, "anna", 30, 1), SheetLimits(100), [3, 3], id="height closes a sheet"),
        pytest.param(SheetLine(0, "anna", 30, 1), SheetLimits(100, lines=2), [2, 2, 2], id="the number of lines"),
        pytest.param(SheetLine(0, "anna", 1, 20), SheetLimits(100, tokens=80), [4, 2], id="the length of the text"),
        pytest.param(SheetLine(0, "anna", 101, 1), SheetLimits(100), [1] * 6, id="too high for any sheet"),
        pytest.param(SheetLine(0, None, 1, 1), SheetLimits(100), [1] * 6, id="nobody knows whose"),
    ],
)
def test_a_sheet_is_full(line: SheetLine[int], limits: SheetLimits, sizes: list[int]) -> None:
    assert [len(sheet) for sheet in fill_sheets([line] * 6, limits)] == sizes


@pytest.mark.parametrize(
    ("writer", "page", "hand"),
    [
        pytest.param("anna", "p1", "writer anna", id="the writer where there is one"),
        pytest.param(None, "p1", "page p1", id="else the page"),
        pytest.param(None, None, None, id="else nobody"),
    ],
)
def test_whose_hand_it_is(writer: str | None, page: str | None, hand: str | None) -> None:
    assert hand_of(Sample("a", Path("a.png"), "a", Split.TRAIN, writer=writer, page=page)) == hand
