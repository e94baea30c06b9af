"""Rates of single lines, writers and pages beside the pooled one: macro means, the median line and the 90th percentile.

A macro mean counts a short line, or a writer of few lines, as much as any other; published results that say CER mostly
mean the pooled rate, so these never go by that name alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np

from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scores import LineScore

Grouped = Literal["writer", "page", "source"]


@dataclass(frozen=True, slots=True)
class MacroMean:
    """The mean of `of` rates, None where there are none; `left_out` have no text in their references, and no rate."""

    cer: float | None
    wer: float | None
    of: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Averages:
    """The macro means over lines, and over writers and pages as far as they are known, and quantiles of the lines' CER.

    Quantiles lie between two lines where they fall between them (linear interpolation).
    """

    macro_over_lines: MacroMean
    macro_over_writers: MacroMean
    macro_over_pages: MacroMean
    median_line_cer: float | None
    p90_line_cer: float | None

    @classmethod
    def of(cls, lines: Sequence[LineScore]) -> Self:
        """The averages of some lines."""
        rates = [line.cer.rate for line in lines if line.cer.length]
        median, p90 = np.quantile(rates, [0.5, 0.9]) if rates else (None, None)
        return cls(
            _macro([(line.cer, line.wer) for line in lines]),
            _macro(list(pooled_by("writer", lines).values())),
            _macro(list(pooled_by("page", lines).values())),
            None if median is None else float(median),
            None if p90 is None else float(p90),
        )

    def as_dict(self) -> dict[str, Any]:
        """The averages as JSON holds them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The averages that `as_dict` wrote."""
        macro = {name: MacroMean(**value) for name, value in values.items() if name.startswith("macro")}
        return cls(**{**values, **macro})


def pooled_by(what: Grouped, lines: Sequence[LineScore]) -> dict[str, tuple[ErrorRate, ErrorRate]]:
    """CER and WER of each writer, page or source that is known, pooled, in the order in which they come."""
    sums: dict[str, list[int]] = {}
    for line in lines:
        name: str | None = getattr(line, what)
        if name is not None:
            counts = sums.setdefault(name, [0, 0, 0, 0])
            for place, count in enumerate((line.cer.errors, line.cer.length, line.wer.errors, line.wer.length)):
                counts[place] += count
    return {name: (ErrorRate(*counts[:2]), ErrorRate(*counts[2:])) for name, counts in sums.items()}


def _macro(rates: Sequence[tuple[ErrorRate, ErrorRate]]) -> MacroMean:
    counted = [(cer.rate, wer.rate) for cer, wer in rates if cer.length]
    if not counted:
        return MacroMean(None, None, 0, len(rates))
    cer, wer = np.mean(counted, axis=0)
    return MacroMean(float(cer), float(wer), len(counted), len(rates) - len(counted))
