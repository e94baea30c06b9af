"""What a dataset's splits share, in numbers that one can publish beside a score.

Counts only what is written in the metadata; `dsocr check` looks at the images too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from dsocr.data.dataset import Card, Dataset
from dsocr.data.splits import SCRIPTS, crossing, page_key, script_of
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.text import comparable, letters_of

EXAMPLES = 3
NGRAM = 3
"""Words in a row that are looked for in train: two are often chance, four are rare in short lines."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """What one split holds. `lengths` are characters of a text: the least, the quartiles, the most."""

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
class Crossing:
    """How many of a kind stand in more than one split, and the first of them."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """How much of a split a model has seen in train.

    `same_texts` are samples whose text stands in train, `near_texts` those whose letters and digits do. Words are
    compared without case; `unknown_words` of `words` in the running text, `unknown_forms` of `forms` different ones,
    and `known_ngrams` of `ngrams` three words in a row stand or do not stand in train. `known_hands` are samples whose
    writer is known and writes in train.
    """

    samples: int
    same_texts: int
    near_texts: int
    known_hands: int
    words: int
    unknown_words: int
    forms: int
    unknown_forms: int
    ngrams: int
    known_ngrams: int


@dataclass(frozen=True, slots=True)
class LeakReport:
    """The splits of a dataset, what crosses them, and what of validation and test has been seen in train."""

    dataset: str
    split_by: str
    seed: int | None
    stratified: bool
    folds: int | None
    fold: int | None
    splits: dict[Split, SplitFacts]
    crossing: dict[str, Crossing]
    seen: dict[Split, Seen]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
        return asdict(self)


_KINDS: dict[str, Callable[[Sample], str | None]] = {
    "writers": lambda sample: sample.writer,
    "documents": lambda sample: sample.document,
    "pages": lambda sample: page_key(sample.document, sample.page),
    "texts": lambda sample: comparable(sample.text),
    "texts but for case and punctuation": lambda sample: _near(sample.text),
}


def report_leaks(dataset: Dataset) -> LeakReport:
    """The report of a dataset, by its folders' splits or by the fold it was opened with."""
    splits = {split: samples for split in Split if (samples := dataset.samples(split))}
    if not splits:
        raise DataError("the dataset holds no samples", where=dataset.folder)
    card, total = dataset.card, sum(map(len, splits.values()))
    train = splits.get(Split.TRAIN, [])
    return LeakReport(
        dataset=dataset.folder.resolve().name,
        split_by=card.split_by,
        seed=card.seed,
        stratified=card.stratified,
        folds=card.folds,
        fold=dataset.fold,
        splits={split: _facts(split, samples, total, card, dataset.fold) for split, samples in splits.items()},
        crossing={kind: _crossing(value_of, splits) for kind, value_of in _KINDS.items()},
        seen={split: _seen(samples, train) for split, samples in splits.items() if split is not Split.TRAIN},
    )


def _facts(split: Split, samples: Sequence[Sample], total: int, card: Card, fold: int | None) -> SplitFacts:
    lengths = [len(comparable(sample.text)) for sample in samples]
    quarters = quantiles(lengths, n=4, method="inclusive") if len(lengths) > 1 else lengths * 3
    scripts = Counter(script_of(sample.text) for sample in samples)
    whole = fold is None and split in card.splits  # a fold's splits have no file of their own
    return SplitFacts(
        samples=len(samples),
        share=len(samples) / total,
        asked=card.fractions.get(split) if card.fractions else None,
        writers=_different(sample.writer for sample in samples),
        documents=_different(sample.document for sample in samples),
        pages=_different(page_key(sample.document, sample.page) for sample in samples),
        texts=_different(comparable(sample.text) for sample in samples),
        characters=sum(lengths),
        lengths=(min(lengths), *map(round, quarters), max(lengths)),  # type: ignore[arg-type]
        scripts={script: scripts[script] for script in SCRIPTS if scripts[script]},
        sha256=card.splits[split].sha256 if whole else None,
    )


def _different(values: Iterable[str | None]) -> int:
    return len(set(values) - {None})


