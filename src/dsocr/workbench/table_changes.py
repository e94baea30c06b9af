"""Changes of the tables of a page: rulings, cells, whole tables; each is kept in the history and undone as a whole.

`carry_out_in_table` does what somebody did in the browser, `table_grid.js`; the functions below it are the changes
themselves. A line is in the cell that the middle of its letters is in, unless its file or somebody has it elsewhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from dsocr.document import Line, Outline, Point, Table
from dsocr.errors import DataError
from dsocr.registers import find_tables
from dsocr.text import is_right_to_left
from dsocr.workbench.shape_changes import places_between, region_at
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import (
    CellPlace,
    State,
    StoredLine,
    StoredPage,
    StoredRegion,
    center,
    checked_outline,
    contains,
    cut_text,
    redrawn,
    within,
)
from dsocr.workbench.stored_tables import (
    GridTable,
    Nodes,
    around,
    middle_of,
    nodes_of,
    outline_in,
    overlapping,
    place_of,
    refitted,
    tables_of,
)

FIND_TABLES = "findTables"
"""The one edit that takes seconds; it is not carried out here."""
TABLE_EDITS = frozenset(
    {FIND_TABLES, "moveRuling", "addRuling", "removeRuling", "joinCells", "splitCells", "addTable", "removeTable"}
)

Axis = Literal["row", "column"]
"""What the rulings are between."""

_WHAT = "table"
"""What the history calls these changes."""
_LEAST_AREA = 1.0
"""Square pixels of each corner of a cell beside a ruling that is moved; less means that it crosses another."""

Placed = tuple[StoredRegion, CellPlace]
"""A cell, or what a new one is made of, and its place in the changed table."""


class FoundTables(NamedTuple):
    """What was found on a page: the lines as they were then, their parts in the order of the cells, and the tables."""

    lines: tuple[StoredLine, ...]
    parts: tuple[Line, ...]
    tables: tuple[Table, ...]


def carry_out_in_table(store: CorrectionStore, page: StoredPage, edit: Mapping[str, Any], *, who: str) -> None:
    """Carry out an edit as `table_grid.js` sends it.

    Raises StaleError if somebody changed the table since it was sent to that browser, else DataError.
    """
    if edit["what"] == "addTable":
        add_table(store, page, checked_outline(edit["polygon"], (), page.width, page.height), who=who)
        return
    table = _seen(store, page, *edit["table"])
    match edit["what"]:
        case "moveRuling":
            points = within(edit["points"], page.width, page.height)
            move_ruling(store, table, edit["axis"], int(edit["place"]), points, who=who)
        case "addRuling":
            x, y = edit["at"]
            add_ruling(store, table, edit["axis"], (x, y), who=who)
        case "removeRuling":
            remove_ruling(store, table, edit["axis"], int(edit["place"]), who=who)
        case "joinCells" | "splitCells" as what:
            row, column, rows, columns = map(int, edit["cells"])
            chosen = CellPlace(table.id, row, column, rows, columns)
            (join_cells if what == "joinCells" else split_cells)(store, table, chosen, who=who)
        case "removeTable":
            remove_table(store, table, who=who)
        case unknown:
            raise ValueError(f"no such edit: {unknown}")


def _seen(store: CorrectionStore, page: StoredPage, id_: str, version: int) -> GridTable:
    """The stored table, unless somebody changed it since it had this version."""
    table = next((table for table in tables_of(store.regions(page.number)) if table.id == id_), None)
    if table is None or table.version != version:
        raise StaleError(None)
    return table


def move_ruling(
    store: CorrectionStore, table: GridTable, axis: Axis, place: int, points: Sequence[Point], *, who: str
) -> None:
    """Move the points of a ruling, of which there are as many as it crosses others.

    Raises StaleError, or DataError if it would cross another ruling.
    """
    nodes = _turned(table.nodes, axis)
    if not 0 <= place < nodes.shape[1] or len(points) != len(nodes):
        raise StaleError(None)
    nodes[:, place] = points
    bands = range(max(place - 1, 0), min(place + 1, nodes.shape[1] - 1))
    if any(_is_crossed(nodes, band, _turned(table.nodes, axis)) for band in bands):
        hint = "remove the ruling between them first"
        raise DataError("the ruling would cross another ruling", code="ruling-crosses", hint=hint)
    _replace(store, table, [(cell, place_of(cell)) for cell in table.cells], _turned(nodes, axis), who)


def add_ruling(store: CorrectionStore, table: GridTable, axis: Axis, at: tuple[float, float], *, who: str) -> None:
    """Add a ruling through a point, as bent and skewed as those beside it; cells over several columns stay whole.

    Raises StaleError, or DataError if the point is outside the table or at another ruling.
    """
    nodes = _turned(table.nodes, axis)
    band, share = _band_at(nodes, at)
    between = nodes[:, band] + share * (nodes[:, band + 1] - nodes[:, band])
    cells = [
        (cell, _turned_place(part, axis))
        for cell in table.cells
        for part in _with_column(_turned_place(place_of(cell), axis), band)
    ]
    _replace(store, table, cells, _turned(np.insert(nodes, band + 1, between, axis=1), axis), who)


def remove_ruling(store: CorrectionStore, table: GridTable, axis: Axis, place: int, *, who: str) -> None:
    """Remove a ruling: cells on both sides become one; an outer one goes with its row or column.

    Raises StaleError, or DataError if no row or column would be left.
    """
    nodes = _turned(table.nodes, axis)
    last = nodes.shape[1] - 1
    if not 0 <= place <= last:
        raise StaleError(None)
    if last < 2:
        hint = "remove the table, or move the ruling"
        raise DataError("a table has at least one row and one column", code="table-empty", hint=hint)
    parts = [(cell, _without_column(_turned_place(place_of(cell), axis), place, last)) for cell in table.cells]
    cells = [(cell, _turned_place(part, axis)) for cell, part in parts if part]
    if not cells:
        raise DataError("no cell of the table would be left", code="table-empty", hint="remove the table")
    _replace(store, table, _without_overlaps(cells), _turned(np.delete(nodes, place, axis=1), axis), who)


def join_cells(store: CorrectionStore, table: GridTable, chosen: CellPlace, *, who: str) -> None:
    """Make one cell of those at several places. Raises StaleError, or DataError for fewer than two."""
    inside = [cell for cell in table.cells if overlapping(place_of(cell), chosen)]
    if len(inside) < 2:
        hint = "choose several with Shift and a click"
        raise DataError("two cells or more can be joined", code="too-few-cells", hint=hint)
    joined = around(*map(place_of, inside))
    cells = [(cell, joined if cell is inside[0] else place_of(cell)) for cell in table.cells]
    _replace(store, table, _without_overlaps(cells), table.nodes, who)


def split_cells(store: CorrectionStore, table: GridTable, chosen: CellPlace, *, who: str) -> None:
    """Make one cell for each row and column of cells over several. Raises StaleError, or DataError if there is none."""
    cells: list[Placed] = []
    for cell in table.cells:
        place = place_of(cell)
        if not overlapping(place, chosen):
            cells.append((cell, place))
            continue
        single = replace(place, rows=1, columns=1)
        cells += [
            (cell, replace(single, row=place.row + row, column=place.column + column))
            for row in range(place.rows)
            for column in range(place.columns)
        ]
    if len(cells) == len(table.cells):
        hint = "add a ruling through it"
        raise DataError("the cell is in one row and one column", code="cell-whole", hint=hint)
    _replace(store, table, cells, table.nodes, who)


def add_table(store: CorrectionStore, page: StoredPage, outline: Outline, *, who: str) -> None:
    """Add a table of one cell; lines in it leave regions, which go if they have no others. Raises DataError."""
    id_ = _free_id(store.regions(page.number))
    cells = (StoredRegion(0, page.number, outline, cell=CellPlace(id_, 0, 0)),)
    _save(store, page.number, None, GridTable(id_, cells, nodes_of(cells)), who)


def remove_table(store: CorrectionStore, table: GridTable, *, who: str) -> None:
    """Remove a table; its lines stay on the page. Raises StaleError."""
    _save(store, table.cells[0].page, table, None, who)


def _turned(nodes: Nodes, axis: Axis) -> Nodes:
    """A copy whose second axis is that of the rulings."""
    return np.array(nodes if axis == "column" else nodes.transpose(1, 0, 2))


def _turned_place(place: CellPlace, axis: Axis) -> CellPlace:
    if axis == "column":
        return place
    return replace(place, row=place.column, column=place.row, rows=place.columns, columns=place.rows)


def _is_crossed(nodes: Nodes, band: int, before: Nodes) -> bool:
    """Whether a cell between two rulings has no area at a corner, or is turned inside out."""
    corners = [nodes[:-1, band], nodes[1:, band], nodes[1:, band + 1], nodes[:-1, band + 1]]
    whole = [before[0, 0], before[-1, 0], before[-1, -1], before[0, -1]]
    sides = [end - begin for begin, end in zip(whole, [*whole[1:], whole[0]], strict=True)]
    sign = np.sign(_cross(sides[0], sides[1]) + _cross(sides[2], sides[3]))
    around_cell = [end - begin for begin, end in zip(corners, [*corners[1:], corners[0]], strict=True)]
    turns = [
        _cross(first, second) for first, second in zip(around_cell, [*around_cell[1:], around_cell[0]], strict=True)
    ]
    return bool((sign * np.array(turns) < _LEAST_AREA).any())


def _cross(first: Nodes, second: Nodes) -> Nodes:
    return np.asarray(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0])


def _band_at(nodes: Nodes, at: tuple[float, float]) -> tuple[int, float]:
    """The two rulings around a point, by the first of them, and the share of the way between them."""
    x, y = at
    for row, band in np.ndindex(len(nodes) - 1, nodes.shape[1] - 1):
        left = nodes[row : row + 2, band]
        right = nodes[row : row + 2, band + 1]
        if contains([*map(tuple, left), *map(tuple, right[::-1])], x, y):
            first, second = (abs(_distance(side, x, y)) for side in (left, right))
            if min(first, second) >= 1:
                return band, first / (first + second)
    hint = "click inside the table, between two rulings"
    raise DataError("there is no room for a ruling", code="ruling-outside", hint=hint)


def _distance(side: Nodes, x: float, y: float) -> float:
    """How far a point is from the line through two others."""
    along, to_point = side[1] - side[0], np.array([x, y]) - side[0]
    return float(_cross(along, to_point) / max(np.hypot(*along), 1e-9))


def _with_column(place: CellPlace, band: int) -> list[CellPlace]:
    """The cells that a cell becomes when there are two columns in the place of `band`."""
    last = place.column + place.columns - 1
    if last < band:
        return [place]
    if place.column > band:
        return [replace(place, column=place.column + 1)]
    if place.columns > 1:
        return [replace(place, columns=place.columns + 1)]
    return [place, replace(place, column=band + 1)]


def _without_column(place: CellPlace, ruling: int, last: int) -> CellPlace | None:
    """The place of a cell without a ruling; None if its column is gone. Rulings count from 0 to `last`."""
    begin, end = place.column, place.column + place.columns  # the rulings on its sides
    if ruling == 0:
        begin, end = max(begin - 1, 0), end - 1
    elif ruling == last:
        end = min(end, last - 1)
    else:
        end -= end > ruling
        begin -= begin >= ruling
    return replace(place, column=begin, columns=end - begin) if end > begin else None


def _without_overlaps(cells: Iterable[Placed]) -> list[Placed]:
    """The cells, those that overlap as one, which is the first of them."""
    ordered = sorted(cells, key=lambda placed: (placed[1].row, placed[1].column))
    owners = np.full(
        (
            max(place.row + place.rows for _, place in ordered),
            max(place.column + place.columns for _, place in ordered),
        ),
        -1,
    )
    kept: dict[int, Placed] = {}
    for number, (cell, place) in enumerate(ordered):
        key = number
        while hit := set(np.unique(owners[_slices(place)]).tolist()) - {-1, key}:
            key = min(hit | {key})
            cell = kept[key][0] if key in kept else cell
            place = around(place, *(kept.pop(other)[1] for other in hit))
            owners[np.isin(owners, list(hit))] = key
        owners[_slices(place)] = key
        kept[key] = (cell, place)
    return list(kept.values())


def _slices(place: CellPlace) -> tuple[slice, slice]:
    return slice(place.row, place.row + place.rows), slice(place.column, place.column + place.columns)


def _free_id(regions: Iterable[StoredRegion]) -> str:
    """An id that no table of a page has."""
    taken = {region.cell.table for region in regions if region.cell}
    return next(id_ for number in range(1, len(taken) + 2) if (id_ := f"t{number}") not in taken)


def _replace(store: CorrectionStore, table: GridTable, cells: Sequence[Placed], nodes: Nodes, who: str) -> None:
    """Give a table other cells and rulings; the first of the cells that were one keeps its number."""
    new: list[StoredRegion] = []
    kept: set[int] = set()
    for cell, place in cells:
        if cell.number in kept:
            new.append(StoredRegion(0, cell.page, outline_in(nodes, place), cell=place))
        else:
            new.append(refitted(cell, place, table.nodes, nodes))
        kept.add(cell.number)
    _save(store, table.cells[0].page, table, GridTable(table.id, tuple(new), nodes), who)


def _save(store: CorrectionStore, page: int, old: GridTable | None, new: GridTable | None, who: str) -> None:
    """Store a table in place of another, with its lines; a new one takes the place of regions that it empties."""
    lines, regions = store.lines(page), store.regions(page)
    homes = _homes(lines, regions, old, new)
    known = {cell.number: cell for cell in (old.cells if old else ())}
    cells = list(new.cells) if new else []
    stay = {cell.number for cell in cells if known.get(cell.number) == cell}
    changed = [cell for cell in cells if cell.number not in stay]
    before = [cell for number, cell in known.items() if number not in stay]
    if old is None:
        before += _emptied(regions, lines, {number for number, home in homes.items() if home})
    places = _places(lines, homes, cells)

    def edited(current: Sequence[StoredLine], written: Sequence[StoredRegion]) -> list[StoredLine]:
        numbers = {id(cell): region.number for cell, region in zip(changed, written, strict=True)}
        moved = []
        for line in current:
            home = homes.get(line.number)
            number = region_at(others, line.outline) if home is None else numbers.get(id(home), home.number)
            moved.append(replace(line, region=number, place=places.get(line.number, line.place)))
        return moved

    removed = {region.number for region in before}
    others = [region for region in regions if region.cell is None and region.number not in removed]
    touched = [line for line in lines if line.number in homes or places.get(line.number, line.place) != line.place]
    store.change(_WHAT, who, touched, edited, before, lambda _: changed)


def _homes(
    lines: Sequence[StoredLine], regions: Sequence[StoredRegion], old: GridTable | None, new: GridTable | None
) -> dict[int, StoredRegion | None]:
    """The cell of each line that comes into another one, by the line's number; None for those that leave the table."""
    mine = {cell.number: cell for cell in (old.cells if old else ())}
    kept = {cell.number: cell for cell in (new.cells if new else ()) if cell.number}
    elsewhere = {region.number for region in regions if region.cell} - mine.keys()
    homes: dict[int, StoredRegion | None] = {}
    for line in lines:
        was, now = (table.cell_at(line) if table and line.region not in elsewhere else None for table in (old, new))
        if cell := mine.get(line.region or 0):
            is_by_hand = was is None or was.number != cell.number
            if is_by_hand and new:
                now = kept.get(cell.number) or new.cell_around(*center(cell.outline))
        elif was or not now:
            continue
        if now is None or now.number == 0 or now.number != line.region:
            homes[line.number] = now
    return homes


