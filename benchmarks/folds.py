"""Measure whether the interval of a cross-validated CER holds the mean of many single splits, on simulated archives.

    python benchmarks/folds.py --repeats 400

A writer has a place in a plane of hands and a difficulty (lognormal). A model trained on some writers reads another
the better, the more of them write alike: its rate is the writer's difficulty times (1 + sum of likeness)^-0.5, times
the chance of its training (lognormal, 0, 0.05, 0.15 or 0.3). So models of folds that share writers err alike, and all
writers of a fold share the chance of their model. Lines of a writer are 10 to 40, of 30 to 60 characters, and errors
are Poisson. The truth is the mean rate of many single splits of other archives of as many writers: as many to train on,
and new writers to read. Compared are the interval of the pooled readings, as in `dsocr evaluate --folds`, the same if
it did not know of the folds, and that of one fold alone.
"""

import numpy as np

from dsocr.evaluation.statistics import Clusters, interval_of
from runner import Table, make_parser, parse, record

FOLDS = 5


def make_archive(writers: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the place of each writer's hand, the difficulty, and the number of lines."""
    return (
        random.normal(0, 1, (writers, 2)),
        0.12 * np.exp(random.normal(0, 0.5, writers)),
        random.integers(10, 41, writers),
    )


def rates(
    hands: np.ndarray, difficulty: np.ndarray, trained: np.ndarray, read: np.ndarray, chance: float
) -> np.ndarray:
    """Return the rate of each writer that is read, by a model that was trained on others."""
    distance = ((hands[read][:, None] - hands[trained][None]) ** 2).sum(-1)
    return np.asarray(difficulty[read] * (1 + np.exp(-2 * distance).sum(1)) ** -0.5 * chance)


def measure(writers: int, noise: float, repeats: int, seed: int) -> list[str]:
    """Return a row of the table."""
    random = np.random.default_rng(seed)
    total = errors = 0.0
    for _ in range(20 * repeats):  # the truth
        hands, difficulty, lines = make_archive(writers, random)
        order = random.permutation(writers)
        fold = np.array_split(order, FOLDS)
        rate = rates(hands, difficulty, np.concatenate(fold[2:]), fold[0], np.exp(random.normal(0, noise)))
        errors, total = errors + (rate * lines[fold[0]]).sum(), total + lines[fold[0]].sum()
    truth = errors / total
    names = ("pooled", "pooled, folds unknown", "one fold")
    held, known = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    widths: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        hands, difficulty, lines = make_archive(writers, random)
        fold = np.array_split(random.permutation(writers), FOLDS)
        rate, number_of = np.zeros(writers), np.zeros(writers, dtype=np.intp)
        for number in range(FOLDS):
            trained = np.concatenate([fold[(number + step) % FOLDS] for step in range(2, FOLDS)])
            number_of[fold[number]] = number
            rate[fold[number]] = rates(hands, difficulty, trained, fold[number], np.exp(random.normal(0, noise)))
        for name in names:
            chosen = fold[0] if name == "one fold" else np.arange(writers)
            of_line = np.repeat(np.arange(len(chosen)), lines[chosen])
            length = random.integers(30, 61, len(of_line)).astype(float)
            made = random.poisson(rate[chosen][of_line] * length).astype(float)
            folds = number_of[of_line] if name == "pooled" else None
            found = interval_of(made, length, Clusters("writer", of_line), folds=folds)
            if found.bounds:
                known[name] += 1
                held[name] += found.bounds[0] <= truth <= found.bounds[1]
                widths[name].append(100 * (found.bounds[1] - found.bounds[0]))
    cells = [str(writers), f"{noise}", f"{100 * truth:.2f} %"]
    for name in names:
        cells += (
            [f"{100 * held[name] / known[name]:.1f} %", f"{np.median(widths[name]):.1f}"] if known[name] else ["", ""]
        )
    return cells


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    options = parse(parser)
    shown = ("pooled", "width, points", "folds unknown", "width", "one fold", "width of one")
    table = Table("writers", "noise of a run", "truth", *shown)
    for writers in (10, 15, 25, 50, 100):
        for noise in (0.0, 0.05, 0.15, 0.3):
            table.row(*measure(writers, noise, options.repeats, 17))
    record(options, table.rows)


if __name__ == "__main__":
    main()
