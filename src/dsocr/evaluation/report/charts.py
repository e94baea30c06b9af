"""What is drawn of rates: the verdict, and the bars of groups of lines.

Every drawing is a table with its numbers in it. Rates are fractions; None stands where there is nothing to divide by.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.report.bars import Axis
from dsocr.evaluation.report.marks import visible
from dsocr.evaluation.scores import finite
from dsocr.evaluation.statistics import Interval
from dsocr.pages.plotting import COLOURS


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate, and how far it may be from the truth, where that was asked for."""

    value: float | None
    interval: Interval | None = None

    @classmethod
    def of(cls, rate: ErrorRate, interval: Interval | None = None) -> "Rate":
        """The rate of some errors; None where there are errors over an empty reference."""
        return cls(finite(rate.rate), interval)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval, where one can honestly be given."""
        if self.interval is None or self.interval.low is None or self.interval.high is None:
            return None
        return self.interval.low, self.interval.high

    @property
    def doubt(self) -> str:
        """The interval in words, or why there is none; nothing where none was asked for."""
        return "" if self.interval is None else str(self.interval)

    def told(self, digits: int = 1) -> str:
        """In percent, as people read it."""
        return "no text" if self.value is None else f"{100 * self.value:.{digits}f}\N{NO-BREAK SPACE}%"


@dataclass(frozen=True, slots=True)
class Group:
    """Some lines and the rate of each reading on them, in the order of the readings; None for one that has none."""

    name: str
    lines: int
    rates: Sequence[Rate | None]


def axis_of(groups: Iterable[Group]) -> Axis:
    """A scale with room for all rates and intervals of some groups; a rate over 100 % stands at its end."""
    rates = [rate for group in groups for rate in group.rates if rate is not None]
    ends = [end for rate in rates for end in (*(rate.ends or ()), rate.value) if end is not None]
    return Axis.over(min(end, 1.0) for end in ends)


def verdict(names: Sequence[str], rates: Sequence[Rate]) -> str:
    """Large numbers, and below one another the intervals on one scale."""
    axis = axis_of([Group("", 0, rates)])
    rows = [_verdict_row(place, name, rate, axis) for place, (name, rate) in enumerate(zip(names, rates, strict=True))]
    return f'<div class="verdict">{"".join(rows)}{axis.head()}</div>'


def _verdict_row(place: int, name: str, rate: Rate, axis: Axis) -> str:
    kind = kind_of(place)
    told = f'<span class="quiet told">{escape(rate.doubt)}</span>' if rate.interval else ""
    shapes = axis.whisker(kind, *rate.ends, at=14) if rate.ends else ""
    if rate.value is not None:
        shapes += axis.dot(kind, rate.value, at=14, hollow=not place)
    return (
        f'<span class="name {kind}">{escape(name)}</span><span class="figure {kind}">{rate.told()}</span>'
        f'<span class="range">{axis.cell(shapes, height=28)}</span>{told}'
    )


def kind_of(place: int) -> str:
    """The class that gives a reading its colour, the one its curves and dots have on every page."""
    return f"reading{place % len(COLOURS)}"


def bars(title: str, groups: Sequence[Group], names: Sequence[str]) -> str:
    """A row for each group: its lines, the rate of each reading, and a bar for each rate with its interval."""
    axis = axis_of(groups)
    height = 9 * len(names) + 6

    def shapes(group: Group) -> str:
        drawn = []
        for place, rate in enumerate(group.rates):
            if rate is not None and rate.value is not None:
                drawn.append(axis.bar(kind_of(place), rate.value, top=4 + 9 * place, thickness=7))
                drawn.append(axis.whisker("", *rate.ends, at=7.5 + 9 * place) if rate.ends else "")
        return axis.cell("".join(drawn), height=height)

    return _group_table(title, groups, names, axis, shapes)


def _group_table(
    title: str, groups: Sequence[Group], names: Sequence[str], axis: Axis, shapes: Callable[[Group], str]
) -> str:
    def row(group: Group) -> str:
        rates = "".join(f"<td>{rate.told() if rate else ''}</td>" for rate in group.rates)
        name = f"<th>{visible(group.name)}</th><td>{group.lines:,}</td>"
        return f'<tr>{name}{rates}<td class="scale">{shapes(group)}</td></tr>'

    head = f'<tr><th>{escape(title)}</th><th>lines</th>{heads(names)}<th class="scale">{axis.head()}</th></tr>'
    rows = "".join(map(row, groups))
    style = f"--columns:{1 + len(names)}"  # of numbers, on a screen that is too narrow for a table
    table = f'<table class="groups" style="{style}"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def heads(names: Sequence[str]) -> str:
    """The heading of a column for each reading, with its sign and colour."""
    return "".join(f'<th class="{kind_of(place)}">{key(place)}{escape(name)}</th>' for place, name in enumerate(names))


def key(place: int) -> str:
    """The sign of a reading: a ring for the first, a disc for the others."""
    return f'<span class="key{" full" if place else ""}"></span>'
