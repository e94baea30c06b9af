"""Assign each sample to a split and a fold: by unit, with fixed samples, and with notes for the user."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from dsocr.data.dataset import Dataset, FixedListCard, SourceReport
from dsocr.data.splits import (
    GIVEN,
    Label,
    SplitCandidate,
    assign_balanced,
    assign_groups,
    find_copies,
    group_candidates,
    known_units,
    page_key,
    parse_units,
    split_of_fold,
)
from dsocr.document import Sample, Skipped, SkipReason, Split
from dsocr.errors import DataError, option
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text
from dsocr.io.files import parse_split

MIN_FOLDS = 3
"""One to test, one to validate and one to train."""

_WITHOUT = {
    Split.TRAIN: "it can be evaluated on, not trained on",
    Split.VALIDATION: "training keeps the last weights instead of the best",
    Split.TEST: "an evaluation needs other data",
}
"""Consequence of a missing split."""
_TOLERANCE = 0.02
"""Fraction of all samples by which a split may miss its size before a note says so."""


@dataclass(frozen=True, slots=True)
class FixedEntry:
    """A name in a list of fixed splits; `where` is its file and line."""

    name: str
    split: Split
    where: str


@dataclass(frozen=True, slots=True)
class FixedList:
    """A list of names whose split is fixed, and its entry in the dataset's card."""

    card: FixedListCard
    entries: tuple[FixedEntry, ...]


