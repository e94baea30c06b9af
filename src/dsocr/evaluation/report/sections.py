"""The parts of a report that tell of all lines together: what changed, for whom, and how the training went."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from dsocr.evaluation.report.charts import Group, Rate, bars, heads
from dsocr.evaluation.report.choosing import ReadLine
from dsocr.evaluation.scores import FAILURES, Score, pooled
from dsocr.evaluation.table import FAILED
from dsocr.history import History
from dsocr.pages.curves import figures

MOST_GROUPS = 30
"""Rows of a chart that stand open; the others are folded away."""

_CURVES = ("training loss", "validation loss", "validation CER, %")
_POINTS = "\N{NO-BREAK SPACE}points"


def many(count: int, thing: str) -> str:
    """A count with its noun."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def details(summary: str, body: str) -> str:
    """HTML that is folded away until it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def changes(scores: Mapping[str, Score]) -> str:
    """Rates and counts of the readings beside each other, and how the last differs from the first."""
    columns = list(scores.values())
    rows = [
        _rates("CER", [Rate.of(score.cer) for score in columns]),
        _rates("WER", [Rate.of(score.wer) for score in columns]),
        _counts("lines without an error", [(score.exact, score.lines) for score in columns], more_is_better=True),
    ]
    rows += [_counts(FAILED[name], [(score.failures[name], score.lines) for score in columns]) for name in FAILURES]
    change = "<th>change</th>" if len(columns) > 1 else ""
    head = f"<tr><th></th>{heads(list(scores))}{change}</tr>"
    return f'<div class="wide"><table class="changes"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _rates(name: str, rates: Sequence[Rate]) -> str:
    first, last = rates[0].value, rates[-1].value
    worse_by = 0.0 if first is None or last is None else 100 * (last - first)
    return _change_row(name, [rate.told(2) for rate in rates], f"{worse_by:+.2f}{_POINTS}", worse_by)


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


def groups_by(lines: Iterable[ReadLine], name_of: Callable[[ReadLine], str | None]) -> list[Group]:
    """The lines grouped by a name, those where it is known; the largest groups first."""
    by_name: dict[str, list[ReadLine]] = {}
    for line in lines:
        if name := name_of(line):
            by_name.setdefault(name, []).append(line)
    groups = [
        Group(
            name,
            len(own),
            [
                Rate.of(pooled(score.cer for score in scores))
                for scores in zip(*(line.scores for line in own), strict=True)
            ],
        )
        for name, own in by_name.items()
    ]
    return sorted(groups, key=lambda group: (-group.lines, group.name))


def groups_section(title: str, what: str, groups: Sequence[Group], names: Sequence[str]) -> str:
    """The groups as bars; nothing where all lines are in one."""
    if len(groups) < 2:
        return ""
    shown, rest = groups[:MOST_GROUPS], groups[MOST_GROUPS:]
    more = details(f"{many(len(rest), what)} more", bars(what, rest, names)) if rest else ""
    return f"<h3>{escape(title)}</h3>{bars(what, shown, names)}{more}"


def curves_section(history: History | None) -> str:
    """The curves of the training over its steps."""
    if history is None or not history.training:
        return ""
    return figures([history], over="steps", only=_CURVES)
