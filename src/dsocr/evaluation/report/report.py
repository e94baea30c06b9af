"""Render the report of an evaluated run as a page or as Markdown."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsocr.errors import DataError, typed
from dsocr.evaluation.breakdown import CharacterErrors, Confusion, LineGroups
from dsocr.evaluation.metrics import finite_or_none, format_difference, mark_differences, script_of
from dsocr.evaluation.report.contents import (
    ReportContents,
    commands,
    facts,
    gather_contents,
    settings,
)
from dsocr.evaluation.report.lines import (
    LONGEST,
    Chapter,
    Images,
    ReadLine,
    differences,
    illustrate,
    other_lines,
)
from dsocr.evaluation.report.plots import curve_plots
from dsocr.evaluation.report.single_pages import curve_svg
from dsocr.evaluation.scorecard import FAILURE_LABELS, PROFILE_LABELS, Scorecard
from dsocr.evaluation.scores import FAILURES, Score, Scores
from dsocr.evaluation.statistics import Interval
from dsocr.html import counted, percent, printable, render
from dsocr.runs import RunFolder, write_atomically

_CURVES = ("training loss", "validation loss", "validation CER, %")
_KINDS = {
    "writer": ("Writers", 40),
    "length": ("Length in characters", 10),
    "script": ("Scripts", 10),
    "page": ("Pages", 0),
    "source": ("Sources", 0),
}
"""The kinds of groups, each with how many of its groups are not folded away."""
_WRITERS = {"known": "writers seen in training", "new": "new writers", "unknown": "unknown writers"}
_MAP_LETTERS = 16
_ROWS = 12
"""Rows of a table of characters."""
_TICKS = 4
_LEAST_SCALE = 1e-3
_MARKDOWN_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Rate:
    """An error rate as a fraction (None over an empty reference) and its interval, where that was computed."""

    value: float | None
    interval: Interval | None = None

    @classmethod
    def of_score(cls, score: Score) -> "Rate":
        """The CER of a score."""
        return cls(finite_or_none(score.cer.rate), score.intervals.get("cer"))

    @property
    def ends(self) -> tuple[float, float] | None:
        """The ends of the interval, where it has any."""
        if self.interval is None or self.interval.low is None or self.interval.high is None:
            return None
        return self.interval.low, self.interval.high


@dataclass(frozen=True, slots=True)
class RateGroup:
    """Lines that share a writer, a page, ..., with the rate of each reading on them; None for one without any."""

    name: str
    lines: int
    rates: Sequence[Rate | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from 0 to `most` with a line at each multiple of `step`."""

    most: float
    step: float

    @classmethod
    def of(cls, rates: Iterable[Rate | None]) -> "Axis":
        """Choose a scale with room for rates and intervals; a rate over 100 % is drawn at its end."""
        known = [rate for rate in rates if rate is not None]
        values = [end for rate in known for end in (rate.value, *(rate.ends or ())) if end is not None]
        largest = max((value for value in values if math.isfinite(value)), default=0.0)
        most = min(max(largest, _LEAST_SCALE), 1.0) if largest else 1.0
        power = 10.0 ** math.floor(math.log10(most / _TICKS))
        step = next(times * power for times in (1, 2, 5, 10) if times * power >= 0.999 * most / _TICKS)
        return cls(math.ceil(most / step - 1e-9) * step, step)

    @property
    def ticks(self) -> list[float]:
        """The values at which there is a line."""
        return [place * self.step for place in range(round(self.most / self.step) + 1)]

    def place(self, value: float) -> float:
        """Return where a value is, from 0 to 100."""
        return round(100 * min(max(value / self.most, 0.0), 1.0), 2)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A row of the table of changes; a cell is (value, what it is out of). `kind` is "better", "worse" or ""."""

    name: str
    cells: Sequence[tuple[str, str]]
    change: str
    kind: str


def render_report(contents: ReportContents, progress: Callable[[int, int], None] | None = None) -> str:
    """Render the report of a run; `progress` gets the number of illustrated lines done and of all."""
    names, card = list(contents.readings), contents.card
    curves = curve_plots([contents.history]) if contents.history and contents.history.training else []
    return render(
        __package__,
        "report.html.jinja",
        style="style.css",
        script="report.js",
        contents=contents,
        rates=[Rate.of_score(score) for score in contents.scores],
        changes=score_changes(contents.scores),
        other_counts=_other_counts(card, names),
        groups=rate_groups(card, names),
        characters=character_tables({name: card.characters[name] for name in names}),
        curves=[plot for plot in curves if plot.axis == "steps" and plot.title in _CURVES],
        svg=curve_svg,
        facts=list(facts(contents)),
        settings=list(settings(contents)),
        commands=commands(contents),
        **line_context(contents.chapters, contents.lines, names, contents.images, progress),
    )


def line_context(
    chapters: Sequence[Chapter],
    lines: Sequence[ReadLine],
    names: Sequence[str],
    images: Images,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Collect what templates need to show the lines and the rates of these readings."""
    rest, left = other_lines(lines, chapters)
    return {
        "names": names,
        "axis_of": lambda groups: Axis.of(rate for group in groups for rate in group.rates),
        "verdict_axis": Axis.of,
        "chapters": illustrate(chapters, images, progress),
        "writers": sorted({line.last.writer for line in lines if line.last.writer}),
        "rest": rest,
        "left": left,
        "differences": differences,
        "longest": LONGEST,
        "failed": FAILURE_LABELS,
        "seen": _WRITERS,
    }


