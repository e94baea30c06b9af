"""Write the pages beside the report of a run: comparison and calibration."""

import json
from collections.abc import Callable
from pathlib import Path

from dsocr.evaluation.calibration import CalibrationReport
from dsocr.evaluation.compare import Comparison, read_lines
from dsocr.evaluation.rates import describe_bounds, describe_p, describe_rate_change
from dsocr.evaluation.report.contents import chapters_of, flat, format_ends, format_error, lines_by_writers, sentence
from dsocr.evaluation.report.plots import (
    budget_plot,
    reliability_plot,
    writers_plot,
)
from dsocr.evaluation.report.report import line_context, score_changes
from dsocr.html import counted, percent, render
from dsocr.inference.review import point_at
from dsocr.io.work import require_free_output, write_file, writing_file, writing_folder
from dsocr.runs import to_json

PAGE, NUMBERS, CHANGES, PLOT = "comparison.html", "comparison.json", "changes.jsonl", "writers.svg"
PAGE_SUFFIX = ".html"
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
