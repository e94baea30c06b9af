"""Check samples against each other: duplicates, leaks between splits, test splits that say little, changed files."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dsocr.data.check.findings import CheckedSample, Problem, Severity
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import METADATA_FILE, Dataset, split_hash
from dsocr.data.splits import KEYS, find_crossing
from dsocr.document import Split
from dsocr.html import counted
from dsocr.text import comparable, letters_of

_MIN_TEST_SAMPLES = 50
_MIN_TEST_WRITERS = 3
_RARE_IN_TRAIN = 5
"""With this many examples in training a model has seen some of a character's shapes."""
_FREQUENT_IN_TEST = 5
_MAX_RARE = 5
_MAX_BITS = 12
"""Of 64. Between two lines of the shipped sample the median is 31; one pair in a hundred is below 20."""
_MIN_CORRELATION = 0.8
"""Between thumbnails; at most 0.69 for two different lines of the shipped sample (145,530 pairs)."""
_MIN_LETTERS = 10
"""Short texts, such as printed heads of letters, look alike on different pages."""
_MAX_BITS_ANY_TEXT = 3
_MIN_CORRELATION_ANY_TEXT = 0.97
"""Similarity above which two images count as the same scan, even if their texts differ."""
MAX_EARLIER, MAX_NEAR = 50_000, 128
"""The latest images whose hashes an image's is compared with, and those of near hashes that are then looked at."""


