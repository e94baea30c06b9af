"""How far confidences come true, as one page: reliability of characters, words and lines, and the budget curve."""

from collections.abc import Sequence
from html import escape

from dsocr.evaluation.budget import budget_sentence
from dsocr.evaluation.reliability import CalibrationReport, Reliability
from dsocr.inference.foretelling import Checked, point_at
from dsocr.pages.frame import render_frame
from dsocr.pages.plotting import Line, Plot, render_svg, style_of

_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)
_SAID = {"character": "characters", "word": "words", "line": "lines"}
_POINTS = 200
"""Points of a budget curve that are drawn."""


def render_confidence(report: CalibrationReport, name: str) -> str:
    """The whole page as HTML."""
    on = f"{report.lines:,} lines of the {report.split.value} split of {report.dataset}"
    lead = f"{on}, fitted on {report.calibration.lines} others."
    if report.split.value == "validation":
        lead = f"Measured on the {report.lines} lines it was fitted on, for want of a test split: it flatters."
    body = "\n".join(
        [
            f"<h1>Confidence of {escape(name)}</h1>",
            f'<p class="lead">{escape(lead)} {escape(budget_sentence(report.budget))}</p>',
            "<h2>Does it come true?</h2>",
            "<p>Of what is said to be right with 80 %, 80 % should be right: the nearer to the diagonal, the better. "
            "The expected calibration error (ECE) is the mean distance from it.</p>",
            _errors(report),
            "<p>What comes true is drawn, so that few words show an error even where every confidence is perfect: the "
            "last column says how large, on average and at most in 39 of 40 such tests.</p>",
            '<div class="charts">',
            *(_reliability(kind, found) for kind, found in report.kinds.items()),
            "</div>",
            "<h2>What checking brings</h2>",
            f"<p>{escape(report.foretold)} They know no truth; where they come near to it, they tell what checking "
            "brings to texts that nobody has transcribed.</p>",
            _budget_table(report),
            f'<div class="charts" style="max-width: 40rem">{_budget(report)}</div>',
        ]
    )
    return render_frame(f"Confidence of {name}", body)


def _errors(report: CalibrationReport) -> str:
    names = ("", "number", "ECE as it comes", "ECE fitted", "without what chance adds", "perfect ones, by chance")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(
        f"<tr><td>{_SAID[kind]}</td><td>{found.count:,}</td><td>{found.before:.4f}</td><td>{found.after:.4f}</td>"
        f"<td>{_told(found.debiased)}</td><td>{_chance(found)}</td></tr>"
        for kind, found in report.kinds.items()
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _told(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


def _chance(found: Reliability) -> str:
    if found.by_chance is None:
        return ""
    return f"{found.by_chance:.4f} on average, {_told(found.by_chance_most)} at most"


def _reliability(kind: str, found: Reliability) -> str:
    lines = [
        Line("as it comes", [(one.said, one.true) for one in found.bins_before]),
        Line("fitted", [(one.said, one.true) for one in found.bins_after]),
        Line("ideal", [(0.0, 0.0), (1.0, 1.0)]),
    ]
    return _figure(Plot(f"share of {_SAID[kind]} that is right", "confidence", lines))


def _budget_table(report: CalibrationReport) -> str:
    names = ("lines checked", "CER of the rest", "foretold", "errors found", "foretold")
    head = f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"
    rows = "".join(
        f"<tr><td>{true.share:.0%}</td><td>{true.rest:.2%}</td><td>{foretold.rest:.2%}</td>"
        f"<td>{true.found:.0%}</td><td>{foretold.found:.0%}</td></tr>"
        for true, foretold in (
            (point_at(report.budget, share), point_at(report.foretold_budget, share)) for share in (0.0, *_SHARES)
        )
    )
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _budget(report: CalibrationReport) -> str:
    lines = [
        Line("most doubtful first", _points(report.budget)),
        Line("as the confidences alone foretell it", _points(report.foretold_budget)),
        Line("at random", [(0.0, 100 * report.cer), (100.0, 100 * report.cer)]),
        Line("worst first, by who knows the truth", _points(report.best_budget)),
    ]
    return _figure(Plot("CER of the rest, %", "lines checked, %", lines))


def _points(curve: Sequence[Checked]) -> list[tuple[float, float]]:
    step = max(1, len(curve) // _POINTS)
    return [(100 * point.share, 100 * point.rest) for point in curve[::step]]


def _figure(plot: Plot) -> str:
    names = [line.run for line in plot.lines]
    legend = ", ".join(
        f'<span style="color:{style_of(place)}">&#9632; {escape(name)}</span>' for place, name in enumerate(names)
    )
    drawn = render_svg(plot, names)
    return f"<figure><figcaption><b>{escape(plot.title)}</b> over {plot.axis}: {legend}</figcaption>{drawn}</figure>"
