"""Choose the lines that a report shows, with their images, and mark how their texts differ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from dsocr.document import PackedImage
from dsocr.evaluation.compare import ReadLine
from dsocr.evaluation.metrics import align
from dsocr.html import Thumbnails

MOST_PICTURES = 12 * 2**20
"""Bytes of all images together."""
MOST_TEXT = 5 * 2**20
"""Characters of HTML, roughly, that lines without images may take."""
LONGEST = 1500
"""Characters of a line that are shown; a loop may write many more."""

_THUMBNAIL = (960, 320)
_MARKUP = 450
"""Characters of HTML around the texts of a line."""
_SEED = 17
_SAMPLE = 30
_MOST = 30
_MOST_CHANGED = 20

Images = Mapping[str, Path | PackedImage]
"""The image of each line, by its id."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Lines that are shown together; `note` says how they were chosen."""

    key: str
    title: str
    note: str
    lines: Sequence[ReadLine]


def chapters_of(lines: Sequence[ReadLine], names: Sequence[str]) -> list[Chapter]:
    """Choose the lines of a report, of which one may be in several chapters; `names` are those of the readings.

    The random sample is the same whenever the number of lines is.
    """
    drawn = np.random.default_rng(_SEED).permutation(len(lines))[:_SAMPLE]
    chapters = [_chapter("sample", "Random sample", "drawn at random", [lines[n] for n in sorted(drawn)], len(lines))]

    def rank(key: str, title: str, note: str, most: int, weight: Callable[[ReadLine], int]) -> None:
        weighty = sorted((line for line in lines if weight(line) > 0), key=lambda line: (-weight(line), line.number))
        chapters.append(_chapter(key, title, note, weighty[:most], len(weighty)))

    first, last = names[0], names[-1]
    unread = f"lines that {last} did not finish, read in another script, or did not read at all"
    rank("worst", "Most errors", "most errors first", _MOST, lambda line: line.last.cer.errors)
    rank("better", f"Better than {first}", "largest improvement first", _MOST_CHANGED, lambda line: line.saved)
    rank("worse", f"Worse than {first}", "largest setback first", _MOST_CHANGED, lambda line: -line.saved)
    rank(
        *("failures", "Loops and other failures", unread, _MOST),
        weight=lambda line: bool(line.failures) * (line.last.cer.errors + 1),
    )
    return [chapter for chapter in chapters if chapter.lines]


def _chapter(key: str, title: str, note: str, lines: Sequence[ReadLine], total: int) -> Chapter:
    share = f"All {total:,}" if len(lines) == total else f"{len(lines):,} of {total:,}"
    return Chapter(key, title, f"{share}, {note}.", lines)


def illustrate(
    chapters: Sequence[Chapter], images: Images, progress: Callable[[int, int], None] | None = None
) -> dict[int, Markup]:
    """Return the image of each line of the chapters as HTML, by the line's number, as far as there is room.

    `progress` gets the number of lines done and of all.
    """
    thumbnails = Thumbnails(_THUMBNAIL, MOST_PICTURES)
    shown = {line.number: line for chapter in chapters for line in chapter.lines}
    missing = Markup('<p class="quiet">its image cannot be opened</p>')
    pictures = {}
    for number, line in shown.items():
        path = images.get(line.last.id)
        pictures[number] = Markup() if path is None else thumbnails.of(path, alt=f"Line {number}", missing=missing)
        if progress is not None:
            progress(len(pictures), len(shown))
    return pictures


def other_lines(lines: Sequence[ReadLine], chapters: Sequence[Chapter]) -> tuple[list[ReadLine], int]:
    """Return the lines of no chapter, most errors first, as far as there is room, and how many are left."""
    shown = {line.number for chapter in chapters for line in chapter.lines}
    rest = [line for line in lines if line.number not in shown]
    rest.sort(key=lambda line: (-line.last.cer.errors, line.number))
    taken = 0
    for count, line in enumerate(rest):
        taken += _MARKUP + min(len(line.last.reference), LONGEST)
        taken += sum(_MARKUP // 3 + min(len(score.prediction), LONGEST) for score in line.scores)
        if taken > MOST_TEXT:
            return rest[:count], len(rest) - count
    return rest, 0


def differences(reference: str, prediction: str, longest: int = LONGEST) -> tuple[list[tuple[str, str]], int]:
    """Split a prediction into parts tagged "del" (not read), "ins" (added) or "" (right).

    Cut at `longest` characters; the second value is how many are hidden.
    """
    parts: list[tuple[str, str]] = []
    shown = hidden = 0
    for span in align(reference, prediction):
        room = longest - shown
        length = max(len(span.reference), len(span.prediction))
        written, read = span.reference[:room], span.prediction[:room]
        parts += [("", written)] if span.correct else [("del", written), ("ins", read)]
        shown += min(length, room)
        hidden += max(length - room, 0)
    return [(tag, text) for tag, text in parts if text], hidden
