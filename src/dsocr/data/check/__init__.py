"""Check a dataset for mistakes: in images, texts, pairs of both, and splits."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dsocr.data.check.findings import Example, Finding, Findings
from dsocr.data.check.image_checks import (
    check_brightness,
    check_distortion,
    check_inverted,
    check_line_heights,
    check_outlines,
    check_sizes,
)
from dsocr.data.check.pair_checks import check_densities, check_neighbours
from dsocr.data.check.sample_stats import read_samples
from dsocr.data.check.split_checks import (
    check_balance,
    check_crossing,
    check_duplicates,
    check_hashes,
    check_near_duplicates,
)
from dsocr.data.check.text_checks import (
    check_empty,
    check_habits,
    check_letters,
    check_repeats,
    check_tokens,
    check_unknown_characters,
)
from dsocr.data.dataset import Dataset

__all__ = ["Example", "Finding", "Findings", "check", "check_for_base"]

_SAMPLE_CHECKS = (
    *(check_letters, check_habits, check_repeats),
    *(check_densities, check_neighbours),
    *(check_brightness, check_inverted, check_sizes, check_line_heights, check_outlines),
    *(check_duplicates, check_near_duplicates),
)
_DATASET_CHECKS = (check_balance, check_crossing, check_hashes)


def check(
    dataset: Dataset,
    *,
    unknown_characters: Callable[[str], str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    max_text_tokens: int | None = None,
    distortion: Callable[[int, int], float] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run every check on a dataset.

    `unknown_characters` returns the characters of a text that a base's tokenizer cannot write; `count_tokens` the
    length of a text in tokens, limited by `max_text_tokens`; `distortion` how much taller than true a base sees the
    letters of an image of this width and height. `workers` is the number of processes that measure images: 1 stays in
    this one, None starts one per core if the dataset is worth it. `progress` gets the samples done and the total.
    """
    findings = Findings(dataset)
    samples = findings.samples
    total = sum(part.samples for part in dataset.card.splits.values())
    for item in read_samples(dataset, workers):
        samples.append(item)
        if item.error:
            findings.add("unreadable-image", "error", "Image cannot be read", item, f"{item.sample.id}: {item.error}")
        if progress:
            progress(len(samples), max(total, len(samples)))
    check_empty(samples, findings)
    if count_tokens:
        check_tokens(samples, findings, count_tokens, max_text_tokens)
    if distortion:
        check_distortion(samples, findings, distortion)
    if unknown_characters:
        check_unknown_characters(samples, findings, unknown_characters)
    for check_samples in _SAMPLE_CHECKS:
        check_samples(samples, findings)
    for check_dataset in _DATASET_CHECKS:
        check_dataset(dataset, samples, findings)
    return findings


class BaseResolution(Protocol):
    """How a base sees images."""

    def distortion(self, width: int, height: int) -> float:
        """How many times too tall letters are shown in an image of this size."""


class BaseProcessor(Protocol):
    """What turns texts and images into the inputs of a base."""

    @property
    def resolution(self) -> BaseResolution:
        """The resolution in which images are shown."""

    def unknown_characters(self, text: str) -> str:
        """The characters of a text that the tokenizer cannot write."""

    def text_ids(self, text: str) -> Sequence[int]:
        """The tokens of a text."""


def check_for_base(
    dataset: Dataset,
    processor: BaseProcessor,
    *,
    max_text_tokens: int | None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run every check on a dataset, those of a base's tokenizer and resolution included."""
    return check(
        dataset,
        unknown_characters=processor.unknown_characters,
        count_tokens=lambda text: len(processor.text_ids(text)),
        max_text_tokens=max_text_tokens,
        distortion=processor.resolution.distortion,
        workers=workers,
        progress=progress,
    )
