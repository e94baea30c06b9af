"""How CER falls with the lines that were transcribed, over several draws of them.

    for seed in 17 18 19; do
        dsocr forecast data/copiste --set output=runs/seed$seed --set seed=$seed --set training.epochs=3 \\
            --set validation.every_steps=66 --set guard.lines=0 --split test \\
            --sizes 0.0238 --sizes 0.0476 --sizes 0.0951 --sizes 0.238 --sizes 0.476 --sizes 1
    done
    python benchmarks/learning_curve.py runs/seed17 runs/seed18 runs/seed19 -o curve.png

Reads what the forecasts scored, prints a table, and draws a line for each of them.
"""

import argparse
import json
import re
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from measuring import table_line

WIDTHS = (8, 10, 24)


def read_curve(run: Path, split: str) -> dict[int, float]:
    """Return the CER in percent by the number of training lines."""
    curve = {}
    for file in run.glob(f"forecast/lines-*-{split}.json"):
        lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
        count = int(re.findall(r"lines-(\d+)-", file.name)[0])
        curve[count] = 100 * sum(line["errors"] for line in lines) / sum(line["length"] for line in lines)
    return dict(sorted(curve.items()))


def draw(curves: list[dict[int, float]], output: Path) -> None:
    """Draw the curves over a logarithmic axis, and the base that no line was trained on as a level."""
    untrained = [curve[0] for curve in curves if 0 in curve]
    curves = [{count: cer for count, cer in curve.items() if count} for curve in curves]
    figure = Figure(figsize=(7.5, 4.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    for number, curve in enumerate(curves):
        label = f"{len(curves)} draws of lines" if not number else None
        axes.plot(list(curve), list(curve.values()), "o-", color="#1f5fa8", alpha=0.55, lw=1.2, ms=4, label=label)
    if untrained:
        axes.axhline(untrained[0], color="#b4532a", lw=1.2, ls="--", label="small, not trained")
    axes.set_xscale("log")
    axes.set_xticks(sorted(set().union(*curves)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(bottom=0)
    axes.set_xlabel("transcribed lines that were trained on")
    axes.set_ylabel("CER on the test split, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", lw=0.6)
    axes.legend(frameon=False)
    figure.savefig(output)


def main() -> None:
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    curves = [read_curve(run, options.split) for run in options.runs]
    print(table_line(("lines", "mean CER %", "of each draw"), WIDTHS))
    for count in sorted(set().union(*curves)):
        found = [curve[count] for curve in curves if count in curve]
        print(table_line((str(count), f"{mean(found):.2f}", ", ".join(f"{cer:.2f}" for cer in found)), WIDTHS))
    if options.output:
        draw(curves, options.output)


if __name__ == "__main__":
    main()
