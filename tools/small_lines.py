"""The lines that pretrain `small`: their cache on the disk, and batches of them, each line varied anew.

A cache has two files for each source: all lines as bytes, one after another, and a table of their texts.
"""

import argparse
import html
import json
import math
import multiprocessing
import time
import unicodedata
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from dsocr.models.canvas import LINE_HEIGHT, PIXELS_PER_STEP
from dsocr.models.ctc import GPU_WIDTH_MULTIPLE, WIDTH_MULTIPLE, count_steps
from small_texts import CHARACTERS

MAX_WIDTH = 2400

SHARES = {
    "drawn-tracks": 0.40,
    "drawn-joined": 0.28,
    "drawn-fonts": 0.22,
    "drawn-ink": 0.46,
    "drawn-latin": 0.30,
    "lectaurep-mariages": 0.06,
    "lectaurep": 0.16,
    "timeuscorpus": 0.15,
    "CREMMA-MSS-19": 0.16,
    "CREMMA-AN-TestamentDePoilus": 0.16,
    "CREMMA-MSS-18": 0.08,
    "FONDUE-FR-MSS-19": 0.12,
    "HN2021-Memorials": 0.08,
    "CREMMA-MSS-20": 0.08,
    "dataset-celestine": 0.03,
    "TNAH-2021": 0.01,
    "Tables_decennales": 0.05,
}
"""Relative shares of the drawn lines by the start of a source's name; sources of one name divide its share.

More than half of the lines are drawn, nearly all of them Russian. Real hands after 1800 weigh more than their number
of lines, because most archives that come to this software are of them.
"""

OTHER_SHARE = 0.04

Line = tuple[str, NDArray[np.uint8]]
"""The text of a line, and its image, grey `(H, W)`."""


@dataclass(frozen=True)
class Source:
    """The cached lines of one source: texts, and where the pixels of each line begin."""

    name: str
    pixels: NDArray[np.uint8]
    starts: NDArray[np.int64]
    widths: NDArray[np.int64]
    texts: list[str]
    validates: NDArray[np.bool_]
    height: int

    def line(self, index: int) -> NDArray[np.uint8]:
        """The pixels of a line, grey, `(H, W)`."""
        start, width = int(self.starts[index]), int(self.widths[index])
        return self.pixels[start : start + self.height * width].reshape(self.height, width)


def open_cache(folder: Path) -> list[Source]:
    """Open every source of a cache; pixels stay on disk."""
    sources = []
    for table in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]
        widths = np.array([row["width"] for row in rows], dtype=np.int64)
        height = rows[0].get("height", LINE_HEIGHT)
        starts = np.concatenate([[0], np.cumsum(widths[:-1] * height)])
        pixels = np.memmap(table.with_suffix(".pixels"), dtype=np.uint8, mode="r")
        validates = np.array([row["validates"] for row in rows])
        sources.append(Source(table.stem, pixels, starts, widths, [row["text"] for row in rows], validates, height))
    return sources


def write_source(cache: Path, name: str, lines: Iterator[tuple[str, NDArray[np.uint8], bool]]) -> None:
    """Write a source of texts, grey pixels `(H, W)`, and whether they validate; skip what cannot be learned."""
    cache.mkdir(parents=True, exist_ok=True)
    known = set(CHARACTERS)
    kept = skipped = 0
    table, pixels = cache / f"{name}.jsonl.part", cache / f"{name}.pixels"
    with table.open("w", encoding="utf-8") as rows, pixels.open("wb") as content:
        for text, line, validates in lines:
            text = " ".join(unicodedata.normalize("NFC", html.unescape(text)).split())
            steps = line.shape[1] // PIXELS_PER_STEP
            if (
                not text
                or not known.issuperset(text)
                or count_steps(text) > 0.8 * steps
                or line.shape[1] > MAX_WIDTH * line.shape[0] / LINE_HEIGHT
            ):
                skipped += 1
                continue
            content.write(np.ascontiguousarray(line).tobytes())
            row = {"text": text, "width": line.shape[1], "height": line.shape[0], "validates": validates}
            rows.write(json.dumps(row, ensure_ascii=False) + "\n")
            kept += 1
    table.replace(cache / f"{name}.jsonl")
    print(f"{name}: {kept} lines, {skipped} skipped", flush=True)


