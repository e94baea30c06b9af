"""Pages that show lines beside their readings: parts they share, the comparison and the calibration page."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from dsocr.document import PackedImage
from dsocr.evaluation.calibration import CalibrationReport, Reliability
from dsocr.evaluation.compare import (
    ComparedGroup,
    Comparison,
    ReadLine,
    describe_p,
    read_lines,
)
from dsocr.evaluation.metrics import align, format_difference
from dsocr.evaluation.scores import FAILURE_LABELS, LineScore, Score
from dsocr.html import BAR, PAPER, QUIET, Plot, Thumbnails, counted, percent, printable, render, run_colour
from dsocr.io.work import require_free_output, write_file, writing_file, writing_folder
from dsocr.runs import to_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE, NUMBERS, CHANGES = "comparison.html", "comparison.json", "changes.jsonl"
PAGE_SUFFIX = ".html"
MOST_PICTURES = 12 * 2**20
"""Bytes of all images together."""
MOST_TEXT = 5 * 2**20
"""Characters of HTML, roughly, that lines without images may take."""
LONGEST = 1500
"""Characters of a line that are shown; a loop may write many more."""
MOST_WRITERS = 60
"""Most rows of a plot of writers; of more, only the largest changes both ways are drawn."""

_MARKUP = 450
"""Characters of HTML around the texts of a line."""
_SEED = 17
_SAMPLE = _MOST = 30
_MOST_CHANGED = 20
_THUMBNAIL = (960, 320)
_TICKS = 4
_LEAST_SCALE = 1e-3
_CER_LIMIT = 1.5
"""CER beyond which a dot is at the edge with its number beside it: a loop would squeeze all others together."""
_NAME_LENGTH = 26

Images = Mapping[str, Path | PackedImage]
"""The image of each line, by its id."""
Progress = Callable[[int, int], None] | None
"""Called with the number of illustrated lines done and of all."""


def sentence(text: str) -> str:
    """Start with a capital and end with a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def lines_by_writers(lines: Sequence[LineScore]) -> str:
    """Count lines and their known writers."""
    writers = len({line.writer for line in lines if line.writer})
    return counted(len(lines), "line") + (f" by {counted(writers, 'writer')}" if writers else "")


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested settings, without any that are None; each value on one line, with newlines as `\\n`."""
    for name, value in values.items():
        full = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{full}: ")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield full, text.replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class Chapter:
    """Lines that are shown together; `note` says how they were chosen."""

    key: str
    title: str
    note: str
    lines: Sequence[ReadLine]


def chapters_of(lines: Sequence[ReadLine], names: Sequence[str]) -> list[Chapter]:
    """Choose lines for chapters, which may overlap; the random sample is the same for the same number of lines."""
    chapters: list[Chapter] = []

    def add(key: str, title: str, note: str, shown: Sequence[ReadLine], total: int) -> None:
        if shown:
            share = f"All {total:,}" if len(shown) == total else f"{len(shown):,} of {total:,}"
            chapters.append(Chapter(key, title, f"{share}, {note}.", shown))

    def rank(key: str, title: str, note: str, most: int, weight: Callable[[ReadLine], int]) -> None:
        weighty = sorted((line for line in lines if weight(line) > 0), key=lambda line: (-weight(line), line.number))
        add(key, title, note, weighty[:most], len(weighty))

    drawn = np.random.default_rng(_SEED).permutation(len(lines))[:_SAMPLE]
    add("sample", "Random sample", "drawn at random", [lines[n] for n in sorted(drawn)], len(lines))

    first, last = names[0], names[-1]
    unread = f"lines that {last} did not finish, read in another script, or did not read at all"
    rank("worst", "Most errors", "most errors first", _MOST, lambda line: line.last.cer.errors)
    rank("better", f"Better than {first}", "largest improvement first", _MOST_CHANGED, lambda line: line.saved)
    rank("worse", f"Worse than {first}", "largest setback first", _MOST_CHANGED, lambda line: -line.saved)
    failed = lambda line: bool(line.failures) * (line.last.cer.errors + 1)  # noqa: E731
    rank("failures", "Loops and other failures", unread, _MOST, failed)
    return chapters


def other_lines(lines: Sequence[ReadLine], chapters: Sequence[Chapter]) -> tuple[list[ReadLine], int]:
    """Return the lines of no chapter, most errors first, as far as there is room, and how many are left."""
    shown = {line.number for chapter in chapters for line in chapter.lines}
    rest = sorted(
        (line for line in lines if line.number not in shown), key=lambda line: (-line.last.cer.errors, line.number)
    )
    taken = 0
    for count, line in enumerate(rest):
        taken += _MARKUP + min(len(line.last.reference), LONGEST)
        taken += sum(_MARKUP // 3 + min(len(score.prediction), LONGEST) for score in line.scores)
        if taken > MOST_TEXT:
            return rest[:count], len(rest) - count
    return rest, 0


def differences(reference: str, prediction: str, longest: int = LONGEST) -> tuple[list[tuple[str, str]], int]:
    """Split a prediction into "del" (not read), "ins" (added) and "" (right); count the characters after `longest`."""
    parts: list[tuple[str, str]] = []
    shown = hidden = 0
    for written, read in align(reference, prediction):
        room = longest - shown
        length = max(len(written), len(read))
        parts += [("", written[:room])] if written == read else [("del", written[:room]), ("ins", read[:room])]
        shown += min(length, room)
        hidden += max(length - room, 0)
    return [(tag, text) for tag, text in parts if text], hidden


def line_context(
    chapters: Sequence[Chapter], lines: Sequence[ReadLine], names: Sequence[str], images: Images, progress: Progress
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


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from 0 to `most` with a line at each multiple of `step`."""

    most: float
    step: float

    @classmethod
    def of(cls, scores: Sequence[Score]) -> "Axis":
        """Choose a scale with room for CERs and for intervals up to twice the largest; longer ones are cut there."""
        largest = max((score.cer.rate for score in scores if math.isfinite(score.cer.rate)), default=0.0)
        ends = [score.interval.bounds[1] for score in scores if score.interval and score.interval.bounds]
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


