"""The report of a run as one page."""

from collections.abc import Callable
from html import escape

from dsocr.evaluation.report.asides import render_aside
from dsocr.evaluation.report.characters import render_characters
from dsocr.evaluation.report.charts import verdict
from dsocr.evaluation.report.facts import render_facts
from dsocr.evaluation.report.groups import rate_of, render_groups
from dsocr.evaluation.report.lines import LEGEND, render_chapters
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.sections import changes, curves_section, other_counts
from dsocr.evaluation.report.verdict import sentences_of, title_of, what_of
from dsocr.pages.frame import packaged, render_frame

_TITLES = {
    "changes": "What changed",
    "groups": "For whom",
    "characters": "Characters",
    "curves": "Training",
    "lines": "Lines",
    "provenance": "Provenance",
    "again": "How to reproduce",
}


def render_page(material: Material, tell: Callable[[int, int], None] | None = None) -> str:
    """The whole page as HTML; `tell` hears how many lines are drawn, of how many that get a picture."""
    names, card = list(material.readings), material.card
    scores = [score for score in (card.base, card.adapter) if score is not None]
    first, *others = [escape(sentence) for sentence in sentences_of(material)] or [""]
    parts = {
        "changes": changes(scores, names) + other_counts(card, names),
        "groups": render_groups(card, names),
        "characters": render_characters({name: card.characters[name] for name in names}),
        **{aside.key: render_aside(aside) for aside in material.asides},
        "curves": curves_section(material.history),
        "lines": LEGEND + render_chapters(material.chapters, material.lines, names, material.images, tell),
        **render_facts(material),
    }
    body = [
        f"<h1>{escape(title_of(material))}<small>{escape(what_of(material))}</small></h1>",
        verdict(names, [rate_of(score) for score in scores]),
        f'<p class="lead">{first}</p><p class="quiet">{" ".join(others)}</p>',
        *(f'<p class="warning">{escape(warning)}</p>' for warning in material.warnings),
        render_parts(parts, _TITLES | {aside.key: aside.title for aside in material.asides}),
    ]
    return report_frame(title_of(material), body)


def render_parts(parts: dict[str, str], titles: dict[str, str]) -> str:
    """The parts that hold something, each under its title, and links to them."""
    held = {key: part for key, part in parts.items() if part}
    links = "".join(f'<a href="#{key}">{escape(titles[key])}</a>' for key in held)
    drawn = (f'<h2 id="{key}">{escape(titles[key])}</h2>\n{part}' for key, part in held.items())
    return f"<nav>{links}</nav>\n" + "\n".join(drawn)


def report_frame(title: str, body: list[str]) -> str:
    """A page with the style and the script of reports."""
    style, script = (packaged("dsocr.evaluation.report", name) for name in ("report.css", "report.js"))
    return render_frame(title, "\n".join(body), style=style, script=script)
