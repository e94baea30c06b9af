"""Changes of a page: its lines, regions, tables and their order. Each is one entry of the history and one undo.

`carry_out` repeats an edit made in the browser, in `page_view.js` or `table_grid.js`. A line is in the cell around the
middle of its letters, unless its file or somebody has it elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple
from zlib import crc32

from PIL import Image

from dsocr.document import CellPlace, Line, Outline, Point, Table, TableCell
from dsocr.errors import DataError
from dsocr.outlines import contains, outline_of_baseline
from dsocr.registers import find_tables
from dsocr.registers.edits import add_ruling, cell_at, join_cells, move_ruling, remove_ruling, split_cells
from dsocr.text import is_right_to_left
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import (
    StoredLine,
    StoredPage,
    StoredRegion,
    area,
    center,
    checked_outline,
    cut_outline,
    cut_text,
    join_lines,
    line_at,
    middle_of,
    redrawn,
    tables_of,
    version_of,
    within,
)

FIND_AGAIN, FIND_TABLES = "findAgain", "findTables"
"""The edits that take seconds. They are not carried out here: see `replace_unreviewed` and `put_tables`."""
_OVERLAP = 0.5
"""Share of a detected line's height within which a reviewed line's middle makes it the same line."""


def version_by_hand(line: StoredLine) -> int:
    """A number that changes with people's edits of a line, not with readings."""
    text = None if line.is_reading else (line.text, line.state)
    return crc32(repr((line.outline, line.region, line.place, text)).encode())


def carry_out(store: CorrectionStore, page: StoredPage, edit: Mapping[str, Any], *, who: str) -> int | None:
    """Carry out an edit as the browser sends it; returns the line to select then, None for the one that was.

    Raises StaleError if somebody changed the shapes or the table since they were sent to that browser, else DataError.
    """
    lines = [_seen(store.line(number), page, version) for number, version in edit["lines"]]
    region = None
    if edit["region"]:
        number, version = edit["region"]
        if (stored := store.region(number)) is None:
            raise StaleError(None)
        region = replace(stored, version=version)
    match edit["what"]:
        case "reshape":
            outlines = {s["number"]: checked_outline(page, s["polygon"], s["baseline"]) for s in edit["shapes"]}
            edited = [  # texts and reviews stay, readings do not
                replace(line, outline=outlines[line.number])
                if line.is_reviewed
                else redrawn(line, line.text, outlines[line.number])
                for line in lines
            ]
            store.change("reshaped", who, lines, edited)
        case "addLine":
            baseline = within(page, edit["baseline"])
            drawn = outline_of_baseline(baseline, [line.outline for line in store.lines(page.number)])
            return _add_line(store, checked_outline(page, drawn.polygon, baseline), page.number, who)
        case "addBox":
            return _add_line(store, checked_outline(page, edit["polygon"]), page.number, who)
        case "lineBelow":
            outline = lines[0].outline
            _, top, _, bottom = outline.box
            down = min(bottom - top, max(page.height - bottom - 1, 0))
            polygon, baseline = (tuple((x, y + down) for x, y in part) for part in (outline.border, outline.baseline))
            return _add_line(store, checked_outline(page, polygon, baseline), page.number, who)
        case "remove":
            removed = {line.number for line in lines}
            rest = [line for line in store.lines(page.number) if line.number not in removed]
            if not rest:
                raise _no_line_left()
            store.change("removed", who, lines, [])
            return next((line for line in rest if line.place > lines[0].place), rest[-1]).number
        case "merge":
            if len(lines) < 2:
                hint = "choose them with Shift and a click"
                raise DataError("two lines or more of a page can be merged", code="edit-invalid", hint=hint)
            ordered = sorted(lines, key=lambda line: (line.place, line.number))
            return store.change("joined", who, ordered, [join_lines(*ordered)])[0].number
        case "cut":
            return _cut_line(store, page.number, edit["from"], edit["to"], who)
        case "earlier" | "later" as direction:
            step = -1 if direction == "earlier" else 1
            if region is not None:
                _move_region(store, region, step, who)
            else:
                if (beside := store.neighbour(lines[0], before=step < 0)) is not None:
                    move_beside(store, lines[0].number, beside.number, after=step > 0, who=who)
                return lines[0].number
        case "assign":
            home = region.number if region else None
            store.change("assigned", who, lines, [replace(line, region=home) for line in lines])
        case "addRegion":
            _add_region(store, StoredRegion(-1, page.number, checked_outline(page, edit["polygon"]), edit["kind"]), who)
        case "reshapeRegion" if region:
            reshaped = replace(region, outline=checked_outline(page, edit["polygon"]))
            store.change("region", who, [], [], [region], [reshaped])
        case "retype" if region:
            store.change("region", who, [], [], [region], [replace(region, kind=edit["kind"])])
        case "removeRegion" if region:
            inside = [line for line in store.lines(page.number) if line.region == region.number]
            store.change("region", who, inside, [replace(line, region=None) for line in inside], [region])
        case "addTable":
            outline = checked_outline(page, edit["polygon"])
            taken = {other.table for other in store.regions(page.number)}
            id_ = next(id_ for number in range(len(taken) + 1) if (id_ := f"t{number + 1}") not in taken)
            cell = TableCell("", outline, CellPlace(0, 0))
            _save_table(store, page.number, None, Table(id_, outline, (cell,)), who)
        case _:
            id_, version = edit["table"]
            regions = store.regions(page.number)
            if version_of(id_, regions) != version:
                raise StaleError(None)
            (table,) = (table for table in tables_of(regions) if table.id == id_)
            _save_table(store, page.number, table, _changed_table(table, page, edit), who)
    return None


