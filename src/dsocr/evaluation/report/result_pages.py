"""Write the pages beside the report of a run: comparison, forecast, search for settings and calibration.

A comparison is written as tables for a publication too: tidy CSV with every number, and LaTeX with the main ones.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from dsocr.evaluation.calibration import CalibrationReport
from dsocr.evaluation.compare import Comparison, read_lines
from dsocr.evaluation.learning_curve import Forecast
from dsocr.evaluation.rates import ComparedRate, RateDifference, describe_bounds, describe_p, describe_rate_change
from dsocr.evaluation.report.contents import chapters_of, flat, format_ends, lines_by_writers, sentence
from dsocr.evaluation.report.plots import (
    budget_plot,
    forecast_plot,
    reliability_plot,
    setting_plot,
    trials_plot,
    writers_svg,
)
from dsocr.evaluation.report.report import line_context, score_changes
from dsocr.evaluation.statistics import Interval
from dsocr.evaluation.tuning import TuneResult, format_value
from dsocr.formats.tables import spreadsheet_cell
from dsocr.html import counted, plot_svg, plots_png, render
from dsocr.inference.review import point_at
from dsocr.io.work import require_free_output, write_file, writing_file, writing_folder
from dsocr.runs import to_json

_CSV_COLUMNS = [
    "rate",
    "of",
    "lines",
    "writers",
    "system",
    "compared_with",
    "value",
    "low",
    "high",
    "level",
    "interval_over",
    "clusters",
    "p",
    "p_holm",
    "verdict",
    "scope",
    "no_interval_because",
]
_LATEX_ESCAPES = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX_SPECIAL = re.compile(r"[\\&%$#_{}~^]")
_MAIN_RATES = 3


def comparison_csv(comparison: Comparison) -> str:
    """Write a row for each rate of each system, and one for each difference of two systems, in fractions.

    A rate has no `compared_with`; a difference is the system's rate minus the other's.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for rate in comparison.rates:
        head = (rate.name, rate.part, rate.lines, rate.writers)
        for system, value, interval in zip(comparison.systems, rate.rates, rate.intervals, strict=True):
            cell = value.rate if math.isfinite(value.rate) else ""
            row = (*head, spreadsheet_cell(system.name), "", cell, *_interval_cells(interval), "", "", "")
            writer.writerow((*row, rate.scope or "", interval.reason or ""))
        for difference in rate.differences:
            ps = ("" if p is None else p for p in (difference.p, difference.corrected_p))
            names = spreadsheet_cell(difference.second), spreadsheet_cell(difference.first)
            row = (*head, *names, "" if difference.difference is None else difference.difference)
            cells = (
                *_interval_cells(difference.interval),
                *ps,
                difference.verdict,
                rate.scope or "",
                difference.interval.reason or "",
            )
            writer.writerow((*row, *cells))
    return file.getvalue()


def _interval_cells(interval: Interval) -> tuple[object, ...]:
    low, high = interval.bounds or ("", "")
    return low, high, interval.level, interval.unit, interval.clusters


def comparison_latex(comparison: Comparison) -> str:
    r"""Write the main rates with their intervals, and all pairs of systems, as tables (`\usepackage{booktabs}`)."""
    rates = comparison.rates[:_MAIN_RATES]
    unit = f"{comparison.clusters} {comparison.unit}{'' if comparison.clusters == 1 else 's'}"
    scope = f", {rates[0].scope}: they hold for no other writers" if rates[0].scope else ""
    caption = (
        f"Error rates pooled over {rates[0].lines} {rates[0].noun}s, with 95 % confidence "
        f"intervals over {unit}{scope}. Training again is not in the intervals."
    )
    head = ["", *(f"{rate.name}, %" for rate in rates)]
    body = [
        [system.name, *(_rate_cell(rate, place) for rate in rates)] for place, system in enumerate(comparison.systems)
    ]
    pairs = [["", "difference, points", "95 % CI", "p", "p (Holm)"]]
    pairs += [list(_pair_row(difference)) for difference in rates[0].differences]
    tests = (
        f"Differences in {rates[0].name}, system minus other; paired permutation test over {comparison.unit}s, "
        f"and its p corrected for all pairs (Holm 1979){scope}."
    )
    return "\n".join([*_latex_table([head, *body], caption), "", *_latex_table(pairs, tests), ""])


