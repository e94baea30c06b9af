"""The pages, regions, lines and tables of a workbench as they are stored; lines are cut and joined.

A table is the regions with its id.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from dsocr.document import CellPlace, Outline, Point, Table, TableCell, bounds, bounds_of_boxes
from dsocr.errors import DataError
from dsocr.outlines import clip_outline
from dsocr.registers import LETTERS
from dsocr.registers.edits import nodes_of, whole_outline
from dsocr.text import is_right_to_left

_SNAP = 0.15
"""Share of a text's length within which a cut moves to the nearest space."""
MAX_NODES = 40_000
"""Crossings of a table that can be shown and changed; those of a larger one stay as their file has them."""


def center(outline: Outline) -> tuple[float, float]:
    """The middle of an outline's box."""
    left, top, right, bottom = outline.box
    return (left + right) / 2, (top + bottom) / 2


def area(outline: Outline) -> int:
    """The pixels of an outline's box."""
    left, top, right, bottom = outline.box
    return (right - left) * (bottom - top)


def cut_outline(outline: Outline, start: Point, end: Point) -> tuple[Outline, Outline, float]:
    """Cut an outline along the straight line through two points.

    Returns the left part and the right one, or the upper and the lower if the cut runs along the line of text, and the
    share of the text's width in the first (1 for the upper part). Raises DataError if one part would be empty.
    """
    (x1, y1), (x2, y2) = start, end
    is_steep = abs(y2 - y1) >= abs(x2 - x1)
    if (is_steep and y2 < y1) or (not is_steep and x2 > x1):
        (x1, y1), (x2, y2) = (x2, y2), (x1, y1)

    def side(point: Point) -> float:
        return (x2 - x1) * (point[1] - y1) - (y2 - y1) * (point[0] - x1)

    left, top, right, bottom = outline.box
    first, second = clip_outline(outline, side), clip_outline(outline, lambda point: -side(point))
    if first is None or second is None:
        hint = "draw the cut across the line of text"
        raise DataError("the cut does not divide the line", code="edit-invalid", hint=hint)
    share = 1.0
    if is_steep:
        at = x1 if y1 == y2 else x1 + ((top + bottom) / 2 - y1) * (x2 - x1) / (y2 - y1)
        share = min(max((at - left) / max(1, right - left), 0), 1)
    return first, second, share


def cut_text(text: str, share: float) -> tuple[str, str]:
    """Cut a text at a share of its length, or at a space nearby."""
    at = round(share * len(text))
    spaces = [place for place, letter in enumerate(text) if letter.isspace()]
    nearest = min(spaces, key=lambda place: abs(place - at), default=at)
    if 0 < share < 1 and abs(nearest - at) <= _SNAP * len(text):
        at = nearest
    return text[:at].rstrip(), text[at:].lstrip()


def _turns(points: Iterable[Point]) -> list[Point]:
    """Points of half a convex hull, without the last (Andrew 1979)."""
    kept: list[Point] = []
    for x, y in points:
        while len(kept) > 1 and (kept[-1][0] - kept[-2][0]) * (y - kept[-2][1]) <= (kept[-1][1] - kept[-2][1]) * (
            x - kept[-2][0]
        ):
            kept.pop()
        kept.append((x, y))
    return kept[:-1]


def outline_around(outlines: Sequence[Outline]) -> Outline:
    """One outline around several; its baseline follows theirs from left to right, each from where the last ended."""
    points = [point for outline in outlines for point in outline.border]
    hull = (*_turns(sorted(set(points))), *_turns(sorted(set(points), reverse=True)))
    hull = hull if len(hull) > 2 else ()  # the points are on one line
    baseline: list[Point] = []
    for following in sorted(sorted(outline.baseline) for outline in outlines if outline.baseline):
        baseline += [point for point in following if not baseline or point[0] > baseline[-1][0]]
    return Outline(bounds_of_boxes(outline.box for outline in outlines), hull, tuple(baseline))


def within(page: "StoredPage", points: Iterable[tuple[float, float]]) -> tuple[Point, ...]:
    """Points as whole pixels of a page."""
    return tuple((min(max(round(x), 0), page.width - 1), min(max(round(y), 0), page.height - 1)) for x, y in points)


def checked_outline(
    page: "StoredPage", polygon: Iterable[tuple[float, float]], baseline: Iterable[tuple[float, float]] = ()
) -> Outline:
    """The outline of points on a page. Raises DataError if the polygon has no area."""
    corners, line = within(page, polygon), within(page, baseline)
    left, top, right, bottom = bounds(corners) if corners else (0, 0, 0, 0)
    if len(set(corners)) < 3 or min(right - left, bottom - top) < 2:
        raise DataError("the outline has no area", code="edit-invalid", hint="draw at least three corners")
    return Outline.of_polygon(corners, line if len(set(line)) >= 2 else ())


