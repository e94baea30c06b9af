"""Which split, and which fold, each sample goes to: by what unit, what is held, and what crosses all the same."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from dsocr.data.dataset import Dataset
from dsocr.data.splits import (
    GIVEN,
    Label,
    Placeable,
    assign_alike,
    assign_groups,
    chain,
    crossing,
    groups_of,
    known_units,
    page_key,
    parse_units,
    split_called,
    split_of_fold,
)
from dsocr.document import Item, Note, Page, Skipped, SkipReason, Split
from dsocr.errors import DataError
from dsocr.images import IMAGE_SUFFIXES
from dsocr.io.encodings import read_text
from dsocr.text import comparable

_KINDS = ("writer", "document", "page", "image")


@dataclass(frozen=True, slots=True)
class FixedName:
    """A line of a list; `where` is its file and number."""

    name: str
    split: Split
    where: str


@dataclass(frozen=True, slots=True)
class FixedList:
    """A list that was read; `sha256` is its file's."""

    file: str
    sha256: str
    names: tuple[FixedName, ...]


def read_fixed(path: Path) -> FixedList:
    """The names of a list; empty lines and lines that begin with # are let be, and no second column means test."""
    text = read_text(path)
    names = [
        _fixed_name(line, f"{path.name}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    if not names:
        raise DataError("the list names nothing", where=path)
    return FixedList(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), tuple(names))


def _fixed_name(line: str, where: str) -> FixedName:
    name, tab, word = line.strip().partition("\t")
    split = split_called(word) if tab else Split.TEST
    if split is None:
        raise DataError(f"{word.strip()!r} is no split; write train, validation or test after a tab", where=where)
    return FixedName(name.strip(), split, where)


def fix(names: Sequence[FixedName], facts: Sequence[Placeable]) -> dict[int, FixedName]:
    """Place of a sample -> the line that names it; a name of nothing or of two things, or two splits, is an error."""
    index = _index(facts)
    fixed: dict[int, FixedName] = {}
    for name in names:
        for place in sorted(_named(name, index)):
            other = fixed.setdefault(place, name)
            if other.split != name.split:
                message = f"{name.name!r} is to be in {name.split}, but {other.where} puts it in {other.split}"
                raise DataError(message, where=name.where)
    return fixed


Index = Mapping[str, Mapping[str, Sequence[int]]]
"""Name -> what it may mean, as `kind called name` -> the places of the samples."""


def _index(facts: Sequence[Placeable]) -> Index:
    index: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for place, fact in enumerate(facts):
        whole_page = page_key(fact.document, fact.page)
        for kind, names, meant in (
            ("writer", {fact.writer}, fact.writer),
            ("document", {fact.document}, fact.document),
            ("page", {fact.page, whole_page}, whole_page),
            ("image", {fact.name, fact.name.rpartition("/")[2]}, fact.name),
        ):
            for name in names - {None, ""}:
                index[name or ""][f"{kind} {meant}"].append(place)
    return index


def _named(name: FixedName, index: Index) -> Sequence[int]:
    kind, colon, rest = name.name.partition(":")
    called, only = (rest, kind) if colon and kind in _KINDS and name.name not in index else (name.name, None)
    meant = {
        what: places
        for spelling in _spellings(called)
        for what, places in index.get(spelling, {}).items()
        if only in (None, what.partition(" ")[0])
    }
    if not meant:
        raise DataError(f"{name.name!r} is no writer, document, page or image of the source", where=name.where)
    if len({tuple(places) for places in meant.values()}) > 1:
        told = " and ".join(f"{what} ({len(places)} samples)" for what, places in sorted(meant.items()))
        hint = f"say which: {sorted(meant)[0].partition(' ')[0]}:{called}, or an image's whole path"
        raise DataError(f"{name.name!r} may be {told}", where=name.where, hint=hint)
    return next(iter(meant.values()))


def _spellings(name: str) -> set[str]:
    """The name as it stands, and without the suffix of an image; a path may be written as on Windows."""
    path = PurePosixPath(name.replace("\\", "/"))
    return {name, str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else str(path)}


_HINT = "give it another seed or unit and no --like, and all is placed anew"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The samples of an earlier dataset with the splits, and the folds if it has any, that they have there."""

    name: str
    split_by: str
    facts: tuple[Placeable, ...]


def read_earlier(folder: Path) -> Earlier:
    """What of an earlier dataset decides where its groups stay."""
    dataset = Dataset.open(folder)
    facts = tuple(
        Placeable(
            sample.id,
            where,
            sample.text,
            writer=sample.writer,
            document=sample.document,
            page=sample.page,
            split=sample.split,
            fold=sample.fold,
        )
        for split in Split
        for where, sample in dataset.numbered(split)
    )
    return Earlier(folder.name, dataset.card.split_by, facts)


def keep(
    earlier: Earlier,
    facts: Sequence[Placeable],
    groups: Sequence[str],
    units: Sequence[str],
    label_of: Callable[[Placeable], Label | None],
) -> dict[str, Label]:
    """Group -> where it stands in the earlier dataset, for the groups that are known there.

    Raises DataError where a group stands in two of its splits, or where new samples join two groups that do not stand
    in one split.
    """
    known: dict[str, tuple[Label, str]] = {}
    for fact in earlier.facts:
        if (label := label_of(fact)) is not None:
            for unit in units:
                key = next(chain(fact, unit))
                before, where = known.setdefault(key, (label, fact.where))
                if before != label:
                    message = f"in {earlier.name} {key!r} stands in {before} ({where}) and in {label} ({fact.where})"
                    raise DataError(f"{message}, so it has no split to stay in", hint=_HINT)
    return _kept_earlier(known, earlier.name, facts, groups, units)


def _kept_earlier(
    known: dict[str, tuple[Label, str]],
    name: str,
    facts: Sequence[Placeable],
    groups: Sequence[str],
    units: Sequence[str],
) -> dict[str, Label]:
    kept: dict[str, tuple[Label, str]] = {}
    for fact, group in zip(facts, groups, strict=True):
        for unit in units:
            # A writer who was not known then may be known now: the page by which the sample was placed tells.
            own, *smaller = chain(fact, unit)
            keys = [own, *(key for key in smaller if not key.startswith("text "))]
            key = next((key for key in keys if key in known), None)
            if key is None:
                continue
            before, because = kept.setdefault(group, (known[key][0], key))
            if before != known[key][0]:
                message = f"new samples join {because!r} and {key!r}, which stand in {before} and {known[key][0]}"
                new = _first_new(group, facts, groups, units, known)
                raise DataError(f"{message} of {name}", where=new or fact.where, hint=_HINT)
    return {group: label for group, (label, _) in kept.items()}


def _first_new(
    group: str, facts: Sequence[Placeable], groups: Sequence[str], units: Sequence[str], known: Container[str]
) -> str | None:
    """Where the first sample of a group stands that the earlier dataset did not have."""
    of_group = (fact for fact, its in zip(facts, groups, strict=True) if its == group)
    return next((fact.where for fact in of_group if any(next(chain(fact, unit)) not in known for unit in units)), None)


EXAMPLES = 10
"""How many of a kind the card lists."""


@dataclass
class TextChanges:
    """How many texts a rule changed, and the first of them as sentences."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Notes:
    """What was left out, which names a pattern did not match, and what else is worth knowing.

    With `strict` the first fault is raised instead.
    """

    strict: bool
    skipped: list[Skipped] = field(default_factory=list)
    unmatched: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    remarks: list[str] = field(default_factory=list)
    text_changes: dict[str, TextChanges] = field(default_factory=lambda: defaultdict(TextChanges))

    def add(self, item: Skipped) -> None:
        """Notes that something is left out."""
        if self.strict and item.reason.is_fault:
            raise DataError(f"{item.reason}: {item.message}", where=item.where)
        self.skipped.append(item)

    def add_unmatched(self, kind: str, pattern: str, name: str) -> None:
        """Notes that an image's writer or page stays unknown."""
        if self.strict:
            raise DataError(f"the {kind} pattern {pattern} does not match", where=name)
        self.unmatched[kind].append(name)

    def add_change(self, rule: str, where: str, told: str) -> None:
        """Notes that a rule of the text policy changed a text."""
        changes = self.text_changes[rule]
        changes.count += 1
        if len(changes.examples) < EXAMPLES:
            changes.examples.append(f"{where}: {told}")

    def remark(self, sentence: str) -> None:
        """Notes what is no fault and worth knowing."""
        self.remarks.append(sentence)

    def sifted(self, items: Iterable[Item]) -> Iterator[Page]:
        """The images among what a source yields; the rest is noted."""
        for item in items:
            if isinstance(item, Skipped):
                self.add(item)
            elif isinstance(item, Note):
                self.remark(item.message)
            else:
                yield item

    def told(self) -> str:
        """The reasons, counted, and the first place, to follow a sentence that says nothing is left."""
        if not self.skipped:
            return ": the source holds none"
        counts = Counter(item.reason for item in self.skipped)
        reasons = "".join(f"\n  {count} x {reason}" for reason, count in counts.most_common())
        first = self.skipped[0]
        return f"; left out:{reasons}\n  first: {first.where}: {first.message}"


FEWEST_FOLDS = 3
"""One to test, one to validate and one to train."""
_HELD_BACK = {Split.VALIDATION, Split.TEST}
_WITHOUT = {
    Split.TRAIN: "it can be scored on, not trained on",
    Split.VALIDATION: "a training keeps its last weights, not its best",
    Split.TEST: "scores need other data",
}
"""What it means for a dataset to have no such split."""
_WORTH_TELLING = 0.02
"""Share of all samples by which a split may miss its fraction before it is told."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How samples are to be split.

    `split_by` is a unit, several joined by `+`, "given" for the source's own splits, or None for the fairest there is.
    With `stratify` the splits are drawn alike in lengths and scripts. With `folds` every sample gets a fold, and the
    splits are those of fold 1, whatever the fractions. The samples in `fixed` and the groups of `earlier` stay where
    these say.
    """

    fractions: Mapping[Split, float]
    split_by: str | None = None
    seed: int = 17
    stratify: bool = True
    folds: int | None = None
    fixed: FixedList | None = None
    earlier: Earlier | None = None

    def __post_init__(self) -> None:
        if self.split_by not in (None, GIVEN):
            parse_units(self.split_by)
        if self.folds is not None and self.folds < FEWEST_FOLDS:
            counted = "1 fold is" if self.folds == 1 else f"{self.folds} folds are"
            raise DataError(f"{counted} too few: one tests, one validates, and the rest trains")
        if self.folds is not None and (self.fixed or self.split_by == GIVEN):
            what = "a list of fixed names" if self.fixed else "the source's own splits"
            raise DataError(f"folds and {what} exclude each other: every fold is the test once")

    def targets(self) -> dict[Split, float]:
        """What part of the samples each split should get."""
        if self.folds is None:
            return dict(self.fractions)
        one = 1 / self.folds
        return {Split.TRAIN: 1 - 2 * one, Split.VALIDATION: one, Split.TEST: one}


@dataclass(frozen=True, slots=True)
class Placing:
    """Where the samples go, in their order: None where a sample has no split and stays out; no folds unless asked."""

    unit: str
    splits: list[Split | None]
    folds: list[int | None]


def place(facts: Sequence[Placeable], plan: SplitPlan, notes: Notes) -> Placing:
    """Each sample's split; what gets none is noted as left out, and what is worth knowing is noted as a remark."""
    unit = _unit(facts, plan)
    if unit == GIVEN:
        return _place_given(facts, plan, notes)
    groups = groups_of(facts, parse_units(unit))
    if plan.folds is not None and len(set(groups)) < plan.folds:
        raise DataError(f"{plan.folds} folds need as many groups by {unit}, and there are {len(set(groups))}")
    _tell_lump(Counter(groups), unit, plan, notes)
    splits: list[Split | None]
    folds: list[int | None]
    if plan.folds is None:
        assigned = _assigned(facts, groups, unit, plan, plan.fractions, _held(facts, groups, unit, plan, notes))
        splits, folds = [assigned[group] for group in groups], [None] * len(facts)
    else:
        shares = dict.fromkeys(range(1, plan.folds + 1), 1 / plan.folds)
        held = _kept(facts, groups, unit, plan, notes, lambda fact: fact.fold)
        numbered = _assigned(facts, groups, unit, plan, shares, held)
        folds = [numbered[group] for group in groups]
        splits = [split_of_fold(numbered[group], 1, plan.folds) for group in groups]
    _tell_sizes(splits, plan, notes)
    return Placing(unit, splits, folds)


def _place_given(facts: Sequence[Placeable], plan: SplitPlan, notes: Notes) -> Placing:
    """As the source says; what it says nothing of stays out."""
    fixed = fix(plan.fixed.names, facts) if plan.fixed else {}
    splits = [fixed[number].split if number in fixed else fact.split for number, fact in enumerate(facts)]
    for fact, split in zip(facts, splits, strict=True):
        if split is None:
            notes.add(Skipped(SkipReason.NO_SPLIT, fact.where, "neither train, validation nor test"))
    if missing := [split for split in Split if split not in splits]:
        names = " and ".join(f"no {split}" for split in missing)
        unit = known_units(facts)[0]
        notes.remark(f"the source gives {names} split: {_WITHOUT[missing[0]]}; --split-by {unit} draws all splits anew")
    return Placing(GIVEN, splits, [None] * len(facts))


def _unit(facts: Sequence[Placeable], plan: SplitPlan) -> str:
    """What the split is made by: what was asked for or stood before, if it is known, else the fairest that is."""
    known = known_units(facts)
    if plan.folds is None and any(fact.split for fact in facts):
        known.insert(0 if _is_split(facts) else len(known), GIVEN)
    wanted = plan.split_by or (plan.earlier.split_by if plan.earlier and plan.earlier.split_by != GIVEN else None)
    if wanted is None:
        return known[0]
    for unit in wanted.split("+"):
        if unit not in known:
            message = f"cannot split by {unit!r}: it is not known of the samples; known are: {', '.join(known)}"
            raise DataError(message)
    return wanted


def _is_split(facts: Sequence[Placeable]) -> bool:
    """True where the source puts samples into validation or test and also says which are train, or all of the rest."""
    given = {fact.split for fact in facts}
    return bool(given & _HELD_BACK) and (Split.TRAIN in given or None not in given)


def _assigned(
    facts: Sequence[Placeable],
    groups: Sequence[str],
    unit: str,
    plan: SplitPlan,
    shares: Mapping[Label, float],
    held: Mapping[str, Label],
) -> dict[str, Label]:
    if plan.stratify:
        return assign_alike(groups, [fact.text for fact in facts], shares, plan.seed, unit=unit, held=held)
    return assign_groups(Counter(groups), shares, plan.seed, unit=unit, held=held)


def _held(
    facts: Sequence[Placeable], groups: Sequence[str], unit: str, plan: SplitPlan, notes: Notes
) -> dict[str, Split]:
    """The groups that have no choice: of an earlier dataset, before them what the source, and what a list, names."""
    held = _kept(facts, groups, unit, plan, notes, lambda fact: fact.split) | _told(facts, groups, unit, plan, notes)
    fixed = fix(plan.fixed.names, facts) if plan.fixed else {}
    lines: dict[str, FixedName] = {}
    for number, name in fixed.items():
        other = lines.setdefault(groups[number], name)
        if other.split != name.split:
            message = f"{name.name!r} is to be in {name.split}, but hangs together with {other.name!r} ({other.where})"
            hint = f"it is split by {unit}; a smaller unit may part them"
            raise DataError(f"{message}, which is to be in {other.split}", where=name.where, hint=hint)
    if followed := sum(group in lines for group in groups) - len(fixed):
        file = plan.fixed.file if plan.fixed else ""
        notes.remark(f"samples that {file} names: {len(fixed)}; of their groups, and so with them: {followed}")
    return held | {group: name.split for group, name in lines.items()}


def _told(
    facts: Sequence[Placeable], groups: Sequence[str], unit: str, plan: SplitPlan, notes: Notes
) -> dict[str, Split]:
    """The groups of samples that the source, which says nothing of others, puts into validation or test."""
    if any(fact.split == Split.TRAIN for fact in facts):
        if plan.split_by is None and plan.fractions[Split.TRAIN] < 1 and not _is_split(facts):
            told = "the source gives train as the only split, so splits were drawn; --split-by given keeps what it says"
            notes.remark(told)
        return {}
    named = [(group, fact) for group, fact in zip(groups, facts, strict=True) if fact.split in _HELD_BACK]
    if len(named) == len(facts):
        return {}
    first: dict[str, Placeable] = {}
    for group, fact in named:
        other = first.setdefault(group, fact)
        if other.split != fact.split:
            message = (
                f"is to be in {fact.split}, but hangs together with {other.where}, which is to be in {other.split}"
            )
            hint = f"it is split by {unit}; a smaller unit may part them"
            raise DataError(message, where=fact.where, hint=hint)
    if named:
        followed = sum(group in first for group in groups) - len(named)
        told = f"samples that the source puts into validation or test: {len(named)}"
        notes.remark(f"{told}; of their groups, and so with them: {followed}")
    return {group: fact.split for group, fact in first.items() if fact.split is not None}


def _kept(
    facts: Sequence[Placeable],
    groups: Sequence[str],
    unit: str,
    plan: SplitPlan,
    notes: Notes,
    label_of: Callable[[Placeable], Label | None],
) -> dict[str, Label]:
    if plan.earlier is None:
        return {}
    kept = keep(plan.earlier, facts, groups, parse_units(unit), label_of)
    new = len(set(groups)) - len(kept)
    notes.remark(f"{len(kept)} groups by {unit} stay where {plan.earlier.name} has them, {new} are new")
    return kept


def _tell_lump(sizes: Mapping[str, int], unit: str, plan: SplitPlan, notes: Notes) -> None:
    """One group that is larger than any split should be: an error where nothing is left to test with."""
    largest, *others = sorted(sizes.values(), reverse=True)
    total, most = largest + sum(others), max(plan.targets().values())
    if "+" not in unit or largest <= (most + _WORTH_TELLING) * total:
        return
    rest = ", ".join(map(str, others[:3])) or "none"
    told = f"joined by {unit}, {largest} of {total} samples hang together; the next groups: {rest}"
    first = unit.partition("+")[0]
    if len(sizes) < sum(share > 0 for share in plan.targets().values()):
        raise DataError(told, hint=f"split by {first} alone; what crosses is counted in the card")
    notes.remark(f"{told}; --split-by {first} would come nearer to the fractions, and count what crosses")


def _tell_sizes(splits: Sequence[Split | None], plan: SplitPlan, notes: Notes) -> None:
    counts = Counter(splits)
    asked = plan.targets()
    got = {split: counts[split] / len(splits) for split in Split}
    if any(abs(got[split] - asked[split]) > _WORTH_TELLING for split in Split):
        shares = "/".join(f"{got[split]:.2f}" for split in Split)
        wanted = "/".join(f"{asked[split]:.2f}" for split in Split)
        notes.remark(f"the splits came out as {shares}, and {wanted} was asked: whole groups come no nearer")


def count_crossing(facts: Sequence[Placeable], splits: Sequence[Split | None]) -> dict[str, int]:
    """How many writers, documents, pages and texts stand in more than one split."""
    placed = [(fact, split) for fact, split in zip(facts, splits, strict=True) if split is not None]
    return {
        "writers": len(crossing((fact.writer, split) for fact, split in placed)),
        "documents": len(crossing((fact.document, split) for fact, split in placed)),
        "pages": len(crossing((page_key(fact.document, fact.page), split) for fact, split in placed)),
        "texts": len(crossing((comparable(fact.text), split) for fact, split in placed)),
    }
