"""Scores broken down: by group of lines (writer, page, source, length, script), as macro averages, and by character.

Of all alignments with the fewest edits, rapidfuzz's is used, so a single confused pair can be ambiguous; the sums are
not. Texts are compared as for the CER, and all character errors add up to its errors.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Self, TypeVar

import numpy as np
from rapidfuzz.distance import Levenshtein

from dsocr.data.splits import length_bounds, script_of
from dsocr.evaluation.metrics import pool
from dsocr.evaluation.scores import LineScore, Scores
from dsocr.text import comparable

GROUP_KINDS = ("writer", "page", "source", "length", "script")
MAX_GROUPS = 40
"""Groups of a kind that are listed; the others are pooled."""
MAX_CHARACTERS = 60
"""Characters and confused pairs that are listed; the others are counted."""

_Counted = TypeVar("_Counted", str, tuple[str, str])
_LOCATION = re.compile(r"#.*|:\d+$", re.DOTALL)
"""The location of a line within its source file."""


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Scores of the lines that share a writer, page, ...; the name is None where that is not known."""

    name: str | None
    scores: Scores


@dataclass(frozen=True, slots=True)
class LineGroups:
    """All lines by one kind of group: the largest groups (lengths in ascending order), and the `others` pooled."""

    top: tuple[LineGroup, ...]
    others: int = 0
    others_scores: Scores | None = None

    @classmethod
    def compute(cls, kind: str, lines_by_model: Mapping[str, Sequence[LineScore]]) -> Self:
        """Group lines; all models must have read the same lines in the same order."""
        places: dict[str | None, list[int]] = {}
        for place, name in enumerate(_group_names(kind, next(iter(lines_by_model.values())))):
            places.setdefault(name, []).append(place)
        ranked = sorted(places, key=lambda name: (-len(places[name]), name is None, name or ""))
        listed, others = ranked[:MAX_GROUPS], ranked[MAX_GROUPS:]
        if kind == "length":
            listed.sort(key=lambda name: int((name or "0").split("-")[0]))

        def score(chosen: Sequence[int]) -> Scores:
            selected = {model: [lines[place] for place in chosen] for model, lines in lines_by_model.items()}
            return Scores.compute(selected, intervals=kind == "writer")  # over the writer's pages, else lines

        rest = [place for name in others for place in places[name]]
        top = tuple(LineGroup(name, score(places[name])) for name in listed)
        return cls(top, len(others), score(rest) if rest else None)


def _group_names(kind: str, lines: Sequence[LineScore]) -> Sequence[str | None]:
    if kind == "length":  # ranges with about the same number of lines, such as `21-34` characters
        lengths = [line.cer.length for line in lines]
        least = min(lengths)
        bounds = [least, *(bound for bound in length_bounds(lengths) if bound > least), max(lengths) + 1]
        places = (bisect_right(bounds, length) for length in lengths)
        return [f"{bounds[place - 1]}-{bounds[place] - 1}" for place in places]
    if kind == "script":
        return [script_of(line.reference) for line in lines]
    if kind != "source":
        return [*map(attrgetter(kind), lines)]
    # The folder `letters` for `letters/17.xml:12`, the file `lines.csv` for `lines.csv:12`.
    paths = [line.source and _LOCATION.sub("", line.source) for line in lines]
    return [path and (path.rpartition("/")[0] or path) for path in paths]


@dataclass(frozen=True, slots=True)
class MacroAverage:
    """The mean of `count` rates, None if there are none; `skipped` have no reference text and so no rate."""

    cer: float | None
    wer: float | None
    count: int
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Averages:
    """Macro averages over lines and over known writers and pages, and quantiles of the lines' CER.

    Quantiles are interpolated linearly between two lines.
    """

    macro_over_lines: MacroAverage
    macro_over_writers: MacroAverage
    macro_over_pages: MacroAverage
    median_line_cer: float | None
    p90_line_cer: float | None

    @classmethod
    def compute(cls, lines: Sequence[LineScore]) -> Self:
        """Average the rates of some lines."""
        rates = [line.cer.rate for line in lines if line.cer.length]
        median, p90 = (float(value) for value in np.quantile(rates, [0.5, 0.9])) if rates else (None, None)
        return cls(_macro("id", lines), _macro("writer", lines), _macro("page", lines), median, p90)


