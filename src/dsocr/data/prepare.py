"""From somebody's scans and transcriptions to a dataset folder: read, name, cut, split, write."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from dsocr import __version__
from dsocr.data.card import Card, LeftOutCard, SplitBy
from dsocr.data.cutting import CutSample, CutTask, cut_image
from dsocr.data.file_names import unique_stems
from dsocr.data.notes import Notes
from dsocr.data.opening import opened
from dsocr.data.placing import count_crossing, place_samples, split_unit
from dsocr.data.sources import choose_format
from dsocr.data.sources.layout import LeftOut, SourceImage, Unit
from dsocr.data.splits import parse_fractions
from dsocr.data.texts import with_texts
from dsocr.data.units import choose_unit, with_units
from dsocr.data.writers import with_pages, with_writers
from dsocr.data.writing import refuse_output, write_split
from dsocr.errors import DataError
from dsocr.runs import writing_folder
from dsocr.samples import Split
from dsocr.text import TextPolicy

EXAMPLES = 10
"""How many of a kind the card lists."""

_CUT = "cut"

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
    unit: Unit | None = None,
    seed: int = 17,
    columns: Mapping[str, str] | None = None,
    text_policy: TextPolicy = NFC_COLLAPSED,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PrepareReport:
    """Writes the dataset folder `out` from a folder, a table or another file, a zip archive, or `hf:owner/name`.

    `writer` and `page` are a table's column or a pattern searched in each image's file name: its first group, or all
    it matches, is the name. `split_by` None means the fairest unit there is: the splits the source gives, else
    writers, else pages, else texts. `unit` is what a sample is an image of; None means what the source transcribes,
    which is lines unless it says otherwise. With `strict` the first fault is an error; without, faults are left out,
    counted and listed.
    """
    fractions = parse_fractions(split)
    refuse_output(out, source, overwrite=overwrite)
    notes = Notes(strict)
    with opened(source, near=out) as held, writing_folder(out) as folder:
        chosen = choose_format(held.path, format, columns or {})
        images = notes.sifted(chain(held.told, chosen.read(held.path, columns or {})))
        images = with_pages(with_writers(images, writer, notes), page, notes)
        # Before the texts, as those without one are left out there, and a page must not lose a line unnoticed.
        sample_unit = choose_unit(unit, chosen)
        images = with_units(images, sample_unit, notes)
        images = with_texts(images, notes, text_policy)
        samples = _cut(images, folder / _CUT, notes, progress)
        if not samples:
            raise DataError(f"no sample is left{notes.told()}", where=source)
        split_by = split_unit(samples, split_by)
        placed = place_samples(samples, split_by, fractions, seed, notes)
        splits = {split: write_split(folder, split, folder / _CUT, placed[split]) for split in Split if placed[split]}
        shutil.rmtree(folder / _CUT)
        card = Card(
            dsocr_version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=held.name,
            source_format=chosen.name,
            unit=sample_unit,
            writer=writer,
            page=page,
            split_by=split_by,
            fractions=None if split_by == "given" else fractions,
            seed=None if split_by == "given" else seed,
            text_policy=text_policy.as_dict(),
            splits=splits,
            crossing=count_crossing(placed),
            left_out=_counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
            unmatched=_counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
            remarks=notes.remarks,
        )
        card.write(folder)
    return PrepareReport(out, card, notes.left_out, dict(notes.unmatched))


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


def _counted(items: Iterable[tuple[str, str]]) -> dict[str, LeftOutCard]:
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, example in items:
        by_kind[str(kind)].append(example)
    return {kind: LeftOutCard(count=len(found), examples=found[:EXAMPLES]) for kind, found in by_kind.items()}
