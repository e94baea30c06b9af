"""How often 95 % intervals hold the truth, on simulated test sets of 5 to 100 writers.

    python benchmarks/intervals.py --repeats 2000

Each writer has a difficulty (lognormal, unless the scene says otherwise), a number of lines (negative binomial, so a
few write most of them) and a tendency to make the model run away; each line has a length, a difficulty and errors
(binomial); a runaway line adds errors from a heavy tail (Pareto 1.5, at most 600), as generation is cut off somewhere.
The truth is the pooled rate of 1.5 million such lines. For the difference of two readings, both read the same lines,
and the second has half the errors, more or less by writer. Compared are the intervals of dsocr with the percentile
bootstrap over writers, and for a single rate with the binomial interval over lines that other tools print; `exact` is
the share of lines without an error. The median width is in points; dsocr refuses an interval where the sample cannot
tell one.

The scale and the degrees of freedom of dsocr's intervals were chosen on the ten scenes below; the third group was
written down before it was run. Words have scenes of their own.

    python benchmarks/intervals.py --scenes ten --repeats 400

`ten` has ten scenes with 5, 10 and 20 writers, and other ways to compute the same intervals beside ours: the
logarithm instead of the cube root; the cluster-robust variance CR2 with the degrees of freedom of Bell and McCaffrey
(2002), of the log rate and of the difference.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dsocr.evaluation.statistics import (
    Clusters,
    Floats,
    Interval,
    PairedErrors,
    difference_interval,
    effective_count,
    interval_of,
    jackknife,
    linear_freedom,
    skew_shift,
    student_quantile,
)
from measuring import processor

RESAMPLES = 1000
AT_ONCE = 250
"""Test sets drawn together, which a few hundred megabytes hold."""


@dataclass(frozen=True)
class Scene:
    """How uneven writers and lines are."""

    lines: int = 20
    uneven: float = 0.8
    hands: float = 0.6
    """The standard deviation of the logarithm of a writer's rate."""
    runaways: float = 0.01
    leaning: float = 0.0
    """How much more those write who are hard to read."""
    rate: float = 0.2
    """Quantity the first reading, runaways aside."""
    better: float = 0.5
    """The second's rate over the first's."""
    gains: float = 0.3
    """How much that differs by writer: the standard deviation of its logarithm."""
    hard: tuple[float, float] = (0.0, 1.0)
    """A share of the writers whose lines are harder than the others by a factor."""
    gamma: bool = False
    """Whether the writers' rates are gamma instead of lognormal."""
    tails: float = np.inf
    """Degrees of freedom of Student's distribution that the logarithms have instead of the normal one."""
    dominant: bool = False
    """Whether one writer in ten has eight times as many lines."""


