"""Render the findings of `dsocr check` as one page, with their images."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from dsocr.data.check.findings import SEVERITIES, CheckedSample, Example, Finding
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import Dataset
from dsocr.document import Sample, Split
from dsocr.html import BAR, Plot, Thumbnails, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHART = (4.4, 1.9)
"""Inches."""
_MOST_BINS = 36
_SHOWN = 0.995
"""Share of values drawn to scale; the last bar holds all larger ones."""
_THUMBNAIL = (800, 160)
MAX_BYTES = 12 * 2**20
"""Bytes of embedded images; later examples are listed without theirs."""
_FIRST = 10
"""Examples of a finding that are visible at once."""
_MAX_EXAMPLES = 1000
"""Examples of a finding on the page; JSON and CSV list all."""


def histogram(values: Sequence[float], title: str, unit: str) -> Plot | None:
    """Chart values in bins of a round width; the last bin holds everything larger. None without any value."""
    from matplotlib.ticker import MaxNLocator

    if not values:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(_SHOWN * len(ordered)))]
    is_whole = bool((ordered % 1 == 0).all())
    edges = MaxNLocator(_MOST_BINS, steps=[1, 2, 5, 10], integer=is_whole).tick_values(low, high)

    def paint(axes: "Axes") -> None:
        axes.grid(visible=False, axis="x")
        axes.hist(np.minimum(ordered, edges[-1]), list(edges), color=BAR, edgecolor="none")
        axes.set_xlabel(unit)
        axes.margins(x=0.01)

    return Plot(title, paint, _CHART, f"median {ordered[len(ordered) // 2]:.4g}, largest {ordered[-1]:.4g}")


def render_page(findings: Sequence[Finding], samples: Sequence[CheckedSample], dataset: Dataset | None = None) -> str:
    """Render findings with their examples and images, and the distributions of the samples, as one HTML page."""
    by_id = {item.sample.id: item.sample for item in samples}
    splits: dict[str, list[Sample]] = defaultdict(list)
    for item in samples:
        splits[item.sample.split].append(item.sample)
    thumbnails = Thumbnails(_THUMBNAIL, MAX_BYTES)

    def illustrated(examples: Iterable[Example]) -> list[tuple[Example, list[tuple[Markup, str]]]]:
        """Pair examples with their images and the text below each."""
        pairs = ((example, (example.sample, example.other)) for example in examples)
        return [
            (example, [(thumbnails.of(by_id[id_].image), by_id[id_].text) for id_ in ids if id_ in by_id])
            for example, ids in pairs
        ]

    # The first examples of every finding before the rest of any, because room for images is limited.
    first = [illustrated(finding.examples[:_FIRST]) for finding in findings]
    rest = [illustrated(finding.examples[_FIRST:_MAX_EXAMPLES]) for finding in findings]
    sized = [(item, *item.size) for item in samples if item.size]
    # A value far from all others is worth a look.
    charts = [
        histogram([width for _, width, _ in sized], "Image width", "pixels"),
        histogram([height for _, _, height in sized], "Image height", "pixels"),
        histogram([len(item.text) for item in samples], "Text length", "characters"),
        histogram(
            [100 * len(item.text) / item.stats.ink_width for item in samples if item.stats],
            "Characters per 100 pixels of ink",
            "characters",
        ),
    ]
    return render(
        __package__,
        "findings.html.jinja",
        style="findings.css",
        script="findings.js",
        name=dataset.folder.resolve().name if dataset else "a dataset",
        severities=SEVERITIES,
        splits=splits,
        all_splits=list(Split),
        findings=findings,
        examples=list(zip(findings, first, rest, strict=True)),
        # Several findings of one code differ by their message.
        anchor=lambda finding: f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}",
        marked=_marked,
        charts=[chart for chart in charts if chart],
    )


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown as their code point."""
    invisible = set(find_invisible(text))
    return [(sign in invisible, printable(sign) if sign in invisible else sign) for sign in text]
