"""What a workbench holds: pages, lines and what has become of them. Knows nothing of files or windows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from dsocr.data.sources.layout import Box, Outline, Point
from dsocr.errors import DataError


class State(StrEnum):
    """What has become of a line: nobody read it, a model did, somebody accepted it, or found it unreadable."""

    UNREAD = "unread"
    READ = "read"
    ACCEPTED = "accepted"
    UNREADABLE = "unreadable"


SETTLED = frozenset({State.ACCEPTED, State.UNREADABLE})
"""The states that somebody decided."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page image; `name` is its path in the source, without suffix."""

    number: int
    name: str
    image: Path
    width: int
    height: int
    writer: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page; `place` orders the lines of a page.

    `machine` is what a model read, None where none read just this line, `characters` how likely each of its characters
    is right, `confidence` the share of it that is; `text` is what stands there. Every change gives another `version`.
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

    @property
    def is_settled(self) -> bool:
        """True where somebody decided on it."""
        return self.state in SETTLED


def parted(line: Line, at: int) -> tuple[Line, Line]:
    """A line as two, its text parted before the character `at`, its outline where that share of its width is.

    Raises DataError where one part would hold nothing. The second has no number yet.
    """
    first, second = line.text[:at].rstrip(), line.text[at:].lstrip()
    left, top, right, bottom = line.outline.box
    cut = left + round((right - left) * at / max(1, len(line.text)))
    if not first or not second or not left < cut < right:
        raise DataError("a line is parted at a place inside its text", hint="put the cursor where the second begins")
    halves = [_part(line.outline, (left, top, cut, bottom)), _part(line.outline, (cut, top, right, bottom))]
    return (
        _altered(line, first, halves[0]),
        replace(_altered(line, second, halves[1]), number=0),
    )


def joined(first: Line, second: Line) -> Line:
    """Two lines as one: texts with a space between, the outline around both."""
    text = " ".join(filter(None, (first.text, second.text)))
    return _altered(first, text, _around(first.outline, second.outline))


def line_at(lines: Sequence[Line], x: float, y: float) -> Line | None:
    """The line that holds a point of its page, the smallest where several do."""
    hit = [line for line in lines if _holds(line.outline.box, x, y)]
    return min(hit, key=lambda line: _area(line.outline.box), default=None)


def _altered(line: Line, text: str, outline: Outline) -> Line:
    """The line at another place: what a model said of the old one says nothing of it."""
    return replace(line, text=text, outline=outline, state=State.READ, machine=None, characters=())


def _part(outline: Outline, box: Box) -> Outline:
    left, _, right, _ = box
    polygon = _cut(outline.polygon, left, right) if outline.polygon else ()
    baseline = _baseline_between(outline.baseline, left, right)
    return Outline(box, polygon if len(polygon) >= 3 else (), baseline)


def _cut(polygon: Sequence[Point], left: int, right: int) -> tuple[Point, ...]:
    """The polygon between two columns: Sutherland and Hodgman's clipping at each of the two (1974)."""
    kept = _half(list(polygon), left, keep_right=True)
    return tuple(_half(kept, right, keep_right=False))


def _half(polygon: list[Point], column: int, *, keep_right: bool) -> list[Point]:
    kept: list[Point] = []
    for (x1, y1), (x2, y2) in zip(polygon, [*polygon[1:], *polygon[:1]], strict=True):
        inside, next_inside = (x1 >= column, x2 >= column) if keep_right else (x1 <= column, x2 <= column)
        if inside:
            kept.append((x1, y1))
        if inside != next_inside:
            kept.append((column, round(y1 + (y2 - y1) * (column - x1) / (x2 - x1))))
    return kept


def _baseline_between(baseline: Sequence[Point], left: int, right: int) -> tuple[Point, ...]:
    if len(baseline) < 2:
        return ()
    points = [(left, _height_at(baseline, left)), *(point for point in baseline if left < point[0] < right)]
    return (*points, (right, _height_at(baseline, right)))


def _height_at(baseline: Sequence[Point], x: int) -> int:
    """How high a baseline runs at a column; beyond its ends it runs level."""
    ordered = sorted(baseline)
    for (x1, y1), (x2, y2) in pairwise(ordered):
        if x1 <= x <= x2:
            return y1 if x1 == x2 else round(y1 + (y2 - y1) * (x - x1) / (x2 - x1))
    return ordered[0][1] if x < ordered[0][0] else ordered[-1][1]


def _around(first: Outline, second: Outline) -> Outline:
    boxes = list(zip(first.box, second.box, strict=True))
    box = (min(boxes[0]), min(boxes[1]), max(boxes[2]), max(boxes[3]))
    points = [*(first.polygon or _corners(first.box)), *(second.polygon or _corners(second.box))]
    return Outline(box, _hull(points), tuple(sorted({*first.baseline, *second.baseline})))


def _hull(points: Sequence[Point]) -> tuple[Point, ...]:
    """The convex hull, by Andrew's monotone chain (1979)."""
    ordered = sorted(set(points))

    def chain(run: Sequence[Point]) -> list[Point]:
        kept: list[Point] = []
        for x, y in run:
            while len(kept) > 1 and _turn(kept[-2], kept[-1], (x, y)) <= 0:
                kept.pop()
            kept.append((x, y))
        return kept[:-1]

    return tuple(chain(ordered) + chain(ordered[::-1]))


def _turn(a: Point, b: Point, c: Point) -> int:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _corners(box: Box) -> tuple[Point, ...]:
    left, top, right, bottom = box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _holds(box: Box, x: float, y: float) -> bool:
    return box[0] <= x < box[2] and box[1] <= y < box[3]


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])
