"""What a dataset's splits share, in numbers that one can publish beside a score.

Counts only what is written in the metadata; `dsocr check` looks at the images too.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from dsocr.data.card import Card
from dsocr.data.dataset import Dataset
from dsocr.data.grouping import page_key
from dsocr.data.splits import crossing
from dsocr.data.strata import SCRIPTS, script_of
from dsocr.errors import DataError
from dsocr.samples import Sample, Split
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