def _macro(kind: str, lines: Sequence[LineScore]) -> MacroAverage:
    """Average the pooled rates of the lines of each writer, page or id that is known."""
    groups: dict[str, list[LineScore]] = {}
    for line in lines:
        if (name := getattr(line, kind)) is not None:
            groups.setdefault(name, []).append(line)
    pooled = [(pool(line.cer for line in group), pool(line.wer for line in group)) for group in groups.values()]
    counted = [(cer.rate, wer.rate) for cer, wer in pooled if cer.length]
    if not counted:
        return MacroAverage(None, None, 0, len(pooled))
    cer, wer = np.mean(counted, axis=0)
    return MacroAverage(float(cer), float(wer), len(counted), len(pooled) - len(counted))


@dataclass(frozen=True, slots=True)
class CharacterCount:
    """How often a reference character occurs and is misread; the character None stands for all that are not listed."""

    character: str | None
    count: int
    substituted: int
    deleted: int

    @property
    def errors(self) -> int:
        """How often it was not read."""
        return self.substituted + self.deleted


@dataclass(frozen=True, slots=True)
class Confusion:
    """How often `reference` was read as `prediction`."""

    reference: str
    prediction: str
    count: int


@dataclass(frozen=True, slots=True)
class Frequency:
    """How often a character was deleted or inserted."""

    character: str
    count: int


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The most frequent characters, and the number and total count of the `others`."""

    top: tuple[Frequency, ...]
    others: int = 0
    others_count: int = 0

    @classmethod
    def compute(cls, counts: Counter[str]) -> Self:
        """Rank counted characters."""
        ranked = [Frequency(*item) for item in _ranked(counts)]
        rest = ranked[MAX_CHARACTERS:]
        return cls(tuple(ranked[:MAX_CHARACTERS]), len(rest), sum(item.count for item in rest))


@dataclass(frozen=True, slots=True)
class CharacterErrors:
    """Character errors of some lines; `substitutions`, `deletions` and `insertions` together are all of them.

    `by_character` and `confusions` list the most frequent errors; `others` and `other_pairs` count those not listed.
    """

    count: int
    substitutions: int
    deletions: int
    insertions: int
    by_character: tuple[CharacterCount, ...]
    others: int
    confusions: tuple[Confusion, ...]
    other_pairs: int
    other_pairs_count: int
    deleted: Frequencies
    inserted: Frequencies

    @classmethod
    def compute(cls, lines: Sequence[LineScore]) -> Self:
        """Count the errors in some lines."""
        counts, deleted, inserted = Counter[str](), Counter[str](), Counter[str]()
        pairs = Counter[tuple[str, str]]()
        for line in lines:
            reference, prediction = comparable(line.reference), comparable(line.prediction)
            counts.update(reference)
            for edit in Levenshtein.editops(reference, prediction) if line.cer.errors else ():
                if edit.tag == "replace":
                    pairs[reference[edit.src_pos], prediction[edit.dest_pos]] += 1
                elif edit.tag == "delete":
                    deleted[reference[edit.src_pos]] += 1
                else:
                    inserted[prediction[edit.dest_pos]] += 1
        substituted = Counter[str]()
        for (character, _), count in pairs.items():
            substituted[character] += count
        listed = [
            CharacterCount(character, counts[character], substituted[character], deleted[character])
            for character, _ in _ranked(substituted + deleted)[:MAX_CHARACTERS]
        ]
        rest = CharacterCount(
            None,
            counts.total() - sum(row.count for row in listed),
            substituted.total() - sum(row.substituted for row in listed),
            deleted.total() - sum(row.deleted for row in listed),
        )
        confusions = [Confusion(*pair, count) for pair, count in _ranked(pairs)]
        return cls(
            count=counts.total(),
            substitutions=pairs.total(),
            deletions=deleted.total(),
            insertions=inserted.total(),
            by_character=(*listed, *([rest] if rest.count else [])),
            others=len(counts) - len(listed),
            confusions=tuple(confusions[:MAX_CHARACTERS]),
            other_pairs=len(confusions[MAX_CHARACTERS:]),
            other_pairs_count=sum(pair.count for pair in confusions[MAX_CHARACTERS:]),
            deleted=Frequencies.compute(deleted),
            inserted=Frequencies.compute(inserted),
        )


def _ranked(counts: Counter[_Counted]) -> list[tuple[_Counted, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
