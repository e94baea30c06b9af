"""Measure self-training on unlabelled scans: the same steps with and without it.

    python benchmarks/unlabelled.py data/peraire --work runs/unlabelled --lines 50 --seed 17 --seed 18 \\
        [--scans data/other] [--limit 200] [--set training.epochs=20]

A run on so many lines of the train split, drawn with the seed, learns from scans as `dsocr train --unlabelled` does; by
default these are the other lines of that split, whose texts are never read. Three readers are scored on the test split:
the first training, the same number of steps again on the transcribed lines alone, and the second training with the
run's own readings, kept or not. Reductions compare the third with the second, with intervals over pages. Runs and
scores are kept in WORK; a stopped benchmark resumes.

With `--lines 0` nothing is transcribed: the run learns from images of the train split alone, and is compared with its
base.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsocr.config import RunConfig, load_config, load_run_config
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.images import read_bytes
from dsocr.io.work import keep_result
from dsocr.job import resolve
from dsocr.runs import RunFolder, UnlabelledReport, read_provenance
from dsocr.training import unlabelled
from dsocr.training.recipe import run_job
from dsocr.training.samples import OwnReadings
from dsocr.training.validation import draw_samples
from reading import by_page, count_errors, reduction
from runner import Table, make_parser, parse, record

ARMS = ("first", "more", "second")


def measure(config: RunConfig, samples: Sequence[Sample]) -> tuple[UnlabelledReport, dict[str, Any], float]:
    """Train and score; return the run's report, the errors of each reader, and the processor time of the run."""
    run, started = RunFolder(config.output), time.process_time()
    if not (job := resolve(config)).is_finished():
        run_job(job)
    seconds = time.process_time() - started
    report = UnlabelledReport.of(read_provenance(run))
    assert report is not None
    alone = {"more": Path(config.base), "second": run.path}
    arms = alone if config.learns_alone else trained_arms(run, report)
    identity = {"samples": len(samples)}
    scores = {
        name: keep_result(run.path / f"{name}.json", identity, partial(count_errors, path, samples))
        for name, path in arms.items()
    }
    return report, scores, seconds


def trained_arms(run: RunFolder, report: UnlabelledReport) -> dict[str, Path]:
    """Return the readers to score by name, after training the one without own readings."""
    first = RunFolder(run.unlabelled / unlabelled.FIRST)
    if report.refused:
        return {"first": first.path}
    more, second = run.unlabelled / "more", run.unlabelled / unlabelled.SECOND
    section = load_run_config(RunFolder(second).config).training
    again = load_run_config(first.config).model_copy(update={"output": more, "training": section})
    if not (job := resolve(again)).is_finished():
        run_job(job, own_readings=OwnReadings(first.adapter, (), 1))
    return dict(zip(ARMS, (first.path, more, second), strict=True))


def cells(report: UnlabelledReport | None, pages: dict[str, NDArray[np.int64]]) -> list[str]:
    """Return counts, CERs, the reduction and whether the second training was kept."""
    rates = {arm: f"{100 * counts[:, 0].sum() / counts[:, 1].sum():.2f}" for arm, counts in pages.items()}
    counts = ["", ""] if report is None else [str(report.read), str(report.shown)]
    gain = reduction(pages["more"], pages["second"]) if "second" in pages else "refused"
    kept = "" if report is None else "yes" if report.learnt else "no"
    return [*counts, *(rates.get(arm, "") for arm in ARMS), gain, kept]


def copy_images(dataset: Dataset, folder: Path) -> Path:
    """Copy the images of the train split into a folder, since the others are tested on."""
    folder.mkdir(parents=True, exist_ok=True)
    for sample in dataset.samples(Split.TRAIN):
        (folder / Path(sample.id).name).write_bytes(read_bytes(sample.image))
    return folder


def main() -> None:
    """Train, and print a row for each seed and one for all."""
    parser = make_parser(__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--lines", type=int, required=True)
    parser.add_argument("--seed", type=int, action="append", required=True)
    parser.add_argument("--scans", type=Path, action="append", default=[])
    parser.add_argument("--limit", type=int, help="lines of the test split, drawn")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    options = parse(parser)
    vars(unlabelled)["drop_weights"] = lambda run: None  # they are scored
    dataset = Dataset.open(options.dataset)
    samples = draw_samples(dataset.samples(Split.TEST), options.limit, 1)
    scans = [path.as_posix() for path in options.scans] or [options.dataset.as_posix()]
    if not (options.lines or options.scans):
        scans = [copy_images(dataset, options.work / f"{options.dataset.name}-images").as_posix()]
    table = Table("seed", "read", "shown", "first %", "more %", "own %", "fewer errors %", "kept", "seconds")
    together: dict[str, list[NDArray[np.int64]]] = {}
    for seed in options.seed:
        output = options.work / f"{options.dataset.name}-{options.lines}-{seed}"
        changes = {"output": output, "seed": seed, "training.unlabelled": scans}
        if options.lines:
            changes |= {"dataset": options.dataset, "training.max_samples": options.lines}
        config = load_config({"output": ""}, options.settings, changes=changes)
        report, scores, seconds = measure(config, samples)
        pages = {arm: by_page(rows) for arm, rows in scores.items()}
        table.row(seed, *cells(report, pages), f"{seconds:.0f}")
        for arm, counts in pages.items():
            together.setdefault(arm, []).append(counts)
    if len(options.seed) > 1:
        # A page is drawn with the readings of all seeds.
        summed = {arm: np.sum(counts, axis=0) for arm, counts in together.items() if len(counts) == len(options.seed)}
        table.row("all", *cells(None, summed))
    record(options, table.rows)


if __name__ == "__main__":
    main()
