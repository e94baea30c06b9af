"""What each way to read faster is worth: the same lines one by one, in batches, by length and merged.

    python benchmarks/transcribe.py --run runs/demo/nano
    python benchmarks/transcribe.py --run runs/demo/nano --lines 64 --rounds 5 --threads 2
    python benchmarks/transcribe.py --full-size --device cuda --lines 256 --new-tokens 64

All ways read the same lines, in turn, a part of them in each round, so that whatever else the machine does meets all of
them: the ratios count, medians over rounds, of the clock and of processor time. Times include the opening of images.
`--run` is a run that `dsocr demo` made; without one a fresh adapter reads, which writes longer and wrong. `--full-size`
has random weights of DeepSeek-OCR's size on a device: they write nonsense up to `--new-tokens`, guard and loop detector
off, so tokens a second count. `share` is the part of the texts that is the same as one by one.
"""

import argparse
import copy
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from PIL import Image
from transformers import logging

from dsocr.data.dataset import Dataset
from dsocr.document import PackedImage, Split
from dsocr.images import open_image
from dsocr.inference.reader import LocalReader
from dsocr.models import causal_decoding
from dsocr.models.adapters import attach_adapter
from dsocr.models.causal_decoding import TokenSpans
from dsocr.models.generation import Generation, ScoredText
from dsocr.models.loading import load_base
from dsocr.runs import RunFolder
from dsocr.text import TextPolicy
from measuring import PROJECT, append_json, describe, machine, table_line, versions
from random_checkpoint import SMALL, Numbers

SAMPLE = PROJECT / "examples" / "handwriting"
HEAD = ["way", "lines/s", "tokens/s", "CPU ms/line", "clock ratio", "CPU ratio", "share"]
WIDTHS = [34, 8, 9, 11, 11, 9, 6]


@dataclass(frozen=True, slots=True)
class Way:
    """How lines are read."""

    name: str
    batch: int = 1
    prefetch_batches: int = 1
    merged: bool = False
    scores: bool = True
    num_beams: int = 1


WAYS = [
    Way("one by one"),
    Way("one by one, merged", merged=True),
    Way("batches of 16", 16),
    Way("batches, without scores or loops", 16, scores=False),
    Way("batches by length", 16, 4),
    Way("batches by length, merged", 16, 4, merged=True),
    Way("batches of 32 by length, merged", 32, 4, merged=True),
    Way("batches by length, merged, 4 beams", 16, 4, merged=True, num_beams=4),
]


