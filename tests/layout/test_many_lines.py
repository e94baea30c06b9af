"""Pages of hundreds of pieces are joined and put in order as plain loops over all of them do."""

from collections.abc import Iterator

import numpy as np
import pytest

from dsocr.document import Outline
from dsocr.layout.lines import find_outlines, reading_outlines
from dsocr.outlines import reading_blocks

Bar = tuple[int, int, int]
"""First column, column after the last, and first row of a piece of text 6 rows high."""
THICKNESS = 6
SIZE = (960, 400)


def draw_bars(seed: int, gaps: tuple[int, int]) -> list[Bar]:
    """Rows of bars with gaps between them, some higher or lower than those beside them; every seventh row is alone."""
    random, bars = np.random.default_rng(seed), []
    for row in range(10, SIZE[1] - 20, 15):
        left = int(random.integers(5, 60))
        while left < SIZE[0] - 120:
            right = left + int(random.integers(60, 110))
            bars.append((left, right, row + int(random.integers(-3, 4))))
            left = right + int(random.integers(*gaps))
            if row % 7 == 0:
                break
    return bars


def page_of(bars: list[Bar]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    probabilities = np.zeros(SIZE[::-1], dtype=np.float32)
    for left, right, row in bars:
        probabilities[row : row + THICKNESS, left:right] = 0.9
    return probabilities


def join_plainly(bars: list[Bar]) -> Iterator[tuple[int, int]]:
    """First and last column of each line: a bar continues the nearest of all lines that it can continue."""
    lines: list[list[Bar]] = []
    for left, right, row in sorted(bars):
        reachable = [
            (abs(row - line[-1][2]) + 0.3 * (left - line[-1][1]), number)
            for number, line in enumerate(lines)
            if 0 <= left - line[-1][1] <= 2.5 * THICKNESS and abs(row - line[-1][2]) <= THICKNESS
        ]
        if reachable:
            lines[min(reachable)[1]].append((left, right, row))
        else:
            lines.append([(left, right, row)])
    for line in lines:
        yield line[0][0], line[-1][1] - 1


@pytest.mark.parametrize("seed", range(2))
def test_the_pieces_of_many_lines_are_joined(seed: int) -> None:
    bars = draw_bars(seed, gaps=(4, 26))
    lines = [outline.baseline for outline in find_outlines(page_of(bars), SIZE)]
    expected = sorted(join_plainly(bars))
    assert sorted((line[0][0], line[-1][0]) for line in lines) == expected
    assert 60 < len(expected) < len(bars)


def split_plainly(lines: list[Outline]) -> list[list[Outline]] | None:
    """Lines left and right of the widest gutter that has three lines on either side, half of them side by side."""
    gutters = []
    for place in sorted({line.baseline[0][0] for line in lines}):
        left = [line for line in lines if line.baseline[0][0] < place]
        sides = left, [line for line in lines if line.baseline[0][0] >= place]
        width = place - max((line.baseline[-1][0] for line in sides[0]), default=place)
        if width <= 0 or min(map(len, sides)) < 3:
            continue
        (top, bottom), (other_top, other_bottom) = (
            (min(line.box[1] for line in side), max(line.box[3] for line in side)) for side in sides
        )
        beside = min(bottom, other_bottom) - max(top, other_top)
        if beside >= 0.5 * min(bottom - top, other_bottom - other_top):
            gutters.append((width, -place, sides))
    return [*max(gutters, key=lambda gutter: gutter[:2])[2]] if gutters else None


def order_plainly(lines: list[Outline]) -> list[Outline]:
    """Columns from left to right, before and after the first lines from the top or the bottom that cross them."""
    if columns := split_plainly(lines):
        return [line for column in columns for line in order_plainly(column)]
    rows = sorted(lines, key=lambda line: (line.box[1] + line.box[3], line.baseline))
    for cut in range(1, len(rows)):
        for parts in ((rows[:cut], rows[cut:]), (rows[:-cut], rows[-cut:])):
            if any(split_plainly(part) for part in parts):
                return [line for part in parts for line in order_plainly(part)]
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_many_lines_are_put_in_order(seed: int) -> None:
    columns = [(260 * column + 20 + 8 * (row % 5), row) for column in range(3) for row in range(60, 330, 15)]
    bars = [(left, left + 150 + (row + seed) % 60, row) for left, row in columns]
    heading = [(200, 400, 20), (210, 420, 36), (500, 700, 360), (480, 690, 376)]
    blocks = reading_blocks(find_outlines(page_of(bars + heading[: seed + 2]), SIZE))
    lines = [line for block in blocks for line in block]
    assert lines == order_plainly(lines[::-1])
    assert len(lines) == len(bars) + seed + 2


def test_a_line_has_room_whatever_else_is_on_the_page() -> None:
    lines = find_outlines(page_of(draw_bars(0, gaps=(20, 40))), SIZE)
    for line, heightened in list(zip(lines, reading_outlines(lines), strict=True))[::40]:
        (left, top, right, bottom), close = line.box, 60
        near = [
            other
            for other in lines
            if other.box[2] >= left and other.box[0] <= right and top - close <= other.box[1] <= bottom + close
        ]
        assert reading_outlines(near)[near.index(line)] == heightened
