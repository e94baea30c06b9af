"""Render the report of an evaluated run as a page or as Markdown."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from dsocr.data.dataset import Dataset
from dsocr.errors import DataError, option, typed
from dsocr.evaluation.breakdown import CharacterErrors, LineGroups
from dsocr.evaluation.compare import ReadLine
from dsocr.evaluation.metrics import finite_or_none, format_difference, mark_differences, script_of
from dsocr.evaluation.report.contents import (
    LONGEST,
    Chapter,
    Images,
    ReportContents,
    commands,
    differences,
    facts,
    gather_contents,
    other_lines,
    settings,
    unbroken,
)
from dsocr.evaluation.scorecard import PROFILE_LABELS, TEXT_LABELS, Scorecard, name_writers
from dsocr.evaluation.scores import FAILURE_LABELS, MODEL_LABELS, Score, Scores
from dsocr.html import QUIET, Plot, Thumbnails, counted, percent, printable, render, run_colour
from dsocr.io.work import explain_disk_errors, require_output_folder, write_file
from dsocr.runs import History, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = {
    "writer": ("Writers", 40),
    "length": ("Length in characters", 10),
    "script": ("Scripts", 10),
    "page": ("Pages", 0),
    "source": ("Sources", 0),
}
"""The kinds of groups, each with how many of its groups are not folded away."""
MOST_PICTURES = 12 * 2**20
"""Bytes of all images together."""
_THUMBNAIL = (960, 320)
_ROWS = 12
"""Rows of a table of characters."""
_TICKS = 4
_LEAST_SCALE = 1e-3
_MARKDOWN_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from 0 to `most` with a line at each multiple of `step`."""

    most: float
    step: float

    @classmethod
    def of(cls, scores: Iterable[Score | None]) -> "Axis":
        """Choose a scale with room for CERs and for intervals up to twice the largest; longer ones are cut there."""
        known = [score for score in scores if score is not None]
        largest = max((score.cer.rate for score in known if math.isfinite(score.cer.rate)), default=0.0)
        ends = [score.interval.bounds[1] for score in known if score.interval and score.interval.bounds]
        return cls.up_to(max([largest, *(min(end, 2 * largest) for end in ends)]))

    @classmethod
    def up_to(cls, largest: float) -> "Axis":
        """Choose a scale that ends at the largest value, rounded up, but at most at 1."""
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


def render_report(contents: ReportContents, progress: Callable[[int, int], None] | None = None) -> str:
    """Render the report of a run; `progress` gets the number of illustrated lines done and of all."""
    names, card = list(contents.readings), contents.card
    known = [
        _group_row(name_writers(status, scores.writers), scores, names)
        for status, scores in card.by_writer_status.items()
    ]
    texts = [_group_row(TEXT_LABELS[kind], scores, names) for kind, scores in card.by_text.items()]
    groups = [("Known and new writers", "writer", known, 10), ("Known and new texts", "text", texts, 10)]
    for kind, (title, most) in _KINDS.items():
        groups.append((title, kind, _group_rows(card.groups.get(kind), kind, names), most))
    return render(
        __package__,
        "report.html.jinja",
        style="style.css",
        script="report.js",
        contents=contents,
        scores=contents.scores,
        changes=score_changes(contents.scores),
        other_counts=_other_counts(card, names),
        groups=[group for group in groups if len(group[2]) > 1],
        characters=character_tables({MODEL_LABELS[name]: card.characters[name] for name in names}),
        curves=curve_plots(contents.history) if contents.history else [],
        facts=list(facts(contents)),
        settings=list(settings(contents)),
        commands=commands(contents),
        **line_context(contents.chapters, contents.lines, contents.labels, contents.images, progress),
    )


