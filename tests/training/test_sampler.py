"""The order of an epoch: every sample once, similar lengths together, the same for the same seed and epoch."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dsocr.training.samples import LengthGroupedSampler

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


def draw(lengths: Sequence[int], micro: int, step: int, *, seed: int = 17, epoch: int = 0, **options: Any) -> list[Any]:
    sampler = LengthGroupedSampler(lengths, micro, step, seed=seed, **options)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    return batches


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


@given(
    lengths=LENGTHS,
    micro=st.integers(1, 7),
    accumulation=st.integers(1, 4),
    group=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_an_epoch_has_every_sample_once(
    lengths: list[int], micro: int, accumulation: int, group: bool, epoch: int
) -> None:
    batches = draw(lengths, micro, micro * accumulation, group=group, epoch=epoch)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert all(len(batch) == micro for batch in batches[:-1])


@given(lengths=LENGTHS, micro=st.integers(1, 7), world_size=st.integers(2, 4), group=st.booleans())
def test_ranks_get_equally_many_full_batches_and_the_rest_are_fillers(
    lengths: list[int], micro: int, world_size: int, group: bool
) -> None:
    options = {"group": group, "world_size": world_size}
    shards = [draw(lengths, micro, micro * world_size, rank=rank, **options) for rank in range(world_size)]
    assert len({len(shard) for shard in shards}) == 1
    assert all(len(batch) == micro for shard in shards for batch in shard)
    together = flat([batch for batches in zip(*shards, strict=True) for batch in batches])
    count = len(lengths)
    assert together[:count] == flat(draw(lengths, micro, micro * world_size, group=group))
    assert all(count <= filler < 2 * count for filler in together[count:])
    assert len(together) - count < micro * world_size


@given(lengths=LENGTHS, accumulation=st.integers(1, 4))
def test_a_step_trains_on_the_samples_drawn_for_it(lengths: list[int], accumulation: int) -> None:
    step = 3 * accumulation
    drawn, grouped = (flat(draw(lengths, 3, step, group=group)) for group in (False, True))
    for start in range(0, len(lengths), step):
        assert set(drawn[start : start + step]) == set(grouped[start : start + step])


def test_the_order_depends_on_seed_and_epoch() -> None:
    lengths = list(range(50))
    same = draw(lengths, 5, 10, seed=3, epoch=2)
    assert same == draw(lengths, 5, 10, seed=3, epoch=2)
    assert same != draw(lengths, 5, 10, seed=3, epoch=3)
    assert same != draw(lengths, 5, 10, seed=4, epoch=2)


def test_grouping_pads_less_and_shuffles_the_batches_of_a_step() -> None:
    lengths = [(37 * index) % 101 + 1 for index in range(320)]
    padding = [
        sum(
            max(lengths[index] for index in batch) * len(batch) - sum(lengths[index] for index in batch)
            for batch in batches
        )
        for batches in (draw(lengths, 8, 32, group=group) for group in (False, True))
    ]
    assert padding[0] > 2 * padding[1]
    firsts = [batch[0] // 8 for batch in draw(list(range(64)), 8, 64)]
    assert sorted(firsts) == list(range(8)) != firsts
