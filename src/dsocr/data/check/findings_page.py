"""Render the findings of `dsocr check` as one page, with the images they are about."""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from dsocr.data.check import Survey
from dsocr.data.check.findings import SEVERITIES, Checked, Finding
from dsocr.data.check.text_checks import invisible, shown
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.errors import DataError
from dsocr.html import BAR, plot_svg, render
from dsocr.images import Thumbnails

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_BINS = 36
_SHOWN = 0.995
"""The share of values that is drawn to scale; everything beyond goes into the last bar."""
_WRITERS = 100
_NAMED = 6
"""Writers whose names have room below their bars."""
_LETTERS = 30


@dataclass(frozen=True, slots=True)
class Chart:
    """Counts as bars: of numbers between `edges`, one more than there are bars, or of named things."""

    title: str
    note: str
    counts: Sequence[int]
    names: Sequence[str] = ()
    edges: Sequence[float] = ()
    unit: str = ""
    logarithmic: bool = False

    def __call__(self, axes: "Axes") -> None:
        """Draw the chart."""
        axes.grid(visible=False, axis="x")
        if self.edges:
            widths = [end - start for start, end in zip(self.edges, self.edges[1:], strict=False)]
            axes.bar(self.edges[:-1], self.counts, widths, align="edge", color=BAR, edgecolor="none")
            axes.set_xlabel(self.unit)
        else:
            axes.bar(range(len(self.counts)), self.counts, 0.85, color=BAR)
            axes.set_xticks(range(len(self.names)), self.names)
            axes.tick_params("x", length=0)
        if self.logarithmic:
            axes.set_yscale("symlog", linthresh=1)
            axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.01)
        axes.set_ylim(bottom=0)


def distributions(samples: Sequence[Checked]) -> list[Chart]:
    """Chart sizes, lengths, ink, writers and letters; a value far from all others is worth a look."""
    sized = [(item, *item.size) for item in samples if item.size]
    dense = [100 * len(item.sample.text) / item.look.ink for item, _, _ in sized if item.look]
    writers = Counter(item.sample.writer for item in samples if item.sample.writer).most_common()
    names = [name for name, _ in writers] if len(writers) <= _NAMED else []
    letters: Counter[str] = Counter()
    for item in samples:
        letters.update(item.sample.text)
    ranked = [("␣" if letter == " " else shown(letter), count) for letter, count in letters.most_common()]
    charts = [
        histogram([width for _, width, _ in sized], "Image width", "pixels"),
        histogram([height for _, _, height in sized], "Image height", "pixels"),
        histogram([len(item.sample.text) for item in samples], "Text length", "characters"),
        histogram(dense, "Characters per 100 pixels of ink", "characters"),
        Chart("Samples per writer", f"{len(writers):,} writers", [count for _, count in writers[:_WRITERS]], names),
        _letters("Most frequent characters", f"of {len(ranked):,}, logarithmic", ranked[:_LETTERS]),
        _letters("Rarest characters", "rarest first, logarithmic", ranked[: -_LETTERS - 1 : -1]),
    ]
    return [chart for chart in charts if chart and chart.counts]


def histogram(values: Sequence[float], title: str, unit: str) -> Chart | None:
    """Count values in bins of a round width; the last bin holds everything larger. None without any value."""
    if not values:
        return None
    ordered = sorted(values)
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(_SHOWN * len(ordered)))]
    step = _round_step((high - low) / _MOST_BINS, whole=all(float(value).is_integer() for value in ordered))
    start = math.floor(low / step)
    bins = int(high / step) - start + 1
    counts = Counter(min(int(value / step) - start, bins - 1) for value in ordered)
    note = f"median {statistics.median_high(ordered):.4g}, largest {ordered[-1]:.4g}"
    edges = [(start + place) * step for place in range(bins + 1)]
    return Chart(title, note, [counts[place] for place in range(bins)], edges=edges, unit=unit)


def _letters(title: str, note: str, counts: Sequence[tuple[str, int]]) -> Chart:
    return Chart(title, note, [count for _, count in counts], [name for name, _ in counts], logarithmic=True)


def _round_step(step: float, *, whole: bool) -> float:
    """Round a step up to 1, 2 or 5 times a power of ten; to at least 1 for whole numbers."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    rounded = next(times * power for times in (1, 2, 5, 10) if times * power >= step * 0.999)
    return max(1.0, rounded) if whole else rounded


_THUMBNAIL = (800, 160)
MOST_BYTES = 12 * 2**20
"""Of embedded images; later examples are listed without theirs."""


def write_page(path: Path, dataset: Dataset, survey: Survey) -> None:
    """Write the page; raises DataError where that is impossible."""
    try:
        path.write_text(render_page(dataset, survey), encoding="utf-8", newline="\n")
    except OSError as error:
        message = f"The page cannot be written: {error.strerror}"
        raise DataError(message, where=path) from error


def render_page(dataset: Dataset, survey: Survey) -> str:
    """Render the whole page."""
    samples = {item.sample.id: item.sample for item in survey.samples}
    pictures = Thumbnails(_THUMBNAIL, MOST_BYTES)
    counts: Counter[str] = Counter()
    for finding in survey.findings:
        counts[finding.severity] += finding.count
    return render(
        __package__,
        "findings.html.jinja",
        style="findings.css",
        script="findings.js",
        name=dataset.folder.resolve().name,
        counts={kind: counts[kind] for kind in SEVERITIES},
        splits=list(_splits(survey.samples)),
        all_splits=list(Split),
        findings=survey.findings,
        anchor=_anchor,
        examples=lambda finding: _examples(finding, samples, pictures),
        marked=_marked,
        charts=distributions(survey.samples),
        svg=lambda chart: plot_svg(chart, chart.title, size=(4.4, 1.9)),
    )


def _splits(samples: Iterable[Checked]) -> Iterator[tuple[str, list[int]]]:
    """Count samples, known writers, known pages and characters of each split."""
    parts: dict[str, list[Sample]] = {}
    for item in samples:
        parts.setdefault(item.sample.split, []).append(item.sample)
    for split, own in parts.items():
        writers, pages = ({getattr(sample, name) for sample in own} - {None} for name in ("writer", "page"))
        yield split, [len(own), len(writers), len(pages), sum(len(sample.text) for sample in own)]


def _anchor(finding: Finding) -> str:
    """Name the place of a finding in the page; several findings of one code differ by their message."""
    return f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}"


def _examples(finding: Finding, samples: dict[str, Sample], pictures: Thumbnails) -> Iterator[dict[str, Any]]:
    for example, own, other in zip(finding.examples, finding.samples, finding.others, strict=True):
        where, _, detail = example.partition(": ")
        yield {
            "pairs": [
                (Markup(pictures.of(samples[id_].image)), samples[id_].text)  # noqa: S704 made by image_tag
                for id_ in (own, other)
                if id_ in samples
            ],
            "where": where,
            "detail": detail,
            "split": samples[own].split if own in samples else where.partition("/")[0],
        }


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown by their number."""
    unseen = set(invisible(text))
    return [(sign in unseen, shown(sign) if sign in unseen else sign) for sign in text]