def _seen(line: StoredLine | None, page: StoredPage, version: int) -> StoredLine:
    """The stored line of a page, unless somebody changed it since its `version_by_hand` was this."""
    if line is None or line.page != page.number or version_by_hand(line) != version:
        raise StaleError(line)
    return line


def _add_line(store: CorrectionStore, outline: Outline, page: int, who: str) -> int:
    """Add a line without a text, in the region around it, before the first line of it that is lower."""
    order, region = store.lines(page), region_at(store.regions(page), outline)
    known = {line.number for line in order}
    inside = [line for line in order if line.region == region] or order
    below = next((line for line in inside if center(line.outline)[1] > center(outline)[1]), None)
    at = order.index(below) if below else order.index(inside[-1]) + 1 if inside else 0
    order.insert(at, StoredLine(0, page, 0, outline, region=region))
    written = _arrange(store, "drawn", who, order, {0})
    return next(line.number for line in written if line.number not in known)


def _cut_line(store: CorrectionStore, page: int, start: Point, end: Point, who: str) -> int:
    """Cut the line at the middle of a stroke in two, its text at that share of its width, or at a space nearby."""
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    lines = store.lines(page)
    line = line_at([line for line in lines if contains(line.outline.border, x, y)] or lines, x, y)
    if line is None:
        hint = "draw the cut across a line"
        raise DataError("there is no line where the cut is", code="edit-invalid", hint=hint)
    first, second, share = cut_outline(line.outline, start, end)
    if share < 1 and is_right_to_left(line.text):
        first, second, share = second, first, 1 - share
    texts = cut_text(line.text, share)
    rest = replace(redrawn(line, texts[1], second), number=0, elements=(), place=store.place_after(line))
    return store.change("split", who, [line], [redrawn(line, texts[0], first), rest])[0].number


def move_beside(store: CorrectionStore, number: int, target: int, *, after: bool, who: str) -> None:
    """Move a line before another one of its page, or behind it. Raises StaleError if one of them was removed."""
    line, other = store.line(number), store.line(target)
    if line is None or other is None:
        raise StaleError(None)
    if line.page == other.page and line.number != other.number:
        order = [each for each in store.lines(line.page) if each.number != number]
        order.insert(order.index(other) + after, line)
        _arrange(store, "reordered", who, order, {number})


def _move_region(store: CorrectionStore, region: StoredRegion, step: int, who: str) -> None:
    """Move a region with its lines before the region or table that it follows, or behind the next, if there is one."""
    lines = store.lines(region.page)
    homes = {other.number: other.table or other.number for other in store.regions(region.page)}
    mine = [line for line in lines if line.region == region.number]
    if not mine:
        message, hint = "the region has no lines, so it has no place in the reading order", "put lines into it first"
        raise DataError(message, code="edit-invalid", hint=hint)

    def home(line: StoredLine) -> int | str:
        return homes.get(line.region or 0, -line.number)

    beside = lines[: lines.index(mine[0])][::-1] if step < 0 else lines[lines.index(mine[-1]) + 1 :]
    if passed := list(takewhile(lambda line: home(line) == home(beside[0]), beside)):
        others = [line for line in lines if line.region != region.number]
        at = others.index(passed[-1]) + (step > 0)
        order = [*others[:at], *mine, *others[at:]]
        _arrange(store, "reordered", who, order, {line.number for line in mine}, [region])


