"""Measure the memory of `dsocr transcribe` over a long job: resident memory, journal and output by pages done.

    python benchmarks/long_job.py [--pages 10000] [--actors N]

Images of one line are drawn, and a stub returns as much text as a model would, so that a job of 10,000 takes minutes;
a model keeps nothing between batches. With `--actors` a Ray cluster reads, and the memory is that of the process that
keeps the journal and writes.
"""

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
from dsocr.inference.transcribe import Reader, transcribe
from dsocr.io.work import work_path
from dsocr.runs import READING, ReadingSettings, RunFolder
from dsocr.text import TextPolicy
from runner import Table, make_parser, parse, record

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
    """Draw the images and transcribe them; print a row now and then."""
    parser = make_parser(__doc__)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--actors", type=int)
    options = parse(parser)
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        draw(root / "in", options.pages)
        record(options, job(root, options.pages, f"ray:{options.actors}" if options.actors else None).rows)


def draw(folder: Path, pages: int) -> None:
    """Draw images of one line, 200 to 900 pixels wide, with strokes in place of words."""
    random = np.random.default_rng(17)
    folder.mkdir()
    for number in range(pages):
        pixels = np.full((48, random.integers(200, 900)), 235, np.uint8)
        for left in range(20, pixels.shape[1] - 60, 50):
            pixels[12:32, left : left + random.integers(15, 45)] = 40
        Image.fromarray(pixels).save(folder / f"p{number:05d}.png")


def job(root: Path, pages: int, engine: str | None) -> Table:
    """Transcribe the images."""
    process, began, out = psutil.Process(), time.monotonic(), root / "out"
    journal = work_path(out) / "journal.sqlite"
    table = Table("pages", "seconds", "resident MB", "MB of journal or output")
    due = max(1, pages // 10)

    def row(name: object, size: int) -> None:
        memory = process.memory_info().rss
        table.row(name, f"{time.monotonic() - began:.0f}", f"{memory / 1e6:.0f}", f"{size / 1e6:.1f}")

    def progress(done: int, _: int) -> None:
        nonlocal due
        if done >= due:
            due += max(1, pages // 10)
            row(done, journal.stat().st_size)

    run = RunFolder(root / "run")
    run.adapter.mkdir(parents=True)
    settings = ReadingSettings("nano", None, "<image>\nFree OCR.", "wrap", TextPolicy(), {})
    (run.adapter / READING).write_text(settings.to_json(), encoding="utf-8")
    transcribe(Reader(StandIn(), run), [root / "in"], out, format=FORMATS, engine=engine, progress=progress)  # type: ignore[arg-type]
    row("written", sum(path.stat().st_size for path in out.rglob("*") if path.is_file()))
    return table


if __name__ == "__main__":
    main()
