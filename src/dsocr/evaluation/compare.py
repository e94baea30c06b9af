"""Compare systems that read the same lines: every rate side by side, differences, their intervals and the verdicts.

Rates are those of all lines, of known and of new writers, and under each text normalisation. `decide` judges each pair.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import chain, combinations
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic import TypeAdapter

from dsocr import __version__
from dsocr.document import PackedImage
from dsocr.errors import DataError, option
from dsocr.evaluation.decide import SIGNIFICANCE, Verdict, decide, typical_ratio
from dsocr.evaluation.metrics import (
    ErrorRate,
    character_errors,
    describe_change,
    describe_ratios,
    format_change_interval,
    of_hundred,
    pool,
    profiles,
    word_errors,
)
from dsocr.evaluation.page_metrics import grapheme_errors
from dsocr.evaluation.scorecard import PROFILE_LABELS, align_columns
from dsocr.evaluation.scores import FAILURE_LABELS, LineScore, Score, WriterStatus, align_readings
from dsocr.evaluation.statistics import (
    LEVEL,
    MIN_CLUSTERS,
    Clusters,
    ClusterUnit,
    Floats,
    Interval,
    PairedErrors,
    Quantity,
    clusters_of,
    difference_interval,
    interval_of,
    withheld_interval,
)
from dsocr.html import counted
from dsocr.text import comparable, percentage

_MOST_NAMED = 3
"""Writers who are named because they are read worse."""
DOMINANT_SHARE = 0.1
"""A single line with at least this share of all errors is reported: its text may be wrong."""

_NUMBERS = PROFILE_LABELS["digits_only"]


@dataclass(frozen=True, slots=True)
class Measure:
    """An error rate by name: its count in a line, and its unit."""

    name: str
    count: Callable[[LineScore], ErrorRate]
    of: Quantity = "characters"


def _count_texts(
    count: Callable[[str, str], ErrorRate], line: LineScore, apply: Callable[[str], str] = str
) -> ErrorRate:
    return count(apply(comparable(line.reference)), apply(comparable(line.prediction)))


CER = Measure("CER", attrgetter("cer"))
LINE_MEASURES = (
    CER,
    Measure("WER", attrgetter("wer"), of="words"),
    Measure("lines with errors", lambda line: ErrorRate(int(not line.exact), 1), of="lines"),
    Measure("grapheme CER", partial(_count_texts, grapheme_errors)),
)
PAGE_MEASURES = (
    Measure("flexible CER", attrgetter("cer")),
    Measure("bag-of-words WER", attrgetter("wer"), of="words"),
    Measure("CER in reading order", partial(_count_texts, character_errors)),
    Measure("WER in reading order", partial(_count_texts, word_errors), of="words"),
)
"""Of pages that `page_metrics.score_pages` scored; the first two do not depend on the order of the lines."""


@dataclass(frozen=True, slots=True)
class RateDifference:
    """A rate of the second system minus the first's, as a fraction, and the test for this pair.

    `p` is None if there is no test; `corrected_p` is corrected for all pairs of systems (Holm).
    """

    first: str
    second: str
    difference: float | None
    interval: Interval
    p: float | None
    corrected_p: float | None
    verdict: Verdict

    @property
    def change(self) -> str:
        """How the second system differs, such as `8.3 points better`."""
        return "no text" if self.difference is None else describe_change(100 * self.difference)

    @property
    def bounds(self) -> str:
        """The interval of the difference in words, "none" if there is none."""
        ends = self.interval.bounds
        return format_change_interval(*(100 * end for end in ends)) if ends else "none"


@dataclass(frozen=True, slots=True)
class ComparedRate:
    """One rate of the same lines in every system, in their order; `differences` are of all pairs.

    `part` names the lines: "all", or the writers' status. `writers` is the number of known ones. `scope` limits the
    intervals and verdicts if fewer than five writers are known, else it is None. `noun` is the name of one line.
    """

    name: str
    part: str
    lines: int
    writers: int
    rates: tuple[ErrorRate, ...]
    intervals: tuple[Interval, ...]
    differences: tuple[RateDifference, ...]
    scope: str | None
    noun: str = "line"

    @property
    def title(self) -> str:
        """The rate and the lines it is of."""
        if self.part == "all":
            return self.name
        unit = self.intervals[0].unit
        who = "unknown writers" if self.part == "unknown" else counted(self.writers, f"{self.part} writer")
        over = "" if unit == "writer" else f" (over {unit}s)"
        return f"{self.name}, {who}, {counted(self.lines, self.noun)}{over}"

    def of_pair(self, first: str, second: str) -> RateDifference:
        """Return the difference of two systems, in the order in which they were given."""
        return next(
            difference for difference in self.differences if (difference.first, difference.second) == (first, second)
        )


@dataclass(frozen=True)
class System:
    """A system: name, scored lines, notes on their source; `trained` if it is our run, which another seed changes."""

    name: str
    lines: Sequence[LineScore]
    notes: Sequence[str] = ()
    trained: bool = False

    @cached_property
    def score(self) -> Score:
        """The pooled score with intervals."""
        return Score.compute(self.lines, intervals=True)


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """The lines of one writer (or page, if few writers are known), and their CER by each system."""

    name: str
    lines: int
    cers: list[ErrorRate]


@dataclass(frozen=True, slots=True)
class ReadLine:
    """One line as each system read it, in the order of the systems; `number` counts the lines from 1."""

    number: int
    scores: tuple[LineScore, ...]

    @property
    def last(self) -> LineScore:
        """The line as the last system read it."""
        return self.scores[-1]

    @property
    def saved(self) -> int:
        """How many errors fewer the last system has than the first; negative if it has more."""
        return self.scores[0].cer.errors - self.last.cer.errors

    @property
    def failures(self) -> list[str]:
        """How the last system failed as a whole; empty for most lines."""
        return [failure for failure in FAILURE_LABELS if getattr(self.last, failure)]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as read by the first and the last system for JSON."""
        known = {name: getattr(self.last, name) for name in ("id", "writer", "page", "reference")}
        texts = {"first": self.scores[0].prediction, "second": self.last.prediction}
        return known | texts | {"errors_saved": self.saved}


