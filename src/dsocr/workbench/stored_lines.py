"""The pages, regions and lines of a workbench as they are stored, and what becomes of a line that is cut or joined."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from dsocr.document import Outline
from dsocr.errors import DataError
from dsocr.workbench.outline_editing import area, clip_outline, outline_around


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

    `name` is its id in the file.
    """

    number: int
    page: int
    outline: Outline
    kind: str = ""
    name: str = ""
    element: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class StoredLine:
    """A line of a page; `place` orders the lines of a page. Every change gives it another `version`.

    `text` is the current text, `machine` what a model read (None if none did), `characters` the probability of each of
    its characters and `confidence` the share of it that is estimated to be right. `elements` are the lines of the
    page's ALTO or PAGE file that it stands for, counted from 0: one, several where lines were joined, none where a
    line was split off. `author` and `reviewed_at` (ISO 8601) say who accepted it or found it unreadable and when,
    `checked_by` who looked at that again. `note` is a remark on the line, which is not part of its text, `region`
    the number of its region.
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
        """True if nothing but a model's reading makes it differ from what it was."""
        reading = replace(before, text=self.text, state=self.state, machine=self.machine, version=self.version)
        reading = replace(reading, characters=self.characters, confidence=self.confidence)
        return self.is_reading and before.is_reading and reading == self


def split_line(line: StoredLine, at: int) -> tuple[StoredLine, StoredLine]:
    """Two lines, the text split before the character `at` and the outline at that share of its width.

    The second has no number yet. Raises DataError if one part would be empty.
    """
    first, second = line.text[:at].rstrip(), line.text[at:].lstrip()
    left, top, right, bottom = line.outline.box
    cut = left + round((right - left) * at / max(1, len(line.text)))
    if not first or not second or not left < cut < right:
        hint = "put the cursor where the second line begins"
        raise DataError("a line can only be split inside its text", code="split-outside-text", hint=hint)
    halves = [
        clip_outline(line.outline, (left, top, cut, bottom)),
        clip_outline(line.outline, (cut, top, right, bottom)),
    ]
    return (
        redrawn(line, first, halves[0]),
        replace(redrawn(line, second, halves[1]), number=0, elements=()),
    )


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
    """The line with another outline; what a model read in the old one no longer applies, and is read again.

    `joined` are lines whose text is part of it now.
    """
    state = State.UNREAD if all(one.is_reading for one in (line, *joined)) else State.READ
    unread = replace(line, text=text, outline=outline, state=state, machine=None, characters=())
    return replace(unread, author="", reviewed_at="", checked_by="")
