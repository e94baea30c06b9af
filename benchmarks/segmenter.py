"""Finds lines on pages whose lines are drawn, and counts how many of them are found, and how well they are read.

    python benchmarks/segmenter.py FOLDER [--segmenter NAME] [--read BASE_OR_RUN] [--every N] [--overlays FOLDER]

A found line counts where it and a drawn one overlap by half of what they cover together (IoU 0.5 of their polygons,
counted in pixels at a third of the page's size), each line once.

With `--read`, a found line belongs to the drawn line that covers most of it, if that is a third of it or more; the
texts of a drawn line's found lines, from left to right, are its reading, and a drawn line without any is read as
nothing. What is found beside drawn lines, such as printed forms that nobody transcribed, is left out. The segmenter
`drawn` takes the drawn lines.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import dsocr
from dsocr.data.lines import reading_outlines
from dsocr.document import Line, Outline, Page
from dsocr.errors import DataError
from dsocr.evaluation.layout_scores import ENOUGH, match_lines
from dsocr.formats import detect_format
from dsocr.images import MAX_PAGE_PIXELS, LineFile, crop_lines, decode_image, open_image, read_bytes
from dsocr.inference.inputs import choose_segmenter
from measuring import append_json, peak_resident

SHRUNK = 3


def mask(outline: Outline, size: tuple[int, int]) -> np.ndarray:
    """The pixels inside an outline, on the page at a third of its size."""
    drawn = Image.new("1", (size[0] // SHRUNK + 1, size[1] // SHRUNK + 1))
    left, top, right, bottom = outline.box
    corners = outline.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
    ImageDraw.Draw(drawn).polygon([(x / SHRUNK, y / SHRUNK) for x, y in corners], fill=1, outline=1)
    return np.asarray(drawn)


COVERED = 1 / 3


def read_lines(reader: dsocr.Reader, page: Page, found: list[Outline], size: tuple[int, int]) -> list[tuple[str, str]]:
    """The transcription of each drawn line and what is read of it."""
    drawn = [line for line in page.lines if line.outline and line.text]
    masks = [mask(line.outline, size) for line in drawn if line.outline]
    parts: list[list[Outline]] = [[] for _ in drawn]
    for outline in found:
        own = mask(outline, size)
        covered = [np.count_nonzero(own & one) for one in masks]
        best = int(np.argmax(covered)) if covered else 0
        if covered and covered[best] >= COVERED * np.count_nonzero(own):
            parts[best].append(outline)
    chosen = [outline for part in parts for outline in sorted(part, key=lambda outline: outline.box[0])]
    images = dict(zip(found, reading_outlines(found), strict=True))  # those of lines found elsewhere stay as they are
    lines = tuple(Line("", "", images[one]) for one in chosen)
    cropped = crop_lines(Page(page.image, page.name, page.where, lines), read_bytes(page.image))
    assert isinstance(cropped, tuple)
    files = list(cropped[1])
    opened = [decode_image(file.content, name="line").image for file in files if isinstance(file, LineFile)]
    read = iter([prediction.text for prediction in reader.read(opened)] if opened else [])
    texts = iter([next(read) if isinstance(file, LineFile) else "" for file in files])
    return [(line.text, " ".join(next(texts) for _ in part)) for line, part in zip(drawn, parts, strict=True)]


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
    parser.add_argument("--segmenter", default="ppocr")
    parser.add_argument("--read")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    images = [
        image for image in detect_format(given.folder, None, {}).read(given.folder, {}) if isinstance(image, Page)
    ]
    reader = dsocr.load(given.read) if given.read else None
    read: list[tuple[str, str]] = []
    find_lines = None if given.segmenter == "drawn" else choose_segmenter(given.segmenter)
    for image in images[:: given.every]:
        content = read_bytes(image.image)
        page = open_image(image.image, max_pixels=MAX_PAGE_PIXELS)
        start = time.process_time()
        try:
            lines = find_lines(content, image.name) if find_lines else image.lines
            found = [line.outline for line in lines if line.outline]
        except DataError as error:
            print(f"{image.name}: {error}", file=sys.stderr)
            found = []
        seconds = time.process_time() - start
        drawn = [line.outline for line in image.lines if line.outline]
        overlaps = match_lines(drawn, found)
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
        if reader:
            read += read_lines(reader, image, found, page.size)
        if given.overlays:
            draw(page, drawn, found, given.overlays / f"{image.name}.png")
    for row in sorted(rows, key=lambda row: 2 * row["hits"] / max(row["drawn"] + row["found"], 1))[:15]:
        print("{page}: {hits} of {drawn} drawn, {found} found, mean IoU {iou:.2f}, {seconds:.2f} s".format(**row))
    hits, drawn_, found_ = (sum(row[name] for row in rows) for name in ("hits", "drawn", "found"))
    seconds = sorted(row["seconds"] for row in rows)[len(rows) // 2]
    print(
        f"{len(rows)} pages: {hits} of {drawn_} lines at IoU {ENOUGH}, {found_} found; recall {hits / drawn_:.3f},"
        f" precision {hits / max(found_, 1):.3f}, F1 {2 * hits / (drawn_ + found_):.3f};"
        f" {seconds:.2f} s of processor a page (median), {(peak_resident() or 0) / 1e6:.0f} MB at most"
    )
    if read:
        print(
            f"CER {100 * dsocr.cer(*zip(*read, strict=True)):.2f} % of {sum(len(text) for text, _ in read)} characters"
        )
    facts = {"folder": given.folder.name, "segmenter": given.segmenter, "every": given.every}
    append_json(given.json, "segmenter", facts, rows)


if __name__ == "__main__":
    main()