def _crossing(value_of: Callable[[Sample], str | None], splits: dict[Split, list[Sample]]) -> Crossing:
    crossed = crossing((value_of(sample), split) for split, samples in splits.items() for sample in samples)
    return Crossing(len(crossed), tuple(sorted(crossed)[:EXAMPLES]))


def _near(text: str) -> str:
    """The letters and digits; a text of neither is itself."""
    return letters_of(text) or comparable(text)


def _seen(samples: Sequence[Sample], train: Sequence[Sample]) -> Seen:
    texts = {comparable(sample.text) for sample in train}
    letters = {_near(sample.text) for sample in train}
    hands = {sample.writer for sample in train} - {None}
    known, ngrams = set(), set()
    for sample in train:
        words = _words(sample.text)
        known.update(words)
        ngrams.update(_ngrams(words))
    of_split = [_words(sample.text) for sample in samples]
    running = [word for words in of_split for word in words]
    rows = [ngram for words in of_split for ngram in _ngrams(words)]
    return Seen(
        samples=len(samples),
        same_texts=sum(comparable(sample.text) in texts for sample in samples),
        near_texts=sum(_near(sample.text) in letters for sample in samples),
        known_hands=sum(sample.writer in hands for sample in samples),
        words=len(running),
        unknown_words=sum(word not in known for word in running),
        forms=len(set(running)),
        unknown_forms=len(set(running) - known),
        ngrams=len(rows),
        known_ngrams=sum(ngram in ngrams for ngram in rows),
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(comparable(text).casefold())


def _ngrams(words: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(words[place : place + NGRAM]) for place in range(len(words) - NGRAM + 1)]


_DONE = {Split.TRAIN: "train", Split.VALIDATION: "validate", Split.TEST: "test"}


def to_quote(report: LeakReport) -> str:
    """Plain English with the numbers: how it was split, what crosses, what of the test has been seen."""
    return " ".join(_sentences(report))


def _sentences(report: LeakReport) -> Iterator[str]:
    total = sum(facts.samples for facts in report.splits.values())
    yield f"The {total:,} samples of {report.dataset} {_how(report)}: {_sizes(report)}."
    yield _crosses(report)
    for split in (Split.TEST, Split.VALIDATION):
        if split in report.seen and Split.TRAIN in report.splits:
            yield _seen_phrase(split, report.seen[split], by_hand=_known(report, "writers"))
            break


def _how(report: LeakReport) -> str:
    if report.split_by == "given":
        return "are split as their source gives it"
    drawn = ", drawn alike in lengths and scripts" if report.stratified else ""
    folds = f" into {report.folds} folds, of which fold {report.fold or 1} tests" if report.folds else ""
    return f"were split by {report.split_by.replace('+', ' and ')}{folds} (seed {report.seed}{drawn})"


def _sizes(report: LeakReport) -> str:
    return ", ".join(
        f"{facts.samples:,} ({facts.share:.1%}{_asked(facts)}{_by(facts)}) {_DONE[split]}"
        for split, facts in report.splits.items()
    )


def _asked(facts: SplitFacts) -> str:
    return "" if facts.asked is None else f", {facts.asked:.1%} asked"


def _by(facts: SplitFacts) -> str:
    if facts.writers:
        return f", {counted(facts.writers, 'writer')}"
    return f", {counted(facts.pages, 'page')}" if facts.pages else ""


def _crosses(report: LeakReport) -> str:
    kinds = [kind for kind in ("writers", "documents", "pages") if _known(report, kind)]
    told = [
        f"{_number(report.crossing[kind].count)} {kind if report.crossing[kind].count != 1 else kind[:-1]}"
        for kind in [*kinds, "texts"]
    ]
    stand = "stands" if len(told) == 1 and told[0].startswith("1 ") else "stand"
    listed = " and ".join(told) if len(told) < 3 else f"{', '.join(told[:-1])} and {told[-1]}"
    missing = [kind for kind in ("writers", "pages") if kind not in kinds]
    unknown = f"; {' and '.join(missing)} are not known" if missing else ""
    return f"{listed[0].upper()}{listed[1:]} {stand} in more than one split{unknown}."


def _known(report: LeakReport, kind: str) -> bool:
    return any(getattr(facts, kind) for facts in report.splits.values())


def _number(count: int) -> str:
    return f"{count:,}" if count else "no"


def _seen_phrase(split: Split, seen: Seen, *, by_hand: bool) -> str:
    hands = f", {share(seen.known_hands, seen.samples)} are by a writer of train" if by_hand else ""
    return (
        f"Of the {seen.samples:,} {split} samples {share(seen.same_texts, seen.samples)} have a text that stands in "
        f"train too, {share(seen.near_texts, seen.samples)} but for case and punctuation{hands}; of their words "
        f"{share(seen.unknown_words, seen.words)} are not in train, of their different words "
        f"{share(seen.unknown_forms, seen.forms)}; of their sequences of three words "
        f"{share(seen.known_ngrams, seen.ngrams)} are in train."
    )


def share(part: int, whole: int) -> str:
    """`12 (9.1%)`; of nothing there is no share."""
    return f"{part:,} ({part / whole:.1%})" if whole else "none"


def counted(count: int, noun: str) -> str:
    """`1 writer`, `2 writers`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


Rows = list[list[str]]


def tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: the splits, their texts, what crosses, what has been seen in train."""
    names = list(report.splits)
    facts = [report.splits[split] for split in names]
    counts: Rows = [
        [str(split), f"{of.samples:,}", f"{of.share:.1%}", "" if of.asked is None else f"{of.asked:.1%}"]
        + [f"{count:,}" for count in (of.writers, of.documents, of.pages, of.texts, of.characters)]
        for split, of in zip(names, facts, strict=True)
    ]
    scripts = list(dict.fromkeys(name for of in facts for name in of.scripts))
    texts: Rows = [
        [str(split), *map(str, of.lengths), *(f"{of.scripts.get(script, 0) / of.samples:.1%}" for script in scripts)]
        for split, of in zip(names, facts, strict=True)
    ]
    crosses: Rows = [
        [kind, f"{crossed.count:,}", ", ".join(map(_short, crossed.examples))]
        for kind, crossed in report.crossing.items()
    ]
    lengths = ["shortest", "quarter", "median", "three quarters", "longest"]
    found = [
        (
            "splits",
            ["split", "samples", "share", "asked", "writers", "documents", "pages", "texts", "characters"],
            counts,
        ),
        ("lengths in characters, and scripts", ["split", *lengths, *scripts], texts),
        ("in more than one split", ["kind", "count", "the first"], crosses),
    ]
    if report.seen and Split.TRAIN in report.splits:
        found.append(("seen in train", ["", *map(str, report.seen)], _seen_rows(list(report.seen.values()))))
    return found


def _seen_rows(seen: Sequence[Seen]) -> Rows:
    return [
        ["samples whose text is in train", *(share(of.same_texts, of.samples) for of in seen)],
        ["the same but for case and punctuation", *(share(of.near_texts, of.samples) for of in seen)],
        ["samples by a writer of train", *(share(of.known_hands, of.samples) for of in seen)],
        ["words not in train", *(share(of.unknown_words, of.words) for of in seen)],
        ["different words not in train", *(share(of.unknown_forms, of.forms) for of in seen)],
        ["sequences of three words that are in train", *(share(of.known_ngrams, of.ngrams) for of in seen)],
    ]


def _short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def to_markdown(report: LeakReport) -> str:
    """The paragraph and the tables as a page of Markdown, with the hashes of what was counted."""
    parts = [f"# The splits of {report.dataset}", to_quote(report)]
    for title, header, rows in tables(report):
        cells = [header, ["---"] * len(header), *rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{table}")
    hashes = [f"- {split}: `{facts.sha256}`" for split, facts in report.splits.items() if facts.sha256]
    if hashes:
        parts.append("## SHA-256 of metadata and images\n\n" + "\n".join(hashes))
    return "\n\n".join(parts) + "\n"
