"""The single checks of a dataset folder, a module a subject; `data/checks.py` calls them all."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dsocr.data.check.findings import Checked, Finding, Findings, Look, look_at
from dsocr.data.check.image_checks import check_aspects, check_inverted, check_looks, check_shapes, check_sizes
from dsocr.data.check.pair_checks import check_neighbours, check_pairs
from dsocr.data.check.split_checks import (
    check_balance,
    check_crossing,
    check_duplicates,
    check_hashes,
    check_near_duplicates,
)
from dsocr.data.check.text_checks import (
    check_characters,
    check_empty,
    check_habits,
    check_letters,
    check_repeats,
    check_tokens,
)
from dsocr.data.dataset import Dataset
from dsocr.data.prepare import Progress
from dsocr.document import PackedImage, Sample, Split
from dsocr.errors import DataError
from dsocr.images import decode_image, read_bytes
from dsocr.io.processes import Workers, worker_processes

Numbered = tuple[str, Sample]

_BATCH = 64
"""Images handed to a process at a time."""
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


def read_samples(dataset: Dataset, workers: int | None = None) -> Iterator[tuple[Checked, str | None]]:
    """Every sample with a look at its image, and why the image cannot be read where that is so.

    `workers` is the number of processes, 1 for none beside this one, None for one a core.
    """
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


def _looked(numbered: Iterator[Numbered], workers: int | None) -> Iterator[tuple[Numbered, Looked]]:
    with worker_processes(workers) as crew:
        waiting: deque[tuple[list[Numbered], Future[list[Looked]]]] = deque()
        for batch in _batches(numbered):
            waiting.append((batch, crew.submit(look_into_all, [sample.image for _, sample in batch])))
            while len(waiting) > crew.backlog:
                yield from _finished(crew, *waiting.popleft())
        while waiting:
            yield from _finished(crew, *waiting.popleft())


def _finished(
    crew: Workers, batch: list[Numbered], answer: "Future[list[Looked]]"
) -> Iterable[tuple[Numbered, Looked]]:
    looked: list[Looked] = crew.result(answer)
    return zip(batch, looked, strict=True)


def _batches(numbered: Iterator[Numbered]) -> Iterator[list[Numbered]]:
    while batch := list(islice(numbered, _BATCH)):
        yield batch


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found in a dataset, errors first, and every sample with what was seen of it, in their order."""

    findings: list[Finding]
    samples: list[Checked]


def survey_dataset(
    dataset: Dataset,
    *,
    unknown_characters: Callable[[str], str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    max_text_tokens: int | None = None,
    distortion: Callable[[int, int], float] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Survey:
    """All findings about a dataset, none where nothing doubtful was found, and its samples.

    `unknown_characters` gives the characters of a text that the base's tokenizer cannot write; `count_tokens` a text's
    length in tokens, which `max_text_tokens` limits; `distortion` how much taller than true the letters of an image of
    some width and height are shown to the model. `workers` is how many processes look at images: 1 for this one alone,
    None for as many as there are cores if the dataset is worth it.
    """
    findings = Findings()
    checked = _read_all(dataset, findings, workers, progress)
    check_empty(checked, findings)
    if count_tokens:
        check_tokens(checked, findings, count_tokens, max_text_tokens)
    if distortion:
        check_shapes(checked, findings, distortion)
    if unknown_characters:
        check_characters(checked, findings, unknown_characters)
    for check in (
        *(check_letters, check_habits, check_repeats),
        *(check_pairs, check_neighbours),
        *(check_looks, check_inverted, check_sizes, check_aspects),
        *(check_duplicates, check_near_duplicates),
    ):
        check(checked, findings)
    for check_with_card in (check_balance, check_crossing, check_hashes):
        check_with_card(dataset, checked, findings)
    return Survey(findings.listed(), checked)


def _read_all(dataset: Dataset, findings: Findings, workers: int | None, progress: Progress | None) -> list[Checked]:
    """Every sample with a look at its image, and a finding where that fails."""
    checked: list[Checked] = []
    total = promised(dataset)
    for item, refused in read_samples(dataset, workers):
        checked.append(item)
        if refused:
            detail = f"{item.sample.id}: {refused}"
            findings.add("unreadable-image", "error", "the image cannot be read", item, detail)
        if progress:
            progress(len(checked), max(total, len(checked)))
    return checked