def _emptied(regions: Sequence[StoredRegion], lines: Sequence[StoredLine], moved: set[int]) -> list[StoredRegion]:
    """The regions that had lines and have none when these have moved, cells aside."""
    had = {line.region for line in lines if line.number in moved}
    has = {line.region for line in lines if line.number not in moved}
    return [region for region in regions if region.cell is None and region.number in had - has]


def _places(
    lines: Sequence[StoredLine], homes: Mapping[int, StoredRegion | None], cells: Sequence[StoredRegion]
) -> dict[int, float]:
    """New places in the reading order for lines that come into a cell: beside its lines, or behind the cell before."""
    ranks_of_cells = {
        id(cell): rank
        for rank, cell in enumerate(sorted(cells, key=lambda cell: (place_of(cell).row, place_of(cell).column)))
    }
    known = {cell.number: cell for cell in cells if cell.number}
    homes_of_all = {line.number: homes.get(line.number, known.get(line.region or 0)) for line in lines}
    ranks = {number: ranks_of_cells[id(home)] for number, home in homes_of_all.items() if home}
    newcomers = {number for number, home in homes.items() if home}
    order = [line for line in lines if line.number not in newcomers]
    for line in sorted(
        (line for line in lines if line.number in newcomers), key=lambda line: (ranks[line.number], line.place)
    ):
        order.insert(_index_for(line, order, ranks, newcomers), line)
    return places_between(order, newcomers)


