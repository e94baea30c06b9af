"""What a device can do at most, measured in the same run, and the arithmetic that something takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

_UNTIMED, _TIMED = 3, 10


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Operations a second of a large bfloat16 matrix product, and bytes a second of a large copy, read and written."""

    operations: float
    bytes: float

    @classmethod
    def of(cls, device: torch.device, *, side: int = 8192, megabytes: int = 4096) -> "Ceiling":
        """Measured on random numbers; a CPU is asked for little, because it is there to try a benchmark out."""
        if device.type != "cuda":
            side, megabytes = 512, 16
        left, right = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
        product = _seconds(lambda: left @ right, device)
        source = torch.randn(megabytes * 250_000, device=device)
        target = torch.empty_like(source)
        copy = _seconds(lambda: target.copy_(source), device)
        return cls(2 * side**3 / product, 2 * source.nbytes / copy)


def operations(work: Callable[[], object]) -> int:
    """The floating-point operations of the matrix products and attention in a piece of work, which is done once."""
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def wait(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    for _ in range(_UNTIMED):
        work()
    wait(device)
    start = time.perf_counter()
    for _ in range(_TIMED):
        work()
    wait(device)
    return (time.perf_counter() - start) / _TIMED
