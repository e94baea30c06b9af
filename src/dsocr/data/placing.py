"""Which split, and which fold, each sample goes to: by what unit, what is held, and what crosses all the same."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dsocr.data.earlier import Earlier, keep
from dsocr.data.fixed import FixedList, FixedName, fix
from dsocr.data.grouping import GIVEN, Placeable, groups_of, known_units, page_key, parse_units
from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, Reason
from dsocr.data.splits import Label, assign_groups, crossing, split_of_fold
from dsocr.data.strata import assign_alike
from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.text import comparable

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
            notes.add(LeftOut(Reason.NO_SPLIT, fact.where, "neither train, validation nor test"))
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
