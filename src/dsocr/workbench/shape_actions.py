"""What somebody does with the shapes of a page in the browser, carried out on the store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dsocr.document import Outline, Point
from dsocr.errors import DataError
from dsocr.outlines import outline_of_baseline
from dsocr.workbench.outline_editing import checked_outline, contains, corners, within
from dsocr.workbench.shape_changes import (
    add_line,
    add_region,
    assign,
    cut_line,
    merge_lines,
    move_line,
    remove_lines,
    remove_region,
    reshape,
    reshape_region,
    retype_region,
)
from dsocr.workbench.store import CorrectionStore, StaleError, StoredLine, StoredPage, StoredRegion, line_at

Stored = TypeVar("Stored", StoredLine, StoredRegion)
FIND_AGAIN = "findAgain"
"""The one edit that takes seconds; it is not carried out here."""


def carry_out(store: CorrectionStore, page: StoredPage, edit: Mapping[str, Any], *, who: str) -> int | None:
    """Carry out an edit as `page_view.js` sends it; returns the line to select then, None for the one that was.

    Raises StaleError if somebody changed the shapes since they were sent to that browser, else DataError.
    """
    lines = [_seen(store.line(number), version) for number, version in edit["lines"]]
    region = None
    if edit["region"]:
        region = _seen(store.region(edit["region"][0]), edit["region"][1])
    handlers: dict[str, Callable[[], int | None]] = {
        "reshape": lambda: _reshape(store, page, lines, edit["shapes"], who),
        "addLine": lambda: _add_line(store, page, edit["baseline"], who),
        "addBox": lambda: add_line(store, page.number, _outline(page, edit["polygon"]), who=who).number,
        "lineBelow": lambda: _add_below(store, page, lines[0], who),
        "remove": lambda: _remove(store, lines, who),
        "merge": lambda: merge_lines(store, lines, who=who).number,
        "cut": lambda: _cut(store, page, edit["from"], edit["to"], who),
        "earlier": lambda: _move(store, lines[0], -1, who),
        "later": lambda: _move(store, lines[0], 1, who),
        "assign": lambda: _no_line(assign(store, lines, region.number if region else None, who=who)),
        "addRegion": lambda: _no_line(
            add_region(store, page.number, _outline(page, edit["polygon"]), edit["kind"], who=who)
        ),
        "reshapeRegion": lambda: _no_line(
            reshape_region(store, _given(region), _outline(page, edit["polygon"]), who=who)
        ),
        "retype": lambda: _no_line(retype_region(store, _given(region), edit["kind"], who=who)),
        "removeRegion": lambda: remove_region(store, _given(region), who=who),
    }
    return handlers[edit["what"]]()


def move_beside(store: CorrectionStore, number: int, target: int, *, after: bool, who: str) -> StoredLine | None:
    """Move a line before another one of its page, or behind it. Raises StaleError if one of them was removed."""
    line, other = store.line(number), store.line(target)
    if line is None or other is None:
        raise StaleError(None)
    if line.page != other.page or line.number == other.number:
        return None
    before = _next(store, other, line) if after else other
    return move_line(store, line, before, who=who)


def _seen(stored: Stored | None, version: int) -> Stored:
    if stored is None:
        raise StaleError(None)
    return replace(stored, version=version)


def _given(region: StoredRegion | None) -> StoredRegion:
    if region is None:
        raise StaleError(None)
    return region


def _no_line(_: object) -> None:
    return None


def _outline(page: StoredPage, polygon: Sequence[Point], baseline: Sequence[Point] = ()) -> Outline:
    return checked_outline(polygon, baseline, page.width, page.height)


def _reshape(
    store: CorrectionStore,
    page: StoredPage,
    lines: Sequence[StoredLine],
    shapes: Sequence[Mapping[str, Any]],
    who: str,
) -> None:
    outlines = {shape["number"]: _outline(page, shape["polygon"], shape["baseline"]) for shape in shapes}
    reshape(store, [(line, outlines[line.number]) for line in lines], who=who)


def _add_line(store: CorrectionStore, page: StoredPage, points: Sequence[Point], who: str) -> int:
    baseline = within(points, page.width, page.height)
    drawn = outline_of_baseline(baseline, [line.outline for line in store.lines(page.number)])
    return add_line(store, page.number, _outline(page, drawn.polygon, baseline), who=who).number


def _add_below(store: CorrectionStore, page: StoredPage, line: StoredLine, who: str) -> int:
    """A line of the same shape below another one, as far below as that is high."""
    _, top, _, bottom = line.outline.box
    down = min(bottom - top, max(page.height - bottom - 1, 0))
    polygon = [(x, y + down) for x, y in line.outline.polygon or corners(line.outline.box)]
    outline = _outline(page, polygon, [(x, y + down) for x, y in line.outline.baseline])
    return add_line(store, page.number, outline, who=who).number


def _remove(store: CorrectionStore, lines: Sequence[StoredLine], who: str) -> int | None:
    gone = {line.number for line in lines}
    rest = [line for line in store.lines(lines[0].page) if line.number not in gone]
    remove_lines(store, lines, who=who)
    following = (line for line in rest if line.place > lines[0].place)
    return next(following, rest[-1]).number


def _cut(store: CorrectionStore, page: StoredPage, start: Point, end: Point, who: str) -> int:
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    lines = store.lines(page.number)
    around = [line for line in lines if contains(line.outline.polygon or corners(line.outline.box), x, y)]
    line = line_at(around or lines, x, y)
    if line is None:
        hint = "draw the cut across a line"
        raise DataError("there is no line where the cut is", code="cut-outside-line", hint=hint)
    return cut_line(store, line, start, end, who=who)[0].number


def _move(store: CorrectionStore, line: StoredLine, step: int, who: str) -> int:
    lines = [one for one in store.lines(line.page) if one.number != line.number]
    at = sum((one.place, one.number) < (line.place, line.number) for one in lines) + step
    before = lines[at] if 0 <= at < len(lines) else None
    return line.number if at < 0 else move_line(store, line, before, who=who).number


def _next(store: CorrectionStore, line: StoredLine, except_for: StoredLine) -> StoredLine | None:
    lines = [one for one in store.lines(line.page) if one.number != except_for.number]
    at = next(place for place, one in enumerate(lines) if one.number == line.number)
    return lines[at + 1] if at + 1 < len(lines) else None