FIRST = {
    "even writers, no runaways": Scene(uneven=0.3, runaways=0),
    "uneven writers, no runaways": Scene(runaways=0),
    "1 % runaways": Scene(),
    "4 lines a writer": Scene(lines=4),
    "very unlike hands": Scene(hands=1.0),
    "the hard hands write most": Scene(leaning=0.4),
}
SECOND = {
    "hands alike, little gained": Scene(hands=0.3, runaways=0.002, better=0.9),
    "3 % runaways": Scene(lines=12, uneven=0.5, runaways=0.03),
    "easy, 0.3 % runaways": Scene(lines=30, rate=0.06, runaways=0.003),
    "hard, unlike hands": Scene(uneven=1.2, hands=0.8, rate=0.4, better=0.7),
    "the easy hands write most": Scene(lines=10, leaning=-0.3),
    "8 lines, the hard write more": Scene(lines=8, runaways=0.005, leaning=0.25),
    "gamma hands, very uneven": Scene(uneven=1.5, hands=0.7, gamma=True),
    "7 lines, 2 % runaways": Scene(lines=7, uneven=1.0, runaways=0.02),
    "no gain": Scene(better=1.0),
    "no gain, 4 lines": Scene(lines=4, better=1.0),
    "a loss, unlike hands": Scene(hands=0.8, runaways=0.003, better=1.3),
    "a fifth of the hands six times as hard": Scene(lines=15, hands=0.3, hard=(0.2, 6.0)),
}
THIRD = {
    "even pages of like hands": Scene(lines=25, uneven=0.2, hands=0.35, runaways=0.001, rate=0.15, gains=0.2),
    "hard letters": Scene(lines=30, uneven=1.0, hands=0.7, runaways=0.005, rate=0.35, better=0.4),
    "5 lines, 3 % runaways": Scene(lines=5, hands=0.5, runaways=0.03),
    "near print": Scene(lines=15, hands=0.8, runaways=0.002, rate=0.03),
    "the hard hands write far more": Scene(lines=12, hands=0.7, leaning=0.6),
    "some odd hands": Scene(lines=10, hands=0.5, runaways=0.005, tails=4),
    "a fifth of the hands thrice as hard": Scene(lines=15, hands=0.3, hard=(0.2, 3.0)),
    "no gain, 10 lines": Scene(lines=10, hands=0.5, better=1.0),
    "a small loss": Scene(hands=0.7, runaways=0.004, better=1.2),
    "gains very unlike": Scene(runaways=0.005, better=0.7, gains=0.8),
}
GROUPS: dict[str, tuple[Mapping[str, Scene], tuple[int, ...]]] = {
    "first": (FIRST, (5, 6, 8, 12, 20, 50, 100)),
    "second": (SECOND, (5, 7, 10, 15, 30, 70)),
    "third": (THIRD, (5, 7, 9, 14, 25, 40, 80)),
}
TEN = {
    "writers alike": Scene(lines=25, uneven=0.2, hands=0.15, runaways=0, rate=0.15, gains=0.1),
    "every tenth writer has eight times the lines": Scene(dominant=True, hands=0.4, runaways=0),
    "even writers, no runaways": FIRST["even writers, no runaways"],
    "1 % runaways": FIRST["1 % runaways"],
    "4 lines a writer": FIRST["4 lines a writer"],
    "very unlike hands": FIRST["very unlike hands"],
    "the hard hands write most": FIRST["the hard hands write most"],
    "near print": THIRD["near print"],
    "some odd hands": THIRD["some odd hands"],
    "a fifth of the hands six times as hard": SECOND["a fifth of the hands six times as hard"],
}
WORDS = {
    "1 % runaways": Scene(),
    "4 lines a writer": Scene(lines=4, rate=0.1),
    "easy hands": Scene(rate=0.04, runaways=0.003),
    "hard hands": Scene(rate=0.5, hands=0.4, runaways=0.003),
    "very unlike hands": Scene(hands=1.0),
    "3 % runaways": Scene(lines=10, rate=0.3, runaways=0.03),
}
KINDS = ("rate: dsocr", "percentile", "binomial", "difference: dsocr", "percentile", "exact: dsocr")


@dataclass(frozen=True)
class Drawn:
    """Lines, writer by writer: errors of the first reading, of the second, lengths, and who wrote each."""

    one: Floats
    two: Floats
    lengths: Floats
    of_line: NDArray[np.intp]

    def __getitem__(self, lines: slice) -> "Drawn":
        whose = self.of_line[lines]
        return Drawn(self.one[lines], self.two[lines], self.lengths[lines], whose - whose[0])

    @property
    def truths(self) -> tuple[float, float, float]:
        """The second's pooled rate, what it is more than the first's, and the share of lines that it reads exactly."""
        rate = self.two.sum() / self.lengths.sum()
        return float(rate), float(rate - self.one.sum() / self.lengths.sum()), float((self.two == 0).mean())