def vary(line: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a line with another width, slant, size, contrast, stroke and noise; grey `(H, W)`."""
    height, width = line.shape
    paper = int(np.median(line))
    wide = rng.uniform(0.86, 1.16)
    tall = rng.uniform(0.8, 1.08)
    slant = rng.normal(0, 0.18)
    size = max(PIXELS_PER_STEP, round(width * wide))
    centre = height / 2 + rng.normal(0, 1.5) * height / LINE_HEIGHT
    # Output pixel -> input pixel: shear about the middle, then scale.
    matrix = (1 / wide, slant / wide, -slant * height / 2 / wide, 0, 1 / tall, centre - height / 2 / tall)
    image = Image.fromarray(line).transform(
        (size, height), Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=paper
    )
    varied = np.asarray(image, dtype=np.float32)
    if rng.random() < 0.3:
        low = max(16, size // int(rng.integers(2, 4)))
        small = image.resize((low, int(rng.integers(20, 36)) * height // LINE_HEIGHT), Image.Resampling.BOX)
        varied = np.asarray(small.resize((size, height), Image.Resampling.BILINEAR), dtype=np.float32)
    contrast, shift = rng.uniform(0.6, 1.25), rng.normal(0, 14)
    varied = (varied - paper) * contrast + paper + shift
    if rng.random() < 0.5:
        varied = varied + rng.normal(0, rng.uniform(1, 9), varied.shape).astype(np.float32)
    return np.clip(varied, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Batch:
    """Lines side by side as bytes: grey `(B, H, W)`, padded right, with their texts and their own widths."""

    texts: list[str]
    pixels: NDArray[np.uint8]
    widths: list[int]

    def to(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """The network's input `(B, 3, H, W)` on a device, 0 in the padding, and the columns `(B,)`, on the CPU."""
        widths = torch.tensor(self.widths)
        grey = torch.from_numpy(self.pixels).to(device, non_blocking=True).float() / 127.5 - 1
        inside = torch.arange(grey.shape[2], device=device) < widths.to(device)[:, None]
        images = (grey * inside[:, None])[:, None].expand(-1, 3, -1, -1)
        return images.contiguous(memory_format=torch.channels_last), -(-widths // PIXELS_PER_STEP) * PIXELS_PER_STEP


def to_batch(lines: Sequence[Line], multiple: int = WIDTH_MULTIPLE) -> Batch:
    """Put lines side by side, the batch as wide as a multiple of pixels."""
    widths = [line.shape[1] for _, line in lines]
    pixels = np.zeros((len(lines), lines[0][1].shape[0], -(-max(widths) // multiple) * multiple), dtype=np.uint8)
    for row, (_, line) in zip(pixels, lines, strict=True):
        row[:, : line.shape[1]] = line
    return Batch([text for text, _ in lines], pixels, widths)


class Batches:
    """Endless batches, drawn pool by pool from (seed, pool), so that a resumed training sees the same data."""

    def __init__(self, sources: Sequence[Source], options: argparse.Namespace) -> None:
        self.sources = [source for source in sources if not source.validates.all()]
        self.options = options
        self.indices = [np.flatnonzero(~source.validates) for source in self.sources]
        keys = [next((key for key in SHARES if source.name.startswith(key)), source.name) for source in self.sources]
        counts = np.array([len(indices) for indices in self.indices], dtype=float)
        totals = {key: sum(count for count, other in zip(counts, keys, strict=True) if other == key) for key in keys}
        shares = [SHARES.get(key, OTHER_SHARE) * count / totals[key] for key, count in zip(keys, counts, strict=True)]
        weights = np.array(shares)
        self.weights = weights / weights.sum()

    def pool(self, number: int) -> list[Batch]:
        """The batches of one pool of lines, those of similar width together."""
        rng = np.random.default_rng((self.options.seed, number))
        drawn: list[Line] = []
        for chosen in rng.choice(len(self.sources), self.options.pool, p=self.weights):
            source = self.sources[chosen]
            index = int(rng.choice(self.indices[chosen]))
            drawn.append((source.texts[index], vary(source.line(index), rng)))
        batches = self.of_equal_shapes(drawn, rng) if self.options.lines else self.of_equal_sums(drawn)
        return [batches[place] for place in rng.permutation(len(batches))]

    def of_equal_sums(self, drawn: list[Line]) -> list[Batch]:
        """Batches of about the same total width."""
        batches: list[list[Line]] = [[]]
        for pair in sorted(drawn, key=lambda pair: pair[1].shape[1]):
            if batches[-1] and (len(batches[-1]) + 1) * pair[1].shape[1] > self.options.pixels:
                batches.append([])
            batches[-1].append(pair)
        return [to_batch(batch) for batch in batches]

    def of_equal_shapes(self, drawn: list[Line], rng: np.random.Generator) -> list[Batch]:
        """Batches of the same number of lines and of few widths; what lacks is filled with lines of that width again.

        The libraries of a GPU prepare themselves for every new shape, which took 2.4 s a step where none came twice.
        """
        by_width: dict[int, list[Line]] = {}
        for pair in drawn:
            by_width.setdefault(-(-pair[1].shape[1] // GPU_WIDTH_MULTIPLE), []).append(pair)
        batches = []
        for pairs in by_width.values():
            missing = -len(pairs) % self.options.lines
            filled = pairs + [pairs[place] for place in rng.integers(len(pairs), size=missing).tolist()]
            for first in range(0, len(filled), self.options.lines):
                batches.append(to_batch(filled[first : first + self.options.lines], GPU_WIDTH_MULTIPLE))
        return batches


class Worker:
    """Makes pools in a process of its own, and takes in every half minute what has been drawn meanwhile."""

    current: "Worker"

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.opened = -math.inf

    @classmethod
    def start(cls, options: argparse.Namespace) -> None:
        """Set up the worker of this process."""
        torch.set_num_threads(1)
        cls.current = cls(options)

    def pool(self, number: int) -> list[Batch]:
        """The batches of one pool."""
        if time.monotonic() - self.opened > 30:
            self.batches = open_batches(self.options)
            self.opened = time.monotonic()
        return self.batches.pool(number)


def open_batches(options: argparse.Namespace) -> Batches:
    """The batches of all sources that the cache has now."""
    return Batches(open_cache(options.cache), options)


def _make_pool(number: int) -> list[Batch]:
    return Worker.current.pool(number)


def stream_pools(options: argparse.Namespace, first: int) -> Generator[list[Batch]]:
    """Yield pool after pool without end, made by worker processes if there are any."""
    if not options.workers:
        batches = open_batches(options)
        yield from map(batches.pool, count(first))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, Worker.start, (options,)) as workers:
        ahead: deque[Future[list[Batch]]] = deque()
        try:
            for number in count(first):
                ahead.append(workers.submit(_make_pool, number))
                if len(ahead) > options.workers:
                    yield ahead.popleft().result()
        finally:
            workers.shutdown(cancel_futures=True)
