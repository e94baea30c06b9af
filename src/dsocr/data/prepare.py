"""From somebody's scans and transcriptions to a dataset folder: read, name, cut, split, write."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dsocr import __version__
from dsocr.data.card import Card, FixedCard, LeftOutCard, SplitCard, Store, read_card
from dsocr.data.clock import now
from dsocr.data.cutters import Cutters
from dsocr.data.earlier import Earlier, read_earlier
from dsocr.data.fixed import read_fixed
from dsocr.data.grouping import GIVEN
from dsocr.data.notes import EXAMPLES, Notes
from dsocr.data.opening import opened
from dsocr.data.paths import is_dataset
from dsocr.data.placing import Placing, SplitPlan, count_crossing, place
from dsocr.data.processes import worker_processes
from dsocr.data.reading import Reading
from dsocr.data.recording import Recorder
from dsocr.data.sources import choose_format
from dsocr.data.sources.layout import LeftOut, Unit
from dsocr.data.sources.texts import text_encoding
from dsocr.data.splits import parse_fractions
from dsocr.data.units import Units, choose_unit
from dsocr.data.work import Work, recover, work_folder
from dsocr.data.writers import Names
from dsocr.data.writing import earlier_cuts, refuse_output, write_sources, write_split
from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.text import TextPolicy

Progress = Callable[[int, int], None]
"""Told after each image: how many are done, and how many there are."""

NFC_COLLAPSED = TextPolicy()


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What was made, and what of the source is not in it.

    Of the `images` of the source, `recalled` had been cut before and were taken as they were.
    """

    dataset: Path
    card: Card
    left_out: list[LeftOut]
    unmatched: dict[str, list[str]]
    images: int
    recalled: int


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
    unit: Unit | None = None,
    seed: int = 17,
    stratify: bool = True,
    folds: int | None = None,
    fixed: Path | None = None,
    like: Path | None = None,
    columns: Mapping[str, str] | None = None,
    text_policy: TextPolicy = NFC_COLLAPSED,
    store: Store = "files",
    encoding: str | None = None,
    workers: int | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PrepareReport:
    """Writes the dataset folder `out` from a folder, a table or another file, a zip archive, or `hf:owner/name`.

    `writer`, `page` and `document` are a table's column or a pattern searched in each image's file name: its first
    group, or all it matches, is the name. `split_by` None means the fairest unit there is: the splits the source
    gives, else writers, else documents, pages, texts; `writer+text` joins units. `fixed` lists names that must stand in
    a split. The groups of the dataset `like`, or of one made in the same way that is overwritten, stay where they are.
    `unit` is what a sample is an image of; None means what the source transcribes, lines unless it says otherwise.
    `store` says whether images are files of their own or lie in Parquet files. `workers` is the number of processes,
    None one a core. With `strict` the first fault is an error; without, faults are left out, counted and listed. What
    an earlier `prepare` of the same source has cut, finished or killed, is not cut again.
    """
    with text_encoding(encoding):
        named = read_fixed(fixed) if fixed else None
    earlier = read_earlier(like) if like else None
    plan = SplitPlan(
        parse_fractions(split), split_by, seed, stratify=stratify, folds=folds, fixed=named, earlier=earlier
    )
    recover(out)
    refuse_output(out, source, overwrite=overwrite)
    notes = Notes(strict)
    with text_encoding(encoding), work_folder(out) as work, opened(source, work.unpacked) as held:
        chosen = choose_format(held.path, format, columns or {})
        sample_unit = choose_unit(unit, chosen)
        if like is None and is_dataset(out):
            plan = replace(plan, earlier=_made_alike(out, held.name, plan, (writer, page, document), notes))
        names = Names({"writer": writer, "page": page, "document": document})
        read = partial(chosen.read, held.path, columns or {})
        reading = Reading(lambda: chain(held.told, read()), names, Units(sample_unit), text_policy)
        total = reading.count()
        work.journal.learn(earlier_cuts(out))
        recorder = Recorder(work.journal, notes)
        with worker_processes(workers) as crew:
            cutters = Cutters(work.journal, work.cut, out, crew)
            for image in cutters.cut_all(reading.images(notes)):
                recorder.add(image)
                if progress:
                    progress(recorder.images, total)
        facts = recorder.facts()
        if not facts:
            raise DataError(f"no sample is left{notes.told()}", where=source)
        placing = place(facts, plan, notes)
        work.journal.place(placing.splits, placing.folds)
        card = Card(
            dsocr_version=__version__,
            created=now().isoformat(timespec="seconds"),
            source=held.name,
            source_format=chosen.name,
            unit=sample_unit,
            writer=writer,
            page=page,
            document=document,
            text_policy=text_policy.as_dict(),
            splits=_write_splits(work, placing, store),
            store=store,
            crossing=count_crossing(facts, placing.splits),
            **_told_of_splitting(plan, placing),
            **_told_by_notes(notes),
        )
        write_sources(work.draft, work.journal)
        card.write(work.draft)
    return PrepareReport(out, card, notes.left_out, dict(notes.unmatched), recorder.images, recorder.recalled)


