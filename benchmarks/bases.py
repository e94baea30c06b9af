"""Measure what a base reads without training: CER on a split of prepared datasets, through the product's reader.

python benchmarks/bases.py small data/copiste data/mine
python benchmarks/bases.py ppocr-small data/copiste --resolution x1 --resolution x1.4
"""

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
from runner import Table, Times, make_parser, parse, record


def main() -> None:
    """Print a row for each dataset and resolution."""
    parser = make_parser(__doc__)
    parser.add_argument("base")
    parser.add_argument("datasets", type=Path, nargs="+")
    parser.add_argument("--split", type=Split, default=Split.TEST)
    parser.add_argument("--resolution", action="append", help="repeatable; the base's default if not given")
    parser.add_argument("--language-model", choices=("auto", "none"), default="auto", help="none: greedy")
    options = parse(parser)
    base = load_base(options.base)
    table = Table("resolution", "dataset", "lines", "CER", "seconds")
    for folder in options.datasets:
        samples = Dataset.open(folder).samples(options.split)
        for resolution in options.resolution or [None]:
            processor = base.processor(resolution, "free_ocr")
            generation = replace(Generation(), batch_size=8, language_model=options.language_model)
            reader, times = LocalReader(base.network, processor, generation, TextPolicy()), Times()
            with times.measure():
                read = list(reader.read((sample.id, open_image(sample.image)) for sample in samples))
            rate = pool(character_errors(a.text, b.text) for a, b in zip(samples, read, strict=True)).rate
            table.row(processor.resolution_name, folder, len(samples), f"{rate:.2%}", f"{times.clock[0]:.1f}")
    record(options, table.rows)


if __name__ == "__main__":
    main()
