"""How fast `prepare` makes a dataset of the copiste pages, and where the time goes.

    python benchmarks/prepare.py

DSOCR_REAL_DATA says where the pages lie. The stages are timed one after the other, apart from the whole run; reading
and writing files is in the whole but in no stage.
"""

import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from dsocr.data.cutting import crop_line, encoded, paper_colour
from dsocr.data.images import open_image
from dsocr.data.prepare import prepare
from dsocr.data.sources.alto import read_alto
from dsocr.data.sources.layout import SourceImage
from measuring import processor

PROJECT = Path(__file__).resolve().parents[1]
COPISTE = Path(os.environ.get("DSOCR_REAL_DATA") or PROJECT.parent / "shared" / "data" / "copiste")


def time_whole() -> tuple[int, float]:
    """Lines and seconds of one `prepare`."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        report = prepare(COPISTE, Path(folder, "dataset"), writer=r"((?:imp_)?wikitexte_\d+)")
        seconds = time.perf_counter() - start
    return sum(part.samples for part in report.card.splits.values()), seconds


def time_stages() -> dict[str, float]:
    """Seconds in each stage."""
    seconds = dict.fromkeys(("xml", "decode", "crop", "encode"), 0.0)
    start = time.perf_counter()
    images = [item for item in read_alto(COPISTE) if isinstance(item, SourceImage)]
    seconds["xml"] = time.perf_counter() - start
    for image in images:
        times = [time.perf_counter()]
        page = open_image(image.image)
        times.append(time.perf_counter())
        paper = paper_colour(page)
        crops = [crop_line(page, line.outline, paper) for line in image.lines if line.outline]
        times.append(time.perf_counter())
        for crop in crops:
            encoded(crop, "JPEG")
        times.append(time.perf_counter())
        for stage, begin, end in zip(("decode", "crop", "encode"), times, times[1:], strict=False):
            seconds[stage] += end - begin
    return seconds


def peak_memory() -> str:
    """The most memory this process had, where the system tells."""
    try:
        import resource
    except ImportError:
        return "not told by this system"
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit:.0f} MB"


def main() -> None:
    """Runs once and prints a few lines."""
    if not (COPISTE / "alto").is_dir():
        sys.exit(f"the copiste pages are not at {COPISTE}; set DSOCR_REAL_DATA")
    lines, seconds = time_whole()
    memory = peak_memory()
    print(f"whole    {lines} lines in {seconds:.2f} s: {lines / seconds:.0f} lines/s, one process")
    for stage, part in time_stages().items():
        print(f"{stage:<8} {part:.2f} s")
    print(f"memory   {memory} at most")
    print(f"machine  {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
