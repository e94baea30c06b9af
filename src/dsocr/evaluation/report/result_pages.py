"""Write the pages beside the report of a run: comparison and calibration."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsocr.evaluation.calibration import CalibrationReport, Reliability
from dsocr.evaluation.compare import ComparedGroup, Comparison, read_lines
from dsocr.evaluation.rates import describe_bounds, describe_p, describe_rate_change
from dsocr.evaluation.report.contents import chapters_of, flat, format_ends, format_error, lines_by_writers, sentence
from dsocr.evaluation.report.report import annotate, line_context, score_changes
from dsocr.html import BAR, PAPER, QUIET, Plot, counted, percent, printable, render, run_colour
from dsocr.inference.review import CheckedShare, point_at
from dsocr.io.work import require_free_output, write_file, writing_file, writing_folder
from dsocr.runs import to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE, NUMBERS, CHANGES, PLOT = "comparison.html", "comparison.json", "changes.jsonl", "writers.svg"
PAGE_SUFFIX = ".html"
MOST_WRITERS = 60
"""Most rows of a plot of writers; of more, only the largest changes both ways are drawn."""
_CER_LIMIT = 1.5
"""CER beyond which a dot is at the edge with its number beside it: a loop would squeeze all others together."""
_NAME_LENGTH = 26
_BUDGET_POINTS = 200
_CHECKED_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def require_free_comparison(out: Path, *, overwrite: bool) -> None:
    """Raise DataError if writing a comparison to `out`, a page or a folder, would destroy something else."""

    def files(folder: Path) -> list[str] | None:
        return [PAGE, NUMBERS, CHANGES, PLOT] if (folder / NUMBERS).is_file() else None

    is_page = out.suffix.lower() == PAGE_SUFFIX
    require_free_output(out, "comparison", None if is_page else files, overwrite=overwrite)


def write_comparison(comparison: Comparison, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write the page alone if `out` ends in .html, else a folder.

    The folder has `comparison.html` and `.json`, `writers.svg`, and in `changes.jsonl` every line that changed.
    `progress` gets the number of illustrated lines done and of all.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    page = render_comparison_page(comparison, progress)
    if out.suffix.lower() == PAGE_SUFFIX:
        write_file(out, page)
        return
    with writing_folder(out) as folder:
        write_file(folder / PAGE, page)
        write_file(folder / NUMBERS, to_json(comparison.to_dict()))
        with writing_file(folder / CHANGES) as file:
            for difference in comparison.differences:
                systems = {"first": difference.first.name, "second": difference.second.name}
                for change in (*difference.improved, *difference.worsened):
                    file.write(json.dumps({"systems": systems, **change.to_dict()}, ensure_ascii=False) + "\n")
        if comparison.groups:
            names = [system.name for system in comparison.systems]
            write_file(folder / PLOT, writers_plot(names, comparison.groups, comparison.unit).svg(standalone=True))


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
        plot=writers_plot(names, comparison.groups, comparison.unit).svg() if comparison.groups else "",
        about=about,
        **line_context(chapters_of(lines, names), lines, names, comparison.images, progress),
    )


def render_calibration(report: CalibrationReport, name: str) -> str:
    """Render the reliability of a run's confidences, and the gain of checking the least certain lines."""
    curves = {
        "least confident first": report.budget,
        "estimated from confidences": report.estimated_budget,
        "most errors first (needs the truth)": report.ideal_budget,
    }
    errors = []
    for kind, reliability in report.kinds.items():
        values = (reliability.before, reliability.after, reliability.debiased, reliability.by_chance)
        errors.append((f"{kind}s", f"{reliability.count:,}", *map(format_error, values)))
    checked = []
    for share in _CHECKED_SHARES:
        points = [point_at(curve, share) for curve in (report.budget, report.estimated_budget)]
        rests = (percent(point.rest, 2) for point in points)
        checked.append((percent(share, 0), *rests, *(percent(point.errors_found, 0) for point in points)))
    return render(
        __package__,
        "calibration.html.jinja",
        name=name,
        report=report,
        plots=[reliability_plot(f"{kind}s", reliability) for kind, reliability in report.kinds.items()],
        budget=budget_plot(curves, report.cer),
        errors=errors,
        checked=checked,
    )


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
                annotate(axes, f"{100 * far:.0f} %", (100 * _CER_LIMIT, row), (6, 0), va="center")
        axes.set_yticks(rows, [f"{_short(group.name)} ({group.lines})" for group in shown])
        axes.set(xlabel="CER, %", ylim=(len(shown) - 0.4, -0.6))
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return Plot(label, paint, (6.4, 1.0 + 0.24 * len(shown)))


def _short(name: str) -> str:
    shown = str(printable(name)).replace("\n", " ")
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 1]}…"
