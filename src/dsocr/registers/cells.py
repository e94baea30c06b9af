"""Put the lines of a table into its cells, cutting those over several, and find the cells that span."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from dsocr.document import Outline, Point
from dsocr.registers.columns import Edge, Item, crosses
from dsocr.registers.rows import OPEN, Grid, covered_share, flat_place, is_interrupted
from dsocr.registers.rulings import Frame, Ruling

_UNBROKEN = 0.75
"""Share of a ruling with ink from which a gap in it means that cells are one, even if no text is across."""
_AROUND, _UNCUT = 1.0, 0.8
"""Heights above and below the middle of a line, and the share of a ruling's usual ink there, from which it is cut."""
_SECTIONS = 0.25
"""Share of the rows that may be one cell without rulings."""
_OVERHANG, _END = 1.5, 0.12
"""Heights, and the share of its length, up to which a line may run over a ruling."""


Span = tuple[int, int, int, int]
"""Row, column, row span and column span."""


def place_lines(grid: Grid, items: Sequence[Item], height: float, frame: Frame, *, split: bool) -> list[Span]:
    """Put lines into cells, cutting those over several, and return the cells."""
    count, rows = len(grid.edges) - 1, len(grid.rows) - 1
    joined = {(0, column) for group in grid.groups for column in range(group.first, group.last)}
    """Cells that are one with the cell on their right."""
    inside = [(grid.row_of(item), item) for item in items]
    inside = [(row, item) for row, item in inside if 0 <= row < rows and 0 <= grid.column_of(item) < count]
    for row, item in inside:
        for place in range(1, count):
            is_over = row == 0 and grid.heading_rows > 1  # which is how the heading was found to have two rows
            if crosses(item, grid.edges[place], height) and (is_over or _is_open(grid, row, place)):
                joined.add((row, place - 1))
    filled = {(row, grid.column_of(item)) for row, item in inside}
    for row in range(rows):
        for place in range(1, count):
            ruling = grid.rulings[place]
            is_whole = ruling is not None and ruling.coverage(ruling.begin, ruling.end) >= _UNBROKEN
            if is_whole and not {(row, place - 1), (row, place)} <= filled and _is_open(grid, row, place):
                joined.add((row, place - 1))
    for row in range(rows):
        members = [item for other, item in inside if other == row]
        opened = [
            place for place in range(1, count) if grid.rulings[place] and _is_open(grid, row, place, members, height)
        ]
        ruled = sum(ruling is not None for ruling in grid.rulings[1:-1])
        if ruled >= 2 and len(opened) >= 0.7 * ruled and len(members) <= 1:
            joined |= {(row, place - 1) for place in opened}
    if not any(grid.rulings):
        joined |= {(row, place) for row in _free_sections(grid, inside, height) for place in range(count - 1)}
    for row, item in inside:
        for part in _cut(item, grid, row, joined, height, frame) if split else [item]:
            column = min(max(grid.column_of(part), 0), count - 1)
            while (row, column - 1) in joined:
                column -= 1
            grid.items.setdefault((row, column), []).append(part)
    return list(_spans(grid, joined, height))


def _free_sections(grid: Grid, inside: Sequence[tuple[int, Item]], height: float) -> list[int]:
    """Return the rows of a table without rulings that are one cell: a line in the middle, as the name of a village.

    There are few of them; where many rows have one line, these are of a column.
    """
    rows: dict[int, list[Item]] = {}
    for row, item in inside:
        if row >= grid.heading_rows:
            rows.setdefault(row, []).append(item)
    alone = [(row, items[0]) for row, items in rows.items() if len(items) == 1 and grid.column_of(items[0]) > 0]
    if len(alone) > _SECTIONS * len(rows):
        return []
    return [row for row, item in alone if _is_over(item, grid, height)]


def _is_over(item: Item, grid: Grid, height: float) -> bool:
    """Whether a line is over a border between columns, or in the middle of the table."""
    return grid.is_in_middle(item) or any(crosses(item, edge, height) for edge in grid.edges[1:-1])


def _is_open(grid: Grid, row: int, place: int, members: Sequence[Item] = (), height: float = 0.0) -> bool:
    """Whether the ruling between two columns is interrupted in a row, but for the letters of `members` over it."""
    ruling = grid.rulings[place]
    if ruling is None:
        return True
    shift = grid.bend(ruling.at((grid.rows[row] + grid.rows[row + 1]) / 2))
    begin, end = grid.rows[row] + shift + 3, grid.rows[row + 1] + shift - 3
    over = [item.middle for item in members if crosses(item, grid.edges[place], height)]
    if over:  # where letters fill the row, there is no telling them from the ruling
        beside = [(begin, min(over) - _AROUND * height), (max(over) + _AROUND * height, end)]
        return all(is_interrupted(ruling, first, last) for first, last in beside if first < last)
    return begin < end and is_interrupted(ruling, begin, end)


def _cut(item: Item, grid: Grid, row: int, joined: set[tuple[int, int]], height: float, frame: Frame) -> Iterator[Item]:
    """Yield the parts of a line in each cell that it is in."""
    edges = [edge for place, edge in enumerate(grid.edges[1:-1]) if (row, place) not in joined]
    return _parts(item, edges, height, frame)


