"""Find lines on pages whose lines are drawn; count how many are found, and how well they are read.

    python benchmarks/segmenter.py FOLDER [--segmenter NAME] [--read BASE_OR_RUN] [--every N]

A found line counts where it and a drawn one overlap by half of their union (IoU 0.5 of their polygons), each once.

With `--read`, a found line belongs to the drawn line that covers most of it, if that is a third of it or more; the
texts of a drawn line's found lines, from left to right, are its reading, and a drawn line without any is read as
nothing. Anything found beside drawn lines, such as a printed form, is left out. The segmenter `drawn` takes the drawn
lines.
"""

import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import dsocr
from dsocr.document import Line, Outline, Page
from dsocr.errors import DataError
from dsocr.evaluation.layout_scores import ENOUGH, match_lines
from dsocr.formats import detect_format
from dsocr.images import MAX_PAGE_PIXELS, LineFile, crop_lines, decode_image, open_image, read_bytes
from dsocr.layout import choose_segmenter
from dsocr.layout.lines import reading_outlines
from runner import Table, make_parser, parse, peak_resident, record

SHRUNK = 3
COVERED = 1 / 3


def mask(outline: Outline, size: tuple[int, int]) -> np.ndarray:
    """Return the pixels inside an outline, on the page at a third of its size."""
    drawn = Image.new("1", (size[0] // SHRUNK + 1, size[1] // SHRUNK + 1))
    left, top, right, bottom = outline.box
    corners = outline.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
    ImageDraw.Draw(drawn).polygon([(x / SHRUNK, y / SHRUNK) for x, y in corners], fill=1, outline=1)
    return np.asarray(drawn)


def read_lines(reader: dsocr.Reader, page: Page, found: list[Outline], size: tuple[int, int]) -> list[tuple[str, str]]:
    """Return the transcription and the reading of each drawn line."""
    drawn = [line for line in page.lines if line.outline and line.text]
    masks = [mask(line.outline, size) for line in drawn if line.outline]
    parts: list[list[Outline]] = [[] for _ in drawn]
    for outline in found:
        own = mask(outline, size)
        covered = [np.count_nonzero(own & other) for other in masks]
        best = int(np.argmax(covered)) if covered else 0
        if covered and covered[best] >= COVERED * np.count_nonzero(own):
            parts[best].append(outline)
    chosen = [outline for part in parts for outline in sorted(part, key=lambda outline: outline.box[0])]
    images = dict(zip(found, reading_outlines(found), strict=True))
    lines = tuple(Line("", "", images[outline]) for outline in chosen)
    cropped = crop_lines(Page(page.image, page.name, page.where, lines), read_bytes(page.image))
    assert isinstance(cropped, tuple)
    files = list(cropped[1])
    opened = [decode_image(file.content, name="line").image for file in files if isinstance(file, LineFile)]
    read = iter([prediction.text for prediction in reader.read(opened)] if opened else [])
    texts = iter([next(read) if isinstance(file, LineFile) else "" for file in files])
    return [(line.text, " ".join(next(texts) for _ in part)) for line, part in zip(drawn, parts, strict=True)]


def main() -> None:
    """Print a row for each page and one for all."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--segmenter", default="ppocr")
    parser.add_argument("--read")
    parser.add_argument("--every", type=int, default=1)
    options = parse(parser)
    pages = [
        page for page in detect_format(options.folder, None, {}).read(options.folder, {}) if isinstance(page, Page)
    ]
    reader = dsocr.load(options.read) if options.read else None
    read: list[tuple[str, str]] = []
    find_lines = None if options.segmenter == "drawn" else choose_segmenter(options.segmenter)
    table = Table("page", "drawn", "found", "hits", "F1", "seconds of processor")
    counts = []
    for page in pages[:: options.every]:
        content = read_bytes(page.image)
        size = open_image(page.image, max_pixels=MAX_PAGE_PIXELS).size
        start = time.process_time()
        try:
            lines = find_lines(content, page.name) if find_lines else page.lines
            found = [line.outline for line in lines if line.outline]
        except DataError as error:
            print(f"{page.name}: {error}", file=sys.stderr)
            found = []
        seconds = time.process_time() - start
        drawn = [line.outline for line in page.lines if line.outline]
        hits = sum(overlap >= ENOUGH for overlap in match_lines(drawn, found))
        counts.append((len(drawn), len(found), hits, seconds))
        f1 = 2 * hits / max(len(drawn) + len(found), 1)
        table.row(page.name, len(drawn), len(found), hits, f"{f1:.3f}", f"{seconds:.2f}")
        if reader:
            read += read_lines(reader, page, found, size)
    drawn_, found_, hits_, _ = (int(total) for total in np.sum(counts, axis=0))
    seconds = float(np.median([seconds for *_, seconds in counts]))
    table.row(f"all {len(counts)}", drawn_, found_, hits_, f"{2 * hits_ / (drawn_ + found_):.3f}", f"{seconds:.2f}")
    print(f"recall {hits_ / drawn_:.3f}, precision {hits_ / max(found_, 1):.3f}, at most {peak_resident()} bytes")
    if read:
        length = sum(len(text) for text, _ in read)
        print(f"CER {100 * dsocr.cer(*zip(*read, strict=True)):.2f} % of {length} characters")
    record(options, table.rows)


if __name__ == "__main__":
    main()
