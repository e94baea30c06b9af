"""How often a forecast's 95 % interval holds what is measured later, on simulated trainings.

    python benchmarks/forecast.py --repeats 300

The true curve is of a family: a power law with an offset (exponent 0.1 to 1, offset 0 to 80 % of the rate at the
largest size), transfer from a base, (1 + n/n0)^-b (b 0.1 to 1, n0 20 to 1,000), a logistic curve in log n (middle 50
to 1,000, slope 0.7 to 2, floor 0 to half), a broken power law (exponent 0.1 to 0.4, then 0.4 to 1, break at 100 to
1,000), or exponential (to a floor of 0 to 80 %, by a factor e in 60 to 400 lines). The rate at the largest size is 5
to 40 %. A forecast fits power laws with an offset and a head start n0, so the first two families are its own and the
others foreign. Where the base is known, it lies on the curve of a transfer, a logistic and an exponential curve,
which begin at a finite rate, and anywhere up to 3.3 times above the smallest training's for the other two.

Each training deviates from the curve by lognormal noise; each scored cluster has its own difficulty (lognormal, 0.35)
and 300 to 1,500 characters, whose errors are Poisson. The forecast is for two and for four times as many samples.
Columns: `rate` is the share of intervals that contain the true curve, as on endless other lines; `said` the mean share
of plausible curves that lose a tenth of their errors, as the forecast's sentence gives it, and `came` how often the
true curve does; `too high` the intervals for four times that lie above the truth; `its fall` those that contain the
measured fall between two trainings scored on the same lines, which includes the luck of both. `half width` and
`error` of the rate are medians, as fractions of the rate at two times.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsocr.evaluation.learning_curve import WORTHWHILE, fit_learning_curve
from dsocr.evaluation.statistics import Floats
from measuring import processor

AHEAD = (2, 4)
DRAWS = 500


@dataclass(frozen=True)
class Scene:
    """A family of curves, how many trainings, how many clusters are scored, and how lucky trainings are."""

    family: Literal["power law", "transfer", "logistic", "broken", "exponential"] = "power law"
    base: bool = False
    sizes: tuple[int, ...] = (41, 82, 165, 330)
    clusters: int = 60
    luck: float = 0.05


SCENES = {
    "power law": Scene(),
    "power law, base known": Scene(base=True),
    "transfer": Scene("transfer"),
    "transfer, base known": Scene("transfer", base=True),
    "logistic": Scene("logistic"),
    "logistic, base known": Scene("logistic", base=True),
    "broken power law": Scene("broken"),
    "broken power law, base known": Scene("broken", base=True),
    "exponential": Scene("exponential"),
    "exponential, base known": Scene("exponential", base=True),
    "power law, luck 3 %": Scene(luck=0.03),
    "power law, luck 8 %": Scene(luck=0.08),
    "power law, luck 15 %": Scene(luck=0.15),
    "transfer, base known, luck 15 %": Scene("transfer", base=True, luck=0.15),
    "power law, 6 writers": Scene(clusters=6),
    "transfer, base known, 6 writers": Scene("transfer", base=True, clusters=6),
    "power law, 3 sizes": Scene(sizes=(82, 165, 330)),
    "transfer, base known, 3 sizes": Scene("transfer", base=True, sizes=(82, 165, 330)),
    "transfer, 6 sizes": Scene("transfer", sizes=(10, 20, 41, 82, 165, 330)),
}


def draw_curve(scene: Scene, random: np.random.Generator) -> Callable[[Floats], Floats]:
    """A curve of the family, as a function of the number of samples, up to a factor."""
    if scene.family == "power law":
        exponent, floor = random.uniform(0.1, 1), random.uniform(0, 0.8)
        return lambda counts: (1 - floor) * (counts / scene.sizes[-1]) ** -exponent + floor
    if scene.family == "transfer":
        exponent, start = random.uniform(0.1, 1), math.exp(random.uniform(math.log(20), math.log(1000)))
        return lambda counts: (1 + counts / start) ** -exponent
    if scene.family == "logistic":
        middle, slope = math.exp(random.uniform(math.log(50), math.log(1000))), random.uniform(0.7, 2)
        floor = random.uniform(0, 0.5)
        return lambda counts: floor + (1 - floor) / (1 + (counts / middle) ** slope)
    if scene.family == "exponential":
        floor, scale = random.uniform(0, 0.8), math.exp(random.uniform(math.log(60), math.log(400)))
        return lambda counts: floor + (1 - floor) * np.exp(-counts / scale)
    first, then = random.uniform(0.1, 0.4), random.uniform(0.4, 1)
    at = math.exp(random.uniform(math.log(100), math.log(1000)))
    return lambda counts: counts**-first * (1 + counts / at) ** (first - then)


def simulate(scene: Scene, repeats: int) -> list[str]:
    """The cells of a row."""
    random = np.random.default_rng(17)
    counted, widths, misses = np.zeros(8), [], []
    for repeat in range(repeats):
        largest = scene.sizes[-1]
        trained = np.array([*scene.sizes, *(ahead * largest for ahead in AHEAD)], dtype=float)
        curve = draw_curve(scene, random)
        factor = random.uniform(0.05, 0.4) / curve(np.array([float(largest)]))[0]
        truth = factor * curve(trained)
        counts = list(scene.sizes)
        if scene.base:
            known = scene.family in {"transfer", "logistic", "exponential"}
            base = factor * curve(np.zeros(1))[0] if known else truth[0] * math.exp(random.uniform(0, 1.2))
            truth, counts = np.array([base, *truth]), [0, *counts]
        lengths = random.integers(300, 1500, scene.clusters).astype(float)
        hard = random.lognormal(-(0.35**2) / 2, 0.35, scene.clusters)
        rates = truth * random.lognormal(0, scene.luck, truth.size)
        errors = random.poisson(rates[:, None] * hard * lengths).astype(float)
        known_errors = errors[: -len(AHEAD)]
        fitted = fit_learning_curve(counts, known_errors, lengths, seed=repeat, draws=DRAWS)
        for place, ahead in enumerate(AHEAD):
            expected, true = fitted.expect(ahead * largest), truth[len(counts) + place]
            falls = true <= (1 - WORTHWHILE) * truth[len(counts) - 1]
            counted[3 * place : 3 * place + 3] += expected.low <= true <= expected.high, expected.worthwhile, falls
            if ahead == AHEAD[0]:
                widths.append((expected.high - expected.low) / 2 / true)
                misses.append(abs(expected.rate - true) / true)
        counted[6] += expected.low > true
        together = known_errors.sum(axis=1, keepdims=True), lengths.sum(keepdims=True)
        held = fit_learning_curve(counts, *together, seed=repeat, draws=DRAWS)
        _, low, high = held.expect_measured_fall(2 * largest)
        counted[7] += low <= 1 - errors[len(counts)].sum() / errors[len(counts) - 1].sum() <= high
    return [f"{share:.0%}" for share in (*(counted / repeats), np.median(widths), np.median(misses))]


def main() -> None:
    """Print a row for each scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--scenes", nargs="+", choices=list(SCENES), default=list(SCENES))
    arguments = parser.parse_args()
    heads = [f"{name}, {ahead} x" for ahead in AHEAD for name in ("rate", "said", "came")]
    heads += ["too high", "its fall", "half width", "error"]
    print(f"{processor()}; {arguments.repeats} repeats\n")
    print(f"| curve | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
    for name in arguments.scenes:
        print(f"| {name} | {' | '.join(simulate(SCENES[name], arguments.repeats))} |", flush=True)


if __name__ == "__main__":
    main()
