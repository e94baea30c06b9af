"""How often `dsocr compare` finds a winner: among equal readers, and with a fifth fewer errors where lines loop.

    python benchmarks/verdicts.py --repeats 1000

Test sets are drawn as in `intervals.py`: writers of unlike hands (lognormal, 0.6) with about 20 lines each, on pages of
eight. The second reader's errors are a multiple of the first's that differs by writer (lognormal with the standard
deviation `gains`), and in some scenes the lines of new writers, every third one, have more. Each set goes through
`compare` itself, writers' names and pages known. Columns: the share of sets in which the verdict names a winner, in
which it names the second reader, and in which a sentence says that it reads new writers worse. Verdicts with a
condition such as "on pages by these 3 writers" do not count.

Readers that are equal on average over writers differ a little for the typical one, since lognormal gains have a mean
above their median; the rows "equal for the typical writer" have a median of 1 instead.
"""

import math
from dataclasses import replace

import numpy as np

from dsocr.evaluation.compare import System, compare
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scores import LineScore, WriterStatus
from intervals import Drawn, Scene, sets
from runner import Table, make_parser, parse, record

SCENES = {
    "equal, every third writer 10 % worse": (Scene(better=1.0, gains=0.2, runaways=0), 1.1),
    "a fifth fewer, every third writer 10 % worse": (Scene(better=0.8, gains=0.2, runaways=0), 1.1 / 0.8),
    "a fifth fewer, every third writer 25 % worse": (Scene(better=0.8, gains=0.2, runaways=0), 1.25 / 0.8),
    "a tenth fewer, every third writer 30 % worse: more in all": (Scene(better=0.9, gains=0.2, runaways=0), 1.3 / 0.9),
    "equal, gains 0.2": (Scene(better=1.0, gains=0.2, runaways=0), 1.0),
    "equal, gains 0.3": (Scene(better=1.0, gains=0.3, runaways=0), 1.0),
    "equal, gains 0.3, 0.5 % loops": (Scene(better=1.0, gains=0.3, runaways=0.005), 1.0),
    "equal for the typical writer, gains 0.2, loops": (Scene(better=math.exp(0.02), gains=0.2, runaways=0.005), 1.0),
    "equal for the typical writer, gains 0.3, loops": (Scene(better=math.exp(0.045), gains=0.3, runaways=0.005), 1.0),
    "a fifth fewer, gains 0.2, no loops": (Scene(better=0.8, gains=0.2, runaways=0), 1.0),
    "a fifth fewer, gains 0.2, loops": (Scene(better=0.8, gains=0.2, runaways=0.005), 1.0),
    "a fifth fewer, gains 0.2, loops, easy hands": (Scene(better=0.8, gains=0.2, runaways=0.005, rate=0.06), 1.0),
}
SIZES = (6, 7, 8, 9, 10, 25, 50)
LINES_ON_PAGE = 8


def _score(drawn: Drawn, errors: np.ndarray, loops: np.ndarray) -> list[LineScore]:
    """Scored lines with the drawn counts; texts play no part in a verdict."""
    lines, last, count = [], -1, 0
    columns = zip(errors.tolist(), drawn.lengths.tolist(), drawn.of_line.tolist(), loops.tolist(), strict=True)
    for number, (wrong, length, writer, loop) in enumerate(columns):
        count = count + 1 if writer == last else 0
        last, rate = writer, ErrorRate(int(wrong), int(length))
        status: WriterStatus = "known" if writer % 3 else "new"
        page = f"{writer}/{count // LINES_ON_PAGE}"
        line = LineScore(f"{number}", "", "", rate, rate, not wrong, empty=False, over_long=loop, page=page)
        lines.append(replace(line, writer=f"w{writer}", writer_status=status))
    return lines


def measure(scene: Scene, harm: float, writers: int, repeats: int) -> list[str]:
    """One row of the table."""
    random, found = np.random.default_rng(writers), np.zeros(3)
    for drawn in sets(scene, writers, repeats, random):
        more = random.poisson(drawn.two * (harm - 1)) * (drawn.of_line % 3 == 0)
        readings = [_score(drawn, errors, errors > drawn.lengths + 20) for errors in (drawn.one, drawn.two + more)]
        systems = [System("first", readings[0]), System("second", readings[1])]
        difference = compare(systems).differences[0]
        if difference.rate.scope is None:
            harmed = any("new writers" in said for said in difference.harmed)
            found += difference.verdict in {"better", "worse"}, difference.verdict == "better", harmed
    return [f"{share:.1%}" for share in found / repeats]


def main() -> None:
    """Print a row for each scene and number of writers."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parse(parser)
    table = Table("scene", "writers", "winner", "better", "new writers worse")
    for name, (scene, harm) in SCENES.items():
        for writers in options.sizes:
            table.row(name, writers, *measure(scene, harm, writers, options.repeats))
    record(options, table.rows)


if __name__ == "__main__":
    main()