def draw(scene: Scene, writers: int, random: np.random.Generator) -> Drawn:
    """Lines of the given number of writers."""
    hard = random.normal(size=writers)
    if np.isfinite(scene.tails):
        hard = random.standard_t(scene.tails, writers) * np.sqrt(1 - 2 / scene.tails)
    lines = random.negative_binomial(1 / scene.uneven, 1 / (1 + scene.uneven * scene.lines), writers)
    lines = np.minimum(1 + lines, 10 * scene.lines) * np.exp(scene.leaning * hard)
    if scene.dominant:
        lines *= np.where(np.arange(writers) % 10 == 0, 8, 1)
    of_line = np.repeat(np.arange(writers), np.maximum(1, lines.round().astype(int)))
    count = of_line.size
    lengths = random.integers(12, 60, count)
    hands = np.exp(scene.hands * hard - scene.hands**2 / 2)
    if scene.gamma:
        hands = random.gamma(scene.hands**-2, scene.hands**2, writers)
    share, times = scene.hard
    hands *= np.where(random.random(writers) < share, times, 1) / (1 + share * (times - 1))
    hands = np.minimum(scene.rate * hands, 0.95)
    spread = np.exp(scene.gains * random.normal(size=writers) - scene.gains**2 / 2)
    better = np.minimum(scene.better * spread, 3)
    difficulty = random.gamma(2, 0.5, count)
    readings = []
    for rates in (hands, hands * better):
        errors = random.binomial(lengths, np.clip(rates[of_line] * difficulty, 0, 1)).astype(float)
        tendency = np.exp(random.normal(size=writers) - 0.5)
        runs = np.flatnonzero(random.random(count) < scene.runaways * tendency[of_line])
        errors[runs] += np.minimum((lengths[runs] * (1 + random.pareto(1.5, runs.size))).astype(int), 600)
        readings.append(errors)
    return Drawn(readings[0], readings[1], lengths.astype(float), of_line)


Draw = Callable[[Scene, int, np.random.Generator], Drawn]


def sets(scene: Scene, writers: int, repeats: int, random: np.random.Generator, draw: Draw = draw) -> Iterator[Drawn]:
    """Test sets with the given number of writers each."""
    for start in range(0, repeats, AT_ONCE):
        many = min(AT_ONCE, repeats - start)
        drawn = draw(scene, many * writers, random)
        edges = np.searchsorted(drawn.of_line, np.arange(many + 1) * writers)
        for first, last in pairwise(edges):
            yield drawn[first:last]


def draw_words(scene: Scene, writers: int, random: np.random.Generator) -> Drawn:
    """Words as `two` and as `lengths`, where a word of six characters is wrong if one of them is; no first reading."""
    hard = random.normal(size=writers)
    lines = random.negative_binomial(1 / scene.uneven, 1 / (1 + scene.uneven * scene.lines), writers)
    of_line = np.repeat(np.arange(writers), np.minimum(1 + lines, 10 * scene.lines))
    words = random.integers(3, 11, of_line.size)
    hands = np.minimum(scene.rate * np.exp(scene.hands * hard - scene.hands**2 / 2), 0.95)
    wrong = np.clip(hands[of_line] * random.gamma(2, 0.5, of_line.size), 0, 1)
    errors = random.binomial(words, 1 - (1 - wrong) ** 6).astype(float)
    runs = np.flatnonzero(random.random(of_line.size) < scene.runaways)
    errors[runs] += np.minimum((words[runs] * (1 + random.pareto(1.5, runs.size))).astype(int), 100)
    return Drawn(errors, errors, words.astype(float), of_line)


def percentile(parts: Floats, lengths: Floats, clusters: Clusters, times: NDArray[np.int64]) -> Interval:
    """The plain bootstrap over writers; `times` counts how often each is drawn."""
    low, high = np.quantile((times @ clusters.sums(parts)) / (times @ clusters.sums(lengths)), [0.025, 0.975])
    return Interval(float(low), float(high), 0.95, "writer", clusters.count)


def binomial(parts: Floats, lengths: Floats) -> Interval:
    """1.96 sqrt(r (1 - r) / lines) to either side, as if the rate were a share of the lines."""
    rate = parts.sum() / lengths.sum()
    reach = 1.96 * np.sqrt(max(rate * (1 - rate), 0) / len(parts))
    return Interval(float(rate - reach), float(rate + reach), 0.95, "line", len(parts))


