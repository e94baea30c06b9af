"""The result of an audit: its lines, the most suspicious first, as a page with their images, as a table and as JSON."""

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.document import Sample
from dsocr.evaluation.mistakes import (
    LABELS,
    MistakeCount,
    ReadSample,
    WordDifference,
    count_mistakes,
    differences_of,
    judge,
    kind_of,
    lines_near,
)
from dsocr.evaluation.report.contents import differences
from dsocr.formats.tables import escape_formula
from dsocr.html import Thumbnails, counted, render
from dsocr.io.work import write_file

PAGE, TABLE, ALL = "audit.html", "audit.csv", "audit.jsonl"
_THUMBNAIL = (1000, 160)
_MAX_BYTES = 24 * 2**20
_SHOWN = 4
"""Differences of a line that are listed."""


@dataclass(frozen=True, slots=True)
class SuspectLine:
    """A line with its rank, and why its text may be wrong.

    `score` is the logarithm of how much likelier its evidence is in a mistake than in this dataset; `probability` that
    it is one, None if the number of mistakes could not be estimated. `other` is the id of the line whose text it has.
    """

    rank: int
    sample: Sample
    read: str
    score: float
    probability: float | None
    kind: str
    other: str
    differences: Sequence[WordDifference]

    @property
    def why(self) -> str:
        """The likeliest kind of mistake in words."""
        return LABELS[self.kind] + (f", {self.other}" if self.other else "")

    @property
    def spans(self) -> list[tuple[str, str]]:
        """The given text and the reading: parts tagged "del" (given only), "ins" (read only) or "" (both)."""
        return differences(self.sample.text, self.read, sys.maxsize)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as a row of `audit.jsonl`; `gain` is in natural logarithms."""
        sample = self.sample
        return {
            "rank": self.rank,
            "id": sample.id,
            "score": round(self.score, 3),
            "probability": None if self.probability is None else round(self.probability, 3),
            "kind": self.kind,
            "other": self.other,
            "text": sample.text,
            "read": self.read,
            "differences": [{**asdict(each), "gain": round(each.gain, 2)} for each in self.differences],
            "writer": sample.writer,
            "page": sample.page,
            "source": sample.source,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """All lines of a dataset, the most suspicious first, and how many mistakes there are; None if unknown."""

    name: str
    folder: Path
    lines: Sequence[SuspectLine]
    count: MistakeCount | None

    @property
    def sentences(self) -> list[str]:
        """The estimate in words."""
        if self.count is None:
            return [f"{counted(len(self.lines), 'line')} are too few to estimate how many are wrong."]
        large = _with_interval(*self.count.large)
        sentences = [
            f"About {large} of {len(self.lines):,} texts are wrong by a word or more, and "
            f"{_with_interval(self.count.count, self.count.low, self.count.high)} with letters, signs and endings.",
            "These numbers come from mistakes that were planted, and hold for such mistakes: words left out, added or "
            "from another line, a letter of another script, a letter, sign or ending changed. In a hand hard to "
            "read, a wrong word looks like one that is read wrongly: look at the first lines in any case.",
        ]
        sentences += [
            f"The first {rank} lines of the list hold about {self.count.found_in_first(rank):.0f} of them."
            for rank in (20, 50, 100)
            if rank < len(self.lines)
        ]
        return sentences

    def to_dict(self, lines: int | None = None) -> dict[str, Any]:
        """Return the estimate and the first lines, all if not given, as JSON values."""
        count = self.count
        return {
            "dataset": self.name,
            "lines": len(self.lines),
            "mistakes": None if count is None else _to_numbers(count.count, count.low, count.high),
            "large_mistakes": None if count is None else _to_numbers(*count.large),
            "list": [line.to_dict() for line in self.lines[:lines]],
        }

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def _with_interval(count: float, low: float, high: float) -> str:
    return f"{round(count)} (95 % interval {math.floor(low)} to {math.ceil(high)})"


def _to_numbers(count: float, low: float, high: float) -> dict[str, float]:
    return {"count": count, "low": low, "high": high}


def rank_lines(read: Sequence[ReadSample], *, name: str, folder: Path) -> Audit:
    """Judge lines, rank them, and estimate how many mistakes there are."""
    judged = judge(read)
    count = count_mistakes(judged.scores, judged.planted, judged.planted_kinds)
    near = lines_near([line.sample for line in read])
    lines = []
    for rank, place in enumerate(np.argsort(-judged.scores, kind="stable").tolist(), 1):
        line = read[place]
        kind, other = kind_of(line, [read[at] for at in near[place]])
        probability = None if count is None else float(count.probabilities[place])
        score = float(judged.scores[place])
        lines.append(SuspectLine(rank, line.sample, line.read, score, probability, kind, other, differences_of(line)))
    return Audit(name, folder, lines, count)


def write_audit(audit: Audit, lines: int) -> None:
    """Write the page and the table of the first lines, and the list of all, into the audit's folder."""
    shown = audit.lines[:lines]
    write_file(audit.folder / PAGE, render_audit(audit, shown))
    rows = (json.dumps(line.to_dict(), ensure_ascii=False) + "\n" for line in audit.lines)
    write_file(audit.folder / ALL, "".join(rows))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["rank", "id", "source", "kind", "probability", "text", "read", "correction"])
    for line in shown:
        probability = "" if line.probability is None else f"{line.probability:.2f}"
        sample = line.sample
        cells = [sample.id, sample.source or "", line.why, probability, sample.text, line.read, ""]
        writer.writerow([line.rank, *map(escape_formula, cells)])
    write_file(audit.folder / TABLE, "\ufeff" + table.getvalue())  # the mark tells spreadsheets that it is UTF-8


def render_audit(audit: Audit, shown: Sequence[SuspectLine]) -> str:
    """Render the page of these lines."""
    thumbnails = Thumbnails(_THUMBNAIL, _MAX_BYTES)
    kinds = {kind: sum(line.kind == kind for line in shown) for kind in LABELS}
    return render(
        __package__,
        "audit.html.jinja",
        style="audit.css",
        audit=audit,
        lines=[(line, thumbnails.of(line.sample.image, alt=f"Line {line.rank}")) for line in shown],
        kinds={LABELS[kind]: count for kind, count in kinds.items() if count},
        listed=_SHOWN,
        table=TABLE,
        times=_times,
    )


def _times(gain: float) -> str:
    """Write how many times as likely something is whose logarithm is greater by this."""
    if gain < math.log(1000):
        return f"{math.exp(max(gain, 0)):.0f} times"
    exponent = str(round(gain / math.log(10))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{exponent} times"
