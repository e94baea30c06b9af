"""From somebody's scans and transcriptions to a dataset folder: read, name, cut, split, write."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dsocr import __version__
from dsocr.data.cutting import Cut, CutLine, Refusal, stored_outline
from dsocr.data.dataset import Card, FixedCard, SkippedCard, SplitCard, Store, read_card
from dsocr.data.dataset_writer import earlier_cuts, refuse_output, sample_row, write_sources, write_split
from dsocr.data.journal import CutImage, Cutters, Journal, StoredSample, Work, as_json, recover, work_folder
from dsocr.data.placement import (
    EXAMPLES,
    Earlier,
    Notes,
    Placing,
    SplitPlan,
    count_crossing,
    place,
    read_earlier,
    read_fixed,
)
from dsocr.data.splits import GIVEN, Placeable, parse_fractions
from dsocr.document import Box, Item, Line, Outline, Page, Skipped, SkipReason, Split, Unit, bounds
from dsocr.errors import DataError
from dsocr.formats import SourceFormat, choose_format
from dsocr.io.encodings import text_encoding
from dsocr.io.files import UniqueStems, is_dataset, now
from dsocr.io.processes import worker_processes
from dsocr.io.sources import opened
from dsocr.text import TextChange, TextPolicy, is_blank

_STICKING_OUT = 0.1
"""Parts of its height that a line may be outside its region and be taken for being inside.

Of 1,316 lines of eScriptorium 18 are drawn more than 10 pixels outside theirs: cut off, their text would say more than
their image shows.
"""


def choose_unit(wanted: Unit | None, format_: SourceFormat) -> Unit:
    """What was asked for, else what the format transcribes; an error where that would have to be taken apart."""
    if wanted not in (None, format_.unit) and format_.unit != "line":
        message = f"{format_.title} are transcribed {format_.unit} by {format_.unit}, so a sample cannot be a {wanted}"
        raise DataError(message, hint=f"leave the unit out, or say {format_.unit}")
    return wanted or format_.unit


class Units:
    """Puts the lines of images together into samples of one unit."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._outlined = self._in_regions = False

    def of(self, image: Page, notes: Notes) -> Page:
        """The image with a line for each unit, the texts of its lines under each other.

        An image that comes whole stays as it is. A region is outlined by its own outline where that holds its lines,
        else by a box around them; a page is the whole image. A line that stands in no region is one by itself.
        """
        self._outlined = self._outlined or any(line.outline for line in image.lines)
        self._in_regions = self._in_regions or any(line.region for line in image.lines)
        return image if self._unit == "line" else _of_units(image, self._unit, notes)

    def demand_regions(self) -> None:
        """An error where regions were asked for and no line stood in one, told when all images have been seen."""
        if self._unit == "region" and self._outlined and not self._in_regions:
            hint = "make samples of whole pages, or of lines"
            raise DataError("no line of the source says which region it stands in", hint=hint)


def _of_units(image: Page, unit: Unit, notes: Notes) -> Page:
    if _comes_whole(image):
        return image
    groups = [(image.where, [*image.lines, *image.skipped])] if unit == "page" else regions_of(image)
    found = [_joined(where, lines, unit, frozenset(image.skipped)) for where, lines in groups]
    for item in found:
        if isinstance(item, Skipped):
            notes.add(item)
    return replace(image, lines=tuple(item for item in found if isinstance(item, Line)), skipped=())


def _comes_whole(image: Page) -> bool:
    return len(image.lines) == 1 and not image.skipped and not (image.lines[0].outline or image.lines[0].region)


def regions_of(image: Page) -> list[tuple[str, list[Line]]]:
    """Where each region stands and its lines, in the order in which the regions begin."""
    groups: dict[str, list[Line]] = {}
    for line in [*image.lines, *image.skipped]:
        groups.setdefault(f"{image.where}#{line.region.id}" if line.region else line.where, []).append(line)
    return list(groups.items())


def _joined(where: str, lines: Sequence[Line], unit: Unit, lost: frozenset[Line]) -> Line | Skipped:
    if all(is_blank(line.text) for line in lines):
        return Skipped(SkipReason.NO_TEXT, where, f"nothing on the {unit} is transcribed")
    for line in lines:
        if is_blank(line.text) or line in lost:
            why = "could not be read" if line in lost else "is not transcribed"
            return Skipped(SkipReason.GAP, where, f"a line of the {unit} {why}: {line.where}")
    outline = None if unit == "page" else around(lines)
    if unit == "region" and outline is None:
        return Skipped(SkipReason.NO_OUTLINE, where, "neither the region nor its lines have an outline")
    return Line("\n".join(line.text for line in lines), where, outline, lines[0].region)


