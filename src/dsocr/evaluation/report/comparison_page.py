"""A comparison of readings as one page: the verdict, writer by writer, and the lines that got better and worse."""

from collections.abc import Callable
from html import escape

from dsocr.evaluation.compare import Comparison, Difference
from dsocr.evaluation.report.charts import verdict
from dsocr.evaluation.report.choosing import chapters_of, read_lines
from dsocr.evaluation.report.facts import flat, table
from dsocr.evaluation.report.groups import rate_of
from dsocr.evaluation.report.lines import LEGEND, render_chapters
from dsocr.evaluation.report.page import render_parts, report_frame
from dsocr.evaluation.report.sections import changes, many

_TITLES = {"changes": "Side by side", "plot": "For whom", "lines": "Lines", "about": "What was compared"}


def render_comparison_page(found: Comparison, tell: Callable[[int, int], None] | None = None) -> str:
    """The whole page as HTML; `tell` hears how many lines are drawn, of how many that get a picture."""
    names = [reading.name for reading in found.readings]
    title = (
        f"{names[-1]} beside {names[0]}" if len(names) == 2 else f"{many(len(names) - 1, 'reading')} beside {names[0]}"
    )
    lines = read_lines(found.lines)
    writers = len({line.last.writer for line in lines if line.last.writer})
    by = f" by {many(writers, 'writer')}" if writers else ""
    parts = {
        "changes": changes([reading.score for reading in found.readings], names),
        "plot": f'<figure class="plot">{found.plot}</figure>' if found.plot else "",
        "lines": LEGEND + render_chapters(chapters_of(lines, names), lines, names, found.images, tell),
        "about": _about(found),
    }
    body = [
        f"<h1>{escape(title)}<small>Characters read wrong (CER) in {many(len(lines), 'line')}{by}</small></h1>",
        verdict(names, [rate_of(reading.score) for reading in found.readings]),
        *(_told(difference) for difference in found.differences),
        *(f'<p class="quiet">{_sentence(caution)}</p>' for caution in found.cautions),
        render_parts(parts, _TITLES),
    ]
    return report_frame(title, body)


def _told(difference: Difference) -> str:
    chances = " ".join(_sentence(chance) for chance in difference.chances)
    return f'<p class="lead">{_sentence(difference.sentence)}</p><p class="quiet">{chances}</p>'


def _sentence(told: str) -> str:
    return escape(f"{told[:1].upper()}{told[1:]}.")


def _about(found: Comparison) -> str:
    """When and with what, and how each reading was taken in."""
    rows = [("compared", f"{found.made_at} with dsocr {found.dsocr_version}"), *flat(found.about)]
    rows += [(reading.name, remark) for reading in found.readings for remark in reading.remarks]
    return table(rows)
