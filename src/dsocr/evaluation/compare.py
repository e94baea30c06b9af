"""Compare systems that read the same lines: which is better, by how much, and whether the difference is significant."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dsocr import __version__
from dsocr.document import PackedImage
from dsocr.errors import DataError, option
from dsocr.evaluation.metrics import (
    ErrorRate,
    describe_change,
    finite_or_none,
    format_change_interval,
    percentage,
    pool,
)
from dsocr.evaluation.rates import (
    CER,
    LINE_MEASURES,
    PAGE_MEASURES,
    SIGNIFICANCE,
    ComparedRate,
    RateDifference,
    compare_rates,
    describe_bounds,
    describe_p,
    describe_rate_change,
)
from dsocr.evaluation.scorecard import PROFILE_LABELS, align_columns, shorten
from dsocr.evaluation.scores import FAILURE_LABELS, LineScore, Score, align_readings
from dsocr.evaluation.statistics import (
    LEVEL,
    MIN_CLUSTERS,
    Clusters,
    ClusterUnit,
    Interval,
    PairedErrors,
    PermutationTest,
    TypicalRatio,
    clusters_of,
    difference_interval,
    permutation_test,
    sign_test,
    typical_ratio,
)

Verdict = Literal["better", "worse", "unclear", "too few", "same"]
"""How a system compares with the first: "too few" if so few clusters could never be significant."""

_DOMINANT_SHARE = 0.2
"""A single line with at least this share of all errors is reported."""

_NUMBERS = PROFILE_LABELS["digits_only"]
_MAX_LINES_IN_JSON = 100
_MAX_GROUPS_IN_TABLE = 20
_MAX_LINES_IN_TEXT = 5


@dataclass(frozen=True)
class System:
    """A system to compare: its name, its scored lines, and notes on where they come from.

    `trained` if it is a training of ours, whose result another seed would change. `seeds` are the CERs of several
    trainings that differ in seed alone, each of which has read every line of `lines`.
    """

    name: str
    lines: Sequence[LineScore]
    notes: Sequence[str] = ()
    trained: bool = False
    seeds: Sequence[float] = ()

    @cached_property
    def score(self) -> Score:
        """The pooled score with intervals."""
        return Score.compute(self.lines, intervals=True)


@dataclass(frozen=True, slots=True)
class ComparedGroup:
    """The lines of one writer (or page, if few writers are known), and their CER by each system."""

    name: str
    lines: int
    cers: Sequence[ErrorRate]


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
        return {
            **{name: getattr(self.last, name) for name in ("id", "writer", "page", "reference")},
            "first": self.scores[0].prediction,
            "second": self.last.prediction,
            "errors_saved": self.saved,
        }


def read_lines(readings: Iterable[Sequence[LineScore]]) -> list[ReadLine]:
    """Pair the lines of readings of the same split, all in the same order."""
    return [ReadLine(number, scores) for number, scores in enumerate(zip(*readings, strict=True), start=1)]


@dataclass(frozen=True, slots=True)
class Difference:
    """A system compared with the first.

    `interval` is that of its CER minus the first's, in fractions, `typical` the median difference over groups, `ratio` what happens to a typical writer or page (None over single lines).
    `groups` counts the writers (pages, lines) on which it is better, worse and the same; `sign_p` is the p value of
    their sign test. `scope` says what the result is about if fewer than five writers are known, else it is None.
    `improved` and `worsened` hold all changed lines, largest change first. `rate` is the difference among those of all
    pairs, whose p values are corrected together, and `measure` its name.
    """

    first: System
    second: System
    interval: Interval
    permutation: PermutationTest
    groups: tuple[int, int, int]
    typical: float | None
    ratio: TypicalRatio | None
    sign_p: float
    scope: str | None
    improved: Sequence[ReadLine]
    worsened: Sequence[ReadLine]
    rate: RateDifference
    measure: str

    @property
    def difference(self) -> float:
        """The second system's CER minus the first's, as a fraction; negative if the second is better."""
        return self.second.score.cer.rate - self.first.score.cer.rate

    @property
    def verdict(self) -> Verdict:
        """Better or worse if the permutation test is significant and the interval, if there is one, excludes zero."""
        if not self.improved and not self.worsened:
            return "same"
        if self.permutation.smallest_p * self.rate.comparisons > SIGNIFICANCE or self.interval.clusters < MIN_CLUSTERS:
            return "too few"
        return self.rate.verdict

    @property
    def typical_verdict(self) -> Verdict | None:
        """The verdict on a typical writer or page, by the Wilcoxon signed-rank test; None over single lines.

        A loop decides the pooled CER and hardly moves this one, and each writer counts the same. Of several pairs, p
        counts times their number.
        """
        if self.ratio is None or self.verdict == "same":
            return None if self.ratio is None else "same"
        if self.ratio.low is None or self.ratio.smallest_p * self.rate.comparisons > SIGNIFICANCE:
            return "too few"
        if self.ratio.p * self.rate.comparisons > SIGNIFICANCE:
            return "unclear"
        return "better" if self.ratio.ratio < 1 else "worse"

    @property
    def without_runaways(self) -> tuple[int, ErrorRate, ErrorRate]:
        """The number of lines that ran away in either reading, and both CERs over all others."""
        pairs = zip(self.first.lines, self.second.lines, strict=True)
        kept = [(first.cer, second.cer) for first, second in pairs if not first.runaway and not second.runaway]
        first, second = (pool(pair[place] for pair in kept) for place in (0, 1))
        return len(self.first.lines) - len(kept), first, second

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        unit, (better, worse, same) = self.interval.unit, self.groups
        first, second, total = self.first.name, self.second.name, better + worse + same
        units = f"{unit}{'' if total == 1 else 's'}"
        if self.verdict == "same":
            return f"{second} makes as many errors as {first} on every line"
        if self.verdict in {"better", "worse"}:
            count = better if self.verdict == "better" else worse
            scope = f"{self.scope}, " if self.scope else ""
            text = f"{scope}{second} is {self.verdict} than {first}: {self.verdict} on {count} of {total} {units}"
        elif self.verdict == "unclear":
            text = f"no clear difference on {total} {units}: {second} is better on {better}, worse on {worse}"
        else:
            text = f"too few {unit}s to decide: {second} is better on {better} of {total}, worse on {worse}"
        cers = " \N{RIGHTWARDS ARROW} ".join(
            f"{100 * system.score.cer.rate:.1f}" for system in (self.first, self.second)
        )
        text += f"; {self.measure} {cers} %, {describe_change(100 * self.difference)}"
        if self.interval.bounds is None:
            return f"{text}, without an interval: {self.interval.reason}"
        low, high = self.interval.bounds
        return f"{text} ({100 * self.interval.level:.0f} % CI {format_change_interval(100 * low, 100 * high)})"

    @property
    def test_results(self) -> list[str]:
        """The permutation test, and the median difference with the sign test, as sentences."""
        if self.verdict == "same":
            return []
        unit, kind = self.interval.unit, "exact" if self.permutation.exact else "random swaps"
        result = f"paired permutation test over {unit}s: {describe_p(self.permutation.p)} ({kind})"
        if self.rate.corrected_p is not None and self.rate.corrected_p != self.permutation.p:
            result += f", {describe_p(self.rate.corrected_p)} corrected for all pairs (Holm)"
        results = [result]
        if self.typical is not None:
            results.append(
                f"median {unit}: {describe_change(100 * self.typical)}; sign test: {describe_p(self.sign_p)}"
            )
        if self.ratio is not None:
            results.append(self._describe_typical(self.ratio))
        lines, first, second = self.without_runaways
        if lines:
            kept = f"without the {lines} line{'' if lines == 1 else 's'} on which either ran away"
            results.append(f"{kept}: CER {100 * first.rate:.1f} → {100 * second.rate:.1f} %")
        return results

    def _describe_typical(self, ratio: TypicalRatio) -> str:
        unit = self.interval.unit
        verdict = {"unclear": "no clear difference", "too few": f"too few {unit}s to decide"}
        sentence = verdict.get(str(self.typical_verdict), str(self.typical_verdict))
        scope = f" {self.scope.removeprefix(f'on {unit}s ')}" if self.scope else ""
        changes = [100 * (1 - bound) for bound in (ratio.ratio, ratio.high, ratio.low) if bound is not None]
        more = changes[0] < 0
        change, *ends = [-change for change in changes] if more else changes
        interval = f", {100 * LEVEL:.0f} % CI {min(ends):.0f} to {max(ends):.0f} %" if ends else ""
        errors = f"{change:.0f} % {'more' if more else 'fewer'} errors{interval}"
        test = f"Wilcoxon signed-rank test over {unit}s: {describe_p(ratio.p)}"
        return f"typical {unit}{scope}: {sentence}, {errors} ({test})"

    def to_dict(self) -> dict[str, Any]:
        """Return the difference for JSON, with the hundred lines that changed most either way."""
        better, worse, same = self.groups
        lines, first_cer, second_cer = self.without_runaways
        return {
            "first": self.first.name,
            "second": self.second.name,
            "verdict": self.verdict,
            "scope": self.scope,
            "summary": self.summary,
            "difference": finite_or_none(self.difference),
            "interval": asdict(self.interval),
            "permutation_test": asdict(self.permutation),
            "corrected_p": self.rate.corrected_p,
            "groups": {"better": better, "worse": worse, "same": same},
            "typical_difference": self.typical,
            "typical": self.ratio
            and {"verdict": self.typical_verdict, "test": "Wilcoxon signed-rank", **asdict(self.ratio)},
            "without_runaways": {
                "lines": lines,
                "first": finite_or_none(first_cer.rate),
                "second": finite_or_none(second_cer.rate),
            },
            "sign_test": self.sign_p,
            "improved_lines": [line.to_dict() for line in self.improved[:_MAX_LINES_IN_JSON]],
            "worsened_lines": [line.to_dict() for line in self.worsened[:_MAX_LINES_IN_JSON]],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Systems that read the same lines, the others compared with the first.

    `groups` are writers or pages, the most improved by the last system first; empty if every line counts by itself.
    `rates` are all rates side by side, of which the first decides the verdicts. `cautions` say what the numbers do not
    show. `images` are those of the lines by id, as far as they are known.
    """

    systems: Sequence[System]
    differences: Sequence[Difference]
    groups: Sequence[ComparedGroup]
    unit: ClusterUnit
    clusters: int
    cautions: Sequence[str]
    rates: Sequence[ComparedRate]
    images: Mapping[str, Path | PackedImage] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    dsocr_version: str = __version__

    @property
    def is_of_pages(self) -> bool:
        """Whether whole pages were compared, whatever their lines."""
        return self.rates[0].noun == "page"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON; the CERs of a group are in the order of the systems."""
        return {
            "summaries": [difference.summary for difference in self.differences],
            "unit": self.unit,
            "clusters": self.clusters,
            "cautions": list(self.cautions),
            "systems": [
                {"name": system.name, **system.score.to_dict(), "notes": list(system.notes)} for system in self.systems
            ],
            "differences": [difference.to_dict() for difference in self.differences],
            "rates": [rate.to_dict() for rate in self.rates],
            "groups": [
                {"name": group.name, "lines": group.lines, "cers": [finite_or_none(cer.rate) for cer in group.cers]}
                for group in self.groups
            ],
            "about": dict(self.about),
            "created_at": self.created_at,
            "dsocr_version": self.dsocr_version,
        }


def compare(
    systems: Sequence[System],
    *,
    images: Mapping[str, Path | PackedImage] | None = None,
    about: Mapping[str, Any] | None = None,
    pages: bool = False,
) -> Comparison:
    """Compare systems with the first of them.

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
    rates = compare_rates(aligned, PAGE_MEASURES if pages else LINE_MEASURES)
    return Comparison(
        systems=systems,
        differences=[_difference(first, system, clusters, rates[0]) for system in systems[1:]],
        groups=_group(systems, clusters),
        unit=clusters.unit,
        clusters=clusters.count,
        rates=rates,
        cautions=[
            *_cluster_cautions(first.lines, clusters),
            *_dominant_line_cautions(systems, "page" if pages else "line"),
            *_normalisation_cautions(systems, rates),
            *_training_cautions(systems),
        ],
        images=images or {},
        about=about or {},
    )


