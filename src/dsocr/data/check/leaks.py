"""Report overlap between the splits of a dataset: the numbers to publish beside a score.

Only the metadata is compared; the checks compare images too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from dsocr.data.dataset import Dataset
from dsocr.data.splits import KEYS, SCRIPTS, find_crossing, script_of
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.text import comparable, letters_of, percentage

_MAX_EXAMPLES = 3
_NGRAM = 3
"""Words in a sequence: two in a row are often chance, four are rare in short lines."""
_LONGEST = 40
"""Characters shown of an example."""


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
    lengths: tuple[int, ...]
    scripts: dict[str, int]
    sha256: str | None


@dataclass(frozen=True, slots=True)
class SharedValues:
    """Number of values that occur in more than one split, and the first of them."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainOverlap:
    """The part of a split that also occurs in train.

    `same_texts` samples have a text from train, `near_texts` one with the same letters and digits, `known_writers` a
    writer from train. `unknown_words` of all `words` and `unknown_forms` of the different `forms` are not in train,
    `known_ngrams` of `ngrams` sequences of three words are; case is ignored.
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
    """The splits of a dataset, the values they share, and the overlap of validation and test with train."""

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


_UNITS: dict[str, Callable[[Sample], str | None]] = {f"{unit}s": key for unit, key in KEYS.items()}


def _letters(sample: Sample) -> str:
    """The letters and digits of a text, or the text itself if it has neither."""
    return letters_of(sample.text) or comparable(sample.text)


def report_leaks(dataset: Dataset) -> LeakReport:
    """Compare the splits of a dataset, those of its fold if it was opened with one."""
    stored = {split: [sample for _, sample in dataset.numbered(split, may_be_short=True)] for split in Split}
    splits = {split: samples for split, samples in stored.items() if samples}
    if not splits:
        raise DataError("the dataset has no samples", code="no-samples", where=dataset.folder)
    card, total = dataset.card, sum(map(len, splits.values()))

    def statistics(split: Split, samples: Sequence[Sample]) -> SplitStatistics:
        lengths = [len(comparable(sample.text)) for sample in samples]
        quarters = quantiles(lengths, n=4, method="inclusive") if len(lengths) > 1 else lengths * 3
        scripts = Counter(script_of(sample.text) for sample in samples)
        has_hash = dataset.fold is None and split in card.splits  # a fold's splits have no metadata of their own
        return SplitStatistics(
            samples=len(samples),
            share=len(samples) / total,
            asked=card.fractions.get(split) if card.fractions else None,
            **{kind: len({key(sample) for sample in samples} - {None}) for kind, key in _UNITS.items()},
            characters=sum(lengths),
            lengths=(min(lengths), *map(round, quarters), max(lengths)),
            scripts={script: scripts[script] for script in SCRIPTS if scripts[script]},
            sha256=card.splits[split].sha256 if has_hash else None,
        )

    def shared(key: Callable[[Sample], str | None]) -> SharedValues:
        crossing = find_crossing((key(sample), split) for split, samples in splits.items() for sample in samples)
        return SharedValues(len(crossing), tuple(sorted(crossing)[:_MAX_EXAMPLES]))

    train = splits.get(Split.TRAIN, [])
    keys = {**_UNITS, "texts except for case and punctuation": _letters}
    return LeakReport(
        dataset=dataset.folder.resolve().name,
        split_by=card.split_by,
        seed=card.seed,
        stratified=card.stratified,
        folds=card.folds,
        fold=dataset.fold,
        splits={split: statistics(split, samples) for split, samples in splits.items()},
        crossing={kind: shared(key) for kind, key in keys.items()},
        overlap={split: _overlap(samples, train) for split, samples in splits.items() if split is not Split.TRAIN},
    )


def _overlap(samples: Sequence[Sample], train: Sequence[Sample]) -> TrainOverlap:
    texts = {comparable(sample.text) for sample in train}
    letters = set(map(_letters, train))
    writers = {sample.writer for sample in train} - {None}
    known_words, known_ngrams = set(_sequences(train, 1)), set(_sequences(train, _NGRAM))
    words, ngrams = _sequences(samples, 1), _sequences(samples, _NGRAM)
    return TrainOverlap(
        samples=len(samples),
        same_texts=sum(comparable(sample.text) in texts for sample in samples),
        near_texts=sum(_letters(sample) in letters for sample in samples),
        known_writers=sum(sample.writer in writers for sample in samples),
        words=len(words),
        unknown_words=sum(word not in known_words for word in words),
        forms=len(set(words)),
        unknown_forms=len(set(words) - known_words),
        ngrams=len(ngrams),
        known_ngrams=sum(ngram in known_ngrams for ngram in ngrams),
    )


def _sequences(samples: Iterable[Sample], size: int) -> list[tuple[str, ...]]:
    texts = [re.findall(r"\w+", comparable(sample.text).casefold()) for sample in samples]
    return [tuple(text[at : at + size]) for text in texts for at in range(len(text) - size + 1)]


_PURPOSES = {Split.TRAIN: "train", Split.VALIDATION: "validate", Split.TEST: "test"}


def summarise(report: LeakReport) -> str:
    """A paragraph to quote: the method of the split, the values splits share, and the part of the test in train."""
    total = sum(statistics.samples for statistics in report.splits.values())
    if report.split_by == "given":
        method = "have the splits of their source"
    else:
        drawn = ", stratified by length and script" if report.stratified else ""
        folds = f" into {report.folds} folds, with fold {report.fold or 1} as test" if report.folds else ""
        method = f"were split by {report.split_by.replace('+', ' and ')}{folds} (seed {report.seed}{drawn})"
    sizes = []
    for split, statistics in report.splits.items():
        asked = "" if statistics.asked is None else f", {percentage(statistics.asked, 1)} asked"
        kind, count = ("writer", statistics.writers) if statistics.writers else ("page", statistics.pages)
        units = f", {count:,} {kind}{'s' * (count != 1)}" if count else ""
        share = f"{percentage(statistics.share, 1)}{asked}{units}"
        sizes.append(f"{statistics.samples:,} ({share}) {_PURPOSES[split]}")
    kinds = [kind for kind in ("writers", "documents", "pages") if report.knows(kind)] + ["texts"]
    counts = [report.crossing[kind].count for kind in kinds]
    *parts, last = (
        f"{f'{count:,}' if count else 'no'} {kind if count != 1 else kind[:-1]}"
        for kind, count in zip(kinds, counts, strict=True)
    )
    shared = f"{', '.join(parts)} and {last}" if parts else last
    missing = [kind for kind in ("writers", "pages") if kind not in kinds]
    unknown = f"; {' and '.join(missing)} are unknown, so any may be in several" if missing else ""
    verb = "is" if counts == [1] else "are"
    sentences = [
        f"The {total:,} samples of {report.dataset} {method}: {', '.join(sizes)}.",
        f"{shared[0].upper()}{shared[1:]} {verb} in more than one split{unknown}.",
    ]
    tested = [split for split in (Split.TEST, Split.VALIDATION) if split in report.overlap]
    if tested and Split.TRAIN in report.splits:
        of = report.overlap[tested[0]]
        writers = f", {_share(of.known_writers, of.samples)} a writer from train" if report.knows("writers") else ""
        sentences.append(
            f"Of the {of.samples:,} {tested[0]} samples {_share(of.same_texts, of.samples)} have a text that is "
            f"in train too, {_share(of.near_texts, of.samples)} except for case and punctuation{writers}; "
            f"of their words {_share(of.unknown_words, of.words)} are not in train, of their different words "
            f"{_share(of.unknown_forms, of.forms)}; of their sequences of three words "
            f"{_share(of.known_ngrams, of.ngrams)} are in train."
        )
    return " ".join(sentences)


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({percentage(part / whole, 1)})" if whole else "none"


Rows = list[list[str]]


def leak_tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: splits, texts, values that splits share, samples also in train."""
    unknown = {kind for kind in ("writers", "documents", "pages") if not report.knows(kind)}
    kinds = [*_UNITS, "characters"]
    scripts = list(dict.fromkeys(name for of in report.splits.values() for name in of.scripts))
    counts: Rows = []
    texts: Rows = []
    for split, of in report.splits.items():
        asked = "" if of.asked is None else percentage(of.asked, 1)
        numbers = ["unknown" if kind in unknown else f"{getattr(of, kind):,}" for kind in kinds]
        counts.append([str(split), f"{of.samples:,}", percentage(of.share, 1), asked, *numbers])
        shares = (percentage(of.scripts.get(script, 0) / of.samples, 1) for script in scripts)
        texts.append([str(split), *map(str, of.lengths), *shares])
    lengths = ["shortest", "quarter", "median", "three quarters", "longest"]
    shared: Rows = []
    for kind, values in report.crossing.items():
        examples = (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in values.examples)
        count = "unknown" if kind in unknown else f"{values.count:,}"
        shared.append([kind, count, ", ".join(map(repr, examples))])
    tables = [
        ("splits", ["split", "samples", "share", "asked", *kinds], counts),
        ("lengths in characters, and scripts", ["split", *lengths, *scripts], texts),
        ("in more than one split", ["kind", "count", "examples"], shared),
    ]
    if report.overlap and Split.TRAIN in report.splits:
        rows = {
            "samples with a text from train": ("same_texts", "samples"),
            "the same except for case and punctuation": ("near_texts", "samples"),
            "samples by a writer from train": ("known_writers", "samples"),
            "words not in train": ("unknown_words", "words"),
            "different words not in train": ("unknown_forms", "forms"),
            "sequences of three words that are in train": ("known_ngrams", "ngrams"),
        }
        overlaps: Rows = [
            [title, *(_share(getattr(of, part), getattr(of, whole)) for of in report.overlap.values())]
            for title, (part, whole) in rows.items()
        ]
        if "writers" in unknown:
            overlaps[2][1:] = ["unknown"] * len(report.overlap)
        tables.append(("also in train", ["", *map(str, report.overlap)], overlaps))
    return tables


def to_markdown(report: LeakReport) -> str:
    """The summary and the tables as Markdown, with the hashes of the splits."""
    parts = [f"# The splits of {report.dataset}", summarise(report)]
    for title, header, rows in leak_tables(report):
        cells = [header, ["---"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{table}")
    hashes = [f"- {split}: `{statistics.sha256}`" for split, statistics in report.splits.items() if statistics.sha256]
    if hashes:
        parts.append("## SHA-256 of metadata and images\n\n" + "\n".join(hashes))
    return "\n\n".join(parts) + "\n"
