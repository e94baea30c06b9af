"""From somebody's scans and transcriptions to a dataset folder: read, name, cut, split, write."""

import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dsocr import __version__
from dsocr.data.card import Card, LeftOutCard, SplitBy
from dsocr.data.cutting import CutSample, CutTask, cut_image
from dsocr.data.file_names import unique_stems
from dsocr.data.notes import Notes
from dsocr.data.sources import choose_format
from dsocr.data.sources.layout import LeftOut, Reason, SourceImage
from dsocr.data.splits import assign_groups, crossing, parse_fractions
from dsocr.data.writers import with_pages, with_writers
from dsocr.data.writing import refuse_output, write_split
from dsocr.errors import DataError
from dsocr.runs import writing_folder
from dsocr.samples import Split
from dsocr.text import TextPolicy, comparable, is_blank

EXAMPLES = 10
"""How many of a kind the card lists."""

_CUT = "cut"

_HALF = re.compile("[\ud800-\udfff]")
"""What JSON can write and UTF-8 cannot."""


Progress = Callable[[int, int], None]
"""Told after each image: how many are done, and how many there are."""

NFC_COLLAPSED = TextPolicy()


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What was made, and what of the source is not in it."""

    dataset: Path
    card: Card
    left_out: list[LeftOut]
    unmatched: dict[str, list[str]]


def prepare(
    source: Path,
    out: Path,
    *,
    format: str | None = None,
    writer: str | None = None,
    page: str | None = None,
    split: str = "0.8/0.1/0.1",
    split_by: SplitBy | None = None,
    seed: int = 17,
    columns: Mapping[str, str] | None = None,
    text_policy: TextPolicy = NFC_COLLAPSED,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PrepareReport:
    """Writes the dataset folder `out` from the folder or table `source`.

    `writer` and `page` are a table's column or a pattern searched in each image's file name: its first group, or all
    it matches, is the name. `split_by` None means the fairest unit there is: the splits the source gives, else
    writers, else pages, else texts. With `strict` the first fault is an error; without, faults are left out, counted
    and listed.
    """
    fractions = parse_fractions(split)
    refuse_output(out, source, overwrite=overwrite)
    chosen = choose_format(source, format, columns or {})
    notes = Notes(strict)
    images = notes.sifted(chosen.read(source, columns or {}))
    images = with_pages(with_writers(images, writer, notes), page, notes)
    images = _with_texts(images, notes, text_policy)
    with writing_folder(out) as folder:
        samples = _cut(images, folder / _CUT, notes, progress)
        if not samples:
            raise DataError(f"no sample is left{notes.told()}", where=source)
        unit = _unit(samples, split_by)
        placed = _placed(samples, unit, fractions, seed, notes)
        splits = {split: write_split(folder, split, folder / _CUT, placed[split]) for split in Split if placed[split]}
        shutil.rmtree(folder / _CUT)
        card = Card(
            dsocr_version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=source.resolve().name,
            source_format=chosen.name,
            writer=writer,
            page=page,
            split_by=unit,
            fractions=None if unit == "given" else fractions,
            seed=None if unit == "given" else seed,
            text_policy=text_policy.as_dict(),
            splits=splits,
            crossing=_crossing(placed),
            left_out=_counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
            unmatched=_counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
        )
        card.write(folder)
    return PrepareReport(out, card, notes.left_out, dict(notes.unmatched))


def _with_texts(images: list[SourceImage], notes: Notes, policy: TextPolicy) -> list[SourceImage]:
    """The images with texts as they are stored; lines without one are left out."""
    return [kept for image in images if (kept := _with_text(image, notes, policy)).lines]


def _with_text(image: SourceImage, notes: Notes, policy: TextPolicy) -> SourceImage:
    lines = []
    for line in image.lines:
        text = policy.apply(line.text)
        if is_blank(text):
            notes.add(LeftOut(Reason.NO_TEXT, line.where, "the transcription is empty"))
        elif _HALF.search(text):
            notes.add(LeftOut(Reason.BAD_SOURCE, line.where, "the transcription holds half of a character"))
        else:
            lines.append(replace(line, text=text))
    return replace(image, lines=tuple(lines))


def _cut(images: list[SourceImage], folder: Path, notes: Notes, progress: Progress | None) -> list[CutSample]:
    folder.mkdir()
    stems = unique_stems(image.name for image in images)
    samples: list[CutSample] = []
    for done, (image, stem) in enumerate(zip(images, stems, strict=True), start=1):
        cut, left_out = cut_image(CutTask(image, folder, stem))
        samples += cut
        for item in left_out:
            notes.add(item)
        if progress:
            progress(done, len(images))
    return samples


def _unit(samples: list[CutSample], wanted: SplitBy | None) -> SplitBy:
    """What the split is made by: what was asked for if it is known of any sample, else the fairest that is."""
    known: dict[SplitBy, bool] = {
        "given": len({sample.image.split for sample in samples} - {None}) > 1,
        "writer": any(sample.image.writer for sample in samples),
        "page": any(sample.image.page for sample in samples),
        "text": True,
    }
    if wanted is None:
        return next(unit for unit, is_known in known.items() if is_known)
    if not known.get(wanted):
        units = ", ".join(unit for unit, is_known in known.items() if is_known)
        raise DataError(f"cannot split by {wanted!r}: it is not known of the samples; known are: {units}")
    return wanted


def _placed(
    samples: list[CutSample], split_by: SplitBy, fractions: Mapping[Split, float], seed: int, notes: Notes
) -> dict[Split, list[CutSample]]:
    """The samples of each split, in the source's order."""
    placed: dict[Split, list[CutSample]] = {split: [] for split in Split}
    if split_by == "given":
        splits = [sample.image.split for sample in samples]
    else:
        groups = [_group(sample, split_by) for sample in samples]
        assigned = assign_groups(Counter(groups), fractions, seed, unit=split_by)
        splits = [assigned[group] for group in groups]
    for sample, split in zip(samples, splits, strict=True):
        if split is None:
            notes.add(LeftOut(Reason.NO_SPLIT, sample.line.where, "neither train, validation nor test"))
        else:
            placed[split].append(sample)
    return placed


def _group(sample: CutSample, split_by: SplitBy) -> str:
    """What must stay together; where the unit is not known, the next smaller one."""
    if split_by == "writer" and sample.image.writer:
        return f"writer {sample.image.writer}"
    if split_by in {"writer", "page"} and sample.image.page:
        return f"page {sample.image.page}"
    return f"text {comparable(sample.line.text)}"


def _crossing(placed: Mapping[Split, list[CutSample]]) -> dict[str, int]:
    """How many writers, pages and texts stand in more than one split."""

    def pairs() -> Iterator[tuple[CutSample, Split]]:
        return ((sample, split) for split, samples in placed.items() for sample in samples)

    return {
        "writers": len(crossing((sample.image.writer, split) for sample, split in pairs())),
        "pages": len(crossing((sample.image.page, split) for sample, split in pairs())),
        "texts": len(crossing((comparable(sample.line.text), split) for sample, split in pairs())),
    }


def _counted(items: Iterable[tuple[str, str]]) -> dict[str, LeftOutCard]:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, example in items:
        by_kind[str(kind)].append(example)
    return {kind: LeftOutCard(count=len(found), examples=found[:EXAMPLES]) for kind, found in by_kind.items()}