def _index_for(line: StoredLine, order: Sequence[StoredLine], ranks: Mapping[int, int], newcomers: set[int]) -> int:
    mine, height = ranks[line.number], middle_of(line)[1]
    ranked = [(ranks[other.number], at) for at, other in enumerate(order) if other.number in ranks]
    if same := [at for rank, at in ranked if rank == mine]:
        present = (at for at in same if order[at].number not in newcomers)
        return next((at for at in present if middle_of(order[at])[1] > height), same[-1] + 1)
    if earlier := [place for place in ranked if place[0] < mine]:
        return max(earlier)[1] + 1
    return min(ranked)[1] if ranked else sum(other.place < line.place for other in order)


def search_tables(image: Image.Image, lines: Sequence[StoredLine], *, split: bool = True) -> FoundTables:
    """Find the tables of a page; takes about a second. Raises DataError if there is none.

    With `split`, lines that go over several columns come back in parts. The `where` of each part is the line's number.
    """
    seen = [Line(line.text, str(line.number), line.outline, index=place) for place, line in enumerate(lines)]
    parts, tables = find_tables(image, seen, split=split)
    if not tables:
        hint = "a table has three columns with text, or two ruled ones; draw it, and its rulings"
        raise DataError("no table was found on the page", code="no-tables", hint=hint)
    parts = [replace(part, where=part.where.rstrip("+")) for part in parts]
    return FoundTables(tuple(lines), tuple(parts), tuple(tables))


