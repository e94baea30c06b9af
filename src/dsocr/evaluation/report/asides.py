"""What was measured of a run beside its scores: the guard set, other strengths of the adapter, and confidences."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
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
    for path, made_by, aside in (
        (run.strength, "dsocr evaluate RUN --scale-sweep", _strength),
        (run.confidence, "dsocr calibrate RUN", _confidence),
    ):
        try:
            found += _read(path, aside)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            warnings.append(f"{path.name} is nothing that this version can read: run `{made_by}` again.")
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


def _read(path: Path, aside: Callable[[Mapping[str, Any]], Aside]) -> list[Aside]:
    return [aside(json.loads(path.read_text(encoding="utf-8")))] if path.is_file() else []


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


def _strength(sweep: Mapping[str, Any]) -> Aside:
    rows = [
        (
            f"{point['strength']:g}",
            f"{point['target_cer']:.2%}",
            f"{point['guard_cer']:.2%}",
            spoken_points(point["guard_drop"]),
            _remark(point, sweep["recommended"]),
        )
        for point in sweep["points"]
    ]
    head = ("strength", f"CER, {sweep['split']}", "CER, guard set", "points worse", "")
    return Aside("strength", "At other strengths of the adapter", _sentence(sweep["sentence"]), head, rows)


def _remark(point: Mapping[str, Any], recommended: float) -> str:
    remarks = {
        "the base": not point["strength"],
        "beyond the margin": point["beyond_margin"],
        "recommended": point["strength"] == recommended,
    }
    return ", ".join(remark for remark, holds in remarks.items() if holds)


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
