"""What a reader's own readings of untranscribed lines teach it: the same steps with and without them.

    python benchmarks/unlabelled.py data/peraire --work runs/unlabelled --lines 50 --seed 17 --seed 18 \\
        [--scans data/other] [--limit 200] [--set training.epochs=20]

A run on so many lines of the train split, drawn with the seed, learns from scans as `dsocr train --unlabelled` does. If
none are given, they are the other lines of that split; their texts are never read. Three readers are scored on the test
split, as `dsocr evaluate` reads it: the first training, the same number of steps again on the transcribed lines alone,
and the second training with own readings, kept or not. Falls are those of the third against the second, with 95 %
intervals by bootstrap over pages. Trainings and scores are kept in WORK; a stopped benchmark resumes.

With `--lines 0` nothing is transcribed: the run learns from images of the train split alone, and is scored against its
base.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dsocr
from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.data.splits import page_key
from dsocr.document import Sample, Split
from dsocr.evaluation.metrics import character_errors
from dsocr.images import open_image, read_bytes
from dsocr.io.work import keep_result
from dsocr.runs import RunFolder, UnlabelledReport, read_provenance
from dsocr.training import unlabelled
from dsocr.training.lifecycle import is_trained
from dsocr.training.samples import OwnReadings
from dsocr.training.train import train
from dsocr.training.validation import draw_samples
from measuring import table_line

ARMS = ("first", "more", "second")
ALONE = ("more", "second")
"""Without transcribed lines: the base, and the run."""
WIDTHS = (28, 6, 7, 7, 9, 9, 9, 22, 6)
DRAWS = 2000


def measure(config: RunConfig, samples: Sequence[Sample]) -> tuple[UnlabelledReport, dict[str, Any], float]:
    """Train and score; return what the run says, the errors by the arm, and the processor time of the run."""
    run = RunFolder(config.output)
    started = time.process_time()
    if not is_trained(config):
        train(config)
    seconds = time.process_time() - started
    report = UnlabelledReport.of(read_provenance(run))
    assert report is not None
    if config.learns_alone:
        arms = dict(zip(ALONE, (Path(config.base), run.path), strict=True))
    else:
        arms = trained_arms(run, report)
    identity = {"samples": len(samples)}
    scores = {
        name: keep_result(run.path / f"{name}.json", identity, partial(score, path, samples))
        for name, path in arms.items()
    }
    return report, scores, seconds


def trained_arms(run: RunFolder, report: UnlabelledReport) -> dict[str, Path]:
    """Return the readers to score, by their names; the one without own readings is trained."""
    first = RunFolder(run.unlabelled / unlabelled.FIRST)
    more = run.unlabelled / "more"
    recorded = load_run_config(first.config)
    second = run.unlabelled / unlabelled.SECOND
    if report.refused:
        return {"first": first.path}
    section = load_run_config(RunFolder(second).config).training
    again = recorded.model_copy(update={"output": more, "training": section})
    if not is_trained(again):
        train(again, own_readings=OwnReadings(first.adapter, (), 1))
    return dict(zip(ARMS, (first.path, more, second), strict=True))


def score(run: Path, samples: Sequence[Sample]) -> list[tuple[str, int, int]]:
    """Return the page, the errors and the length of each line."""
    reader = dsocr.load(run)
    read = reader.read([open_image(sample.image) for sample in samples])
    rows = []
    for sample, prediction in zip(samples, read, strict=True):
        rate = character_errors(sample.text, prediction.text)
        rows.append((page_key(sample.document, sample.page) or sample.id, rate.errors, rate.length))
    return rows


def by_page(rows: Sequence[tuple[str, int, int]]) -> NDArray[np.int64]:
    """Return errors and lengths `(pages, 2)`."""
    pages: dict[str, NDArray[np.int64]] = {}
    for page, errors, length in rows:
        pages.setdefault(page, np.zeros(2, np.int64))[:] += errors, length
    return np.array([pages[page] for page in sorted(pages)])


def fall(before: NDArray[np.int64], after: NDArray[np.int64], seed: int = 1) -> tuple[float, float, float]:
    """Return the relative fall of the CER in percent, and its interval; pages are drawn with both readings."""

    def relative(drawn: NDArray[np.int64]) -> float:
        return 100 * (1 - float(after[drawn, 0].sum()) / max(1, int(before[drawn, 0].sum())))

    rng = np.random.default_rng(seed)
    drawn = [relative(rng.integers(0, len(before), len(before))) for _ in range(DRAWS)]
    low, high = np.percentile(drawn, (2.5, 97.5)).tolist()
    return relative(np.arange(len(before))), low, high


def shown(name: str, seed: str, report: UnlabelledReport | None, pages: dict[str, NDArray[np.int64]]) -> str:
    """Return a row of the table."""
    rates = {arm: 100 * counts[:, 0].sum() / counts[:, 1].sum() for arm, counts in pages.items()}
    cells = [f"{rates[arm]:.2f}" if arm in rates else "" for arm in ARMS]
    falls = "refused"
    if "second" in pages:
        middle, low, high = fall(pages["more"], pages["second"])
        falls = f"{middle:.1f} ({low:.1f} to {high:.1f})"
    counts = ["", ""] if report is None else [str(report.read), str(report.shown)]
    kept = "" if report is None else "yes" if report.learnt else "no"
    return table_line((name, seed, *counts, *cells, falls, kept), WIDTHS)


def main() -> None:
    """Train, and print a row for each seed and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--lines", type=int, required=True)
    parser.add_argument("--seed", type=int, action="append", required=True)
    parser.add_argument("--scans", type=Path, action="append", default=[])
    parser.add_argument("--first", type=Path, help="WORK of the same trainings with other scans, whose first is taken")
    parser.add_argument("--limit", type=int, help="lines of the test split, drawn")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parser.parse_args()
    vars(unlabelled)["drop_weights"] = lambda run: None  # they are scored
    dataset = Dataset.open(options.dataset)
    samples = draw_samples(dataset.samples(Split.TEST), options.limit, 1)
    scans = [path.as_posix() for path in options.scans] or [options.dataset.as_posix()]
    if not (options.lines or options.scans):
        scans = [copied_images(dataset, options.work / f"{options.dataset.name}-images").as_posix()]
    heads = ("dataset", "seed", "read", "shown", "first %", "more %", "own %", "fall %", "kept")
    print(table_line(heads, WIDTHS), flush=True)
    together: dict[str, list[NDArray[np.int64]]] = {}
    for seed in options.seed:
        name = f"{options.dataset.name}-{options.lines}-{seed}"
        changes = {"output": options.work / name, "seed": seed, "training.unlabelled": scans}
        if options.lines:
            changes |= {"dataset": options.dataset, "training.max_samples": options.lines}
        config = load_config({"output": ""}, options.settings, changes=changes)
        if options.first and not config.output.exists():
            take_first(options.first / name, config)
        report, scores, seconds = measure(config, samples)
        pages = {arm: by_page(rows) for arm, rows in scores.items()}
        print(shown(options.dataset.name, str(seed), report, pages), flush=True)
        print(f"    {report.describe()} {seconds:.0f} s of processor time", flush=True)
        for arm, counts in pages.items():
            together.setdefault(arm, []).append(counts)
    if len(options.seed) > 1:
        # A page is drawn with the readings of all seeds.
        summed = {arm: np.sum(counts, axis=0) for arm, counts in together.items() if len(counts) == len(options.seed)}
        print(shown(options.dataset.name, "all", None, summed), flush=True)


def copied_images(dataset: Dataset, folder: Path) -> Path:
    """Copy the images of the train split into a folder, since those of the others are tested on."""
    folder.mkdir(parents=True, exist_ok=True)
    for sample in dataset.samples(Split.TRAIN):
        (folder / Path(sample.id).name).write_bytes(read_bytes(sample.image))
    return folder


def take_first(former: Path, config: RunConfig) -> None:
    """Begin a run with the first training of another, which has the same settings but for its scans."""
    run = RunFolder(config.output)
    shutil.copytree(former / "unlabelled" / unlabelled.FIRST, run.unlabelled / unlabelled.FIRST)
    recorded = load_run_config(RunFolder(former).config)
    section = recorded.training.model_copy(update={"unlabelled": config.training.unlabelled})
    run.config.write_text(recorded.model_copy(update={"output": run.path, "training": section}).to_yaml(), "utf-8")


if __name__ == "__main__":
    main()
