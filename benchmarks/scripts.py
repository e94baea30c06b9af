"""How often a base decides the script of a page rightly, and what the decision does to its CER.

python benchmarks/scripts.py small data/copiste data/peraire data/writers --split train --pages 40

A page counts from six lines on, as in `transcribe`. Its true script is that of its transcription; a page in both is
left out. Lines are read twice, with letters of both scripts and in the script decided, the language model included.
"""

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.evaluation.metrics import ErrorRate, character_errors, pool
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.models.scripts import MIN_LINES, script_of_texts
from dsocr.text import TextPolicy


def pages_of(folder: Path, split: Split, most: int) -> list[list[Any]]:
    """The samples of pages with six lines or more in one script, at most `most` pages drawn at random."""
    pages: dict[str, list[Any]] = defaultdict(list)
    for sample in Dataset.open(folder).samples(split):
        pages[sample.page or sample.id].append(sample)
    long = [page for page in pages.values() if len(page) >= MIN_LINES]
    kept = [page for page in long if script_of_texts(sample.text for sample in page) != "any"]
    places = np.random.default_rng(1).permutation(len(kept))[:most]
    return [kept[place] for place in sorted(places.tolist())]


def main() -> None:
    """Print a row for each dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="name of a shipped base, or folder of a checkpoint")
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--split", type=Split, default=Split.TEST)
    parser.add_argument("--pages", type=int, default=40, help="pages of a dataset at the most")
    options = parser.parse_args()
    base = load_base(options.base)
    any_script = LocalReader(
        base.network, base.processor(None, "free_ocr"), replace(Generation(), script="any"), TextPolicy()
    )
    undecided = any_script.with_script("auto")
    for folder in options.datasets:
        decided: dict[str, int] = defaultdict(int)
        wrong: list[str] = []
        errors: dict[str, list[ErrorRate]] = {"any": [], "decided": []}
        pages = pages_of(folder, options.split, options.pages)
        for page in pages:
            reader = undecided.decide_script(open_image(sample.image) for sample in page)
            script, truth = reader.generation.script, script_of_texts(sample.text for sample in page)
            decided[script] += 1
            if script not in (truth, "any"):
                wrong.append(f"{page[0].page} ({script})")
            for name, chosen in (("any", any_script), ("decided", reader)):
                read = chosen.read((sample.id, open_image(sample.image)) for sample in page)
                errors[name] += [
                    character_errors(sample.text, line.text) for sample, line in zip(page, read, strict=True)
                ]
        cers = ", ".join(f"{name} {pool(rates).rate:.2%}" for name, rates in errors.items())
        counts = ", ".join(f"{script} {count}" for script, count in sorted(decided.items()))
        print(f"{folder}: {len(pages)} pages, decided {counts}; wrong {wrong or 'none'}; CER {cers}", flush=True)


if __name__ == "__main__":
    main()
