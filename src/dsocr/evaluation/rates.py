"""Every rate of several systems side by side, with intervals, and each pair of systems tested.

Rates are those of all lines, of known and of new writers, and under each text normalisation. `decide` judges each pair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import Any, get_args

import numpy as np

from dsocr.evaluation.decide import Verdict, decide
from dsocr.evaluation.metrics import (
    ErrorRate,
    character_errors,
    describe_change,
    finite_or_none,
    format_change_interval,
    pool,
    profiles,
    word_errors,
)
from dsocr.evaluation.page_metrics import grapheme_errors
from dsocr.evaluation.scorecard import PROFILE_LABELS
from dsocr.evaluation.scores import LineScore, WriterStatus
from dsocr.evaluation.statistics import (
    MIN_CLUSTERS,
    Clusters,
    Floats,
    Interval,
    PairedErrors,
    PairedTest,
    Quantity,
    clusters_of,
    difference_interval,
    interval_of,
    withheld_interval,
)
from dsocr.html import counted
from dsocr.text import comparable


@dataclass(frozen=True, slots=True)
class Measure:
    """A rate by name: its count in a line, and its unit; of exact lines, more are better."""

    name: str
    count: Callable[[LineScore], ErrorRate]
    of: Quantity = "characters"
    more_is_better: bool = False


def _count_texts(
    count: Callable[[str, str], ErrorRate], line: LineScore, apply: Callable[[str], str] = str
) -> ErrorRate:
    return count(apply(comparable(line.reference)), apply(comparable(line.prediction)))


CER = Measure("CER", attrgetter("cer"))
LINE_MEASURES = (
    CER,
    Measure("WER", attrgetter("wer"), of="words"),
    Measure("exact lines", lambda line: ErrorRate(int(line.exact), 1), of="lines", more_is_better=True),
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
    """A rate of the second system minus the first's, as a fraction, and the test for this pair, None if there is none.

    `corrected_p` is corrected for all pairs of systems (Holm).
    """

    first: str
    second: str
    difference: float | None
    interval: Interval
    test: PairedTest | None
    corrected_p: float | None
    verdict: Verdict

    @property
    def p(self) -> float | None:
        """The p value before any correction."""
        return None if self.test is None else self.test.p


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
    more_is_better: bool = False

    @property
    def title(self) -> str:
        """The rate and the lines it is of."""
        if self.part == "all":
            return self.name
        unit = self.intervals[0].unit
        who = "unknown writers" if self.part == "unknown" else counted(self.writers, f"{self.part} writer")
        over = "" if unit == "writer" else f" (over {unit}s)"
        return f"{self.name}, {who}, {counted(self.lines, self.noun)}{over}"

    def says_the_same_as(self, others: Sequence["ComparedRate"]) -> bool:
        """Whether another rate of the same lines has the same errors in all systems."""
        before = others[: others.index(self)]
        return any(rate.part == self.part and rate.rates == self.rates for rate in before)

    def of_pair(self, first: str, second: str) -> RateDifference:
        """Return the difference of two systems, in the order in which they were given."""
        return next(
            difference for difference in self.differences if (difference.first, difference.second) == (first, second)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the rate for JSON; rates and differences are fractions."""
        names = ("name", "part", "lines", "writers", "scope", "more_is_better")
        return {name: getattr(self, name) for name in names} | {
            "rates": [
                {"rate": finite_or_none(rate.rate), "count": rate.errors, "length": rate.length} for rate in self.rates
            ],
            "intervals": [asdict(interval) for interval in self.intervals],
            "differences": [asdict(difference) for difference in self.differences],
        }


def compare_rates(readings: Mapping[str, Sequence[LineScore]], measures: Sequence[Measure]) -> list[ComparedRate]:
    """Compare readings of the same lines, in the same order: each measure of all lines, then by writers' status.

    CER and WER are also counted under each text normalisation that changes the lines. New writers have intervals and
    tests from five of them on.
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
        name: np.array([(rate.errors, rate.length) for rate in rates], np.float64).reshape(-1, 2).T
        for name, rates in counts.items()
    }
    lines = next(iter(readings.values()))
    writers = len({line.writer for line in lines} - {None})
    withheld = withheld_interval(writers) if part == "new" and writers < MIN_CLUSTERS else None
    pairs = {
        (first, second): PairedErrors(arrays[first][0], arrays[second][0], arrays[first][1], clusters)
        for first, second in combinations(arrays, 2)
    }
    errors = list(pairs.values())
    if measure.more_is_better:
        errors = [replace(each, first=each.lengths - each.first, second=each.lengths - each.second) for each in errors]
    decisions = decide(errors)
    scope = None
    if clusters.unit != "writer":
        known = "this one writer" if writers == 1 else f"these {writers} writers" if writers else "writers not known"
        scope = f"on {clusters.unit}s by {known}"
    differences = []
    for (names, paired), decision in zip(pairs.items(), decisions, strict=True):
        length = paired.lengths.sum()
        differences.append(
            RateDifference(
                *names,
                difference=float((paired.second - paired.first).sum() / length) if length else None,
                interval=withheld or difference_interval(paired),
                test=None if withheld else decision.test,
                corrected_p=None if withheld else decision.corrected_p,
                verdict="unclear" if withheld and decision.verdict != "same" else decision.verdict,
            )
        )
    return ComparedRate(
        measure.name,
        part,
        len(lines),
        writers,
        tuple(pool(line_counts) for line_counts in counts.values()),
        tuple(withheld or interval_of(pair[0], pair[1], clusters, measure.of) for pair in arrays.values()),
        tuple(differences),
        scope,
        noun="page" if measure in PAGE_MEASURES else "line",
        more_is_better=measure.more_is_better,
    )


def describe_p(p: float, name: str = "p") -> str:
    """Describe a p value with two digits, such as `p = 0.012`; very small ones are only bounded."""
    relation, value = ("<", 1e-4) if p < 5e-5 else ("=", p)
    text = f"{value:.2g}" if value >= 1e-3 else f"{value:.4f}"
    return f"{name} {relation} {text}" if name else f"{'< ' * (relation == '<')}{text}"


def describe_rate_change(rate: ComparedRate, change: RateDifference) -> str:
    """Describe how the second system of a pair differs from the first, such as `8.3 points better`."""
    if change.difference is None:
        return "no text"
    return describe_change(-100 * change.difference if rate.more_is_better else 100 * change.difference)


def describe_bounds(rate: ComparedRate, change: RateDifference) -> str:
    """Describe the interval of a difference, "none" if there is none."""
    if change.interval.bounds is None:
        return "none"
    low, high = (100 * end for end in change.interval.bounds)
    return format_change_interval(-high, -low) if rate.more_is_better else format_change_interval(low, high)
