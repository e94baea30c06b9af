"""Checks across samples: what stands twice or in two splits, and whether the files are still those of the card."""

from collections.abc import Callable

from dsocr.data.card import split_hash
from dsocr.data.checking.findings import Checked, Findings, Severity
from dsocr.data.dataset import Dataset
from dsocr.data.splits import crossing
from dsocr.samples import Sample, Split
from dsocr.text import comparable


def check_crossing(dataset: Dataset, checked: list[Checked], findings: Findings) -> None:
    """Writers, pages and texts in more than one split: an error where the card promises otherwise."""
    kinds: dict[str, Callable[[Sample], str | None]] = {
        "writer": lambda sample: sample.writer,
        "page": lambda sample: sample.page,
        "text": lambda sample: comparable(sample.text),
    }
    split_by = dataset.card.split_by
    for kind, value_of in kinds.items():
        severity: Severity = "error" if kind == split_by else _unpromised(kind, split_by)
        promise = f", although the dataset is split by {kind}" if kind == split_by else ""
        message = f"a {kind} stands in more than one split{promise}"
        crossed = crossing((value_of(item.sample), item.sample.split) for item in checked)
        first = {value_of(item.sample): item for item in reversed(checked)}
        for value, splits in crossed.items():
            findings.add(f"{kind}-crosses", severity, message, first[value], f"{value!r} in {' and '.join(splits)}")
    if split_by == "writer":
        for item in checked:
            if item.sample.writer is None:
                message = "the writer is not known, so the split by writer promises nothing for it"
                findings.add("no-writer", "warning", message, item)


def _unpromised(kind: str, split_by: str) -> Severity:
    """A page in two splits leaks even where pages were not the unit, unless the user chose texts."""
    return "warning" if kind == "page" and split_by in {"writer", "given"} else "note"


def check_duplicates(checked: list[Checked], findings: Findings) -> None:
    """Image files that are the same byte by byte."""
    seen: dict[str, Checked] = {}
    for item in checked:
        if item.digest is None:
            continue
        first = seen.setdefault(item.digest, item)
        if first is item:
            continue
        detail = f"same as {first.where}"
        if first.sample.split == item.sample.split:
            findings.add("duplicate-image", "warning", "an image stands twice in a split", item, detail)
        else:
            findings.add("image-crosses", "error", "the same image stands in more than one split", item, detail)


def check_hashes(dataset: Dataset, checked: list[Checked], findings: Findings) -> None:
    """Whether the files are those that the card was written for."""
    message = "the files have changed since the card was written"
    for split in Split:
        card = dataset.card.splits.get(split)
        where = f"{split}/metadata.jsonl"
        digests = [item.digest for item in checked if item.sample.split == split]
        if card is None:
            if digests:
                findings.add_place("hash-differs", "warning", "the card does not tell of this split", where)
            continue
        known = [digest for digest in digests if digest]
        metadata = dataset.metadata(split).read_bytes()
        if len(known) < len(digests) or split_hash(metadata, known) != card.sha256:
            findings.add_place("hash-differs", "warning", message, where)
