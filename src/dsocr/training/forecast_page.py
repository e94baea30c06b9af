"""A forecast to look at: the trainings, the curve through them with its 95 % band, and what it says, in one file.

No script, nothing fetched, every text escaped.
"""

import math
from html import escape
from pathlib import Path

from dsocr.evaluation.forecast import FARTHEST, Forecast
from dsocr.pages.frame import render_frame
from dsocr.pages.plotting import Line, Plot, render_picture, render_svg, style_of
from dsocr.runs import write_atomically

PAGE, PICTURE = "forecast.html", "forecast.png"
_MEASURED, _CURVE, _ASKED = "trained and scored", "expected, and 95 % of trainings", "what was asked"
_NAMES = (_MEASURED, _CURVE, _ASKED)
_POINTS = 60


def write_pictures(forecast: Forecast, name: str, folder: Path) -> None:
    """Write the page and the picture of a run's forecast into a folder that is there."""
    write_atomically(folder / PAGE, render_page(forecast, name))
    temporary = folder / f".{PICTURE}.tmp"
    render_picture([plot_of(forecast)], _names(forecast)).save(temporary, "PNG")
    temporary.replace(folder / PICTURE)


def render_page(forecast: Forecast, name: str) -> str:
    """The whole page as HTML."""
    title = f"How many more lines? {name}"
    told = "".join(f"<li>{escape(sentence)}</li>" for sentence in forecast.sentences())
    names, plot = _names(forecast), plot_of(forecast)
    legend = " &nbsp; ".join(
        f'<span style="color:{style_of(place)}">&#9632;</span> {escape(known)}' for place, known in enumerate(names)
    )
    rows = "".join(
        f"<tr><td>{point.samples:,}</td><td>{point.steps:,}</td><td>{point.cer:.2%}</td></tr>"
        for point in forecast.points
    )
    head = "<tr><th>lines</th><th>steps</th><th>CER</th></tr>"
    body = (
        f"<h1>{escape(title)}</h1>\n<ul>{told}</ul>\n"
        f"<figure><figcaption><b>{escape(plot.title)}</b> over {plot.axis}<br>{legend}</figcaption>"
        f"{render_svg(plot, names)}</figure>\n"
        f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>\n'
        f'<p class="quiet">{escape(explanation(forecast))}</p>'
    )
    return render_frame(title, body)


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
        banded = [curve.expect(count) for count in _between(forecast.points[0].samples, farthest)]
        lines.insert(
            0,
            Line(
                _CURVE,
                [(expected.count, 100 * expected.rate) for expected in banded],
                band=[(expected.count, 100 * expected.low, 100 * expected.high) for expected in banded],
            ),
        )
        if asked:
            lines.append(Line(_ASKED, [(expected.count, 100 * expected.rate) for expected in asked], dots=True))
    return Plot(f"CER of the {forecast.split} split, %", "training lines", lines)


def _names(forecast: Forecast) -> list[str]:
    drawn = {line.run for line in plot_of(forecast).lines}
    return [name for name in _NAMES if name in drawn]


def _between(first: int, last: int) -> list[int]:
    """Counts from the first to the last, dense where the curve is steep."""
    ratio = math.log(last / first)
    return sorted({round(first * math.exp(ratio * place / (_POINTS - 1))) for place in range(_POINTS)})
