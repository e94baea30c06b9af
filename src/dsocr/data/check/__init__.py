"""Check a dataset for mistakes: in images, texts, pairs of both, and splits."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dsocr.data.check import image_checks, split_checks, text_checks
from dsocr.data.check.findings import Example, Finding, Findings
from dsocr.data.dataset import Dataset

__all__ = ["Example", "Finding", "Findings", "check_dataset"]

_SAMPLE_CHECKS = (
    text_checks.check_letters,
    text_checks.check_habits,
    text_checks.check_repeats,
    image_checks.check_densities,
    image_checks.check_neighbours,
    image_checks.check_brightness,
    image_checks.check_inverted,
    image_checks.check_sizes,
    image_checks.check_line_heights,
    image_checks.check_outlines,
    split_checks.check_duplicates,
    split_checks.check_near_duplicates,
)
_DATASET_CHECKS = (split_checks.check_balance, split_checks.check_crossing, split_checks.check_hashes)


class _Processor(Protocol):
    def unknown_characters(self, text: str) -> str: ...

    def text_ids(self, text: str) -> Sequence[int]: ...

    def distortion(self, width: int, height: int) -> float: ...


def check_dataset(
    dataset: Dataset,
    processor: _Processor | None = None,
    *,
    max_text_tokens: int | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Findings:
    """Run every check on a dataset.

    With the `processor` of a base, its tokenizer and resolution are checked too: characters it cannot write, texts of
    more than `max_text_tokens` tokens, and images whose letters it sees too tall or too wide. `workers` is the number
    of processes that measure images: 1 stays in this one, None starts one per core if the dataset is worth it.
    `progress` gets the samples done and the total.
    """
    findings = Findings(dataset)
    samples = findings.samples
    total = sum(part.samples for part in dataset.card.splits.values())
    for item in image_checks.read_samples(dataset, workers):
        samples.append(item)
        if item.error:
            findings.add("unreadable-image", "error", "Image cannot be read", item, f"{item.sample.id}: {item.error}")
        if progress:
            progress(len(samples), max(total, len(samples)))
    if dataset.card.unit != "layout":
        text_checks.check_empty(samples, findings)
    if processor:
        text_checks.check_tokens(samples, findings, lambda text: len(processor.text_ids(text)), max_text_tokens)
        image_checks.check_distortion(samples, findings, processor.distortion)
        text_checks.check_unknown_characters(samples, findings, processor.unknown_characters)
    for check_samples in _SAMPLE_CHECKS:
        check_samples(samples, findings)
    for check_splits in _DATASET_CHECKS:
        check_splits(dataset, samples, findings)
    return findings
