"""A dumbbell plot as SVG: a row for each writer, a dot for its CER in each reading, a bar from the first to the last.

Colours are those of our pages (`pages/frame.css`); outside of them the light ones are drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dsocr.pages.plotting import COLOURS, nice_step

MOST_ROWS = 60
"""Rows that are drawn; of more, those that changed most both ways."""

_WIDTH, _NAMES, _RIGHT, _TOP, _ROW, _FOOT = 640, 190, 58, 34, 20, 44
_TICKS = 6
_LONGEST = 26
_Across = Callable[[float], float]
_FAR = 1.5
"""CER beyond which a dot stands at the edge, its number beside it: a loop would press all others together."""


@dataclass(frozen=True, slots=True)
class Row:
    """A writer or page: its name, how many lines it has, and its CER in each reading, None without any text."""

    name: str
    lines: int
    cers: Sequence[float | None]


def render_dumbbells(names: Sequence[str], rows: Sequence[Row], unit: str) -> str:
    """The plot of these rows in their order; `names` are those of the readings."""
    shown = _chosen(rows)
    values = [min(cer, _FAR) for row in shown for cer in row.cers if cer is not None]
    step = nice_step(max([*values, 0.01]) / _TICKS)
    top = step * -(-max([*values, 0.01]) // step)
    room = _WIDTH - _NAMES - _RIGHT
    height = _TOP + _ROW * len(shown) + _FOOT

    def across(cer: float) -> float:
        return _NAMES + room * min(cer / top, 1.0)

    drawn = [_legend(names)]
    foot = height - _FOOT + 4
    for place in range(round(top / step) + 1):
        x = across(place * step)
        drawn.append(f'<path class="grid" stroke="#ddd" d="M{x:.1f} {_TOP}V{foot}"/>')
        drawn.append(f'<text x="{x:.1f}" y="{foot + 15}" text-anchor="middle">{100 * place * step:.4g}</text>')
    drawn.append(f'<text x="{_NAMES + room / 2:.1f}" y="{foot + 32}" text-anchor="middle">CER, %</text>')
    drawn += [_row(row, names, _TOP + _ROW * (place + 0.5), across) for place, row in enumerate(shown)]
    left_out = f" ({len(shown)} of {len(rows)}, those that changed most)" if len(shown) < len(rows) else ""
    title = _plain(f"CER of each {unit}{left_out}: {', '.join(names)}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="11">'
        f"<title>{escape(title)}</title>{''.join(drawn)}</svg>"
    )


def _chosen(rows: Sequence[Row]) -> Sequence[Row]:
    if len(rows) <= MOST_ROWS:
        return rows
    return [*rows[: MOST_ROWS // 2], *rows[-MOST_ROWS // 2 :]]  # they come sorted by their change


def _legend(names: Sequence[str]) -> str:
    """The readings' names with their dots, as many as fit."""
    drawn, x = [], 6.0
    for place, name in enumerate(names):
        told = _cut(name, 30)
        drawn.append(f'<circle cx="{x + 4:.1f}" cy="12" r="5" style="{_dot(place)}"/>')
        drawn.append(f'<text x="{x + 14:.1f}" y="16">{escape(told)}</text>')
        x += 34 + 6.4 * len(told)
    return "".join(drawn)


def _row(row: Row, names: Sequence[str], y: float, across: _Across) -> str:
    told = [f"{name} {100 * cer:.1f} %" for name, cer in zip(names, row.cers, strict=True) if cer is not None]
    lines = f"{row.lines} line{'' if row.lines == 1 else 's'}"
    drawn = [f"<title>{escape(_plain(row.name))} ({lines}): {escape(_plain(', '.join(told)))}</title>"]
    name = f"{escape(_cut(row.name, _LONGEST))} ({row.lines})"
    drawn.append(f'<text x="{_NAMES - 12}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    known = [(place, cer) for place, cer in enumerate(row.cers) if cer is not None]
    if len(known) > 1:
        last = known[-1]
        x, end = across(known[0][1]), across(last[1])
        drawn.append(
            f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke-width="3" opacity=".45" style="{_stroke(last[0])}"/>'
        )
    for place, cer in known:
        drawn.append(f'<circle cx="{across(cer):.1f}" cy="{y:.1f}" r="5" style="{_dot(place)}"/>')
    far = [cer for _, cer in known if cer > _FAR]
    if far:
        drawn.append(f'<text x="{across(_FAR) + 9:.1f}" y="{y + 4:.1f}">{100 * max(far):.0f} %</text>')
    return f"<g>{''.join(drawn)}</g>"


def _cut(name: str, longest: int) -> str:
    """A name as long as there is room for."""
    shown = _plain(name)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def _plain(name: str) -> str:
    """A name without what cannot be shown, and what XML may not hold."""
    return "".join(character if character.isprintable() else "?" for character in name)


def _colour(place: int) -> str:
    place %= len(COLOURS)
    return f"var(--run{place}, {COLOURS[place]})"


def _dot(place: int) -> str:
    """A ring for the first reading and discs for the others, so that colour is not all that tells them apart."""
    if not place:
        return f"fill: var(--paper, #fff); stroke: {_colour(place)}; stroke-width: 2.5"
    return f"fill: {_colour(place)}"


def _stroke(place: int) -> str:
    return f"stroke: {_colour(place)}"
