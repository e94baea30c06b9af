"""How often 95 % intervals hold the truth, on simulated test sets of 5 to 100 writers.

    python benchmarks/intervals.py --repeats 500

Each writer has a difficulty (lognormal), a number of lines (negative binomial, so a few write most of them) and a
tendency to make the model run away; each line has a length, a difficulty and errors (binomial); a runaway line adds
errors from a heavy tail (Pareto 1.5, at most 600), as generation is cut off somewhere. The truth is the pooled rate of
1.5 million such lines. For the difference of two readings, both read the same lines, and the second
has half the errors, more or less by writer. Compared are the intervals of dsocr with the percentile bootstrap over
writers, and for a single rate with the binomial interval over lines that other tools print. The median width is in
points of CER; dsocr refuses an interval where the sample cannot tell one.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dsocr.evaluation.intervals import Clusters, Interval, Numbers, interval_of_sums
from dsocr.evaluation.paired import Paired, difference_interval
from measuring import processor

WRITERS = (5, 6, 8, 12, 20, 50, 100)
RESAMPLES = 1000


@dataclass(frozen=True)
class Scene:
    """How uneven writers and lines are."""

    lines: int = 20
    uneven: float = 0.8
    hands: float = 0.6
    runaways: float = 0.01
    leaning: float = 0.0
    """How much more those write who are hard to read."""


SCENES = {
    "even writers, no runaways": Scene(uneven=0.3, runaways=0),
    "uneven writers, no runaways": Scene(runaways=0),
    "1 % runaways": Scene(),
    "4 lines a writer": Scene(lines=4),
    "very unlike hands": Scene(hands=1.0),
    "the hard hands write most": Scene(leaning=0.4),
}
Drawn = tuple[Numbers, Numbers, Numbers, Clusters]


def draw(scene: Scene, writers: int, random: np.random.Generator) -> Drawn:
    """Lines of so many writers: errors of the first reading, of the second, and lengths."""
    hard = random.normal(size=writers)
    lines = random.negative_binomial(1 / scene.uneven, 1 / (1 + scene.uneven * scene.lines), writers)
    lines = np.minimum(1 + lines, 10 * scene.lines) * np.exp(scene.leaning * hard)
    of_line = np.repeat(np.arange(writers), np.maximum(1, lines.round().astype(int)))
    count = of_line.size
    lengths = random.integers(12, 60, count)
    hands = np.minimum(0.2 * np.exp(scene.hands * hard - scene.hands**2 / 2), 0.95)
    better = np.minimum(0.5 * np.exp(0.3 * random.normal(size=writers) - 0.045), 3)
    difficulty = random.gamma(2, 0.5, count)
    readings = []
    for rates in (hands, hands * better):
        errors = random.binomial(lengths, np.clip(rates[of_line] * difficulty, 0, 1))
        leaning = np.exp(random.normal(size=writers) - 0.5)
        runs = random.random(count) < scene.runaways * leaning[of_line]
        added = np.minimum((lengths * (1 + random.pareto(1.5, count))).astype(int), 600)
        readings.append((errors + runs * added).astype(float))
    return readings[0], readings[1], lengths.astype(float), Clusters("writer", of_line)


def percentile(parts: Numbers, lengths: Numbers, clusters: Clusters, random: np.random.Generator) -> Interval:
    """The plain bootstrap over writers."""
    part, whole = clusters.sums(parts), clusters.sums(lengths)
    drawn = random.integers(len(part), size=(RESAMPLES, len(part)))
    low, high = np.quantile(part[drawn].sum(1) / whole[drawn].sum(1), [0.025, 0.975])
    return Interval(float(low), float(high), 0.95, "writer", clusters.count)


def binomial(parts: Numbers, lengths: Numbers) -> Interval:
    """1.96 sqrt(r (1 - r) / lines) to either side, as if the rate were a share of the lines."""
    rate = parts.sum() / lengths.sum()
    reach = 1.96 * np.sqrt(max(rate * (1 - rate), 0) / len(parts))
    return Interval(float(rate - reach), float(rate + reach), 0.95, "line", len(parts))


def run(repeats: int, say: Callable[[str], None]) -> None:
    """Print a table for single rates, and one for differences."""
    kinds = ("rate: dsocr", "percentile", "binomial", "difference: dsocr", "percentile")
    say(f"| scene | writers | {' | '.join(kinds)} |")
    say("|---|---:|" + "---:|" * len(kinds))
    for name, scene in SCENES.items():
        first, second, lengths, _ = draw(scene, 1_500_000 // scene.lines, np.random.default_rng(1))
        truths = (second.sum() / lengths.sum(), (second - first).sum() / lengths.sum())
        for writers in WRITERS:
            random = np.random.default_rng(writers)
            held = [0] * len(kinds)
            widths: list[list[float]] = [[] for _ in kinds]
            for repeat in range(repeats):
                one, two, lengths, clusters = draw(scene, writers, random)
                intervals = (
                    interval_of_sums(two, lengths, clusters),
                    percentile(two, lengths, clusters, random),
                    binomial(two, lengths),
                    difference_interval(Paired(one, two, lengths, clusters), seed=repeat),
                    percentile(two - one, lengths, clusters, random),
                )
                for place, interval in enumerate(intervals):
                    if interval.low is None or interval.high is None:
                        continue  # none is given, and said so
                    held[place] += interval.low <= truths[place > 2] <= interval.high
                    widths[place].append(100 * (interval.high - interval.low))
            told = (_cell(n, w, repeats) for n, w in zip(held, widths, strict=True))
            say(f"| {name} | {writers} | {' | '.join(told)} |")


def _cell(held: int, widths: list[float], repeats: int) -> str:
    refused = f", {repeats - len(widths)} refused" if len(widths) < repeats else ""
    return f"{100 * held / len(widths):.1f} % ({np.median(widths):.1f}{refused})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=500)
    arguments = parser.parse_args()
    print(f"{processor()}; {arguments.repeats} repeats\n", flush=True)
    run(arguments.repeats, lambda line: print(line, flush=True))
