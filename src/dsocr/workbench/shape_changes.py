"""Changes of the shapes of a page: lines, regions and their order, each kept in the history and undone as a whole.

`carry_out` repeats an edit made in the browser, `page_view.js`; the functions below it are the changes themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from dsocr.document import Outline, Point
from dsocr.errors import DataError
from dsocr.outlines import contains, outline_of_baseline
from dsocr.text import is_right_to_left
from dsocr.workbench.store import CorrectionStore, StaleError
from dsocr.workbench.stored_lines import (
    State,
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
    redrawn,
    within,
)

FIND_AGAIN = "findAgain"
"""The one edit that takes seconds; it is not carried out here."""
_OVERLAP = 0.5
"""Share of a detected line's height within which a reviewed line's middle makes it the same line."""


def version_by_hand(line: StoredLine) -> int:
    """A number that changes with people's edits of a line, not with readings."""
    text = None if line.is_reading else (line.text, line.state)
    return crc32(repr((line.outline, line.region, line.place, text)).encode())


def carry_out(store: CorrectionStore, page: StoredPage, edit: Mapping[str, Any], *, who: str) -> int | None:
    """Carry out an edit as `page_view.js` sends it; returns the line to select then, None for the one that was.

    Raises StaleError if somebody changed the shapes since they were sent to that browser, else DataError.
    """
    lines = [_seen(store.line(number), version) for number, version in edit["lines"]]
    region = None
    if edit["region"]:
        region = replace(_given(store.region(edit["region"][0])), version=edit["region"][1])
    match edit["what"]:
        case "reshape":
            outlines = {
                shape["number"]: _outline(page, shape["polygon"], shape["baseline"]) for shape in edit["shapes"]
            }
            reshape(store, [(line, outlines[line.number]) for line in lines], who=who)
        case "addLine":
            baseline = within(edit["baseline"], page.width, page.height)
            drawn = outline_of_baseline(baseline, [line.outline for line in store.lines(page.number)])
            return add_line(store, page.number, _outline(page, drawn.polygon, baseline), who=who).number
        case "addBox":
            return add_line(store, page.number, _outline(page, edit["polygon"]), who=who).number
        case "lineBelow":
            return _add_below(store, page, lines[0], who)
        case "remove":
            return remove_lines(store, lines, who=who)
        case "merge":
            return merge_lines(store, lines, who=who).number
        case "cut":
            return _cut(store, page, edit["from"], edit["to"], who)
        case "earlier" | "later" as direction:
            step = -1 if direction == "earlier" else 1
            if region is None:
                return _move(store, lines[0], step, who)
            move_region(store, region, step, who=who)
        case "assign":
            assign(store, lines, region.number if region else None, who=who)
        case "addRegion":
            add_region(store, page.number, _outline(page, edit["polygon"]), edit["kind"], who=who)
        case "reshapeRegion":
            _change_region(store, _given(region), who, outline=_outline(page, edit["polygon"]))
        case "retype":
            _change_region(store, _given(region), who, kind=edit["kind"])
        case "removeRegion":
            remove_region(store, _given(region), who=who)
        case unknown:
            raise ValueError(f"no such edit: {unknown}")
    return None


def move_beside(store: CorrectionStore, number: int, target: int, *, after: bool, who: str) -> StoredLine | None:
    """Move a line before another one of its page, or behind it. Raises StaleError if one of them was removed."""
    line, other = store.line(number), store.line(target)
    if line is None or other is None:
        raise StaleError(None)
    if line.page != other.page or line.number == other.number:
        return None
    before: StoredLine | None = other
    if after:
        lines = [each for each in store.lines(line.page) if each.number != line.number]
        before = next((each for each in lines[lines.index(other) + 1 :]), None)
    return move_line(store, line, before, who=who)


def _seen(line: StoredLine | None, version: int) -> StoredLine:
    """The stored line, unless somebody changed it since its `version_by_hand` was this."""
    if line is None or version_by_hand(line) != version:
        raise StaleError(line)
    return line


def _given(region: StoredRegion | None) -> StoredRegion:
    if region is None:
        raise StaleError(None)
    return region


def _outline(page: StoredPage, polygon: Sequence[Point], baseline: Sequence[Point] = ()) -> Outline:
    return checked_outline(polygon, baseline, page.width, page.height)


def _add_below(store: CorrectionStore, page: StoredPage, line: StoredLine, who: str) -> int:
    """A line of the same shape below another one, as far below as that is high."""
    _, top, _, bottom = line.outline.box
    down = min(bottom - top, max(page.height - bottom - 1, 0))
    polygon = [(x, y + down) for x, y in line.outline.border]
    outline = _outline(page, polygon, [(x, y + down) for x, y in line.outline.baseline])
    return add_line(store, page.number, outline, who=who).number


