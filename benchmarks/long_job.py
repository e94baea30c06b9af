"""What `dsocr transcribe` holds in memory over a long job: resident memory, journal and output by pages done.

    python benchmarks/long_job.py [--pages 10000] [--run RUN] [--lines 1] [--actors N]

Pages are drawn: with `--lines 1` they are images of one line, else pages with that many bars, whose lines are found
first. Without `--run` a stub returns as much text as a model would, so that a job of 10,000 pages takes minutes; growth
with the number of pages still shows, because a model keeps nothing between batches. With `--actors` a Ray cluster
reads, and the memory reported is that of the process that keeps the journal and writes.
"""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from dsocr.inference.confidence import Prediction, Word
from dsocr.inference.engines import Cluster
from dsocr.inference.transcribe import transcribe
from dsocr.io.work import work_path
from dsocr.runs import RunFolder
from measuring import describe, machine, write_reading

FORMATS = ("jsonl", "alto")


class StandIn:
    """Answers with six words made of the image's hash, and a confidence for each word and character."""

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every image, in order."""
        for name, image in images:
            digest = hashlib.sha256(image.tobytes()).hexdigest()
            text = " ".join(digest[place : place + 6] for place in range(0, 36, 6))
            words = tuple(Word(text[place : place + 6], place, place + 6, 0.5) for place in range(0, len(text), 7))
            characters = tuple(int(digest[place % 64], 16) / 15 for place in range(len(text)))
            yield Prediction(name, text, 42, truncated=False, confidence=0.5, words=words, characters=characters)


def main() -> None:
    """Draws the pages, transcribes them, and prints a row now and then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--lines", type=int, default=1)
    parser.add_argument("--actors", type=int)
    given = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    print(describe(machine()))
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        draw(root / "in", given.pages, given.lines)
        job(root, given.pages, given.run, Cluster(given.actors) if given.actors else None)


def draw(folder: Path, pages: int, lines: int) -> None:
    """Images of one line, 200 to 900 pixels wide, or pages of several; strokes in the place of words."""
    random = np.random.default_rng(17)
    folder.mkdir()
    for number in range(pages):
        height = 48 if lines == 1 else 60 + 60 * lines
        pixels = np.full((height, random.integers(200, 900) if lines == 1 else 500), 235, np.uint8)
        for line in range(lines):
            top = 12 if lines == 1 else 40 + 60 * line
            for left in range(20, pixels.shape[1] - 60, 50):
                pixels[top : top + 20, left : left + random.integers(15, 45)] = 40
        Image.fromarray(pixels).save(folder / f"p{number:05d}.png")


def job(root: Path, pages: int, run: Path | None, engine: Cluster | None) -> None:
    """Transcribes what was drawn."""
    process, began = psutil.Process(), time.monotonic()
    out = root / "out"
    journal = work_path(out) / "journal.sqlite"
    print(f"{'pages':>7} {'seconds':>8} {'RSS MB':>7} {'journal MB':>11}")
    wanted = iter([*range(pages // 10, pages, pages // 10), pages])
    due = next(wanted)

    def progress(done: int, _: int) -> None:
        nonlocal due
        if done >= due:
            due = next(wanted, pages + 1)
            sizes = f"{process.memory_info().rss / 1e6:>7.0f} {journal.stat().st_size / 1e6:>11.1f}"
            print(f"{done:>7} {time.monotonic() - began:>8.0f} {sizes}", flush=True)

    if run is None:
        finished = RunFolder(root / "run")
        write_reading(finished.path)
    else:
        finished = RunFolder.to_read_with(run)
    reader = StandIn() if run is None else None
    review = root / "review.tsv"
    report = transcribe(
        finished, [root / "in"], out, formats=FORMATS, reader=reader, engine=engine, progress=progress, review=review
    )
    written = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    print(
        f"written {time.monotonic() - began:>7.0f} {process.memory_info().rss / 1e6:>7.0f}   "
        f"{len(written)} files of {sum(written) / 1e6:.1f} MB, {report.lines} lines"
    )


if __name__ == "__main__":
    main()