def put_tables(store: CorrectionStore, page: int, search: FoundTables, *, who: str) -> int:
    """Replace the tables of a page by found ones; returns how many there are.

    Lines over several columns are cut, unless they are reviewed. Raises StaleError if a line changed meanwhile.
    """
    regions = store.regions(page)
    cells, at = _cells_of(search, page)
    before = [region for region in regions if region.cell] + _emptied(regions, search.lines, _lines_in(search, at))
    removed = {region.number for region in before}
    others = [region for region in regions if region.number not in removed]

    def edited(old: Sequence[StoredLine], new: Sequence[StoredRegion]) -> list[StoredLine]:
        placed = []
        for part, line in _laid_out(old, search.parts):
            cell = at.get(part.region.id) if part.region else None
            loose = region_at(others, line.outline) if line.region in removed else line.region
            placed.append(replace(line, region=loose if cell is None else new[cell].number))
        return placed

    store.change(_WHAT, who, search.lines, edited, before, lambda _: cells)
    return len(search.tables)


def with_tables(
    image: Image.Image, lines: Sequence[StoredLine], regions: Sequence[StoredRegion], *, split: bool
) -> tuple[list[StoredLine], list[StoredRegion]]:
    """The lines and regions of a page that is not stored yet, with the cells of its tables, if any are found.

    The `region` of a line is its place among the regions, before and after; regions that lose all lines are left out.
    """
    numbered = [replace(line, number=number) for number, line in enumerate(lines, start=1)]
    places = [replace(region, number=place) for place, region in enumerate(regions)]
    try:
        search = search_tables(image, numbered, split=split)
    except DataError:
        return list(lines), list(regions)
    cells, at = _cells_of(search, 0)
    emptied = {region.number for region in _emptied(places, numbered, _lines_in(search, at))}
    kept = [region for region in places if region.number not in emptied]
    moved = {region.number: place for place, region in enumerate(kept)}
    placed = []
    for part, line in _laid_out(numbered, search.parts):
        cell = at.get(part.region.id) if part.region else None
        loose = None if line.region is None else moved.get(line.region)
        placed.append(replace(line, number=0, region=loose if cell is None else len(kept) + cell))
    return placed, [*kept, *cells]


