"""Copy a dataset and repair it as far as no person is needed; the original stays as it is.

Texts are repaired in every split. Samples of train whose image and text are in the dataset twice, as the same file or
as another scan, crop or JPEG of the same line, are dropped. Nothing is dropped from validation or test unless a
correction says so, because scores must not change silently: their duplicates are only counted.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from shutil import copyfile
from typing import Any

from dsocr import __version__
from dsocr.data.check.findings import CheckedSample
from dsocr.data.check.image_checks import measure_image
from dsocr.data.check.split_checks import similar_with_same_text
from dsocr.data.check.text_checks import (
    CYRILLIC,
    LATIN,
    TO_CYRILLIC,
    TO_LATIN,
    VISIBLE_TEXT,
    WORD,
    find_invisible,
    lone_latin_words,
)
from dsocr.data.dataset import (
    SKIPPED_FILE,
    SOURCES_FILE,
    Dataset,
    SplitCard,
    SplitWriter,
    count_example,
    image_hash,
    require_free_dataset,
)
from dsocr.data.split_plan import draw_folds
from dsocr.data.splits import count_crossing
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.formats.tables import read_spreadsheet
from dsocr.images import MAX_PAGE_PIXELS, open_image, read_bytes
from dsocr.io.encodings import text_encoding
from dsocr.io.files import FIXES_FILE, current_time
from dsocr.io.processes import ProgressCallback
from dsocr.io.work import writing_folder
from dsocr.text import TextChange, comparable, is_blank, letters_of


def fix_text(text: str) -> list[TextChange]:
    """The repairs of a text, each with the code of its finding as `rule`; no text becomes empty."""
    changes = []
    for code, repair in _REPAIRS.items():
        after = repair(text)
        if after != text and not is_blank(after):
            changes.append(TextChange(code, text, after))
            text = after
    return changes


def _replace_look_alikes(text: str) -> str:
    """Replace look-alikes where the intended script is certain.

    It is in Latin words of one letter between Cyrillic ones, and in words whose other letters are more, of one script,
    and not all with a look-alike themselves.
    """
    lone = set(lone_latin_words(WORD.findall(text)))

    def to_one_script(match: re.Match[str]) -> str:
        word = match.group()
        if word in lone:
            return TO_CYRILLIC[word]
        scripts = [(LATIN.findall(word), TO_CYRILLIC), (CYRILLIC.findall(word), TO_LATIN)]
        (minority, replacements), (majority, reverse) = sorted(scripts, key=lambda script: len(script[0]))
        has_look_alikes = replacements.keys() >= set(minority) and not reverse.keys() >= set(majority)
        if len(minority) == len(majority) or len(minority) + len(majority) < len(word) or not has_look_alikes:
            return word
        return "".join(replacements.get(letter, letter) for letter in word)

    return WORD.sub(to_one_script, text)


_REPAIRS: dict[str, Callable[[str], str]] = {
    "invisible-characters": lambda text: VISIBLE_TEXT.apply(text) if find_invisible(text) else text,
    "decomposed-characters": partial(unicodedata.normalize, "NFC"),
    "look-alikes": _replace_look_alikes,
}


@dataclass(frozen=True, slots=True)
class Fix:
    """One repair of a sample: its text before and after, or `after` None if the sample was dropped.

    `code` is that of the finding, `id` the sample's id, `same_as` the id of the duplicate that stays, else None.
    """

    id: str
    code: str
    before: str
    after: str | None
    same_as: str | None = None

    def __str__(self) -> str:
        fate = "dropped" if self.same_as is None else f"same as {self.same_as}"
        change = fate if self.after is None else f"{self.before!r} -> {self.after!r}"
        return f"{self.id}: {change}"


@dataclass(frozen=True, slots=True)
class FixReport:
    """The repairs, the folder written (None if nothing needed repair), and the duplicates left in other splits.

    `lost` counts the samples of each split that its metadata no longer had.
    """

    dataset: Path | None
    fixes: list[Fix]
    duplicates_left: int
    lost: dict[Split, int] = field(default_factory=dict)

    def counts(self) -> Counter[tuple[str, Split]]:
        """Number of fixes by code and split."""
        return Counter((fix.code, Split(fix.id.partition("/")[0])) for fix in self.fixes)


@dataclass(frozen=True, slots=True)
class _StoredRow:
    """A sample with its row of the metadata, which may have columns of the user's, and its image's SHA-256."""

    sample: Sample
    columns: dict[str, Any]
    digest: str

    @property
    def text(self) -> str:
        return str(self.columns["text"])

    @property
    def key(self) -> tuple[str, str]:
        """Image and text, which duplicates share."""
        return self.digest, comparable(self.text)


DROP = "-"
"""The correction of a line that is to be dropped."""

_FORMULA_ERROR = re.compile(r"#[^\W\d_]+(?:/\w+)?[?!]|Err:\d+")
"""Errors that spreadsheets show for a text that begins with =, + or - and is no formula, in any language."""


def read_corrections(path: Path) -> dict[str, str]:
    """Read a table such as `audit.csv`: the correction of each line that has one, by the line's id.

    Raises DataError without the columns `id` and `correction`, if no line has a correction or one has two, for rows
    that cannot be divided into cells, and for corrections that a spreadsheet took for a formula: their text is lost.
    """
    names, rows = read_spreadsheet(path)
    if missing := {"id", "correction"}.difference(names):
        message = f"has no column {min(missing)!r}, only {', '.join(map(repr, names))}"
        raise DataError(message, code="column-missing", where=path, hint="give the table that dsocr audit wrote")
    corrections: dict[str, str] = {}
    for number, cells in rows:
        where = f"{path}:{number}"
        id_, text = cells["id"], cells["correction"]
        text = DROP if text == f"'{DROP}" else text
        if not text:
            continue
        if _FORMULA_ERROR.fullmatch(text):
            message = f"the correction is {text}: the spreadsheet took the text for a formula"
            hint = "write the text again with an apostrophe in front, such as '- the first item"
            raise DataError(message, code="correction-invalid", where=where, hint=hint)
        if corrections.setdefault(id_, text) != text:
            message = f"the line {id_} has two corrections, {corrections[id_]!r} and {text!r}"
            raise DataError(message, code="correction-invalid", where=where, hint="leave only one of them")
    if not corrections:
        hint = "write a line's correct text into the column `correction`, or - to drop the line"
        raise DataError("has no corrections", code="correction-invalid", where=path, hint=hint)
    return corrections


def fix_dataset(
    dataset: Dataset,
    out: Path,
    *,
    corrections: Path | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> FixReport:
    """Write a repaired copy of a dataset to `out`, atomically, with a list of all repairs in `fixes.jsonl`.

    `corrections` is a table of corrected texts, see `read_corrections`, in UTF-8 or `encoding`; they get the
    dataset's text policy, and lines whose correction is `-` are dropped, in every split. Samples stay in the split
    they are stored in, even if a fold is selected.
    """
    with text_encoding(encoding):
        corrected = {} if corrections is None else read_corrections(corrections)
    require_free_dataset(out, dataset.folder, overwrite=overwrite, may_be_inside=False)
    splits = {split: list(_read_rows(dataset, split, may_be_short=True)) for split in Split}
    lost = {split: number for split, rows in splits.items() if (number := dataset.lost(split, len(rows)))}
    fixes = []
    rows = {row.sample.id: row for row in chain.from_iterable(splits.values())}
    if unknown := sorted(corrected.keys() - rows.keys()):
        message = f"corrects lines that the dataset does not have, such as {unknown[0]}"
        raise DataError(message, code="correction-invalid", where=corrections)
    for id_, text in corrected.items():
        row, after = rows[id_], None if text == DROP else dataset.card.policy().apply(text)
        if after != row.text:
            fixes.append(Fix(id_, "correction", row.text, after))
            row.columns["text"] = row.text if after is None else after
    splits = _without_dropped(splits, fixes)
    for row in chain.from_iterable(splits.values()):
        for change in fix_text(row.text):
            row.columns["text"] = change.after
            fixes.append(Fix(row.sample.id, change.rule, change.before, change.after))
    for find in (_find_duplicates, _find_near_duplicates):
        train, *evaluated = splits.values()
        fixes += find(train, [*chain.from_iterable(evaluated)])
        splits = _without_dropped(splits, fixes)
    evaluated_rows = [*splits[Split.VALIDATION], *splits[Split.TEST]]
    duplicates_left = len(evaluated_rows) - len({row.key for row in evaluated_rows})
    if not fixes and not lost:
        return FixReport(None, [], duplicates_left)
    samples = [replace(row.sample, text=row.text) for rows in splits.values() for row in rows]
    crossing = count_crossing(samples, [split for split, rows in splits.items() for _ in rows])
    repaired = {code: card.model_copy(deep=True) for code, card in dataset.card.repaired.items()}
    for fix in fixes:
        count_example(repaired, fix.code, str(fix))
    with writing_folder(out) as folder:
        # Inside the dataset, so that the list of changes goes where the dataset goes.
        lines = (json.dumps(asdict(fix), ensure_ascii=False) + "\n" for fix in fixes)
        (folder / FIXES_FILE).write_text("".join(lines), encoding="utf-8", newline="\n")
        changes = {
            "dsocr_version": __version__,
            "created": current_time().isoformat(timespec="seconds"),
            "splits": _write_samples(dataset, folder, splits, progress),
            "crossing": {**dataset.card.crossing, **crossing},
            "repaired": repaired,
            "notes": [*dataset.card.notes, *(f"samples of {split} that were lost: {lost[split]}" for split in lost)],
        }
        dataset.card.model_copy(update=changes).write(folder)
    return FixReport(out, fixes, duplicates_left, lost)


def copy_with_folds(dataset: Dataset, out: Path, folds: int, *, seed: int = 17) -> Dataset:
    """Write a copy of a dataset without folds that has some, by `draw_folds`; images become links where possible."""
    require_free_dataset(out, dataset.folder, overwrite=False)
    splits = {split: list(_read_rows(dataset, split)) for split in Split}
    rows = list(chain.from_iterable(splits.values()))
    unit, drawn = draw_folds([row.sample for row in rows], folds, seed)
    for row, fold in zip(rows, drawn, strict=True):
        row.columns["fold"] = fold
    with writing_folder(out) as folder:
        cards = _write_samples(dataset, folder, splits, None, link=True)
        changes = {"split_by": unit, "folds": max(drawn), "seed": seed, "splits": cards}
        dataset.card.model_copy(update=changes).write(folder)
    return Dataset.open(out)


_Splits = dict[Split, list[_StoredRow]]


def _without_dropped(splits: _Splits, fixes: list[Fix]) -> _Splits:
    dropped = {fix.id for fix in fixes if fix.after is None}
    return {split: [row for row in rows if row.sample.id not in dropped] for split, rows in splits.items()}


def _read_rows(dataset: Dataset, split: Split, *, may_be_short: bool = False) -> Iterator[_StoredRow]:
    samples = [sample for _, sample in dataset.stored(split, may_be_short=may_be_short)]
    if not samples:
        return
    lines = dataset.metadata(split).read_text(encoding="utf-8").split("\n")
    for sample, line in zip(samples, (line for line in lines if line.strip()), strict=True):
        yield _StoredRow(sample, json.loads(line), image_hash(sample))


def _find_duplicates(train: list[_StoredRow], evaluated: list[_StoredRow]) -> Iterator[Fix]:
    """Yield the samples of train that are in another split or earlier in train, by image and text."""
    first = {row.key: row.sample.id for row in reversed(evaluated)}
    for row in train:
        same_as = first.setdefault(row.key, row.sample.id)
        if same_as != row.sample.id:
            yield Fix(row.sample.id, "duplicate-image", row.text, None, same_as)


def _find_near_duplicates(train: list[_StoredRow], evaluated: list[_StoredRow]) -> Iterator[Fix]:
    """Yield the samples of train that are nearly the same as one in another split or as one that stays before them."""
    rows = [*evaluated, *train]
    counts = Counter(letters_of(row.text) for row in rows)
    repeated = {letters for row in train if counts[letters := letters_of(row.text)] > 1}
    measured = []
    for row in rows:
        if letters_of(row.text) in repeated:
            stats = measure_image(open_image(row.sample.image, max_pixels=MAX_PAGE_PIXELS))
            item = CheckedSample("", replace(row.sample, text=row.text), row.digest, stats=stats)
            measured += [] if stats.is_blank else [item]
    trained = {row.sample.id for row in train}
    same_as: dict[str, str] = {}
    for item, others in similar_with_same_text(measured):
        stays = next((other.sample.id for other in others if other.sample.id not in same_as), None)
        if stays is not None and item.sample.id in trained:
            same_as[item.sample.id] = stays
    for row in train:
        if row.sample.id in same_as:
            yield Fix(row.sample.id, "near-duplicate-image", row.text, None, same_as[row.sample.id])


def _write_samples(
    dataset: Dataset, folder: Path, splits: _Splits, progress: ProgressCallback | None, *, link: bool = False
) -> dict[Split, SplitCard]:
    for name in (SOURCES_FILE, SKIPPED_FILE):
        with suppress(FileNotFoundError):
            copyfile(dataset.folder / name, folder / name)
    total, done, cards = sum(map(len, splits.values())), 0, {}
    for split, rows in splits.items():
        if not rows:
            continue
        with closing(SplitWriter(folder, split, dataset.card.store)) as writer:
            for row in rows:
                image = row.sample.image
                content = image if link and isinstance(image, Path) else read_bytes(image)
                # `datasets` requires the same columns in every row, but old rows may lack some.
                writer.add({"writer": "", "page": "", "document": "", **row.columns}, content, row.digest)
                done += 1
                if progress:
                    progress(done, total)
        cards[split] = writer.card()
    return cards
