"""Changes of the tables of a page: rulings, cells, whole tables; each is kept in the history and undone as a whole.

`carry_out_in_table` does what somebody did in the browser, `table_grid.js`. A line is in the cell around the middle of
its letters, unless its file or somebody has it elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from PIL import Image

from dsocr.document import CellPlace, Line, Outline, Table, TableCell
from dsocr.errors import DataError
from dsocr.registers import find_tables
from dsocr.registers.edits import add_ruling, cell_at, join_cells, move_ruling, remove_ruling, split_cells
from dsocr.text import is_right_to_left
from dsocr.workbench.shape_changes import places_between, region_at
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import (
    State,
    StoredLine,
    StoredPage,
    StoredRegion,
    center,
    checked_outline,
    cut_text,
    middle_of,
    redrawn,
    tables_of,
    version_of,
    within,
)

FIND_TABLES = "findTables"
"""The one edit that takes seconds; it is not carried out here."""
TABLE_EDITS = frozenset(
    {FIND_TABLES, "moveRuling", "addRuling", "removeRuling", "joinCells", "splitCells", "addTable", "removeTable"}
)

_WHAT = "table"
"""What the history calls these changes."""


class LinePart(NamedTuple):
    """A part of a line of this number; `cell` is its rank among the cells of all tables, None outside."""

    line: int
    outline: Outline
    cell: int | None


class FoundTables(NamedTuple):
    """Tables of a page: its lines at that time, their parts in the order of the cells, and the cells."""

    lines: tuple[StoredLine, ...]
    parts: tuple[LinePart, ...]
    cells: tuple[StoredRegion, ...]

    def emptied(self, regions: Iterable[StoredRegion]) -> list[StoredRegion]:
        """Return the regions, other than cells, that lose all their lines."""
        return _emptied(regions, self.lines, {part.line for part in self.parts if part.cell is not None})


def carry_out_in_table(store: CorrectionStore, page: StoredPage, edit: Mapping[str, Any], *, who: str) -> None:
    """Carry out an edit as `table_grid.js` sends it.

    Raises StaleError if somebody changed the table since it was sent to that browser, else DataError.
    """
    regions = store.regions(page.number)
    if edit["what"] == "addTable":
        outline = checked_outline(edit["polygon"], (), page.width, page.height)
        taken = {region.table for region in regions}
        id_ = next(id_ for number in range(len(taken) + 1) if (id_ := f"t{number + 1}") not in taken)
        cell = TableCell("", outline, CellPlace(0, 0))
        _save(store, page.number, None, Table(id_, outline, (cell,)), who)
        return
    id_, version = edit["table"]
    if version_of(id_, regions) != version:
        raise StaleError(None)
    (table,) = (table for table in tables_of(regions) if table.id == id_)
    _save(store, page.number, table, _changed(table, page, edit), who)


def _changed(table: Table, page: StoredPage, edit: Mapping[str, Any]) -> Table | None:
    """The table after an edit; None if it is removed. Raises DataError."""
    match edit["what"]:
        case "moveRuling":
            points = within(edit["points"], page.width, page.height)
            return move_ruling(table, edit["axis"], int(edit["place"]), points)
        case "addRuling":
            x, y = edit["at"]
            return add_ruling(table, edit["axis"], (x, y))
        case "removeRuling":
            return remove_ruling(table, edit["axis"], int(edit["place"]))
        case "joinCells" | "splitCells" as what:
            row, column, rows, columns = map(int, edit["cells"])
            return (join_cells if what == "joinCells" else split_cells)(table, CellPlace(row, column, rows, columns))
        case "removeTable":
            return None
        case unknown:
            raise ValueError(f"no such edit: {unknown}")


def _save(store: CorrectionStore, page: int, old: Table | None, new: Table | None, who: str) -> None:
    """Store a table in place of another, with its lines; a new one takes the place of regions that it empties."""
    lines, stored = store.lines(page), {region.number: region for region in store.regions(page)}
    homes = _homes(lines, stored.values(), old, new)
    newcomers = {number for number, home in homes.items() if home is not None}
    cells = _regions_of(new, page, stored) if new else []
    changed = [rank for rank, cell in enumerate(cells) if stored.get(cell.number) != cell]
    stay = {cell.number for cell in cells} - {cells[rank].number for rank in changed}
    before = [stored[int(cell.id)] for cell in (old.cells if old else ()) if int(cell.id) not in stay]
    if old is None:
        before += _emptied(stored.values(), lines, newcomers)
    kept = {cell.number: rank for rank, cell in enumerate(cells) if cell.number}
    ranks = {line.number: homes.get(line.number, kept.get(line.region or 0)) for line in lines}
    places = _places(lines, {number: rank for number, rank in ranks.items() if rank is not None}, newcomers)
    removed = {region.number for region in before}
    others = [region for region in stored.values() if region.cell is None and region.number not in removed]

    def edited(current: Sequence[StoredLine], written: Sequence[StoredRegion]) -> list[StoredLine]:
        numbers = [cell.number for cell in cells]
        for rank, region in zip(changed, written, strict=True):
            numbers[rank] = region.number
        moved = []
        for line in current:
            number = line.region
            if line.number in homes:
                home = homes[line.number]
                number = region_at(others, line.outline) if home is None else numbers[home]
            moved.append(replace(line, region=number, place=places.get(line.number, line.place)))
        return moved

    touched = [line for line in lines if line.number in homes or places.get(line.number, line.place) != line.place]
    store.change(_WHAT, who, touched, edited, before, lambda _: [cells[rank] for rank in changed])


def _regions_of(table: Table, page: int, stored: Mapping[int, StoredRegion]) -> list[StoredRegion]:
    """The cells of a table as they are to be stored; new ones have no number yet."""
    regions = []
    for cell in table.cells:
        assert cell.outline
        known = stored[int(cell.id)] if cell.id else StoredRegion(0, page, cell.outline, table=table.id)
        regions.append(replace(known, outline=cell.outline, cell=cell.place))
    return regions


def _homes(
    lines: Sequence[StoredLine], regions: Iterable[StoredRegion], old: Table | None, new: Table | None
) -> dict[int, int | None]:
    """Return the cell of `new`, counted from 0, of each line that changes its cell; None if it leaves `old`."""
    mine = {int(cell.id): (number, cell) for number, cell in enumerate(old.cells)} if old else {}
    kept = {int(cell.id): number for number, cell in enumerate(new.cells) if cell.id} if new else {}
    elsewhere = {region.number for region in regions if region.cell} - mine.keys()
    homes: dict[int, int | None] = {}
    for line in lines:
        if line.region in elsewhere:
            continue
        was, now = (cell_at(table, *middle_of(line)) if table else None for table in (old, new))
        if line.region in mine:
            number, cell = mine[line.region]
            if new and was != number and cell.outline:  # somebody put it there
                now = kept[line.region] if line.region in kept else cell_at(new, *center(cell.outline))
        elif was is not None or now is None:
            continue
        if now is None or now != kept.get(line.region or 0):
            homes[line.number] = now
    return homes


def _emptied(regions: Iterable[StoredRegion], lines: Sequence[StoredLine], moved: set[int]) -> list[StoredRegion]:
    """The regions that had lines and have none when these have moved, cells aside."""
    had = {line.region for line in lines if line.number in moved}
    has = {line.region for line in lines if line.number not in moved}
    return [region for region in regions if region.cell is None and region.number in had - has]


def _places(lines: Sequence[StoredLine], ranks: Mapping[int, int], newcomers: set[int]) -> dict[int, float]:
    """New places in the reading order for lines that come into a cell: beside its lines, or behind the cell before.

    `ranks` are the cells of lines, counted from 0.
    """
    order = [line for line in lines if line.number not in newcomers]
    coming = (line for line in lines if line.number in newcomers)
    for line in sorted(coming, key=lambda line: (ranks[line.number], line.place)):
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

    With `split`, lines over several columns are cut.
    """
    seen = [Line(line.text, str(line.number), line.outline, index=place) for place, line in enumerate(lines)]
    parts, tables = find_tables(image, seen, split=split)
    if not tables:
        hint = "a table has three columns with text, or two ruled ones; draw it, and its rulings"
        raise DataError("no table was found on the page", code="no-tables", hint=hint)
    cells = [(cell, table.id) for table in tables for cell in table.cells]
    ranks = {cell.id: rank for rank, (cell, _) in enumerate(cells)}
    placed = (
        LinePart(int(part.where.rstrip("+")), part.outline, ranks.get(part.region.id) if part.region else None)
        for part in parts
        if part.outline
    )
    regions = (StoredRegion(0, 0, cell.outline, table=table, cell=cell.place) for cell, table in cells if cell.outline)
    return FoundTables(tuple(lines), tuple(placed), tuple(regions))


