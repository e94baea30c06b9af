"""How often a forecast's 95 % interval holds what is measured later, on simulated trainings.

    python benchmarks/forecast.py --repeats 300

The true curve is a power law with an offset (exponent 0.1 to 1, offset 0 to 80 % of the rate at the largest size, that
rate 5 to 40 %). Each training deviates from it by lognormal noise; each scored cluster has its own difficulty
(lognormal, 0.35) and 300 to 1,500 characters, whose errors are Poisson. The forecast is for twice as many samples, or
eight times where a row says so. Columns: `same lines` is the share of intervals that contain its rate on the same
scored lines (without the allowance for other lines, as when a training is held out), `other lines` that contain the
true curve, as on endless other lines, `fewer errors` that contain its fall since the largest size. `half width`, of the
interval for other lines, and `error` are fractions of the rate, medians.
"""

import argparse
from dataclasses import dataclass

import numpy as np

from dsocr.evaluation.learning_curve import fit_learning_curve
from measuring import processor


@dataclass(frozen=True)
class Scene:
    """How many trainings, how far ahead, how many clusters are scored, and how lucky trainings are."""

    sizes: tuple[int, ...] = (41, 82, 165, 330)
    clusters: int = 60
    luck: float = 0.05
    ahead: int = 2


SCENES = {
    "4 sizes, 60 lines, luck 3 %": Scene(luck=0.03),
    "4 sizes, 60 lines, luck 5 %": Scene(),
    "4 sizes, 60 lines, luck 8 %": Scene(luck=0.08),
    "4 sizes, 60 lines, luck 15 %": Scene(luck=0.15),
    "4 sizes, 6 writers, luck 5 %": Scene(clusters=6),
    "3 sizes, 60 lines, luck 5 %": Scene(sizes=(82, 165, 330)),
    "3 sizes, 6 writers, luck 5 %": Scene(sizes=(82, 165, 330), clusters=6),
    "6 sizes, 60 lines, luck 5 %": Scene(sizes=(10, 20, 41, 82, 165, 330)),
    "4 sizes, 60 lines, luck 5 %, 8 x ahead": Scene(ahead=8),
}


def simulate(scene: Scene, repeats: int) -> tuple[float, float, float, float, float]:
    """Coverage on the same lines, on other lines and of the fall, median half width and error."""
    random = np.random.default_rng(17)
    same, other, falls, widths, misses = 0, 0, 0, [], []
    for repeat in range(repeats):
        exponent, floor, top = random.uniform(0.1, 1), random.uniform(0, 0.8), random.uniform(0.05, 0.4)
        largest = scene.sizes[-1]
        counts = np.array([*scene.sizes, scene.ahead * largest], dtype=float)
        truth = top * ((1 - floor) * (counts / largest) ** -exponent + floor)
        lengths = random.integers(300, 1500, scene.clusters).astype(float)
        hard = random.lognormal(-(0.35**2) / 2, 0.35, scene.clusters)
        rates = truth * random.lognormal(0, scene.luck, counts.size)
        errors = random.poisson(rates[:, None] * hard * lengths).astype(float)
        curve = fit_learning_curve(scene.sizes, errors[:-1], lengths, seed=repeat, draws=1000)
        expected = curve.expect(int(counts[-1]))
        measured = errors[-1].sum() / lengths.sum()
        together = errors[:-1].sum(axis=1, keepdims=True), lengths.sum(keepdims=True)
        held = fit_learning_curve(scene.sizes, *together, seed=repeat, draws=1000).expect(int(counts[-1]))
        same += held.low <= measured <= held.high
        other += expected.low <= truth[-1] <= expected.high
        falls += expected.min_reduction <= 1 - truth[-1] / truth[-2] <= expected.max_reduction
        widths.append((expected.high - expected.low) / 2 / truth[-1])
        misses.append(abs(expected.rate - measured) / measured)
    return same / repeats, other / repeats, falls / repeats, float(np.median(widths)), float(np.median(misses))


def main() -> None:
    """Print a row for each scene."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=300)
    repeats = arguments.parse_args().repeats
    print(f"{processor()}; {repeats} repeats\n")
    print("| scene | same lines | other lines | fewer errors | half width | error |\n|---|---:|---:|---:|---:|---:|")
    for name, scene in SCENES.items():
        same, other, fall, width, miss = simulate(scene, repeats)
        print(f"| {name} | {same:.1%} | {other:.1%} | {fall:.1%} | {width:.0%} | {miss:.1%} |", flush=True)


if __name__ == "__main__":
    main()
