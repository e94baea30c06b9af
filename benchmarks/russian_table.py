"""Score readers of Russian handwriting on two public sets, as the benchmark models-ocr-bench cuts and scores them.

    hf download ai-forever/school_notebooks_RU --repo-type dataset --local-dir sets/school_notebooks_RU
    hf download sherstpasha/YeniseiGovReports-HWR --repo-type dataset --local-dir sets/YeniseiGovReports-HWR
    python benchmarks/russian_table.py sets small small-models-for-glam/kraken-ppocrv6-small \\
        raxtemur/trocr-base-ru --work runs/russian_table

A reader is whatever `dsocr.load` takes: a run, a base, a Hub id. A line of the school notebooks is its words
side by side, each cut out along its polygon onto white; YeniseiGovReports are single words. CER and WER are of texts in
lower case, in NFC. Intervals are drawn over pages of the notebooks, over words of YeniseiGovReports, whose pages are
not known. Each reading is kept in WORK: a stopped benchmark resumes. The tables are printed and written to
WORK/table.md.
"""

import csv
import json
import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import dsocr
from dsocr.evaluation.metrics import character_errors, word_errors
from dsocr.images import open_image
from dsocr.io.work import keep_result
from reading import by_page
from runner import bootstrap, make_parser, parse, record

TEXTS = {"pupil_text", "pupil_comment", "teacher_comment"}
"""Categories of the notebooks that are texts."""
WIDER = 9
"""Pixels: polygons grow by half of it."""
READ_TOGETHER = 200


@dataclass(frozen=True)
class Crop:
    """A picture with its text, and the page that it is from."""

    image: Image.Image
    text: str
    page: str


def cut_word(page: Image.Image, polygon: list[float]) -> Image.Image | None:
    """Cut a word out along its polygon (x, y, x, y, ...) onto white."""
    points = list(zip(polygon[0::2], polygon[1::2], strict=True))
    left, top = (max(0, math.floor(min(axis))) for axis in zip(*points, strict=True))
    right, bottom = (math.ceil(max(axis)) for axis in zip(*points, strict=True))
    right, bottom = min(right, page.width), min(bottom, page.height)
    if right <= left or bottom <= top or len(points) < 3:
        return None
    mask = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(mask).polygon([(x - left, y - top) for x, y in points], fill=255)
    crop = page.crop((left, top, right, bottom))
    return Image.composite(crop, Image.new("RGB", crop.size, "white"), mask.filter(ImageFilter.MaxFilter(WIDER)))


def join_words(words: list[Image.Image]) -> Image.Image:
    """Put words side by side on white, on one baseline."""
    gap = max(4, round(median(word.height for word in words) * 0.2))
    size = sum(word.width + gap for word in words) - gap, max(word.height for word in words)
    line, left = Image.new("RGB", size, "white"), 0
    for word in words:
        line.paste(word, (left, size[1] - word.height))
        left += word.width + gap
    return line


def read_notebooks(folder: Path) -> Iterator[Crop]:
    """Yield the lines of the validation pages of school_notebooks_RU."""
    content = json.loads((folder / "annotations_val.json").read_text(encoding="utf-8"))
    names = {category["id"]: category["name"] for category in content["categories"]}
    lines: dict[Any, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for word in content["annotations"]:
        text = str((word.get("attributes") or {}).get("translation") or "").strip()
        polygon: list[float] = next(iter(word.get("segmentation") or []), [])
        if names.get(word["category_id"]) in TEXTS and text and polygon and word.get("group_id") is not None:
            lines[word["image_id"]][word["group_id"]].append((np.mean(polygon[0::2]), text, polygon))
    files = {path.name: path for path in folder.rglob("*.*")}
    for image in content["images"]:
        if image["id"] not in lines:
            continue
        page = open_image(files[Path(image["file_name"]).name]).convert("RGB")
        for words in lines[image["id"]].values():
            ordered = sorted(words, key=lambda word: word[0])
            cut = [crop for *_, polygon in ordered if (crop := cut_word(page, polygon))]
            if cut:
                yield Crop(join_words(cut), " ".join(text for _, text, _ in ordered), image["file_name"])


def read_reports(folder: Path) -> Iterator[Crop]:
    """Yield the validation words of YeniseiGovReports-HWR."""
    table = next(path for path in sorted((folder / "val").rglob("*.csv")))
    with table.open(encoding="utf-8-sig", newline="") as stream:
        for row in csv.DictReader(stream):
            yield Crop(open_image(table.parent / "img" / row["filename"]), row["text"], row["filename"])


SETS = {"school_notebooks_RU": read_notebooks, "YeniseiGovReports-HWR": read_reports}


def count_errors(reader: str, crops: Iterator[Crop]) -> list[tuple[str, int, int, int, int]]:
    """Read crops; return page, character errors, characters, word errors and words of each."""
    model, rows = dsocr.load(reader), []
    while part := list(islice(crops, READ_TOGETHER)):
        for crop, read in zip(part, model.read([crop.image for crop in part]), strict=True):
            reference, text = (unicodedata.normalize("NFC", each).lower().strip() for each in (crop.text, read.text))
            characters, words = character_errors(reference, text), word_errors(reference, text)
            rows.append((crop.page, characters.errors, characters.length, words.errors, words.length))
        print(f"{reader}: {len(rows)} lines", flush=True)
    return rows


def rate_of(rows: list[tuple[str, int, int]]) -> tuple[float, str]:
    """Return a rate in percent, and with its interval as text."""
    counts = by_page(rows)

    def rate(drawn: np.ndarray[Any, Any]) -> float:
        return 100 * float(counts[drawn, 0].sum()) / max(1, int(counts[drawn, 1].sum()))

    low, high = bootstrap(len(counts), rate)
    found = rate(np.arange(len(counts)))
    return found, f"{found:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Print and write a table for each set, the best reader first."""
    parser = make_parser(__doc__)
    parser.add_argument("sets", type=Path, help="folder of the sets that were downloaded")
    parser.add_argument("readers", nargs="+")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="read the first lines of each set only")
    options = parse(parser)
    written, results = [], []
    for name, read in SETS.items():
        if not (options.sets / name).is_dir():
            print(f"{name} is not in {options.sets} and is left out")
            continue
        scored, count = [], 0
        for reader in options.readers:
            file = options.work / f"{name}-{reader.replace('/', '_').replace(':', '_')}.json"
            crops = islice(read(options.sets / name), options.limit)
            rows = keep_result(file, {"limit": options.limit}, partial(count_errors, reader, crops))
            count = len(rows)
            (cer, cer_text), (_, wer_text) = (rate_of([(row[0], *row[at : at + 2]) for row in rows]) for at in (1, 3))
            scored.append((cer, f"| {reader} | {cer_text} | {wer_text} |"))
            results.append({"set": name, "reader": reader, "lines": count, "cer": cer_text, "wer": wer_text})
        heads = f"| {name}, {count} lines | CER % (95 %) | WER % (95 %) |\n|---|---:|---:|"
        written.append("\n".join([heads, *(row for _, row in sorted(scored))]) + "\n")
        print("\n" + written[-1], flush=True)
    (options.work / "table.md").write_text("\n".join(written), encoding="utf-8", newline="\n")
    record(options, results)


if __name__ == "__main__":
    main()
