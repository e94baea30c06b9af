"""In which order an epoch shows the samples: drawn from (seed, epoch), those of like length side by side.

Knows neither batches of tensors nor devices: it gives indices, which are cut into batches one after the other.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from torch.utils.data import Sampler


class LengthOrder(Sampler[int]):
    """The indices of an epoch, each of `count` once.

    They are drawn at random into windows of so many optimizer steps, and sorted by length within a window into batches,
    which are then shuffled: less padding, and with a window of 1 a step still learns from the samples drawn for it. A
    window of 0 leaves them as drawn. `epoch` is asked at the start of each pass. So that several
    processes get as many batches, they are filled up to a multiple of `even` with `fillers`, which stand at the end.
    """

    def __init__(
        self,
        count: int,
        lengths: Sequence[int],
        batch: int,
        *,
        step: int,
        window: int,
        seed: int,
        epoch: Callable[[], int],
        even: int = 1,
    ) -> None:
        self._count = count
        self._lengths = lengths
        self._batch = batch
        self._together = step * window
        self._seed = seed
        self._epoch = epoch
        # Beyond the samples stands each of them again, to be shown and not to be learnt from.
        self._fillers = [count + place % count for place in range(-count % even)]

    def __len__(self) -> int:
        return self._count + len(self._fillers)

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"order {self._seed} {self._epoch()}")  # noqa: S311
        drawn = list(range(self._count))
        rng.shuffle(drawn)
        if not self._together:
            return iter([*drawn, *self._fillers])
        windows = [drawn[start : start + self._together] for start in range(0, len(drawn), self._together)]
        return iter([*(index for window in windows for index in self._sorted(window, rng)), *self._fillers])

    def _sorted(self, window: list[int], rng: random.Random) -> list[int]:
        """A window as batches of like length in any order; one that is not full must stay the epoch's last."""
        ordered = sorted(window, key=lambda index: self._lengths[index])
        # The rest is drawn from the window, not its longest samples each time.
        rest = len(ordered) % self._batch
        left = set(window[:rest])
        full = [index for index in ordered if index not in left]
        batches = [full[start : start + self._batch] for start in range(0, len(full), self._batch)]
        rng.shuffle(batches)
        return [index for batch in [*batches, window[:rest]] for index in batch]
