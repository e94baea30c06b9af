"""Seconds and memory of a scorecard: `python benchmarks/scorecard.py [--lines 100000] [--json FILE]`.

Lines of made-up Russian words by 200 writers on 4,000 pages, misread by a base at a CER of about 30 % and by an adapter
at about 10 %, of which one line in a hundred loops and one is empty. Each stage is timed in one process.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dsocr.document import Sample, Split
from dsocr.evaluation.scorecard import make_scorecard
from dsocr.evaluation.scores import load_lines, score_lines, write_lines
from measuring import append_json, gigabytes, peak_resident, table_line

LETTERS = "оооооаааеееииннттссрвлкмдпуяыьгзбчйхжшюцщэфё"
WIDTHS = (24, 8, 8, 8)
T = TypeVar("T")


@dataclass(frozen=True)
class Read:
    """What was read of a line."""

    text: str
    truncated: bool
    looping: bool = False


def made_up(lines: int, seed: int) -> list[Sample]:
    """Lines of about 45 characters, some with a capital, a number or a mark."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(1, 9))) for _ in range(20_000)]
    samples = []
    for number in range(lines):
        text = " ".join(chance.choices(words, k=chance.randint(4, 12))).capitalize()
        text += chance.choice(("", "", ",", ".", f" {chance.randint(1, 1999)} г."))
        page, writer = f"page {number * 4000 // lines}", f"writer {number * 200 // lines}"
        samples.append(Sample(f"{number}.png", Path("a"), text, Split.TEST, writer=writer, page=page, source="letters"))
    return samples


def misread(samples: list[Sample], share: float, seed: int) -> dict[str, Read]:
    """Readings with this share of the characters replaced, deleted or doubled."""
    chance = random.Random(seed)
    readings = {}
    for sample in samples:
        fate = chance.random()
        if fate < 0.02:
            readings[sample.id] = Read("" if fate < 0.01 else "и он " * 60, fate >= 0.01)
            continue
        spoilt = (
            chance.choice((chance.choice(LETTERS), "", character * 2)) if chance.random() < share else character
            for character in sample.text
        )
        readings[sample.id] = Read("".join(spoilt), False)
    return readings


def main() -> None:
    """Time the stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    samples = made_up(options.lines, 1)
    base, adapter = misread(samples, 0.3, 2), misread(samples, 0.1, 3)
    rows = []
    print(f"{options.lines} lines, read twice; {gigabytes(peak_resident())} GB before the first stage")
    print(table_line(("stage", "seconds", "cpu s", "peak GB"), WIDTHS))

    def timed(stage: str, work: Callable[[], T]) -> T:
        start, cpu = time.perf_counter(), time.process_time()
        result = work()
        row = {"stage": stage, "seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        rows.append(row | {"peak": peak_resident()})
        numbers = (f"{row['seconds']:.1f}", f"{row['cpu']:.1f}", gigabytes(peak_resident()))
        print(table_line((stage, *numbers), WIDTHS), flush=True)
        return result

    read = {
        "base": timed("score the base's lines", lambda: score_lines(samples, base)),
        "adapter": timed("score the adapter's", lambda: score_lines(samples, adapter)),
    }
    card = timed("make the card", lambda: make_scorecard("test", read["base"], read["adapter"]))
    with tempfile.TemporaryDirectory() as folder:
        lines, whole = Path(folder) / "lines.jsonl", Path(folder) / "scorecard.json"
        timed("write the card", lambda: card.save(whole))
        timed("write the lines", lambda: write_lines(lines, read))
        sizes = f"scorecard.json {whole.stat().st_size / 1e3:.0f} kB, lines.jsonl {lines.stat().st_size / 1e6:.0f} MB"
        read.clear()
        timed("read the lines", lambda: load_lines(lines))
    print(sizes)
    append_json(options.json, "scorecard", {"lines": options.lines}, rows)


if __name__ == "__main__":
    main()
