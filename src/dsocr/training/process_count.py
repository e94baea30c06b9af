"""How many processes of this machine train together, and in how many threads each computes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dsocr.config import RunConfig
from dsocr.data.processes import cores
from dsocr.model.finding import find_base
from dsocr.model.loading import choose_device
from dsocr.training.launching import rank_and_count

_MOST = 4
"""Processes that `auto` starts at most: each holds torch and a base."""
_SMALL = 200 * 2**20
"""Bytes of weights in files, up to which `auto` has each process hold its own."""


def process_count(config: RunConfig) -> int:
    """How many processes of this machine train together: `training.processes`; 1 where a launcher started this one.

    `auto` is one for each core, where a small local base is trained on a CPU under Linux; each has as many samples of
    a step.
    """
    asked = config.training.processes
    if rank_and_count()[1] > 1:
        return 1
    if asked != "auto":
        return asked
    if sys.platform != "linux" or not _is_small_on_a_cpu(config):
        return 1
    step = config.training.samples_per_step
    return max(count for count in range(1, min(cores(), _MOST) + 1) if step % count == 0)


def _is_small_on_a_cpu(config: RunConfig) -> bool:
    if choose_device().type != "cpu":
        return False
    if config.base != "nano" and not Path(config.base).is_dir():  # of the Hub: none there is small
        return False
    folder, _ = find_base(config.base, config.base_revision)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) <= _SMALL


def processes_together(config: RunConfig) -> int:
    """How many processes train together, whoever starts them."""
    return max(rank_and_count()[1], process_count(config))


def threads_of_each(processes: int) -> int:
    """The threads that fall to each process."""
    return max(1, cores() // processes)


@contextmanager
def thread_count(count: int) -> Iterator[None]:
    """Torch computes in so many threads inside."""
    former = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(former)
