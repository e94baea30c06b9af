"""Write a comparison of readings: a page, alone or in a folder with the numbers, the changed lines and a plot."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from dsocr.errors import DataError
from dsocr.evaluation.compare import Comparison
from dsocr.evaluation.report.contents import flat, lines_by_writers, sentence
from dsocr.evaluation.report.lines import chapters_of, read_lines
from dsocr.evaluation.report.plots import writers_label, writers_plot, writers_size
from dsocr.evaluation.report.report import Rate, line_context, score_changes
from dsocr.html import counted, plot_svg, render
from dsocr.io.atomic import writing_folder
from dsocr.runs import to_json, write_atomically, writing_whole

PAGE, NUMBERS, CHANGES, PLOT = "comparison.html", "comparison.json", "changes.jsonl", "writers.svg"


def require_free(out: Path, *, overwrite: bool) -> None:
    """Raise DataError if `out` exists and may not be replaced; a folder may be only if a comparison wrote it."""
    if not out.exists():
        return
    if not overwrite:
        hint = "choose another place, or give --overwrite"
        raise DataError("already exists", code="output-exists", where=out, hint=hint)
    if out.is_dir() and not (out / NUMBERS).is_file():
        message = "is a folder that no comparison wrote"
        raise DataError(message, code="output-foreign", where=out, hint="choose another folder")


def write_comparison(found: Comparison, out: Path, progress: Callable[[int, int], None] | None = None) -> None:
    """Write `out`: the page alone if it ends in .html, else a folder.

    The folder has `comparison.html`, `comparison.json`, `writers.svg`, and in `changes.jsonl` every line that changed.
    `progress` gets the number of illustrated lines done and of all.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    page = render_comparison_page(found, progress)
    if out.suffix.lower() == ".html":
        write_atomically(out, page)
        return
    with writing_folder(out) as folder:
        write_atomically(folder / PAGE, page)
        write_atomically(folder / NUMBERS, to_json(found.to_dict()))
        with writing_whole(folder / CHANGES) as file:
            for row in _changes(found):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        if found.groups:
            write_atomically(folder / PLOT, writers_svg(found, standalone=True))


def _changes(found: Comparison) -> Iterator[dict[str, object]]:
    for difference in found.differences:
        systems = {"first": difference.first.name, "second": difference.second.name}
        for change in (*difference.improved, *difference.worsened):
            yield {"systems": systems, **change.to_dict()}


def render_comparison_page(found: Comparison, progress: Callable[[int, int], None] | None = None) -> str:
    """Render readings side by side: the verdict, writer by writer, and the lines that got better and worse."""
    names = [reading.name for reading in found.systems]
    lines = read_lines({system.name: system.lines for system in found.systems})
    compared = names[-1] if len(names) == 2 else counted(len(names) - 1, "reading")
    about = [("compared", f"{found.created_at} with dsocr {found.dsocr_version}"), *flat(found.about)]
    about += [(reading.name, remark) for reading in found.systems for remark in reading.notes]
    chapters = chapters_of(lines, names)
    return render(
        __package__,
        "comparison.html.jinja",
        style="style.css",
        script="report.js",
        title=f"{compared} compared with {names[0]}",
        subtitle=f"Character error rate (CER) on {lines_by_writers([line.last for line in lines])}",
        rates=[Rate.of_score(reading.score) for reading in found.systems],
        differences_found=[(sentence(one.summary), [*map(sentence, one.test_results)]) for one in found.differences],
        cautions=[*map(sentence, found.cautions)],
        changes=score_changes([reading.score for reading in found.systems]),
        plot=writers_svg(found) if found.groups else "",
        unit=found.unit,
        about=about,
        **line_context(chapters, lines, names, found.images, progress),
    )


def writers_svg(found: Comparison, *, standalone: bool = False) -> str:
    """Draw the CER of each writer in each reading."""
    names = [reading.name for reading in found.systems]
    label = writers_label(names, found.groups, found.unit)
    size = writers_size(found.groups)
    return plot_svg(writers_plot(names, found.groups), label, size=size, standalone=standalone)
