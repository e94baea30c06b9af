"""Parting lines: a seam from left to right through the least ink between two of them, found by dynamic programming.

The seams are those of Avidan and Shamir 2007, between neighbouring lines only.
"""

import numpy as np
from numpy.typing import NDArray

from dsocr.data.segmentation.ink import Ink

_STEPS = 24
"""Heights between two lines that a seam may take."""
_INK = 4.0
"""What crossing ink costs, against going off the middle all the way."""


def find_seam(
    ink: Ink, columns: NDArray[np.int64], upper: NDArray[np.float64], lower: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rows of the seam at `columns`, between the middles of the upper and the lower line there."""
    shares = np.linspace(0.08, 0.92, _STEPS)
    rows = upper + shares[:, None] * (lower - upper)
    crossed = ink[np.clip(np.round(rows).astype(np.int64), 0, ink.shape[0] - 1), columns]
    costs = _INK * crossed + ((shares - 0.5) ** 2 * 2)[:, None]
    total = costs[:, 0]
    steps = np.zeros((len(columns), _STEPS), dtype=np.int8)
    for place in range(1, len(columns)):
        padded = np.concatenate([[np.inf], total, [np.inf]])
        options = np.stack([padded[:-2], padded[1:-1], padded[2:]])
        best = options.argmin(axis=0)
        steps[place] = best - 1
        total = options[best, np.arange(_STEPS)] + costs[:, place]
    path = np.empty(len(columns), dtype=np.int64)
    path[-1] = int(total.argmin())
    for place in range(len(columns) - 1, 0, -1):
        path[place - 1] = path[place] + steps[place, path[place]]
    seam: NDArray[np.float64] = rows[path, np.arange(len(columns))]
    return seam