def around(lines: Sequence[Line]) -> Outline | None:
    """The region's own outline where it holds its lines, else a box around them all."""
    boxes = [line.outline.box for line in lines if line.outline]
    region = lines[0].region
    if region and region.outline:
        if not any(_sticks_out(box, region.outline.box) for box in boxes):
            return region.outline
        boxes.append(region.outline.box)
    corners = [corner for left, top, right, bottom in boxes for corner in ((left, top), (right - 1, bottom - 1))]
    return Outline(bounds(corners)) if corners else None


def _sticks_out(line: Box, region: Box) -> bool:
    """True where more of a line is outside its region than tails and accents that a program outlined generously."""
    farthest = max(region[0] - line[0], region[1] - line[1], line[2] - region[2], line[3] - region[3])
    return farthest > _STICKING_OUT * (line[3] - line[1])


class Names:
    """What the user says about writers, pages and documents: a column or a pattern each, None where nothing is said.

    One that matches nothing at all is an error, told when all images have been seen.
    """

    def __init__(self, wanted: Mapping[str, str | None]) -> None:
        self._namers = [_Namer(kind, said) for kind, said in wanted.items() if said is not None]

    def named(self, image: Page, notes: Notes) -> Page:
        """The image with its names."""
        for namer in self._namers:
            image = namer.named(image, notes)
        return image

    def demand_matches(self) -> None:
        """An error where a pattern matched none of the images it was asked about."""
        for namer in self._namers:
            namer.demand_match()


class _Namer:
    """A column of this name where an image has one, else the pattern, searched in the image's name."""

    def __init__(self, kind: str, wanted: str) -> None:
        self._kind = kind
        self._wanted = wanted
        self._matched = False
        self._unmatched: Page | None = None

    def named(self, image: Page, notes: Notes) -> Page:
        if self._wanted in image.columns:
            self._matched = True
            return replace(image, **{self._kind: image.columns[self._wanted].strip() or None})  # type: ignore[arg-type]
        name = _matched(_compiled(self._kind, self._wanted), image.name)
        if name is None:
            notes.add_unmatched(self._kind, self._wanted, image.name)
            self._unmatched = self._unmatched or image
        self._matched = self._matched or name is not None
        return replace(image, **{self._kind: name})  # type: ignore[arg-type]

    def demand_match(self) -> None:
        if self._matched or self._unmatched is None:
            return
        hint = f"a file name here is {self._unmatched.name!r}"
        if self._unmatched.columns:
            hint += f", and the columns are: {', '.join(self._unmatched.columns)}"
        if self._wanted[:1] == self._wanted[-1:] == "'":
            hint = "the quotes came along, as they do in Windows' cmd: put the pattern in double ones there"
        raise DataError(f"the {self._kind} pattern {self._wanted} matches no file name", hint=hint)


