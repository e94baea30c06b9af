"""Measure the order in which lines that were found on a page are read, against the order of ALTO or PAGE files.

    python benchmarks/reading_order.py FOLDER...

The lines of each page are shuffled and put in order as those that the detector finds. A line is right if the line that
follows it in the file follows it here too. Pages in columns, such as double pages, have a row of their own: those
whose file goes back up by a quarter of the page. The order from top to bottom is there to compare with. Files that
repeat a page (ALTO and PAGE of it) count once. Many files list lines as they were drawn and not as they are read: look
at the worst pages, which are named, before the rule is blamed.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dsocr.data.lines import reading_order
from dsocr.document import Outline
from dsocr.errors import DsocrError
from dsocr.formats import parse_xml_page
from measuring import table_line

WIDTHS = (30, 9, 7, 8, 18, 10)
UP = 0.25
DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Order:
    """Of a page: lines that have one after them, how many are followed by it by the rule, and from top to bottom."""

    name: str
    pairs: int
    right: int
    downwards: int
    has_columns: bool


def read_pages(folder: Path) -> Iterator[tuple[str, list[Outline]]]:
    """The outlines of the lines of each page that has some, in the order of its file."""
    seen: set[str] = set()
    for path in sorted(folder.rglob("*.xml")):
        name = path.name.removesuffix(".xml").removesuffix(".chocomufin")
        if name in seen:
            continue
        try:
            lines = parse_xml_page(path).lines
        except DsocrError:  # METS, and other files beside the pages
            continue
        outlines = [line.outline for line in lines if line.outline and line.outline.baseline]
        if len(outlines) > 1:
            seen.add(name)
            yield name, outlines


def judge(name: str, outlines: Sequence[Outline]) -> Order:
    """Compare the order of a page."""
    numbers = {id(outline): number for number, outline in enumerate(outlines)}
    shuffled = random.Random(17).sample(outlines, len(outlines))
    by_rule = [numbers[id(outline)] for block in reading_order(shuffled) for outline in block]
    downwards = [numbers[id(outline)] for outline in sorted(shuffled, key=_middle)]
    middles = list(map(_middle, outlines))
    up = max(before - after for before, after in pairwise(middles))
    has_columns = up >= UP * (max(middles) - min(middles))
    return Order(name, len(outlines) - 1, _right(by_rule), _right(downwards), has_columns)


def _right(order: Sequence[int]) -> int:
    return sum(after == before + 1 for before, after in pairwise(order))


def _middle(outline: Outline) -> float:
    return (outline.box[1] + outline.box[3]) / 2


def interval(orders: Sequence[Order]) -> tuple[float, float]:
    """The 95 % interval of the share that is right, by bootstrap over pages, in percent."""
    counts = np.array([(order.right, order.pairs) for order in orders])
    drawn = counts[np.random.default_rng(1).integers(0, len(counts), (DRAWS, len(counts)))].sum(axis=1)
    low, high = np.percentile(100 * drawn[:, 0] / drawn[:, 1], (2.5, 97.5)).tolist()
    return low, high


def main() -> None:
    """Print a row for each folder and kind of page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    options = parser.parse_args()
    print(table_line(("folder", "pages", "lines", "rule %", "95 %", "downwards %"), WIDTHS))
    for folder in options.folders:
        orders = [judge(name, outlines) for name, outlines in read_pages(folder)]
        for kind, has_columns in (("", False), (", columns", True)):
            if not (chosen := [order for order in orders if order.has_columns == has_columns]):
                continue
            pairs = sum(order.pairs for order in chosen)
            rule, downwards = (
                f"{100 * sum(counts) / pairs:.1f}"
                for counts in ([order.right for order in chosen], [order.downwards for order in chosen])
            )
            low, high = interval(chosen)
            cells = (folder.name + kind, str(len(chosen)), str(pairs), rule, f"{low:.1f} to {high:.1f}", downwards)
            print(table_line(cells, WIDTHS))
            worst = sorted(chosen, key=lambda order: order.right - order.pairs)[:3]
            print("    worst: " + ", ".join(f"{order.name} {order.right} of {order.pairs}" for order in worst))


if __name__ == "__main__":
    main()
