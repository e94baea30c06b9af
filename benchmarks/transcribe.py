"""Measure what each way to read faster gains: the same lines one by one, in batches, by length and merged.

    python benchmarks/transcribe.py --run runs/demo/nano [--lines 64] [--rounds 5] [--threads 2]

All ways read the same lines in turns, a part of them in each round: the ratios count, medians over rounds. Times
include opening images. Without `--run` a fresh adapter on `nano` reads, which writes longer and wrong texts. `share` is
the part of the texts that is the same as one by one. `gpu.py` measures the full size on a GPU.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from PIL import Image
from transformers import logging

from dsocr.data.dataset import Dataset
from dsocr.document import PackedImage, Split
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models.adapters import attach_adapter
from dsocr.models.generation import Generation
from dsocr.models.loading import load_base
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from runner import PROJECT, Table, Times, in_turns, make_parser, parse, record

SAMPLE = PROJECT / "examples" / "handwriting"


@dataclass(slots=True)
class Way:
    """How lines are read, with its times and readings so far."""

    name: str
    batch: int = 1
    prefetch_batches: int = 1
    merged: bool = False
    num_beams: int = 1
    times: Times = field(default_factory=Times)
    tokens: int = 0
    texts: dict[str, str] = field(default_factory=dict)

    def read(self, reader: LocalReader, paths: Sequence[Path | PackedImage], number: int) -> None:
        """Read a part of the lines; round 0 warms up."""
        generation = replace(
            reader.generation, batch_size=self.batch, prefetch_batches=self.prefetch_batches, num_beams=self.num_beams
        )

        def images() -> Iterator[tuple[str, Image.Image]]:
            yield from ((f"{number}/{place}", open_image(path)) for place, path in enumerate(paths))

        with (self.times if number else Times()).measure(len(paths)):
            predictions = list(replace(reader, generation=generation).read(images()))
        if number:
            self.tokens += sum(prediction.tokens for prediction in predictions)
            self.texts |= {prediction.id: prediction.text for prediction in predictions}


WAYS = [
    Way("one by one"),
    Way("one by one, merged", merged=True),
    Way("batches of 16", 16),
    Way("batches by length", 16, 4),
    Way("batches by length, merged", 16, 4, merged=True),
    Way("batches of 32 by length, merged", 32, 4, merged=True),
    Way("batches by length, merged, 4 beams", 16, 4, merged=True, num_beams=4),
]


def load_reader(run: Path | None) -> LocalReader:
    """Return the reader of a run, or `nano` with a fresh adapter."""
    if run is not None:
        return LocalReader.of_run(RunFolder.open(run))
    base = load_base("nano")
    model = attach_adapter(base.network, base="nano", revision=None, target_modules="decoder+vision", r=16, alpha=32)
    return LocalReader(model, base.processor(None, "free_ocr"), Generation(max_new_tokens=96), TextPolicy())


def main() -> None:
    """Read in every way, and print a row for each."""
    parser = make_parser(__doc__)
    parser.add_argument("--run", type=Path, help="a run of nano, such as the demo's")
    parser.add_argument("--lines", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parse(parser)
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    plain = load_reader(options.run)
    merged = replace(plain, network=copy.deepcopy(plain.network).merge_and_unload())
    dataset = Dataset.open(SAMPLE)
    images = [sample.image for split in (Split.TEST, Split.VALIDATION) for sample in dataset.samples(split)]
    part = max(1, options.lines // options.rounds)
    for number, way in in_turns(WAYS, options.rounds + 1):
        start = part * max(0, number - 1)
        paths = [images[place % len(images)] for place in range(start, start + (part if number else min(part, 16)))]
        way.read(merged if way.merged else plain, paths, number)
    table = Table("way", "lines/s", "tokens/s", "CPU ms/line", "clock ratio", "CPU ratio", "share")
    first = WAYS[0]
    for way in WAYS:
        lines, seconds = len(way.times.clock), sum(way.times.clock)
        same = sum(way.texts[name] == text for name, text in first.texts.items()) / len(first.texts)
        speed = (f"{lines / seconds:.2f}", f"{way.tokens / part / seconds:.0f}")
        ratios = way.times.ratios(first.times)
        table.row(way.name, *speed, f"{1000 * sum(way.times.processor) / lines:.0f}", *ratios, f"{same:.0%}")
    record(options, table.rows)


if __name__ == "__main__":
    main()
