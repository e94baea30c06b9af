"""Reading the samples of a dataset with a look at every image, in as many processes as there are cores.

Looking takes most of a check's time and knows nothing of the other samples, so it is what the processes share; what
comes back is small, and the samples come in the order of the dataset, one after the other.
"""

import hashlib
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dsocr.data.checking.findings import Checked
from dsocr.data.checking.looks import Look, look_at
from dsocr.data.dataset import Dataset
from dsocr.data.images import decode_image, read_bytes
from dsocr.errors import DataError
from dsocr.samples import PackedImage, Sample, Split

Numbered = tuple[str, Sample]

_BATCH = 64
"""Images handed to a process at a time."""
_AHEAD = 4
"""Batches that wait for each process, so that none idles and none runs far ahead."""
_WORTH_A_PROCESS = 2000
"""Images; a process takes about as long to start as to look at so many."""
_NOWHERE: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of an image file: its SHA-256, width and height, its look; or why it cannot be read."""

    digest: str | None = None
    size: tuple[int, int] | None = None
    look: Look | None = None
    refused: str | None = None


def look_into(path: Path | PackedImage) -> Looked:
    """One image file, read and decoded once."""
    digest = None
    try:
        data = read_bytes(path)
        digest = hashlib.sha256(data).hexdigest()
        image = decode_image(data, name=path).image
    except DataError as error:
        return Looked(digest, refused=error.message)
    return Looked(digest, image.size, look_at(image))


def look_into_all(paths: Sequence[Path | PackedImage]) -> list[Looked]:
    """What a process is handed at a time."""
    return [look_into(path) for path in paths]


def sensible_workers(samples: int) -> int:
    """As many processes as there are cores, fewer where they would not be worth their start."""
    return max(1, min(os.cpu_count() or 1, samples // _WORTH_A_PROCESS))


def read_samples(dataset: Dataset, workers: int | None = None) -> Iterator[tuple[Checked, str | None]]:
    """Every sample with a look at its image, and why the image cannot be read where that is so.

    `workers` is the number of processes, 1 for none beside this one, None for a sensible number.
    """
    workers = workers or sensible_workers(promised(dataset))
    writers: dict[str, str] = {}
    for (where, sample), looked in _looked(_numbered(dataset), workers):
        # A polygon of a few dozen corners takes more memory than all the rest, and no check asks for it.
        small = replace(sample, geometry=_NOWHERE, writer=_one(sample.writer, writers), page=_one(sample.page, writers))
        yield Checked(where, small, looked.digest, looked.size, looked.look), looked.refused


def promised(dataset: Dataset) -> int:
    """How many samples the card tells of."""
    return sum(part.samples for part in dataset.card.splits.values())


def _numbered(dataset: Dataset) -> Iterator[Numbered]:
    for split in Split:
        yield from dataset.numbered(split)


def _one(name: str | None, known: dict[str, str]) -> str | None:
    """The same name as the same object, however often it was read."""
    return None if name is None else known.setdefault(name, name)


def _looked(numbered: Iterator[Numbered], workers: int) -> Iterator[tuple[Numbered, Looked]]:
    if workers == 1:
        for pair in numbered:
            yield pair, look_into(pair[1].image)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting: deque[tuple[list[Numbered], Future[list[Looked]]]] = deque()
        try:
            for batch in _batches(numbered):
                waiting.append((batch, pool.submit(look_into_all, [sample.image for _, sample in batch])))
                if len(waiting) > _AHEAD * workers:
                    yield from _finished(*waiting.popleft())
            while waiting:
                yield from _finished(*waiting.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _finished(batch: list[Numbered], future: "Future[list[Looked]]") -> Iterable[tuple[Numbered, Looked]]:
    try:
        return zip(batch, future.result(), strict=True)
    except BrokenProcessPool as error:
        message = "a process that looked at images has died; the memory may not have been enough"
        raise DataError(message, where=batch[0][0], hint="try again with --workers 1") from error


def _batches(numbered: Iterator[Numbered]) -> Iterator[list[Numbered]]:
    while batch := list(islice(numbered, _BATCH)):
        yield batch
