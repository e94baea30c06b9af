"""A copy of a dataset in which is put right what can be without looking at the images; the original is not touched.

Texts are put right by `data/cleaning.py`, in every split. Samples of train whose image and text stand elsewhere too are
left out of train; in validation and test nothing is left out, for scores must not change in silence: twins are counted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from dsocr import __version__
from dsocr.data.check.text_checks import clean
from dsocr.data.dataset import Dataset, LeftOutCard
from dsocr.data.dataset_writer import IMAGES, refuse_output, write_split
from dsocr.data.journal import StoredSample
from dsocr.data.placement import EXAMPLES, count_crossing
from dsocr.data.prepare import Progress
from dsocr.data.splits import Placeable
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.images import read_bytes
from dsocr.io.files import FIXES_FILE
from dsocr.runs import writing_folder
from dsocr.text import comparable

TWIN = "duplicate-image"
_STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing done to one sample: its text before and after, or `after` None where the sample was left out.

    `code` is that of the finding it answers, `id` the sample's, `same_as` the id of the twin that stays.
    """

    id: str
    code: str
    before: str
    after: str | None
    same_as: str | None = None

    def as_row(self) -> dict[str, str | None]:
        """The fix as it stands in `fixes.jsonl`."""
        row = {"id": self.id, "code": self.code, "before": self.before, "after": self.after}
        return row if self.same_as is None else {**row, "same_as": self.same_as}


@dataclass(frozen=True, slots=True)
class FixReport:
    """What was done, how many twins were found in validation and test and left there, and the folder made.

    `dataset` is None where there was nothing to put right and so no folder was written.
    """

    dataset: Path | None
    fixes: list[Fix]
    twins_left: int

    def counts(self) -> Counter[tuple[str, Split]]:
        """How many fixes there are of each code in each split."""
        return Counter((fix.code, Split(fix.id.partition("/")[0])) for fix in self.fixes)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A sample of the new dataset: its row, its image file and that file's SHA-256."""

    sample: Sample
    row: dict[str, Any]
    digest: str

    @property
    def text(self) -> str:
        return str(self.row["text"])


def fix_dataset(dataset: Dataset, out: Path, *, overwrite: bool = False, progress: Progress | None = None) -> FixReport:
    """Writes the dataset folder `out`, whole or not at all, with what was done in its card and in `fixes.jsonl`.

    Samples stay in the split they lie in, whatever a fold makes of them. Raises DataError where `out` is in use, and
    for images that cannot be read.
    """
    refuse_output(out, dataset.folder, overwrite=overwrite)
    if out.resolve().is_relative_to(dataset.folder.resolve()):
        hint = "choose a folder beside it"
        raise DataError("the new dataset would lie inside the one it is made from", where=out, hint=hint)
    splits = {split: list(_rows(dataset, split)) for split in Split}
    fixes = [fix for kept in splits.values() for item in kept for fix in _put_right(item)]
    splits[Split.TRAIN], twins = _without_twins(splits)
    fixes += twins
    twins_left = _count_twins([item for split in (Split.VALIDATION, Split.TEST) for item in splits[split]])
    if not fixes:
        return FixReport(None, [], twins_left)
    with writing_folder(out) as folder:
        _write(dataset, folder, splits, fixes, progress)
    return FixReport(out, fixes, twins_left)


def _rows(dataset: Dataset, split: Split) -> Iterator[_Kept]:
    """The rows of a split as they stand, columns of the user's own among them."""
    samples = [sample for _, sample in dataset.stored(split)]
    if not samples:
        return
    lines = dataset.metadata(split).read_text(encoding="utf-8").split("\n")
    for sample, line in zip(samples, (line for line in lines if line.strip()), strict=True):
        digest = hashlib.sha256(read_bytes(sample.image)).hexdigest()
        yield _Kept(sample, json.loads(line), digest)


def _put_right(item: _Kept) -> Iterator[Fix]:
    for step in clean(item.text):
        item.row["text"] = step.after
        yield Fix(item.sample.id, step.code, step.before, step.after)


def _without_twins(splits: dict[Split, list[_Kept]]) -> tuple[list[_Kept], list[Fix]]:
    """Train without the samples that stand in another split or earlier in train, image and text."""
    others = [item for split in (Split.VALIDATION, Split.TEST) for item in splits[split]]
    first = {_key(item): item.sample.id for item in reversed(others)}
    kept, twins = [], []
    for item in splits[Split.TRAIN]:
        same_as = first.setdefault(_key(item), item.sample.id)
        if same_as == item.sample.id:
            kept.append(item)
        else:
            twins.append(Fix(item.sample.id, TWIN, item.text, None, same_as))
    return kept, twins


def _key(item: _Kept) -> tuple[str, str]:
    return item.digest, comparable(item.text)


def _count_twins(items: Iterable[_Kept]) -> int:
    return sum(count - 1 for count in Counter(map(_key, items)).values())


def _write(
    dataset: Dataset, folder: Path, splits: dict[Split, list[_Kept]], fixes: list[Fix], progress: Progress | None
) -> None:
    total = sum(map(len, splits.values()))
    done = 0

    def stored(items: list[_Kept]) -> Iterator[StoredSample]:
        nonlocal done
        for item in items:
            name = str(item.row["file_name"])
            if PurePosixPath(name).parent != PurePosixPath(IMAGES):
                raise DataError(f"the image {name!r} does not lie in {IMAGES}/", where=item.sample.id)
            # `datasets` wants the columns that every row of ours has, though an old row may lack some.
            row = {"writer": "", "page": "", "document": "", **item.row}
            yield StoredSample(_unchanged(item), item.digest, name, row, "")
            done += 1
            if progress:
                progress(done, total)

    store = dataset.card.store
    cards = {split: write_split(folder, split, stored(items), store) for split, items in splits.items() if items}
    # Not beside it, so that what was changed goes where the dataset goes.
    lines = (json.dumps(fix.as_row(), ensure_ascii=False) + "\n" for fix in fixes)
    (folder / FIXES_FILE).write_text("".join(lines), encoding="utf-8", newline="\n")
    changes = {
        "dsocr_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "splits": cards,
        "crossing": {**dataset.card.crossing, **_crossing(splits)},
        "repaired": _counted(dataset.card.repaired, fixes),
    }
    dataset.card.model_copy(update=changes).write(folder)


def _unchanged(item: _Kept) -> bytes:
    """The image file as it was, so that the card's hashes stay comparable."""
    data = read_bytes(item.sample.image)
    if hashlib.sha256(data).hexdigest() != item.digest:
        raise DataError("the image was changed while the dataset was copied", where=item.sample.image)
    return data


def _crossing(splits: dict[Split, list[_Kept]]) -> dict[str, int]:
    facts = [
        Placeable(sample.id, sample.id, item.text, sample.writer, sample.document, sample.page)
        for items in splits.values()
        for item in items
        for sample in (item.sample,)
    ]
    return count_crossing(facts, [split for split, items in splits.items() for _ in items])


def _counted(before: dict[str, LeftOutCard], fixes: list[Fix]) -> dict[str, LeftOutCard]:
    """How often what was done, with examples; what an earlier fixing did stays."""
    known = {code: (part.count, list(part.examples)) for code, part in before.items()}
    for fix in fixes:
        count, examples = known.get(fix.code, (0, []))
        told = f"{fix.id}: same as {fix.same_as}" if fix.after is None else f"{fix.id}: {fix.before!r} -> {fix.after!r}"
        known[fix.code] = (count + 1, [*examples, told] if len(examples) < EXAMPLES else examples)
    return {code: LeftOutCard(count=count, examples=examples) for code, (count, examples) in known.items()}