def _cut(store: CorrectionStore, page: StoredPage, start: Point, end: Point, who: str) -> int:
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    lines = store.lines(page.number)
    around = [line for line in lines if contains(line.outline.border, x, y)]
    line = line_at(around or lines, x, y)
    if line is None:
        hint = "draw the cut across a line"
        raise DataError("there is no line where the cut is", code="edit-invalid", hint=hint)
    return cut_line(store, line, start, end, who=who)[0].number


def _move(store: CorrectionStore, line: StoredLine, step: int, who: str) -> int:
    lines = [other for other in store.lines(line.page) if other.number != line.number]
    at = sum((other.place, other.number) < (line.place, line.number) for other in lines) + step
    before = lines[at] if 0 <= at < len(lines) else None
    return line.number if at < 0 else move_line(store, line, before, who=who).number


def reshape(store: CorrectionStore, outlines: Sequence[tuple[StoredLine, Outline]], *, who: str) -> list[StoredLine]:
    """Give lines other outlines; texts and reviews stay. Raises StaleError."""

    def moved(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        lines = []
        for line, (_, outline) in zip(old, outlines, strict=True):
            new = replace(line, outline=outline)
            if not line.is_reviewed:
                new = _unread_if_empty(replace(redrawn(new, line.text, outline), note=line.note))
            lines.append(new)
        return lines

    return store.change("reshaped", who, [line for line, _ in outlines], moved)[0]


def add_line(store: CorrectionStore, page: int, outline: Outline, *, who: str) -> StoredLine:
    """Add a line without a text, in the region around it, before the first line of it that is lower."""
    region = region_at(store.regions(page), outline)
    lines = store.lines(page)
    inside = [line for line in lines if line.region == region] or lines
    here = center(outline)[1]
    below = next((line for line in inside if center(line.outline)[1] > here), None)
    places = [line.place for line in lines]
    if below is not None:
        at = places.index(below.place)
        place = (places[at - 1] + below.place) / 2 if at else below.place - 1
    elif inside and (at := places.index(inside[-1].place) + 1) < len(places):
        place = (places[at - 1] + places[at]) / 2
    else:
        place = places[-1] + 1 if places else 0
    new = StoredLine(0, page, place, outline, region=region)
    return store.change("drawn", who, [], lambda *_: [new])[0][0]


def remove_lines(store: CorrectionStore, lines: Sequence[StoredLine], *, who: str) -> int:
    """Remove lines of a page with their texts; returns the line after the first.

    Raises StaleError, or DataError if no line would be left on the page.
    """
    removed = {line.number for line in lines}
    rest = [line for line in store.lines(lines[0].page) if line.number not in removed]
    if not rest:
        raise _no_line_left()
    store.change("removed", who, lines, lambda *_: [])
    return next((line for line in rest if line.place > lines[0].place), rest[-1]).number


def merge_lines(store: CorrectionStore, lines: Sequence[StoredLine], *, who: str) -> StoredLine:
    """Make one line of several, their texts in reading order. Raises StaleError, or DataError for fewer than two."""
    if len(lines) < 2 or len({line.page for line in lines}) > 1:
        hint = "choose them with Shift and a click"
        raise DataError("two lines or more of a page can be merged", code="edit-invalid", hint=hint)

    ordered = sorted(lines, key=lambda line: (line.place, line.number))
    return store.change("joined", who, ordered, lambda old, _: [join_lines(*old)])[0][0]


def cut_line(
    store: CorrectionStore, line: StoredLine, start: Point, end: Point, *, who: str
) -> tuple[StoredLine, StoredLine]:
    """Cut a line in two along a straight line, the text at that share of its width, or at a space nearby.

    Raises StaleError, or DataError if one part would be empty.
    """

    def halves(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        first, second, share = cut_outline(old[0].outline, start, end)
        if share < 1 and is_right_to_left(old[0].text):
            first, second, share = second, first, 1 - share
        texts = cut_text(old[0].text, share)
        right = redrawn(old[0], texts[1], second)
        right = replace(right, number=0, elements=(), place=store.place_after(old[0]))
        return [_unread_if_empty(redrawn(old[0], texts[0], first)), _unread_if_empty(right)]

    first, second = store.change("split", who, [line], halves)[0]
    return first, second


def move_line(store: CorrectionStore, line: StoredLine, before: StoredLine | None, *, who: str) -> StoredLine:
    """Move a line in the reading order, before another one of its page or to the end. Raises StaleError."""
    others = [other for other in store.lines(line.page) if other.number != line.number]
    at = next((place for place, other in enumerate(others) if before and other.number == before.number), len(others))
    low = others[at - 1].place if at else others[0].place - 2 if others else 0.0
    high = others[at].place if at < len(others) else low + 2
    place = (low + high) / 2
    if low < place < high:
        return store.change("reordered", who, [line], lambda old, _: [replace(old[0], place=place)])[0][0]
    ordered = [*others[:at], line, *others[at:]]  # no number is left between the two
    numbered = store.change(
        "reordered", who, ordered, lambda old, _: [replace(other, place=place) for place, other in enumerate(old)]
    )
    return numbered[0][at]


def move_region(store: CorrectionStore, region: StoredRegion, step: int, *, who: str) -> None:
    """Move a region with its lines in the reading order, before the region or table that it follows or behind the next.

    At either end of the page nothing changes. Raises StaleError.
    """
    lines = store.lines(region.page)
    groups = {other.number: other.table or other.number for other in store.regions(region.page)}
    mine = [line for line in lines if line.region == region.number]
    others = [line for line in lines if line.region != region.number]
    if not mine:
        message, hint = "the region has no lines, so it has no place in the reading order", "put lines into it first"
        raise DataError(message, code="edit-invalid", hint=hint)
    first = mine[0] if step < 0 else mine[-1]
    at = sum((other.place, other.number) < (first.place, first.number) for other in others)
    if not 0 <= at - (step < 0) < len(others):
        return
    beside = others[at - (step < 0)]
    group = groups.get(beside.region or 0, -beside.number)
    while 0 <= at - (step < 0) < len(others):
        next_line = others[at - (step < 0)]
        if groups.get(next_line.region or 0, -next_line.number) != group:
            break
        at += step
    places = places_between([*others[:at], *mine, *others[at:]], {line.number for line in mine})
    moved = [line for line in lines if places.get(line.number, line.place) != line.place]
    store.change(
        "reordered", who, moved, lambda old, _: [replace(line, place=places[line.number]) for line in old], [region]
    )


def assign(store: CorrectionStore, lines: Sequence[StoredLine], region: int | None, *, who: str) -> list[StoredLine]:
    """Put lines into a region, or into none. Raises StaleError."""
    return store.change("assigned", who, lines, _put_into(region))[0]


def _put_into(region: int | None) -> Callable[[Sequence[StoredLine], object], list[StoredLine]]:
    return lambda old, _: [replace(line, region=region) for line in old]


def add_region(store: CorrectionStore, page: int, outline: Outline, kind: str, *, who: str) -> StoredRegion:
    """Add a region around the lines whose middle is in it, unless they are in a smaller region."""
    regions = {region.number: region for region in store.regions(page)}
    lines = [
        line
        for line in store.lines(page)
        if contains(outline.polygon, *center(line.outline))
        and (line.region not in regions or area(regions[line.region].outline) > area(outline))
    ]
    new = StoredRegion(0, page, outline, kind)

    def moved(old: Sequence[StoredLine], added: Sequence[StoredRegion]) -> list[StoredLine]:
        return [replace(line, region=added[0].number) for line in old]

    return store.change("region", who, lines, moved, (), lambda _: [new])[1][0]


def remove_region(store: CorrectionStore, region: StoredRegion, *, who: str) -> None:
    """Remove a region; its lines are in none then. Raises StaleError."""
    lines = [line for line in store.lines(region.page) if line.region == region.number]
    store.change("region", who, lines, _put_into(None), [region], lambda _: [])


def replace_unreviewed(store: CorrectionStore, page: int, outlines: Sequence[Outline], *, who: str) -> tuple[int, int]:
    """Replace the lines of a page that are not reviewed by found ones; returns how many were removed and added.

    Found lines that a reviewed one already covers are left out. The order is that of the found lines, with each
    reviewed line before the first found one that is lower.
    """
    lines = store.lines(page)
    kept = [line for line in lines if line.is_reviewed]
    new = [outline for outline in outlines if not any(_covers(line.outline, outline) for line in kept)]
    if not kept and not new:
        raise _no_line_left()
    regions = store.regions(page)

    def laid_out(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        drawn = [StoredLine(0, page, 0, outline, region=region_at(regions, outline)) for outline in new]
        for line in (other for other in old if other.is_reviewed):
            height = center(line.outline)[1]
            at = next((place for place, other in enumerate(drawn) if center(other.outline)[1] > height), len(drawn))
            drawn.insert(at, line)
        return [replace(line, place=place) for place, line in enumerate(drawn)]

    store.change("found", who, lines, laid_out)
    return len(lines) - len(kept), len(new)


def places_between(order: Sequence[StoredLine], moved: set[int]) -> dict[int, float]:
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


def _change_region(store: CorrectionStore, region: StoredRegion, who: str, **changes: Any) -> None:
    store.change("region", who, [], lambda *_: [], [region], lambda _: [replace(region, **changes)])


def _unread_if_empty(line: StoredLine) -> StoredLine:
    return line if line.text else replace(line, state=State.UNREAD)


def _covers(line: Outline, other: Outline) -> bool:
    (left, top, right, bottom), (x1, y1, x2, y2) = line.box, other.box
    apart = abs((top + bottom) / 2 - (y1 + y2) / 2)
    return apart < _OVERLAP * min(bottom - top, y2 - y1) and min(right, x2) - max(left, x1) > 0.5 * min(
        right - left, x2 - x1
    )
