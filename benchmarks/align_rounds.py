"""What rounds bring where a hand is hardly read: train on the lines that were aligned, and on the true ones.

    python benchmarks/align_rounds.py data/hooker --scans raw/hooker --work runs/rounds [--base small] [--rounds 3]

DATASET was prepared from SCANS, which are ALTO or PAGE files with their images, with test pages of its own. Its other
pages are aligned with their texts, a block a page, in one round and in ROUNDS. The base is trained with the defaults on
the lines that are sure after these, and on all true lines of the same pages; each is scored on the test split, as the
base itself is. A stopped benchmark resumes.
"""

import argparse
import csv
import math
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dsocr
from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.formats.tables import unescape_formula
from dsocr.images import open_image
from dsocr.io.work import keep_result
from dsocr.text import comparable
from dsocr.training.align import CARD, DATASET, LINES
from dsocr.training.lifecycle import is_trained
from dsocr.training.train import train
from measuring import table_line

WIDTHS = (22, 7, 7, 14, 9, 9)
IMAGES = (".jpg", ".jpeg", ".png", ".tif")


def copy_pages(samples: Sequence[Sample], scans: Path, work: Path) -> dict[str, list[str]]:
    """Copy the pages of samples, and write a text for each; returns their lines by the page."""
    images = {path.stem: path for path in scans.rglob("*") if path.suffix.lower() in IMAGES}
    lines: dict[str, list[str]] = defaultdict(list)
    for sample in samples:
        file = scans / str(sample.source).rpartition(":")[0]
        lines[file.stem].append(sample.text)
        if not (work / "scans" / file.name).exists():
            (work / "scans").mkdir(parents=True, exist_ok=True)
            shutil.copy(images[file.stem], work / "scans")
            shutil.copy(file, work / "scans")
    (work / "texts").mkdir(exist_ok=True)
    for name, texts in lines.items():
        (work / "texts" / f"{name}.txt").write_text(" ".join(texts), encoding="utf-8")
    return dict(lines)


def align(work: Path, base: str, rounds: int, truth: dict[str, list[str]]) -> tuple[list[int], float, float]:
    """Align the copied pages; returns the lines, those that are right, sure, and both, their ECE, and the seconds."""
    out = work / f"aligned-{rounds}"
    began = time.process_time()
    if not (out / CARD).exists():
        dsocr.align(work / "scans", work / "texts", out, run=base, rounds=rounds)
    left = {name: Counter(map(comparable, lines)) for name, lines in truth.items()}
    right, sure, scores = [], [], []
    with (out / LINES).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    for row in rows:
        text = comparable(unescape_formula(row["text"]))
        is_right = left[row["page"]][text] > 0
        left[row["page"]][text] -= 1
        right.append(is_right)
        scores.append(float(row["score"]) if text else math.nan)
        if row["sure"] == "yes":
            sure.append(is_right)
    error = calibration_error(np.array(scores), np.array(right))
    return [len(rows), sum(right), len(sure), sum(sure)], error, time.process_time() - began


def calibration_error(scores: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """The ECE of the lines that have a score, over ten bins of equal count."""
    given = np.isfinite(scores)
    parts = np.array_split(np.argsort(scores[given]), 10)
    gaps = [abs(scores[given][part].mean() - right[given][part].mean()) * len(part) for part in parts]
    return float(sum(gaps) / given.sum())


def train_on(dataset: Path, base: str, output: Path) -> Path:
    """Train with the defaults; returns the run."""
    changes = {"dataset": dataset, "output": output, "base": base}
    config = load_config({"output": "", "dataset": ""}, changes=changes)
    if not is_trained(config):
        train(config)
    return output


def score(run: str | Path, samples: Sequence[Sample]) -> float:
    """The CER of a run or a base on samples."""
    read = dsocr.load(run).read([open_image(sample.image) for sample in samples])
    return pool(character_errors(sample.text, line.text) for sample, line in zip(samples, read, strict=True)).rate


def main() -> None:
    """Align, train and print a row for each reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--scans", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--base", default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=1000, help="pages to align, in the order of their names")
    parser.add_argument("--limit", type=int, help="lines of the test split")
    options = parser.parse_args()
    dataset, work = Dataset.open(options.dataset), options.work
    samples = list(chain.from_iterable(dataset.samples(split) for split in (Split.TRAIN, Split.VALIDATION)))
    pages = sorted({str(sample.page) for sample in samples})[: options.pages]
    chosen = sorted((sample for sample in samples if sample.page in pages), key=lambda sample: sample.id)
    test = dataset.samples(Split.TEST)[: options.limit]
    truth = copy_pages(chosen, options.scans, work)
    print(f"{len(pages)} pages, {len(chosen)} lines to align; {len(test)} lines of the test split")
    print(table_line(("reader", "lines", "right", "sure, right", "CER %", "seconds"), WIDTHS), flush=True)

    def show(name: str, seconds: float, cer: float | None = None, lines: int | str = "", *counts: int) -> None:
        right, sure = (str(counts[0]), f"{counts[1]}, {counts[2]}") if counts else ("", "")
        shown = "" if cer is None else f"{100 * cer:.2f}"
        print(table_line((name, str(lines), right, sure, shown, f"{seconds:.0f}"), WIDTHS), flush=True)

    def score_kept(name: str, run: str | Path) -> float:
        identity = {"test": len(test), "run": str(run)}
        return float(keep_result(work / f"{name}.json", identity, partial(score, run, test)))

    show("base", 0, score_kept("base", options.base))
    true = work / "true"
    if not true.exists():
        dsocr.prepare(work / "scans", true, split="1/0/0")
    rounds = sorted({1, options.rounds})
    for number in rounds:
        counts, error, seconds = align(work, options.base, number, truth)
        show(f"rounds {number}, ECE {error:.3f}", seconds, None, *counts)
    datasets = {f"rounds-{number}": work / f"aligned-{number}" / DATASET for number in reversed(rounds)}
    for name, folder in {"true": true, **datasets}.items():
        began = time.process_time()
        run = train_on(folder, options.base, work / f"run-{name}")
        seconds = time.process_time() - began
        lines = len(Dataset.open(folder).samples(Split.TRAIN))
        show(f"trained on {name}", seconds, score_kept(name, run), lines)


if __name__ == "__main__":
    main()