def _difference(first: System, second: System, clusters: Clusters, rate: ComparedRate) -> Difference:
    lines = read_lines([first.lines, second.lines])
    counts = [(line.scores[0].cer.errors, line.last.cer.errors, line.last.cer.length) for line in lines]
    first_errors, second_errors, lengths = np.array(counts, dtype=np.float64).T
    paired = PairedErrors(first_errors, second_errors, lengths, clusters)
    changes, length = clusters.sums(paired.second - paired.first), clusters.sums(paired.lengths)
    better, worse, same = (int(np.sum(part)) for part in (changes < 0, changes > 0, changes == 0))
    changed = sorted(lines, key=lambda line: -abs(line.saved))
    return Difference(
        first=first,
        second=second,
        interval=difference_interval(paired),
        permutation=permutation_test(paired),
        groups=(better, worse, same),
        typical=float(np.median(changes[length > 0] / length[length > 0])) if length.any() else None,
        ratio=typical_ratio(paired),
        sign_p=sign_test(better, worse),
        scope=rate.scope,
        improved=[line for line in changed if line.saved > 0],
        worsened=[line for line in changed if line.saved < 0],
        rate=rate.of_pair(first.name, second.name),
        measure=rate.name,
    )


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


def _cluster_cautions(lines: Sequence[LineScore], clusters: Clusters) -> Iterator[str]:
    """Yield what the intervals do not cover; nothing if they are over writers."""
    unit = clusters.unit
    if unit == "writer":
        return
    if count := len({line.writer for line in lines} - {None}):
        writers = "this writer" if count == 1 else f"these {count} writers"
        yield f"the intervals are over {unit}s: they hold for other {unit}s by {writers}, not for other writers"
    else:
        yield f"the intervals are over {unit}s, as no writers are known; they are too narrow if a writer has several"