class Cell:
    """How often intervals of one kind held the truth, and how wide they were."""

    def __init__(self) -> None:
        self.below = self.above = self.refused = 0
        self.widths: list[float] = []

    def add(self, interval: Interval, truth: float) -> None:
        """Count one interval, or that there is none."""
        if interval.low is None or interval.high is None:
            self.refused += 1
            return
        self.below += truth < interval.low
        self.above += truth > interval.high
        self.widths.append(100 * (interval.high - interval.low))

    @property
    def held(self) -> float:
        """In per cent of the intervals that were given."""
        return 100 * (1 - (self.below + self.above) / max(1, len(self.widths)))

    def __str__(self) -> str:
        refused = f", {self.refused} refused" if self.refused else ""
        return f"{self.held:.1f} % ({np.median(self.widths) if self.widths else 0:.1f}{refused})"


def measure(scene: Scene, writers: int, repeats: int, truths: tuple[float, float, float]) -> list[Cell]:
    """A cell for each kind of interval."""
    cells = [Cell() for _ in KINDS]
    rate, difference, share = truths
    random = np.random.default_rng(writers)
    times = random.multinomial(writers, np.full(writers, 1 / writers), RESAMPLES)
    for drawn in sets(scene, writers, repeats, random):
        clusters = Clusters("writer", drawn.of_line)
        paired = PairedErrors(drawn.one, drawn.two, drawn.lengths, clusters)
        exact = (drawn.two == 0).astype(float)
        intervals = (
            (interval_of(drawn.two, drawn.lengths, clusters), rate),
            (percentile(drawn.two, drawn.lengths, clusters, times), rate),
            (binomial(drawn.two, drawn.lengths), rate),
            (difference_interval(paired), difference),
            (percentile(drawn.two - drawn.one, drawn.lengths, clusters, times), difference),
            (interval_of(exact, np.ones_like(exact), clusters, of="lines"), share),
        )
        for cell, (interval, truth) in zip(cells, intervals, strict=True):
            cell.add(interval, truth)
    return cells


