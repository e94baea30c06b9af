"""Which lines share a sheet: lines of one hand, one after another, until the sheet is full.

Knows nothing about models or pixels: how much room a line takes is told, and drawing is `model/sheets.py`.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Generic, TypeVar

from dsocr.samples import Sample

T = TypeVar("T")

_DRAWS = 8
"""How often lines are shuffled, at most, to need no more sheets than the first epoch."""


@dataclass(frozen=True, slots=True)
class SheetLine(Generic[T]):
    """A line that wants a place: `height` is the room it takes, `tokens` are those of its text.

    Lines share a sheet only with others of their `hand`; one without stands alone.
    """

    of: T
    hand: str | None
    height: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class SheetLimits:
    """When a sheet is full; `lines` and `tokens` are without limit where they are None."""

    height: int
    lines: int | None = None
    tokens: int | None = None


def hand_of(sample: Sample) -> str | None:
    """Whose lines may share a sheet with this one: those of its writer, else of its page, else nobody's."""
    if sample.writer:
        return f"writer {sample.writer}"
    return f"page {sample.page}" if sample.page else None


def folder_of(identifier: str) -> str:
    """Whose an image is taken to be where nobody says: all of one folder are of one hand."""
    return PurePosixPath(identifier).parent.as_posix()


def fill_sheets(lines: Iterable[SheetLine[T]], limits: SheetLimits) -> Iterator[list[SheetLine[T]]]:
    """The lines in their order, on as many sheets as are needed; a line over a limit stands alone."""
    sheet: list[SheetLine[T]] = []
    height = tokens = 0
    for line in lines:
        if sheet and not (
            line.hand is not None
            and line.hand == sheet[0].hand
            and height + line.height <= limits.height
            and (limits.lines is None or len(sheet) < limits.lines)
            and (limits.tokens is None or tokens + line.tokens <= limits.tokens)
        ):
            yield sheet
            sheet, height, tokens = [], 0, 0
        sheet.append(line)
        height, tokens = height + line.height, tokens + line.tokens
    if sheet:
        yield sheet


class EpochSheets(Generic[T]):
    """The sheets of each epoch: every line once, shuffled anew among those of its hand; a function of (seed, epoch).

    Of all lines the share `alone` has a sheet to itself, drawn anew as well. All epochs have equally many sheets, so
    that an epoch is as many steps as the next.
    """

    def __init__(self, lines: Sequence[SheetLine[T]], limits: SheetLimits, *, seed: int, alone: float = 0.0) -> None:
        self._lines = sorted(lines, key=lambda line: (line.hand is None, line.hand or ""))
        self._limits = limits
        self._alone = round(alone * len(lines))
        self._seed = seed
        self._first = max((self._drawn(0, draw) for draw in range(_DRAWS)), key=len)

    def __len__(self) -> int:
        return len(self._first)

    def of_epoch(self, epoch: int) -> list[list[T]]:
        """What lies on each sheet, top to bottom."""
        draws = (self._drawn(epoch, draw) for draw in range(_DRAWS))
        # Hardly ever does every draw need more sheets than the most wasteful of the first ones.
        sheets = next((sheets for sheets in draws if len(sheets) <= len(self)), self._first)
        return [[line.of for line in sheet] for sheet in _parted(sheets, len(self))]

    def _drawn(self, epoch: int, draw: int) -> list[list[SheetLine[T]]]:
        order = random.Random(f"{self._seed} {epoch} {draw}")  # noqa: S311
        # Equal hands stay beside each other, because sorting is stable.
        shuffled = order.sample(self._lines, len(self._lines))
        alone, together = shuffled[: self._alone], shuffled[self._alone :]
        together.sort(key=lambda line: (line.hand is None, line.hand or ""))
        return [*fill_sheets(together, self._limits), *([line] for line in alone)]


def _parted(sheets: list[list[SheetLine[T]]], count: int) -> list[list[SheetLine[T]]]:
    """The sheets made `count` by parting the one with the most lines, again and again."""
    sheets = list(sheets)
    while len(sheets) < count:
        longest = max(range(len(sheets)), key=lambda place: len(sheets[place]))
        lines = sheets[longest]
        sheets[longest : longest + 1] = [lines[: len(lines) // 2], lines[len(lines) // 2 :]]
    return sheets
