"""Plots of curves as inline SVG and as a picture, by no more than strings and Pillow.

Knows nothing about runs. Pillow's own font has no Cyrillic: a picture shows names in the letters that font has.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from PIL import Image, ImageColor, ImageDraw, ImageFont

COLOURS = ("#1f5fa8", "#c2501c", "#2b8043", "#8a3fa0", "#7a6a10", "#b02a5b", "#188a8a", "#555555")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _FOOT, _HEAD = 620, 260, 64, 24, 34, 26
_TICKS = 5


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of one run: points of (x, y) in their order, and the one that is marked, as the best unless said.

    `band` are points of (x, low, high), the stretch between which is shaded; `dots` draws points without a curve.
    """

    run: str
    points: Sequence[tuple[float, float]]
    best: tuple[float, float] | None = None
    mark: str = "best"
    band: Sequence[tuple[float, float, float]] = ()
    dots: bool = False

    @property
    def outline(self) -> list[tuple[float, float]]:
        """The band's edge all around."""
        return [(x, low) for x, low, _ in self.band] + [(x, high) for x, _, high in reversed(self.band)]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves of one quantity over one axis."""

    title: str
    axis: str
    lines: Sequence[Line]


def colour_of(place: int) -> str:
    """The colour of the run that was named at this place, in a picture."""
    return COLOURS[place % len(COLOURS)]


def style_of(place: int) -> str:
    """The same colour in a page, whose style has one for light and one for dark."""
    return f"var(--run{place % len(COLOURS)})"


class _Scale:
    """Where a value stands between two edges in pixels, and the round numbers that are written there."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, from_zero: bool) -> None:
        low, high = min(values), max(values)
        self._low = min(low, 0.0) if from_zero else low
        self._step = nice_step((high - self._low or abs(high) or 1.0) / _TICKS)
        self._high = math.ceil(high / self._step - 1e-9) * self._step
        if self._high <= self._low:
            self._high = self._low + self._step
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return self._start + (self._end - self._start) * (value - self._low) / (self._high - self._low)

    def ticks(self) -> Iterator[float]:
        """The round numbers from one edge to the other."""
        place = math.ceil(self._low / self._step - 1e-9)
        while place * self._step <= self._high + 1e-9 * self._step:
            yield place * self._step
            place += 1


def nice_step(step: float) -> float:
    """The next step of 1, 2 or 5 times a power of ten, at least as large as this positive one."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= step * 0.999)


def _scales(plot: Plot) -> tuple[_Scale, _Scale]:
    shown = [point for line in plot.lines for point in (*line.points, *line.outline)]
    xs, ys = [x for x, _ in shown], [y for _, y in shown]
    across = _Scale(xs, _LEFT, _WIDTH - _RIGHT, from_zero=True)
    return across, _Scale(ys, _HEIGHT - _FOOT, _HEAD, from_zero=True)


def render_svg(plot: Plot, names: Sequence[str]) -> str:
    """One plot; `names` are those of all runs, in the order of their colours."""
    across, up = _scales(plot)
    drawn = [
        f'<path d="M{_LEFT} {up(tick):.1f}H{_WIDTH - _RIGHT}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{tick:.4g}</text>'
        for tick in up.ticks()
    ]
    drawn += [
        f'<text x="{across(tick):.1f}" y="{_HEIGHT - _FOOT + 18}" text-anchor="middle">{tick:.4g}</text>'
        for tick in across.ticks()
    ]
    for line in plot.lines:
        colour = style_of(names.index(line.run))
        title = f"<title>{escape(line.run)}</title>"
        if line.band:
            edge = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.outline)
            drawn.append(f'<polygon points="{edge}" style="fill:{colour};fill-opacity:.15">{title}</polygon>')
        if line.dots:
            drawn += [
                f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="4" style="fill:{colour}">'
                f"<title>{x:.4g}: {y:.4g}</title></circle>"
                for x, y in line.points
            ]
        else:
            points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
            drawn.append(
                f'<polyline points="{points}" style="fill:none;stroke:{colour};stroke-width:1.8">{title}</polyline>'
            )
        if line.best is not None:
            x, y = across(line.best[0]), up(line.best[1])
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" style="fill:none;stroke:{colour};stroke-width:2"/>')
            anchor = "middle" if x < _WIDTH - 60 else "end"
            told = f"{escape(line.mark)} {line.best[1]:.4g}"
            drawn.append(f'<text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="{anchor}">{told}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(plot.title)}">{"".join(drawn)}</svg>'


def render_picture(shown: Sequence[Plot], names: Sequence[str]) -> Image.Image:
    """All plots in two columns, twice the size for sharp lines, with the runs' names above."""
    times, top = 2, 20 + 18 * len(names)
    columns = min(2, len(shown))
    rows = -(-len(shown) // 2)
    image = Image.new("RGB", (times * columns * _WIDTH, times * (top + rows * (_HEIGHT + 10))), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12 * times)
    for place, name in enumerate(names):
        told = name.encode("latin-1", "replace").decode("latin-1")
        draw.text((20 * times, (10 + 18 * place) * times), told, fill=colour_of(place), font=font)
    for place, plot in enumerate(shown):
        corner = (times * (place % 2) * _WIDTH, times * (top + (place // 2) * (_HEIGHT + 10)))
        _draw(draw, font, plot, names, corner, times)
    return image


def _pale(colour: str) -> tuple[int, int, int]:
    """The colour at 15 % over white."""
    red, green, blue = (round(255 - 0.15 * (255 - part)) for part in ImageColor.getrgb(colour)[:3])
    return red, green, blue


def _draw(
    draw: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    plot: Plot,
    names: Sequence[str],
    corner: tuple[int, int],
    times: int,
) -> None:
    across, up = _scales(plot)

    def at(x: float, y: float) -> tuple[float, float]:
        return corner[0] + times * x, corner[1] + times * y

    draw.text(at(_LEFT, 4), f"{plot.title}, over {plot.axis}", fill="#222", font=font)
    for tick in up.ticks():
        draw.line([at(_LEFT, up(tick)), at(_WIDTH - _RIGHT, up(tick))], fill="#ddd", width=times)
        draw.text(at(_LEFT - 6, up(tick)), f"{tick:.4g}", fill="#555", font=font, anchor="rm")
    for tick in across.ticks():
        draw.text(at(across(tick), _HEIGHT - _FOOT + 14), f"{tick:.4g}", fill="#555", font=font, anchor="mm")
    for line in plot.lines:
        colour = colour_of(names.index(line.run))
        points = [at(across(x), up(y)) for x, y in line.points]
        if line.band:
            draw.polygon([at(across(x), up(y)) for x, y in line.outline], fill=_pale(colour))
        if line.dots:
            for x, y in points:
                draw.ellipse((x - 4 * times, y - 4 * times, x + 4 * times, y + 4 * times), fill=colour)
        else:
            draw.line(points if len(points) > 1 else points * 2, fill=colour, width=2 * times, joint="curve")
        if line.best is not None:
            x, y = at(across(line.best[0]), up(line.best[1]))
            draw.ellipse((x - 5 * times, y - 5 * times, x + 5 * times, y + 5 * times), outline=colour, width=2 * times)
            draw.text((x, y - 14 * times), f"{line.mark} {line.best[1]:.4g}", fill="#555", font=font, anchor="mm")
