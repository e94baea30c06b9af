"""Checks whether a transcription can belong to its image: as many characters as the image is wide for.

Swapped and shifted pairs look right one by one. What tells them is that a hand writes about the same number of
characters on a piece of line as wide as the line is high.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsocr.data.check.findings import Checked, Findings
from dsocr.text import is_blank


def middle_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the standard deviation that the median absolute deviation stands for among normal values."""
    middle = statistics.median(values)
    return middle, 1.4826 * statistics.median(abs(value - middle) for value in values)


ENOUGH = 20
"""Samples from which a hand's usual density is known; those of rarer hands are judged by the whole dataset's."""
LEAST_FACTOR = 3.0
"""Denser or sparser than usual by less than this is a matter of taste."""
SPREADS = 6.0
"""A pair is out where it lies so many standard deviations (from the median absolute deviation) off the median."""
LEAST_CHARACTERS = 5
"""A word that is a few letters longer or shorter than it should be proves nothing."""
ENOUGH_TOGETHER = 50
LEAST_CORRELATION = 0.2


def check_pairs(checked: Sequence[Checked], findings: Findings) -> None:
    """Transcriptions far too long or too short for their image, and splits where lengths and widths do not agree."""
    lines = [item for item in checked if item.size and not is_blank(item.sample.text) and "\n" not in item.sample.text]
    hands: dict[str | None, list[Checked]] = defaultdict(list)
    for item in lines:
        hands[item.sample.writer].append(item)
    known = {writer: own for writer, own in hands.items() if writer is not None and len(own) >= ENOUGH}
    for own in known.values():
        _check_densities(own, own, findings)
    if len(lines) >= ENOUGH:
        _check_densities([item for item in lines if item.sample.writer not in known], lines, findings)
    splits: dict[str, list[Checked]] = defaultdict(list)
    for item in lines:
        splits[item.sample.split].append(item)
    for own in splits.values():
        _check_agreement(own, findings)


def _check_densities(judged: Sequence[Checked], usual: Sequence[Checked], findings: Findings) -> None:
    """The samples of `judged` whose density is far from what is usual among `usual`."""
    densities = [_length(item) - _width(item) for item in usual]
    middle, spread = middle_and_spread(densities)
    limit = max(math.log(LEAST_FACTOR), SPREADS * spread)
    for item in judged:
        expected = math.exp(middle + _width(item))
        written = len(item.sample.text)
        off = math.log(written / expected)
        if abs(off) > limit and abs(written - expected) > LEAST_CHARACTERS:
            code, than = ("text-too-long", "long") if off > 0 else ("text-too-short", "short")
            message = f"the transcription is far too {than} for its image"
            findings.add(code, "warning", message, item, f"{written} characters where about {expected:.0f} would fit")


def _check_agreement(lines: Sequence[Checked], findings: Findings) -> None:
    """Whether longer texts have wider images in a split, where lengths and widths vary enough to tell."""
    lengths, widths = [_length(item) for item in lines], [_width(item) for item in lines]
    if len(lines) < ENOUGH_TOGETHER or min(statistics.stdev(lengths), statistics.stdev(widths)) < 0.15:
        return
    correlation = statistics.correlation(lengths, widths)
    shifted = max(statistics.correlation(lengths[1:], widths[:-1]), statistics.correlation(lengths[:-1], widths[1:]))
    # Three standard errors of the difference of two correlations near zero.
    margin = max(0.2, 3 * math.sqrt(2 / len(lines)))
    if correlation < LEAST_CORRELATION or shifted - correlation > margin:
        message = "longer texts do not have wider images: the pairs may be shifted or shuffled"
        detail = f"correlation {correlation:.2f}, and {shifted:.2f} with the text of the line before or after"
        findings.add("pairs-disagree", "warning", message, lines[0], detail)


def _length(item: Checked) -> float:
    return math.log(len(item.sample.text))


def _width(item: Checked) -> float:
    width, height = item.size or (1, 1)
    return math.log(width / height)


LEAST_LINES = 5
"""Lines of a page from which its own density is known."""
ENOUGH_NEIGHBOURS = 20
"""Lines from which the spread of densities is known."""
LEAST_SPREAD = 0.05
SHORTEST_NEIGHBOUR = 2
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
    if len(offs) < ENOUGH_NEIGHBOURS:
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
        if len(item.sample.text.strip()) >= SHORTEST_NEIGHBOUR and "\n" not in item.sample.text
        if (width := _text_width(item)) is not None
    ]
    if len(lines) < LEAST_LINES:
        return []
    density = statistics.median(line.length - line.width for line in lines)
    return [_Line(line.item, line.place, line.length - density, line.width) for line in lines]


def _text_width(item: Checked) -> float | None:
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