def _cells_of(search: FoundTables, page: int) -> tuple[list[StoredRegion], dict[str, int]]:
    """The cells of found tables as regions, and the place of each among them by its id."""
    cells: list[StoredRegion] = []
    at: dict[str, int] = {}
    for table in search.tables:
        for cell in table.cells:
            assert cell.outline
            at[cell.id] = len(cells)
            place = CellPlace(table.id, cell.row, cell.column, cell.row_span, cell.column_span, cell.is_heading)
            cells.append(StoredRegion(0, page, cell.outline, cell=place))
    return cells, at


def _lines_in(search: FoundTables, cells: Mapping[str, int]) -> set[int]:
    return {int(part.where) for part in search.parts if part.region and part.region.id in cells}


def _laid_out(lines: Sequence[StoredLine], parts: Sequence[Line]) -> list[tuple[Line, StoredLine]]:
    """The parts of lines and what is stored of each, in the order of the cells."""
    ordered = sorted(_parts_of(lines, parts), key=lambda part: part[0])
    return [(part, replace(line, place=float(place))) for place, part, line in ordered]


def _parts_of(lines: Sequence[StoredLine], parts: Sequence[Line]) -> list[tuple[int, Line, StoredLine]]:
    """Each part of a line, with its place among them, and the line that it is from now on."""
    by_line: dict[int, list[tuple[int, Line]]] = {}
    for place, part in enumerate(parts):
        by_line.setdefault(int(part.where), []).append((place, part))
    cut: list[tuple[int, Line, StoredLine]] = []
    for line in lines:
        own_parts = by_line[line.number]
        if len(own_parts) == 1 or line.is_reviewed:
            place, part = max(own_parts, key=lambda part: _width(part[1].outline))
            cut.append((place, part, line))
            continue
        ordered = sorted(own_parts, key=lambda part: part[1].outline.box[0] if part[1].outline else 0)
        if is_right_to_left(line.text):
            ordered.reverse()
        rest = line.text
        for number, (place, part) in enumerate(ordered):
            assert part.outline
            left = sum(_width(other.outline) for _, other in ordered[number:])
            text, rest = cut_text(rest, _width(part.outline) / max(left, 1))
            new = redrawn(line, text, part.outline)
            new = new if text else replace(new, state=State.UNREAD)
            cut.append((place, part, new if number == 0 else replace(new, number=0, elements=())))
    return cut


def _width(outline: Outline | None) -> int:
    return outline.box[2] - outline.box[0] if outline else 0
