"""What cutting a line to its writing changes: CER with and without it, the lines that are cut apart and all.

    python benchmarks/flourishes.py data/bronod data/copiste --lines 300 [--run runs/mine]

Lines are drawn from all splits. `tall` are those of which less than three quarters are left, as with a flourish.
"""

import argparse
import random
from itertools import chain
from pathlib import Path
from unittest import mock

import numpy as np
from rapidfuzz.distance import Levenshtein

import dsocr
from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.images import open_image
from dsocr.models.canvas import cut_to_writing

TALL = 0.75


def main() -> None:
    """Print a row for each dataset and group of lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--run", default="small")
    parser.add_argument("--split", choices=[*Split], help="lines of this split only")
    options = parser.parse_args()
    reader = dsocr.load(options.run)
    print("| lines | number | CER without, % | with, % | errors | standard error |\n|---|---:|---:|---:|---:|---:|")
    for folder in options.datasets:
        dataset = Dataset.open(folder)
        splits = [Split(options.split)] if options.split else [*Split]
        samples = list(chain.from_iterable(dataset.samples(split) for split in splits))
        random.Random(1).shuffle(samples)
        samples = samples[: options.lines]
        images = [open_image(sample.image) for sample in samples]
        left = np.array([cut_to_writing(image).height / image.height for image in images])
        changed = np.flatnonzero(left < 1)
        with mock.patch("dsocr.models.ctc.cut_to_writing", lambda image: image):
            before = [prediction.text for prediction in reader.read(images)]
        after = list(before)
        for place, prediction in zip(changed, reader.read([images[place] for place in changed]), strict=True):
            after[place] = prediction.text
        texts = [sample.text for sample in samples]
        lengths = np.array([len(text) for text in texts])
        errors = np.array(
            [[Levenshtein.distance(*pair) for pair in zip(texts, read, strict=True)] for read in (before, after)]
        )
        for name, group in {"all": left <= 1, "cut": left < 1, "tall": left < TALL}.items():
            if not group.any():
                continue
            without, with_it = (100 * errors[:, group].sum(axis=1) / lengths[group].sum()).tolist()
            saved = errors[1, group] - errors[0, group]
            total = max(errors[0, group].sum(), 1)
            change, noise = 100 * saved.sum() / total, 100 * np.sqrt((saved**2).sum()) / total
            row = f"{group.sum()} | {without:.1f} | {with_it:.1f} | {change:+.1f} % | {noise:.1f}"
            print(f"| {folder.name}, {name} | {row} |")


if __name__ == "__main__":
    main()