def _rate_cell(rate: ComparedRate, place: int) -> str:
    value, bounds = rate.rates[place].rate, rate.intervals[place].bounds
    if not math.isfinite(value):
        return "none"
    interval = f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else ""
    return f"{100 * value:.1f}{interval}"


def _pair_row(difference: RateDifference) -> Iterator[str]:
    yield f"{difference.second} against {difference.first}"
    yield "none" if difference.difference is None else f"{100 * difference.difference:+.1f}"
    bounds = difference.interval.bounds
    yield f"{100 * bounds[0]:+.1f} to {100 * bounds[1]:+.1f}" if bounds else "none"
    yield from ("none" if p is None else f"{p:.2g}" for p in (difference.p, difference.corrected_p))


def _latex_table(rows: Sequence[Sequence[str]], caption: str) -> Iterator[str]:
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{_escape(caption)}}}")
    yield rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
    yield r"\toprule"
    for number, row in enumerate(rows):
        yield " & ".join(map(_escape, row)) + r" \\"
        if not number:
            yield r"\midrule"
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}")


def _escape(text: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    text = _LATEX_SPECIAL.sub(lambda match: _LATEX_ESCAPES[match[0]], text)
    return re.sub(r"(?<![\w{])([+-])(?=\d)", r"$\1$", text).replace(r" \%", r"\,\%")


PAGE, NUMBERS, CHANGES, PLOT = "comparison.html", "comparison.json", "changes.jsonl", "writers.svg"
FORECAST_PAGE, FORECAST_PICTURE = "forecast.html", "forecast.png"
TUNING_PAGE, TUNING_PICTURE = "tune.html", "tune.png"
PAGE_SUFFIX = ".html"
TABLES = {".csv": comparison_csv, ".tex": comparison_latex}
_CHECKED_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def require_free_comparison(out: Path, *, overwrite: bool) -> None:
    """Raise DataError if writing a comparison to `out`, a file or a folder, would destroy something else."""
    is_file = out.suffix.lower() in {PAGE_SUFFIX, *TABLES}
    require_free_output(out, "comparison", None if is_file else _comparison_files, overwrite=overwrite)


def _comparison_files(folder: Path) -> list[str] | None:
    stem = PAGE.removesuffix(PAGE_SUFFIX)
    names = [PAGE, NUMBERS, CHANGES, PLOT, *(f"{stem}{suffix}" for suffix in TABLES)]
    return names if (folder / NUMBERS).is_file() else None


def write_comparison(comparison: Comparison, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write `out`: the page alone if it ends in .html, a table of it ends in .csv or .tex, else a folder with all.

    The folder has `comparison.html`, `.json`, `.csv` and `.tex`, `writers.svg`, and in `changes.jsonl` every line that
    changed. `progress` gets the number of illustrated lines done and of all.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    renderers: dict[str, Callable[[], str]] = {PAGE_SUFFIX: partial(render_comparison_page, comparison, progress)}
    renderers |= {suffix: partial(render_table, comparison) for suffix, render_table in TABLES.items()}
    if out.suffix.lower() in renderers:
        write_file(out, renderers[out.suffix.lower()]())
        return
    with writing_folder(out) as folder:
        for suffix, render_file in renderers.items():
            write_file((folder / PAGE).with_suffix(suffix), render_file())
        write_file(folder / NUMBERS, to_json(comparison.to_dict()))
        with writing_file(folder / CHANGES) as file:
            for difference in comparison.differences:
                systems = {"first": difference.first.name, "second": difference.second.name}
                for change in (*difference.improved, *difference.worsened):
                    file.write(json.dumps({"systems": systems, **change.to_dict()}, ensure_ascii=False) + "\n")
        if comparison.groups:
            names = [system.name for system in comparison.systems]
            write_file(folder / PLOT, writers_svg(names, comparison.groups, comparison.unit, standalone=True))


def render_comparison_page(comparison: Comparison, progress: Callable[[int, int], None] | None = None) -> str:
    """Render readings side by side: the verdict, writer by writer, and the lines that got better and worse."""
    names = [reading.name for reading in comparison.systems]
    scores = [reading.score for reading in comparison.systems]
    lines = read_lines(reading.lines for reading in comparison.systems)
    compared = names[-1] if len(names) == 2 else counted(len(names) - 1, "reading")
    about = [("compared", f"{comparison.created_at} with dsocr {comparison.dsocr_version}"), *flat(comparison.about)]
    about += [(reading.name, note) for reading in comparison.systems for note in reading.notes]
    return render(
        __package__,
        "comparison.html.jinja",
        style="style.css",
        script="report.js",
        title=f"{compared} compared with {names[0]}",
        subtitle=f"Character error rate (CER) on {lines_by_writers([line.last for line in lines])}",
        found=comparison,
        sentence=sentence,
        rates=[rate for rate in comparison.rates if rate.part != "all" or not rate.says_the_same_as(comparison.rates)],
        describe_rate_change=describe_rate_change,
        describe_bounds=describe_bounds,
        describe_p=describe_p,
        bounds=format_ends,
        scores=scores,
        changes=score_changes(scores),
        plot=writers_svg(names, comparison.groups, comparison.unit) if comparison.groups else "",
        about=about,
        **line_context(chapters_of(lines, names), lines, names, comparison.images, progress),
    )


def write_forecast(forecast: Forecast, name: str, folder: Path) -> None:
    """Write the page and the picture of a run's forecast into an existing folder."""
    write_file(folder / FORECAST_PAGE, render_forecast(forecast, name))
    plots_png([forecast_plot(forecast)], folder / FORECAST_PICTURE)


def render_forecast(forecast: Forecast, name: str) -> str:
    """Render what more training lines are expected to bring to a run."""
    svg = plot_svg(forecast_plot(forecast), f"CER on the {forecast.split} split over training lines", size=(6.4, 3.2))
    return render(__package__, "forecast.html.jinja", name=name, forecast=forecast, svg=svg)


def write_tuning(result: TuneResult, name: str, folder: Path) -> None:
    """Write the page and the picture of a search for settings into an existing folder."""
    plots = [trials_plot(result), *(setting_plot(result, key) for key in result.trials[0].settings)]
    pictures = [plot_svg(plot, title, size=(5.0, 2.6)) for plot, title in zip(plots, _titles(result), strict=True)]
    page = render(
        __package__,
        "tuning.html.jinja",
        title=f"Settings for {name}",
        result=result,
        pictures=pictures,
        format_value=format_value,
    )
    write_file(folder / TUNING_PAGE, page)
    plots_png(plots, folder / TUNING_PICTURE)


def _titles(result: TuneResult) -> list[str]:
    return ["Validation CER of each trial", *(f"CER by {key}" for key in result.trials[0].settings)]


def render_calibration(report: CalibrationReport, name: str) -> str:
    """Render how reliable the confidences of a run are, and what checking the least certain lines brings."""
    plots = []
    for kind, reliability in report.kinds.items():
        plots.append(plot_svg(reliability_plot(f"{kind}s", reliability), f"Reliability of {kind}s", size=(3.4, 3.0)))
    curves = [
        ("least confident first", report.budget),
        ("estimated from confidences", report.estimated_budget),
        ("most errors first (needs the truth)", report.ideal_budget),
    ]
    budget = plot_svg(budget_plot(curves, report.cer), "CER of the rest over lines checked", size=(6.0, 3.0))
    rows = [(point_at(report.budget, share), point_at(report.estimated_budget, share)) for share in _CHECKED_SHARES]
    return render(
        __package__, "calibration.html.jinja", name=name, report=report, plots=plots, budget=budget, rows=rows
    )