def read_lines(readings: Iterable[Sequence[LineScore]]) -> list[ReadLine]:
    """Pair the lines of readings of the same split, all in the same order."""
    return [ReadLine(number, scores) for number, scores in enumerate(zip(*readings, strict=True), start=1)]


@dataclass(frozen=True, slots=True)
class Difference:
    """A system compared with the first: `change` is the difference in `rate`, the main one of all rates.

    `typical` is the ratio of the errors of a typical writer or page with its interval, None over single lines. `harmed`
    are sentences about writers whom the second system reads worse, if it is not worse as a whole.
    `groups` counts the writers (pages, lines) on which it is better, worse and the same. `improved` and `worsened` hold
    all changed lines, largest change first.
    """

    first: System
    second: System
    rate: ComparedRate
    change: RateDifference
    typical: tuple[float, tuple[float, float] | None] | None
    groups: tuple[int, int, int]
    harmed: Sequence[str]
    improved: Sequence[ReadLine]
    worsened: Sequence[ReadLine]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the main rate."""
        return self.change.verdict

    @property
    def summary(self) -> str:
        """The result in one sentence, with one interval."""
        first, second, unit = self.first.name, self.second.name, self.change.interval.unit
        better, worse, same = self.groups
        counts = f"better on {better} of {better + worse + same} {unit}s"
        rates = f"{self.rate.name} {_arrow(system.score.cer.rate for system in (self.first, self.second))}"
        if self.verdict == "same":
            return f"{second} makes as many errors as {first} on every line"
        if self.verdict == "too few":
            return f"too few {unit}s to decide: {second} is {counts}; {rates}"
        scope = f"{self.rate.scope}, " if self.rate.scope else ""
        interval = f" ({100 * LEVEL:.0f} % CI {self.change.bounds})" if self.change.interval.bounds else ""
        rates += f", {self.change.change}{interval}"
        if self.verdict == "unclear":
            return f"{scope}no clear difference between {second} and {first}: {rates}"
        return f"{scope}{second} is {self.verdict} than {first}: {rates}, {counts}"

    @property
    def details(self) -> list[str]:
        """The evidence for the summary: the test, and a typical writer's or page's errors."""
        change = self.change
        if change.p is None or change.corrected_p is None or self.verdict == "same":
            return []
        test = f"Wilcoxon signed-rank test over {change.interval.unit}s: {describe_p(change.p)}"
        if change.corrected_p != change.p:
            test += f", {describe_p(change.corrected_p)} corrected for all pairs (Holm)"
        if self.typical is None:
            return [test]
        ratio, ends = self.typical
        interval = f" (95 % CI {describe_ratios(ends)})" if ends else ""
        return [test, f"a typical {change.interval.unit} has {describe_ratios((ratio,))} errors{interval}"]

    def to_dict(self) -> dict[str, Any]:
        """Return the difference for JSON; the lines that changed have a file of their own."""
        better, worse, same = self.groups
        return {
            "first": self.first.name,
            "second": self.second.name,
            "verdict": self.verdict,
            "scope": self.rate.scope,
            "summary": self.summary,
            "difference": self.change.difference,
            "interval": asdict(self.change.interval),
            "p": self.change.p,
            "corrected_p": self.change.corrected_p,
            "groups": {"better": better, "worse": worse, "same": same},
            "harmed": list(self.harmed),
            "typical": self.typical and {"ratio": self.typical[0], "interval": self.typical[1]},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Systems that read the same lines, the others compared with the first.

    `groups` are writers or pages, the most improved by the last system first; empty if every line counts by itself.
    `rates` are all rates side by side; the first decides the verdicts. `answers` describe the best system and the next
    step, `cautions` the limits of the numbers. `images` are the known images of lines by id. `written` is the page.
    """

    systems: Sequence[System]
    differences: Sequence[Difference]
    groups: Sequence[ComparedGroup]
    unit: ClusterUnit
    clusters: int
    answers: Sequence[str]
    cautions: Sequence[str]
    rates: Sequence[ComparedRate]
    images: Mapping[str, Path | PackedImage] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__
    written: Path | None = None

    @property
    def distinct_rates(self) -> list[ComparedRate]:
        """The rates, without those of all lines that count the same errors as an earlier one."""
        of_all = {rate.rates: rate for rate in reversed(self.rates) if rate.part == "all"}
        return [rate for rate in self.rates if rate.part != "all" or of_all[rate.rates] is rate]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON; the CERs of a group are in the order of the systems."""
        return {
            "summaries": [difference.summary for difference in self.differences],
            "unit": self.unit,
            "clusters": self.clusters,
            "answers": list(self.answers),
            "cautions": list(self.cautions),
            "systems": [
                {"name": system.name, "score": _SCORE.dump_python(system.score), "notes": list(system.notes)}
                for system in self.systems
            ],
            "differences": [difference.to_dict() for difference in self.differences],
            "rates": _RATES.dump_python([*self.rates]),
            "groups": _GROUPS.dump_python([*self.groups]),
            "about": dict(self.about),
            "created_at": self.created_at,
            "dsocr_version": self.dsocr_version,
        }


_SCORE, _RATES, _GROUPS = TypeAdapter(Score), TypeAdapter(list[ComparedRate]), TypeAdapter(list[ComparedGroup])


def compare(
    systems: Sequence[System],
    *,
    images: Mapping[str, Path | PackedImage] | None = None,
    about: Mapping[str, Any] | None = None,
    pages: bool = False,
) -> Comparison:
    """Compare systems with the first of them; `decide` is the judge.

    `about` is kept with the result, such as the dataset's hash. With `pages`, lines are whole pages that
    `page_metrics.score_pages` scored. Raises DataError unless all scored the same lines against the same references.
    """
    if len(systems) < 2:
        hint = f"give another one, such as an evaluated run, or {option('base')} to compare a run with its base"
        raise DataError("there is only one system, and nothing to compare it with", code="one-system", hint=hint)
    if twice := [name for name, count in Counter(system.name for system in systems).items() if count > 1]:
        message = f"two systems are called {twice[0]!r}"
        raise DataError(message, code="duplicate-name", hint="name one of them: NAME=PATH")
    aligned = align_readings({system.name: system.lines for system in systems})
    systems = [replace(system, lines=aligned[system.name]) for system in systems]
    first, clusters = systems[0], clusters_of(systems[0].lines)
    noun = "page" if pages else "line"
    rates = compare_rates(aligned, PAGE_MEASURES if pages else LINE_MEASURES)
    differences = [_difference(first, system, clusters, rates) for system in systems[1:]]
    return Comparison(
        systems=systems,
        differences=differences,
        groups=_group(systems, clusters),
        unit=clusters.unit,
        clusters=clusters.count,
        rates=rates,
        answers=_answers(differences, noun),
        cautions=list(_cautions(systems, clusters, rates, noun)),
        images=images or {},
        about=about or {},
    )


def compare_rates(readings: Mapping[str, Sequence[LineScore]], measures: Sequence[Measure]) -> list[ComparedRate]:
    """Compare readings of the same lines, in the same order: each measure of all lines, then by writers' status.

    CER and WER are also counted under each normalisation that changes the lines; new writers are tested from five on.
    """
    lines = next(iter(readings.values()))
    clusters = clusters_of(lines)
    counted = list(measures)
    if CER in measures:
        read = [line for reading in readings.values() for line in reading]
        texts = {comparable(text) for line in read for text in (line.reference, line.prediction)}
        for profile in profiles()[1:]:
            if any(profile.apply(text) != text for text in texts):
                label, apply = PROFILE_LABELS[profile.name], profile.apply
                counted.append(Measure(f"CER {label}", partial(_count_texts, character_errors, apply=apply)))
                counted.append(Measure(f"WER {label}", partial(_count_texts, word_errors, apply=apply), of="words"))
    rates = [_compare(readings, measure, "all", clusters) for measure in counted]
    statuses: list[WriterStatus] = [line.writer_status for line in lines]
    parts = [status for status in get_args(WriterStatus) if status in statuses]
    for status in parts if len(parts) > 1 else []:
        chosen = [place for place, known in enumerate(statuses) if known == status]
        part = {name: [reading[place] for place in chosen] for name, reading in readings.items()}
        own_clusters = clusters_of([lines[place] for place in chosen])
        rates += [_compare(part, measure, status, own_clusters) for measure in measures[:3]]
    return rates


def _compare(
    readings: Mapping[str, Sequence[LineScore]], measure: Measure, part: str, clusters: Clusters
) -> ComparedRate:
    counts = {name: [measure.count(line) for line in lines] for name, lines in readings.items()}
    arrays: dict[str, Floats] = {
        name: np.array([(rate.errors, rate.length) for rate in rates], np.float64).T for name, rates in counts.items()
    }
    lines = next(iter(readings.values()))
    writers = len({line.writer for line in lines} - {None})
    withheld = withheld_interval(writers) if part == "new" and writers < MIN_CLUSTERS else None
    pairs = {
        (first, second): PairedErrors(arrays[first][0], arrays[second][0], arrays[first][1], clusters)
        for first, second in combinations(arrays, 2)
    }
    differences = []
    for (names, paired), decision in zip(pairs.items(), decide([*pairs.values()]), strict=True):
        length, interval, verdict = paired.lengths.sum(), withheld or difference_interval(paired), decision.verdict
        low, high = interval.bounds or (1, 1)
        if (withheld and verdict != "same") or (verdict in {"better", "worse"} and low <= 0 <= high):
            verdict = "unclear"  # nobody knows, or a typical writer and all errors together do not say the same
        differences.append(
            RateDifference(
                *names,
                difference=float((paired.second - paired.first).sum() / length) if length else None,
                interval=interval,
                p=None if withheld else decision.p,
                corrected_p=None if withheld else decision.corrected_p,
                verdict=verdict,
            )
        )
    scope = None
    if clusters.unit != "writer":
        known = "this one writer" if writers == 1 else f"these {writers} writers" if writers else "writers not known"
        scope = f"on {clusters.unit}s by {known}"
    return ComparedRate(
        measure.name,
        part,
        len(lines),
        writers,
        tuple(pool(line_counts) for line_counts in counts.values()),
        tuple(withheld or interval_of(errors, lengths, clusters, measure.of) for errors, lengths in arrays.values()),
        tuple(differences),
        scope,
        noun="page" if measure in PAGE_MEASURES else "line",
    )


def _difference(first: System, second: System, clusters: Clusters, rates: Sequence[ComparedRate]) -> Difference:
    lines = read_lines([first.lines, second.lines])
    counts = [(line.scores[0].cer.errors, line.last.cer.errors, line.last.cer.length) for line in lines]
    before, after, lengths = np.array(counts, dtype=np.float64).T
    paired, changes = PairedErrors(before, after, lengths, clusters), clusters.sums(after - before)
    better, worse, same = (int(np.sum(part)) for part in (changes < 0, changes > 0, changes == 0))
    changed, change = sorted(lines, key=lambda line: -abs(line.saved)), rates[0].of_pair(first.name, second.name)
    return Difference(
        first=first,
        second=second,
        rate=rates[0],
        change=change,
        typical=typical_ratio(paired) if clusters.unit != "line" and lengths.any() else None,
        groups=(better, worse, same),
        harmed=[] if change.verdict == "worse" else [*_describe_harm(first, second, paired, rates)],
        improved=[line for line in changed if line.saved > 0],
        worsened=[line for line in changed if line.saved < 0],
    )


def _arrow(rates: Iterable[float]) -> str:
    return " \N{RIGHTWARDS ARROW} ".join(f"{100 * rate:.1f}" for rate in rates) + " %"


def _describe_harm(first: System, second: System, paired: PairedErrors, rates: Sequence[ComparedRate]) -> Iterator[str]:
    """Describe on which writers the second system is worse: all known or new ones, or some of whom the test is sure."""
    writers, parts = (
        {name: [place for place, named in enumerate(names) if named == name] for name in dict.fromkeys(names)}
        for names in ([line.writer for line in first.lines], [line.writer_status for line in first.lines])
    )

    def describe(name: str, places: Sequence[int]) -> str:
        ends = (pool(system.lines[place].cer for place in places).rate for system in (first, second))
        return f"worse on {name}: {rates[0].name} {_arrow(ends)}"

    writers.pop(None, None)
    tests = []
    for places in writers.values():
        alone = Clusters("line", np.arange(len(places)))
        tests.append(PairedErrors(paired.first[places], paired.second[places], paired.lengths[places], alone))
    worse = [writer for writer, decision in zip(writers, decide(tests), strict=True) if decision.verdict == "worse"]
    for rate in rates:
        change, group = rate.of_pair(first.name, second.name), parts.get(rate.part)
        if group and rate.name == rates[0].name and (change.difference or 0) > 0:
            only = [f"{writer}" for writer in writers if writers[writer] == group]
            is_sure = change.verdict == "worse" or not {*only}.isdisjoint(worse)
            named = describe(f"{rate.part} writer {only[0]}" if only else f"{rate.part} writers", group)
            yield named if is_sure else f"{named}, which may be chance"
            worse = [writer for writer in worse if writer not in only]
    yield from (describe(f"writer {writer}", writers[writer]) for writer in worse[:_MOST_NAMED])
    if len(worse) > _MOST_NAMED:
        yield f"worse on {counted(len(worse) - _MOST_NAMED, 'more writer')}"


def _answers(differences: Sequence[Difference], noun: str) -> list[str]:
    """Describe the best system and the next step."""
    better = [difference.second for difference in differences if difference.verdict == "better"]
    few = [difference for difference in differences if difference.verdict == "too few"]
    candidates = better or [differences[0].first, *(difference.second for difference in few)]
    best = min(candidates, key=lambda system: system.score.cer.rate)
    score = best.score
    good = f"{best.name} gets {of_hundred(score.cer.rate, 'letter')} and {of_hundred(score.wer.rate, 'word')} wrong"
    answers = [f"{good}; {score.exact:,} of {score.lines:,} {noun}s are perfect"] if score.cer.length else []
    if any(describe_dominant_line(system.lines, system.name, noun) for system in (differences[0].first, best)):
        return [*answers, f"next: look at the {noun} named below, then compare again"]
    if few:
        needed = math.ceil(1 - math.log2(SIGNIFICANCE / len(differences[0].rate.differences)))
        return [*answers, f"next: compare on {noun}s by {needed} {few[0].change.interval.unit}s or more"]
    if not better and any(difference.verdict == "unclear" for difference in differences):
        return [*answers, "next: choose by other reasons, or compare on more writers"]
    return [*answers, f"next: read with {best.name}"]


def _group(systems: Sequence[System], clusters: Clusters) -> list[ComparedGroup]:
    if clusters.unit == "line":
        return []
    members: dict[str, list[int]] = {}
    for place, line in enumerate(systems[0].lines):
        name = line.writer if clusters.unit == "writer" else line.page
        members.setdefault(name or f"unknown {clusters.unit}", []).append(place)
    groups = [
        ComparedGroup(name, len(scores), [pool(system.lines[place].cer for place in scores) for system in systems])
        for name, scores in members.items()
    ]
    return sorted(groups, key=lambda group: (group.cers[-1].rate - group.cers[0].rate, group.name))


def describe_dominant_line(lines: Sequence[LineScore], name: str, noun: str = "line") -> str | None:
    """Name the line with most errors if it dominates the pooled rate, as a loop or a text of another line does."""
    worst = max(lines, key=lambda line: line.cer.errors)
    share = worst.cer.errors / max(1, sum(line.cer.errors for line in lines))
    if len(lines) < MIN_CLUSTERS or share < DOMINANT_SHARE:
        return None
    return (
        f"{100 * share:.0f} % of all errors of {name} are in one {noun}, {worst.id}: "
        f"see whether its text is right (dsocr audit)"
    )


def _cautions(systems: Sequence[System], clusters: Clusters, rates: Sequence[ComparedRate], noun: str) -> Iterator[str]:
    """Yield limits of the intervals, and verdicts that rest on one line or on a normalisation."""
    unit, plain, first = clusters.unit, rates[0], systems[0].name
    if unit != "writer" and (count := len({line.writer for line in systems[0].lines} - {None})):
        writers = "this writer" if count == 1 else f"these {count} writers"
        yield f"the intervals are over {unit}s: they hold for other {unit}s by {writers}, not for other writers"
    elif unit != "writer":
        yield f"the intervals are over {unit}s, as no writers are known; they are too narrow if a writer has several"
    yield from filter(None, (describe_dominant_line(system.lines, system.name, noun) for system in systems))
    for rate in rates:
        if rate.part != "all" or not rate.name.startswith(f"{CER.name} ") or rate.name.endswith(_NUMBERS):
            continue  # of another rate, or of other text
        for system in systems[1:]:
            before, after = (measure.of_pair(first, system.name) for measure in (plain, rate))
            if before.verdict == after.verdict or after.difference is None:
                continue
            clear = after.verdict in {"better", "worse"}
            kind = f"is {after.verdict} than" if clear else "is not clearly different from"
            change = after.change
            scope = f"{plain.scope}, " if plain.scope else ""
            yield f"{scope}{rate.name.removeprefix(f'{CER.name} ')}, {system.name} {kind} {first}: {change}"
    if names := [system.name for system in systems if system.trained]:
        each = "one run" if len(names) == 1 else "one run each"
        yield f"the intervals of {', '.join(names)} ({each}) do not cover the seed of training"


def describe_p(p: float, name: str = "p") -> str:
    """Describe a p value with two digits, such as `p = 0.012`; very small ones are only bounded."""
    relation, value = ("<", 1e-4) if p < 5e-5 else ("=", p)
    text = f"{value:.2g}" if value >= 1e-3 else f"{value:.4f}"
    return f"{name} {relation} {text}" if name else f"{'< ' * (relation == '<')}{text}"


def render_comparison(comparison: Comparison) -> str:
    """Return the comparison as text: the answers first, then notes and every rate."""
    verdicts = chain.from_iterable((difference.summary, *difference.harmed) for difference in comparison.differences)
    blocks = ["\n".join([*verdicts, *comparison.answers])]
    if comparison.cautions:
        blocks.append("\n".join(f"note: {caution}" for caution in comparison.cautions))
    blocks.append(align_columns(list(_rate_table(comparison))))
    if len(comparison.systems) > 2:
        rate = comparison.rates[0]
        pairs = [(f"{rate.name}, all pairs", "difference", "95 % CI", "p", "p corrected (Holm)")]
        for pair in rate.differences:
            ps = ["" if p is None else describe_p(p, name="") for p in (pair.p, pair.corrected_p)]
            pairs.append((f"{pair.second} against {pair.first}", pair.change, pair.bounds, ps[0], ps[1]))
        blocks.append(align_columns(pairs))
    notes = [f"{system.name}: {'; '.join(system.notes)}" for system in comparison.systems if system.notes]
    return "\n\n".join([*blocks, "\n".join(notes)]).rstrip() + "\n"


def _rate_table(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield every rate, with the difference if there are only two systems, then counts of lines and failures."""
    systems = comparison.systems
    pair = systems[0].name, systems[-1].name
    yield "", *(system.name for system in systems), *(["difference"] if len(systems) == 2 else [])
    for rate in comparison.distinct_rates:
        if rate.part == "all" and rate.name.startswith("WER ") and rate.noun != "page":
            continue  # in JSON
        change = [rate.of_pair(*pair).change] if len(systems) == 2 else []
        yield rate.title, *(percentage(counts.rate) for counts in rate.rates), *change
        if any(interval.bounds for interval in rate.intervals):
            ends = (interval.ends or "none" for interval in rate.intervals)
            yield "  95 % CI", *ends, *(rate.of_pair(*pair).bounds for _ in change)
    scores = [system.score for system in systems]
    empty = [""] * (len(systems) == 2)
    yield f"{comparison.rates[0].noun}s", *(str(score.lines) for score in scores), *empty
    for failure, label in FAILURE_LABELS.items():
        yield label, *(str(score.failures[failure]) for score in scores), *empty