def put_tables(store: CorrectionStore, page: int, search: FoundTables, *, who: str) -> int:
    """Replace the tables of a page by found ones; returns how many there are.

    Lines over several columns are cut, unless they are reviewed. Raises StaleError if a line changed meanwhile.
    """
    regions = store.regions(page)
    before = [region for region in regions if region.cell] + search.emptied(regions)
    removed = {region.number for region in before}
    others = [region for region in regions if region.number not in removed]
    cells = [replace(cell, page=page) for cell in search.cells]

    def edited(old: Sequence[StoredLine], new: Sequence[StoredRegion]) -> list[StoredLine]:
        placed = []
        for cell, line in _laid_out(old, search.parts):
            loose = region_at(others, line.outline) if line.region in removed else line.region
            placed.append(replace(line, region=loose if cell is None else new[cell].number))
        return placed

    store.change(_WHAT, who, search.lines, edited, before, lambda _: cells)
    return len({cell.table for cell in cells})


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
    emptied = {region.number for region in search.emptied(places)}
    kept = [region for region in places if region.number not in emptied]
    moved = {region.number: place for place, region in enumerate(kept)}
    placed = []
    for cell, line in _laid_out(numbered, search.parts):
        loose = None if line.region is None else moved.get(line.region)
        placed.append(replace(line, number=0, region=loose if cell is None else len(kept) + cell))
    return placed, [*kept, *search.cells]