class State(StrEnum):
    """Progress of a line: not read, read by a model (or with the source's text), accepted or found unreadable."""

    UNREAD = "unread"
    READ = "read"
    ACCEPTED = "accepted"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A page image. `name` is its path in the source without suffix, `markup` the path of its ALTO or PAGE file.

    `elements` and `regions` are the lines and regions of that file that were imported, counted from 0.
    """

    number: int
    name: str
    image: Path
    width: int
    height: int
    writer: str | None = None
    document: str | None = None
    markup: str | None = None
    elements: tuple[int, ...] = ()
    regions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRegion:
    """A region of a page. `kind` is its type (PAGE) or label (ALTO), empty if none; `element` is that of the file.

    `name` is its id in the file. A region that is a cell has the id of its table in `table` and its place in `cell`.
    """

    number: int
    page: int
    outline: Outline
    kind: str = ""
    name: str = ""
    element: int | None = None
    version: int = 0
    table: str = ""
    cell: CellPlace | None = None


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line of a page; `place` orders the lines of a page. Every change gives it another `version`.

    `text` is the current text, `machine` what a model read (None if none did), `characters` the probability of each of
    its characters and `confidence` the share of it that is estimated to be right. `elements` are the lines of the
    page's ALTO or PAGE file that it stands for, counted from 0: one, several where lines were joined, none where a
    line was split off. `author` and `reviewed_at` (ISO 8601) say who accepted it or found it unreadable and when,
    `checked_by` who looked at that again. `note` is a remark, not part of the text, `region` its region's number.
    """

    number: int
    page: int
    place: float
    outline: Outline
    text: str = ""
    state: State = State.UNREAD
    machine: str | None = None
    characters: tuple[float, ...] = field(default=(), repr=False)
    confidence: float | None = None
    version: int = 0
    elements: tuple[int, ...] = ()
    author: str = ""
    reviewed_at: str = ""
    checked_by: str = ""
    note: str = ""
    region: int | None = None

    @property
    def is_reviewed(self) -> bool:
        """True if somebody accepted it or marked it unreadable."""
        return self.state in {State.ACCEPTED, State.UNREADABLE}

    @property
    def is_reading(self) -> bool:
        """True if nobody wrote or reviewed its text: a model read it, perhaps in another outline, or it has none."""
        return self.state is State.UNREAD or (self.state is State.READ and self.text == self.machine)

    def was_only_read_since(self, before: "StoredLine") -> bool:
        """True if it differs from its former state in a model's reading only."""
        reading = replace(before, text=self.text, state=self.state, machine=self.machine, version=self.version)
        reading = replace(reading, characters=self.characters, confidence=self.confidence)
        return self.is_reading and before.is_reading and reading == self


def split_line(line: StoredLine, at: int) -> tuple[StoredLine, StoredLine]:
    """Two lines, the text split before the character `at` and the outline at that share of its width.

    The first part of a text that is written from right to left is the right one.
    The second has no number yet. Raises DataError if one part would be empty.
    """
    first, second = line.text[:at].rstrip(), line.text[at:].lstrip()
    left, top, right, bottom = line.outline.box
    share, from_right = at / max(1, len(line.text)), is_right_to_left(line.text)
    cut = left + round((right - left) * (1 - share if from_right else share))
    if not first or not second or not left < cut < right:
        hint = "put the cursor where the second line begins"
        raise DataError("a line can only be split inside its text", code="edit-invalid", hint=hint)
    *halves, _ = cut_outline(line.outline, (cut, top), (cut, bottom))
    if from_right:
        halves.reverse()
    return redrawn(line, first, halves[0]), replace(redrawn(line, second, halves[1]), number=0, elements=())


def join_lines(first: StoredLine, *others: StoredLine) -> StoredLine:
    """One line: the texts with spaces between them, and an outline around all."""
    lines = (first, *others)
    text = " ".join(filter(None, (line.text for line in lines)))
    joined = redrawn(first, text, outline_around([line.outline for line in lines]), *others)
    return replace(joined, elements=tuple(element for line in lines for element in line.elements))


def line_at(lines: Sequence[StoredLine], x: float, y: float) -> StoredLine | None:
    """The line at a point of its page; the smallest if several overlap there."""
    boxes = ((line, line.outline.box) for line in lines)
    hit = [line for line, (left, top, right, bottom) in boxes if left <= x < right and top <= y < bottom]
    return min(hit, key=lambda line: area(line.outline), default=None)


def redrawn(line: StoredLine, text: str, outline: Outline, *joined: StoredLine) -> StoredLine:
    """The line in another outline, to be read again; the text of `joined` lines is part of it now."""
    state = State.UNREAD if not text or all(part.is_reading for part in (line, *joined)) else State.READ
    unread = replace(line, text=text, outline=outline, state=state, machine=None, characters=())
    return replace(unread, author="", reviewed_at="", checked_by="")


def tables_of(regions: Iterable[StoredRegion], name: Callable[[StoredRegion], str] | None = None) -> list[Table]:
    """The tables of a page by their first cells; a cell's id is the number of its region, or what `name` returns."""
    by_table: dict[str, list[TableCell]] = {}
    for region in regions:
        if region.cell:
            id_ = name(region) if name else str(region.number)
            by_table.setdefault(region.table, []).append(TableCell(id_, region.outline, region.cell))
    tables = []
    for id_, cells in by_table.items():
        table = Table(id_, None, tuple(sorted(cells, key=lambda cell: (cell.place.row, cell.place.column))))
        tables.append(replace(table, outline=whole_outline(nodes_of(table))))
    return tables


def version_of(table: str, regions: Iterable[StoredRegion]) -> int | None:
    """The highest version of a table's cells, which changes with each of them; None if there is no such table."""
    return max((region.version for region in regions if region.cell and region.table == table), default=None)


def is_editable(cells: Sequence[TableCell]) -> bool:
    """Whether a table of a file can be shown as a grid: all its cells have outlines, and it is not too large."""
    rows, columns = Table("", None, tuple(cells)).size
    return all(cell.outline for cell in cells) and (rows + 1) * (columns + 1) <= MAX_NODES


def middle_of(line: StoredLine) -> tuple[float, float]:
    """The middle of a line's letters; its box's without a baseline."""
    _, top, _, bottom = line.outline.box
    across, down = center(line.outline)
    if heights := [y for _, y in line.outline.baseline]:
        down = max(top, sum(heights) / len(heights) - LETTERS * (bottom - top))
    return across, down


def region_id(region: StoredRegion) -> str:
    """The id of a region in a file: that of the file it came from, else one by its number."""
    return region.name or f"region_{region.number}"
