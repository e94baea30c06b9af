"""Finds lines on pages whose lines are drawn, and counts how many of them are found.

    python benchmarks/segmenter.py FOLDER [--overlays FOLDER] [--limit N]

A found line counts where it and a drawn one overlap by half of what they cover together (IoU 0.5 of their polygons,
counted in pixels at a third of the page's size), each line once.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from dsocr.data.segment import segment
from dsocr.document import Outline, Page
from dsocr.errors import DataError
from dsocr.formats import detect_format
from dsocr.images import open_image
from measuring import append_json, peak_resident

SHRUNK = 3
ENOUGH = 0.5


def mask(outline: Outline, size: tuple[int, int]) -> np.ndarray:
    """The pixels inside an outline, on the page at a third of its size."""
    drawn = Image.new("1", (size[0] // SHRUNK + 1, size[1] // SHRUNK + 1))
    left, top, right, bottom = outline.box
    corners = outline.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
    ImageDraw.Draw(drawn).polygon([(x / SHRUNK, y / SHRUNK) for x, y in corners], fill=1, outline=1)
    return np.asarray(drawn)


def matched(wanted: list[np.ndarray], found: list[np.ndarray]) -> list[float]:
    """The overlaps of lines that belong together, best first, each line once."""
    overlaps = []
    for place, one in enumerate(wanted):
        for number, other in enumerate(found):
            shared = np.count_nonzero(one & other)
            if shared:
                overlaps.append((shared / np.count_nonzero(one | other), place, number))
    used: set[tuple[str, int]] = set()
    kept: list[float] = []
    for overlap, place, number in sorted(overlaps, reverse=True):
        if ("wanted", place) not in used and ("found", number) not in used:
            used |= {("wanted", place), ("found", number)}
            kept.append(float(overlap))
    return kept


def draw(page: Image.Image, drawn: list[Outline], found: list[Outline], path: Path) -> None:
    """The page with drawn lines in green, found ones in red and their baselines in blue."""
    shown = page.convert("RGB")
    pen = ImageDraw.Draw(shown)
    for outlines, colour in ((drawn, (0, 160, 0)), (found, (220, 0, 0))):
        for outline in outlines:
            pen.line([*outline.polygon, outline.polygon[0]], fill=colour, width=4)
            if colour[0] and outline.baseline:
                pen.line(outline.baseline, fill=(0, 0, 255), width=3)
    shown.thumbnail((1000, 1300))
    path.parent.mkdir(parents=True, exist_ok=True)
    shown.save(path)


def main() -> None:
    """Prints a line a page, the worst first, and the whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--overlays", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    images = [
        image for image in detect_format(given.folder, None, {}).read(given.folder, {}) if isinstance(image, Page)
    ]
    for image in images[: given.limit]:
        page = open_image(image.image)
        start = time.perf_counter()
        try:
            found = [line.outline for line in segment(page)]
        except DataError as error:
            print(f"{image.name}: {error}", file=sys.stderr)
            found = []
        seconds = time.perf_counter() - start
        drawn = [line.outline for line in image.lines if line.outline]
        overlaps = matched([mask(one, page.size) for one in drawn], [mask(one, page.size) for one in found])
        hits = sum(overlap >= ENOUGH for overlap in overlaps)
        rows.append(
            {
                "page": image.name,
                "drawn": len(drawn),
                "found": len(found),
                "hits": hits,
                "seconds": seconds,
                "iou": float(np.mean(overlaps)) if overlaps else 0.0,
            }
        )
        if given.overlays:
            draw(page, drawn, found, given.overlays / f"{image.name}.png")
    for row in sorted(rows, key=lambda row: 2 * row["hits"] / max(row["drawn"] + row["found"], 1))[:15]:
        print("{page}: {hits} of {drawn} drawn, {found} found, mean IoU {iou:.2f}, {seconds:.2f} s".format(**row))
    hits, drawn_, found_ = (sum(row[name] for row in rows) for name in ("hits", "drawn", "found"))
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    print(
        f"{len(rows)} pages: {hits} of {drawn_} lines at IoU {ENOUGH}, {found_} found; recall {hits / drawn_:.3f},"
        f" precision {hits / max(found_, 1):.3f}, F1 {2 * hits / (drawn_ + found_):.3f};"
        f" {seconds:.2f} s a page (median), {(peak_resident() or 0) / 1e6:.0f} MB at most"
    )
    append_json(given.json, "segmenter", {"folder": given.folder.name, "limit": given.limit}, rows)


if __name__ == "__main__":
    main()
