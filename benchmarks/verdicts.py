"""How often `dsocr compare` finds a winner: among equal readers, and with a fifth fewer errors where lines loop.

    python benchmarks/verdicts.py --repeats 1000

Test sets are drawn as in `intervals.py`: writers of unlike hands (lognormal, 0.6) with about 20 lines each, on pages of
eight. The second reader's errors are a multiple of the first's that differs by writer (lognormal with the standard
deviation `gains`). Each set goes through `compare` itself, writers' names and pages known. Columns:

- `better or worse`: the share of sets with a winner, `unconditional` of those the verdicts without a condition such as
  "on pages by these 3 writers".
- `typical`: the same for the verdict on the typical writer (Wilcoxon signed-rank), `either` for at least one of both.
- `better`: the share in which the second reader wins.

Readers that are equal on average over writers differ a little for the typical one, since lognormal gains have a mean
above their median; the rows "equal for the typical writer" have a median of 1 instead.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np

from dsocr.evaluation.compare import Difference, System, compare
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scores import LineScore
from intervals import Drawn, Scene, sets
from measuring import processor

FALSE_WINNERS = {
    "equal, gains 0.2": Scene(better=1.0, gains=0.2, runaways=0),
    "equal, gains 0.3": Scene(better=1.0, gains=0.3, runaways=0),
    "equal, gains 0.3, 0.5 % loops": Scene(better=1.0, gains=0.3, runaways=0.005),
}
LOOPS = {
    "equal, gains 0.2": Scene(better=1.0, gains=0.2, runaways=0.005),
    "equal for the typical writer, gains 0.2": Scene(better=math.exp(0.02), gains=0.2, runaways=0.005),
    "equal for the typical writer, gains 0.3": Scene(better=math.exp(0.045), gains=0.3, runaways=0.005),
    "a fifth fewer, gains 0.2": Scene(better=0.8, gains=0.2, runaways=0.005),
    "a fifth fewer, gains 0.2, easy hands": Scene(better=0.8, gains=0.2, runaways=0.005, rate=0.06),
    "a fifth fewer, gains 0.2, no loops": Scene(better=0.8, gains=0.2, runaways=0),
}
LINES_ON_PAGE = 8


def _score(drawn: Drawn, errors: np.ndarray, loops: np.ndarray) -> list[LineScore]:
    """Scored lines with the drawn counts; texts play no part in a verdict."""
    lines, last, count = [], -1, 0
    columns = zip(errors.tolist(), drawn.lengths.tolist(), drawn.of_line.tolist(), loops.tolist(), strict=True)
    for number, (wrong, length, writer, loop) in enumerate(columns):
        count = count + 1 if writer == last else 0
        last, rate = writer, ErrorRate(int(wrong), int(length))
        page = f"{writer}/{count // LINES_ON_PAGE}"
        name, status = f"{number}", not wrong
        lines.append(
            LineScore(name, "", "", rate, rate, status, empty=False, over_long=loop, writer=f"w{writer}", page=page)
        )
    return lines


def difference_of(drawn: Drawn) -> Difference:
    """The second reading compared with the first."""
    readings = []
    for errors in (drawn.one, drawn.two):
        readings.append(_score(drawn, errors, errors > drawn.lengths + 20))
    return compare([System("first", readings[0]), System("second", readings[1])]).differences[0]


def measure(scene: Scene, writers: int, repeats: int) -> list[str]:
    """One row of a table."""
    random = np.random.default_rng(writers)
    found = np.zeros(6)
    for drawn in sets(scene, writers, repeats, random):
        one = difference_of(drawn)
        won, typical = (verdict in {"better", "worse"} for verdict in (one.verdict, one.typical_verdict))
        better, typically = one.verdict == "better", one.typical_verdict == "better"
        free = one.scope is None
        found += (won, won and free, typical and free, (won or typical) and free, better and free, typically and free)
    return [f"{share:.1%}" for share in found / repeats]


def table(
    scenes: dict[str, Scene], sizes: tuple[int, ...], columns: dict[str, int], repeats: int, say: Callable[[str], None]
) -> None:
    """Print a row for each scene and number of writers."""
    say(f"| scene | writers | {' | '.join(columns)} |\n|---|---:|{'---:|' * len(columns)}")
    for name, scene in scenes.items():
        for writers in sizes:
            cells = measure(scene, writers, repeats)
            say(f"| {name} | {writers} | {' | '.join(cells[place] for place in columns.values())} |")
    say("")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    repeats = parser.parse_args().repeats

    def say(line: str) -> None:
        print(line, flush=True)

    say(f"{processor()}; {repeats} repeats\n")
    winners = {
        "better or worse": 0,
        "unconditional": 1,
        "typical, unconditional": 2,
        "either": 3,
        "pooled: better, unconditional": 4,
        "typical: better, unconditional": 5,
    }
    table(FALSE_WINNERS, tuple(range(1, 11)), winners, repeats, say)
    found = {"pooled: any winner": 1, "typical: any winner": 2, "pooled: better": 4, "typical: better": 5}
    table(LOOPS, (6, 8, 10, 15, 25, 50), found, repeats, say)


if __name__ == "__main__":
    main()