def score_changes(scores: Sequence[Score]) -> list[ChangeRow]:
    """List rates and counts of the readings, and how the last differs from the first."""
    rows = [
        _rate_change("CER", [finite_or_none(score.cer.rate) for score in scores]),
        _rate_change("WER", [finite_or_none(score.wer.rate) for score in scores]),
        _count_change("lines without an error", [(score.exact, score.lines) for score in scores], sign=-1),
    ]
    return rows + [
        _count_change(FAILURE_LABELS[name], [(score.failures[name], score.lines) for score in scores])
        for name in FAILURES
    ]


def _rate_change(name: str, rates: Sequence[float | None]) -> ChangeRow:
    first, last = rates[0], rates[-1]
    worse_by = 0.0 if first is None or last is None else round(100 * (last - first), 6)  # less is rounding
    change = f"{format_difference(abs(worse_by), 2).removeprefix('+')}\N{NO-BREAK SPACE}points"
    return _change_row(name, [(percent(rate, 2), "") for rate in rates], change, worse_by)


def _count_change(name: str, counts: Sequence[tuple[int, int]], *, sign: int = 1) -> ChangeRow:
    """Compare counts of lines, of which more are worse (`sign` 1) or better (-1)."""
    more = counts[-1][0] - counts[0][0]
    change = f"{abs(more):,} {'more' if more > 0 else 'fewer'},"
    return _change_row(name, [(f"{count:,}", f"{total:,}") for count, total in counts], change, sign * more)


def _change_row(name: str, cells: Sequence[tuple[str, str]], change: str, worse_by: float) -> ChangeRow:
    kind = "worse" if worse_by > 0 else "better" if worse_by < 0 else ""
    return ChangeRow(name, cells, f"{change} {kind}" if kind else "same", kind)


def _other_counts(card: Scorecard, names: Sequence[str]) -> list[ChangeRow]:
    """List means and quantiles over lines, writers and pages, and the CER under each profile that has text."""
    averages = [card.averages[name] for name in names]
    means = {
        "mean over lines": [one.macro_over_lines.cer for one in averages],
        "mean over writers": [one.macro_over_writers.cer for one in averages],
        "mean over pages": [one.macro_over_pages.cer for one in averages],
        "median line": [one.median_line_cer for one in averages],
        "90th percentile of lines": [one.p90_line_cer for one in averages],
    }
    rows = [_rate_change(name, values) for name, values in means.items() if any(values)]
    for profile, title in PROFILE_LABELS.items():
        rates = [card.profiles[profile][name].cer for name in names] if profile in card.profiles else []
        if any(rate.length for rate in rates):
            rows.append(_rate_change(title, [finite_or_none(rate.rate) for rate in rates]))
    return rows


