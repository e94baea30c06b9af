"""What it is worth to open the next pages while some are read: the same pages with and without, in turn.

    python benchmarks/opening_ahead.py PAGES --run RUN
    python benchmarks/opening_ahead.py PAGES --line-ms 10

PAGES is a folder of scans, with or without ALTO or PAGE files. With `--run` an adapter reads on the processor, where
both share its cores; with `--line-ms` a stand-in waits so long for each line, as a process waits for a graphics card.
Times are of the clock, for the whole job without writing; the ratio is the median over rounds. What is slow to
import is imported in functions: the processes that open pages import this file, which
they would not with `dsocr transcribe`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from PIL import Image

from dsocr.inference.inputs import InputPage, PagePreparer, detect_lines, find_pages
from dsocr.inference.pages import ReadingJournal
from dsocr.io.processes import Workers
from dsocr.runs import RunFolder
from measuring import describe, machine

if TYPE_CHECKING:
    from dsocr.inference.confidence import Prediction
    from dsocr.inference.pages import ImageReader

BATCH = 16


class Waiting:
    """Waits for every batch of lines as for a graphics card, and answers the same for all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> "Iterator[Prediction]":
        """A prediction for every image, in order."""
        from dsocr.inference.confidence import Prediction

        images = iter(images)
        while batch := list(islice(images, BATCH)):
            time.sleep(self._seconds * len(batch))
            yield from (Prediction(name, "слово", 8, truncated=False) for name, _ in batch)


def on_request(
    groups: Iterable[Sequence[InputPage]], _: Workers, make: Callable[[InputPage], object]
) -> Iterator[list[object]]:
    """Replace `prefetch`: make each group in this process when it is requested."""
    for group in groups:
        yield [make(page) for page in group]


def seconds_of(pages: Sequence[InputPage], opening: PagePreparer, reader: "ImageReader", folder: Path) -> float:
    """Return the seconds it takes to read the pages into a new journal."""
    from dsocr.inference.pages import read_into, read_locally

    journal = ReadingJournal(folder / f"{time.monotonic_ns()}.sqlite")
    start = time.perf_counter()
    read = partial(read_locally, preparer=opening, open_reader=lambda: reader, strict=False)
    read_into(journal, pages, read, progress=None)
    seconds = time.perf_counter() - start
    journal.close()
    return seconds


def main() -> None:
    """Prints a row for each round, then the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--line-ms", type=float, default=10)
    parser.add_argument("--most", type=int, default=16, help="pages at most")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    import torch

    from dsocr.inference.reader import LocalReader

    torch.set_num_threads(1)
    print(describe(machine()))
    reader = Waiting(given.line_ms / 1000) if given.run is None else LocalReader.of_run(RunFolder.open(given.run))
    opening = PagePreparer("line", detect_lines, replace_texts=True)
    with tempfile.TemporaryDirectory() as name, find_pages([given.pages], Path(name) / "unpacked") as found:
        pages = found.pages[: given.most]
        began = time.perf_counter()
        lines = sum(len(opening.prepare(page).crops) for page in pages)
        print(f"{len(pages)} pages, {lines} lines; opening alone takes {time.perf_counter() - began:.1f} s")
        ratios = []
        for place in range(given.rounds):
            with patch("dsocr.inference.pages.prefetch", on_request):
                before = seconds_of(pages, opening, reader, Path(name))
            after = seconds_of(pages, opening, reader, Path(name))
            ratios.append(before / after)
            print(f"round {place + 1}: in turn {before:.1f} s, ahead {after:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
    print(f"ahead is {median(ratios):.2f} times as fast (median)")


if __name__ == "__main__":
    main()
