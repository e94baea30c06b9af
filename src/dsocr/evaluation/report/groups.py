"""For whom a model reads well: the groups of a scorecard as bars."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from dsocr.evaluation.breakdown import Groups
from dsocr.evaluation.report.charts import Group, Rate, bars
from dsocr.evaluation.report.sections import details, many
from dsocr.evaluation.scorecard import HANDS, Scorecard
from dsocr.evaluation.scores import Hand, Score, Scores

_OPEN = {"writer": 40, "length": 10, "script": 10, "page": 0, "source": 0}
"""How many groups of a kind stand open; the others of them are folded away."""
_TITLES = {
    "writer": "Writers",
    "length": "Length in characters",
    "script": "Script",
    "page": "Pages",
    "source": "Sources",
}


def render_groups(card: Scorecard, names: Sequence[str]) -> str:
    """Hands, writers, lengths, scripts, pages and sources, each where there are several."""
    parts = [_bars("Hands", "hand", hand_groups(card.by_hands, names), names, 10)]
    for kind, most_open in _OPEN.items():
        parts.append(_bars(_TITLES[kind], kind, groups_of(card.groups.get(kind), kind, names), names, most_open))
    return "".join(parts)


def hand_groups(by_hands: Mapping[Hand, Scores], names: Sequence[str]) -> list[Group]:
    """Known and new hands."""
    return [_group(HANDS[hand], scores, names) for hand, scores in by_hands.items()]


def groups_of(groups: Groups | None, kind: str, names: Sequence[str]) -> list[Group]:
    """The groups of a kind that the card shows, then all others together; none where every line is its own group."""
    if groups is None:
        return []
    made = [_group(group.name or f"no {kind} known", group.scores, names) for group in groups.shown]
    if all(group.lines == 1 for group in made):
        return []
    if groups.others_scores is not None:
        made.append(_group(f"{many(groups.others, f'more {kind}')} together", groups.others_scores, names))
    return made


def _group(name: str, scores: Scores, names: Sequence[str]) -> Group:
    chosen: Iterable[Score | None] = (getattr(scores, model) for model in names)
    return Group(name, scores.last.lines, [rate_of(score) if score else None for score in chosen])


def rate_of(score: Score) -> Rate:
    """The CER of a score, with its interval where it has one."""
    return Rate.of(score.cer, score.intervals.get("cer"))


def _bars(title: str, kind: str, groups: Sequence[Group], names: Sequence[str], most_open: int) -> str:
    if len(groups) < 2:
        return ""
    shown, folded = groups[:most_open], groups[most_open:]
    head = f"<h3>{escape(title)}</h3>"
    opened = bars(kind, shown, names) if shown else ""
    more = "more " if shown else ""
    return head + opened + (details(f"{len(folded):,} {more}{kind}s", bars(kind, folded, names)) if folded else "")