def rate_groups(card: Scorecard, names: Sequence[str]) -> list[tuple[str, str, list[RateGroup], int]]:
    """List the kinds of groups that have several: their title, kind, groups, and how many are not folded away."""
    known = [_rate_group(_WRITERS[hand], scores, names) for hand, scores in card.by_writer_status.items()]
    kinds = [("Known and new writers", "writer", known, 10)]
    kinds += [
        (title, kind, _named_groups(card.groups.get(kind), kind, names), most) for kind, (title, most) in _KINDS.items()
    ]
    return [row for row in kinds if len(row[2]) > 1]


def _named_groups(groups: LineGroups | None, kind: str, names: Sequence[str]) -> list[RateGroup]:
    """List the groups of a kind, then all others together; none where every line is a group by itself."""
    if groups is None:
        return []
    named = [_rate_group(group.name or f"no {kind} known", group.scores, names) for group in groups.top]
    if all(group.lines == 1 for group in named):
        return []
    if groups.others_scores is not None:
        others = f"{counted(groups.others, f'more {kind}')} together"
        named.append(_rate_group(others, groups.others_scores, names))
    return named


def _rate_group(name: str, scores: Scores, names: Sequence[str]) -> RateGroup:
    chosen: list[Score | None] = [getattr(scores, model) for model in names]
    return RateGroup(name, scores.final.lines, [Rate.of_score(score) if score else None for score in chosen])


def character_tables(characters: Mapping[str, CharacterErrors]) -> dict[str, Any] | None:
    """Tabulate which characters are misread: a map, the commonest pairs, and what was left out and added."""
    names, counted_ = list(characters), list(characters.values())
    last = counted_[-1]
    if not (last.substitutions or last.deletions or last.insertions):
        return None
    pairs: dict[tuple[str, str], list[str]] = {}
    ranks: dict[tuple[str, str], int] = {}
    # A card names the commonest pairs only; of another one, it is known that it is not more frequent.
    rare = [f"\u2264 {one.confusions[-1].count:,}" if one.other_pairs else "0" for one in counted_]
    for place, one in enumerate(counted_):
        for pair in one.confusions:
            key = pair.reference, pair.prediction
            pairs.setdefault(key, list(rare))[place] = f"{pair.count:,}"
            ranks[key] = max(ranks.get(key, 0), pair.count)
    chosen = sorted(pairs, key=lambda pair: (-ranks[pair], pair))[:_ROWS]
    return {
        "name": names[-1],
        "last": last,
        "map": confusion_map(last.confusions),
        "pairs": [(*map(_with_script(*pair), pair), pairs[pair]) for pair in chosen],
        "missed": [
            (letter(one.character), one.errors, one.count) for one in last.by_character if one.character is not None
        ][:_ROWS],
        "deleted": [(letter(one.character), one.count) for one in last.deleted.top[:_ROWS]],
        "inserted": [(letter(one.character), one.count) for one in last.inserted.top[:_ROWS]],
    }


def confusion_map(confusions: Iterable[Confusion]) -> dict[str, Any] | None:
    """Arrange the commonest confusions as a table: what is written in rows, what was read in columns."""
    counts: dict[tuple[str, str], int] = {}
    written: set[str] = set()
    read: set[str] = set()
    for pair in confusions:
        if len(written | {pair.reference}) <= _MAP_LETTERS and len(read | {pair.prediction}) <= _MAP_LETTERS:
            counts[pair.reference, pair.prediction] = pair.count
            written.add(pair.reference)
            read.add(pair.prediction)
    if not counts:
        return None
    most, columns = max(counts.values()), sorted(read)

    def cell(sign: str, other: str) -> tuple[int | None, float]:
        count = counts.get((sign, other), 0)
        return None if sign == other else count, round(0.1 + 0.5 * math.sqrt(count / most), 2)

    rows = [(letter(sign), [cell(sign, other) for other in columns]) for sign in sorted(written)]
    return {"columns": [letter(sign) for sign in columns], "rows": rows}