def _laid_out(lines: Sequence[StoredLine], parts: Sequence[LinePart]) -> Iterator[tuple[int | None, StoredLine]]:
    """Yield the cells and lines of a page from now on, in the order of the cells."""
    by_line: dict[int, list[tuple[int, LinePart]]] = {}
    for place, part in enumerate(parts):
        by_line.setdefault(part.line, []).append((place, part))
    cut: dict[int, tuple[int | None, StoredLine]] = {}
    for line in lines:
        ordered = sorted(by_line[line.number], key=lambda part: part[1].outline.box[0])
        if len(ordered) == 1 or line.is_reviewed:
            place, part = max(ordered, key=lambda part: _width(part[1].outline))
            cut[place] = part.cell, line
            continue
        if is_right_to_left(line.text):
            ordered.reverse()
        rest = line.text
        for number, (place, part) in enumerate(ordered):
            left = sum(_width(other.outline) for _, other in ordered[number:])
            text, rest = cut_text(rest, _width(part.outline) / max(left, 1))
            new = redrawn(line, text, part.outline)
            new = new if text else replace(new, state=State.UNREAD)
            cut[place] = part.cell, new if number == 0 else replace(new, number=0, elements=())
    for place, (cell, line) in sorted(cut.items()):
        yield cell, replace(line, place=float(place))


def _width(outline: Outline) -> int:
    return outline.box[2] - outline.box[0]
