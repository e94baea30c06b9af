"""What a base reads without training: CER on a split of prepared datasets, through the product's own reader.

python benchmarks/bases.py small data/copiste data/mine
python benchmarks/bases.py ppocr-small data/copiste --resolution x1 --resolution x1.4
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from dsocr.data.dataset import Dataset
from dsocr.document import Split
from dsocr.evaluation.metrics import character_errors, pool
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.text import TextPolicy


def main() -> None:
    """Print a line for each dataset and resolution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--split", type=Split, default=Split.TEST)
    parser.add_argument("--resolution", action="append", help="may be given several times; the base's default if not")
    parser.add_argument("--language-model", choices=("auto", "none"), default="auto", help="none: not the base's own")
    options = parser.parse_args()
    base = load_base(options.base)
    for folder in options.datasets:
        samples = Dataset.open(folder).samples(options.split)
        for resolution in options.resolution or [None]:
            processor = base.processor(resolution, "free_ocr")
            generation = replace(Generation(), batch_size=8, language_model=options.language_model)
            reader = LocalReader(base.network, processor, generation, TextPolicy())
            started = time.perf_counter()
            read = reader.read((sample.id, open_image(sample.image)) for sample in samples)
            errors = [character_errors(one.text, found.text) for one, found in zip(samples, read, strict=True)]
            seconds = time.perf_counter() - started
            print(
                f"{options.base} {processor.resolution_name}  {folder}  {options.split.value}: {len(samples)} lines,"
                f" CER {pool(errors).rate:.2%}, {seconds:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
