"""Which characters go wrong, as a map and in tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import zip_longest

from dsocr.evaluation.breakdown import Characters, Confusion
from dsocr.evaluation.metrics import script_of
from dsocr.evaluation.report.charts import Rate, heads
from dsocr.evaluation.report.marks import visible

_LETTERS = 16
"""Rows and columns of the map at most."""
_ROWS = 12
"""Of each table."""


def render_characters(characters: Mapping[str, Characters]) -> str:
    """The map of the last reading's confusions, the commonest pairs of all readings, and what was lost and added."""
    names, counted = list(characters), list(characters.values())
    last = counted[-1]
    if not (last.substitutions or last.deletions or last.insertions):
        return ""
    return (
        f"<p>Of {last.count:,} characters, {escape(names[-1])} read {last.substitutions:,} as others and left out "
        f"{last.deletions:,}; it added {last.insertions:,}.</p>{heat_map(last.confusions)}"
        f'<div class="columns">{_pairs(names, counted)}{_missed(last)}{_tallies(last)}</div>'
    )


def heat_map(confusions: Iterable[Confusion]) -> str:
    """Which character (row) was read as which (column), by how often; of the commonest confusions, as many as fit."""
    counts: dict[tuple[str, str], int] = {}
    written: set[str] = set()
    read: set[str] = set()
    for pair in confusions:
        if len(written | {pair.reference}) <= _LETTERS and len(read | {pair.prediction}) <= _LETTERS:
            counts[pair.reference, pair.prediction] = pair.count
            written.add(pair.reference)
            read.add(pair.prediction)
    if not counts:
        return ""
    columns, most = sorted(read), max(counts.values())
    head = "".join(f'<th scope="col">{letter(sign)}</th>' for sign in columns)
    rows = "".join(
        f'<tr><th scope="row">{letter(sign)}</th>'
        f"{''.join(_heat_cell(sign, other, counts, most) for other in columns)}</tr>"
        for sign in sorted(written)
    )
    return (
        '<figure><figcaption class="quiet">The commonest confusions: what is written (rows) was read as (columns) so '
        f'often</figcaption><div class="wide"><table class="heat"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></figure>"
    )


def _heat_cell(sign: str, other: str, counts: Mapping[tuple[str, str], int], most: int) -> str:
    if sign == other:
        return '<td class="same"></td>'
    count = counts.get((sign, other), 0)
    if not count:
        return "<td></td>"
    return f'<td style="--share:{0.1 + 0.5 * math.sqrt(count / most):.2f}">{count:,}</td>'


def letter(sign: str) -> str:
    """One character that can be seen, as HTML: a space has a sign of its own."""
    return "\u2423" if sign == " " else visible(sign)


def _pairs(names: Sequence[str], counted: Sequence[Characters]) -> str:
    """The commonest confusions of all readings together, and how often each of them made them."""
    counts: dict[tuple[str, str], list[int]] = {}
    seldom = [_seldom(characters) for characters in counted]
    for place, characters in enumerate(counted):
        for pair in characters.confusions:
            row = counts.setdefault((pair.reference, pair.prediction), [0] * len(counted))
            row[place] = pair.count
    chosen = sorted(counts.items(), key=lambda item: (-max(item[1]), item[0]))[:_ROWS]
    rows = []
    for (reference, prediction), row in chosen:
        cells = (f"<td>{count or few}</td>" for count, few in zip(row, seldom, strict=True))
        rows.append(f"<tr><th>{_read_as(reference, prediction)}</th>{''.join(cells)}</tr>")
    return _table(f"<th>confused</th>{heads(names)}", "".join(rows))


def _seldom(characters: Characters) -> str:
    """How often a pair was confused that a card does not name, because it names the commonest only."""
    return f"\u2264 {characters.confusions[-1].count:,}" if characters.other_pairs else "0"


def _read_as(reference: str, prediction: str) -> str:
    """A confused pair; where scripts were confused, by their names too, because such letters may look the same."""
    scripts = [script_of(sign) or "" for sign in (reference, prediction)]
    told = all(scripts) and len(set(scripts)) > 1
    sides = [
        f"{letter(sign)} ({escape(script.capitalize())})" if told else letter(sign)
        for sign, script in zip((reference, prediction), scripts, strict=True)
    ]
    return " read as ".join(sides)


def _missed(characters: Characters) -> str:
    chosen = [one for one in characters.by_character if one.character is not None][:_ROWS]
    rows = "".join(
        f"<tr><th>{letter(one.character or '')}</th><td>{one.errors:,} of {one.count:,}</td>"
        f"<td>{Rate(one.errors / one.count).told(0)}</td></tr>"
        for one in chosen
    )
    return _table("<th>character</th><th>not read</th><th></th>", rows)


def _tallies(characters: Characters) -> str:
    """What was left out and what was added, beside each other."""
    sides = [tally.shown[:_ROWS] for tally in (characters.deleted, characters.inserted)]
    rows = "".join(f"<tr>{''.join(map(_tallied, row))}</tr>" for row in zip_longest(*sides))
    return _table("<th>left out</th><th>times</th><th>added</th><th>times</th>", rows) if rows else ""


def _tallied(one: tuple[str, int] | None) -> str:
    return "<td></td><td></td>" if one is None else f"<th>{letter(one[0])}</th><td>{one[1]:,}</td>"


def _table(head: str, rows: str) -> str:
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
