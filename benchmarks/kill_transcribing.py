"""Kills `dsocr transcribe` with SIGKILL while it works, runs it again, and compares what comes out byte by byte.

    python benchmarks/kill_transcribing.py [KILLS] [--pages N] [--seed N]

The pages are drawn, with an ALTO file each; the reader is a stand-in that answers with a hash of the pixels after a
few milliseconds, so that kills strike everywhere and not in the network alone. What was read is written down by the
stand-in, so that a page that is read twice is seen: only the pages in hand when a kill struck may be.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from PIL import Image

from dsocr.inference.confidence import Prediction
from dsocr.inference.transcribe import transcribe
from dsocr.runs import RunFolder
from measuring import write_reading

LINES = 4
FORMATS = ("alto", "jsonl", "pdf")


class Slow:
    """Answers with a hash of the pixels, and writes down what it was asked."""

    def __init__(self, log: Path, seconds: float) -> None:
        self._log, self._seconds = log, seconds

    def read(self, images: Iterable[tuple[str, Image.Image]]) -> Iterator[Prediction]:
        """A prediction for every image, in order."""
        for name, image in images:
            time.sleep(self._seconds)
            with self._log.open("a", encoding="utf-8") as file:
                file.write(name + "\n")
            yield Prediction(name, f"строка {hashlib.sha256(image.tobytes()).hexdigest()[:8]}", 8, truncated=False)


def work(folder: Path, seconds: float) -> None:
    """The transcription itself, in the process that is killed."""
    reader = Slow(folder / "read.log", seconds)
    transcribe(RunFolder(folder / "run"), [folder.parent / "in"], folder / "out", formats=FORMATS, reader=reader)


def begin(folder: Path, seconds: float) -> BaseProcess:
    """The same in a forked process, because importing takes longer than the work."""
    process = multiprocessing.get_context("fork").Process(target=work, args=(folder, seconds))
    process.start()
    return process


def content(folder: Path) -> dict[str, str]:
    """A hash of every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def prepare(root: Path, pages: int, run: Path) -> None:
    """Pages of bars with an ALTO file each."""
    (root / "in").mkdir()
    for number in range(pages):
        page = Image.effect_noise((400, 300), 10 + number % 7)
        lines = ""
        for line in range(LINES):
            page.paste(20 + number % 200, (30, 30 + 60 * line, 100 + number, 50 + 60 * line))
            box = f'HPOS="20" VPOS="{20 + 60 * line}" WIDTH="360" HEIGHT="45"'
            lines += f'<TextLine ID="l{line}" {box}/>\n'
        page.save(root / "in" / f"p{number:04d}.jpg", quality=80)
        text = f"""<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>p{number:04d}.jpg</fileName></sourceImageInformation></Description>
<Layout><Page ID="p" PHYSICAL_IMG_NR="1" WIDTH="400" HEIGHT="300"><PrintSpace><TextBlock ID="b">
{lines}</TextBlock></PrintSpace></Page></Layout></alto>"""
        (root / "in" / f"p{number:04d}.xml").write_text(text, encoding="utf-8")
    write_reading(run)


def finish(folder: Path, seconds: float) -> bool:
    """Runs it to its end; true where that was a good one."""
    process = begin(folder, seconds)
    process.join()
    return process.exitcode == 0


def main() -> None:
    """Prints what was killed where, and every difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=50)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--seconds", type=float, default=0.002, help="how long the stand-in takes for a line")
    given = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    with tempfile.TemporaryDirectory() as name:
        sys.exit(1 if kill(Path(name), given.kills, given.pages, given.seed, given.seconds) else 0)


def kill(root: Path, kills: int, pages: int, seed: int, seconds: float) -> int:
    """How many faults there were."""
    drawn = random.Random(seed)
    calm = root / "calm"
    calm.mkdir()
    prepare(root, pages, calm / "run")
    start = time.perf_counter()
    if not finish(calm, seconds):
        sys.exit("the uninterrupted job failed")
    took = time.perf_counter() - start
    wanted = content(calm / "out")
    print(f"uninterrupted: {pages} pages, {len(wanted)} files, {took:.1f} s")
    faults = done = jobs = 0
    begun = time.perf_counter()
    struck: Counter[str] = Counter()
    while done < kills:
        jobs += 1
        folder = root / f"job{jobs}"
        folder.mkdir()
        shutil.copytree(calm / "run", folder / "run")
        # A dozen kills a job: on its way, while it writes, and as its folder takes its place.
        for _ in range(12):
            process = begin(folder, seconds)
            time.sleep(drawn.uniform(0.01, 0.5 * took))
            process.kill()
            process.join()
            if process.exitcode != -signal.SIGKILL:
                break
            done += 1
            struck[_where(folder)] += 1
            if done == kills:
                break
        if not (folder / "out").exists() and not finish(folder, seconds):
            print(f"job {jobs}: it failed")
            faults += 1
        elif (found := content(folder / "out")) != wanted:
            print(
                f"job {jobs}: differs in {[name for name in wanted | found if wanted.get(name) != found.get(name)][:5]}"
            )
            faults += 1
        read = Counter((folder / "read.log").read_text(encoding="utf-8").split())
        if len(read) != pages * LINES:
            print(f"job {jobs}: {len(read)} lines were read of {pages * LINES}")
            faults += 1
        shutil.rmtree(folder)
    counts = ", ".join(f"{count} while {place}" for place, count in struck.most_common())
    print(f"{done} kills of {jobs} jobs in {(time.perf_counter() - begun) / 60:.1f} min, {faults} faults; {counts}")
    return faults


def _where(folder: Path) -> str:
    """What the job was at, by what lies in its work folder."""
    work = folder / ".out.work"
    if (work / "draft").exists():
        return "files were written"
    if (work / "journal.sqlite").exists():
        return "pages were read"
    return "it began"


if __name__ == "__main__":
    main()
