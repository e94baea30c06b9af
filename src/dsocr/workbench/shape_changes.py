"""Changes of the shapes of a page: lines, regions and their order, each kept in the history and undone as a whole."""

from collections.abc import Sequence
from dataclasses import replace

from dsocr.document import Outline, Point
from dsocr.errors import DataError
from dsocr.workbench.outline_editing import center, contains, corners, cut_outline, cut_text, outline_around
from dsocr.workbench.store import CorrectionStore, State, StoredLine, StoredRegion, redrawn

_OVERLAP = 0.5
"""Share of a detected line's height within which a reviewed line's middle makes it the same line."""


def reshape(store: CorrectionStore, outlines: Sequence[tuple[StoredLine, Outline]], *, who: str) -> list[StoredLine]:
    """Give lines other outlines; texts stay, and what is reviewed stays so. Raises StaleError."""

    def moved(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        new = [outline for _, outline in outlines]
        return [_with_outline(line, outline) for line, outline in zip(old, new, strict=True)]

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


def remove_lines(store: CorrectionStore, lines: Sequence[StoredLine], *, who: str) -> None:
    """Remove lines with their texts. Raises StaleError, or DataError if no line would be left on the page."""
    if {line.number for page in {line.page for line in lines} for line in store.lines(page)} <= {
        line.number for line in lines
    }:
        raise _no_line_left()
    store.change("removed", who, lines, lambda *_: [])


def merge_lines(store: CorrectionStore, lines: Sequence[StoredLine], *, who: str) -> StoredLine:
    """Make one line of several, their texts in reading order. Raises StaleError, or DataError for fewer than two."""
    if len(lines) < 2 or len({line.page for line in lines}) > 1:
        hint = "choose them with Shift and a click"
        raise DataError("two lines or more of a page can be merged", code="too-few-lines", hint=hint)

    def merged(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        text = " ".join(filter(None, (line.text for line in old)))
        elements = tuple(element for line in old for element in line.elements)
        whole = redrawn(old[0], text, outline_around([line.outline for line in old]))
        return [replace(whole, elements=elements)]

    ordered = sorted(lines, key=lambda line: (line.place, line.number))
    return store.change("joined", who, ordered, merged)[0][0]


def cut_line(
    store: CorrectionStore, line: StoredLine, start: Point, end: Point, *, who: str
) -> tuple[StoredLine, StoredLine]:
    """Cut a line in two along a straight line, the text at that share of its width, or at a space nearby.

    Raises StaleError, or DataError if one part would be empty.
    """

    def halves(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        first, second, share = cut_outline(old[0].outline, start, end)
        texts = cut_text(old[0].text, share)
        place = _place_after(store, old[0])
        right = replace(redrawn(old[0], texts[1], second), number=0, elements=(), place=place)
        return [_unread_if_empty(redrawn(old[0], texts[0], first)), _unread_if_empty(right)]

    first, second = store.change("split", who, [line], halves)[0]
    return first, second


def move_line(store: CorrectionStore, line: StoredLine, before: StoredLine | None, *, who: str) -> StoredLine:
    """Move a line in the reading order, before another one of its page or to the end. Raises StaleError."""
    others = [one for one in store.lines(line.page) if one.number != line.number]
    at = next((place for place, one in enumerate(others) if before and one.number == before.number), len(others))
    low = others[at - 1].place if at else others[0].place - 2 if others else 0.0
    high = others[at].place if at < len(others) else low + 2
    place = (low + high) / 2
    if low < place < high:
        return store.change("reordered", who, [line], lambda old, _: [replace(old[0], place=place)])[0][0]
    ordered = [*others[:at], line, *others[at:]]  # no number is left between the two
    numbered = store.change(
        "reordered", who, ordered, lambda old, _: [replace(one, place=place) for place, one in enumerate(old)]
    )
    return numbered[0][at]


def assign(store: CorrectionStore, lines: Sequence[StoredLine], region: int | None, *, who: str) -> list[StoredLine]:
    """Put lines into a region, or into none. Raises StaleError."""
    return store.change("assigned", who, lines, lambda old, _: [replace(line, region=region) for line in old])[0]


def add_region(store: CorrectionStore, page: int, outline: Outline, kind: str, *, who: str) -> StoredRegion:
    """Add a region around the lines whose middle is in it, unless they are in a smaller region."""
    regions = {region.number: region for region in store.regions(page)}
    lines = [
        line
        for line in store.lines(page)
        if contains(outline.polygon, *center(line.outline))
        and (line.region not in regions or _area(regions[line.region].outline) > _area(outline))
    ]
    new = StoredRegion(0, page, outline, kind)
    _, (added,) = store.change(
        "region",
        who,
        lines,
        lambda old, new: [replace(line, region=new[0].number) for line in old],
        (),
        lambda _: [new],
    )
    return added


def reshape_region(store: CorrectionStore, region: StoredRegion, outline: Outline, *, who: str) -> StoredRegion:
    """Give a region another outline; its lines stay in it. Raises StaleError."""
    return _change_region(store, region, replace(region, outline=outline), who)


def retype_region(store: CorrectionStore, region: StoredRegion, kind: str, *, who: str) -> StoredRegion:
    """Give a region another type. Raises StaleError."""
    return _change_region(store, region, replace(region, kind=kind), who)


def remove_region(store: CorrectionStore, region: StoredRegion, *, who: str) -> None:
    """Remove a region; its lines are in none then. Raises StaleError."""
    lines = [line for line in store.lines(region.page) if line.region == region.number]
    store.change(
        *("region", who, lines, lambda old, _: [replace(line, region=None) for line in old], [region], lambda _: [])
    )


def replace_unreviewed(store: CorrectionStore, page: int, found: Sequence[Outline], *, who: str) -> tuple[int, int]:
    """Replace the lines of a page that are not reviewed by found ones; returns how many were removed and added.

    Found lines that a reviewed one already covers are left out. The order is that of the found lines, with each
    reviewed line before the first found one that is lower.
    """
    lines = store.lines(page)
    kept = [line for line in lines if line.is_reviewed]
    new = [outline for outline in found if not any(_covers(line.outline, outline) for line in kept)]
    if not kept and not new:
        raise _no_line_left()
    regions = store.regions(page)

    def laid_out(old: Sequence[StoredLine], _: object) -> list[StoredLine]:
        drawn = [StoredLine(0, page, 0, outline, region=region_at(regions, outline)) for outline in new]
        for line in (one for one in old if one.is_reviewed):
            height = center(line.outline)[1]
            at = next((place for place, one in enumerate(drawn) if center(one.outline)[1] > height), len(drawn))
            drawn.insert(at, line)
        return [replace(line, place=place) for place, line in enumerate(drawn)]

    store.change("found", who, lines, laid_out)
    return len(lines) - len(kept), len(new)


def region_at(regions: Sequence[StoredRegion], outline: Outline) -> int | None:
    """The number of the smallest region around the middle of an outline; None if there is none."""
    around = [
        region
        for region in regions
        if contains(region.outline.polygon or corners(region.outline.box), *center(outline))
    ]
    smallest = min(around, key=lambda region: _area(region.outline), default=None)
    return smallest.number if smallest else None


def _no_line_left() -> DataError:
    return DataError("no line would be left on the page", code="last-line", hint="draw another line first")


def _change_region(store: CorrectionStore, region: StoredRegion, new: StoredRegion, who: str) -> StoredRegion:
    return store.change("region", who, [], lambda *_: [], [region], lambda _: [new])[1][0]


def _with_outline(line: StoredLine, outline: Outline) -> StoredLine:
    new = replace(line, outline=outline)
    return new if line.is_reviewed else _unread_if_empty(replace(redrawn(new, line.text, outline), note=line.note))


def _unread_if_empty(line: StoredLine) -> StoredLine:
    return line if line.text else replace(line, state=State.UNREAD)


def _place_after(store: CorrectionStore, line: StoredLine) -> float:
    after = store.following(line)
    return line.place + 1 if after is None else (line.place + after.place) / 2


def _covers(line: Outline, found: Outline) -> bool:
    (left, top, right, bottom), (x1, y1, x2, y2) = line.box, found.box
    apart = abs((top + bottom) / 2 - (y1 + y2) / 2)
    return apart < _OVERLAP * min(bottom - top, y2 - y1) and min(right, x2) - max(left, x1) > 0.5 * min(
        right - left, x2 - x1
    )


def _area(outline: Outline) -> int:
    left, top, right, bottom = outline.box
    return (right - left) * (bottom - top)
