"""Checks across splits: leaks and duplicates, what a test asks for that training lacks, and changed files."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from dsocr.data.check.findings import Findings, Severity
from dsocr.data.check.image_checks import similar_with_any_text, similar_with_same_text
from dsocr.data.check.sample_stats import CheckedSample
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import METADATA_FILE, Dataset, split_hash
from dsocr.data.splits import find_crossing, page_key
from dsocr.document import Sample, Split
from dsocr.text import comparable, letters_of

_MIN_TEST_SAMPLES = 50
_MIN_TEST_WRITERS = 3
_RARE_IN_TRAIN = 5
"""With this many examples in training a model has seen some of a character's shapes."""
_FREQUENT_IN_TEST = 5
_MAX_RARE = 5


def check_crossing(dataset: Dataset, samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find writers, documents, pages and texts in several splits: an error if the card promises otherwise."""
    keys: dict[str, Callable[[Sample], str | None]] = {
        "writer": lambda sample: sample.writer,
        "document": lambda sample: sample.document,
        "page": lambda sample: page_key(sample.document, sample.page),
        "text": lambda sample: comparable(sample.text),
    }
    split_by = dataset.card.split_by
    promised = split_by.split("+")
    for kind, key in keys.items():
        severity: Severity = "note"
        message = f"A {kind} is in several splits"
        if kind in promised:
            severity, message = "error", f"{message}, although the dataset is split by {kind}"
        elif kind in {"page", "document"} and split_by in {"writer", "given"}:
            # It leaks even if pages were not the unit, unless the user chose to split by text.
            severity = "warning"
        first = {key(item.sample): item for item in reversed(samples)}
        for value, splits in find_crossing((key(item.sample), item.sample.split) for item in samples).items():
            findings.add(f"{kind}-crosses", severity, message, first[value], f"{value!r} in {' and '.join(splits)}")
    if "writer" in promised:
        for item in samples:
            if item.sample.writer is None:
                message = "Writer is unknown, so splitting by writer cannot keep the sample apart"
                findings.add("no-writer", "warning", message, item)


def check_duplicates(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find image files that are identical byte by byte."""
    seen: dict[str, CheckedSample] = {}
    for item in samples:
        if item.digest is None:
            continue
        first = seen.setdefault(item.digest, item)
        if first is item:
            continue
        detail = f"same as {first.where}"
        if first.sample.split == item.sample.split:
            findings.add("duplicate-image", "warning", "Image is in a split twice", item, detail, first)
        else:
            findings.add("image-crosses", "error", "Image is in several splits", item, detail, first)
        if comparable(first.text) != comparable(item.text):
            _add_conflict(item, first, findings)


def check_near_duplicates(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find images that are similar and have the same letters as text: one line scanned, cut or saved twice.

    The text is compared because a dHash alone confuses some different lines of one writer. Images that are identical
    to the eye are reported whatever their texts.
    """
    not_blank = [item for item in samples if item.stats and not item.stats.is_blank]
    by_letters: dict[str, list[CheckedSample]] = defaultdict(list)
    for item in not_blank:
        if letters := letters_of(item.text):
            by_letters[letters].append(item)
    for group in by_letters.values():
        for item, others in similar_with_same_text(group):
            if crossed := [other for other in others if other.sample.split != item.sample.split]:
                message, detail = "Nearly the same image is in several splits", f"like {crossed[0].where}"
                findings.add("near-image-crosses", "error", message, item, detail, crossed[0])
            else:
                message, detail = "Nearly the same image is in a split twice", f"like {others[0].where}"
                findings.add("near-duplicate-image", "warning", message, item, detail, others[0])
    for item, others in similar_with_any_text(not_blank):
        if other := next((other for other in others if letters_of(other.text) != letters_of(item.text)), None):
            _add_conflict(item, other, findings)


def _add_conflict(item: CheckedSample, other: CheckedSample, findings: Findings) -> None:
    detail = f"{item.text[:60]!r}, but {other.text[:60]!r} in {other.where}"
    findings.add("texts-disagree", "warning", "Image has two different transcriptions", item, detail, other)


def check_hashes(dataset: Dataset, samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Check that the files are those that the card was written for."""
    for split in Split:
        where = f"{split}/{METADATA_FILE}"
        # By folder, because a fold may have regrouped the samples; the hash follows the order of the file.
        stored = [item for item in samples if item.where.startswith(f"{split}/")]
        stored.sort(key=lambda item: int(item.where.rpartition(":")[2]))
        digests = [item.digest for item in stored if item.digest]
        card = dataset.card.splits.get(split)
        if card is None:
            if stored:
                findings.add_place("hash-differs", "warning", "Split is missing from the card", where)
        elif len(digests) < len(stored) or split_hash(dataset.metadata(split).read_bytes(), digests) != card.sha256:
            message = "Files have changed since the card was written"
            findings.add_place("hash-differs", "warning", message, where)


def check_balance(dataset: Dataset, samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find characters that training lacks, and test splits too small to tell models apart."""
    by_split: dict[Split, list[CheckedSample]] = {split: [] for split in Split}
    for item in samples:
        by_split[item.sample.split].append(item)
    test = by_split[Split.TEST]
    _check_coverage(by_split[Split.TRAIN], [*by_split[Split.VALIDATION], *test], findings)
    where = f"{Split.TEST}/{METADATA_FILE}"
    if 0 < len(test) < _MIN_TEST_SAMPLES:
        characters = max(1, sum(len(item.text) for item in test))
        # Errors of one line are correlated, so the real uncertainty is larger than this binomial one.
        points = 100 * 1.96 * math.sqrt(0.1 * 0.9 / characters)
        message = (
            f"Test split has {len(test)} samples with {characters} characters: chance alone changes a CER of 10 % "
            f"by at least {points:.1f} points"
        )
        findings.add_place("few-samples", "note", message, where)
    writers = len({item.sample.writer for item in test} - {None})
    if dataset.card.split_by == "writer" and 0 < writers < _MIN_TEST_WRITERS:
        number = "one writer" if writers == 1 else f"{writers} writers"
        message = f"Test split is by {number}: its score says little about others"
        findings.add_place("few-writers", "note", message, where)


def _check_coverage(train: Sequence[CheckedSample], evaluated: Sequence[CheckedSample], findings: Findings) -> None:
    """Find characters of validation and test that training never or hardly ever contains."""
    if not train or not evaluated:
        return
    trained = Counter(character for item in train for character in item.text)
    counts = Counter(character for item in evaluated for character in item.text)
    first = {character: item for item in reversed(evaluated) for character in item.text}
    for character, count in counts.items():
        # A character that is in the whole dataset only once is reported as `seen-once`.
        if not trained[character] and count > 1 and not character.isspace() and not find_invisible(character):
            message = "Validation or test contains a character that training never does"
            findings.add("unseen-in-train", "warning", message, first[character], f"{printable(character)}, {count}x")
    rare = [
        character
        for character, count in counts.items()
        if 0 < trained[character] < _RARE_IN_TRAIN and count >= _FREQUENT_IN_TEST
    ]
    for character in sorted(rare, key=lambda character: trained[character] / counts[character])[:_MAX_RARE]:
        message = "Training hardly ever contains a character of validation or test"
        detail = f"{printable(character)}, {counts[character]}x there, {trained[character]}x in training"
        findings.add("rare-characters", "note", message, first[character], detail)