class ChangeRow(NamedTuple):
    """A row of the table of changes; a cell is (value, total). `kind` is "better", "worse" or ""."""

    name: str
    cells: Sequence[tuple[str, str]]
    change: str
    kind: str


def score_changes(scores: Sequence[Score]) -> list[ChangeRow]:
    """List rates and counts of the readings, and how the last differs from the first."""
    failures = {label: [score.failures[name] for score in scores] for name, label in FAILURE_LABELS.items()}
    counts = {"lines without an error": [score.exact for score in scores]}
    counts |= {label: values for label, values in failures.items() if any(values)}
    rows = [
        rate_change("CER", [score.cer.rate for score in scores]),
        rate_change("WER", [score.wer.rate for score in scores]),
    ]
    for name, values in counts.items():
        more = values[-1] - values[0]
        cells = [(f"{value:,}", f"{score.lines:,}") for value, score in zip(values, scores, strict=True)]
        amount = f"{abs(more):,} {'more' if more > 0 else 'fewer'},"
        rows.append(_change_row(name, cells, amount, -more if name == "lines without an error" else more))
    return rows


def rate_change(name: str, rates: Sequence[float | None]) -> ChangeRow:
    """Make the row of a rate, as fractions, in each reading; None or infinity is shown as missing text."""
    first, last = (math.inf if rate is None else rate for rate in (rates[0], rates[-1]))
    worse_by = round(100 * (last - first), 6) if math.isfinite(first + last) else 0.0  # less is rounding
    amount = f"{format_difference(worse_by)}\N{NO-BREAK SPACE}points"
    return _change_row(name, [(percent(rate), "") for rate in rates], amount, worse_by)


def _change_row(name: str, cells: Sequence[tuple[str, str]], amount: str, worse_by: float) -> ChangeRow:
    kind = "worse" if worse_by > 0 else "better" if worse_by < 0 else ""
    return ChangeRow(name, cells, f"{amount} {kind}" if kind else "same", kind)


def annotate(axes: "Axes", text: str, point: tuple[float, float], offset: tuple[int, int], **alignment: str) -> None:
    """Write a quiet note beside a point, this many points away."""
    axes.annotate(text, point, offset, textcoords="offset points", color=QUIET, **alignment)  # type: ignore[arg-type]


def require_free_comparison(out: Path, *, overwrite: bool) -> None:
    """Raise DataError if writing a comparison to `out`, a page or a folder, would destroy something else."""

    def files(folder: Path) -> list[str] | None:
        return [PAGE, NUMBERS, CHANGES] if (folder / NUMBERS).is_file() else None

    is_page = out.suffix.lower() == PAGE_SUFFIX
    require_free_output(out, "comparison", None if is_page else files, overwrite=overwrite)