def read_fixed_list(path: Path) -> FixedList:
    """Read lines of a name, and optionally a tab and its split (test by default); # begins a comment line."""
    entries = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path.name}:{number}"
        name, tab, word = line.strip().partition("\t")
        split = parse_split(word) if tab else Split.TEST
        if split is None:
            message = f"{word.strip()!r} is not a split; write train, validation or test after the tab"
            raise DataError(message, code="fixed-list-invalid", where=where)
        entries.append(FixedEntry(name.strip(), split, where))
    if not entries:
        raise DataError("the list is empty", code="fixed-list-invalid", where=path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return FixedList(FixedListCard(file=path.name, sha256=sha256, names=len(entries)), tuple(entries))


def match_fixed(entries: Iterable[FixedEntry], candidates: Sequence[SplitCandidate]) -> dict[int, FixedEntry]:
    """Index of a sample -> the entry that names it. Raises DataError for unknown, ambiguous and conflicting names."""
    # Name -> the (kind, full name) it may mean -> indices of the samples.
    index: dict[str, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, candidate in enumerate(candidates):
        for kind, short, full in (
            ("writer", candidate.writer, candidate.writer),
            ("document", candidate.document, candidate.document),
            ("page", candidate.page, page_key(candidate.document, candidate.page)),
            ("image", candidate.name.rpartition("/")[2], candidate.name),
        ):
            for name in {short, full}:
                if name and full:
                    index[name][kind, full].append(place)
    fixed: dict[int, FixedEntry] = {}
    for entry in entries:
        for place in _find_named(entry, index):
            other = fixed.setdefault(place, entry)
            if other.split != entry.split:
                message = f"{entry.name!r} is assigned to {entry.split}, but {other.where} assigns it to {other.split}"
                raise DataError(message, code="fixed-list-invalid", where=entry.where)
    return fixed


_KINDS = ("writer", "document", "page", "image")


def _find_named(entry: FixedEntry, index: Mapping[str, Mapping[tuple[str, str], list[int]]]) -> list[int]:
    kind, colon, rest = entry.name.partition(":")
    has_kind = colon and kind in _KINDS and entry.name not in index
    name, kinds = (rest, (kind,)) if has_kind else (entry.name, _KINDS)
    path = PurePosixPath(name.replace("\\", "/"))
    spellings = {name, str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else str(path)}
    meanings = {
        meaning: places
        for spelling in spellings
        for meaning, places in index.get(spelling, {}).items()
        if meaning[0] in kinds
    }
    if not meanings:
        message = f"no writer, document, page or image of the source is called {entry.name!r}"
        raise DataError(message, code="fixed-list-invalid", where=entry.where)
    if len(set(map(tuple, meanings.values()))) > 1:
        listed = " or ".join(f"{' '.join(key)} ({len(places)} samples)" for key, places in sorted(meanings.items()))
        hint = f"write which one, e.g. {min(meanings)[0]}:{name}, or an image's full path"
        message = f"{entry.name!r} is ambiguous: {listed}"
        raise DataError(message, code="fixed-list-invalid", where=entry.where, hint=hint)
    return next(iter(meanings.values()))


@dataclass(frozen=True, slots=True)
class EarlierDataset:
    """The samples of an earlier dataset with their splits and folds, and the unit it was split by."""

    name: str
    split_by: str
    samples: tuple[SplitCandidate, ...]


def read_earlier_dataset(folder: Path) -> EarlierDataset:
    """Read the splits of an existing dataset."""
    dataset = Dataset.open(folder)
    samples = [SplitCandidate.of(sample, where) for split in Split for where, sample in dataset.numbered(split)]
    return EarlierDataset(folder.name, dataset.card.split_by, tuple(samples))


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How to split samples.

    `split_by` is a unit, several joined by `+`, "given" for the source's own splits, or None to choose. `stratify`
    evens out lengths and scripts. With `folds` every sample gets a fold and the splits are those of fold 1, whatever
    the fractions. The samples in `fixed` and the groups of `earlier` keep their split.
    """

    fractions: Mapping[Split, float]
    split_by: str | None = None
    seed: int = 17
    stratify: bool = True
    folds: int | None = None
    fixed: FixedList | None = None
    earlier: EarlierDataset | None = None

    def __post_init__(self) -> None:
        if self.split_by not in (None, GIVEN):
            parse_units(self.split_by)
        if self.folds is not None and self.folds < MIN_FOLDS:
            message = f"folds must be at least {MIN_FOLDS}, not {self.folds}: one tests, one validates, the rest train"
            raise DataError(message, code="too-few-groups")
        if self.folds is not None and (self.fixed or self.split_by == GIVEN):
            other = "a list of fixed names" if self.fixed else "the source's own splits"
            message = f"folds cannot be combined with {other}: every fold is the test split once"
            raise DataError(message, code="folds-conflict")

    def target_fractions(self) -> dict[Split, float]:
        """Fraction of the samples that each split should get."""
        if self.folds is None:
            return dict(self.fractions)
        share = 1 / self.folds
        return {Split.TRAIN: 1 - 2 * share, Split.VALIDATION: share, Split.TEST: share}


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """The unit used, and for each sample its split (None: not in the dataset) and fold (None: no folds)."""

    unit: str
    splits: list[Split | None]
    folds: list[int | None]


def assign_splits(candidates: Sequence[SplitCandidate], plan: SplitPlan, report: SourceReport) -> SplitAssignment:
    """Assign each sample to a split; skipped samples and notes for the user go to `report`."""
    unit = _choose_unit(candidates, plan)
    if plan.folds is not None and not all(candidate.is_checked for candidate in candidates):
        message, hint = "aligned texts that nobody accepted cannot be tested on", "accept them, or leave folds out"
        raise DataError(message, code="folds-conflict", hint=hint)
    if unit == GIVEN:
        return _use_given_splits(candidates, plan, report)
    if plan.split_by is None and plan.earlier is None and "writer" not in known_units(candidates):
        kept = "only lines with the same text" if unit == "text" else f"the lines of a {unit}"
        risk = "one writer's lines may be in train and test; --writer finds writers in file names"
        report.note(f"writers are unknown: {kept} stay together, and {risk}")
    if copies := [*find_copies(candidates).values()]:
        same = " = ".join(copies[0])
        report.note(f"{len(copies)} images are there under several names and stay in one split, e.g. {same}")
    grouped = _Grouped(candidates, group_candidates(candidates, parse_units(unit)), unit, plan, report)
    splits: list[Split | None]
    folds: list[int | None] = [None] * len(candidates)
    if plan.folds is None:
        fixed = grouped.earlier_labels(lambda sample: sample.split)
        fixed |= grouped.given_splits()
        if plan.fixed:
            matched = match_fixed(plan.fixed.entries, candidates)
            listed, followed = grouped.fix_groups(matched)
            fixed |= listed
            if followed:
                message = f"{plan.fixed.card.file} fixes {len(matched)} samples, and {followed} more of their groups"
                report.note(message)
        # Nothing is measured on aligned texts that no person has accepted.
        pairs = zip(grouped.groups, candidates, strict=True)
        if unchecked := [group for group, candidate in pairs if not candidate.is_checked]:
            message = f"{len(unchecked)} aligned texts were accepted by nobody, so they and their groups train only"
            report.note(message)
        fixed |= dict.fromkeys(unchecked, Split.TRAIN)
        splits = [*grouped.assign(plan.fractions, fixed)]
    else:
        shares = dict.fromkeys(range(1, plan.folds + 1), 1 / plan.folds)
        assigned = grouped.assign(shares, grouped.earlier_labels(lambda sample: sample.fold))
        folds = [*assigned]
        splits = [split_of_fold(fold, 1, plan.folds) for fold in assigned]
    grouped.note_sizes(splits)
    return SplitAssignment(unit, splits, folds)


def draw_folds(samples: Sequence[Sample], folds: int, seed: int = 17) -> tuple[str, list[int]]:
    """Draw the fold of each sample as `prepare` does, by writer, else by document or page; return the unit too.

    With fewer writers than folds there are as many folds as writers, at least `MIN_FOLDS`; with still fewer, the next
    smaller unit that is known is drawn by. Raises DataError for too few folds or samples.
    """
    candidates = [replace(SplitCandidate.of(sample, sample.id), split=None, fold=None) for sample in samples]
    plan = SplitPlan({}, folds=folds, seed=seed)
    for unit in known_units(candidates):
        count = min(folds, len(set(group_candidates(candidates, [unit]))))
        if count >= MIN_FOLDS:
            plan = replace(plan, folds=count, split_by=unit)
            return unit, [fold or 1 for fold in assign_splits(candidates, plan, SourceReport(strict=False)).folds]
    message = f"{len(samples)} samples are too few for {MIN_FOLDS} folds"
    raise DataError(message, code="too-few-groups")


def _choose_unit(candidates: Sequence[SplitCandidate], plan: SplitPlan) -> str:
    """The unit asked for, else that of the earlier dataset, else the source's splits or the largest known unit."""
    known = known_units(candidates)
    if plan.folds is None and any(candidate.split for candidate in candidates):
        known.insert(0 if _has_complete_splits(candidates) else len(known), GIVEN)
    earlier_unit = plan.earlier.split_by if plan.earlier and plan.earlier.split_by != GIVEN else None
    chosen = plan.split_by or earlier_unit
    if chosen is None:
        return known[0]
    for unit in chosen.split("+"):
        if unit not in known:
            message = f"cannot split by {unit!r}, which is unknown for these samples; known are: {', '.join(known)}"
            raise DataError(message, code="unit-unknown")
    return chosen


def _has_complete_splits(candidates: Sequence[SplitCandidate]) -> bool:
    """True if the source names validation or test samples, and either train samples or a split for every sample."""
    given = {candidate.split for candidate in candidates}
    return bool(given & {Split.VALIDATION, Split.TEST}) and (Split.TRAIN in given or None not in given)


def _use_given_splits(candidates: Sequence[SplitCandidate], plan: SplitPlan, report: SourceReport) -> SplitAssignment:
    fixed = match_fixed(plan.fixed.entries, candidates) if plan.fixed else {}
    splits = []
    for place, candidate in enumerate(candidates):
        split = fixed[place].split if place in fixed else candidate.split
        if split is None:
            report.skip(Skipped(SkipReason.NO_SPLIT, candidate.where, "neither train, validation nor test"))
        splits.append(split if split is None or candidate.is_checked else Split.TRAIN)
    if missing := [split for split in Split if split not in splits]:
        names = " and ".join(f"no {split}" for split in missing)
        unit = known_units(candidates)[0]
        report.note(f"the source has {names} split: {_WITHOUT[missing[0]]}; --split-by {unit} draws new splits")
    return SplitAssignment(GIVEN, splits, [None] * len(candidates))


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Samples with the names of their groups; each group goes to one split or fold."""

    candidates: Sequence[SplitCandidate]
    groups: Sequence[str]
    unit: str
    plan: SplitPlan
    report: SourceReport

    def assign(self, fractions: Mapping[Label, float], fixed: Mapping[str, Label]) -> list[Label]:
        """The split or fold of each sample; groups in `fixed` have no choice.

        Raises DataError if there are fewer groups than splits or folds, with the units that have enough of them.
        """
        sizes, needed = Counter(self.groups), sum(share > 0 for share in fractions.values())
        if len(sizes) < needed:
            fewer = "take fewer folds" if self.plan.folds else f"leave splits out, e.g. {option('split', '1/0/0')}"
            smaller = " or ".join(option("split_by", unit) for unit in self._units_with(needed))
            hint = f"split by a smaller unit ({smaller}), or {fewer}" if smaller else fewer
            kind = "folds" if self.plan.folds else "splits"
            message = f"{needed} {kind} need at least {needed} groups by {self.unit}, but there are only {len(sizes)}"
            raise DataError(message, code="too-few-groups", hint=hint)
        if self.plan.stratify:
            texts = [candidate.text for candidate in self.candidates]
            assigned = assign_balanced(self.groups, texts, fractions, self.plan.seed, fixed=fixed)
        else:
            assigned = assign_groups(sizes, fractions, self.plan.seed, fixed=fixed)
        return [assigned[group] for group in self.groups]

    def _units_with(self, count: int) -> list[str]:
        others = (unit for unit in known_units(self.candidates) if unit != self.unit)
        return [unit for unit in others if len(set(group_candidates(self.candidates, [unit]))) >= count]

    def note_sizes(self, splits: Sequence[Split | None]) -> None:
        """Note that whole groups miss the fractions, and the unit that would meet them."""
        counts, plan, targets = Counter(splits), self.plan, self.plan.target_fractions()
        got = {split: counts[split] / len(splits) for split in Split}
        if all(abs(got[split] - targets[split]) <= _TOLERANCE for split in Split):
            return
        shares, asked = ("/".join(f"{part[split]:.2f}" for split in Split) for part in (got, targets))
        message = f"the splits are {shares} instead of {asked}: whole groups come no nearer"
        free = plan.folds is None and plan.fixed is None and plan.earlier is None
        if free and (finer := self._units_with(math.ceil(1 / min(filter(None, targets.values()))))):
            message += f"; --split-by {finer[0]} does, with samples of one {self.unit} in several splits"
        self.report.note(message)

    def given_splits(self) -> dict[str, Split]:
        """Splits of the groups with samples that the source assigns to validation or test, if it names no others."""
        if any(candidate.split == Split.TRAIN for candidate in self.candidates):
            draws = self.plan.split_by is None and self.plan.fractions[Split.TRAIN] < 1
            if draws and not _has_complete_splits(self.candidates):
                kept = "--split-by given keeps it"
                self.report.note(f"the source has only a train split, so new splits were drawn; {kept}")
            return {}
        held_out = {
            place: FixedEntry(candidate.name, candidate.split, candidate.where)
            for place, candidate in enumerate(self.candidates)
            if candidate.split
        }
        if not held_out or len(held_out) == len(self.candidates):
            return {}
        splits, followed = self.fix_groups(held_out)
        message = f"the source assigns {len(held_out)} samples to validation or test"
        self.report.note(f"{message}, and {followed} more of their groups follow them")
        return splits

    def fix_groups(self, entries: Mapping[int, FixedEntry]) -> tuple[dict[str, Split], int]:
        """The splits of the groups of some samples, and the number of other samples in these groups."""
        first: dict[str, FixedEntry] = {}
        for place, entry in entries.items():
            other = first.setdefault(self.groups[place], entry)
            if other.split != entry.split:
                message = (
                    f"{entry.name!r} is assigned to {entry.split}, but {other.name!r} ({other.where}) of its group"
                )
                hint = f"it is split by {self.unit}; a smaller unit may separate them"
                raise DataError(f"{message} to {other.split}", code="split-conflict", where=entry.where, hint=hint)
        followed = sum(group in first for group in self.groups) - len(entries)
        return {group: entry.split for group, entry in first.items()}, followed

    def earlier_labels(self, label_of: Callable[[SplitCandidate], Label | None]) -> dict[str, Label]:
        """Labels of groups in an earlier dataset. DataError if a group has two of them, or new samples join two."""
        if (earlier := self.plan.earlier) is None:
            return {}
        units = parse_units(self.unit)
        known: dict[str, tuple[Label, str]] = {}
        for candidate in earlier.samples:
            if (label := label_of(candidate)) is None:
                continue
            for key in (next(candidate.keys(unit)) for unit in units):
                before, where = known.setdefault(key, (label, candidate.where))
                if before != label:
                    places = f"{before} ({where}) and {label} ({candidate.where})"
                    raise _earlier_conflict(f"{key!r} is in two splits of {earlier.name}: {places}")
        kept: dict[str, tuple[Label, str]] = {}
        for candidate, group in zip(self.candidates, self.groups, strict=True):
            for unit in units:
                # A writer may have been unknown then: the page by which the sample was assigned tells its split.
                largest, *smaller = candidate.keys(unit)
                keys = [largest, *(key for key in smaller if not key.startswith("text "))]
                key = next((key for key in keys if key in known), "")
                if not key:
                    continue
                label = known[key][0]
                before, because = kept.setdefault(group, (label, key))
                if before != label:
                    new = (
                        other.where
                        for other, its_group in zip(self.candidates, self.groups, strict=True)
                        if its_group == group and any(next(other.keys(unit)) not in known for unit in units)
                    )
                    message = f"new samples join {because!r} in {before} and {key!r} in {label} of {earlier.name}"
                    raise _earlier_conflict(message, next(new, candidate.where))
        added = len(set(self.groups)) - len(kept)
        self.report.note(f"{len(kept)} groups by {self.unit} keep their split in {earlier.name}, {added} are new")
        return {group: label for group, (label, _) in kept.items()}


def _earlier_conflict(message: str, where: str | None = None) -> DataError:
    hint = f"use another seed or unit and no {option('like', ...)} to draw all splits anew"
    return DataError(message, code="earlier-split-conflict", where=where, hint=hint)
