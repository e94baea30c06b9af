"""Which lines a report shows, why each of them, and how their texts differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from dsocr.document import PackedImage
from dsocr.evaluation.metrics import align
from dsocr.evaluation.scores import FAILURES, LineScore
from dsocr.html import Thumbnails

MOST_PICTURES = 12 * 2**20
"""Bytes of all images together."""
MOST_TEXT = 5 * 2**20
"""CharacterErrors of HTML, roughly, that lines without images may take."""
LONGEST = 1500
"""CharacterErrors of a line that are shown; a loop may write many more."""

_THUMBNAIL = (960, 320)
_MARKUP = 450
"""CharacterErrors of HTML around the texts of a line."""
_SEED = 17
_MOST = {"sample": 30, "worst": 30, "better": 20, "worse": 20, "failures": 30}

Images = Mapping[str, Path | PackedImage]
"""The image of each line, by its id."""


@dataclass(frozen=True, slots=True)
class ReadLine:
    """One line as each reading has it, in the order of the readings; `number` counts the lines of the split from 1."""

    number: int
    scores: tuple[LineScore, ...]

    @property
    def last(self) -> LineScore:
        """The line in the reading that the report is about."""
        return self.scores[-1]

    @property
    def saved(self) -> int:
        """Character errors of the first reading that the last one does not make."""
        return self.scores[0].cer.errors - self.last.cer.errors

    @property
    def failures(self) -> list[str]:
        """How the last reading failed as a whole; empty for most lines."""
        return [field for field in FAILURES if getattr(self.last, field)]


@dataclass(frozen=True, slots=True)
class Chapter:
    """Lines that are shown together; `note` says how they were chosen."""

    key: str
    title: str
    note: str
    lines: Sequence[ReadLine]


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line in a chapter with its image; `repeated` if an earlier chapter shows it already."""

    line: ReadLine
    kinds: str
    image: Markup | str = ""
    repeated: bool = False


def read_lines(readings: Mapping[str, Sequence[LineScore]]) -> list[ReadLine]:
    """Pair the lines of readings of the same split, all in the same order."""
    columns = zip(*readings.values(), strict=True)
    return [ReadLine(number, scores) for number, scores in enumerate(columns, start=1)]


def chapters_of(lines: Sequence[ReadLine], names: Sequence[str]) -> list[Chapter]:
    """Choose the lines of a report, of which one may be in several chapters; `names` are those of the readings.

    The random sample is the same whenever the number of lines is.
    """
    drawn = np.random.default_rng(_SEED).permutation(len(lines))[: _MOST["sample"]]
    first, last = names[0], names[-1]

    def chapter(key: str, title: str, note: str, weight: Callable[[ReadLine], int]) -> Chapter:
        weighty = sorted((line for line in lines if weight(line) > 0), key=lambda line: (-weight(line), line.number))
        shown = weighty[: _MOST[key]]
        return Chapter(key, title, f"{_share(len(shown), len(weighty))}, {note}.", shown)

    sample = [lines[place] for place in sorted(drawn)]
    chapters = [
        Chapter("sample", "Random sample", f"{_share(len(sample), len(lines))}, drawn at random.", sample),
        chapter("worst", "Most errors", "most errors first", lambda line: line.last.cer.errors),
        chapter("better", f"Better than {first}", "largest improvement first", lambda line: line.saved),
        chapter("worse", f"Worse than {first}", "largest setback first", lambda line: -line.saved),
        chapter(
            "failures",
            "Loops and other failures",
            f"lines that {last} did not finish, read in another script, or did not read at all",
            lambda line: bool(line.failures) * (line.last.cer.errors + 1),
        ),
    ]
    return [chapter for chapter in chapters if chapter.lines]


def _share(count: int, total: int) -> str:
    return f"All {count:,}" if count == total else f"{count:,} of {total:,}"


def illustrate(
    chapters: Sequence[Chapter], images: Images, progress: Callable[[int, int], None] | None = None
) -> list[tuple[Chapter, list[ShownLine]]]:
    """Add its image to each line where it is shown first; `progress` gets the number of lines done and of all."""
    thumbnails = Thumbnails(_THUMBNAIL, MOST_PICTURES)
    kinds: dict[int, list[str]] = {}
    for chapter in chapters:
        for line in chapter.lines:
            kinds.setdefault(line.number, []).append(chapter.key)
    seen: set[int] = set()
    illustrated = []
    for chapter in chapters:
        shown = []
        for line in chapter.lines:
            own, repeated = " ".join(kinds[line.number]), line.number in seen
            shown.append(ShownLine(line, own, "" if repeated else _picture(line, images, thumbnails), repeated))
            seen.add(line.number)
            if progress is not None and not repeated:
                progress(len(seen), len(kinds))
        illustrated.append((chapter, shown))
    return illustrated


_MISSING = Markup('<p class="quiet">its image cannot be opened</p>')


def _picture(line: ReadLine, images: Images, thumbnails: Thumbnails) -> Markup | str:
    path = images.get(line.last.id)
    if path is None:
        return ""
    return Markup(thumbnails.of(path, alt=f"Line {line.number}", missing=_MISSING))  # noqa: S704 made by image_tag


def other_lines(lines: Sequence[ReadLine], chapters: Sequence[Chapter]) -> tuple[list[ReadLine], int]:
    """Return the lines of no chapter, most errors first, as far as there is room, and how many are left."""
    shown = {line.number for chapter in chapters for line in chapter.lines}
    rest = sorted(
        (line for line in lines if line.number not in shown), key=lambda line: (-line.last.cer.errors, line.number)
    )
    taken = 0
    for count, line in enumerate(rest):
        taken += _MARKUP + min(len(line.last.reference), LONGEST)
        taken += sum(_MARKUP // 3 + min(len(score.prediction), LONGEST) for score in line.scores)
        if taken > MOST_TEXT:
            return rest[:count], len(rest) - count
    return rest, 0


def differences(reference: str, prediction: str) -> tuple[list[tuple[str, str]], int]:
    """Split a prediction into align tagged "del" (not read), "ins" (added) or "" (right).

    Cut at `LONGEST` characters; the second value is how many are hidden.
    """
    parts: list[tuple[str, str]] = []
    shown = hidden = 0
    for span in align(reference, prediction):
        room = LONGEST - shown
        length = max(len(span.reference), len(span.prediction))
        written, read = span.reference[:room], span.prediction[:room]
        parts += [("", written)] if span.correct else [("del", written), ("ins", read)]
        shown += min(length, room)
        hidden += max(length - room, 0)
    return [(tag, text) for tag, text in parts if text], hidden
