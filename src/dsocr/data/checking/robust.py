"""The middle and the spread of numbers among which some are wrong."""

import statistics
from collections.abc import Sequence


def middle_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the standard deviation that the median absolute deviation stands for among normal values."""
    middle = statistics.median(values)
    return middle, 1.4826 * statistics.median(abs(value - middle) for value in values)
