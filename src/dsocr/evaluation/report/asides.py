"""What was measured of a run beside its scores: the guard set and confidences."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dsocr.evaluation.metrics import spoken_points
from dsocr.evaluation.report.marks import visible
from dsocr.evaluation.scorecard import Scorecard
from dsocr.runs import RunFolder


@dataclass(frozen=True, slots=True)
class Aside:
    """A table with its title and what to make of it; `warns` where that is bad news."""

    key: str
    title: str
    sentence: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    warns: bool = False


def read_asides(run: RunFolder, card: Scorecard) -> tuple[list[Aside], list[str]]:
    """The asides of a run, each where it was measured, and a warning for each file that cannot be read."""
    found = [_guard(card.guard)] if card.guard else []
    warnings = []
    if run.confidence.is_file():
        try:
            found.append(_confidence(json.loads(run.confidence.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            warnings.append(
                f"{run.confidence.name} is nothing that this version can read: run `dsocr calibrate RUN` again."
            )
    return found, warnings


def render_aside(aside: Aside) -> str:
    """The table and the sentence as HTML."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in aside.head)
    rows = "".join(f"<tr>{''.join(f'<td>{visible(cell)}</td>' for cell in row)}</tr>" for row in aside.rows)
    kind = "warning" if aside.warns else "quiet"
    return (
        f'<p class="{kind}">{visible(aside.sentence)}</p><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _guard(guard: Mapping[str, Any]) -> Aside:
    return Aside(
        "guard",
        "What the base could read",
        _sentence(guard["sentence"]),
        ("guard set", "lines", "CER, base", "CER, adapter", "points worse", "margin"),
        [
            (
                str(guard["dataset"]),
                f"{guard['lines']:,}",
                f"{guard['base_cer']:.2%}",
                f"{guard['adapter_cer']:.2%}",
                spoken_points(guard["drop"]),
                f"{guard['margin']:g}",
            )
        ],
        warns=guard["beyond_margin"],
    )


def _confidence(report: Mapping[str, Any]) -> Aside:
    rows = [
        (f"{kind}s", f"{found['count']:,}", *(_error(found[name]) for name in ("before", "after", "by_chance")))
        for kind, found in report["kinds"].items()
    ]
    number = f"number, {report['split']}" + (f" of {report['dataset']}" if "dataset" in report else "")
    head = ("confidence of", number, "ECE as it comes", "ECE fitted", "perfect ones, by chance")
    sentence = f"{report['sentence']} {report.get('foretold', '')}".strip()
    return Aside("confidence", "How sure it is", _sentence(sentence), head, rows)


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.4f}"


def _sentence(told: str) -> str:
    return told[:1].upper() + told[1:].rstrip(".") + "."
