"""Keeping the memory that a step frees for the next step, where the system's allocator can be told to."""

import ctypes
import sys

# Parameters of mallopt(3), as glibc's malloc.h numbers them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Have this process keep what it frees; False where its C library is not glibc, and nothing is changed.

    glibc gives large pieces back to the system at once and takes them anew, zeroed page by page: on a CPU that is a
    tenth of the time of a step of a small network, which needs the same pieces in every step. What the process holds
    at most stays the same; it no longer shrinks between.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20), (_MMAP_MAX, 0))
    taken = [mallopt(name, value) for name, value in settings]
    return all(taken)