def _dominant_line_cautions(systems: Sequence[System], noun: str) -> Iterator[str]:
    """Yield where a single line, such as a loop, dominates the pooled rate."""
    for system in systems:
        worst = max(system.lines, key=lambda line: line.cer.errors)
        share = worst.cer.errors / max(1, system.score.cer.errors)
        if len(system.lines) >= MIN_CLUSTERS and share >= _DOMINANT_SHARE:
            yield f"{100 * share:.0f} % of all errors of {system.name} are in one {noun}, {worst.id}"


def _normalisation_cautions(systems: Sequence[System], rates: Sequence[ComparedRate]) -> Iterator[str]:
    """Yield where a verdict rests on what a normalisation takes away, such as е written for ё."""
    plain, first = rates[0], systems[0].name
    for rate in rates:
        if rate.part != "all" or not rate.name.startswith(f"{CER.name} ") or rate.name.endswith(_NUMBERS):
            continue  # of another rate, or of other text
        for system in systems[1:]:
            before, after = (measure.of_pair(first, system.name) for measure in (plain, rate))
            if before.verdict == after.verdict or after.difference is None:
                continue
            kind = f"is {after.verdict} than" if after.verdict != "unclear" else "is not clearly different from"
            change = describe_change(100 * after.difference)
            scope = f"{plain.scope}, " if plain.scope else ""
            yield f"{scope}{rate.name.removeprefix(f'{CER.name} ')}, {system.name} {kind} {first}: {change}"


