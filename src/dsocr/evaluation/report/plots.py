"""Draw every plot of an evaluation with matplotlib: training curves, forecasts, reliability, writers."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dsocr.evaluation.calibration import Reliability
from dsocr.evaluation.compare import ComparedGroup
from dsocr.evaluation.learning_curve import Forecast
from dsocr.html import BAR, PAPER, QUIET, Plot, counted, printable, run_colour
from dsocr.inference.review import CheckedShare
from dsocr.runs import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_WRITERS = 60
"""Most rows of a plot of writers; of more, only the largest changes both ways are drawn."""
_CER_LIMIT = 1.5
"""CER beyond which a dot is at the edge with its number beside it: a loop would squeeze all others together."""
_NAME_LENGTH = 26
_CURVE_POINTS = 60
_BUDGET_POINTS = 200


def curve_plots(history: History) -> list[Plot]:
    """Plot losses and validation CER of a run over its steps; the kept step has a ring."""
    best = history.best
    kept = (best["step"], 100 * best["cer"]) if best else None
    kinds = [
        ("training loss", history.training, "loss", 1, None),
        ("validation loss", history.validation, "loss", 1, None),
        ("validation CER, %", history.validation, "cer", 100, kept),
    ]
    plots = []
    for title, rows, name, scale, ring in kinds:
        if points := [(row["step"], row[name] * scale) for row in rows if row.get(name) is not None]:
            plots.append(_curve_plot(title, points, ring))
    return plots


def _curve_plot(title: str, points: Sequence[tuple[float, float]], best: tuple[float, float] | None) -> Plot:
    def paint(axes: "Axes") -> None:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=run_colour(0), marker="." if len(x) == 1 else None)
        if best is not None:
            axes.plot(*best, marker="o", markersize=7, color=run_colour(0), fillstyle="none")
            _annotate(axes, f"best {best[1]:.4g}", best, (0, 7), ha="center")
        axes.set(xlabel="steps", ylabel=title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))

    return Plot(f"{title} over steps", paint)


def forecast_plot(forecast: Forecast) -> Plot:
    """Plot the scored runs as dots, and the curve up to the forecast with its 95 % band."""

    def paint(axes: "Axes") -> None:
        sizes = np.geomspace(forecast.points[0].samples, forecast.expected.samples, _CURVE_POINTS)
        band = [forecast.expect(round(size)) for size in sizes.tolist()]
        low, high = ([100 * getattr(expected, end) for expected in band] for end in ("low", "high"))
        axes.fill_between(sizes, low, high, color=run_colour(1), alpha=0.15, linewidth=0, label="95 % interval")
        axes.plot(sizes, [100 * expected.rate for expected in band], color=run_colour(1), label="expected")
        x, y = zip(*((point.samples, 100 * point.cer) for point in forecast.points), strict=True)
        axes.plot(x, y, "o", color=run_colour(0), label="trained and scored")
        axes.set(xlabel="training lines", ylabel="CER on the validation split, %")
        axes.set_ylim(bottom=0)
        axes.legend()

    return Plot("CER on the validation split over training lines", paint, (6.4, 3.2))


def reliability_plot(noun: str, reliability: Reliability) -> Plot:
    """Plot the share of right characters, words or lines against their confidence."""

    def paint(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], color=QUIET, linestyle=":", label="ideal")
        kinds = (("uncalibrated", reliability.bins_before, 1), ("calibrated", reliability.bins_after, 0))
        for name, bins, place in kinds:
            confidences, shares = [tenth.confidence for tenth in bins], [tenth.accuracy for tenth in bins]
            axes.plot(confidences, shares, color=run_colour(place), marker=".", label=name)
        axes.set(xlabel=f"confidence of {noun}", ylabel="share that is right", ylim=(0, 1.02))
        axes.legend()

    return Plot(f"Reliability of {noun}", paint, (3.4, 3.0))


def budget_plot(curves: Mapping[str, Sequence[CheckedShare]], cer: float) -> Plot:
    """Plot the CER that remains after a share of the lines was checked, in several orders of checking."""

    def paint(axes: "Axes") -> None:
        for place, (name, curve) in enumerate(curves.items()):
            shown = curve[:: max(1, len(curve) // _BUDGET_POINTS)]
            x, y = [100 * point.share for point in shown], [100 * point.rest for point in shown]
            axes.plot(x, y, color=run_colour(place), label=name)
        axes.axhline(100 * cer, color=QUIET, linestyle=":", label="random order")
        axes.set(xlabel="lines checked, %", ylabel="CER of the rest, %")
        axes.set_ylim(bottom=0)
        axes.legend()

    return Plot("CER of the rest over lines checked", paint, (6.0, 3.0))


def writers_plot(names: Sequence[str], groups: Sequence[ComparedGroup], unit: str) -> Plot:
    """Plot a row per writer or page, with a dot for its CER in each reading; the groups are sorted by their change.

    Of many groups, only the largest changes both ways are drawn.
    """
    half = MOST_WRITERS // 2
    shown = groups if len(groups) <= MOST_WRITERS else [*groups[:half], *groups[-half:]]
    note = f" ({len(shown)} of {len(groups)} with the largest changes)" if len(shown) < len(groups) else ""
    label = f"CER of {counted(len(groups), unit)}{note}: {', '.join(names)}"

    def paint(axes: "Axes") -> None:
        rows = range(len(shown))
        # In percent, cut where the plot ends; not a number without any text.
        cers = np.array([[cer.rate if math.isfinite(cer.rate) else math.nan for cer in group.cers] for group in shown])
        values = 100 * np.minimum(cers, _CER_LIMIT)
        for row, (first, *_, last) in enumerate(values.tolist()):
            if not math.isnan(first + last):
                axes.plot([first, last], [row, row], color=BAR, linewidth=3, alpha=0.5, zorder=1)
        for place, name in enumerate(names):
            # A ring for the first reading, so that not only the colour tells them apart.
            face, edge = run_colour(place) if place else PAPER, run_colour(place)
            axes.scatter(values[:, place], rows, s=28, facecolor=face, edgecolor=edge, label=_short(name), zorder=2)
        for row, far in enumerate(np.nan_to_num(cers).max(axis=1)):
            if far > _CER_LIMIT:
                _annotate(axes, f"{100 * far:.0f} %", (100 * _CER_LIMIT, row), (6, 0), va="center")
        axes.set_yticks(rows, [f"{_short(group.name)} ({group.lines})" for group in shown])
        axes.set(xlabel="CER, %", ylim=(len(shown) - 0.4, -0.6))
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return Plot(label, paint, (6.4, 1.0 + 0.24 * len(shown)))


def _annotate(axes: "Axes", text: str, point: tuple[float, float], offset: tuple[int, int], **alignment: str) -> None:
    axes.annotate(text, point, offset, textcoords="offset points", color=QUIET, **alignment)  # type: ignore[arg-type]


def _short(name: str) -> str:
    shown = str(printable(name)).replace("\n", " ")
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 1]}…"
