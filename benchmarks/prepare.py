"""Measure `dsocr prepare`: lines per second, where the time goes, and whether memory grows with the dataset.

    python benchmarks/prepare.py [--lines 5000]

Pages are the copiste's: in one process and in two, again with all crops reused, and into Parquet files. Lines are
drawn images with a table, so many and four times so many. Memory is that of all processes together. The stages are
timed one after another in this process, without reading and writing files.
"""

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
from runner import COPISTE, Table, make_parser, parse, record, require_copiste, watch

WRITER = r"((?:imp_)?wikitexte_\d+)"


def time_stages() -> dict[str, float]:
    """Return the seconds of each stage of cutting the pages."""
    seconds = dict.fromkeys(("xml", "decode", "crop", "encode"), 0.0)
    start = time.perf_counter()
    pages = [item for item in read_alto(COPISTE) if isinstance(item, Page)]
    seconds["xml"] = time.perf_counter() - start
    for page in pages:
        times = [time.perf_counter()]
        image = open_image(page.image)
        times.append(time.perf_counter())
        paper = paper_colour(image)
        crops = [crop_line(image, line.outline, paper) for line in page.lines if line.outline]
        times.append(time.perf_counter())
        for crop in crops:
            encode_image(crop, "JPEG")
        times.append(time.perf_counter())
        for stage, begin, end in zip(("decode", "crop", "encode"), times, times[1:], strict=False):
            seconds[stage] += end - begin
    return seconds


def measure(table: Table, name: str, source: Path, out: Path, *options: str) -> None:
    """Run one `dsocr prepare`, imports included, and print its row."""
    used = watch([sys.executable, "-m", "dsocr", "prepare", str(source), "-o", str(out), "-q", *options])
    lines = sum(part.samples for part in read_card(out).splits.values())
    rates = (f"{lines / used[kind]:.0f}" for kind in ("seconds", "cpu"))
    table.row(name, lines, f"{used['seconds']:.1f}", *rates, *(f"{used[kind] / 1e6:.0f}" for kind in ("uss", "rss")))


def draw_lines(folder: Path, count: int) -> Path:
    """Draw grey line images of 400 x 60 pixels, each with its own noise, and a table of texts."""
    rng = np.random.default_rng(17)
    (folder / "images").mkdir(parents=True)
    rows = ["image\ttext\twriter"]
    for number in range(count):
        grain = rng.integers(180, 255, (15, 100), dtype=np.uint8)
        Image.fromarray(grain).resize((400, 60)).save(folder / f"images/{number:06d}.jpg", quality=60)
        rows.append(f"images/{number:06d}.jpg\tline {number} of {count}\twriter {number // 10}")
    (folder / "lines.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")
    return folder


def main() -> None:
    """Prepare every source once."""
    parser = make_parser(__doc__)
    parser.add_argument("--lines", type=int, default=5000)
    options = parse(parser)
    require_copiste()
    table = Table("source", "lines", "seconds", "lines/s", "lines/s of processor", "own MB", "resident MB")
    with tempfile.TemporaryDirectory(prefix="prepare-") as name:
        folder = Path(name)
        pages = ["--writer", WRITER]
        measure(table, "pages, one process", COPISTE, folder / "a", *pages, "--workers", "1")
        measure(table, "pages, two processes", COPISTE, folder / "b", *pages, "--workers", "2")
        measure(table, "pages, crops reused", COPISTE, folder / "b", *pages, "--overwrite")
        measure(table, "pages, into Parquet files", COPISTE, folder / "c", *pages, "--store", "parquet")
        for count in (options.lines, 4 * options.lines):
            measure(table, "line images", draw_lines(folder / f"lines-{count}", count), folder / f"out-{count}")
    print(", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in time_stages().items()))
    record(options, table.rows)


if __name__ == "__main__":
    main()
