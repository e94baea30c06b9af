"""The order of an epoch: every sample once, like lengths together, the same for the same seed and epoch."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dsocr.training.sampler import LengthOrder


def order(lengths: Sequence[int], batch: int, step: int, window: int, *, seed: int = 17, epoch: int = 0) -> list[int]:
    return list(LengthOrder(len(lengths), lengths, batch, step=step, window=window, seed=seed, epoch=lambda: epoch))


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60),
    batch=st.integers(1, 7),
    forwards=st.integers(1, 4),
    window=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
def test_an_epoch_shows_every_sample_once(
    lengths: list[int], batch: int, forwards: int, window: int, epoch: int
) -> None:
    assert sorted(order(lengths, batch, batch * forwards, window, epoch=epoch)) == list(range(len(lengths)))


@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60),
    batch=st.integers(1, 7),
    processes=st.integers(2, 4),
    window=st.integers(0, 2),
)
def test_several_processes_get_as_many_whole_batches_and_the_rest_are_fillers_at_the_end(
    lengths: list[int], batch: int, processes: int, window: int
) -> None:
    evened = LengthOrder(
        len(lengths),
        lengths,
        batch,
        step=batch * processes,
        window=window,
        seed=17,
        epoch=lambda: 0,
        even=batch * processes,
    )
    drawn = list(evened)
    assert len(drawn) == len(evened)
    assert len(drawn) % (batch * processes) == 0
    assert drawn[: len(lengths)] == order(lengths, batch, batch * processes, window)
    assert all(len(lengths) <= filler < 2 * len(lengths) for filler in drawn[len(lengths) :])
    assert len(drawn) - len(lengths) < batch * processes


@given(lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60), forwards=st.integers(1, 4))
def test_a_step_learns_from_the_samples_drawn_for_it(lengths: list[int], forwards: int) -> None:
    step = 3 * forwards
    drawn, sorted_ = order(lengths, 3, step, 0), order(lengths, 3, step, 1)
    for start in range(0, len(lengths), step):
        assert set(drawn[start : start + step]) == set(sorted_[start : start + step])


def test_the_order_is_drawn_from_seed_and_epoch() -> None:
    lengths = list(range(50))
    same = order(lengths, 5, 10, 1, seed=3, epoch=2)
    assert same == order(lengths, 5, 10, 1, seed=3, epoch=2)
    assert same != order(lengths, 5, 10, 1, seed=3, epoch=3)
    assert same != order(lengths, 5, 10, 1, seed=4, epoch=2)


def padding(lengths: Sequence[int], indices: Sequence[int], batch: int) -> int:
    batches = [[lengths[index] for index in indices[start : start + batch]] for start in range(0, len(indices), batch)]
    return sum(max(one) * len(one) - sum(one) for one in batches)


def test_a_larger_window_pads_less() -> None:
    lengths = [(37 * index) % 101 + 1 for index in range(320)]
    paddings = [padding(lengths, order(lengths, 8, 32, window), 8) for window in (0, 1, 5)]
    assert paddings[0] > 2 * paddings[1] > 4 * paddings[2]


def test_batches_of_a_window_are_not_in_the_order_of_their_lengths() -> None:
    lengths = list(range(64))
    firsts = [index // 8 for index in order(lengths, 8, 64, 1)[::8]]
    assert sorted(firsts) == list(range(8))
    assert firsts != list(range(8))