def line_context(
    chapters: Sequence[Chapter],
    lines: Sequence[ReadLine],
    names: Sequence[str],
    images: Images,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Collect the context of templates that show the lines and rates of these readings."""
    rest, left = other_lines(lines, chapters)
    kinds: dict[int, list[str]] = {}
    shown: dict[int, ReadLine] = {}
    for chapter in chapters:
        for line in chapter.lines:
            kinds.setdefault(line.number, []).append(chapter.key)
            shown[line.number] = line
    thumbnails = Thumbnails(_THUMBNAIL, MOST_PICTURES)
    missing = Markup('<p class="quiet">its image cannot be opened</p>')
    pictures = {}
    for number, line in shown.items():
        path = images.get(line.last.id)
        pictures[number] = Markup() if path is None else thumbnails.of(path, alt=f"Line {number}", missing=missing)
        if progress is not None:
            progress(len(pictures), len(shown))
    head = Markup('<span class="reading{}"><span class="key{}"></span>{}</span>')
    return {
        "names": names,
        "heads": [head.format(place % 8, " full" * (place > 0), printable(name)) for place, name in enumerate(names)],
        "unbroken": unbroken,
        "axis_of": Axis.of,
        "finite": math.isfinite,
        "chapters": chapters,
        "kinds": kinds,
        "pictures": pictures,
        "writers": sorted({line.last.writer for line in lines if line.last.writer}),
        "rest": rest,
        "left": left,
        "differences": differences,
        "longest": LONGEST,
        "failed": FAILURE_LABELS,
    }


class ChangeRow(NamedTuple):
    """A row of the table of changes; a cell is (value, total). `kind` is "better", "worse" or ""."""

    name: str
    cells: Sequence[tuple[str, str]]
    change: str
    kind: str


def score_changes(scores: Sequence[Score]) -> list[ChangeRow]:
    """List rates and counts of the readings, and how the last differs from the first."""
    return [
        _rate_change("CER", [finite_or_none(score.cer.rate) for score in scores]),
        _rate_change("WER", [finite_or_none(score.wer.rate) for score in scores]),
        _count_change("lines without an error", [(score.exact, score.lines) for score in scores], sign=-1),
        *(
            _count_change(label, [(score.failures[name], score.lines) for score in scores])
            for name, label in FAILURE_LABELS.items()
        ),
    ]


def _rate_change(name: str, rates: Sequence[float | None]) -> ChangeRow:
    first, last = rates[0], rates[-1]
    worse_by = 0.0 if first is None or last is None else round(100 * (last - first), 6)  # less is rounding
    change = f"{format_difference(abs(worse_by)).removeprefix('+')}\N{NO-BREAK SPACE}points"
    return _change_row(name, [(percent(rate), "") for rate in rates], change, worse_by)


def _count_change(name: str, counts: Sequence[tuple[int, int]], *, sign: int = 1) -> ChangeRow:
    """Compare counts of lines; more are worse (`sign` 1) or better (-1)."""
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
        "mean over lines": [average.macro_over_lines.cer for average in averages],
        "mean over writers": [average.macro_over_writers.cer for average in averages],
        "mean over pages": [average.macro_over_pages.cer for average in averages],
        "median line": [average.median_line_cer for average in averages],
        "90th percentile of lines": [average.p90_line_cer for average in averages],
    }
    rows = [_rate_change(name, values) for name, values in means.items() if any(values)]
    for profile, title in PROFILE_LABELS.items():
        rates = [card.profiles[profile][name].cer for name in names] if profile in card.profiles else []
        if any(rate.length for rate in rates):
            rows.append(_rate_change(title, [finite_or_none(rate.rate) for rate in rates]))
    return rows


GroupRow = tuple[str, int, list[Score | None], int | None]
"""Name and number of lines of a group, its score in each reading (None without any line), and its known writers."""


def _group_rows(groups: LineGroups | None, kind: str, names: Sequence[str]) -> list[GroupRow]:
    """List the groups of a kind, then all others together; none where every line is a group by itself."""
    if groups is None or all(group.scores.final.lines == 1 for group in groups.top):
        return []
    rows = [_group_row(group.name or f"no {kind} known", group.scores, names) for group in groups.top]
    if groups.others_scores is not None:
        rows.append(_group_row(f"{counted(groups.others, f'more {kind}')} together", groups.others_scores, names))
    return rows


def _group_row(name: str, scores: Scores, names: Sequence[str]) -> GroupRow:
    return name, scores.final.lines, [getattr(scores, model) for model in names], scores.writers


def character_tables(characters: Mapping[str, CharacterErrors]) -> dict[str, Any] | None:
    """Tabulate the commonest confused pairs, and the characters that are misread, left out and added."""
    *_, (name, last) = characters.items()
    if not (last.substitutions or last.deletions or last.insertions):
        return None
    counts = [{(pair.reference, pair.prediction): pair.count for pair in row.confusions} for row in characters.values()]
    # A card names the commonest pairs only; of another one, it is known that it is not more frequent.
    rare = [f"\u2264 {row.confusions[-1].count:,}" if row.other_pairs else "0" for row in characters.values()]
    most = {pair: max(row.get(pair, 0) for row in counts) for row in counts for pair in row}

    def row(pair: tuple[str, str]) -> tuple[str, ...]:
        cells = (f"{row[pair]:,}" if pair in row else other for row, other in zip(counts, rare, strict=True))
        scripts = [script_of(sign) for sign in pair]  # named where they differ: such letters may look the same
        differ = None not in scripts and scripts[0] != scripts[1]
        names = (f"{letter(sign)} ({str(script).capitalize()})" for sign, script in zip(pair, scripts, strict=True))
        return " read as ".join(names if differ else map(letter, pair)), *cells

    missed = [row for row in last.by_character if row.character is not None][:_ROWS]
    return {
        "name": name,
        "last": last,
        "pairs": [row(pair) for pair in sorted(most, key=lambda pair: (-most[pair], pair))[:_ROWS]],
        "missed": [
            (letter(row.character or ""), f"{row.errors:,} of {row.count:,}", percent(row.errors / row.count, 0))
            for row in missed
        ],
        "tallies": {
            name: [(letter(row.character), f"{row.count:,}") for row in tally.top[:_ROWS]]
            for name, tally in (("left out", last.deleted), ("added", last.inserted))
            if tally.top
        },
    }


def letter(sign: str) -> str:
    """Show one character; a space has a sign of its own."""
    return "\u2423" if sign == " " else str(printable(sign)).replace("\n", "\ufffd")


def curve_plots(history: History) -> list[Plot]:
    """Plot losses and validation CER of a run over its steps; the kept step has a ring."""
    best = history.best
    kept = (best["step"], 100 * best["cer"]) if best else None
    kinds = [
        ("training loss", history.training, "loss", 1, None),
        ("validation loss", history.validation, "loss", 1, None),
        ("validation CER, %", history.validation, "cer", 100, kept),
    ]
    plots = []
    for title, rows, name, scale, ring in kinds:
        if points := [(row["step"], row[name] * scale) for row in rows if row.get(name) is not None]:
            plots.append(_curve_plot(title, points, ring))
    return plots


def _curve_plot(title: str, points: Sequence[tuple[float, float]], best: tuple[float, float] | None) -> Plot:
    def paint(axes: "Axes") -> None:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=run_colour(0), marker="." if len(x) == 1 else None)
        if best is not None:
            axes.plot(*best, marker="o", markersize=7, color=run_colour(0), fillstyle="none")
            annotate(axes, f"best {best[1]:.4g}", best, (0, 7), ha="center")
        axes.set(xlabel="steps", ylabel=title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0.0, *axes.get_ylim()))

    return Plot(f"{title} over steps", paint)


def annotate(axes: "Axes", text: str, point: tuple[float, float], offset: tuple[int, int], **alignment: str) -> None:
    """Write a quiet note beside a point, this many points away."""
    axes.annotate(text, point, offset, textcoords="offset points", color=QUIET, **alignment)  # type: ignore[arg-type]


def render_markdown(contents: ReportContents) -> str:
    """Render the report for a repository or an issue; texts from a dataset or a model are in code spans."""
    writers = _group_rows(contents.card.groups.get("writer"), "writer", list(contents.readings))
    return render(
        __package__,
        "report.md.jinja",
        contents=contents,
        changes=score_changes(contents.scores)[1:],
        writers=writers if len(writers) > 1 else [],
        facts=[*facts(contents), *settings(contents)],
        commands=commands(contents),
        code=code_span,
        plain=lambda text: re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text),
        unbroken=unbroken,
        marked=mark_differences,
        failed=FAILURE_LABELS,
    )


def code_span(text: str) -> str:
    """Write a text as a code span of Markdown, in which nothing is markup: on one line, cut where it is long."""
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    text = text if len(text) <= _MARKDOWN_LENGTH else f"{text[:_MARKDOWN_LENGTH]}... ({len(text):,} characters)"
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}"


def write_report(
    run: RunFolder,
    *,
    dataset: Path | Dataset | None = None,
    out: Path | None = None,
    markdown: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Path, ReportContents]:
    """Write the report of an evaluated run to `out`, else to report.html or report.md in its folder.

    `dataset` is the scored one, or its folder, if it is not the run's own.
    """
    path = out or (run.report.with_suffix(".md") if markdown else run.report)
    suffixes = (".md", ".markdown") if markdown else (".html", ".htm")
    if path.suffix.lower() not in suffixes or path.is_dir():
        message = (
            "A Markdown report is a .md file" if markdown else f"A report is .html (.md with {option('markdown')})"
        )
        raise DataError(message, code="report-suffix", where=path, hint=f"for example {path.with_suffix(suffixes[0])}")
    require_output_folder(path)
    contents = gather_contents(run, dataset)
    text = render_markdown(contents) if markdown else render_report(contents, progress)
    with explain_disk_errors(path.parent, where=path):
        write_file(path, text)
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
