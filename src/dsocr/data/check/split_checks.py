"""Leaks between splits: checks across samples and splits, and the numbers to publish beside a score.

The checks find duplicates, what a test asks for that training lacks, and changed files. The report of what the splits
share counts only what is in the metadata; the checks compare images too.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

import numpy as np
import numpy.typing as npt

from dsocr.data.check.findings import CheckedSample, Findings, ImageStats, Severity
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import METADATA_FILE, Card, Dataset, split_hash
from dsocr.data.splits import SCRIPTS, find_crossing, page_key, script_of
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.text import comparable, letters_of, percentage

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
_MAX_BITS_ANY_TEXT = 3
_MIN_CORRELATION_ANY_TEXT = 0.97
"""What a second scan or another JPEG of an image reaches, even if nothing is known about their texts."""
MAX_SAME_TEXT = 1000
"""An image is compared with at most this many earlier ones of the same text, the latest."""
MAX_PER_BAND = 32
"""An image is compared with at most this many earlier ones of a band, the latest."""
_BANDS = 4
_BAND_BITS = 16


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
        message = "Writer is unknown, so splitting by writer cannot keep the sample apart"
        for item in samples:
            if item.sample.writer is None:
                findings.add("no-writer", "warning", message, item)


def check_duplicates(samples: Sequence[CheckedSample], findings: Findings) -> None:
    """Find image files that are identical byte by byte."""
    seen: dict[str, CheckedSample] = {}
    for item in samples:
        if item.digest is None or (first := seen.setdefault(item.digest, item)) is item:
            continue
        detail = f"same as {first.place}"
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
                message, detail = "Nearly the same image is in several splits", f"like {crossed[0].place}"
                findings.add("near-image-crosses", "error", message, item, detail, crossed[0])
            else:
                message, detail = "Nearly the same image is in a split twice", f"like {others[0].place}"
                findings.add("near-duplicate-image", "warning", message, item, detail, others[0])
    for item, others in similar_with_any_text(not_blank):
        if other := next((other for other in others if letters_of(other.text) != letters_of(item.text)), None):
            _add_conflict(item, other, findings)


def _add_conflict(item: CheckedSample, other: CheckedSample, findings: Findings) -> None:
    detail = f"{item.text[:60]!r}, but {other.text[:60]!r} in {other.place}"
    findings.add("texts-disagree", "warning", "Image has two different transcriptions", item, detail, other)


Similar = Iterator[tuple[CheckedSample, list[CheckedSample]]]


def similar_with_same_text(group: Sequence[CheckedSample]) -> Similar:
    """Yield each image of one text with the earlier ones that are nearly the same; all must be measured."""
    hashes = np.array([_stats(item).dhash for item in group], dtype=np.uint64)
    for place in range(1, len(group)):
        start = max(0, place - MAX_SAME_TEXT)
        near = np.flatnonzero(np.bitwise_count(hashes[start:place] ^ hashes[place]) <= _MAX_BITS).tolist()
        yield from _similar(group[place], [group[start + index] for index in near], _MIN_CORRELATION)


def similar_with_any_text(samples: Sequence[CheckedSample]) -> Similar:
    """Yield each image with earlier ones that look identical, whatever their texts; all must be measured.

    Only images that share a band of 16 bits are compared, so that the work does not grow with the square of the images.
    """
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, item in enumerate(samples):
        dhash = _stats(item).dhash
        earlier: set[int] = set()
        for band in range(_BANDS):
            bucket = buckets[band, dhash >> (_BAND_BITS * band) & (1 << _BAND_BITS) - 1]
            earlier.update(bucket[-MAX_PER_BAND:])
            bucket.append(place)
        others = [samples[index] for index in sorted(earlier)]
        near = [other for other in others if (dhash ^ _stats(other).dhash).bit_count() <= _MAX_BITS_ANY_TEXT]
        yield from _similar(item, near, _MIN_CORRELATION_ANY_TEXT)


def _similar(item: CheckedSample, near: Sequence[CheckedSample], min_correlation: float) -> Similar:
    others = [other for other in near if other.digest != item.digest]
    if not others:
        return
    thumbnail = _standardized(_stats(item).thumbnail)
    similar = [other for other in others if _standardized(_stats(other).thumbnail) @ thumbnail >= min_correlation]
    if similar:
        yield item, similar


def _stats(item: CheckedSample) -> ImageStats:
    assert item.stats
    return item.stats


def _standardized(thumbnail: bytes) -> npt.NDArray[np.float32]:
    """The thumbnail with mean 0 and norm 1, so that the dot product of two is their correlation."""
    values = np.frombuffer(thumbnail, dtype=np.uint8).astype(np.float32)
    values -= values.mean()
    norm = float(np.linalg.norm(values))
    return values / norm if norm else values


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
                findings.add("hash-differs", "warning", "Split is missing from the card", where)
        elif lost := dataset.lost(split, len(stored)):
            message = f"{lost} of {card.samples} samples are missing since the card was written"
            findings.add("metadata-short", "error", message, where)
        elif len(digests) < len(stored) or split_hash(dataset.metadata(split).read_bytes(), digests) != card.sha256:
            findings.add("hash-differs", "warning", "Files have changed since the card was written", where)


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
        findings.add("few-samples", "note", message, where)
    writers = len({item.sample.writer for item in test} - {None})
    if dataset.card.split_by == "writer" and 0 < writers < _MIN_TEST_WRITERS:
        number = "one writer" if writers == 1 else f"{writers} writers"
        findings.add("few-writers", "note", f"Test split is by {number}: its score says little about others", where)


def _check_coverage(train: Sequence[CheckedSample], evaluated: Sequence[CheckedSample], findings: Findings) -> None:
    """Find characters of validation and test that training never or hardly ever contains."""
    if not train or not evaluated:
        return
    trained = Counter(character for item in train for character in item.text)
    counts = Counter(character for item in evaluated for character in item.text)
    first = {character: item for item in reversed(evaluated) for character in item.text}
    message = "Validation or test contains a character that training never does"
    for character, count in counts.items():
        # A character that is in the whole dataset only once is reported as `seen-once`.
        if not trained[character] and count > 1 and not character.isspace() and not find_invisible(character):
            findings.add("unseen-in-train", "warning", message, first[character], f"{printable(character)}, {count}x")
    rare = [
        character
        for character, count in counts.items()
        if 0 < trained[character] < _RARE_IN_TRAIN and count >= _FREQUENT_IN_TEST
    ]
    message = "Training hardly ever contains a character of validation or test"
    for character in sorted(rare, key=lambda character: trained[character] / counts[character])[:_MAX_RARE]:
        detail = f"{printable(character)}, {counts[character]}x there, {trained[character]}x in training"
        findings.add("rare-characters", "note", message, first[character], detail)


MAX_EXAMPLES = 3
NGRAM = 3
"""Words in a sequence: two in a row are often chance, four are rare in short lines."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SplitStatistics:
    """Counts of one split. `lengths` are the minimum, quartiles and maximum of characters per text."""

    samples: int
    share: float
    asked: float | None
    writers: int
    documents: int
    pages: int
    texts: int
    characters: int
    lengths: tuple[int, int, int, int, int]
    scripts: dict[str, int]
    sha256: str | None


