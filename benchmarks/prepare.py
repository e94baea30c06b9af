"""How fast `dsocr prepare` makes datasets, where the time goes, and whether memory grows with their size.

    python benchmarks/prepare.py [--lines 5000]

Pages: `examples/copiste` (or the full-size export, if DSOCR_REAL_DATA names it), in one process and in several, once
more with everything cut already, and into Parquet files. Lines: drawn line images with a table, so many and four
times so many. Memory is that of all processes together. The stages are timed one after the other in this process;
reading and writing files is in the whole but in no stage.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from dsocr.data.dataset import read_card
from dsocr.document import Page
from dsocr.formats.alto import read_alto
from dsocr.images import crop_line, encode_image, open_image, paper_colour
from measuring import COPISTE, append_json, describe, machine, require_copiste, table_line, watch

WRITER = r"((?:imp_)?wikitexte_\d+)"
WIDTHS = (32, 8, 9, 9, 9, 10, 10)


def time_stages() -> dict[str, float]:
    """Seconds in each stage of cutting the pages."""
    seconds = dict.fromkeys(("xml", "decode", "crop", "encode"), 0.0)
    start = time.perf_counter()
    images = [item for item in read_alto(COPISTE) if isinstance(item, Page)]
    seconds["xml"] = time.perf_counter() - start
    for image in images:
        times = [time.perf_counter()]
        page = open_image(image.image)
        times.append(time.perf_counter())
        paper = paper_colour(page)
        crops = [crop_line(page, line.outline, paper) for line in image.lines if line.outline]
        times.append(time.perf_counter())
        for crop in crops:
            encode_image(crop, "JPEG")
        times.append(time.perf_counter())
        for stage, begin, end in zip(("decode", "crop", "encode"), times, times[1:], strict=False):
            seconds[stage] += end - begin
    return seconds


def measure(name: str, source: Path, out: Path, *options: str) -> dict[str, object]:
    """One `dsocr prepare`, with the imports and all, as a row that is printed too."""
    command = [sys.executable, "-m", "dsocr", "prepare", str(source), "-o", str(out), "-q", *options]
    _, used = watch(command)
    lines = sum(part.samples for part in read_card(out).splits.values())
    megabytes = [f"{used[kind] / 1e6:.0f}" for kind in ("uss", "rss")]
    rate, cpu = lines / used["seconds"], lines / used["cpu"]
    cells = [name, str(lines), f"{used['seconds']:.1f}", f"{rate:.0f}", f"{cpu:.0f}", *megabytes]
    print(table_line(cells, WIDTHS), flush=True)
    return {"name": name, "lines": lines, **used}


def draw_lines(folder: Path, count: int) -> Path:
    """Grey line images of 400 x 60 pixels, each with its own noise, and a table of texts."""
    rng = np.random.default_rng(17)
    (folder / "images").mkdir(parents=True)
    rows = ["image\ttext\twriter"]
    for number in range(count):
        grain = rng.integers(180, 255, (15, 100), dtype=np.uint8)
        Image.fromarray(grain).resize((400, 60)).save(folder / f"images/{number:06d}.jpg", quality=60)
        rows.append(f"images/{number:06d}.jpg\tline {number} of {count}\twriter {number // 100}")
    (folder / "lines.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    return folder


def main() -> None:
    """Runs everything once and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--json", type=Path, help="add the results to this file of JSON lines")
    options = parser.parse_args()
    require_copiste()
    print(table_line(["", "lines", "seconds", "lines/s", "per cpu s", "own MB", "res. MB"], WIDTHS))
    rows = []
    with tempfile.TemporaryDirectory(prefix="prepare-") as name:
        folder = Path(name)
        pages = ["--writer", WRITER]
        rows.append(measure("pages, one process", COPISTE, folder / "a", *pages, "--workers", "1"))
        rows.append(measure("pages, two processes", COPISTE, folder / "b", *pages, "--workers", "2"))
        rows.append(measure("pages, all cut before", COPISTE, folder / "b", *pages, "--overwrite"))
        rows.append(measure("pages, into Parquet files", COPISTE, folder / "c", *pages, "--store", "parquet"))
        for count in (options.lines, 4 * options.lines):
            source = draw_lines(folder / f"lines-{count}", count)
            rows.append(measure("line images", source, folder / f"out-{count}"))
    for stage, seconds in time_stages().items():
        print(f"{stage:<8} {seconds:.2f} s")
    print(f"machine  {describe(machine())}, load {os.getloadavg()[0]:.1f}")
    append_json(options.json, "prepare", {"lines": options.lines}, rows)


if __name__ == "__main__":
    main()
