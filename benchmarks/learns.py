"""How many lines does a base need: CER after training on 50, 100 and 250 lines, for several bases and collections.

    python benchmarks/learns.py data/writers data/peraire --base small_before --base small --lines 50 --lines 100 \\
        --lines 250 --work runs/learns [--set training.epochs=20]

Each collection is a prepared dataset. `--base` is what `base` takes; the first is the one that others are
compared with. Every training is what `dsocr forecast` does: product defaults, the first so many lines of one draw, the
test split read at the end as `dsocr evaluate` reads it; the base alone is read too. Trainings that were done are kept
in WORK, so that more lines or another base may follow.

The last columns are the processor time of the trainings, and for the other bases with how many lines they read as well
as the first with each number: found on the straight line between two measured points over the logarithm of the lines
(one added, so that the base alone has a place).
"""

import argparse
import math
import time
from itertools import pairwise
from pathlib import Path

import dsocr
from measuring import table_line

WIDTHS = (24, 16, 7, 8, 10, 22)


def read_curve(dataset: Path, base: str, counts: list[int], work: Path, settings: list[str]) -> dict[int, float]:
    """Train a base on parts of a dataset; the CER in percent by the number of lines, 0 is the base alone."""
    total = len(dsocr.Dataset.open(dataset).samples("train"))
    sizes = [min(1.0, count / total) for count in counts]
    changes = [f"base={base}", *settings]
    output = work / f"{dataset.name}-{Path(base).name}"
    forecast = dsocr.forecast(dataset=dataset, output=output, changes=changes, sizes=sizes, split="test")
    return {point.samples: 100 * point.cer for point in forecast.points}


def lines_for(cer: float, curve: dict[int, float]) -> float | None:
    """With how many lines a curve comes down to a CER; None if it does not."""
    points = sorted(curve.items())
    for (few, above), (many, below) in pairwise(points):
        if below <= cer <= above:
            share = (above - cer) / max(1e-9, above - below)
            return math.expm1(math.log1p(few) + share * (math.log1p(many) - math.log1p(few)))
    return 0.0 if points[0][1] <= cer else None


def main() -> None:
    """Train, and print a row for each number of lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--base", action="append", required=True)
    parser.add_argument("--lines", type=int, action="append", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    print(table_line(("collection", "base", "lines", "CER %", "seconds", "as well as the first"), WIDTHS), flush=True)
    for dataset in options.datasets:
        first: dict[int, float] = {}
        for base in options.base:
            started = time.process_time()
            curve = read_curve(dataset, base, options.lines, options.work, options.settings)
            seconds = time.process_time() - started
            first = first or curve
            for count, cer in sorted(curve.items()):
                needed = lines_for(first[count], curve) if curve is not first and count in first else None
                shown = f"{needed:.0f} instead of {count}" if needed is not None else ""
                row = (dataset.name, Path(base).name, str(count), f"{cer:.2f}", f"{seconds:.0f}", shown)
                print(table_line(row, WIDTHS), flush=True)


if __name__ == "__main__":
    main()
