"""Measure how often 95 % intervals hold the truth, on simulated test sets of 5, 10 and 20 writers.

    python benchmarks/intervals.py --repeats 2000

Each writer has a difficulty (lognormal, unless the scene says otherwise), a number of lines (negative binomial, so a
few write most of them) and a tendency to make the model run away; each line has a length, a difficulty and errors
(binomial); a runaway line adds errors from a heavy tail (Pareto 1.5, at most 600). The truth is the pooled rate of 1.5
million such lines. For the difference of two readings, both read the same lines, and the second has half the errors,
more or less by writer. Our intervals are compared with the percentile bootstrap over writers and with the
cluster-robust variance CR2 with the degrees of freedom of Bell and McCaffrey (2002), of the log rate and of the
difference; `exact` is the share of lines without an error. Widths are medians in points.

More scenes, words and other scales stood in this file at commit d8b2b039.
"""

import math
from collections.abc import Iterator
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
    interval_of,
    linear_freedom,
    student_quantile,
)
from runner import Table, make_parser, parse, record

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
    """The first reading's rate, runaways aside."""
    better: float = 0.5
    """The second's rate over the first's."""
    gains: float = 0.3
    """How much that differs by writer: the standard deviation of its logarithm."""
    hard: tuple[float, float] = (0.0, 1.0)
    """A share of the writers whose lines are harder than the others by a factor."""
    tails: float = np.inf
    """Degrees of freedom of Student's distribution that the logarithms have instead of the normal one."""
    dominant: bool = False
    """Whether one writer in ten has eight times as many lines."""


SCENES = {
    "writers alike": Scene(lines=25, uneven=0.2, hands=0.15, runaways=0, rate=0.15, gains=0.1),
    "every tenth writer has eight times the lines": Scene(dominant=True, hands=0.4, runaways=0),
    "even writers, no runaways": Scene(uneven=0.3, runaways=0),
    "1 % runaways": Scene(),
    "4 lines a writer": Scene(lines=4),
    "very unlike hands": Scene(hands=1.0),
    "the hard hands write most": Scene(leaning=0.4),
    "near print": Scene(lines=15, hands=0.8, runaways=0.002, rate=0.03),
    "some odd hands": Scene(lines=10, hands=0.5, runaways=0.005, tails=4),
    "a fifth of the hands six times as hard": Scene(lines=15, hands=0.3, hard=(0.2, 6.0)),
}
KINDS = ("rate", "percentile of the rate", "log CR2", "difference", "CR2 of the difference", "exact lines")


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


def sets(scene: Scene, writers: int, repeats: int, random: np.random.Generator) -> Iterator[Drawn]:
    """Yield test sets with the given number of writers each."""
    for start in range(0, repeats, AT_ONCE):
        many = min(AT_ONCE, repeats - start)
        drawn = draw(scene, many * writers, random)
        edges = np.searchsorted(drawn.of_line, np.arange(many + 1) * writers)
        for first, last in pairwise(edges):
            yield drawn[first:last]


def percentile(parts: Floats, lengths: Floats, clusters: Clusters, times: NDArray[np.int64]) -> Interval:
    """The plain bootstrap over writers; `times` counts how often each is drawn."""
    low, high = np.quantile((times @ clusters.sums(parts)) / (times @ clusters.sums(lengths)), [0.025, 0.975])
    return Interval(float(low), float(high), 0.95, "writer", clusters.count)


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


def cr2(part: Floats, whole: Floats) -> tuple[float, float]:
    """Return the CR2 standard error of a ratio of sums, and its degrees of freedom (equations 6 and 11)."""
    share = whole / whole.sum()
    residuals = (part - part.sum() * share) / whole.sum()
    return math.sqrt(float((residuals**2 / (1 - share)).sum())), linear_freedom(whole)


def cr2_interval(part: Floats, whole: Floats, *, log: bool) -> Interval:
    """Return the interval of a ratio of sums, or of its logarithm, by CR2."""
    middle, (error, freedom) = float(part.sum() / whole.sum()), cr2(part, whole)
    if log:
        middle, error = math.log(middle), error / middle
    reach = min(student_quantile(freedom) * error, 100)
    low, high = ((math.exp if log else float)(middle + side * reach) for side in (-1, 1))
    return Interval(low, high, 0.95, "writer", len(part))


def measure(scene: Scene, writers: int, repeats: int, truths: tuple[float, float, float]) -> list[Cell]:
    """Return a cell for each kind of interval."""
    rate, difference, exact = truths
    times = np.random.default_rng(0).multinomial(writers, np.full(writers, 1 / writers), RESAMPLES)
    random = np.random.default_rng(writers)
    cells = [Cell() for _ in KINDS]
    for drawn in sets(scene, writers, repeats, random):
        clusters = Clusters("writer", drawn.of_line)
        part, whole = clusters.sums(drawn.two), clusters.sums(drawn.lengths)
        paired = PairedErrors(drawn.one, drawn.two, drawn.lengths, clusters)
        change = clusters.sums(paired.second - paired.first)
        right, one_each = (drawn.two == 0).astype(float), np.ones_like(drawn.two)
        intervals = (
            (interval_of(drawn.two, drawn.lengths, clusters), rate),
            (percentile(drawn.two, drawn.lengths, clusters, times), rate),
            (cr2_interval(part, whole, log=True), rate),
            (difference_interval(paired), difference),
            (cr2_interval(change, whole, log=False), difference),
            (interval_of(right, one_each, clusters, of="lines"), exact),
        )
        for cell, (interval, truth) in zip(cells, intervals, strict=True):
            cell.add(interval, truth)
    return cells


def summary(cells: list[Cell]) -> str:
    """Return how many cells hold 92 to 98 %, and on which side the truth is missed."""
    held = [cell.held for cell in cells]
    low, high = sum(value < 92 for value in held), sum(value > 98 for value in held)
    given = max(1, sum(len(cell.widths) for cell in cells))
    below, above = (100 * sum(getattr(cell, side) for cell in cells) / given for side in ("below", "above"))
    return (
        f"{len(cells) - low - high} of {len(cells)} cells hold 92 to 98 %, {low} less, {high} more:  {min(held):.1f}"
        f" to {max(held):.1f}; the truth is below {below:.1f} % and above {above:.1f} % of them"
    )


def main() -> None:
    """Print a row for each scene and number of writers, and a summary of each kind of interval."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=2000)
    options = parse(parser)
    table = Table("scene", "writers", *KINDS)
    columns: list[list[Cell]] = [[] for _ in KINDS]
    for name, scene in SCENES.items():
        truths = draw(scene, 1_500_000 // scene.lines, np.random.default_rng(1)).truths
        for writers in (5, 10, 20):
            cells = measure(scene, writers, options.repeats, truths)
            table.row(name, writers, *cells)
            for column, cell in zip(columns, cells, strict=True):
                column.append(cell)
    for kind, column in zip(KINDS, columns, strict=True):
        print(f"{kind}: {summary(column)}")
    record(options, table.rows)


if __name__ == "__main__":
    main()
