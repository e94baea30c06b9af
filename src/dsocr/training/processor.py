"""What makes torch compute faster on a CPU at the same precision: who multiplies matrices, and memory that is kept.

Knows nothing about models.
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_SHAPES = ((64, 64, 64), (257, 160, 480), (2048, 160, 8), (8, 2048, 160))
"""Of products that are tried, rows, terms and columns: square, as of a layer, and as of an adapter and its gradient."""

_EXACT = 1e-5
"""The most by which a float32 product may be off, as a share of its largest value: bfloat16 is off by a thousand times
as much."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What glibc's `malloc.h` calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""


@contextmanager
def quick_processor(device: torch.device) -> Iterator[bool]:
    """Multiply by oneDNN in here, where the device is a CPU on which it does so in full float32; True where it is so.

    Torch multiplies float32 by MKL, which leaves the wide registers of processors that are not Intel's unused. It
    hands over to oneDNN where products may be rounded to bfloat16, and oneDNN rounds on processors alone that have
    AMX: whether this is one is tried, and then all stays as it was. Torch's fused attention for CPUs makes many small
    products, each of which oneDNN has to set up, so attention is computed in whole matrices meanwhile. From the first
    call on the process keeps the memory that it frees.
    """
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        yield False
        return
    _keep_freed_memory()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        if not _products_are_exact():
            torch.set_float32_matmul_precision(before)
            yield False
            return
        with sdpa_kernel(SDPBackend.MATH):
            yield True
    finally:
        torch.set_float32_matmul_precision(before)


def _products_are_exact() -> bool:
    """Whether float32 products are those of float32, as told by the same in float64."""
    generator = torch.Generator().manual_seed(0)
    for rows, terms, columns in _SHAPES:
        left = torch.randn(rows, terms, generator=generator)
        right = torch.randn(terms, columns, generator=generator)
        exact = left.double() @ right.double()
        batched = torch.bmm(left[None], right[None])[0]
        for product in (left @ right, torch.nn.functional.linear(left, right.T), batched):
            if (product - exact).abs().max() > _EXACT * exact.abs().max():
                return False
    return True


def _keep_freed_memory() -> None:
    """Have glibc keep what is freed: given back after every layer, it would be zeroed and mapped anew for the next."""
    if platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.mallopt(_MMAP_THRESHOLD, 1 << 25)  # the most that glibc takes
    library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