def _training_cautions(systems: Sequence[System]) -> Iterator[str]:
    """Yield what training again would change, which no interval covers."""
    for system in systems:
        if system.seeds:
            cers = ", ".join(f"{100 * cer:.1f}" for cer in system.seeds)
            spread = 100 * float(np.std(system.seeds, ddof=1))
            yield (
                f"{len(system.seeds)} trainings that differ in seed alone are {system.name}: CER {cers} %, standard "
                f"deviation {spread:.1f} points; every line counts once for each, and the intervals are of their mean"
            )
    if names := [system.name for system in systems if system.trained]:
        each = "one training" if len(names) == 1 else "one training each"
        which = f"{', '.join(names)}, {each}"
        yield f"what another seed would change is not in the intervals of {which} (--pool-seeds counts several)"


def render_comparison(comparison: Comparison) -> str:
    """Return the comparison as text: verdicts, scores, writers, and the lines that changed most."""
    blocks = [
        "\n".join("\n  ".join([difference.summary, *difference.test_results]) for difference in comparison.differences)
    ]
    if comparison.cautions:
        blocks.append("\n".join(f"note: {caution}" for caution in comparison.cautions))
    names = [system.name for system in comparison.systems]
    blocks.append(align_columns(list(_rate_table(comparison))))
    if len(names) > 2:
        blocks.append(align_columns(list(_pair_table(comparison))))
    if comparison.groups:
        blocks.append(align_columns(list(_group_table(comparison, names))))
    for difference in comparison.differences:
        changes = {"better": difference.improved, "worse": difference.worsened}
        blocks += [_changed_lines(kind, lines, difference) for kind, lines in changes.items() if lines]
    notes = [f"{system.name}: {'; '.join(system.notes)}" for system in comparison.systems if system.notes]
    return "\n\n".join([*blocks, "\n".join(notes)]).rstrip() + "\n"


