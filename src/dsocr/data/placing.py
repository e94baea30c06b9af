"""Which split each sample goes to: the unit of the split, the groups that must stay together, and what crosses."""

from collections import Counter
from collections.abc import Iterator, Mapping

from dsocr.data.card import SplitBy
from dsocr.data.cutting import CutSample
from dsocr.data.notes import Notes
from dsocr.data.sources.layout import LeftOut, Reason
from dsocr.data.splits import assign_groups, crossing
from dsocr.errors import DataError
from dsocr.samples import Split
from dsocr.text import comparable


def split_unit(samples: list[CutSample], wanted: SplitBy | None) -> SplitBy:
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


def place_samples(
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


def count_crossing(placed: Mapping[Split, list[CutSample]]) -> dict[str, int]:
    """How many writers, pages and texts stand in more than one split."""

    def pairs() -> Iterator[tuple[CutSample, Split]]:
        return ((sample, split) for split, samples in placed.items() for sample in samples)

    return {
        "writers": len(crossing((sample.image.writer, split) for sample, split in pairs())),
        "pages": len(crossing((sample.image.page, split) for sample, split in pairs())),
        "texts": len(crossing((comparable(sample.line.text), split) for sample, split in pairs())),
    }
