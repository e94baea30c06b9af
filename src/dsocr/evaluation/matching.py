"""Whose line each prediction of another tool is, and what had to be counted on the way.

Tables and text files name their lines: by the sample's id, its file name, or that without its suffix. PAGE and ALTO
files are matched page by page, and on a page by where the lines stand, since tools number lines as they like.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from dsocr.data.images import IMAGE_SUFFIXES
from dsocr.data.sources.layout import Box
from dsocr.errors import DataError
from dsocr.evaluation.predictions import Found, Predictions
from dsocr.samples import Sample
from dsocr.text import TextPolicy

Missing = Literal["refuse", "empty"]
"""What a line without a prediction is: a reason to stop, or a line of which nothing was read."""

_OVERLAP = 0.5
"""The share of two boxes together that both must cover, to be one line."""

_HALF = re.compile("[\ud800-\udfff]")
"""Half a character, which JSON can write and UTF-8 cannot."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Text:
    """What was read of a line."""

    text: str
    truncated: bool = False
    looping: bool = False


@dataclass(frozen=True, slots=True)
class Matched:
    """A prediction for every sample, by id, and remarks on all that was not as plain as that."""

    predictions: Mapping[str, Text]
    remarks: Sequence[str]


def match(predictions: Predictions, samples: Sequence[Sample], policy: TextPolicy, *, missing: Missing) -> Matched:
    """The predictions of the samples, their texts treated as the dataset's transcriptions were.

    Raises DataError where lines are without a prediction, unless `missing` is "empty"; where one line has two
    different ones; and where nothing matches.
    """
    by_page = predictions.form in {"page", "alto"}
    found, how = (_by_place if by_page else _by_name)(predictions, samples)
    taken: dict[str, Found] = {}
    repeated = 0
    for sample_id, one in found:
        first = taken.setdefault(sample_id, one)
        if first is not one:
            repeated += 1
            if first.text != one.text:
                message = f"{first.where} and {one.where} are both of the line {sample_id}, and differ"
                raise DataError(message, where=predictions.path, hint="keep one prediction for each line")
    if not taken:
        told = f"none of the {len(predictions.found)} predictions is of one of the {len(samples)} lines"
        hint = f"a line is called {samples[0].id!r}, a prediction {_told_name(predictions.found[0])!r}"
        raise DataError(told, where=predictions.path, hint=hint)
    absent = [sample.id for sample in samples if sample.id not in taken]
    if absent and missing == "refuse":
        message = f"no prediction for {len(absent)} of {len(samples)} lines ({how}): {_some(absent)}"
        hint = "--missing empty counts them as lines of which nothing was read"
        raise DataError(message, where=predictions.path, hint=hint)
    whole = {id_: _HALF.sub("\ufffd", one.text) for id_, one in taken.items()}
    texts = {id_: Text(policy.apply(whole[id_]), one.truncated) for id_, one in taken.items()}
    remarks = [*predictions.remarks, f"{how}: {len(taken)} of {len(samples)} lines"]
    used = {id(part) for _, one in found for part in (one, *one.parts)}
    extra = [one.where for one in predictions.found if id(one) not in used]
    counts = {
        f"predictions of no line of the split, not used: {_some(extra)}": len(extra),
        f"lines without a prediction, counted as empty: {_some(absent)}": len(absent),
        "predictions that stand there twice, alike": repeated,
        "empty predictions": sum(not text.text for text in texts.values()),
        "predictions with half a character, read as \ufffd": sum(whole[id_] != taken[id_].text for id_ in texts),
        "predictions changed by the dataset's text policy": sum(texts[id_].text != whole[id_] for id_ in texts),
        "predictions not in the normal form NFC, as references are": sum(
            not unicodedata.is_normalized("NFC", one.text) for one in taken.values()
        ),
    }
    remarks += [f"{count} {what}" for what, count in counts.items() if count]
    return Matched(texts | {id_: Text("") for id_ in absent}, remarks)


