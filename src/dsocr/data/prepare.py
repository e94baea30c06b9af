"""From somebody's scans and transcriptions to a dataset folder: read, name, cut, split, write."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dsocr import __version__
from dsocr.data.card import Card, FixedCard, LeftOutCard, read_card
from dsocr.data.cutting import CutSample, CutTask, cut_image
from dsocr.data.earlier import Earlier, read_earlier
from dsocr.data.file_names import unique_stems
from dsocr.data.fixed import read_fixed
from dsocr.data.notes import EXAMPLES, Notes
from dsocr.data.paths import is_dataset
from dsocr.data.placing import SplitPlan, count_crossing, place
from dsocr.data.sources import choose_format
from dsocr.data.sources.layout import LeftOut, SourceImage
from dsocr.data.sources.texts import text_encoding
from dsocr.data.splits import parse_fractions
from dsocr.data.texts import with_text
from dsocr.data.units import GIVEN, Placeable
from dsocr.data.writers import with_documents, with_pages, with_writers
from dsocr.data.writing import refuse_output, write_split
from dsocr.errors import DataError
from dsocr.runs import writing_folder
from dsocr.samples import Split
from dsocr.text import TextPolicy

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
    document: str | None = None,
    split: str = "0.8/0.1/0.1",
    split_by: str | None = None,
    seed: int = 17,
    stratify: bool = True,
    folds: int | None = None,
    fixed: Path | None = None,
    like: Path | None = None,
    columns: Mapping[str, str] | None = None,
    text_policy: TextPolicy = NFC_COLLAPSED,
    encoding: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PrepareReport:
    """Writes the dataset folder `out` from the folder or table `source`.

    `writer`, `page` and `document` are a table's column or a pattern searched in each image's file name: its first
    group, or all it matches, is the name. `split_by` None means the fairest unit there is: the splits the source
    gives, else writers, else documents, pages, texts; `writer+text` joins units. `fixed` lists names that must stand in
    a split. The groups of the dataset `like`, or of one made in the same way that is overwritten, stay where they are.
    With `strict` the first fault is an error; without, faults are left out, counted and listed.
    """
    with text_encoding(encoding):
        named = read_fixed(fixed) if fixed else None
    earlier = read_earlier(like) if like else None
    plan = SplitPlan(
        parse_fractions(split), split_by, seed, stratify=stratify, folds=folds, fixed=named, earlier=earlier
    )
    refuse_output(out, source, overwrite=overwrite)
    notes = Notes(strict)
    if like is None and is_dataset(out):
        plan = replace(plan, earlier=_made_alike(out, source, plan, (writer, page, document), notes))
    with text_encoding(encoding):
        chosen = choose_format(source, format, columns or {})
        images = notes.sifted(chosen.read(source, columns or {}))
    images = with_pages(with_writers(images, writer, notes), page, notes)
    images = with_documents(images, document, notes)
    images = [kept for image in images if (kept := with_text(image, notes, text_policy)).lines]
    with writing_folder(out) as folder:
        samples = _cut(images, folder / _CUT, notes, progress)
        if not samples:
            raise DataError(f"no sample is left{notes.told()}", where=source)
        facts = [placeable(sample) for sample in samples]
        placing = place(facts, plan, notes)
        placed: dict[Split, list[tuple[CutSample, int | None]]] = {split: [] for split in Split}
        for sample, where, fold in zip(samples, placing.splits, placing.folds, strict=True):
            if where is not None:
                placed[where].append((sample, fold))
        drawn = placing.unit != GIVEN
        splits = {
            split: write_split(folder, split, folder / _CUT, *zip(*placed[split], strict=True))
            for split in Split
            if placed[split]
        }
        shutil.rmtree(folder / _CUT)
        card = Card(
            dsocr_version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            source=source.resolve().name,
            source_format=chosen.name,
            writer=writer,
            page=page,
            document=document,
            split_by=placing.unit,
            fractions=plan.targets() if drawn else None,
            seed=seed if drawn else None,
            stratified=drawn and stratify,
            folds=folds,
            fixed=FixedCard(file=plan.fixed.file, sha256=plan.fixed.sha256, names=len(plan.fixed.names))
            if plan.fixed
            else None,
            like=plan.earlier.name if plan.earlier and drawn else None,
            text_policy=text_policy.as_dict(),
            splits=splits,
            crossing=count_crossing(facts, placing.splits),
            text_changes={
                rule: LeftOutCard(count=changes.count, examples=changes.examples)
                for rule, changes in notes.text_changes.items()
            },
            left_out=_counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
            unmatched=_counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
            remarks=notes.remarks,
        )
        card.write(folder)
    return PrepareReport(out, card, notes.left_out, dict(notes.unmatched))


def _made_alike(
    out: Path, source: Path, plan: SplitPlan, patterns: tuple[str | None, str | None, str | None], notes: Notes
) -> Earlier | None:
    """The dataset that is overwritten, if it was made in the same way: its groups stay in their splits."""
    try:
        card = read_card(out)
        settings = (card.source, (card.writer, card.page, card.document), card.fractions, card.seed, card.folds)
        wanted = (source.resolve().name, patterns, plan.targets(), plan.seed, plan.folds)
        same_unit = card.split_by != GIVEN and plan.split_by in (None, card.split_by)
        # What was drawn alike or by a list is drawn anew where that is no longer asked for.
        no_less = (plan.stratify or not card.stratified) and (plan.fixed is not None or card.fixed is None)
        return read_earlier(out) if settings == wanted and same_unit and no_less else None
    except DataError as error:
        notes.remark(f"what is overwritten cannot be read, so all is placed anew: {error.message}")
        return None


def placeable(sample: CutSample) -> Placeable:
    """What decides a sample's split."""
    image = sample.image
    return Placeable(
        image.name, sample.line.where, sample.line.text, image.writer, image.document, image.page, image.split
    )


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