def run(groups: list[str], repeats: int, say: Callable[[str], None]) -> None:
    """Print a table and its summary for each group of scenes."""
    for group in groups:
        scenes, sizes = GROUPS[group]
        say(f"The {group} scenes\n\n| scene | writers | {' | '.join(KINDS)} |\n|---|---:|{'---:|' * len(KINDS)}")
        columns: list[list[Cell]] = [[] for _ in KINDS]
        for name, scene in scenes.items():
            truths = draw(scene, 1_500_000 // scene.lines, np.random.default_rng(1)).truths
            for writers in sizes:
                cells = measure(scene, writers, repeats, truths)
                say(f"| {name} | {writers} | {' | '.join(map(str, cells))} |")
                for column, cell in zip(columns, cells, strict=True):
                    column.append(cell)
        say("")
        for kind, column in zip(KINDS, columns, strict=True):
            say(f"{kind}: {_summary(column)}")
        say("")


def cr2(part: Floats, whole: Floats) -> tuple[float, float]:
    """The cluster-robust standard error CR2 of a ratio of sums, and its degrees of freedom (equations 6 and 11)."""
    share = whole / whole.sum()
    residuals = (part - part.sum() * share) / whole.sum()
    return math.sqrt(float((residuals**2 / (1 - share)).sum())), linear_freedom(whole)


def log_interval(part: Floats, whole: Floats, *, robust: bool) -> Interval:
    """An interval of the log rate, by CR2 if `robust`, else by the jackknife with our degrees of freedom and shift."""
    rate, least = float(part.sum() / whole.sum()), min(0.5, float(part[part > 0].min()) / 2)
    if robust:
        error, freedom = cr2(part, whole)
        middle, error = math.log(rate), error / rate
    else:
        error, freedom = jackknife(part, whole, lambda part, whole: np.log(np.maximum(part, least) / whole))
        middle = math.log(rate) + skew_shift(1, effective_count(whole)) * error
    reach = min(student_quantile(freedom) * error, 100)
    return Interval(math.exp(middle - reach), math.exp(middle + reach), 0.95, "writer", len(part))


def cr2_difference(paired: PairedErrors) -> Interval:
    """The interval of a difference by CR2."""
    change, length = paired.clusters.sums(paired.second - paired.first), paired.clusters.sums(paired.lengths)
    error, freedom = cr2(change, length)
    reach, difference = student_quantile(freedom) * error, float(change.sum() / length.sum())
    return Interval(difference - reach, difference + reach, 0.95, "writer", len(change))


def run_ten(repeats: int, say: Callable[[str], None]) -> None:
    """Print coverage and width on the ten scenes, beside other ways to compute the intervals."""
    kinds = ["rate: dsocr", "logarithm", "log CR2", "difference: dsocr", "CR2"]
    say(f"| scene | writers | {' | '.join(kinds)} |\n|---|---:|{'---:|' * len(kinds)}")
    columns: list[list[Cell]] = [[] for _ in kinds]
    for name, scene in TEN.items():
        rate, difference, _ = draw(scene, 1_500_000 // scene.lines, np.random.default_rng(1)).truths
        for writers in (5, 10, 20):
            cells = [Cell() for _ in kinds]
            for drawn in sets(scene, writers, repeats, np.random.default_rng(writers)):
                clusters = Clusters("writer", drawn.of_line)
                part, whole = clusters.sums(drawn.two), clusters.sums(drawn.lengths)
                paired = PairedErrors(drawn.one, drawn.two, drawn.lengths, clusters)
                intervals = (
                    (interval_of(drawn.two, drawn.lengths, clusters), rate),
                    (log_interval(part, whole, robust=False), rate),
                    (log_interval(part, whole, robust=True), rate),
                    (difference_interval(paired), difference),
                    (cr2_difference(paired), difference),
                )
                for cell, (interval, truth) in zip(cells, intervals, strict=True):
                    cell.add(interval, truth)
            say(f"| {name} | {writers} | {' | '.join(map(str, cells))} |")
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
    say("")
    for kind, column in zip(kinds, columns, strict=True):
        say(f"{kind}: {_summary(column)}")
    say("")


def run_words(repeats: int, say: Callable[[str], None]) -> None:
    """Print a table of word error rates."""
    kinds = ("words: dsocr", "percentile")
    say(f"Words\n\n| scene | WER | writers | {' | '.join(kinds)} |\n|---|---:|---:|---:|---:|")
    columns: list[list[Cell]] = [[], []]
    for name, scene in WORDS.items():
        truth = draw_words(scene, 1_500_000 // scene.lines, np.random.default_rng(1)).truths[0]
        for writers in (5, 8, 15, 40):
            random, cells = np.random.default_rng(writers), (Cell(), Cell())
            times = random.multinomial(writers, np.full(writers, 1 / writers), RESAMPLES)
            for drawn in sets(scene, writers, repeats, random, draw_words):
                clusters = Clusters("writer", drawn.of_line)
                cells[0].add(interval_of(drawn.two, drawn.lengths, clusters, of="words"), truth)
                cells[1].add(percentile(drawn.two, drawn.lengths, clusters, times), truth)
            say(f"| {name} | {truth:.0%} | {writers} | {cells[0]} | {cells[1]} |")
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
    say("")
    for kind, column in zip(kinds, columns, strict=True):
        say(f"{kind}: {_summary(column)}")


def _summary(cells: list[Cell]) -> str:
    held = [cell.held for cell in cells]
    low, high = sum(value < 92 for value in held), sum(value > 98 for value in held)
    given = sum(len(cell.widths) for cell in cells)
    missed = [100 * sum(getattr(cell, side) for cell in cells) / max(1, given) for side in ("below", "above")]
    return (
        f"{len(cells) - low - high} of {len(cells)} cells hold 92 to 98 %, {low} less, {high} more; "
        f"from {min(held):.1f} to {max(held):.1f} %; the truth is below {missed[0]:.1f} % of them and above "
        f"{missed[1]:.1f} %; {sum(cell.refused for cell in cells)} refused"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--scenes", nargs="+", choices=[*GROUPS, "words", "ten"], default=[*GROUPS, "words"])
    arguments = parser.parse_args()
    print(f"{processor()}; {arguments.repeats} repeats\n", flush=True)
    run(
        [group for group in arguments.scenes if group in GROUPS],
        arguments.repeats,
        lambda line: print(line, flush=True),
    )
    if "words" in arguments.scenes:
        run_words(arguments.repeats, lambda line: print(line, flush=True))
    if "ten" in arguments.scenes:
        run_ten(arguments.repeats, lambda line: print(line, flush=True))
