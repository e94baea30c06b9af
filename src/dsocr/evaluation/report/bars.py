"""Bars, dots and intervals as cells of a table: the numbers beside them are their text alternative.

A cell is an SVG that is stretched to the width of its column, so it suits a phone, a wide screen and paper. All cells
of a table share one scale, from nought to a round number. Colours are classes, which the page's style knows.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dsocr.pages.plotting import nice_step

_TICKS = 4


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from nought to `most`, with a line at each multiple of `step`."""

    most: float
    step: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Axis":
        """An axis on which all finite values have room."""
        most = max((value for value in values if math.isfinite(value)), default=0.0) or 1.0
        step = nice_step(most / _TICKS)
        return cls(math.ceil(most / step - 1e-9) * step, step)

    def place(self, value: float) -> float:
        """Where a value stands, from 0 to 100; what is infinite stands at the end."""
        return 100 * min(max(value / self.most, 0.0), 1.0)

    @property
    def ticks(self) -> list[float]:
        """The values at which there is a line."""
        return [place * self.step for place in range(round(self.most / self.step) + 1)]

    def head(self) -> str:
        """The heading of a column of cells: the percentages at the lines."""
        marks = "".join(
            f'<span style="left:{self.place(tick):.1f}%">{100 * tick:.3g}\N{NO-BREAK SPACE}%</span>'
            for tick in self.ticks
        )
        return f'<div class="axis" aria-hidden="true">{marks}</div>'

    def cell(self, shapes: str, *, height: int = 20) -> str:
        """A cell with some shapes over the lines of the scale."""
        lines = "".join(f"M{self.place(tick):.1f} 0V{height}" for tick in self.ticks)
        return (
            f'<svg class="cell" viewBox="0 0 100 {height}" preserveAspectRatio="none" aria-hidden="true" '
            f'style="height:{height}px"><path class="grid" d="{lines}"/>{shapes}</svg>'
        )

    def bar(self, kind: str, value: float, *, top: float, thickness: float) -> str:
        """A bar from nought to a value."""
        return f'<rect class="{kind}" y="{top:g}" width="{self.place(value):.2f}" height="{thickness:g}"/>'

    def whisker(self, kind: str, low: float, high: float, *, at: float) -> str:
        """The line of an interval."""
        low, high = self.place(low), self.place(high)
        ends = f"M{low:.2f} {at - 4:g}V{at + 4:g}M{high:.2f} {at - 4:g}V{at + 4:g}"
        return f'<path class="whisker {kind}" d="M{low:.2f} {at:g}H{high:.2f}{ends}"/>'

    def dot(self, kind: str, value: float, *, at: float, hollow: bool = False) -> str:
        """A dot, which stays round however wide the cell is: the cap of a line without length."""
        path = f"M{self.place(value):.2f} {at:g}h0"
        inner = f'<path class="dot inner" d="{path}"/>' if hollow else ""
        return f'<path class="dot {kind}" d="{path}"/>{inner}'