_Pairs = list[tuple[str, Found]]


def _by_name(predictions: Predictions, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """By the kind of name that most predictions have."""
    best: tuple[_Pairs, str] = ([], "by id")
    for how, key in _NAMES.items():
        by_key: dict[str, list[str]] = defaultdict(list)
        for sample in samples:
            by_key[key(_plain(sample.id))].append(sample.id)
        named = [(by_key.get(key(_plain(one.name)), []), one) for one in predictions.found]
        if any(len(ids) > 1 for ids, _ in named):
            continue  # the same name in two folders says nothing
        pairs = [(ids[0], one) for ids, one in named if ids]
        if len(pairs) > len(best[0]):
            best = pairs, how
    return best


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).replace("\\", "/").removeprefix("./")


def _stem(name: str) -> str:
    path = PurePosixPath(name)
    return path.stem if path.suffix.lower() in IMAGE_SUFFIXES else path.name


_NAMES: Mapping[str, Callable[[str], str]] = {
    "by id": lambda name: name,
    "by id without suffix": lambda name: str(PurePosixPath(name).with_name(_stem(name))) if name else "",
    "by file name": lambda name: PurePosixPath(name).name,
    "by file name without suffix": _stem,
}


def _by_place(predictions: Predictions, samples: Sequence[Sample]) -> tuple[_Pairs, str]:
    """By page and by where on it the lines stand."""
    pages: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        pages[_page_of(sample)].append(sample)
    stems = Counter(PurePosixPath(page).name for page in pages)
    read: dict[str, list[Found]] = defaultdict(list)
    for one in predictions.found:
        read[_plain(one.page or "")].append(one)
    pairs: _Pairs = []
    for page, lines in read.items():
        stem = PurePosixPath(page).name
        same = [name for name in pages if name == page] or [name for name in pages if PurePosixPath(name).name == stem]
        if len(same) > 1:
            message = f"{stems[stem]} pages of the dataset are called {stem}"
            raise DataError(message, where=predictions.path, hint="lay the files into folders as the dataset's were")
        if same:
            pairs += _on_page(pages[same[0]], lines)
    return pairs, "by page and place on it"


def _page_of(sample: Sample) -> str:
    """The file of the source that the sample's page was, without its suffix; else the page's name."""
    file = (sample.source or "").rpartition(":")[0]
    return _plain(str(PurePosixPath(file).with_suffix("")) if file else sample.page or "")


def _on_page(samples: Sequence[Sample], lines: Sequence[Found]) -> _Pairs:
    """Each sample with the line that it covers best, each line taken once; a sample that is a whole page takes all."""
    if len(samples) == 1 and "bbox" not in samples[0].geometry:
        joined = "\n".join(line.text for line in lines if line.text.strip())
        return [(samples[0].id, Found(lines[0].where, lines[0].name, joined, parts=tuple(lines)))]
    boxes = [(line, line.outline.box) for line in lines if line.outline]
    covered = [
        (_overlap(tuple(sample.geometry["bbox"]), box), place, number)
        for place, sample in enumerate(samples)
        if "bbox" in sample.geometry
        for number, (_, box) in enumerate(boxes)
    ]
    pairs: _Pairs = []
    taken: set[tuple[str, int]] = set()
    for share, place, number in sorted(covered, key=lambda one: (-one[0], *one[1:])):
        if share >= _OVERLAP and not {("sample", place), ("line", number)} & taken:
            taken |= {("sample", place), ("line", number)}
            pairs.append((samples[place].id, boxes[number][0]))
    return pairs


def _overlap(one: Box, other: Box) -> float:
    """What two boxes share of what they cover together."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    if across <= 0 or down <= 0:
        return 0.0
    both = across * down
    return both / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - both)


def _told_name(one: Found) -> str:
    return f"{one.page}: {one.name}" if one.page else one.name


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (", ..." if len(listed) > _SHOWN else "")
