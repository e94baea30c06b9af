"""What changed between the readings, number by number, and how the training went."""

from collections.abc import Sequence
from html import escape

from dsocr.evaluation.metrics import spoken_points
from dsocr.evaluation.report.charts import Rate, heads
from dsocr.evaluation.scorecard import FAILED, PROFILES, Scorecard
from dsocr.evaluation.scores import FAILURES, Score
from dsocr.history import History
from dsocr.pages.curves import figures

_CURVES = ("training loss", "validation loss", "validation CER, %")
_POINTS = "\N{NO-BREAK SPACE}points"


def many(count: int, thing: str) -> str:
    """A count with its noun."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def details(summary: str, body: str) -> str:
    """HTML that is folded away until it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def changes(scores: Sequence[Score], names: Sequence[str]) -> str:
    """Rates and counts of the readings beside each other, and how the last differs from the first."""
    rows = [
        _rates("CER", [Rate.of(score.cer) for score in scores]),
        _rates("WER", [Rate.of(score.wer) for score in scores]),
        _counts("lines without an error", [(score.exact, score.lines) for score in scores], more_is_better=True),
    ]
    rows += [_counts(FAILED[name], [(score.failures[name], score.lines) for score in scores]) for name in FAILURES]
    return _changes_table(rows, names)


def other_counts(card: Scorecard, names: Sequence[str]) -> str:
    """The CER under the card's other averages and profiles, folded away."""
    title = "The CER counted otherwise: other averages, and with texts compared less strictly"
    return details(title, _changes_table(_other_counts(card, names), names))


def _other_counts(card: Scorecard, names: Sequence[str]) -> list[str]:
    """Means over lines, writers and pages, quantiles of the lines, and the rates under each profile that has text."""
    averages = [card.averages[name] for name in names]
    means = {
        "mean over lines": [one.macro_over_lines.cer for one in averages],
        "mean over writers": [one.macro_over_writers.cer for one in averages],
        "mean over pages": [one.macro_over_pages.cer for one in averages],
        "median line": [one.median_line_cer for one in averages],
        "90th percentile of the lines": [one.p90_line_cer for one in averages],
    }
    rows = [_rates(name, [Rate(value) for value in values]) for name, values in means.items() if any(values)]
    for profile, title in PROFILES.items():
        rates = [card.profiles[profile][name].cer for name in names] if profile in card.profiles else []
        if any(rate.length for rate in rates):
            rows.append(_rates(title, [Rate.of(rate) for rate in rates]))
    return rows


def _changes_table(rows: Sequence[str], names: Sequence[str]) -> str:
    change = "<th>change</th>" if len(names) > 1 else ""
    head = f"<tr><th></th>{heads(names)}{change}</tr>"
    return f'<div class="wide"><table class="changes"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _rates(name: str, rates: Sequence[Rate]) -> str:
    first, last = rates[0].value, rates[-1].value
    worse_by = 0.0 if first is None or last is None else round(100 * (last - first), 6)  # what is less is noise
    return _change_row(name, [rate.told(2) for rate in rates], f"{spoken_points(worse_by, 2)}{_POINTS}", worse_by)


def _counts(name: str, counts: Sequence[tuple[int, int]], *, more_is_better: bool = False) -> str:
    more = counts[-1][0] - counts[0][0]
    cells = [f'{count:,} <span class="quiet">of {lines:,}</span>' for count, lines in counts]
    return _change_row(name, cells, f"{more:+,}", -more if more_is_better else more)


def _change_row(name: str, cells: Sequence[str], change: str, worse_by: float) -> str:
    """A row of the table; the sign beside the change says what its colour says."""
    kind = "worse" if worse_by > 0 else "better" if worse_by < 0 else "quiet"
    told = f"{change} {kind}" if worse_by else "same"
    drawn = "".join(f"<td>{cell}</td>" for cell in cells)
    end = f'<td class="{kind}">{told}</td>' if len(cells) > 1 else ""
    return f"<tr><th>{escape(name)}</th>{drawn}{end}</tr>"


def curves_section(history: History | None) -> str:
    """The curves of the training over its steps."""
    if history is None or not history.training:
        return ""
    return figures([history], over="steps", only=_CURVES)
