"""Put the lines of a table into its cells, cutting those over several, and find the cells that span."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from dsocr.document import CellPlace
from dsocr.outlines import clip_outline
from dsocr.registers.columns import MOST, Columns, Item
from dsocr.registers.rows import Grid
from dsocr.registers.rulings import LEVEL, OPEN, Frame, Ruling, covered_share

_OVERHANG = 1.5
"""Heights up to which the end of a long line may be in the next column."""

Joined = set[tuple[int, int]]
"""Cells, by row and column, that are one with the cell on their right."""


def place_lines(grid: Grid, items: Sequence[Item], frame: Frame, *, split: bool) -> list[CellPlace]:
    """Put lines into cells, cutting those over several, and return the cells."""
    rows, count = grid.size
    inside = [(cell, item) for item in items if (cell := grid.cell_of(item))]
    joined = {(0, column) for first, last in grid.headings for column in range(first, last)}
    for (row, _), item in inside:
        for place, border in enumerate(grid.inner):
            is_over = row == 0 and grid.heading_rows > 1
            if item.crosses(border) and (is_over or _is_open(grid, row, border)):
                joined.add((row, place))
    drawn = [(place, border) for place, border in enumerate(grid.inner) if border.is_drawn]
    for row in range(rows):
        members = [item for cell, item in inside if cell[0] == row]
        opened = {(row, place) for place, border in drawn if _is_open(grid, row, border, members)}
        if len(drawn) >= 2 and len(opened) >= MOST * len(drawn) and len(members) <= 1:
            joined |= opened
    if not grid.is_drawn:
        joined |= {(row, place) for row in _free_sections(grid, inside) for place in range(count - 1)}
    for (row, _), item in inside:
        borders = [border for place, border in enumerate(grid.inner) if (row, place) not in joined]
        for part in _parts(item, borders, frame) if split else [item]:
            column = min(max(grid.columns.column_of(part), 0), count - 1)
            while (row, column - 1) in joined:
                column -= 1
            grid.items.setdefault((row, column), []).append(part)
    return list(_spans(grid, joined))


def _free_sections(grid: Grid, inside: Iterable[tuple[tuple[int, int], Item]]) -> list[int]:
    """Return the rows of a table without rulings that are one cell: a line in the middle, as the name of a village.

    There are few of them; where many rows have one line, these are of a column.
    """
    rows: dict[int, list[tuple[int, Item]]] = {}
    for (row, column), item in inside:
        if row >= grid.heading_rows:
            rows.setdefault(row, []).append((column, item))
    alone = [(row, items[0][1]) for row, items in rows.items() if len(items) == 1 and items[0][0] > 0]
    if len(alone) > (1 - MOST) * len(rows):
        return []
    return [row for row, item in alone if grid.is_in_middle(item) or any(map(item.crosses, grid.inner))]


def _is_open(grid: Grid, row: int, border: Ruling, members: Sequence[Item] = ()) -> bool:
    """Whether there is no ruling between two columns in a row, but for the letters of `members` over it."""
    if not border.is_drawn:
        return True
    shift = grid.bend(border.at((grid.rows[row] + grid.rows[row + 1]) / 2))
    begin, end = grid.rows[row] + shift, grid.rows[row + 1] + shift
    over = [item.middle for item in members if item.crosses(border)]
    if not over:
        return border.is_interrupted(begin, end)
    # Letters that fill the row look like the ruling.
    beside = [(begin, min(over) - grid.height), (max(over) + grid.height, end)]
    return all(border.is_interrupted(first, last) for first, last in beside if first < last)


def cut_at_rulings(item: Item, columns: Columns, frame: Frame) -> Iterator[Item]:
    """Yield the parts of a line between rulings that are not interrupted for it."""
    begin, end = item.middle - item.height, item.middle + item.height
    whole = [
        border
        for border in columns.borders[1:-1]
        if border.is_drawn and border.coverage(begin, end) >= MOST * border.coverage(border.begin, border.end)
    ]
    return _parts(item, whole, frame)


def _parts(item: Item, borders: Iterable[Ruling], frame: Frame) -> Iterator[Item]:
    """Yield the parts of a line between the borders of columns that it crosses."""
    rest = item
    for place in sorted(border.at(item.middle) for border in borders if item.crosses(border)):
        if min(place - item.left, item.right - place) < min(_OVERHANG * item.height, (1 - MOST) * item.width):
            continue
        left, right = (_part(rest, place, frame, keep_left=keep_left) for keep_left in (True, False))
        if left and right:
            yield left
            rest = right
    yield rest


def _part(item: Item, place: float, frame: Frame, *, keep_left: bool) -> Item | None:
    """Return the part of a line on one side of a place of the frame; None if nothing of it remains."""
    outline = item.line.outline
    assert outline
    sign = 1 if keep_left else -1
    part = clip_outline(outline, lambda point: sign * (place - float(frame.of_page([point])[0, 0])))
    if part is None or not part.baseline:
        return None
    name = f"{item.line.where}{'' if keep_left else '+'}"
    line = replace(item.line, outline=part, where=name, id="")
    left, right = (item.left, place) if keep_left else (place, item.right)
    return replace(item, line=line, left=left, right=right)


def _spans(grid: Grid, joined: Joined) -> Iterator[CellPlace]:
    """Yield the cells of a grid; joined cells are one."""
    rows, count = grid.size
    taken: set[tuple[int, int]] = set()
    for row in range(rows):
        for column in range(count):
            if (row, column) in taken:
                continue
            width = deep = 1
            while (row, column + width - 1) in joined:
                width += 1
            while row + deep < rows and width == 1 and _is_one_below(grid, row, column, deep, joined):
                deep += 1
            place = CellPlace(row, column, deep, width, row + deep <= grid.heading_rows)
            for cell in ((down, across) for down in place.rows for across in place.columns):
                taken.add(cell)
                if cell != (row, column):
                    grid.items.setdefault((row, column), []).extend(grid.items.pop(cell, []))
            yield place


def _is_one_below(grid: Grid, row: int, column: int, deep: int, joined: Joined) -> bool:
    """Whether a cell and the one below are one: only other columns have a ruling between them, and only one has text.

    In a heading of two rows, cells beside a heading over several columns cover both.
    """
    if row + deep < grid.heading_rows:
        over = {place + side for other, place in joined if other == row for side in (0, 1)}
        return row == 0 and deep == 1 and bool(over) and column not in over
    if not grid.is_drawn:
        return False
    place = grid.rows[row + deep]
    near = [ruling for ruling in grid.level if abs(grid.flat(ruling) - place) < LEVEL * grid.height]
    borders = [border.at(place) for border in grid.columns.borders]
    covered = [covered_share(near, begin, end) for begin, end in pairwise(borders)]
    if covered[column] > OPEN * max(covered) or sum(2 * share >= 1 for share in covered) < 2:
        return False
    return not (grid.items.get((row, column)) and grid.items.get((row + deep, column)))