def _rate_table(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield every rate, with the difference if there are only two systems, then counts of lines and failures."""
    systems, main = comparison.systems, {"CER", "WER", "exact lines"}
    pair = systems[0].name, systems[-1].name
    yield "", *(system.name for system in systems), *(["difference"] if len(systems) == 2 else [])
    for rate in comparison.rates:
        if rate.part == "all" and rate.name not in main and rate.says_the_same_as(comparison.rates):
            continue
        if rate.part == "all" and rate.name.startswith("WER ") and not comparison.is_of_pages:
            continue  # in JSON and CSV
        change = [describe_rate_change(rate, rate.of_pair(*pair))] if len(systems) == 2 else []
        yield rate.title, *(percentage(counts.rate) for counts in rate.rates), *change
        if any(interval.bounds for interval in rate.intervals):
            bounds = [interval.bounds for interval in rate.intervals]
            ends = [f"{100 * bound[0]:.1f} to {100 * bound[1]:.1f} %" if bound else "none" for bound in bounds]
            yield "  95 % CI", *ends, *(describe_bounds(rate, rate.of_pair(*pair)) for _ in change)
    scores = [system.score for system in systems]
    empty = [""] * (len(systems) == 2)
    yield f"{comparison.rates[0].noun}s", *(str(score.lines) for score in scores), *empty
    for failure, label in FAILURE_LABELS.items():
        yield label, *(str(score.failures[failure]) for score in scores), *empty


def _pair_table(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield every pair of systems, tested on the first rate."""
    rate = comparison.rates[0]
    yield f"{rate.name}, all pairs", "difference", "95 % CI", "p", "p corrected (Holm)"
    for difference in rate.differences:
        ps = ("" if p is None else describe_p(p, name="") for p in (difference.p, difference.corrected_p))
        yield (
            f"{difference.second} against {difference.first}",
            describe_rate_change(rate, difference),
            describe_bounds(rate, difference),
            *ps,
        )


def _group_table(comparison: Comparison, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield comparison.unit, f"{comparison.rates[0].noun}s", *names
    groups, half = comparison.groups, _MAX_GROUPS_IN_TABLE // 2
    for place, group in enumerate(groups):
        if half <= place < len(groups) - half:
            if place == half:
                yield f"... {len(groups) - _MAX_GROUPS_IN_TABLE} more ...", "", *("" for _ in names)
            continue
        cers = (f"{cer.rate:.1%}" if cer.length else "no text" for cer in group.cers)
        yield shorten(group.name, 40), str(group.lines), *cers


def _changed_lines(kind: str, changes: Sequence[ReadLine], difference: Difference) -> str:
    first, second = difference.first.name, difference.second.name
    noun = "Lines" if difference.measure == CER.name else "Pages"
    lines = [f"{noun} that {second} reads {kind} than {first}: {len(changes)}"]
    width = max(map(len, ("reference", first, second)))
    for change in changes[:_MAX_LINES_IN_TEXT]:
        before, after = change.scores
        lines.append(f"  {before.id}: {before.cer.errors} -> {after.cer.errors} errors")
        texts = (("reference", before.reference), (first, before.prediction), (second, after.prediction))
        lines += [f"    {name:<{width}}  {shorten(text)}" for name, text in texts]
    return "\n".join(lines)
