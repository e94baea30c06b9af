"""Windows along an axis, and connected pixels: what scipy.ndimage has, for a reader that is installed without it."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray


def windows(
    values: NDArray[Any], size: int, axis: int = 0, *, mode: Literal["edge", "symmetric"] = "symmetric"
) -> NDArray[Any]:
    """Return a view with the `size` values around each value along an axis as its last dimension.

    Beyond the ends are the values that `numpy.pad` puts there in this mode.
    """
    around = [(0, 0)] * values.ndim
    around[axis] = (size // 2, size - 1 - size // 2)
    return sliding_window_view(np.pad(values, around, mode), size, axis)


def components(mask: NDArray[np.bool_]) -> Iterator[tuple[tuple[slice, slice], NDArray[np.bool_]]]:
    """Yield the place and the mask of each group of pixels that touch at sides or corners, by their first pixels.

    Runs of pixels are joined instead of pixels (He, Chao and Suzuki 2008).
    """
    stride = mask.shape[1] + 2
    change = np.diff(np.pad(mask, ((0, 0), (1, 1))).ravel().astype(np.int8), append=0)
    begin, end = np.flatnonzero(change == 1) + 1, np.flatnonzero(change == -1) + 1
    first = np.searchsorted(end, begin + stride)
    counts = np.searchsorted(begin, end + stride, "right") - first  # runs of the next row that touch each run
    above = np.repeat(np.arange(len(begin)), counts)
    below = np.arange(counts.sum()) + np.repeat(first - np.cumsum(counts) + counts, counts)
    group, before = np.arange(len(begin)), None
    while before is None or (group != before).any():
        before, least = group, np.minimum(group[above], group[below])
        group = group.copy()
        for runs in (before[above], before[below], above, below):
            np.minimum.at(group, runs, least)
        group = group[group]
    labels = np.zeros(len(change), dtype=np.int64)
    labels[begin], labels[end] = group + 1, -group - 1
    labels = np.cumsum(labels).reshape(-1, stride)[:, 1:-1]
    order = np.argsort(group, kind="stable")
    rows, left, right = begin[order] // stride, begin[order] % stride - 1, end[order] % stride - 1
    parts = np.split(np.arange(len(order)), np.flatnonzero(np.diff(group[order])) + 1) if len(order) else []
    for part in parts:
        place = slice(int(rows[part[0]]), int(rows[part[-1]]) + 1), slice(int(left[part].min()), int(right[part].max()))
        yield place, labels[place] == group[order[part[0]]] + 1
