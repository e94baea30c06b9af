"""Which samples a training that is given fewer of them uses: of a larger number, always some and more.

Knows nothing about how they are trained on.
"""

import random
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset
from dsocr.samples import Sample, Split

MANY_WRITERS = 8
"""Writers of the training split from which on one writer after the other is added; below, a writer is too coarse."""


def training_samples(dataset: Dataset, config: RunConfig) -> list[Sample]:
    """The samples to train on, in the dataset's order: all, or the `training.samples` that are drawn with the seed."""
    samples, wanted = dataset.samples(Split.TRAIN), config.training.samples
    if wanted is None or wanted >= len(samples):
        return samples
    whole_writers = by_whole_writers(samples, {sample.writer for sample in dataset.samples(Split.VALIDATION)})
    chosen = set(nested_order(samples, whole_writers=whole_writers, seed=config.seed)[:wanted])
    return [sample for place, sample in enumerate(samples) if place in chosen]


def by_whole_writers(samples: Sequence[Sample], validation_writers: Collection[str | None]) -> bool:
    """True where fewer samples are to be fewer writers: all are named and many, and validation has none of them.

    Where the model is judged by hands that it has seen, more samples are more of the same hands.
    """
    writers = {sample.writer for sample in samples}
    return None not in writers and len(writers) >= MANY_WRITERS and writers.isdisjoint(validation_writers)


def nested_order(samples: Sequence[Sample], *, whole_writers: bool, seed: int) -> list[int]:
    """The places of all samples in the order in which they join, so that whoever takes more takes the fewer's too.

    With `whole_writers` one writer follows another; else any first part has its share of each writer, or of each page
    where writers are unknown.
    """
    draw = random.Random(seed)  # noqa: S311 - not a secret
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, sample in enumerate(samples):
        groups[sample.writer or ("page", sample.page)].append(place)
    members = list(groups.values())
    for group in members:
        draw.shuffle(group)
    if whole_writers:
        draw.shuffle(members)
        return [place for group in members for place in group]
    spread: list[tuple[float, int]] = []
    for group in members:
        start = draw.random()
        spread += [((number + start) / len(group), place) for number, place in enumerate(group)]
    return [place for _, place in sorted(spread)]