def write_comparison(comparison: Comparison, out: Path, progress: Progress = None) -> Path:
    """Write the page, alone if `out` ends in .html, else in a folder; return it.

    The folder has `comparison.html` and `.json`, and in `changes.jsonl` every line that changed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    page = render_comparison_page(comparison, progress)
    if out.suffix.lower() == PAGE_SUFFIX:
        write_file(out, page)
        return out
    with writing_folder(out) as folder:
        write_file(folder / PAGE, page)
        write_file(folder / NUMBERS, to_json(comparison.to_dict()))
        with writing_file(folder / CHANGES) as file:
            for difference in comparison.differences:
                systems = {"first": difference.first.name, "second": difference.second.name}
                for change in (*difference.improved, *difference.worsened):
                    file.write(json.dumps({"systems": systems, **change.to_dict()}, ensure_ascii=False) + "\n")
    return out / PAGE


def render_comparison_page(comparison: Comparison, progress: Progress = None) -> str:
    """Render readings side by side: the verdict, writer by writer, and the lines that got better and worse."""
    names = [reading.name for reading in comparison.systems]
    scores = [reading.score for reading in comparison.systems]
    lines = read_lines(reading.lines for reading in comparison.systems)
    compared = names[-1] if len(names) == 2 else counted(len(names) - 1, "reading")
    about = [("compared", f"{comparison.created_at} with dsocr {comparison.dsocr_version}"), *flat(comparison.about)]
    about += [(reading.name, note) for reading in comparison.systems for note in reading.notes]
    return render(
        __package__,
        "comparison.html.jinja",
        style="style.css",
        script="report.js",
        title=f"{compared} compared with {names[0]}",
        subtitle=f"Character error rate (CER) on {lines_by_writers([line.last for line in lines])}",
        found=comparison,
        sentence=sentence,
        describe_p=describe_p,
        scores=scores,
        changes=score_changes(scores),
        plot=writers_plot(names, comparison.groups, comparison.unit).svg() if comparison.groups else "",
        about=about,
        **line_context(chapters_of(lines, names), lines, names, comparison.images, progress),
    )


def writers_plot(names: Sequence[str], groups: Sequence[ComparedGroup], unit: str) -> Plot:
    """Plot a row per group, sorted by change, with a dot per reading; of many, only the largest changes both ways."""
    half = MOST_WRITERS // 2
    shown = groups if len(groups) <= MOST_WRITERS else [*groups[:half], *groups[-half:]]
    note = f" ({len(shown)} of {len(groups)} with the largest changes)" if len(shown) < len(groups) else ""
    label = f"CER of {counted(len(groups), unit)}{note}: {', '.join(names)}"

    def paint(axes: "Axes") -> None:
        rows = range(len(shown))
        # In percent, cut where the plot ends; not a number without any text.
        cers = np.array([[cer.rate if math.isfinite(cer.rate) else math.nan for cer in group.cers] for group in shown])
        values = 100 * np.minimum(cers, _CER_LIMIT)
        for row, (first, *_, last) in enumerate(values.tolist()):
            if not math.isnan(first + last):
                axes.plot([first, last], [row, row], color=BAR, linewidth=3, alpha=0.5, zorder=1)
        for place, name in enumerate(names):
            # A ring for the first reading, so that not only the colour tells them apart.
            face, edge = run_colour(place) if place else PAPER, run_colour(place)
            axes.scatter(values[:, place], rows, s=28, facecolor=face, edgecolor=edge, label=_short(name), zorder=2)
        for row, far in enumerate(np.nan_to_num(cers).max(axis=1)):
            if far > _CER_LIMIT:
                annotate(axes, f"{100 * far:.0f} %", (100 * _CER_LIMIT, row), (6, 0), va="center")
        axes.set_yticks(rows, [f"{_short(group.name)} ({group.lines})" for group in shown])
        axes.set(xlabel="CER, %", ylim=(len(shown) - 0.4, -0.6))
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return Plot(label, paint, (6.4, 1.0 + 0.24 * len(shown)))


def _short(name: str) -> str:
    shown = str(printable(name)).replace("\n", " ")
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 1]}…"


def error_rows(report: CalibrationReport) -> list[tuple[str, ...]]:
    """Tabulate the calibration errors of each kind of confidence, the heading first."""
    count = f"count, {report.split} split of {report.dataset}"
    rows: list[tuple[str, ...]] = [
        ("confidence of", count, "ECE uncalibrated", "ECE calibrated", "ECE of perfect confidences")
    ]
    for kind, measured in report.kinds.items():
        errors = (measured.before, measured.after, measured.by_chance)
        shown = ("" if error is None else f"{error:.4f}" for error in errors)
        rows.append((f"{kind}s", f"{measured.count:,}", *shown))
    return rows


def reliability_plot(noun: str, reliability: Reliability) -> Plot:
    """Plot the share of right characters, words or lines against their confidence."""

    def paint(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], color=QUIET, linestyle=":", label="ideal")
        kinds = (("uncalibrated", reliability.bins_before, 1), ("calibrated", reliability.bins_after, 0))
        for name, bins, place in kinds:
            confidences, shares = [tenth.confidence for tenth in bins], [tenth.accuracy for tenth in bins]
            axes.plot(confidences, shares, color=run_colour(place), marker=".", label=name)
        axes.set(xlabel=f"confidence of {noun}", ylabel="share that is right", ylim=(0, 1.02))
        axes.legend()

    return Plot(f"Reliability of {noun}", paint, (3.4, 3.0))
