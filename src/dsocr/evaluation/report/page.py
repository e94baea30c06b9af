"""The report of a run as one page."""

from collections.abc import Callable, Sequence
from html import escape

from dsocr.evaluation.report.charts import verdict
from dsocr.evaluation.report.choosing import ReadLine, chapters_of, read_lines
from dsocr.evaluation.report.facts import render_facts
from dsocr.evaluation.report.lines import LEGEND, render_chapters
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.sections import changes, curves_section, groups_by, groups_section
from dsocr.evaluation.report.verdict import rates_of, title_of, what_of
from dsocr.evaluation.scores import Score
from dsocr.evaluation.table import HANDS
from dsocr.pages.frame import packaged, render_frame

_LINKS = {
    "changes": "What changed",
    "groups": "By group",
    "curves": "Training",
    "lines": "Lines",
    "provenance": "Provenance",
    "again": "How to reproduce",
}


def render_page(material: Material, tell: Callable[[int, int], None] | None = None) -> str:
    """The whole page as HTML; `tell` hears how many lines are drawn, of how many that get a picture."""
    names = list(material.readings)
    lines = read_lines(material.readings)
    scores = {name: Score.of(read) for name, read in material.readings.items()}
    title = title_of(material)
    parts = {
        "changes": changes(scores),
        "groups": _groups(lines, names),
        "curves": curves_section(material.history),
        "lines": LEGEND + render_chapters(chapters_of(lines, names), lines, names, material.images, tell),
        **render_facts(material),
    }
    body = [
        f"<h1>{escape(title)}<small>{escape(what_of(material, lines))}</small></h1>",
        verdict(names, rates_of(material)),
        *(f'<p class="warning">{escape(warning)}</p>' for warning in material.warnings),
        "<nav>" + "".join(f'<a href="#{key}">{_LINKS[key]}</a>' for key in parts if parts[key]) + "</nav>",
        *(f'<h2 id="{key}">{_LINKS[key]}</h2>\n{part}' for key, part in parts.items() if part),
    ]
    style, script = (packaged("dsocr.evaluation.report", name) for name in ("report.css", "report.js"))
    return render_frame(title, "\n".join(body), style=style, script=script)


def _groups(lines: Sequence[ReadLine], names: Sequence[str]) -> str:
    return "".join(
        [
            groups_section("Hands", "hand", groups_by(lines, lambda line: HANDS[line.last.hand]), names),
            groups_section("Writers", "writer", groups_by(lines, lambda line: line.last.writer), names),
            groups_section("Pages", "page", groups_by(lines, lambda line: line.last.page), names),
        ]
    )
