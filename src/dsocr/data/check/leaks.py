"""Report overlap between the metadata of a dataset's splits: the numbers to publish beside a score."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
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
    """Counts of one split. `lengths` are the minimum, quartiles and maximum of characters per text.

    `units` counts the writers, documents, pages and texts; `in_train` has for each kind of value the number that
    training has too, and the number of all; it is empty for the train split itself.
    """

    samples: int
    share: float
    asked: float | None
    units: dict[str, int]
    characters: int
    lengths: tuple[int, ...]
    scripts: dict[str, int]
    sha256: str | None
    in_train: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LeakReport:
    """The splits of a dataset; for each kind of value, the number that several splits share and the first of them."""

    splits: dict[Split, SplitStatistics]
    crossing: dict[str, tuple[int, list[str]]]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self)


def _letters(sample: Sample) -> str:
    """The letters and digits of a text, or the text itself if it has neither."""
    return letters_of(sample.text) or comparable(sample.text)


def _sequences(samples: Sequence[Sample], size: int) -> list[tuple[str, ...]]:
    texts = [re.findall(r"\w+", comparable(sample.text).casefold()) for sample in samples]
    return [tuple(text[at : at + size]) for text in texts for at in range(len(text) - size + 1)]


_UNITS: dict[str, Callable[[Sample], str | None]] = {f"{unit}s": key for unit, key in KEYS.items()}
_COMPARED: dict[str, Callable[[Sequence[Sample]], Collection[Hashable]]] = {
    "samples with a text from train": lambda samples: [comparable(sample.text) for sample in samples],
    "the same except for case and punctuation": lambda samples: [_letters(sample) for sample in samples],
    "samples by a writer from train": lambda samples: [sample.writer for sample in samples],
    "words from train": lambda samples: _sequences(samples, 1),
    "different words from train": lambda samples: set(_sequences(samples, 1)),
    "sequences of three words from train": lambda samples: _sequences(samples, _NGRAM),
}


def report_leaks(dataset: Dataset) -> LeakReport:
    """Compare the splits of a dataset, those of its fold if it was opened with one."""
    stored = {split: [sample for _, sample in dataset.numbered(split, may_be_short=True)] for split in Split}
    splits = {split: samples for split, samples in stored.items() if samples}
    if not splits:
        raise DataError("the dataset has no samples", code="no-samples", where=dataset.folder)
    card, total = dataset.card, sum(map(len, splits.values()))
    trained = {kind: set(values(stored[Split.TRAIN])) - {None} for kind, values in _COMPARED.items()}

    def statistics(split: Split, samples: Sequence[Sample]) -> SplitStatistics:
        lengths = [len(comparable(sample.text)) for sample in samples]
        quarters = quantiles(lengths, n=4, method="inclusive") if len(lengths) > 1 else lengths * 3
        scripts = Counter(script_of(sample.text) for sample in samples)
        has_hash = dataset.fold is None and split in card.splits  # a fold's splits have no metadata of their own
        compared = {} if split is Split.TRAIN else {kind: values(samples) for kind, values in _COMPARED.items()}
        return SplitStatistics(
            samples=len(samples),
            share=len(samples) / total,
            asked=card.fractions.get(split) if card.fractions else None,
            units={kind: len({key(sample) for sample in samples} - {None}) for kind, key in _UNITS.items()},
            characters=sum(lengths),
            lengths=(min(lengths), *map(round, quarters), max(lengths)),
            scripts={script: scripts[script] for script in SCRIPTS if scripts[script]},
            sha256=card.splits[split].sha256 if has_hash else None,
            in_train={
                kind: (sum(value in trained[kind] for value in values), len(values))
                for kind, values in compared.items()
            },
        )

    crossing = {}
    for kind, key in {**_UNITS, "texts except for case and punctuation": _letters}.items():
        shared = find_crossing((key(sample), split) for split, samples in splits.items() for sample in samples)
        crossing[kind] = len(shared), sorted(shared)[:_MAX_EXAMPLES]
    return LeakReport({split: statistics(split, samples) for split, samples in splits.items()}, crossing)


Rows = list[list[str]]


def leak_tables(report: LeakReport) -> list[tuple[str, list[str], Rows]]:
    """Title, header and rows of each table: splits, texts, values that splits share, values also in train."""
    splits = report.splits
    unknown = {kind for kind in _UNITS if not any(of.units[kind] for of in splits.values())}
    scripts = list(dict.fromkeys(name for of in splits.values() for name in of.scripts))
    counts: Rows = []
    texts: Rows = []
    for split, of in splits.items():
        asked = "" if of.asked is None else percentage(of.asked, 1)
        units = ["unknown" if kind in unknown else f"{count:,}" for kind, count in of.units.items()]
        counts.append([split, f"{of.samples:,}", percentage(of.share, 1), asked, *units, f"{of.characters:,}"])
        shares = (percentage(of.scripts.get(script, 0) / of.samples, 1) for script in scripts)
        texts.append([split, *map(str, of.lengths), *shares])
    shared: Rows = []
    for kind, (number, values) in report.crossing.items():
        examples = (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…" for text in values)
        shared.append([kind, "unknown" if kind in unknown else f"{number:,}", ", ".join(map(repr, examples))])
    tables = [
        ("splits", ["split", "samples", "share", "asked", *_UNITS, "characters"], counts),
        (
            "lengths in characters, and scripts",
            ["split", "shortest", "quarter", "median", "three quarters", "longest", *scripts],
            texts,
        ),
        ("in more than one split", ["kind", "count", "examples"], shared),
    ]
    if Split.TRAIN in splits and len(splits) > 1:
        others = {split: of.in_train for split, of in splits.items() if of.in_train}

        def cell(kind: str, part: int, whole: int) -> str:
            if "writer" in kind and "writers" in unknown:
                return "unknown"
            return f"{part:,} ({percentage(part / whole, 1)})" if whole else "none"

        rows = [[kind, *(cell(kind, *of[kind]) for of in others.values())] for kind in _COMPARED]
        tables.append(("also in train", ["", *others], rows))
    return tables