def _add_region(store: CorrectionStore, new: StoredRegion, who: str) -> None:
    """Add a region around the lines whose middle is in it, unless they are in a smaller region."""
    areas = {region.number: area(region.outline) for region in store.regions(new.page)}
    inside = [
        line
        for line in store.lines(new.page)
        if contains(new.outline.polygon, *center(line.outline))
        and areas.get(line.region or 0, area(new.outline) + 1) > area(new.outline)
    ]
    store.change("region", who, inside, [replace(line, region=new.number) for line in inside], [], [new])


def replace_unreviewed(store: CorrectionStore, page: int, outlines: Sequence[Outline], *, who: str) -> tuple[int, int]:
    """Replace the lines of a page that are not reviewed by found ones; returns the numbers of removed and added ones.

    Found lines that a reviewed one already covers are skipped. The order is that of the found lines, with each
    reviewed line before the first found one that is lower.
    """
    lines, regions = store.lines(page), store.regions(page)
    kept = [line for line in lines if line.is_reviewed]
    new = [outline for outline in outlines if not any(_covers(line.outline, outline) for line in kept)]
    if not kept and not new:
        raise _no_line_left()
    drawn = [StoredLine(0, page, 0, outline, region=region_at(regions, outline)) for outline in new]
    for line in kept:
        height = center(line.outline)[1]
        at = next((place for place, other in enumerate(drawn) if center(other.outline)[1] > height), len(drawn))
        drawn.insert(at, line)
    store.change("found", who, lines, [replace(line, place=place) for place, line in enumerate(drawn)])
    return len(lines) - len(kept), len(new)


def _covers(line: Outline, other: Outline) -> bool:
    (left, top, right, bottom), (x1, y1, x2, y2) = line.box, other.box
    apart, shared = abs(center(line)[1] - center(other)[1]), min(right, x2) - max(left, x1)
    return apart < _OVERLAP * min(bottom - top, y2 - y1) and shared > 0.5 * min(right - left, x2 - x1)


def _arrange(
    store: CorrectionStore,
    what: str,
    who: str,
    order: Sequence[StoredLine],
    moved: set[int],
    regions: Sequence[StoredRegion] = (),
) -> Sequence[StoredLine]:
    """Give the lines of a page this order; `moved` get places between the others, a new line has the number 0."""
    places = _places_between(order, moved)
    changed = [line for line in order if line.number == 0 or places.get(line.number, line.place) != line.place]
    if not changed:
        return ()
    before = [line for line in changed if line.number]
    return store.change(
        what, who, before, [replace(line, place=places[line.number]) for line in changed], regions, regions
    )


def _places_between(order: Sequence[StoredLine], moved: set[int]) -> dict[int, float]:
    """Places for the moved lines of an order between those of the others; for all lines if there is no room."""
    places: dict[int, float] = {}
    low: float | None = None
    for at, line in enumerate(order):
        if line.number in moved:
            high = next((other.place for other in order[at:] if other.number not in moved), None)
            begin = low if low is not None else line.place if high is None else min(line.place, high) - 1
            end = high if high is not None else max(begin, line.place) + 1
            places[line.number] = line.place if begin < line.place < end else (begin + end) / 2
            if not begin < places[line.number] < end:
                return {line.number: float(place) for place, line in enumerate(order)}
        low = places.get(line.number, line.place)
    return places


def region_at(regions: Sequence[StoredRegion], outline: Outline) -> int | None:
    """The number of the smallest region around the middle of an outline; None if there is none."""
    around = [region for region in regions if contains(region.outline.border, *center(outline))]
    smallest = min(around, key=lambda region: area(region.outline), default=None)
    return smallest.number if smallest else None


def _no_line_left() -> DataError:
    return DataError("no line would be left on the page", code="last-line", hint="draw another line first")


def _changed_table(table: Table, page: StoredPage, edit: Mapping[str, Any]) -> Table | None:
    """The table after an edit; None if it is removed. Raises DataError."""
    match edit["what"]:
        case "moveRuling":
            return move_ruling(table, edit["axis"], int(edit["place"]), within(page, edit["points"]))
        case "addRuling":
            return add_ruling(table, edit["axis"], edit["at"])
        case "removeRuling":
            return remove_ruling(table, edit["axis"], int(edit["place"]))
        case "joinCells" | "splitCells" as what:
            row, column, rows, columns = map(int, edit["cells"])
            return (join_cells if what == "joinCells" else split_cells)(table, CellPlace(row, column, rows, columns))
        case "removeTable":
            return None
        case unknown:
            raise ValueError(f"no such edit: {unknown}")