def check_crossing(dataset: Dataset, samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find writers, documents, pages and texts in several splits: an error if the card promises otherwise."""
    split_by = dataset.card.split_by
    promised = split_by.split("+")
    for kind, key in KEYS.items():
        severity: Severity = "note"
        message = f"A {kind} is in several splits"
        if kind in promised:
            severity, message = "error", f"{message}, although the dataset is split by {kind}"
        elif kind in {"page", "document"} and split_by in {"writer", "given"}:
            # It leaks even if pages were not the unit, unless the user chose to split by text.
            severity = "warning"
        first = {key(item.sample): item for item in reversed(samples)}
        for value, splits in find_crossing((key(item.sample), item.sample.split) for item in samples).items():
            detail = f"{value!r} in {' and '.join(splits)}"
            yield Problem(f"{kind}-crosses", severity, message, first[value], detail)
    message = "Writer is unknown, so splitting by writer cannot keep the sample apart"
    for item in samples if "writer" in promised else ():
        if item.sample.writer is None:
            yield Problem("no-writer", "warning", message, item)


def check_duplicates(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find image files that are identical byte by byte."""
    seen: dict[str, CheckedSample] = {}
    for item in samples:
        if item.digest is None or (first := seen.setdefault(item.digest, item)) is item:
            continue
        yield _repeated("", "Image is", item, first, f"same as {first.place}")
        if comparable(first.text) != comparable(item.text):
            yield _conflict(item, first)


def _repeated(near: str, subject: str, item: CheckedSample, other: CheckedSample, detail: str) -> Problem:
    """An image that is there again: a leak if it is in another split."""
    if other.sample.split == item.sample.split:
        return Problem(f"{near}duplicate-image", "warning", f"{subject} in a split twice", item, detail, other)
    return Problem(f"{near}image-crosses", "error", f"{subject} in several splits", item, detail, other)


def check_near_duplicates(samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find images that are similar and have the same letters as text: one line scanned, cut or saved twice.

    The text is compared because a dHash alone confuses some different lines of one writer. Images that are identical
    to the eye are reported even if their texts differ.
    """
    not_blank = [item for item in samples if item.stats and not item.stats.is_blank]
    for item, others in similar_with_same_text(not_blank):
        other = next((other for other in others if other.sample.split != item.sample.split), others[0])
        yield _repeated("near-", "Nearly the same image is", item, other, f"like {other.place}")
    for item, others in similar_with_any_text(not_blank):
        for other in [other for other in others if letters_of(other.text) != letters_of(item.text)][:1]:
            yield _conflict(item, other)


def _conflict(item: CheckedSample, other: CheckedSample) -> Problem:
    detail = f"{item.text[:60]!r}, but {other.text[:60]!r} in {other.place}"
    return Problem("texts-disagree", "warning", "Image has two different transcriptions", item, detail, other)


Similar = Iterator[tuple[CheckedSample, list[CheckedSample]]]


def similar_with_same_text(samples: Sequence[CheckedSample]) -> Similar:
    """Yield each image with the earlier ones of the same letters that are nearly the same; all must be measured."""
    by_letters: dict[str, list[CheckedSample]] = defaultdict(list)
    for item in samples:
        by_letters[letters_of(item.text)].append(item)
    for letters, group in by_letters.items():
        if len(letters) >= _MIN_LETTERS:
            yield from _similar(group, _MAX_BITS, _MIN_CORRELATION)


def similar_with_any_text(samples: Sequence[CheckedSample]) -> Similar:
    """Yield each image with the earlier ones that look identical, whatever their texts."""
    return _similar(samples, _MAX_BITS_ANY_TEXT, _MIN_CORRELATION_ANY_TEXT)


def _similar(samples: Sequence[CheckedSample], most_bits: int, min_correlation: float) -> Similar:
    stats = [item.stats for item in samples if item.stats]
    hashes = np.array([measured.dhash for measured in stats], dtype=np.uint64)
    for place, item in enumerate(samples):
        start = max(0, place - MAX_EARLIER)
        near = start + np.flatnonzero(np.bitwise_count(hashes[start:place] ^ hashes[place]) <= most_bits)[-MAX_NEAR:]
        others = [other for other in near.tolist() if samples[other].digest != item.digest]
        thumbnail = _standardized(stats[place].thumbnail)
        alike = [other for other in others if _standardized(stats[other].thumbnail) @ thumbnail >= min_correlation]
        if alike:
            yield item, [samples[other] for other in alike]


def _standardized(thumbnail: bytes) -> npt.NDArray[np.float32]:
    """The thumbnail with mean 0 and norm 1, so that the dot product of two is their correlation."""
    values = np.frombuffer(thumbnail, dtype=np.uint8).astype(np.float32)
    values -= values.mean()
    norm = float(np.linalg.norm(values))
    return values / norm if norm else values


def check_hashes(dataset: Dataset, samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Check that the files have not changed since the card was written."""
    for split in Split:
        where = f"{split}/{METADATA_FILE}"
        # By folder, because a fold may have regrouped the samples; the hash follows the order of the file.
        stored = [item for item in samples if item.where.startswith(f"{split}/")]
        stored.sort(key=lambda item: int(item.where.rpartition(":")[2]))
        digests = [item.digest for item in stored if item.digest]
        card = dataset.card.splits.get(split)
        if card is None:
            if stored:
                yield Problem("hash-differs", "warning", "Split is missing from the card", where)
        elif lost := dataset.lost(split, len(stored)):
            message = f"{lost} of {card.samples} samples are missing since the card was written"
            yield Problem("metadata-short", "error", message, where)
        elif len(digests) < len(stored) or split_hash(dataset.metadata(split).read_bytes(), digests) != card.sha256:
            yield Problem("hash-differs", "warning", "Files have changed since the card was written", where)


def check_balance(dataset: Dataset, samples: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find characters that training lacks, and test splits too small to tell models apart."""
    by_split: dict[Split, list[CheckedSample]] = {split: [] for split in Split}
    for item in samples:
        by_split[item.sample.split].append(item)
    train, validation, test = by_split.values()
    if train:
        yield from _check_coverage(train, [*validation, *test])
    where = f"{Split.TEST}/{METADATA_FILE}"
    if 0 < len(test) < _MIN_TEST_SAMPLES:
        characters = max(1, sum(len(item.text) for item in test))
        # Errors of one line are correlated, so the real uncertainty is larger than this binomial one.
        points = 100 * 1.96 * math.sqrt(0.1 * 0.9 / characters)
        message = (
            f"Test split has {len(test)} samples with {characters} characters: chance alone changes a CER of 10 % "
            f"by at least {points:.1f} points"
        )
        yield Problem("few-samples", "note", message, where)
    writers = len({item.sample.writer for item in test} - {None})
    if dataset.card.split_by == "writer" and 0 < writers < _MIN_TEST_WRITERS:
        message = f"Test split is by {counted(writers, 'writer')}: its score says little about others"
        yield Problem("few-writers", "note", message, where)


def _check_coverage(train: Sequence[CheckedSample], evaluated: Sequence[CheckedSample]) -> Iterator[Problem]:
    """Find characters of validation and test that training never or hardly ever contains."""
    trained = Counter(character for item in train for character in item.text)
    counts = Counter(character for item in evaluated for character in item.text)
    first = {character: item for item in reversed(evaluated) for character in item.text}
    message = "Validation or test contains a character that training never does"
    for character, count in counts.items():
        # A character that is in the whole dataset only once is reported as `seen-once`.
        if not trained[character] and count > 1 and not character.isspace() and not find_invisible(character):
            yield Problem("unseen-in-train", "warning", message, first[character], f"{printable(character)}, {count}x")
    frequent = (character for character, count in counts.items() if count >= _FREQUENT_IN_TEST)
    rare = [character for character in frequent if 0 < trained[character] < _RARE_IN_TRAIN]
    message = "Training hardly ever contains a character of validation or test"
    for character in sorted(rare, key=lambda character: trained[character] / counts[character])[:_MAX_RARE]:
        detail = f"{printable(character)}, {counts[character]}x there, {trained[character]}x in training"
        yield Problem("rare-characters", "note", message, first[character], detail)
