"""Scores where programs find lines, by the same code: our detectors, and others by the PAGE they write.

    python benchmarks/layouts.py DRAWN SYSTEM [SYSTEM ...] [--json FILE]

DRAWN is a folder of PAGE files beside their images. A SYSTEM is `detector` (the shipped one), the run folder of a
detector, or a folder with a PAGE file of the same name for each page, as kraken writes it:

    kraken -i p1.png OTHER/p1.xml -i p2.png OTHER/p2.xml -x segment -bl -i MODEL

A line counts as found where it overlaps a drawn one (IoU of polygons at least 0.5), each once. Intervals are of the
difference to the first system over 2,000 bootstrap samples of pages: too narrow where pages are by one hand.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.data.lines import find_outlines
from dsocr.document import Outline
from dsocr.evaluation.layout_scores import LayoutScores, PageLines, count_lines
from dsocr.formats.page import parse_page
from dsocr.formats.xml import parse_xml_bytes
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.models.text_detector import detect_text, load_detector, load_shipped_detector
from dsocr.runs import RunFolder
from measuring import append_json

DRAWS = 2000


def read_outlines(file: Path) -> tuple[str, list[Outline]]:
    """The image that a PAGE file names, and the outlines of its lines."""
    page = parse_page(parse_xml_bytes(file.read_bytes()), file.stem)
    return page.image or "", [line.outline for line in page.lines if line.outline]


def choose_system(system: str) -> Callable[[Path, Path], list[Outline]]:
    """A function that returns the outlines of a page, given its PAGE file and image."""
    if system != "detector" and not RunFolder(Path(system)).config.is_file():
        return lambda file, image: read_outlines(Path(system) / file.name)[1]
    is_shipped = system == "detector"
    network = load_shipped_detector() if is_shipped else load_detector(RunFolder.to_find_lines_with(Path(system)))

    def find(file: Path, image: Path) -> list[Outline]:
        opened = open_image(image, max_pixels=MAX_PAGE_PIXELS)
        return find_outlines(detect_text(opened, network), opened.size)

    return find


def score(system: str, files: Sequence[Path]) -> LayoutScores:
    """Score the lines of each page that a system finds."""
    find = choose_system(system)
    pages = []
    for file in files:
        image, drawn = read_outlines(file)
        pages.append(PageLines(file.stem, file.stem, count_lines(drawn, find(file, file.parent / image))))
    return LayoutScores(system, str(files[0].parent), "test", pages)


def main() -> None:
    """Score every system, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drawn", type=Path)
    parser.add_argument("systems", nargs="+")
    parser.add_argument("--json", type=Path, help="JSON Lines to append to")
    options = parser.parse_args()
    files = sorted(options.drawn.glob("*.xml"))
    chosen = np.random.default_rng(17).integers(0, len(files), (DRAWS, len(files)))
    first: Sequence[PageLines] = ()
    rows: list[dict[str, Any]] = []
    for system in options.systems:
        begun = time.process_time()
        scores = score(system, files)
        first = first or scores.pages
        row: dict[str, Any] = scores.to_dict() | {"seconds": time.process_time() - begun}
        rows.append(row)
        again, base = (
            np.array([LayoutScores("", "", "", [pages[i] for i in draw]).counts.f1 for draw in chosen])
            for pages in (scores.pages, first)
        )
        low, high = np.percentile(again - base, (2.5, 97.5))
        print(f"{system}: {len(files)} pages, {row['drawn']} lines, {row['detected']} found, {row['seconds']:.0f} s")
        values = "  ".join(f"{key} {row[key]:.3f}" for key in ("recall", "precision", "f1"))
        print(f"  {values}  difference {low:+.3f} to {high:+.3f}")
    append_json(options.json, "layouts", {"drawn": options.drawn, "pages": len(files)}, rows)


if __name__ == "__main__":
    main()