def cut_at_rulings(
    item: Item, edges: Sequence[Edge], uprights: Sequence[Ruling | None], height: float, frame: Frame
) -> Iterator[Item]:
    """Yield the parts of a line between rulings that are not interrupted for it."""
    begin, end = item.middle - _AROUND * height, item.middle + _AROUND * height
    inner = zip(edges[1:-1], uprights[1:-1], strict=True)
    whole = [
        edge
        for edge, ruling in inner
        if ruling and ruling.coverage(begin, end) >= _UNCUT * ruling.coverage(ruling.begin, ruling.end)
    ]
    return _parts(item, whole, height, frame)


def _parts(item: Item, edges: Sequence[Edge], height: float, frame: Frame) -> Iterator[Item]:
    """Yield the parts of a line between the borders of columns that it crosses."""
    places = [edge(item.middle) for edge in edges if crosses(item, edge, height) and not _runs_over(item, edge, height)]
    rest = item
    for place in sorted(places):
        parts = [_part(rest, place, frame, keep_left=keep_left) for keep_left in (True, False)]
        if parts[0] is None or parts[1] is None:
            continue
        yield parts[0]
        rest = parts[1]
    yield rest


def _runs_over(item: Item, edge: Edge, height: float) -> bool:
    """Whether only the end of a long line is in the next column, as that of a word without room."""
    place = edge(item.middle)
    return min(place - item.left, item.right - place) < min(_OVERHANG * height, _END * item.width)


def _part(item: Item, place: float, frame: Frame, *, keep_left: bool) -> Item | None:
    """Return the part of a line on one side of a place of the frame; None if nothing of it remains."""
    outline = item.line.outline
    assert outline
    polygon = clip_points(outline.border, frame, place, keep_left=keep_left, is_closed=True)
    baseline = clip_points(outline.baseline, frame, place, keep_left=keep_left, is_closed=False)
    if len(polygon) < 3 or len(baseline) < 2:
        return None
    name = f"{item.line.where}{'' if keep_left else '+'}"
    line = replace(item.line, outline=Outline.of_polygon(polygon, baseline), where=name, id="")
    left, right = (item.left, place) if keep_left else (place, item.right)
    return replace(item, line=line, left=left, right=right)


def clip_points(
    points: Sequence[Point], frame: Frame, place: float, *, keep_left: bool, is_closed: bool
) -> tuple[Point, ...]:
    """Return the part of a polygon or a polyline on one side of an upright line of the frame."""
    sides = (frame.of_page(points)[:, 0] - place) * (1 if keep_left else -1)
    kept: list[Point] = []
    ends = list(zip(points, sides, strict=True))
    pairs = [*pairwise(ends), (ends[-1], ends[0])] if is_closed else [*pairwise(ends)]
    for (point, side), (other, other_side) in pairs:
        if side <= 0:
            kept.append(point)
        if (side < 0) != (other_side < 0) and side != other_side:
            share = side / (side - other_side)
            kept.append(
                (round(point[0] + share * (other[0] - point[0])), round(point[1] + share * (other[1] - point[1])))
            )
    if not is_closed and ends[-1][1] <= 0:
        kept.append(ends[-1][0])
    return tuple(dict.fromkeys(kept))


def _spans(grid: Grid, joined: set[tuple[int, int]], height: float) -> Iterator[Span]:
    """Yield the cells of a grid, those that are one with the next once."""
    count, rows = len(grid.edges) - 1, len(grid.rows) - 1
    taken: set[tuple[int, int]] = set()
    for row in range(rows):
        for column in range(count):
            if (row, column) in taken:
                continue
            width = 1
            while (row, column + width - 1) in joined:
                width += 1
            deep = 1
            while row + deep < rows and width == 1 and _is_one_below(grid, row, column, deep, height, joined):
                deep += 1
            cells = {(row + down, column + across) for down in range(deep) for across in range(width)}
            taken |= cells
            for cell in sorted(cells - {(row, column)}):
                grid.items.setdefault((row, column), []).extend(grid.items.pop(cell, []))
            yield row, column, deep, width


def _is_one_below(grid: Grid, row: int, column: int, deep: int, height: float, joined: set[tuple[int, int]]) -> bool:
    """Whether no ruling is under a cell where the other columns have one, and only one of the two has text.

    The cells of a heading beside one over several columns reach down beside what is below that.
    """
    count = len(grid.edges) - 1
    over = {place + side for place in range(count) if (row, place) in joined for side in (0, 1)}
    if row + deep < grid.heading_rows:
        return row == 0 and deep == 1 and bool(over) and column not in over
    if not any(grid.rulings):
        return False
    place = grid.rows[row + deep]
    near = [ruling for ruling in grid.level if abs(flat_place(ruling, grid.bend) - place) < 0.4 * height]
    borders = [edge(place) for edge in grid.edges]
    covered = [covered_share(near, begin + 4, end - 4) for begin, end in pairwise(borders)]
    if covered[column] > OPEN * max(covered) or sum(share >= 0.5 for share in covered) < 2:
        return False
    both = bool(grid.items.get((row, column))) and bool(grid.items.get((row + deep, column)))
    return not both