def _save_table(store: CorrectionStore, page: int, old: Table | None, new: Table | None, who: str) -> None:
    """Store a table in place of another, with its lines; a new one takes the place of regions that it empties."""
    lines, stored = store.lines(page), {region.number: region for region in store.regions(page)}
    cells = []
    if new:
        named = (replace(cell, id=cell.id or str(-1 - rank)) for rank, cell in enumerate(new.cells))
        new = replace(new, cells=tuple(named))
        for cell in new.cells:
            assert cell.outline
            known = stored.get(int(cell.id)) or StoredRegion(int(cell.id), page, cell.outline, table=new.id)
            cells.append(replace(known, outline=cell.outline, cell=cell.place))
    homes = _new_homes(lines, stored.values(), old, new)
    newcomers = {number for number, home in homes.items() if home is not None}
    stay = {cell.number for cell in cells if stored.get(cell.number) == cell}
    before = [stored[int(cell.id)] for cell in (old.cells if old else ()) if int(cell.id) not in stay]
    if old is None:
        before += _emptied(stored.values(), lines, newcomers)
    others = [region for region in stored.values() if region.cell is None and region not in before]
    ranked = {cell.number: rank for rank, cell in enumerate(cells)}
    in_cells = ((line.number, homes.get(line.number, line.region)) for line in lines)
    ranks = {number: ranked[home] for number, home in in_cells if home in ranked}
    places = _places_in_cells(lines, ranks, newcomers)
    touched, edited = [], []
    for line in lines:
        home = homes.get(line.number, line.region)
        if line.number in homes and home is None:
            home = region_at(others, line.outline)
        moved = replace(line, region=home, place=places.get(line.number, line.place))
        if line.number in homes or moved != line:
            touched.append(line)
            edited.append(moved)
    store.change("table", who, touched, edited, before, [cell for cell in cells if cell.number not in stay])


def _new_homes(
    lines: Sequence[StoredLine], regions: Iterable[StoredRegion], old: Table | None, new: Table | None
) -> dict[int, int | None]:
    """Return the cell of `new` of each line that changes its cell, by their regions; None if it leaves `old`."""
    mine = {int(cell.id): cell for cell in old.cells} if old else {}
    elsewhere = {region.number for region in regions if region.cell} - mine.keys()
    homes: dict[int, int | None] = {}
    for line in lines:
        if line.region in elsewhere:
            continue
        was, home = (_cell_around(table, middle_of(line)) for table in (old, new))
        if line.region in mine:
            outline = mine[line.region].outline
            if new and was != line.region and outline:  # somebody put it there
                stays = any(int(cell.id) == line.region for cell in new.cells)
                home = line.region if stays else _cell_around(new, center(outline))
        elif was is not None or home is None:
            continue
        if home != line.region:
            homes[line.number] = home
    return homes


def _cell_around(table: Table | None, point: tuple[float, float]) -> int | None:
    rank = cell_at(table, *point) if table else None
    return int(table.cells[rank].id) if table and rank is not None else None


def _emptied(regions: Iterable[StoredRegion], lines: Sequence[StoredLine], moved: set[int]) -> list[StoredRegion]:
    """The regions that had lines and have none when these have moved, cells aside."""
    had = {line.region for line in lines if line.number in moved}
    has = {line.region for line in lines if line.number not in moved}
    return [region for region in regions if region.cell is None and region.number in had - has]


def _places_in_cells(lines: Sequence[StoredLine], ranks: Mapping[int, int], newcomers: set[int]) -> Mapping[int, float]:
    """New places for lines that come into cells, by their `ranks`: beside a cell's lines, or behind the cell before."""
    order = [line for line in lines if line.number not in newcomers]
    coming = (line for line in lines if line.number in newcomers)
    for line in sorted(coming, key=lambda line: (ranks[line.number], line.place)):
        order.insert(_index_for(line, order, ranks, newcomers), line)
    return _places_between(order, newcomers)