@dataclass(slots=True)
class Measured:
    """What one way took, a number for each round, and what it read."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def main() -> None:
    """Prints what it runs on, then a line for each way."""
    options = _parser().parse_args()
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    found = machine()
    print(describe(versions()))
    print(describe({**found, "threads": options.threads, "device": options.device}))
    plain = _transcriber(options)
    merged = replace(plain, network=copy.deepcopy(plain.network).merge_and_unload())
    ways = [way for way in WAYS if not options.ways or any(part in way.name for part in options.ways.split(";"))]
    measured = {way.name: Measured() for way in ways}
    images = _images(options.lines)
    part = max(1, len(images) // options.rounds)
    for start in range(-1, options.rounds):  # the first round warms up
        some = images[: min(part, 16)] if start < 0 else images[start * part : (start + 1) * part]
        for way in ways:
            _read(merged if way.merged else plain, way, some, Measured() if start < 0 else measured[way.name])
    print("\n" + table_line(HEAD, WIDTHS))
    first = measured[ways[0].name]
    for way in ways:
        print(table_line(_row(way, measured[way.name], first), WIDTHS), flush=True)
    settings = {name: getattr(options, name) for name in ("lines", "rounds", "threads", "device", "full_size")}
    rows = [{"way": name, "seconds": one.seconds, "tokens": one.tokens} for name, one in measured.items()]
    append_json(options.json, "transcribe", settings, rows)


def _transcriber(options: argparse.Namespace) -> LocalReader:
    if options.full_size or options.small:
        from gpu_phases import Bench

        numbers, resolution = (SMALL, "tiny") if options.small else (Numbers(), "base")
        device = torch.device(options.device)
        bench = Bench.prepare(None, numbers, resolution, device=device)
        generation = Generation(max_new_tokens=options.new_tokens, no_repeat_ngram_size=0)
        return LocalReader(bench.model, bench.encoder, generation, TextPolicy())
    if options.run is not None:
        return LocalReader.of_run(RunFolder.open(options.run))
    base = load_base("nano")
    model = attach_adapter(base.network, base="nano", revision=None, target_modules="decoder+vision", r=16, alpha=32)
    return LocalReader(model, base.processor(None, "free_ocr"), Generation(max_new_tokens=96), TextPolicy())


def _images(count: int) -> list[Path | PackedImage]:
    dataset = Dataset.open(SAMPLE)
    paths = [sample.image for split in (Split.TEST, Split.VALIDATION) for sample in dataset.samples(split)]
    return [paths[place % len(paths)] for place in range(count)]


def _read(transcriber: LocalReader, way: Way, paths: Sequence[Path | PackedImage], measured: Measured) -> None:
    generation = replace(
        transcriber.generation, batch_size=way.batch, prefetch_batches=way.prefetch_batches, num_beams=way.num_beams
    )
    reader = replace(transcriber, generation=generation)

    def opened() -> Iterator[tuple[str, Image.Image]]:
        for place, path in enumerate(paths):
            yield f"{len(measured.lines)}/{place}", open_image(path)

    with nullcontext() if way.scores else _without_scores():
        start, processor = time.perf_counter(), time.process_time()
        predictions = list(reader.read(opened()))
        measured.processor.append(time.process_time() - processor)
        measured.seconds.append(time.perf_counter() - start)
    measured.lines.append(len(paths))
    measured.tokens.append(sum(prediction.tokens for prediction in predictions))
    measured.texts |= {prediction.id: prediction.text for prediction in predictions}


def _without_scores() -> Any:
    """Reading as it was before there were scores: nothing written down of the choices, no look for loops."""

    class Nothing:
        """In the place of what watches over a generation."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._rows = 0
            self.stopped: dict[int, int] = {}

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
            self._rows = len(input_ids)
            return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

        def by_row(self) -> tuple[list[list[float]], list[list[bool]]]:
            return [[]] * self._rows, [[]] * self._rows

    class Unscored(TokenSpans):
        def scored(self, ids: Sequence[int], *_: Any, ended: bool) -> ScoredText:
            return ScoredText(self.text(ids[: len(ids) - ended]))

    class Same:
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores

    return patch.multiple(
        causal_decoding,
        ModelScores=Same,
        ChosenTokens=Nothing,
        StopLoops=Nothing,
        TokenSpans=Unscored,
        is_looping=lambda text: False,
    )


def _row(way: Way, one: Measured, first: Measured) -> list[str]:
    same = sum(one.texts[name] == text for name, text in first.texts.items()) / len(first.texts)
    return [
        way.name,
        f"{sum(one.lines) / sum(one.seconds):.2f}",
        f"{sum(one.tokens) / sum(one.seconds):.0f}",
        f"{1000 * sum(one.processor) / sum(one.lines):.0f}",
        f"{_ratio(first.seconds, one.seconds):.2f}",
        f"{_ratio(first.processor, one.processor):.2f}",
        f"{same:.0%}",
    ]


def _ratio(first: Sequence[float], other: Sequence[float]) -> float:
    return median(one / two for one, two in zip(first, other, strict=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run of nano, such as the demo's")
    parser.add_argument("--lines", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ways", help="only ways whose names have one of these parts, divided by semicolons")
    parser.add_argument("--device", default="cpu", help="where full-size weights go")
    parser.add_argument("--full-size", action="store_true", help="random weights of DeepSeek-OCR's size")
    parser.add_argument("--small", action="store_true", help="the same network with small numbers, to try it")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--json", type=Path, help="add the results to this file of JSON lines")
    return parser


if __name__ == "__main__":
    main()
