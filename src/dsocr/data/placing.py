"""Which split, and which fold, each sample goes to: the unit of the split, and what crosses all the same."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, Reason
from dsocr.data.splits import assign_groups, crossing
from dsocr.data.units import GIVEN, Placeable, groups_of, known_units, page_key, parse_units
from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.text import comparable


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How samples are to be split.

    `split_by` is a unit, several joined by `+`, "given" for the source's own splits, or None for the fairest there is.
    """

    fractions: Mapping[Split, float]
    split_by: str | None = None
    seed: int = 17


@dataclass(frozen=True, slots=True)
class Placing:
    """Where the samples go, in their order: None where a sample has no split and stays out; no folds unless asked."""

    unit: str
    splits: list[Split | None]
    folds: list[int | None]


def place(facts: Sequence[Placeable], plan: SplitPlan, notes: Notes) -> Placing:
    """Each sample's split; what gets none is noted as left out."""
    unit = split_unit(facts, plan.split_by)
    if unit == GIVEN:
        splits = [fact.split for fact in facts]
    else:
        groups = groups_of(facts, parse_units(unit))
        assigned = assign_groups(Counter(groups), plan.fractions, plan.seed, unit=unit)
        splits = [assigned[group] for group in groups]
    for fact, split in zip(facts, splits, strict=True):
        if split is None:
            notes.add(LeftOut(Reason.NO_SPLIT, fact.where, "neither train, validation nor test"))
    return Placing(unit, splits, [None] * len(facts))


def split_unit(facts: Sequence[Placeable], wanted: str | None) -> str:
    """What the split is made by: what was asked for if it is known of any sample, else the fairest that is."""
    known = known_units(facts)
    if len({fact.split for fact in facts} - {None}) > 1:
        known.insert(0, GIVEN)
    if wanted is None:
        return known[0]
    for unit in wanted.split("+") if wanted != GIVEN else [GIVEN]:
        if unit not in known:
            message = f"cannot split by {unit!r}: it is not known of the samples; known are: {', '.join(known)}"
            raise DataError(message)
    return wanted


def count_crossing(facts: Sequence[Placeable], splits: Sequence[Split | None]) -> dict[str, int]:
    """How many writers, documents, pages and texts stand in more than one split."""
    placed = [(fact, split) for fact, split in zip(facts, splits, strict=True) if split is not None]
    return {
        "writers": len(crossing((fact.writer, split) for fact, split in placed)),
        "documents": len(crossing((fact.document, split) for fact, split in placed)),
        "pages": len(crossing((page_key(fact.document, fact.page), split) for fact, split in placed)),
        "texts": len(crossing((comparable(fact.text), split) for fact, split in placed)),
    }
