"""How fast `dsocr check` goes through a large dataset, where the time goes, and how much memory it takes.

    python benchmarks/check.py --lines 100000

The dataset is made for it and removed again: 3,000 words of random letters are drawn once in Pillow's own font, in six
sizes; a line is four to six of them side by side on a grey strip 60 pixels high, with grain of its own, saved as JPEG,
so that no two files and no two texts are alike. Twenty lines are a page, five hundred a writer. The check runs in a
process of its own with everything the command does; memory is the sum over it and its workers of what belongs to no
other process (USS), looked at five times a second, beside the sum of what each has resident (RSS), which counts shared
pages several times.
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image, ImageDraw, ImageFont

from dsocr.data.dataset import METADATA_FILE, SplitCard, split_hash
from dsocr.document import Split
from measuring import append_json, processor, watch, write_card

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = 3000
HEIGHT = 60
PAGE, WRITER = 20, 500
SHARES = {Split.TRAIN: 0.9, Split.VALIDATION: 0.05, Split.TEST: 0.05}

CHECK = """
import json, sys, time
from pathlib import Path
seconds = {}
def timed(name, function):
    def call(*arguments):
        begin = time.perf_counter()
        try:
            result = function(*arguments)
            return list(result) if name.startswith("check_") else result
        finally:
            seconds[name] = seconds.get(name, 0) + time.perf_counter() - begin
    return call
# The processes that look at images read this file too, and need none of this.
if __name__ == "__main__":
    start = time.perf_counter()
    from dsocr.data import check as checks
    from dsocr.data.dataset import Dataset
    from dsocr.models.family import load_processor
    for module, names in (
        (checks.text_checks, ("check_empty", "check_tokens", "check_unknown_characters")),
        (checks.image_checks, ("check_distortion",)),
    ):
        for name in names:
            setattr(module, name, timed(name, getattr(module, name)))
    for name in ("_SAMPLE_CHECKS", "_DATASET_CHECKS"):
        setattr(checks, name, [timed(function.__name__, function) for function in getattr(checks, name)])
    read = timed("reading images", lambda dataset, workers: list(read_samples(dataset, workers)))
    read_samples, checks.image_checks.read_samples = checks.image_checks.read_samples, read
    encoder = load_processor("nano", None, "free_ocr", None)
    seconds["imports and base"] = time.perf_counter() - start
    workers = int(sys.argv[2]) or None
    findings = checks.check_dataset(Dataset.open(Path(sys.argv[1])), encoder, max_text_tokens=512, workers=workers)
    seconds["whole"] = time.perf_counter() - start
    counts = {finding.code: finding.count for finding in findings}
    print(json.dumps({"seconds": seconds, "findings": counts, "samples": len(findings.samples)}))
"""


def make_dataset(folder: Path, lines: int) -> None:
    """A dataset folder with the given number of lines, like one that `prepare` makes."""
    rng = random.Random(17)
    words = [_word(rng) for _ in range(WORDS)]
    cards = {}
    made = 0
    for split, share in SHARES.items():
        count = round(lines * share)
        cards[split] = _make_split(folder / split, range(made, made + count), words, rng)
        made += count
    write_card(folder, cards, SHARES)


def _word(rng: random.Random) -> tuple[str, Image.Image]:
    text = "".join(rng.choices(LETTERS, k=rng.randint(2, 9)))
    font = ImageFont.load_default(rng.choice([22, 24, 26, 28, 30, 32]))
    left, _, right, bottom = font.getbbox(text)
    picture = Image.new("L", (round(right - left) + 12, HEIGHT), 230)
    ImageDraw.Draw(picture).text(
        (6 - left, 45 - bottom + rng.randint(-3, 3)), text, fill=rng.randint(20, 70), font=font
    )
    return text, picture


def _make_split(folder: Path, numbers: range, words: list[tuple[str, Image.Image]], rng: random.Random) -> SplitCard:
    images = folder / "images"
    images.mkdir(parents=True)
    rows, digests = [], []
    grain = np.random.default_rng(numbers.start).normal(0, 5, (HEIGHT, 4096))
    for number in numbers:
        chosen = rng.choices(words, k=rng.randint(4, 6))
        values = np.concatenate([np.asarray(picture) for _, picture in chosen], axis=1).astype(np.int16)
        shift = rng.randrange(grain.shape[1] - values.shape[1])
        values = values + grain[:, shift : shift + values.shape[1]].astype(np.int16)
        name = f"{number:06d}.jpg"
        Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(images / name, quality=60)
        digests.append(hashlib.sha256((images / name).read_bytes()).hexdigest())
        place = {"writer": f"writer {number // WRITER}", "page": f"page {number // PAGE}", "source": f"lines:{number}"}
        text = " ".join(text for text, _ in chosen)
        rows.append({"file_name": f"images/{name}", "text": text, **place, "bbox": None, "polygon": "", "baseline": ""})
    metadata = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    (folder / METADATA_FILE).write_bytes(metadata)
    writers = len({row["writer"] for row in rows})
    pages = len({row["page"] for row in rows})
    characters = sum(len(str(row["text"])) for row in rows)
    return SplitCard(
        samples=len(rows),
        writers=writers,
        pages=pages,
        characters=characters,
        sha256=split_hash(metadata, digests),
    )


def main() -> None:
    """Makes the dataset, checks it, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=0, help="0 for the sensible number")
    parser.add_argument("--json", type=Path, help="add the results to this file of JSON lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="check-") as folder:
        dataset, script = Path(folder, "dataset"), Path(folder, "run_check.py")
        script.write_text(CHECK, encoding="utf-8")
        start = time.perf_counter()
        make_dataset(dataset, options.lines)
        print(f"made     {options.lines} lines in {time.perf_counter() - start:.0f} s")
        printed, used = watch([sys.executable, str(script), str(dataset), str(options.workers)])
    result = json.loads(printed)
    seconds = result["seconds"]
    whole = seconds.pop("whole")
    for stage, part in sorted(seconds.items(), key=lambda stage: -stage[1]):
        print(f"{stage:<24} {part:8.2f} s")
    print(f"{'whole':<24} {whole:8.2f} s   {result['samples'] / whole:.0f} lines/s, {used['cpu']:.0f} s of processor")
    print(f"memory   {used['uss'] / 1e6:.0f} MB of its own, {used['rss'] / 1e6:.0f} MB resident, over all processes")
    print(f"findings {result['findings']}")
    print(f"machine  {processor()}, {psutil.cpu_count()} cores, load {psutil.getloadavg()[0]:.1f}")
    row = {"seconds": {**seconds, "whole": whole}, "samples": result["samples"], **used, "findings": result["findings"]}
    append_json(options.json, "check", {"lines": options.lines, "workers": options.workers}, [row])


if __name__ == "__main__":
    main()