def _index_for(line: StoredLine, order: Sequence[StoredLine], ranks: Mapping[int, int], newcomers: set[int]) -> int:
    mine, height = ranks[line.number], middle_of(line)[1]
    ranked = [(ranks[other.number], at) for at, other in enumerate(order) if other.number in ranks]
    if same := [at for rank, at in ranked if rank == mine]:
        present = (at for at in same if order[at].number not in newcomers)
        return next((at for at in present if middle_of(order[at])[1] > height), same[-1] + 1)
    if earlier := [place for place in ranked if place[0] < mine]:
        return max(earlier)[1] + 1
    return min(ranked)[1] if ranked else sum(other.place < line.place for other in order)


class FoundTables(NamedTuple):
    """Tables of a page, with its lines at that time and their parts in the order of the cells."""

    lines: Sequence[StoredLine]
    parts: Sequence[Line]
    tables: Sequence[Table]

    def fill(
        self, page: int, regions: Sequence[StoredRegion]
    ) -> tuple[list[StoredLine], list[StoredRegion], list[StoredRegion]]:
        """Return the lines in their cells, in the order of these, the regions that are replaced, and the new cells.

        Former cells are replaced, and regions that lose all lines. Lines over several columns are cut unless reviewed.
        """
        number = min((0, *(region.number for region in regions)))
        cells: dict[str, StoredRegion] = {}
        for table in self.tables:
            for cell in table.cells:
                assert cell.outline
                number -= 1
                cells[cell.id] = StoredRegion(number, page, cell.outline, table=table.id, cell=cell.place)
        in_cells = {_line_number(part) for part in self.parts if part.region and part.region.id in cells}
        replaced = [region for region in regions if region.cell] + _emptied(regions, self.lines, in_cells)
        others = [region for region in regions if region not in replaced]
        numbers = {region.number for region in replaced}
        placed = []
        for id_, line in _laid_out(self.lines, self.parts):
            loose = region_at(others, line.outline) if line.region in numbers else line.region
            placed.append(replace(line, region=cells[id_].number if id_ in cells else loose))
        return placed, replaced, [*cells.values()]


def search_tables(image: Image.Image, lines: Sequence[StoredLine], *, split: bool = True) -> FoundTables:
    """Find the tables of a page in about a second; `split` cuts lines over several columns. DataError without any."""
    seen = [Line(line.text, str(line.number), line.outline, index=place) for place, line in enumerate(lines)]
    parts, tables = find_tables(image, seen, split=split)
    if not tables:
        hint = "a table has three columns with text, or two ruled ones; draw it, and its rulings"
        raise DataError("no table was found on the page", code="no-tables", hint=hint)
    return FoundTables(lines, parts, tables)


def put_tables(store: CorrectionStore, page: int, search: FoundTables, *, who: str) -> int:
    """Replace the tables of a page by found ones; returns their number. Raises StaleError for changed lines."""
    lines, replaced, cells = search.fill(page, store.regions(page))
    store.change("table", who, search.lines, lines, replaced, cells)
    return len(search.tables)


def _line_number(part: Line) -> int:
    return int(part.where.rstrip("+"))


def _laid_out(lines: Sequence[StoredLine], parts: Sequence[Line]) -> Iterator[tuple[str, StoredLine]]:
    """Yield the ids of regions and the lines of a page from now on, in the order of the cells."""
    by_line: dict[int, list[tuple[int, str, Outline]]] = {}
    for place, part in enumerate(parts):
        if part.outline:
            id_ = part.region.id if part.region else ""
            by_line.setdefault(_line_number(part), []).append((place, id_, part.outline))
    cut: dict[int, tuple[str, StoredLine]] = {}
    for line in lines:
        ordered = sorted(by_line[line.number], key=lambda part: part[2].box[0])
        widths = [outline.box[2] - outline.box[0] for _, _, outline in ordered]
        if len(ordered) == 1 or line.is_reviewed:
            place, id_, _ = ordered[widths.index(max(widths))]
            cut[place] = id_, line
            continue
        if is_right_to_left(line.text):
            ordered, widths = ordered[::-1], widths[::-1]
        rest = line.text
        for number, (place, id_, outline) in enumerate(ordered):
            text, rest = cut_text(rest, widths[number] / max(sum(widths[number:]), 1))
            new = redrawn(line, text, outline)
            cut[place] = id_, new if number == 0 else replace(new, number=0, elements=())
    for place, (id_, line) in sorted(cut.items()):
        yield id_, replace(line, place=float(place))
