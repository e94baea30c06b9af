"""Two or more readings of the same lines set side by side: which is better, by how much, and whether one can tell.

Knows nothing about where readings come from (`readings.py`) nor how the result is shown.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dsocr import __version__
from dsocr.document import PackedImage
from dsocr.errors import DataError
from dsocr.evaluation.metrics import ErrorRate, spoken_points
from dsocr.evaluation.scorecard import FAILED, aligned, shown
from dsocr.evaluation.scores import FAILURES, LineScore, Score, finite, pooled
from dsocr.evaluation.statistics import (
    FEWEST,
    Clusters,
    Interval,
    Numbers,
    Paired,
    SwapTest,
    Unit,
    clusters_of,
    difference_interval,
    sign_test,
    swap_test,
)

Verdict = Literal["better", "worse", "unclear", "too few", "same"]
"""What can be said of a reading beside the first: "too few" where so few writers could never tell."""

_CHANCE = 0.05
"""How often a difference may be called one that is none."""

_HEAVY = 0.2
"""The share of all errors in one line that is told."""

_LISTED = 100


@dataclass(frozen=True, slots=True)
class NamedLines:
    """A reading to compare: what to call it, its scored lines, and remarks on how it was taken in."""

    name: str
    lines: Sequence[LineScore]
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReadingScore:
    """One of the readings, pooled, its headlines with their intervals."""

    name: str
    score: Score
    remarks: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """The reading as JSON holds it."""
        return {"name": self.name, **self.score.as_dict(), "remarks": list(self.remarks)}


@dataclass(frozen=True, slots=True)
class Group:
    """The lines of a writer (or a page, where too few writers are known), and their CER in each reading."""

    name: str
    lines: int
    cers: Sequence[ErrorRate]

    def as_dict(self) -> dict[str, Any]:
        """The group as JSON holds it; `cers` are fractions in the order of the readings."""
        return {"name": self.name, "lines": self.lines, "cers": [finite(cer.rate) for cer in self.cers]}


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line as the first and as another reading have it; `saved` errors, below zero where there are more."""

    first: LineScore
    second: LineScore

    @property
    def saved(self) -> int:
        """How many errors fewer the second has."""
        return self.first.cer.errors - self.second.cer.errors

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON holds it."""
        return {
            "id": self.first.id,
            "writer": self.first.writer,
            "page": self.first.page,
            "reference": self.first.reference,
            "first": self.first.prediction,
            "second": self.second.prediction,
            "saved": self.saved,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Another reading beside the first.

    `cer` is the interval of its CER less the first's, in fractions. `groups` counts the writers (pages, lines) on
    which it is better, worse and the same; `better` and `worse` hold every line that changed, largest change first.
    """

    first: ReadingScore
    second: ReadingScore
    cer: Interval
    swaps: SwapTest
    groups: tuple[int, int, int]
    typical: float | None
    signs: float
    better: Sequence[LineChange]
    worse: Sequence[LineChange]

    @property
    def points(self) -> float:
        """The second's CER less the first's, in fractions; below zero the second is better."""
        return self.second.score.cer.rate - self.first.score.cer.rate

    @property
    def verdict(self) -> Verdict:
        """Better or worse where the test by whole writers says so, and an interval, if there is one, agrees."""
        if not self.better and not self.worse:
            return "same"
        if self.swaps.least > _CHANCE or self.cer.clusters < FEWEST:
            return "too few"
        covers_none = self.cer.low is not None and self.cer.high is not None and self.cer.low <= 0 <= self.cer.high
        if self.swaps.p > _CHANCE or covers_none:
            return "unclear"
        return "better" if self.points < 0 else "worse"

    @property
    def sentence(self) -> str:
        """The whole result in one sentence."""
        unit, (better, worse, same) = self.cer.unit, self.groups
        total = better + worse + same
        if self.verdict == "same":
            return f"{self.second.name} makes as many errors as {self.first.name} on every line"
        units = f"{unit}{'' if total == 1 else 's'}"
        if self.verdict in {"better", "worse"}:
            told = f"{self.second.name} is {self.verdict} than {self.first.name}"
            told += f": {self.verdict} on {better if self.verdict == 'better' else worse} of {total} {units}"
        elif self.verdict == "unclear":
            told = (
                f"{total} {units} show no sure difference: {self.second.name} is better on {better}, worse on {worse}"
            )
        else:
            told = f"not enough {unit}s to tell: {self.second.name} is better on {better} of {total}, worse on {worse}"
        sides = (f"{100 * reading.score.cer.rate:.1f}" for reading in (self.first, self.second))
        told += f"; CER {' -> '.join(sides)} %, {spoken_points(100 * self.points)} points"
        if self.cer.low is None or self.cer.high is None:
            return f"{told}, without an interval: {self.cer.reason}"
        low, high = (spoken_points(100 * bound) for bound in (self.cer.low, self.cer.high))
        return f"{told}, {100 * self.cer.level:.0f} % CI {low} to {high}"

    @property
    def chances(self) -> list[str]:
        """How often chance alone would do as much, and the change on the middle writer, each as a sentence."""
        if self.verdict == "same":
            return []
        unit, kind = self.cer.unit, "all swaps tried" if self.swaps.exact else "random swaps"
        told = [f"by chance, whole {unit}s swapped: p = {self.swaps.p:.2g} ({kind})"]
        if self.typical is not None:
            middle = f"on the middle {unit}: {spoken_points(100 * self.typical)} points"
            told.append(f"{middle}; as one-sided by chance: p = {self.signs:.2g} (sign test)")
        return told

    def as_dict(self) -> dict[str, Any]:
        """The difference as JSON holds it, with the hundred lines that changed most either way."""
        better, worse, same = self.groups
        return {
            "first": self.first.name,
            "second": self.second.name,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "difference": finite(self.points),
            "interval": self.cer.as_dict(),
            "swap_test": self.swaps.as_dict(),
            "groups": {"better": better, "worse": worse, "same": same},
            "typical_difference": self.typical,
            "sign_test": self.signs,
            "better_lines": [line.as_dict() for line in self.better[:_LISTED]],
            "worse_lines": [line.as_dict() for line in self.worse[:_LISTED]],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Readings of the same lines; the others are compared with the first.

    `groups` are writers or pages, those first that changed most for the better in the last reading; none where every
    line counts by itself. `cautions` say what the numbers do not tell. `lines` are those of each reading by its name,
    all in one order, and `images` their pictures by id, as far as they are known.
    """

    readings: Sequence[ReadingScore]
    differences: Sequence[Difference]
    groups: Sequence[Group]
    unit: Unit
    clusters: int
    cautions: Sequence[str]
    lines: Mapping[str, Sequence[LineScore]]
    images: Mapping[str, Path | PackedImage] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    made_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON holds it."""
        return {
            "sentences": [difference.sentence for difference in self.differences],
            "unit": self.unit,
            "clusters": self.clusters,
            "cautions": list(self.cautions),
            "readings": [reading.as_dict() for reading in self.readings],
            "differences": [difference.as_dict() for difference in self.differences],
            "groups": [group.as_dict() for group in self.groups],
            "about": dict(self.about),
            "made_at": self.made_at,
            "dsocr_version": self.dsocr_version,
        }


def compare(
    readings: Sequence[NamedLines],
    *,
    images: Mapping[str, Path | PackedImage] | None = None,
    about: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Comparison:
    """The readings beside the first of them; every one must have scored the same lines against the same texts.

    `about` is what to keep with the result, such as the dataset's hash.
    """
    readings = _in_one_order(readings)
    clusters = clusters_of(readings[0].lines)
    scores = [_scored(reading) for reading in readings]
    groups = _groups(readings, clusters)
    return Comparison(
        readings=scores,
        differences=[
            _difference((scores[0], readings[0]), (score, reading), clusters, seed)
            for score, reading in zip(scores[1:], readings[1:], strict=True)
        ],
        groups=groups,
        unit=clusters.unit,
        clusters=clusters.count,
        cautions=[*_caution(readings[0].lines, clusters), *map(_heaviest, filter(_is_top_heavy, readings))],
        lines={reading.name: reading.lines for reading in readings},
        images=images or {},
        about=about or {},
    )


def difference_between(first: NamedLines, second: NamedLines, *, seed: int = 0) -> Difference:
    """The second reading beside the first, as `compare` has it."""
    first, second = _in_one_order([first, second])
    return _difference((_scored(first), first), (_scored(second), second), clusters_of(first.lines), seed)


def _in_one_order(readings: Sequence[NamedLines]) -> list[NamedLines]:
    """The readings, which must be of the same lines, with their lines in the order of the first."""
    _demand_the_same_lines(readings)
    places = {line.id: place for place, line in enumerate(readings[0].lines)}
    return [
        NamedLines(reading.name, sorted(reading.lines, key=lambda line: places[line.id]), reading.remarks)
        for reading in readings
    ]


def _scored(reading: NamedLines) -> ReadingScore:
    return ReadingScore(reading.name, Score.of(reading.lines, intervals=True), tuple(reading.remarks))


def _demand_the_same_lines(readings: Sequence[NamedLines]) -> None:
    if len(readings) < 2:
        hint = "name another one, such as an evaluated run; with --base a run is compared with its base"
        raise DataError("there is only one reading, and nothing to compare it with", hint=hint)
    if twice := [name for name, count in Counter(reading.name for reading in readings).items() if count > 1]:
        raise DataError(f"two readings are called {twice[0]!r}", hint="give one another name: NAME=PATH")
    texts = {line.id: line.reference for line in readings[0].lines}
    if not texts:
        raise DataError("there is no line to compare")
    for reading in readings[1:]:
        own = {line.id: line.reference for line in reading.lines}
        if own.keys() != texts.keys():
            missing, extra = len(texts.keys() - own.keys()), len(own.keys() - texts.keys())
            message = f"{reading.name} and {readings[0].name} did not read the same lines"
            raise DataError(f"{message}: {missing} of {len(texts)} are missing, {extra} are others")
        if other := [id_ for id_, text in own.items() if text != texts[id_]]:
            message = f"{reading.name} and {readings[0].name} were scored against different texts"
            raise DataError(f"{message}: {len(other)} lines, such as {other[0]}", hint="evaluate both on one dataset")


def _difference(
    first: tuple[ReadingScore, NamedLines], second: tuple[ReadingScore, NamedLines], clusters: Clusters, seed: int
) -> Difference:
    before, after = first[1].lines, second[1].lines
    lengths = np.array([line.cer.length for line in before], dtype=np.float64)
    paired = Paired(_errors(before), _errors(after), lengths, clusters)
    changes = clusters.sums(paired.second - paired.first)
    length = clusters.sums(lengths)
    better, worse, same = (int(np.sum(part)) for part in (changes < 0, changes > 0, changes == 0))
    changed = [LineChange(*both) for both in zip(before, after, strict=True)]
    changed.sort(key=lambda line: -abs(line.saved))
    return Difference(
        first=first[0],
        second=second[0],
        cer=difference_interval(paired),
        swaps=swap_test(paired, seed=seed),
        groups=(better, worse, same),
        typical=float(np.median(changes[length > 0] / length[length > 0])) if length.any() else None,
        signs=sign_test(better, worse),
        better=[line for line in changed if line.saved > 0],
        worse=[line for line in changed if line.saved < 0],
    )


def _errors(lines: Sequence[LineScore]) -> Numbers:
    return np.array([line.cer.errors for line in lines], dtype=np.float64)


def _groups(readings: Sequence[NamedLines], clusters: Clusters) -> list[Group]:
    """Writers, else pages, the most improved first."""
    if clusters.unit == "line":
        return []
    lines = readings[0].lines
    members: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        name = line.writer if clusters.unit == "writer" else line.page
        members.setdefault(name or f"no {clusters.unit} named", []).append(place)
    groups = [
        Group(name, len(own), [pooled(reading.lines[place].cer for place in own) for reading in readings])
        for name, own in members.items()
    ]
    return sorted(groups, key=lambda group: (group.cers[-1].rate - group.cers[0].rate, group.name))


def _caution(lines: Sequence[LineScore], clusters: Clusters) -> list[str]:
    """What the intervals do not tell; nothing where they tell of new writers."""
    if clusters.unit == "writer":
        return []
    writers = {line.writer for line in lines} - {None}
    if writers:
        hands = "this writer" if len(writers) == 1 else f"these {len(writers)} writers"
        return [
            f"the intervals are over {clusters.unit}s: they tell of more {clusters.unit}s by {hands}, not of others"
        ]
    told = f"the intervals are over {clusters.unit}s, as no writer is known: where one hand wrote several"
    return [f"{told}, they are too narrow"]


def _is_top_heavy(reading: NamedLines) -> bool:
    """True where a single line, such as a loop, decides the pooled rates."""
    worst = max(line.cer.errors for line in reading.lines)
    return len(reading.lines) >= FEWEST and worst >= _HEAVY * max(1, sum(line.cer.errors for line in reading.lines))


def _heaviest(reading: NamedLines) -> str:
    worst = max(reading.lines, key=lambda line: line.cer.errors)
    share = worst.cer.errors / sum(line.cer.errors for line in reading.lines)
    return f"{100 * share:.0f} % of all errors of {reading.name} are in one line, {worst.id}"


_GROUPS, _LINES = 20, 5


def render_comparison(found: Comparison) -> str:
    """The verdicts, the readings beside each other, the writers, and the lines that changed most."""
    blocks = ["\n".join(_told(difference) for difference in found.differences)]
    if found.cautions:
        blocks.append("\n".join(f"note: {caution}" for caution in found.cautions))
    names = [reading.name for reading in found.readings]
    blocks.append(aligned([("", *names), *_rows(found.readings)]))
    if found.groups:
        blocks.append(_groups_comparison_table(found, names))
    for difference in found.differences:
        blocks += [text for text in (_lines("better", difference), _lines("worse", difference)) if text]
    remarks = [f"{reading.name}: {'; '.join(reading.remarks)}" for reading in found.readings if reading.remarks]
    return "\n\n".join([*blocks, "\n".join(remarks)]).rstrip() + "\n"


def _told(difference: Difference) -> str:
    """The sentence, and how often chance would do as much."""
    return "\n  ".join([difference.sentence, *difference.chances])


def _rows(readings: Sequence[ReadingScore]) -> Iterator[tuple[str, ...]]:
    for title, field in (("CER", "cer"), ("WER", "wer")):
        yield title, *(f"{getattr(reading.score, field).rate:.2%}" for reading in readings)
        yield "  95 % CI", *(_range(reading, field) for reading in readings)
    yield "lines", *(str(reading.score.lines) for reading in readings)
    yield "exact", *(str(reading.score.exact) for reading in readings)
    for failure in FAILURES:
        yield FAILED[failure], *(str(reading.score.failures[failure]) for reading in readings)


def _range(reading: ReadingScore, field: str) -> str:
    interval = reading.score.intervals[field]
    if interval.low is None or interval.high is None:
        return "cannot be told"
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def _groups_comparison_table(found: Comparison, names: Sequence[str]) -> str:
    groups = found.groups
    rows = [(found.unit, "lines", *names), *map(_group, groups[: _GROUPS // 2])]
    if len(groups) > _GROUPS:
        rows.append((f"... {len(groups) - _GROUPS} more ...", "", *("" for _ in names)))
    rest = groups[max(_GROUPS // 2, len(groups) - _GROUPS // 2) :]
    return aligned([*rows, *map(_group, rest)])


def _group(group: Group) -> tuple[str, ...]:
    cers = (f"{cer.rate:.1%}" if cer.length else "no text" for cer in group.cers)
    return shown(group.name, 40), str(group.lines), *cers


def _lines(kind: str, difference: Difference) -> str:
    changes = difference.better if kind == "better" else difference.worse
    if not changes:
        return ""
    count = f"{len(changes)} line{'' if len(changes) == 1 else 's'}"
    title = f"Read {kind} by {difference.second.name} than by {difference.first.name}: {count}"
    return "\n".join([title, *(_line(change, difference) for change in changes[:_LINES])])


def _line(change: LineChange, difference: Difference) -> str:
    names = ("reference", difference.first.name, difference.second.name)
    texts = (change.first.reference, change.first.prediction, change.second.prediction)
    width = max(map(len, names))
    errors = f"{change.first.cer.errors} -> {change.second.cer.errors} errors"
    told = (f"    {name:<{width}}  {shown(text)}" for name, text in zip(names, texts, strict=True))
    return "\n".join([f"  {change.first.id}: {errors}", *told])
