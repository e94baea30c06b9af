"""Find the headings over several columns of a table, and drop empty rows and titles at its ends."""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from dsocr.registers.columns import Item
from dsocr.registers.rows import Grid
from dsocr.registers.rulings import LEVEL

_TITLE = 0.4
"""Share of the columns up to which a row at the top of a table without rulings is a title."""


class Group(NamedTuple):
    """A heading over several columns: the first and the last, its lowest line and the highest below it, its middle."""

    first: int
    last: int
    above: float
    below: float
    centre: float
    crosses: bool
    """Whether it is over a border between them."""


def drop_ends(grid: Grid, items: Sequence[Item]) -> None:
    """Drop rows without text above and below all others, and titles above a table without rulings."""
    filled: dict[int, set[int]] = {}
    for item in items:
        if cell := grid.cell_of(item):
            filled.setdefault(cell[0], set()).add(cell[1])
    if not filled:
        return
    first, last = min(filled), max(filled)
    if not grid.is_drawn:
        while first < last - 1 and len(filled.get(first, ())) <= _TITLE * grid.size[1]:
            first += 1
    grid.heading_rows = max(grid.heading_rows - first, 0)
    grid.rows = grid.rows[first : last + 2]


def divide_heading(grid: Grid, items: Sequence[Item]) -> None:
    """Find the headings over several columns, and make two rows of the heading if no ruling divides it."""
    flat = [
        (cell[0], replace(item, middle=item.middle - grid.bend(item.centre)))
        for item in items
        if (cell := grid.cell_of(item))
    ]
    if grid.heading_rows > 1:
        groups = _heading_groups(grid, [item for row, item in flat if row < 2])
        grid.headings = [(group.first, group.last) for group in groups]
        return
    for rows in range(1, min(2 if grid.is_drawn else grid.size[0], grid.size[0] - 1) + 1):
        groups = _groups_of_rows(grid, [item for row, item in flat if row < rows])
        if not groups:
            continue
        above, below = max(group.above for group in groups), min(group.below for group in groups)
        is_ruled = rows == 2 and above < grid.rows[1] < below
        if rows == 2 and grid.is_drawn and not is_ruled:
            return
        grid.rows[: rows + 1] = [grid.rows[0], grid.rows[1] if is_ruled else (above + below) / 2, grid.rows[rows]]
        grid.heading_rows = 2
        grid.headings = [(group.first, group.last) for group in groups]
        return


def _groups_of_rows(grid: Grid, items: Sequence[Item]) -> list[Group]:
    """Return the headings over several columns, if the rows are two of a heading.

    Headings of other columns are beside both: their middle is between the two rows.
    """
    groups = _heading_groups(grid, items)
    if not groups:
        return []
    near = LEVEL * grid.height
    above, below = max(group.above for group in groups), min(group.below for group in groups)
    grouped = {column for group in groups for column in range(group.first, group.last + 1)}
    beside = [item.middle for item in items if grid.column_of(item) not in grouped]
    is_beside = any(above + near < middle < below - near for middle in beside) and max(beside) < below - near
    return groups if above < below and (is_beside or all(group.crosses for group in groups)) else []


def _heading_groups(grid: Grid, items: Sequence[Item]) -> list[Group]:
    """Return the headings over several columns if each column has its own heading below."""
    over = [(item, [place for place, border in enumerate(grid.inner) if item.crosses(border)]) for item in items]
    columns: dict[int, list[Item]] = {}
    for item, crossed in over:
        if not crossed:
            columns.setdefault(grid.column_of(item), []).append(item)
    groups: list[Group] = []
    for item, crossed in sorted((pair for pair in over if pair[1]), key=lambda pair: pair[0].left):
        first, last, above = min(crossed), max(crossed) + 1, item.middle
        if groups and groups[-1].last >= first:
            before = groups.pop()
            first, last, above = before.first, max(before.last, last), max(before.above, above)
        below = [
            [other.middle for other in columns.get(place, []) if other.middle > above + LEVEL * grid.height]
            for place in range(first, last + 1)
        ]
        if all(below):
            groups.append(Group(first, last, above, min(map(min, below)), item.centre, crosses=True))
    known = {column for group in groups for column in range(group.first, group.last + 1)}
    for column in sorted(columns.keys() - known):
        group = _group_over(column, columns, known, LEVEL * grid.height)
        if not group:
            continue
        if groups and groups[-1].last >= group.first and not groups[-1].crosses:
            before = groups[-1]
            shared = range(group.first, before.last + 1)
            borders = [border.at(group.below) for border in grid.columns.borders]
            middles = [(borders[place] + borders[place + 1]) / 2 for place in shared]
            nearer = sum(abs(middle - before.centre) <= abs(middle - group.centre) for middle in middles)
            groups[-1] = before._replace(last=group.first + nearer - 1)
            group = group._replace(first=group.first + nearer)
        groups.append(group)
    return [group for group in groups if group.first < group.last]


def _group_over(column: int, columns: Mapping[int, Sequence[Item]], known: Container[int], near: float) -> Group | None:
    """Return the group whose heading is in a column: the columns beside it begin level with a lower line there."""
    lines = sorted(columns[column], key=lambda item: item.middle)
    tops = {place: min(item.middle for item in members) for place, members in columns.items() if place not in known}
    for line, lower in pairwise(lines):
        if lower.middle - line.middle < near:
            continue
        first = last = column
        while abs(tops.get(first - 1, math.inf) - lower.middle) < near:
            first -= 1
        while abs(tops.get(last + 1, math.inf) - lower.middle) < near:
            last += 1
        if first < last:
            below = min(lower.middle, *(tops[place] for place in range(first, last + 1) if place != column))
            return Group(first, last, line.middle, below, line.centre, crosses=False)
    return None
