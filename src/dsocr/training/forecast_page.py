"""A forecast to look at: the trainings, the curve through them with its 95 % band, and what it says, in one file.

No script, nothing fetched, every text escaped.
"""

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from dsocr.evaluation.forecast import FARTHEST, Forecast
from dsocr.runs import write_atomically
from dsocr.training.plotting import Line, Plot, colour_of, render_picture, render_svg

PAGE, PICTURE = "forecast.html", "forecast.png"
_MEASURED, _CURVE, _ASKED = "trained and scored", "curve, 95 % band", "what was asked, 95 %"
_NAMES = (_MEASURED, _CURVE, _ASKED)
_POINTS = 60
_STYLE = (
    ":root{color-scheme:light dark;--ink:#222;--quiet:#555;--ground:#fff;--rule:#ddd}"
    "@media(prefers-color-scheme:dark){:root{--ink:#ddd;--quiet:#aaa;--ground:#181a1b;--rule:#3a3d3f}}"
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:46rem;padding:0 1rem;"
    "color:var(--ink);background:var(--ground)}"
    "svg{width:100%;height:auto}text{font-size:12px;fill:var(--quiet)}svg path{stroke:var(--rule)}"
    "td,th{padding:.15rem .9rem;text-align:right}table{border-collapse:collapse;margin:1rem 0}"
    "thead th{border-bottom:1px solid var(--rule)}.quiet{color:var(--quiet)}li{margin:.3rem 0}"
)


def write_pictures(forecast: Forecast, name: str, folder: Path) -> None:
    """Write the page and the picture of a run's forecast into a folder that is there."""
    write_atomically(folder / PAGE, render_page(forecast, name))
    temporary = folder / f".{PICTURE}.tmp"
    render_picture([plot_of(forecast)], _names(forecast)).save(temporary, "PNG")
    temporary.replace(folder / PICTURE)


def render_page(forecast: Forecast, name: str) -> str:
    """The whole page as HTML."""
    title = f"How many more lines? {name}"
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in forecast.sentences())
    legend = "".join(
        f'<span style="color:{colour_of(place)}">&#9632;</span> {escape(known)} &nbsp; '
        for place, known in enumerate(_names(forecast))
    )
    rows = "".join(
        f"<tr><td>{point.samples:,}</td><td>{point.steps:,}</td><td>{point.cer:.2%}</td></tr>"
        for point in forecast.points
    )
    plot = plot_of(forecast)
    body = (
        f"<h1>{escape(title)}</h1><ul>{told}</ul>"
        f"<figure><figcaption>{escape(plot.title)}, over {plot.axis}<br>{legend}</figcaption>"
        f"{render_svg(plot, _names(forecast))}</figure>"
        f"<table><thead><tr><th>lines</th><th>steps</th><th>CER</th></tr></thead><tbody>{rows}</tbody></table>"
        f'<p class="quiet">{escape(explanation(forecast))}</p>'
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def explanation(forecast: Forecast) -> str:
    """What the numbers are and are not."""
    curve = ""
    if forecast.curve is not None:
        best = forecast.curve.best
        curve = f"Nearest curve: CER = {best.a:.3g} * lines^-{best.b:.2f} + {best.c:.3g}. "
    return (
        f"{curve}Every training is scored on the same {len(forecast.largest.scored)} lines of the {forecast.split} "
        f"split. The interval holds other lines to score ({forecast.clusters} {forecast.unit}s drawn anew), the luck "
        "of a training, and the curves that pass as near. More lines are taken to be like those that are there: of "
        "the same hands or of further ones, as the training split has them."
    )


def plot_of(forecast: Forecast) -> Plot:
    """The trainings as dots, the curve with its band as far as was asked, and what was asked as dots of its own."""
    lines = [Line(_MEASURED, [(point.samples, 100 * point.cer) for point in forecast.points], dots=True)]
    curve = forecast.curve
    if curve is not None:
        asked = [expected for expected in forecast.more if expected.count <= FARTHEST * forecast.largest.samples]
        farthest = max([2 * forecast.largest.samples, *(expected.count for expected in asked)])
        banded = [(count, *curve.band(count)) for count in _between(forecast.points[0].samples, farthest)]
        lines.insert(
            0,
            Line(
                _CURVE,
                [(count, 100 * middle) for count, _, middle, _ in banded],
                band=[(count, 100 * low, 100 * high) for count, low, _, high in banded],
            ),
        )
        if asked:
            lines.append(Line(_ASKED, [(expected.count, 100 * expected.rate) for expected in asked], dots=True))
    return Plot(f"CER of the {forecast.split} split, %", "training lines", lines)


def _names(forecast: Forecast) -> list[str]:
    drawn = {line.run for line in plot_of(forecast).lines}
    return [name for name in _NAMES if name in drawn]


def _between(first: float, last: float) -> Iterator[float]:
    """Counts from the first to the last, dense where the curve is steep."""
    ratio = math.log(last / first)
    return (first * math.exp(ratio * place / (_POINTS - 1)) for place in range(_POINTS))
