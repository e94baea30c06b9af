"""Score where programs find lines, by the same code: our detectors, and others by the PAGE that they write.

    python benchmarks/layouts.py DRAWN SYSTEM [SYSTEM ...]

DRAWN is a folder of PAGE files beside their images. A SYSTEM is `detector` (the shipped one), the run folder of a
detector, or a folder with a PAGE file of the same name for each page, as kraken writes it:

    kraken -i p1.png OTHER/p1.xml -i p2.png OTHER/p2.xml -x segment -bl -i MODEL

A line counts as found where it overlaps a drawn one (IoU of polygons at least 0.5), each once. Intervals are of the
difference to the first system over pages drawn with replacement: too narrow where pages are by one hand.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsocr.document import Outline
from dsocr.evaluation.layout_scores import LayoutScores, PageLines, count_lines
from dsocr.formats.page import parse_page
from dsocr.formats.xml import parse_xml_bytes
from dsocr.images import MAX_PAGE_PIXELS, open_image
from dsocr.layout.lines import find_outlines
from dsocr.layout.text_detector import detect_text, keep_detector
from dsocr.runs import SHIPPED_DETECTOR, RunFolder
from runner import Table, bootstrap, make_parser, parse, record


def read_outlines(file: Path) -> tuple[str, list[Outline]]:
    """Return the image that a PAGE file names, and the outlines of its lines."""
    page = parse_page(parse_xml_bytes(file.read_bytes()), file.stem)
    return page.image or "", [line.outline for line in page.lines if line.outline]


def choose_system(system: str) -> Callable[[Path, Path], list[Outline]]:
    """Return a function from a PAGE file and its image to the outlines that a system finds."""
    if system != "detector" and not RunFolder(Path(system)).config.is_file():
        return lambda file, image: read_outlines(Path(system) / file.name)[1]
    is_shipped = system == "detector"
    network = keep_detector(SHIPPED_DETECTOR if is_shipped else RunFolder.to_find_lines_with(Path(system)))

    def find(file: Path, image: Path) -> list[Outline]:
        opened = open_image(image, max_pixels=MAX_PAGE_PIXELS)
        return find_outlines(detect_text(opened, network), opened.size)

    return find


def difference(pages: Sequence[PageLines], first: Sequence[PageLines], chosen: NDArray[np.intp]) -> float:
    """Return how much the F1 of lines over the chosen pages is above that of the first system."""
    own, other = ([source[place] for place in chosen] for source in (pages, first))
    return LayoutScores("", "", "", own).counts.f1 - LayoutScores("", "", "", other).counts.f1


def main() -> None:
    """Score every system, and print a row for each."""
    parser = make_parser(__doc__)
    parser.add_argument("drawn", type=Path)
    parser.add_argument("systems", nargs="+")
    options = parse(parser)
    files = sorted(options.drawn.glob("*.xml"))
    table = Table("system", "pages", "lines", "found", "recall", "precision", "F1", "difference", "seconds")
    first: list[PageLines] = []
    for system in options.systems:
        begun, find, pages = time.process_time(), choose_system(system), []
        for file in files:
            image, drawn = read_outlines(file)
            pages.append(PageLines(file.stem, file.stem, count_lines(drawn, find(file, file.parent / image))))
        first = first or pages

        low, high = bootstrap(len(files), partial(difference, pages, first))
        row = LayoutScores(system, str(options.drawn), "test", pages).to_dict()
        scores = (f"{row[name]:.3f}" for name in ("recall", "precision", "f1"))
        found = (len(files), row["drawn"], row["detected"], *scores, f"{low:+.3f} to {high:+.3f}")
        table.row(system, *found, f"{time.process_time() - begun:.0f}")
    record(options, table.rows)


if __name__ == "__main__":
    main()
