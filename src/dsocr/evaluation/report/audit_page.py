"""The result of an audit: its lines, most suspicious first, as a page with their images, a table and JSON."""

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsocr.document import Sample
from dsocr.evaluation.mistakes import (
    FIRST,
    LABELS,
    ReadSample,
    WordDifference,
    WrongTexts,
    differences_of,
    draw_sample,
    judge,
    kind_of,
    lines_near,
)
from dsocr.evaluation.report.contents import differences
from dsocr.formats.tables import escape_formula, read_rows, unescape_formula
from dsocr.html import Thumbnails, counted, render
from dsocr.io.work import write_file

PAGE, TABLE, ALL, JUDGED = "audit.html", "audit.csv", "audit.jsonl", "judged.csv"
_THUMBNAIL, _LARGE = (1000, 160), (2000, 320)
"""Pixels of pictures; the large ones are of lines to judge, whose accents must be visible."""
_MAX_BYTES = 24 * 2**20
_YES, _NO = ("y", "д", "1", "x"), ("n", "н", "0")
"""How entries of the column `wrong` begin."""
_SHOWN = 4
"""Differences of a line that are listed."""


@dataclass(frozen=True, slots=True)
class SuspectLine:
    """A line with its rank, and why its text may be wrong.

    `score` is the logarithm of how much likelier its evidence is in a mistake than in this dataset. `other` is the id
    of the line whose text it has.
    """

    rank: int
    sample: Sample
    read: str
    score: float
    kind: str
    other: str
    differences: Sequence[WordDifference]

    @property
    def why(self) -> str:
        """The likeliest kind of mistake in words."""
        aligned = "" if self.sample.aligned is None else "; an aligned text that nobody accepted"
        return LABELS[self.kind] + (f", {self.other}" if self.other else "") + aligned

    @property
    def spans(self) -> list[tuple[str, str]]:
        """The given text and the reading: parts tagged "del" (given only), "ins" (read only) or "" (both)."""
        return differences(self.sample.text, self.read, sys.maxsize)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as a row of `audit.jsonl`; `gain` is in natural logarithms."""
        sample = self.sample
        judged = {"score": round(self.score, 3), "kind": self.kind, "other": self.other}
        differences = [{**asdict(each), "gain": round(each.gain, 2)} for each in self.differences]
        texts = {"text": sample.text, "read": self.read, "differences": differences}
        known = {name: getattr(sample, name) for name in ("writer", "page", "source")}
        return {"rank": self.rank, "id": sample.id, **judged, **texts, **known}


@dataclass(frozen=True, slots=True)
class Audit:
    """All lines of a dataset, the most suspicious first.

    `wrong` has the judgements by the place of the line, `corrections` the corrected texts by its id.
    """

    name: str
    folder: Path
    lines: Sequence[SuspectLine]
    wrong: Mapping[int, bool]
    corrections: Mapping[str, str]

    @property
    def count(self) -> WrongTexts | None:
        """How many texts are wrong; None until the first lines and the random sample are judged."""
        return WrongTexts.of(len(self.lines), self.wrong)

    @property
    def to_judge(self) -> list[int]:
        """The places of the lines to judge: the first ones, and a random sample of the others."""
        return [*range(min(FIRST, len(self.lines))), *draw_sample(len(self.lines))]

    def __str__(self) -> str:
        if self.count is not None:
            return str(self.count)
        places, first = self.to_judge, min(FIRST, len(self.lines))
        done = sum(place in self.wrong for place in places)
        return (
            f"How many of {counted(len(self.lines), 'text')} are wrong is known when somebody has judged the first "
            f"{first} of this list and {len(places) - first} drawn from the others ({done} of {len(places)} done): in "
            f"{PAGE} with one key each, or yes and no in the column `wrong` of {TABLE}. Then run this again."
        )

    def to_dict(self, lines: int | None = None) -> dict[str, Any]:
        """Return the count and the first lines, all if not given, as JSON values."""
        count = self.count
        return {
            "dataset": self.name,
            "lines": len(self.lines),
            "wrong": None if count is None else asdict(count) | {"interval": list(count.interval)},
            "list": [line.to_dict() for line in self.lines[:lines]],
        }


def rank_lines(read: Sequence[ReadSample], *, name: str, folder: Path) -> Audit:
    """Judge lines and rank them; judgements and corrections in the tables of the folder are kept.

    Of the lines whose evidence is likelier in a mistake, those with an aligned text that nobody accepted come first.
    """
    scores = judge(read)
    unaccepted = np.array([line.sample.aligned is not None for line in read]) & (scores > 0)
    near = lines_near([line.sample for line in read])
    lines = []
    for rank, place in enumerate(np.lexsort((-scores, ~unaccepted)).tolist(), 1):
        line = read[place]
        kind, other = kind_of(line, [read[at] for at in near[place]])
        score = float(scores[place])
        lines.append(SuspectLine(rank, line.sample, line.read, score, kind, other, differences_of(line)))
    wrong: dict[str, bool] = {}
    corrections: dict[str, str] = {}
    files = [path for path in (folder / TABLE, folder / JUDGED) if path.is_file()]
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):  # the later one counts
        for _, cells in read_rows(path, {})[1]:
            id_, answer = unescape_formula(cells.get("id", "")), cells.get("wrong", "").strip().lower()
            if answer.startswith((*_YES, *_NO)):
                wrong[id_] = answer.startswith(_YES)
            if correction := unescape_formula(cells.get("correction", "")):
                corrections[id_] = correction
    judged = {place: wrong[line.sample.id] for place, line in enumerate(lines) if line.sample.id in wrong}
    return Audit(name, folder, lines, judged, corrections)


def write_audit(audit: Audit, lines: int) -> None:
    """Write page and table of the first lines and of those to judge, and the list of all, into the audit's folder."""
    places = sorted({*range(min(lines, len(audit.lines))), *audit.to_judge})
    write_file(audit.folder / PAGE, render_audit(audit, places))
    rows = (json.dumps(line.to_dict(), ensure_ascii=False) + "\n" for line in audit.lines)
    write_file(audit.folder / ALL, "".join(rows))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["rank", "id", "source", "kind", "text", "read", "judge", "wrong", "correction"])
    to_judge = set(audit.to_judge)
    for place in places:
        line = audit.lines[place]
        answer = {None: "", True: "yes", False: "no"}[audit.wrong.get(place)]
        cells = [line.sample.id, line.sample.source or "", line.why, line.sample.text, line.read]
        cells += ["yes" if place in to_judge else "", answer, audit.corrections.get(line.sample.id, "")]
        writer.writerow([line.rank, *map(escape_formula, cells)])
    write_file(audit.folder / TABLE, "\ufeff" + table.getvalue())  # the mark tells spreadsheets that it is UTF-8


