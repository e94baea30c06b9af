"""A comparison as tables for a publication: tidy CSV with every number, and LaTeX with the main ones."""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence

from dsocr.evaluation.compare import Comparison
from dsocr.evaluation.metrics import format_difference
from dsocr.evaluation.rates import ComparedRate, RateDifference
from dsocr.evaluation.statistics import Interval
from dsocr.formats.tables import escape_formula

_COLUMNS = [
    "rate",
    "of",
    "lines",
    "writers",
    "system",
    "compared_with",
    "value",
    "low",
    "high",
    "level",
    "interval_over",
    "clusters",
    "p",
    "test",
    "p_holm",
    "holm_over",
    "verdict",
    "scope",
    "no_interval_because",
]
_LATEX_ESCAPES = {
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
_LATEX_SPECIAL = re.compile(r"[\\&%$#_{}~^]")
_MAIN_RATES = 3


def comparison_csv(comparison: Comparison) -> str:
    """Write a row for each rate of each system, and one for each difference of two systems, in fractions.

    A rate has no `compared_with`; a difference is the system's rate minus the other's.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for rate in comparison.rates:
        head = (rate.name, rate.part, rate.lines, rate.writers)
        for system, value, interval in zip(comparison.systems, rate.rates, rate.intervals, strict=True):
            cell = value.rate if math.isfinite(value.rate) else ""
            row = (*head, escape_formula(system.name), "", cell, *_interval_cells(interval), "", "", "", "", "")
            writer.writerow((*row, rate.scope or "", interval.reason or ""))
        for difference in rate.differences:
            tested, holm_over = difference.test, f"all {len(rate.differences)} pairs of systems, this rate"
            tests = (tested.p, tested.name, difference.corrected_p, holm_over) if tested else ("", "", "", "")
            names = escape_formula(difference.second), escape_formula(difference.first)
            row = (*head, *names, "" if difference.difference is None else difference.difference)
            cells = (
                *_interval_cells(difference.interval),
                *tests,
                difference.verdict,
                rate.scope or "",
                difference.interval.reason or "",
            )
            writer.writerow((*row, *cells))
    return file.getvalue()


def _interval_cells(interval: Interval) -> tuple[object, ...]:
    low, high = interval.bounds or ("", "")
    return low, high, interval.level, interval.unit, interval.clusters


def comparison_latex(comparison: Comparison) -> str:
    r"""Write the main rates with their intervals, and all pairs of systems, as tables (`\usepackage{booktabs}`)."""
    rates = comparison.rates[:_MAIN_RATES]
    unit = f"{comparison.clusters} {comparison.unit}{'' if comparison.clusters == 1 else 's'}"
    scope = f", {rates[0].scope}: they hold for no other writers" if rates[0].scope else ""
    caption = (
        f"Error rates pooled over {rates[0].lines} {rates[0].noun}s, with 95 % confidence "
        f"intervals over {unit}{scope}. Training again is not in the intervals."
    )
    head = ["", *(f"{rate.name}, %" for rate in rates)]
    body = [
        [system.name, *(_rate_cell(rate, place) for rate in rates)] for place, system in enumerate(comparison.systems)
    ]
    pairs = [["", "difference, points", "95 % CI", "p", "p (Holm)"]]
    pairs += [list(_pair_row(difference)) for difference in rates[0].differences]
    name = next((f"{pair.test.name} test" for pair in rates[0].differences if pair.test), "no test")
    tests = (
        f"Differences in {rates[0].name}, system minus other; {name} over {comparison.unit}s, "
        f"and its p corrected for all pairs (Holm 1979){scope}."
    )
    return "\n".join([*_table([head, *body], caption), "", *_table(pairs, tests), ""])


def _rate_cell(rate: ComparedRate, place: int) -> str:
    value, bounds = rate.rates[place].rate, rate.intervals[place].bounds
    if not math.isfinite(value):
        return "none"
    interval = f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else ""
    return f"{100 * value:.1f}{interval}"


def _pair_row(difference: RateDifference) -> Iterator[str]:
    yield f"{difference.second} against {difference.first}"
    yield "none" if difference.difference is None else _points(difference.difference)
    bounds = difference.interval.bounds
    yield " to ".join(map(_points, bounds)) if bounds else "none"
    yield from ("none" if p is None else f"{p:.2g}" for p in (difference.p, difference.corrected_p))


def _points(difference: float) -> str:
    return format_difference(100 * difference).replace("\N{MINUS SIGN}", "-")


def _table(rows: Sequence[Sequence[str]], caption: str) -> Iterator[str]:
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{_escape(caption)}}}")
    yield rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}"
    yield r"\toprule"
    for number, row in enumerate(rows):
        yield " & ".join(map(_escape, row)) + r" \\"
        if not number:
            yield r"\midrule"
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}")


def _escape(text: str) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    text = _LATEX_SPECIAL.sub(lambda match: _LATEX_ESCAPES[match[0]], text)
    return re.sub(r"(?<![\w{])([+-])(?=\d)", r"$\1$", text).replace(r" \%", r"\,\%")
