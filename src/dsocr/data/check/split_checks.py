"""Checks across samples: what stands twice or in two splits, and whether the files are still those of the card."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from dsocr.data.check.findings import Checked, Findings, Severity
from dsocr.data.check.image_checks import alike_anywhere, is_blank_look, with_text_alike
from dsocr.data.check.text_checks import invisible, shown
from dsocr.data.dataset import METADATA_FILE, Dataset, split_hash
from dsocr.data.splits import crossing, page_key
from dsocr.document import Sample, Split
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


LEAST_SAMPLES = 50
LEAST_WRITERS = 3
HARDLY = 5
"""Times that a character stands in training, from which a model has seen some of its shapes."""
MATTERS = 5
RAREST = 5


def check_balance(dataset: Dataset, checked: Sequence[Checked], findings: Findings) -> None:
    """Every check of this module."""
    splits: dict[Split, list[Checked]] = defaultdict(list)
    for item in checked:
        splits[item.sample.split].append(item)
    _check_characters(splits, findings)
    _check_sizes(splits, findings)
    if dataset.card.split_by == "writer" and splits[Split.TEST]:
        _check_writers(splits[Split.TEST], findings)


def _check_characters(splits: Mapping[Split, Sequence[Checked]], findings: Findings) -> None:
    """Characters that validation or test ask for and training never shows, or hardly ever."""
    learnt = _counted(splits.get(Split.TRAIN, ()))
    asked = [item for split in (Split.VALIDATION, Split.TEST) for item in splits.get(split, ())]
    if not learnt or not asked:
        return
    counts = _counted(asked)
    first = {character: item for item in reversed(asked) for character in item.sample.text}
    for character, count in counts.items():
        # One that stands once in the whole dataset is told as such.
        if not learnt[character] and count > 1 and not character.isspace() and not invisible(character):
            message = "validation or test asks for a character that training never shows"
            detail = f"{shown(character)} stands there {count} times"
            findings.add("unseen-in-train", "warning", message, first[character], detail)
    rare = [character for character, count in counts.items() if 0 < learnt[character] < HARDLY and count >= MATTERS]
    for character in sorted(rare, key=lambda character: learnt[character] / counts[character])[:RAREST]:
        message = "training hardly ever shows a character that validation or test asks for"
        detail = f"{shown(character)} stands there {counts[character]} times, in training {learnt[character]}"
        findings.add("rare-characters", "note", message, first[character], detail)


def _counted(items: Sequence[Checked]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for item in items:
        counts.update(item.sample.text)
    return counts


def _check_sizes(splits: Mapping[Split, Sequence[Checked]], findings: Findings) -> None:
    """A test split too small to tell two models apart."""
    test = splits.get(Split.TEST, ())
    if 0 < len(test) < LEAST_SAMPLES:
        characters = max(1, sum(len(item.sample.text) for item in test))
        # Errors of one line go together, so the real uncertainty is larger than this binomial one.
        points = 100 * 1.96 * math.sqrt(0.1 * 0.9 / characters)
        message = (
            f"the test split has {len(test)} samples with {characters} characters: chance alone moves a CER of 10 % "
            f"by at least {points:.1f} points"
        )
        findings.add_place("few-samples", "note", message, f"{Split.TEST}/{METADATA_FILE}")


def _check_writers(test: Sequence[Checked], findings: Findings) -> None:
    """A test by so few hands that their mean says little about the next one."""
    writers = {item.sample.writer for item in test} - {None}
    if 0 < len(writers) < LEAST_WRITERS:
        hands = "one writer" if len(writers) == 1 else f"{len(writers)} writers"
        message = f"the test split is by {hands}: its score tells of them and little of others"
        findings.add_place("few-writers", "note", message, f"{Split.TEST}/{METADATA_FILE}")