def letter(sign: str) -> str:
    """Show one character; a space has a sign of its own."""
    return "\u2423" if sign == " " else str(printable(sign)).replace("\n", "\ufffd")


def _with_script(reference: str, prediction: str) -> Callable[[str], str]:
    """Name the scripts of two characters that differ in it, because such letters may look the same."""
    scripts = {script_of(sign) for sign in (reference, prediction)}
    differ = len(scripts) > 1 and None not in scripts
    return lambda sign: f"{letter(sign)} ({(script_of(sign) or '').capitalize()})" if differ else letter(sign)


def render_markdown(contents: ReportContents) -> str:
    """Render the report for a repository or an issue; texts from a dataset or a model are in code spans."""
    names = list(contents.readings)
    writers = _named_groups(contents.card.groups.get("writer"), "writer", names)
    return render(
        __package__,
        "report.md.jinja",
        contents=contents,
        names=names,
        rates=[Rate.of_score(score) for score in contents.scores],
        changes=score_changes(contents.scores)[1:],
        writers=writers if len(writers) > 1 else [],
        facts=[*facts(contents), *settings(contents)],
        commands=commands(contents),
        code=code_span,
        plain=_plain,
        marked=mark_differences,
        failed=FAILURE_LABELS,
    )


def code_span(text: str) -> str:
    """Write a text as a code span of Markdown, in which nothing is markup: on one line, cut where it is long."""
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    text = text if len(text) <= _MARKDOWN_LENGTH else f"{text[:_MARKDOWN_LENGTH]}... ({len(text):,} characters)"
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}"


def _plain(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#|" else sign for sign in text)


def write_report(
    run: RunFolder,
    *,
    dataset: Path | None = None,
    out: Path | None = None,
    markdown: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Path, ReportContents]:
    """Write the report of an evaluated run to `out`, else to report.html or report.md in its folder.

    `dataset` is the folder that was scored, if it is not the run's own.
    """
    path = out or (run.report.with_suffix(".md") if markdown else run.report)
    suffixes = (".md", ".markdown") if markdown else (".html", ".htm")
    if path.suffix.lower() not in suffixes or path.is_dir():
        what = "A Markdown report is a .md file" if markdown else "A report is a .html file (.md with --markdown)"
        raise DataError(what, code="report-suffix", where=path, hint=f"for example {path.with_suffix(suffixes[0])}")
    if not path.absolute().parent.is_dir():
        folder = path.absolute().parent
        hint = "create it first"
        raise DataError("The output folder does not exist", code="output-folder-missing", where=folder, hint=hint)
    contents = gather_contents(run, dataset)
    text = render_markdown(contents) if markdown else render_report(contents, progress)
    try:
        write_atomically(path, text)
    except OSError as error:
        message = f"The report cannot be written: {error.strerror}"
        raise DataError(message, code="report-not-written", where=path) from error
    return path, contents


def drop_reports(run: RunFolder, *, drawn: bool) -> list[str]:
    """Remove the page of an earlier evaluation unless it is `drawn` anew, and return messages for the user.

    A Markdown report, which may be part of a repository, is only named.
    """
    messages = []
    if not drawn and run.report.is_file():
        try:
            run.report.unlink()
            messages.append(f"removed {run.report}, the page of an earlier evaluation")
        except OSError as error:
            messages.append(f"{run.report} is from an earlier evaluation and cannot be removed: {error.strerror}")
    if (markdown := run.report.with_suffix(".md")).is_file():
        command = f"dsocr report {typed(run.path)} --markdown"
        messages.append(f"{markdown} is from an earlier evaluation; `{command}` updates it")
    return messages
