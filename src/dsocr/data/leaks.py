"""What the splits of a dataset share, in numbers to publish beside a score.

Counts only what is in the metadata; `dsocr check` compares images too.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from dsocr.data.dataset import Card, Dataset
from dsocr.data.splits import SCRIPTS, find_crossing, page_key, script_of
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.text import comparable, letters_of

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
    splits = {split: samples for split in Split if (samples := dataset.samples(split))}
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
    asked = "" if statistics.asked is None else f", {statistics.asked:.1%} asked"
    kind = "writer" if statistics.writers else "page"
    count = statistics.writers or statistics.pages
    units = f", {count:,} {kind}{'' if count == 1 else 's'}" if count else ""
    return f"{statistics.samples:,} ({statistics.share:.1%}{asked}{units}) {_PURPOSES[split]}"


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
    return f"{part:,} ({part / whole:.1%})" if whole else "none"


Rows = list[list[str]]


def leak_tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: splits, texts, what splits share, what occurs in train."""
    splits = list(report.splits.items())
    counts: Rows = [
        [str(split), f"{of.samples:,}", f"{of.share:.1%}", "" if of.asked is None else f"{of.asked:.1%}"]
        + [f"{count:,}" for count in (of.writers, of.documents, of.pages, of.texts, of.characters)]
        for split, of in splits
    ]
    count_header = ["split", "samples", "share", "asked", "writers", "documents", "pages", "texts", "characters"]
    scripts = list(dict.fromkeys(name for _, of in splits for name in of.scripts))
    texts: Rows = [
        [str(split), *map(str, of.lengths), *(f"{of.scripts.get(script, 0) / of.samples:.1%}" for script in scripts)]
        for split, of in splits
    ]
    lengths = ["shortest", "quarter", "median", "three quarters", "longest"]
    shared: Rows = [
        [kind, f"{values.count:,}", ", ".join(map(_shorten, values.examples))]
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
