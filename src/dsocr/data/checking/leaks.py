"""Checks across samples: what stands twice or in two splits, and whether the files are still those of the card."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from dsocr.data.card import split_hash
from dsocr.data.checking.findings import Checked, Findings, Severity
from dsocr.data.checking.images import is_blank_look
from dsocr.data.checking.similar import alike_anywhere, with_text_alike
from dsocr.data.dataset import Dataset
from dsocr.data.grouping import page_key
from dsocr.data.splits import crossing
from dsocr.samples import Sample, Split
from dsocr.text import comparable, letters_of


def check_crossing(dataset: Dataset, checked: Sequence[Checked], findings: Findings) -> None:
    """Writers, documents, pages and texts in more than one split: an error where the card promises otherwise."""
    kinds: dict[str, Callable[[Sample], str | None]] = {
        "writer": lambda sample: sample.writer,
        "document": lambda sample: sample.document,
        "page": lambda sample: page_key(sample.document, sample.page),
        "text": lambda sample: comparable(sample.text),
    }
    split_by = dataset.card.split_by
    promised = split_by.split("+")
    for kind, value_of in kinds.items():
        severity: Severity = "error" if kind in promised else _unpromised(kind, split_by)
        promise = f", although the dataset is split by {kind}" if kind in promised else ""
        message = f"a {kind} stands in more than one split{promise}"
        crossed = crossing((value_of(item.sample), item.sample.split) for item in checked)
        first = {value_of(item.sample): item for item in reversed(checked)}
        for value, splits in crossed.items():
            findings.add(f"{kind}-crosses", severity, message, first[value], f"{value!r} in {' and '.join(splits)}")
    if "writer" in promised:
        for item in checked:
            if item.sample.writer is None:
                message = "the writer is not known, so the split by writer promises nothing for it"
                findings.add("no-writer", "warning", message, item)


def _unpromised(kind: str, split_by: str) -> Severity:
    """A page in two splits leaks even where pages were not the unit, unless the user chose texts."""
    return "warning" if kind in {"page", "document"} and split_by in {"writer", "given"} else "note"


def check_duplicates(checked: Sequence[Checked], findings: Findings) -> None:
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
            findings.add("duplicate-image", "warning", "an image stands twice in a split", item, detail, first)
        else:
            findings.add("image-crosses", "error", "the same image stands in more than one split", item, detail, first)
        if comparable(first.sample.text) != comparable(item.sample.text):
            _tell_conflict(item, first, findings)


def check_near_duplicates(checked: Sequence[Checked], findings: Findings) -> None:
    """Images that are alike and have the same letters as text: one line captured, cut or saved twice.

    The text is asked because a dHash alone takes some different lines of one hand for one. Images that are alike to
    the last stroke are told whatever their texts.
    """
    alike: dict[str, list[Checked]] = defaultdict(list)
    seen = [item for item in checked if item.look is not None and not is_blank_look(item.look)]
    for item in seen:
        if letters := letters_of(item.sample.text):
            alike[letters].append(item)
    for group in alike.values():
        if len(group) > 1:
            for item, others in with_text_alike(group):
                _tell_alike(item, others, findings)
    for item, others in alike_anywhere(seen):
        others = [other for other in others if letters_of(other.sample.text) != letters_of(item.sample.text)]
        if others:
            _tell_conflict(item, others[0], findings)


def _tell_alike(item: Checked, others: Sequence[Checked], findings: Findings) -> None:
    crossed = [other for other in others if other.sample.split != item.sample.split]
    if crossed:
        message = "nearly the same image stands in more than one split"
        findings.add("near-image-crosses", "error", message, item, f"like {crossed[0].where}", crossed[0])
    else:
        message = "nearly the same image stands twice in a split"
        findings.add("near-duplicate-image", "warning", message, item, f"like {others[0].where}", others[0])


def _tell_conflict(item: Checked, other: Checked, findings: Findings) -> None:
    message = "one image has two different transcriptions"
    detail = f"{item.sample.text[:60]!r}, but {other.sample.text[:60]!r} in {other.where}"
    findings.add("texts-disagree", "warning", message, item, detail, other)


def check_hashes(dataset: Dataset, checked: Sequence[Checked], findings: Findings) -> None:
    """Whether the files are those that the card was written for."""
    message = "the files have changed since the card was written"
    for split in Split:
        card = dataset.card.splits.get(split)
        where = f"{split}/metadata.jsonl"
        # By where they lie: a fold may have regrouped the samples, and the hash is over the file's order.
        lying = sorted((_line(item), item.digest) for item in checked if item.where.startswith(f"{split}/"))
        digests = [digest for _, digest in lying]
        if card is None:
            if digests:
                findings.add_place("hash-differs", "warning", "the card does not tell of this split", where)
            continue
        known = [digest for digest in digests if digest]
        metadata = dataset.metadata(split).read_bytes()
        if len(known) < len(digests) or split_hash(metadata, known) != card.sha256:
            findings.add_place("hash-differs", "warning", message, where)


def _line(item: Checked) -> int:
    return int(item.where.rpartition(":")[2])
