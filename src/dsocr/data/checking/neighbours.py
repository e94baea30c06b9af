"""Checks whether the texts of neighbouring lines stand at each other's images: two swapped, or many shifted by one.

On one page a hand writes the same number of characters on a hundred pixels, within some 7 %. So two neighbours whose
texts fit each other's widths far better than their own are told, and so is a run of lines of which each fits the text
before or after. Lines of like length cannot be told apart this way.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsocr.data.checking.findings import Checked, Findings
from dsocr.data.checking.robust import middle_and_spread

LEAST_LINES = 5
"""Lines of a page from which its own density is known."""
ENOUGH = 20
"""Lines from which the spread of densities is known."""
LEAST_SPREAD = 0.05
LEAST_CHARACTERS = 2
WRONG = 2.5
"""Spreads by which both lines are off where two are swapped, to either side."""
RIGHT = 2.5
"""Spreads within which both are once they are swapped back."""
SHORT = 25
"""Characters; texts shorter than this vary more in their width."""
LEAST_SHIFTED = 4
LEAST_GAIN = 40.0
"""By how much the squares of all spreads of a run must shrink; pages of real handwriting reach 17 by chance."""
FITTING = 1.5
"""Spreads by which the lines of a run may be off the other texts, at the median; lines are 0.7 off their own."""
_MOST = 16.0
"""A square counts at most so much, lest one struck-out line decides for a page."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line with the logarithms of its characters and of its width, the page's usual density taken out."""

    item: Checked
    place: int
    length: float
    width: float

    def off(self, other: "_Line") -> float:
        """How much too long the text of `other` is for this image; 0 where it fits."""
        return other.length - self.width


def check_neighbours(checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module; says nothing where there are too few lines to know what is usual."""
    pages = [page for own in _pages(checked) if (page := _centred(own))]
    offs = [line.off(line) for page in pages for line in page]
    if len(offs) < ENOUGH:
        return
    spread = max(LEAST_SPREAD, middle_and_spread(offs)[1])
    for page in pages:
        shifted = _check_shifts(page, spread, findings)
        _check_swaps([line for line in page if line.place not in shifted], spread, findings)


def _pages(checked: Sequence[Checked]) -> Iterator[list[tuple[int, Checked]]]:
    """The lines of each page in their order; of each writer in each split where pages are not known."""
    pages: dict[tuple[str, ...], list[tuple[int, Checked]]] = defaultdict(list)
    for place, item in enumerate(checked):
        sample = item.sample
        pages[sample.split, sample.writer or "", sample.document or "", sample.page or ""].append((place, item))
    yield from pages.values()


def _centred(page: Sequence[tuple[int, Checked]]) -> list[_Line]:
    """The lines of a page that can be measured; none where they are too few to know the page's density."""
    lines = [
        _Line(item, place, math.log(len(item.sample.text)), width)
        for place, item in page
        if len(item.sample.text.strip()) >= LEAST_CHARACTERS and "\n" not in item.sample.text
        if (width := _width(item)) is not None
    ]
    if len(lines) < LEAST_LINES:
        return []
    density = statistics.median(line.length - line.width for line in lines)
    return [_Line(line.item, line.place, line.length - density, line.width) for line in lines]


def _width(item: Checked) -> float | None:
    """The width of the ink; in line heights where images of several pages may be of several sizes."""
    if item.size is None or item.look is None:
        return None
    return math.log(item.look.ink) - (0.0 if item.sample.page else math.log(item.size[1]))


def _check_swaps(page: Sequence[_Line], spread: float, findings: Findings) -> None:
    told = -1
    for first, second in pairwise(page):
        if second.place == first.place + 1 and first.place != told and _are_swapped(first, second, spread):
            told = second.place
            message = "the texts of two neighbouring lines are probably swapped"
            lengths = f"{len(first.item.sample.text)} and {len(second.item.sample.text)} characters"
            detail = f"and the next line: {lengths} would fit the other way round"
            findings.add("neighbours-swapped", "warning", message, first.item, detail, second.item)


def _are_swapped(first: _Line, second: _Line, spread: float) -> bool:
    # A short text varies more, as a sum of few letters does.
    spread *= max(1.0, math.sqrt(SHORT / min(len(line.item.sample.text) for line in (first, second))))
    now = first.off(first) / spread, second.off(second) / spread
    then = first.off(second) / spread, second.off(first) / spread
    return min(now) < -WRONG and max(now) > WRONG and max(map(abs, then)) < RIGHT


def _check_shifts(page: Sequence[_Line], spread: float, findings: Findings) -> set[int]:
    """The places of the lines in a run that fits the text of the line before, or after, and not its own."""
    told: set[int] = set()
    for which, pairs in (("after", list(pairwise(page))), ("before", [(b, a) for a, b in pairwise(page)])):
        start, end = _shifted_run(pairs, spread)
        run = [line for line, _ in pairs[start:end] if line.place not in told]
        if len(run) < LEAST_SHIFTED:
            continue
        message = "the texts of a run of lines are probably shifted by one"
        detail = f"and {len(run) - 1} lines more: each image fits the text of the line {which}"
        findings.add("lines-shifted", "warning", message, run[0].item, detail)
        told |= {place for line, other in pairs[start:end] for place in (line.place, other.place)}
    return told


def _shifted_run(pairs: Sequence[tuple[_Line, _Line]], spread: float) -> tuple[int, int]:
    """Where the run of images begins and ends that fit the other line's text far better; an empty one if none does."""
    others = [line.off(other) for line, other in pairs]
    # Where most of a page is shifted, its density was taken from wrong pairs, and is better taken from these.
    for density in (0.0, statistics.median(others)):
        then = [(off - density) / spread for off in others]
        gains = [_square(line.off(line) / spread) - _square(off) for (line, _), off in zip(pairs, then, strict=True)]
        start, end, gain = _best_run(gains)
        if gain >= LEAST_GAIN and statistics.median(map(abs, then[start:end])) < FITTING:
            return start, end
    return 0, 0


def _square(spreads: float) -> float:
    return min(_MOST, spreads**2)


def _best_run(gains: Sequence[float]) -> tuple[int, int, float]:
    """Start, end and sum of the run with the largest sum."""
    best, total, start = (0, 0, 0.0), 0.0, 0
    for place, gain in enumerate(gains):
        if total <= 0:
            total, start = 0.0, place
        total += gain
        if total > best[2]:
            best = (start, place + 1, total)
    return best
