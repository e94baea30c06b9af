"""What cutting a line to its writing changes: CER with and without it, the lines that are cut apart and all.

    python benchmarks/flourishes.py data/bronod data/copiste --lines 300 [--run runs/mine]
    python benchmarks/flourishes.py data/bronod data/copiste --lines 300 --split test --train 300 --work runs/flourishes

Lines are drawn from all splits. `tall` are those of which less than three quarters are left, as with a flourish. The
second command first trains twice on so many lines of the train split, with and without the cut, and reads with these
two; the trainings are kept in WORK.
"""

import argparse
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from rapidfuzz.distance import Levenshtein

import dsocr
from dsocr.config import load_config
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.models.canvas import cut_to_writing
from dsocr.training.lifecycle import is_trained
from dsocr.training.train import train

TALL = 0.75


def without_cut() -> AbstractContextManager[Any]:
    """Leave lines as they are, in training and reading alike."""
    return mock.patch("dsocr.models.ctc.cut_to_writing", lambda image: image)


def read(run: Path | str, images: Sequence[Image.Image]) -> list[str]:
    """The texts of lines."""
    return [prediction.text for prediction in dsocr.load(run).read(images)]


def train_on(dataset: Path, lines: int, output: Path, settings: Sequence[str]) -> Path:
    """Train `small` on so many lines; returns the run."""
    changes = {"dataset": dataset, "output": output, "training.max_samples": lines, "guard.lines": 0}
    config = load_config({"output": "", "dataset": ""}, ["training.num_workers=0", *settings], changes=changes)
    if not is_trained(config):
        train(config)
    return output


def main() -> None:
    """Print a row for each dataset and group of lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--run", default="small")
    parser.add_argument("--split", choices=[*Split], help="lines of this split only")
    parser.add_argument("--train", type=int, help="train on so many lines of each dataset first")
    parser.add_argument("--work", type=Path, help="folder of these trainings")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="setting of these trainings")
    options = parser.parse_args()
    if (options.train is None) != (options.work is None):
        parser.error("--train and --work go together")
    print("| lines | number | CER without, % | with, % | errors | standard error |\n|---|---:|---:|---:|---:|---:|")
    for folder in options.datasets:
        dataset = Dataset.open(folder)
        splits = [Split(options.split)] if options.split else [*Split]
        samples = list(chain.from_iterable(dataset.samples(split) for split in splits))
        random.Random(1).shuffle(samples)
        samples = samples[: options.lines]
        images = [open_image(sample.image) for sample in samples]
        left = np.array([cut_to_writing(image).height / image.height for image in images])
        outcomes = []
        arms: dict[str, AbstractContextManager[Any]] = {"without": without_cut(), "with": nullcontext()}
        for name, patched in arms.items():
            with patched:
                output = options.work and options.work / f"{folder.name}-{options.train}-{name}"
                run = train_on(folder, options.train, output, options.settings) if output else options.run
                outcomes.append(read(run, images))
        texts = [sample.text for sample in samples]
        lengths = np.array([len(text) for text in texts])
        errors = np.array(
            [[Levenshtein.distance(*pair) for pair in zip(texts, outcome, strict=True)] for outcome in outcomes]
        )
        for name, group in {"all": left <= 1, "cut": left < 1, "tall": left < TALL}.items():
            if not group.any():
                continue
            without, with_it = (100 * errors[:, group].sum(axis=1) / lengths[group].sum()).tolist()
            saved = errors[1, group] - errors[0, group]
            total = max(errors[0, group].sum(), 1)
            change, noise = 100 * saved.sum() / total, 100 * np.sqrt((saved**2).sum()) / total
            row = f"{group.sum()} | {without:.1f} | {with_it:.1f} | {change:+.1f} % | {noise:.1f}"
            print(f"| {folder.name}, {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