@dataclass(frozen=True, slots=True)
class SharedValues:
    """Number of values that occur in more than one split, and the first of them."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainOverlap:
    """How much of a split also occurs in train.

    `same_texts` samples have a text from train, `near_texts` one with the same letters and digits, `known_writers` a
    writer from train. `unknown_words` of all `words`, `unknown_forms` of the different `forms`, and `known_ngrams` of
    `ngrams` sequences of three words are not, or are, in train; case is ignored.
    """

    samples: int
    same_texts: int
    near_texts: int
    known_writers: int
    words: int
    unknown_words: int
    forms: int
    unknown_forms: int
    ngrams: int
    known_ngrams: int


@dataclass(frozen=True, slots=True)
class LeakReport:
    """The splits of a dataset, what they share, and how much of validation and test occurs in train."""

    dataset: str
    split_by: str
    seed: int | None
    stratified: bool
    folds: int | None
    fold: int | None
    splits: dict[Split, SplitStatistics]
    crossing: dict[str, SharedValues]
    overlap: dict[Split, TrainOverlap]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self)

    def knows(self, kind: str) -> bool:
        """True if "writers", "documents" or "pages" are known in any split."""
        return any(getattr(statistics, kind) for statistics in self.splits.values())


_VALUES: dict[str, Callable[[Sample], str | None]] = {
    "writers": lambda sample: sample.writer,
    "documents": lambda sample: sample.document,
    "pages": lambda sample: page_key(sample.document, sample.page),
    "texts": lambda sample: comparable(sample.text),
    "texts except for case and punctuation": lambda sample: _letters(sample.text),
}


def report_leaks(dataset: Dataset) -> LeakReport:
    """Compare the splits of a dataset, those of its fold if it was opened with one."""
    stored = {split: [sample for _, sample in dataset.numbered(split, may_be_short=True)] for split in Split}
    splits = {split: samples for split, samples in stored.items() if samples}
    if not splits:
        raise DataError("the dataset has no samples", code="no-samples", where=dataset.folder)
    card, total = dataset.card, sum(map(len, splits.values()))
    train = splits.get(Split.TRAIN, [])
    return LeakReport(
        dataset=dataset.folder.resolve().name,
        split_by=card.split_by,
        seed=card.seed,
        stratified=card.stratified,
        folds=card.folds,
        fold=dataset.fold,
        splits={split: _statistics(split, samples, total, card, dataset.fold) for split, samples in splits.items()},
        crossing={kind: _shared(value_of, splits) for kind, value_of in _VALUES.items()},
        overlap={split: _overlap(samples, train) for split, samples in splits.items() if split is not Split.TRAIN},
    )


def _statistics(split: Split, samples: Sequence[Sample], total: int, card: Card, fold: int | None) -> SplitStatistics:
    lengths = [len(comparable(sample.text)) for sample in samples]
    quarters = quantiles(lengths, n=4, method="inclusive") if len(lengths) > 1 else lengths * 3
    scripts = Counter(script_of(sample.text) for sample in samples)
    has_hash = fold is None and split in card.splits  # The splits of a fold have no metadata file of their own.
    counts = {name: len({_VALUES[name](sample) for sample in samples} - {None}) for name in list(_VALUES)[:4]}
    return SplitStatistics(
        samples=len(samples),
        share=len(samples) / total,
        asked=card.fractions.get(split) if card.fractions else None,
        **counts,
        characters=sum(lengths),
        lengths=(min(lengths), *map(round, quarters), max(lengths)),  # type: ignore[arg-type]
        scripts={script: scripts[script] for script in SCRIPTS if scripts[script]},
        sha256=card.splits[split].sha256 if has_hash else None,
    )


def _shared(value_of: Callable[[Sample], str | None], splits: dict[Split, list[Sample]]) -> SharedValues:
    crossing = find_crossing((value_of(sample), split) for split, samples in splits.items() for sample in samples)
    return SharedValues(len(crossing), tuple(sorted(crossing)[:MAX_EXAMPLES]))


def _letters(text: str) -> str:
    """The letters and digits, or the text itself if it has neither."""
    return letters_of(text) or comparable(text)


def _overlap(samples: Sequence[Sample], train: Sequence[Sample]) -> TrainOverlap:
    texts = {comparable(sample.text) for sample in train}
    letters = {_letters(sample.text) for sample in train}
    writers = {sample.writer for sample in train} - {None}
    train_words = [_words(sample.text) for sample in train]
    known_words = {word for words in train_words for word in words}
    known_ngrams = {ngram for words in train_words for ngram in _ngrams(words)}
    split_words = [_words(sample.text) for sample in samples]
    running = [word for words in split_words for word in words]
    ngrams = [ngram for words in split_words for ngram in _ngrams(words)]
    return TrainOverlap(
        samples=len(samples),
        same_texts=sum(comparable(sample.text) in texts for sample in samples),
        near_texts=sum(_letters(sample.text) in letters for sample in samples),
        known_writers=sum(sample.writer in writers for sample in samples),
        words=len(running),
        unknown_words=sum(word not in known_words for word in running),
        forms=len(set(running)),
        unknown_forms=len(set(running) - known_words),
        ngrams=len(ngrams),
        known_ngrams=sum(ngram in known_ngrams for ngram in ngrams),
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(comparable(text).casefold())


def _ngrams(words: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(words[place : place + NGRAM]) for place in range(len(words) - NGRAM + 1)]


_PURPOSES = {Split.TRAIN: "train", Split.VALIDATION: "validate", Split.TEST: "test"}


def summarise(report: LeakReport) -> str:
    """A paragraph to quote: how the dataset was split, what splits share, and what of the test occurs in train."""
    total = sum(statistics.samples for statistics in report.splits.values())
    sizes = ", ".join(_size(split, statistics) for split, statistics in report.splits.items())
    sentences = [f"The {total:,} samples of {report.dataset} {_method(report)}: {sizes}.", _shared_sentence(report)]
    tested = [split for split in (Split.TEST, Split.VALIDATION) if split in report.overlap]
    if tested and Split.TRAIN in report.splits:
        sentences.append(_overlap_sentence(tested[0], report))
    return " ".join(sentences)


def _method(report: LeakReport) -> str:
    if report.split_by == "given":
        return "have the splits of their source"
    drawn = ", stratified by length and script" if report.stratified else ""
    folds = f" into {report.folds} folds, with fold {report.fold or 1} as test" if report.folds else ""
    return f"were split by {report.split_by.replace('+', ' and ')}{folds} (seed {report.seed}{drawn})"


def _size(split: Split, statistics: SplitStatistics) -> str:
    asked = "" if statistics.asked is None else f", {percentage(statistics.asked, 1)} asked"
    kind = "writer" if statistics.writers else "page"
    count = statistics.writers or statistics.pages
    units = f", {count:,} {kind}{'' if count == 1 else 's'}" if count else ""
    return f"{statistics.samples:,} ({percentage(statistics.share, 1)}{asked}{units}) {_PURPOSES[split]}"


def _shared_sentence(report: LeakReport) -> str:
    kinds = [kind for kind in ("writers", "documents", "pages") if report.knows(kind)] + ["texts"]
    counts = [report.crossing[kind].count for kind in kinds]
    parts = [
        f"{f'{count:,}' if count else 'no'} {kind if count != 1 else kind[:-1]}"
        for kind, count in zip(kinds, counts, strict=True)
    ]
    listed = " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    verb = "is" if counts == [1] else "are"
    missing = [kind for kind in ("writers", "pages") if kind not in kinds]
    unknown = f"; {' and '.join(missing)} are unknown, so any may be in several" if missing else ""
    return f"{listed[0].upper()}{listed[1:]} {verb} in more than one split{unknown}."


def _overlap_sentence(split: Split, report: LeakReport) -> str:
    overlap = report.overlap[split]
    writers = (
        f", {share(overlap.known_writers, overlap.samples)} a writer from train" if report.knows("writers") else ""
    )
    return (
        f"Of the {overlap.samples:,} {split} samples {share(overlap.same_texts, overlap.samples)} have a text that is "
        f"in train too, {share(overlap.near_texts, overlap.samples)} except for case and punctuation{writers}; "
        f"of their words {share(overlap.unknown_words, overlap.words)} are not in train, of their different words "
        f"{share(overlap.unknown_forms, overlap.forms)}; of their sequences of three words "
        f"{share(overlap.known_ngrams, overlap.ngrams)} are in train."
    )


def share(part: int, whole: int) -> str:
    """`12 (9.1%)`, or "none" of zero."""
    return f"{part:,} ({percentage(part / whole, 1)})" if whole else "none"


Rows = list[list[str]]


def leak_tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: splits, texts, what splits share, what occurs in train."""
    splits = list(report.splits.items())
    unknown = {kind for kind in ("writers", "documents", "pages") if not report.knows(kind)}
    kinds = ("writers", "documents", "pages", "texts", "characters")
    counts: Rows = [
        [str(split), f"{of.samples:,}", percentage(of.share, 1), "" if of.asked is None else percentage(of.asked, 1)]
        + ["unknown" if kind in unknown else f"{getattr(of, kind):,}" for kind in kinds]
        for split, of in splits
    ]
    count_header = ["split", "samples", "share", "asked", *kinds]
    scripts = list(dict.fromkeys(name for _, of in splits for name in of.scripts))
    texts: Rows = [
        [
            str(split),
            *map(str, of.lengths),
            *(percentage(of.scripts.get(script, 0) / of.samples, 1) for script in scripts),
        ]
        for split, of in splits
    ]
    lengths = ["shortest", "quarter", "median", "three quarters", "longest"]
    shared: Rows = [
        [kind, "unknown" if kind in unknown else f"{values.count:,}", ", ".join(map(_shorten, values.examples))]
        for kind, values in report.crossing.items()
    ]
    tables = [
        ("splits", count_header, counts),
        ("lengths in characters, and scripts", ["split", *lengths, *scripts], texts),
        ("in more than one split", ["kind", "count", "examples"], shared),
    ]
    if report.overlap and Split.TRAIN in report.splits:
        tables.append(("also in train", ["", *map(str, report.overlap)], _overlap_rows(report)))
    return tables