def _compiled(kind: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise DataError(f"the {kind} pattern {pattern} is not a regular expression: {error}") from error


def _matched(pattern: re.Pattern[str], name: str) -> str | None:
    """The first group, else the whole match. A pattern with a slash sees the folders too, any other the file's name."""
    found = pattern.search(name if "/" in pattern.pattern else name.rpartition("/")[2])
    return ((found[1] if pattern.groups else found[0]) or None) if found else None


_HALF = re.compile("[\ud800-\udfff]")
"""What JSON can write and UTF-8 cannot."""

_AROUND = 20
"""Characters that an example shows on either side of a change."""
_LONGEST = 60
_DROPPED = {
    "struck": (SkipReason.STRUCK, "the transcription holds struck-out text, which the policy drops"),
    "unclear": (SkipReason.UNCLEAR, "the transcription holds an unclear place, which the policy drops"),
}


def with_text(image: Page, notes: Notes, policy: TextPolicy) -> Page:
    """The image with texts as they are stored; lines without one are left out, and an image may be left with none."""
    lines = []
    for line in image.lines:
        revision = policy.revise(line.text)
        if problem := _problem(line, revision.text, revision.dropped):
            notes.add(problem)
            continue
        for rule in dict.fromkeys(change.rule for change in revision.changes):
            first = next(change for change in revision.changes if change.rule == rule)
            notes.add_change(rule, line.where, _told(first))
        lines.append(replace(line, text=revision.text))
    return replace(image, lines=tuple(lines))


def _problem(line: Line, text: str, dropped: str | None) -> Skipped | None:
    if is_blank(text):
        left = "nothing is left of the transcription" if not is_blank(line.text) else "the transcription is empty"
        return Skipped(SkipReason.NO_TEXT, line.where, left)
    if _HALF.search(text):
        return Skipped(SkipReason.BAD_SOURCE, line.where, "the transcription holds half of a character")
    if dropped:
        reason, message = _DROPPED[dropped]
        return Skipped(reason, line.where, message)
    return None


def _told(change: TextChange) -> str:
    """The changed part of a text, before and after, with what cannot be seen written as its number."""
    before, after = change.before, change.after
    same = next((place for place, letter in enumerate(before) if after[place : place + 1] != letter), len(before))
    start = max(same - _AROUND, 0)
    return f"{_part(before, start)} -> {_part(after, start)}"


def _part(text: str, start: int) -> str:
    part = text[start : start + _LONGEST]
    shown = "".join(_shown(character) for character in part)
    return f"'{'…' if start else ''}{shown}{'…' if start + _LONGEST < len(text) else ''}'"


def _shown(character: str) -> str:
    """A character as a person can see it: what joins another, shows nothing or is no plain space by its number."""
    hidden = unicodedata.category(character) in {"Mn", "Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    if hidden or (character.isspace() and character != " "):
        return f"\\u{ord(character):04x}"
    return character


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read: `read` begins anew each time."""

    read: Callable[[], Iterator[Item]]
    names: Names
    units: Units
    text_policy: TextPolicy

    def images(self, notes: Notes) -> Iterator[Page]:
        """The images that have samples with a text; all else is noted."""
        for image in notes.sifted(self.read()):
            # Before the texts, as those without one are left out there, and a page must not lose a line unnoticed.
            samples = self.units.of(self.names.named(image, notes), notes)
            if (stored := with_text(samples, notes, self.text_policy)).lines:
                yield stored

    def count(self) -> int:
        """How many images there will be; settings that fit none of them are an error before any work is done."""
        count = sum(1 for _ in self.images(Notes(strict=False)))
        self.names.demand_matches()
        self.units.demand_regions()
        return count


class Recorder:
    """Gives the samples their names, counts the images, and notes what could not be cut."""

    def __init__(self, journal: Journal, notes: Notes) -> None:
        self.images = 0
        self.recalled = 0
        self._journal = journal
        self._notes = notes
        self._stems = UniqueStems()

    def add(self, found: CutImage) -> None:
        """The next image."""
        self.images += 1
        self.recalled += found.recalled
        image, cut = found.image, found.cut
        if isinstance(cut, Refusal):
            self._notes.add(Skipped(cut.reason, image.where, cut.message))
            named: Cut | Refusal = cut
        else:
            named = Cut(cut.size, tuple(self._recorded(found, cut)))
        row = {"source": image.where, "image": image.name, "key": found.key, "cut": as_json(named)}
        self._journal.add_source(row)

    def facts(self) -> list[Placeable]:
        """What decides each sample's split, in order."""
        return [_placeable(sample) for sample in self._journal.samples()]

    def _recorded(self, found: CutImage, cut: Cut) -> Iterator[CutLine | Refusal]:
        """The image's lines under the names they will have."""
        image, stem = found.image, self._stems.take(found.image.name)
        for number, (line, result) in enumerate(zip(image.lines, cut.lines, strict=True), start=1):
            if isinstance(result, Refusal):
                self._notes.add(Skipped(result.reason, line.where, result.message))
                yield result
                continue
            is_whole = line.outline is None and number == 1
            name = stem if is_whole else self._stems.take_stem(f"{stem}_{number:04d}")
            name += Path(result.file).suffix
            row = sample_row(name, replace(line, outline=stored_outline(line, image, cut.size)), image)
            stored = found.folder / result.file
            self._journal.add(StoredSample(stored, result.digest, name, row, image.name, image.split))
            yield replace(result, file=name)


def _placeable(sample: StoredSample) -> Placeable:
    row = sample.row
    return Placeable(
        name=sample.image,
        where=row["source"],
        text=row["text"],
        writer=row["writer"] or None,
        document=row["document"] or None,
        page=row["page"] or None,
        split=sample.given,
    )


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
    skipped: list[Skipped]
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
    return PrepareReport(out, card, notes.skipped, dict(notes.unmatched), recorder.images, recorder.recalled)


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
        "text_changes": {rule: SkippedCard(count=part.count, examples=part.examples) for rule, part in changes},
        "left_out": counted((item.reason, f"{item.where}: {item.message}") for item in notes.skipped),
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


def counted(items: Iterable[tuple[str, str]]) -> dict[str, SkippedCard]:
    """How many of each kind there are, with the first of them."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, example in items:
        by_kind[str(kind)].append(example)
    return {kind: SkippedCard(count=len(found), examples=found[:EXAMPLES]) for kind, found in by_kind.items()}
