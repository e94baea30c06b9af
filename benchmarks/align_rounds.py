"""Measure rounds of `dsocr align` on a barely legible hand: train on the aligned lines, and on the true ones.

    python benchmarks/align_rounds.py data/hooker --scans raw/hooker --work runs/rounds [--base small] [--rounds 3]

DATASET was prepared from SCANS (ALTO or PAGE files with their images), with test pages. Its other pages are aligned
with their texts, a block a page, in one round and in ROUNDS. The base is trained with the defaults on the sure lines of
each, and on all true lines of the same pages; each is scored on the test split, as is the base. A stopped benchmark
resumes.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

import dsocr
from align import calibration_error, judge_lines
from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.work import keep_result
from dsocr.job import resolve
from dsocr.training.align import CARD, DATASET, LINES
from dsocr.training.recipe import run_job
from reading import cer_of, count_errors
from runner import Table, make_parser, parse, record


def copy_pages(samples: Sequence[Sample], scans: Path, work: Path) -> dict[str, list[str]]:
    """Copy the pages of samples, and write a text for each; return their lines by page."""
    images = {path.stem: path for path in scans.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES}
    lines: dict[str, list[str]] = defaultdict(list)
    for folder in ("scans", "texts"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    for sample in samples:
        file = scans / str(sample.source).rpartition(":")[0]
        lines[file.stem].append(sample.text)
        if not (work / "scans" / file.name).exists():
            shutil.copy(images[file.stem], work / "scans")
            shutil.copy(file, work / "scans")
    for name, texts in lines.items():
        (work / "texts" / f"{name}.txt").write_text(" ".join(texts), encoding="utf-8")
    return dict(lines)


def align(work: Path, base: str, rounds: int, truth: dict[str, list[str]]) -> list[str]:
    """Align the copied pages; return lines, right lines, sure lines with the right ones, and the ECE as cells."""
    out = work / f"aligned-{rounds}"
    if not (out / CARD).exists():
        dsocr.align(work / "scans", work / "texts", out, run=base, rounds=rounds)
    lines = judge_lines(out / LINES, truth)
    sure = [line.is_right for line in lines if line.is_sure]
    scored = [line for line in lines if np.isfinite(line.score)]
    error = calibration_error(np.array([line.score for line in scored]), np.array([line.is_right for line in scored]))
    return [str(len(lines)), str(sum(line.is_right for line in lines)), f"{len(sure)}, {sum(sure)}", f"{error:.3f}"]


def train_on(dataset: Path, base: str, output: Path) -> Path:
    """Train with the defaults; return the run."""
    config = load_config({"output": "", "dataset": ""}, changes={"dataset": dataset, "output": output, "base": base})
    if not (job := resolve(config)).is_finished():
        run_job(job)
    return output


def main() -> None:
    """Align, train and print a row for each reader."""
    parser = make_parser(__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--scans", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--base", default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=1000, help="pages to align, in the order of their names")
    parser.add_argument("--limit", type=int, help="lines of the test split")
    options = parse(parser)
    dataset, work = Dataset.open(options.dataset), options.work
    samples = list(chain.from_iterable(dataset.samples(split) for split in (Split.TRAIN, Split.VALIDATION)))
    pages = sorted({str(sample.page) for sample in samples})[: options.pages]
    chosen = sorted((sample for sample in samples if sample.page in pages), key=lambda sample: sample.id)
    test = dataset.samples(Split.TEST)[: options.limit]
    truth = copy_pages(chosen, options.scans, work)
    print(f"{len(pages)} pages, {len(chosen)} lines to align; {len(test)} lines of the test split")
    table = Table("reader", "lines", "right", "sure, right", "ECE", "CER %", "seconds of processor")

    def score(name: str, run: str | Path) -> str:
        identity = {"test": len(test), "run": str(run)}
        return f"{cer_of(keep_result(work / f'{name}.json', identity, partial(count_errors, run, test))):.2f}"

    table.row("base", "", "", "", "", score("base", options.base))
    if not (work / "true").exists():
        dsocr.prepare(work / "scans", work / "true", split="1/0/0")
    datasets = {"the true lines": work / "true"}
    for number in sorted({1, options.rounds}):
        began = time.process_time()
        cells = align(work, options.base, number, truth)
        table.row(f"rounds {number}", *cells, "", f"{time.process_time() - began:.0f}")
        datasets[f"rounds {number}"] = work / f"aligned-{number}" / DATASET
    for name, folder in datasets.items():
        began = time.process_time()
        run = train_on(folder, options.base, work / f"run-{folder.parent.name}-{folder.name}")
        seconds, lines = time.process_time() - began, len(Dataset.open(folder).samples(Split.TRAIN))
        table.row(f"trained on {name}", lines, "", "", "", score(run.name, run), f"{seconds:.0f}")
    record(options, table.rows)


if __name__ == "__main__":
    main()
