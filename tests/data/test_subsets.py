"""Nested parts of a training split."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr.config import RunConfig
from dsocr.data.dataset import Dataset, nested_order, training_samples, use_whole_writers
from dsocr.document import Sample, Split


def samples(writers: Sequence[str | None]) -> list[Sample]:
    return [
        Sample(f"{place}", Path("a.png"), "text", Split.TRAIN, writer=writer, page=f"p{place % 4}")
        for place, writer in enumerate(writers)
    ]


@given(st.lists(st.sampled_from(["anna", "boris", None]), min_size=1, max_size=60), st.booleans(), st.integers(0, 99))
def test_every_sample_joins_once_in_an_order_that_the_seed_decides(
    writers: list[str | None], whole_writers: bool, seed: int
) -> None:
    lines = samples(writers)
    order = nested_order(lines, whole_writers=whole_writers, seed=seed)
    assert sorted(order) == list(range(len(lines)))
    assert order == nested_order(lines, whole_writers=whole_writers, seed=seed)


def test_any_first_part_has_its_share_of_each_writer() -> None:
    lines = samples(["anna"] * 60 + ["boris"] * 30)
    order = nested_order(lines, whole_writers=False, seed=1)
    for size in (9, 30, 60):
        counts = Counter(lines[place].writer for place in order[:size])
        assert counts["anna"] == pytest.approx(2 * size / 3, abs=1)


def test_of_whole_writers_one_follows_another() -> None:
    lines = samples([f"w{place % 9}" for place in range(90)])
    names = [lines[place].writer for place in nested_order(lines, whole_writers=True, seed=1)]
    assert len([1 for first, second in pairwise(names) if first != second]) == 8
    assert names[0] != names[10]


@pytest.mark.parametrize(
    ("training", "validation", "whole"),
    [
        pytest.param([f"w{place}" for place in range(8)], ["new"], True, id="many, and others are read"),
        pytest.param([f"w{place}" for place in range(7)], ["new"], False, id="too few"),
        pytest.param([f"w{place}" for place in range(8)], ["w0", "new"], False, id="known hands are read"),
        pytest.param([*(f"w{place}" for place in range(8)), None], ["new"], False, id="not all are known"),
    ],
)
def test_when_a_smaller_part_is_fewer_writers(
    training: Sequence[str | None], validation: Sequence[str | None], whole: bool
) -> None:
    assert use_whole_writers(samples(training), set(validation)) is whole


def test_fewer_training_samples_are_among_the_more(small_config: RunConfig) -> None:
    dataset = Dataset.open(small_config.dataset)

    def chosen(count: int | None) -> list[str]:
        training = small_config.training.model_copy(update={"max_samples": count})
        return [
            sample.id for sample in training_samples(dataset, small_config.model_copy(update={"training": training}))
        ]

    everything = chosen(None)
    assert chosen(99) == everything
    assert [len(chosen(count)) for count in (1, 4, 9)] == [1, 4, 9]
    assert set(chosen(4)) < set(chosen(9)) < set(everything)
    assert chosen(9) == [name for name in everything if name in set(chosen(9))]
