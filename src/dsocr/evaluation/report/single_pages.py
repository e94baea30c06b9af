"""Pages beside the report of a run: training curves, forecast and calibration."""

from collections.abc import Callable, Sequence
from pathlib import Path

from dsocr.errors import DataError
from dsocr.evaluation.calibration import CalibrationReport
from dsocr.evaluation.learning_curve import Forecast
from dsocr.evaluation.report.plots import CurvePlot, budget_plot, curve_plots, forecast_plot, reliability_plot
from dsocr.html import plot_svg, plots_png, render
from dsocr.inference.review import point_at
from dsocr.runs import History, read_history, write_atomically

FORECAST_PAGE, FORECAST_PICTURE = "forecast.html", "forecast.png"
_CHECKED_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def write_curves(folders: Sequence[Path], out: Path) -> list[History]:
    """Write the training curves of some runs to a .html or .png file and return what was read."""
    if out.suffix.lower() not in (".html", ".png"):
        raise DataError(
            "Curves are written as .html or .png",
            code="curves-suffix",
            where=out,
            hint=f"for example {out.with_suffix('.html').name}",
        )
    if not out.absolute().parent.is_dir():
        raise DataError(
            "The output folder does not exist",
            code="output-folder-missing",
            where=out.absolute().parent,
            hint="create it first",
        )
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [folder.as_posix() for folder in folders]
    histories = [read_history(folder, name) for folder, name in zip(folders, names, strict=True)]
    if out.suffix.lower() == ".html":
        write_atomically(out, render_curves(histories))
    else:
        write_png(curve_plots(histories), out)
    return histories


def render_curves(histories: Sequence[History]) -> str:
    """Render the curves of one or several runs."""
    return render(__package__, "curves.html.jinja", histories=histories, plots=curve_plots(histories), svg=curve_svg)


def curve_svg(plot: CurvePlot) -> str:
    """Draw training curves for a page."""
    return plot_svg(plot, f"{plot.title} over {plot.axis}", size=(5.0, 2.3))


def write_png(paints: Sequence[Callable[..., None]], path: Path) -> None:
    """Write plots to a PNG file, which appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    plots_png(paints, temporary)
    temporary.replace(path)


def write_forecast(forecast: Forecast, name: str, folder: Path) -> None:
    """Write the page and the picture of a run's forecast into an existing folder."""
    write_atomically(folder / FORECAST_PAGE, render_forecast(forecast, name))
    write_png([forecast_plot(forecast)], folder / FORECAST_PICTURE)


def render_forecast(forecast: Forecast, name: str) -> str:
    """Render what more training lines are expected to bring to a run."""
    svg = plot_svg(forecast_plot(forecast), f"CER on the {forecast.split} split over training lines", size=(6.4, 3.2))
    return render(
        __package__, "forecast.html.jinja", name=name, forecast=forecast, svg=svg, explanation=explanation(forecast)
    )


def explanation(forecast: Forecast) -> str:
    """Explain what the numbers of a forecast include and assume."""
    curve = ""
    if forecast.curve is not None:
        best = forecast.curve.best
        curve = f"Closest curve: CER = {best.a:.3g} * lines^-{best.b:.2f} + {best.c:.3g}. "
    return (
        f"{curve}Every training is scored on the same {len(forecast.largest.scored)} lines of the {forecast.split} "
        f"split. The interval covers the choice of scored lines ({forecast.clusters} {forecast.unit}s resampled), the "
        "randomness of training, and every curve that fits about as well. It assumes that new lines resemble the ones "
        "in the training split: the same writers, or others like them."
    )


def render_calibration(report: CalibrationReport, name: str) -> str:
    """Render how reliable the confidences of a run are, and what checking the least certain lines brings."""
    nouns = {"character": "characters", "word": "words", "line": "lines"}
    plots = {kind: plot_svg(reliability_plot(nouns[kind], found), f"Reliability of {nouns[kind]}", size=(3.4, 3.0))
             for kind, found in report.kinds.items()}  # fmt: skip
    curves = [
        ("least confident first", report.budget),
        ("estimated from confidences", report.estimated_budget),
        ("most errors first (needs the truth)", report.ideal_budget),
    ]
    budget = plot_svg(budget_plot(curves, report.cer), "CER of the rest over lines checked", size=(6.0, 3.0))
    rows = [(point_at(report.budget, share), point_at(report.estimated_budget, share)) for share in _CHECKED_SHARES]
    return render(
        __package__,
        "calibration.html.jinja",
        name=name,
        report=report,
        nouns=nouns,
        plots=plots,
        budget=budget,
        rows=rows,
        summary=report.summary,
    )
