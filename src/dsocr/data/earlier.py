"""An earlier dataset, whose groups stay in their splits when data is added: a test writer never comes to train."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.dataset import Dataset
from dsocr.data.grouping import Placeable, chain
from dsocr.data.splits import Label
from dsocr.errors import DataError
from dsocr.samples import Split

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
    return _kept(known, earlier.name, facts, groups, units)


def _kept(
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