def _write_splits(work: Work, placing: Placing, store: Store) -> dict[Split, SplitCard]:
    filled = [split for split in Split if split in placing.splits]
    return {split: write_split(work.draft, split, work.journal.samples(split), store) for split in filled}


def _told_of_splitting(plan: SplitPlan, placing: Placing) -> dict[str, Any]:
    """What the card says of how the splits came about."""
    drawn, fixed = placing.unit != GIVEN, plan.fixed
    return {
        "split_by": placing.unit,
        "fractions": plan.targets() if drawn else None,
        "seed": plan.seed if drawn else None,
        "stratified": drawn and plan.stratify,
        "folds": plan.folds,
        "fixed": FixedCard(file=fixed.file, sha256=fixed.sha256, names=len(fixed.names)) if fixed else None,
        "like": plan.earlier.name if plan.earlier and drawn else None,
    }


def _told_by_notes(notes: Notes) -> dict[str, Any]:
    """What the card says of what was changed, left out or not found."""
    changes = notes.text_changes.items()
    return {
        "text_changes": {rule: LeftOutCard(count=part.count, examples=part.examples) for rule, part in changes},
        "left_out": counted((item.reason, f"{item.where}: {item.message}") for item in notes.left_out),
        "unmatched": counted((kind, name) for kind, names in notes.unmatched.items() for name in names),
        "remarks": notes.remarks,
    }


def _made_alike(
    out: Path, source: str, plan: SplitPlan, patterns: tuple[str | None, str | None, str | None], notes: Notes
) -> Earlier | None:
    """The dataset that is overwritten, if it was made in the same way: its groups stay in their splits."""
    try:
        card = read_card(out)
        settings = (
            _without_commit(card.source),
            (card.writer, card.page, card.document),
            card.fractions,
            card.seed,
            card.folds,
        )
        wanted = (_without_commit(source), patterns, plan.targets(), plan.seed, plan.folds)
        same_unit = card.split_by != GIVEN and plan.split_by in (None, card.split_by)
        # What was drawn alike or by a list is drawn anew where that is no longer asked for.
        no_less = (plan.stratify or not card.stratified) and (plan.fixed is not None or card.fixed is None)
        return read_earlier(out) if settings == wanted and same_unit and no_less else None
    except DataError as error:
        notes.remark(f"what is overwritten cannot be read, so all is placed anew: {error.message}")
        return None


def _without_commit(source: str) -> str:
    """A source's name; a dataset of the Hub is the same one at another commit."""
    return source.partition("@")[0] if source.startswith("hf:") else source


def counted(items: Iterable[tuple[str, str]]) -> dict[str, LeftOutCard]:
    """How many of each kind there are, with the first of them."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, example in items:
        by_kind[str(kind)].append(example)
    return {kind: LeftOutCard(count=len(found), examples=found[:EXAMPLES]) for kind, found in by_kind.items()}