def render_audit(audit: Audit, places: Sequence[int]) -> str:
    """Render the page of the lines at these places of the list."""
    thumbnails, large = Thumbnails(_THUMBNAIL, _MAX_BYTES), Thumbnails(_LARGE, _MAX_BYTES)
    shown, to_judge = [audit.lines[place] for place in places], set(audit.to_judge)
    kinds = {kind: sum(line.kind == kind for line in shown) for kind in LABELS}
    return render(
        __package__,
        "audit.html.jinja",
        style="audit.css",
        script="audit.js",
        audit=audit,
        first=FIRST,
        lines=[
            (
                line,
                (large if place in to_judge else thumbnails).of(line.sample.image, alt=f"Line {line.rank}"),
                place in to_judge,
                audit.wrong.get(place),
            )
            for place, line in zip(places, shown, strict=True)
        ],
        kinds={LABELS[kind]: count for kind, count in kinds.items() if count},
        listed=_SHOWN,
        table=TABLE,
        judged=JUDGED,
        times=_times,
    )


def _times(gain: float) -> str:
    """Write how many times as likely something is whose logarithm is greater by this."""
    if gain < math.log(1000):
        return f"{math.exp(max(gain, 0)):.0f} times"
    exponent = str(round(gain / math.log(10))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{exponent} times"
