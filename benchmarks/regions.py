"""What it costs to show neighbouring lines together, and that none is lost: copiste in parts of regions.

    python benchmarks/regions.py

For each number of lines together the pages are prepared and cut again for reading, and counted: pictures, lines in
them, lines without a place, and the tokens of a line for DeepSeek-OCR at `base` (273 image tokens a picture), for
Qwen3-VL as published and for `nano`. No network is run.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import mean

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.images import upright_size
from dsocr.inference.inputs import PagePreparer, choose_segmenter, find_pages
from dsocr.models.deepseek_inputs import find_resolution
from dsocr.models.family import load_processor
from measuring import COPISTE, require_copiste, table_line

LINES = (1, 5, 8, 15)
_WIDTHS = (14, 9, 7, 11, 10, 10, 10, 12)


def count(most: int, folder: Path) -> list[str]:
    """Prepare the pages with at most so many lines together and return a line of the table."""
    from transformers import Qwen2VLImageProcessorPil

    dataset = dsocr.prepare(
        COPISTE, folder / f"dataset-{most}", unit="region", lines_per_region=most, stratify=False, progress=None
    )
    samples = [sample for split in dataset.card.splits for sample in Dataset.open(dataset.folder).samples(split)]
    lines = sum(sample.text.count("\n") + 1 for sample in samples)
    qwen = Qwen2VLImageProcessorPil(patch_size=16, merge_size=2, size={"shortest_edge": 65536, "longest_edge": 1 << 24})
    sizes = [upright_size(sample.image) for sample in samples]
    chat = sum(qwen.get_number_of_image_patches(height, width, {}) // 4 for width, height in sizes)
    base = find_resolution("deepseek_ocr", "base").slots() * len(samples)
    nano = load_processor("nano", None, "free_ocr")
    pairs = zip(samples, sizes, strict=True)
    shown = sum(nano.measure(sample.text, partial(_same, size)).vision for sample, size in pairs)
    heights = mean(height for _, height in sizes)
    read, without = cut(most, folder)
    cells = [str(most), len(samples), lines, read, without, f"{base / lines:.0f}", f"{chat / lines:.0f}"]
    return [str(cell) for cell in [*cells, f"{shown / lines:.0f}", f"{heights:.0f}"]]


def _same(size: tuple[int, int]) -> tuple[int, int]:
    return size


def cut(most: int, folder: Path) -> tuple[int, int]:
    """Return the lines that reading cuts the same pages into, and how many of them have no place."""
    preparer = PagePreparer("region", choose_segmenter("ppocr"), replace_texts=True, most=most)
    read = without = 0
    with find_pages([COPISTE], folder / f"unpacked-{most}") as pages:
        for page in pages.pages:
            for crop in preparer.prepare(page).crops:
                read += len(crop.lines)
                without += sum(line.outline is None for line in crop.lines)
    return read, without


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    require_copiste()
    head = ["lines together", "pictures", "lines", "cut again", "no place", "DeepSeek", "Qwen3-VL", "nano", "height"]
    print(table_line(head, _WIDTHS))
    with tempfile.TemporaryDirectory() as folder:
        for most in LINES:
            print(table_line(count(most, Path(folder)), _WIDTHS), flush=True)


if __name__ == "__main__":
    main()
