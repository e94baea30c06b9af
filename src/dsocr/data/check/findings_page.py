"""Render the findings of `dsocr check` as one page, with the images they are about."""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from dsocr.data.check.findings import SEVERITIES, Example, Finding, Findings
from dsocr.data.check.sample_stats import CheckedSample
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.document import Sample, Split
from dsocr.html import BAR, Thumbnails, plot_svg, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_BINS = 36
_SHOWN = 0.995
"""The share of values that is drawn to scale; everything beyond goes into the last bar."""
_WRITERS = 100
_NAMED = 6
"""Writers whose names have room below their bars."""
_LETTERS = 30
_THUMBNAIL = (800, 160)
MAX_BYTES = 12 * 2**20
"""Of embedded images; later examples are listed without theirs."""
_FIRST = 10
"""Examples of a finding that are visible at once."""
_MAX_EXAMPLES = 1000
"""Examples of a finding on the page; JSON and CSV list all."""


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


def distributions(samples: Sequence[CheckedSample]) -> list[Chart]:
    """Chart sizes, lengths, ink, writers and letters; a value far from all others is worth a look."""
    sized = [(item, *item.size) for item in samples if item.size]
    dense = [100 * len(item.text) / item.stats.ink_width for item, _, _ in sized if item.stats]
    writers = Counter(item.sample.writer for item in samples if item.sample.writer).most_common()
    names = [name for name, _ in writers] if len(writers) <= _NAMED else []
    letters = Counter(letter for item in samples for letter in item.text)
    ranked = [("␣" if letter == " " else printable(letter), count) for letter, count in letters.most_common()]
    charts = [
        histogram([width for _, width, _ in sized], "Image width", "pixels"),
        histogram([height for _, _, height in sized], "Image height", "pixels"),
        histogram([len(item.text) for item in samples], "Text length", "characters"),
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


def render_page(findings: Findings) -> str:
    """Render findings with their examples and images, and the distributions of the samples, as one HTML page."""
    samples = {item.sample.id: item.sample for item in findings.samples}
    thumbnails = Thumbnails(_THUMBNAIL, MAX_BYTES)
    listed = list(findings)
    # The first examples of every finding before the rest of any, because room for images is limited.
    first = [_examples(finding.examples[:_FIRST], samples, thumbnails) for finding in listed]
    rest = [_examples(finding.examples[_FIRST:_MAX_EXAMPLES], samples, thumbnails) for finding in listed]
    return render(
        __package__,
        "findings.html.jinja",
        style="findings.css",
        script="findings.js",
        name=findings.dataset.folder.resolve().name if findings.dataset else "a dataset",
        counts={severity: sum(finding.count for finding in findings.of(severity)) for severity in SEVERITIES},
        splits=list(_splits(findings.samples)),
        all_splits=list(Split),
        findings=listed,
        examples=list(zip(listed, first, rest, strict=True)),
        anchor=_anchor,
        marked=_marked,
        charts=distributions(findings.samples),
        svg=lambda chart: plot_svg(chart, chart.title, size=(4.4, 1.9)),
    )


def render_table(findings: Findings) -> str:
    """Render findings as an HTML table for a notebook."""
    return render(__package__, "findings_table.html.jinja", findings=list(findings), summary=findings.summary())


def _splits(samples: Iterable[CheckedSample]) -> Iterator[tuple[str, list[int]]]:
    """Count samples, known writers, known pages and characters of each split."""
    parts: dict[str, list[Sample]] = {}
    for item in samples:
        parts.setdefault(item.sample.split, []).append(item.sample)
    for split, own in parts.items():
        writers, pages = ({getattr(sample, name) for sample in own} - {None} for name in ("writer", "page"))
        yield split, [len(own), len(writers), len(pages), sum(len(sample.text) for sample in own)]


def _anchor(finding: Finding) -> str:
    """Fragment identifier of a finding; several findings of one code differ by their message."""
    return f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}"


def _examples(
    examples: Iterable[Example], samples: dict[str, Sample], thumbnails: Thumbnails
) -> list[tuple[Example, list[tuple[Markup, str]]]]:
    """Each example with the images and texts of its sample and of the one it was compared with."""
    return [
        (
            example,
            [
                (Markup(thumbnails.of(samples[id_].image)), samples[id_].text)  # noqa: S704 made by image_tag
                for id_ in (example.sample, example.other)
                if id_ in samples
            ],
        )
        for example in examples
    ]


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown as their code point."""
    invisible = set(find_invisible(text))
    return [(sign in invisible, printable(sign) if sign in invisible else sign) for sign in text]
