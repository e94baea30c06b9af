"""Which lines a report shows with their pictures, and why each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsocr.evaluation.scores import FAILURES, LineScore

_SEED = 17
_MOST = {"sample": 30, "worst": 30, "better": 20, "worse": 20, "failures": 30}


@dataclass(frozen=True, slots=True)
class ReadLine:
    """One line as each reading has it, in the order of the readings; `number` counts the lines of the split from 1."""

    number: int
    scores: tuple[LineScore, ...]

    @property
    def last(self) -> LineScore:
        """The line as the reading that the report is about has it."""
        return self.scores[-1]

    @property
    def saved(self) -> int:
        """Character errors that the first reading has and the last one has not."""
        return self.scores[0].cer.errors - self.last.cer.errors

    @property
    def failures(self) -> list[str]:
        """How the last reading failed as a whole; none for most lines."""
        return [field for field in FAILURES if getattr(self.last, field)]


@dataclass(frozen=True, slots=True)
class Chapter:
    """Lines that are shown together; `told` says how they were chosen."""

    key: str
    title: str
    told: str
    lines: Sequence[ReadLine]


def read_lines(readings: Mapping[str, Sequence[LineScore]]) -> list[ReadLine]:
    """The lines of readings of the same split, all in the same order."""
    columns = zip(*readings.values(), strict=True)
    return [ReadLine(number, scores) for number, scores in enumerate(columns, start=1)]


def chapters_of(lines: Sequence[ReadLine], names: Sequence[str]) -> list[Chapter]:
    """The chapters of a report that have lines; `names` are those of the readings. A line may stand in several.

    The sample is the same whenever the number of lines is.
    """
    drawn = np.random.default_rng(_SEED).permutation(len(lines))[: _MOST["sample"]]
    first, last = names[0], names[-1]
    chapters = [
        Chapter(
            "sample",
            "A fair sample",
            f"{_some(len(drawn), lines)}, drawn by chance.",
            [lines[place] for place in sorted(drawn)],
        ),
        _chapter("worst", "Most errors", "those that raise the CER most", lines, lambda line: line.last.cer.errors),
        _chapter("better", f"Read better than by {first}", "most errors saved first", lines, lambda line: line.saved),
        _chapter("worse", f"Read worse than by {first}", "most errors added first", lines, lambda line: -line.saved),
        _chapter(
            "failures",
            "Loops and other failures",
            f"lines that {last} did not read to a proper end, in a proper script, or at all",
            lines,
            lambda line: bool(line.failures) * (line.last.cer.errors + 1),
        ),
    ]
    return [chapter for chapter in chapters if chapter.lines]


def _chapter(key: str, title: str, told: str, lines: Sequence[ReadLine], weight: Callable[[ReadLine], int]) -> Chapter:
    """The lines that weigh most, if they weigh anything."""
    weighty = sorted((line for line in lines if weight(line) > 0), key=lambda line: (-weight(line), line.number))
    shown = weighty[: _MOST[key]]
    return Chapter(key, title, f"{_some(len(shown), weighty)}, {told}.", shown)


def _some(count: int, all_: Sequence[ReadLine]) -> str:
    return f"All {count:,}" if count == len(all_) else f"{count:,} of {len(all_):,}"