def _overlap_rows(report: LeakReport) -> Rows:
    overlaps, knows_writers = report.overlap.values(), report.knows("writers")
    rows = {
        "samples with a text from train": [share(of.same_texts, of.samples) for of in overlaps],
        "the same except for case and punctuation": [share(of.near_texts, of.samples) for of in overlaps],
        "samples by a writer from train": [
            share(of.known_writers, of.samples) if knows_writers else "unknown" for of in overlaps
        ],
        "words not in train": [share(of.unknown_words, of.words) for of in overlaps],
        "different words not in train": [share(of.unknown_forms, of.forms) for of in overlaps],
        "sequences of three words that are in train": [share(of.known_ngrams, of.ngrams) for of in overlaps],
    }
    return [[title, *cells] for title, cells in rows.items()]


def _shorten(text: str, limit: int = 40) -> str:
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def to_markdown(report: LeakReport) -> str:
    """The summary and the tables as Markdown, with the hashes of what was counted."""
    parts = [f"# The splits of {report.dataset}", summarise(report)]
    for title, header, rows in leak_tables(report):
        cells = [header, ["---"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{table}")
    hashes = [f"- {split}: `{statistics.sha256}`" for split, statistics in report.splits.items() if statistics.sha256]
    if hashes:
        parts.append("## SHA-256 of metadata and images\n\n" + "\n".join(hashes))
    return "\n\n".join(parts) + "\n"
