"""Measure how many lines a base needs: CER after training on 50, 100 and 250 lines, for several bases and collections.

    python benchmarks/learns.py data/writers data/peraire --base small_before --base small --lines 50 --lines 100 \\
        --lines 250 --work runs/learns [--set training.epochs=20]

Each collection is a prepared dataset, and the others are compared with the first base. Every run has the product's
defaults and the first lines of one draw; the test split is read as `dsocr evaluate` reads it, by the base alone too.
Finished runs are kept in WORK. The last column says with how many lines another base reads as
well as the first: on the straight line between two measured points over the logarithm of the lines plus one.
"""

import math
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.io.work import keep_result
from dsocr.job import resolve
from dsocr.training.recipe import run_job
from reading import cer_of, count_errors
from runner import Table, make_parser, parse, record


def read_curve(dataset: Path, base: str, counts: list[int], work: Path, settings: list[str]) -> dict[int, float]:
    """Train a base on parts of a dataset; return the CER in percent by the number of lines, 0 for the base alone."""
    test, curve = Dataset.open(dataset).samples(Split.TEST), {}
    for count in (0, *counts):
        output = work / f"{dataset.name}-{Path(base).name}-{count}"
        if count:
            changes = {"base": base, "dataset": dataset, "output": output, "training.max_samples": count}
            config = load_config({"output": ""}, settings, changes=changes)
            if not (job := resolve(config)).is_finished():
                run_job(job)
        kept = output.with_suffix(".json")
        reader = output if count else base
        curve[count] = cer_of(keep_result(kept, {"lines": len(test)}, partial(count_errors, reader, test)))
    return curve


def lines_for(cer: float, curve: dict[int, float]) -> float | None:
    """Return the number of lines at which a curve reaches a CER; None if it does not."""
    points = sorted(curve.items())
    for (few, above), (many, below) in pairwise(points):
        if below <= cer <= above:
            share = (above - cer) / max(1e-9, above - below)
            return math.expm1(math.log1p(few) + share * (math.log1p(many) - math.log1p(few)))
    return 0.0 if points[0][1] <= cer else None


def main() -> None:
    """Train, and print a row for each number of lines."""
    parser = make_parser(__doc__)
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--base", action="append", required=True)
    parser.add_argument("--lines", type=int, action="append", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parse(parser)
    options.work.mkdir(parents=True, exist_ok=True)
    table = Table("collection", "base", "lines", "CER %", "seconds of processor", "as well as the first")
    for dataset in options.datasets:
        first: dict[int, float] = {}
        for base in options.base:
            started = time.process_time()
            curve = read_curve(dataset, base, options.lines, options.work, options.settings)
            seconds = time.process_time() - started
            first = first or curve
            for count, cer in sorted(curve.items()):
                needed = lines_for(first[count], curve) if curve is not first else None
                shown = f"{needed:.0f} instead of {count}" if needed is not None else ""
                table.row(dataset.name, Path(base).name, count, f"{cer:.2f}", f"{seconds:.0f}", shown)
    record(options, table.rows)


if __name__ == "__main__":
    main()
