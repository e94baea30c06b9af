"""Render the findings of `dsocr check` as one page, with the images they are about."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw

from dsocr.data.check.findings import SEVERITIES, CheckedSample, Example, Finding, Findings
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.sources import open_source
from dsocr.document import Page, Sample, Split
from dsocr.errors import DataError
from dsocr.formats import detect_format
from dsocr.html import BAR, Thumbnails, plot_svg, render
from dsocr.images import MAX_PAGE_PIXELS, open_image, scale_outline

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
_LINE_HEIGHTS = 3
"""Heights of a line of the page around it that are shown above and below it."""
_PAGE_WIDTH = 900
"""Pixels of the page's width as it is shown."""
_FRAME = (214, 39, 40)


class Chart(NamedTuple):
    """A bar chart: its title, a note, and the function that draws it."""

    title: str
    note: str
    paint: "Callable[[Axes], None]"


def distributions(samples: Sequence[CheckedSample]) -> list[Chart]:
    """Chart sizes, lengths, ink, writers and letters; a value far from all others is worth a look."""
    sized = [(item, *item.size) for item in samples if item.size]
    dense = [100 * len(item.text) / item.stats.ink_width for item, _, _ in sized if item.stats]
    writers = Counter(item.sample.writer for item in samples if item.sample.writer).most_common()
    names = [(name if len(writers) <= _NAMED else "", count) for name, count in writers[:_WRITERS]]
    letters = Counter(letter for item in samples for letter in item.text).most_common()
    ranked = [("␣" if letter == " " else printable(letter), count) for letter, count in letters]
    charts = [
        histogram([width for _, width, _ in sized], "Image width", "pixels"),
        histogram([height for _, _, height in sized], "Image height", "pixels"),
        histogram([len(item.text) for item in samples], "Text length", "characters"),
        histogram(dense, "Characters per 100 pixels of ink", "characters"),
        bar_chart(names, "Samples per writer", f"{len(writers):,} writers"),
        bar_chart(ranked[:_LETTERS], "Most frequent characters", f"of {len(ranked):,}, logarithmic", is_log=True),
        bar_chart(ranked[: -_LETTERS - 1 : -1], "Rarest characters", "rarest first, logarithmic", is_log=True),
    ]
    return [chart for chart in charts if chart]


def histogram(values: Sequence[float], title: str, unit: str) -> Chart | None:
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

    return Chart(title, f"median {ordered[len(ordered) // 2]:.4g}, largest {ordered[-1]:.4g}", paint)


def bar_chart(counts: Sequence[tuple[str, int]], title: str, note: str, *, is_log: bool = False) -> Chart | None:
    """Chart the counts of named things. None without any."""

    def paint(axes: "Axes") -> None:
        axes.grid(visible=False, axis="x")
        axes.bar(range(len(counts)), [count for _, count in counts], 0.85, color=BAR)
        axes.set_xticks(range(len(counts)), [name for name, _ in counts])
        axes.tick_params("x", length=0)
        if is_log:
            axes.set_yscale("symlog", linthresh=1)
            axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.01)
        axes.set_ylim(bottom=0)

    return Chart(title, note, paint) if counts else None


class Surroundings:
    """Draws lines on their pages; `places` says which line, by its place in the source, is where."""

    def __init__(self, pages: dict[str, tuple[Page, int]]) -> None:
        self._pages = pages
        self._opened: tuple[Path | None, Image.Image | None] = (None, None)

    def of(self, source: str | None) -> Image.Image | None:
        """Return the part of the page around a line, which is framed; None if the source has no such line."""
        page, number = self._pages.get(source or "", (None, 0))
        if page is None:
            return None
        try:
            image = self._open(page.image)
            outline = scale_outline(page.lines[number].outline, page, image.size)
        except DataError:  # named in the findings themselves
            return None
        if outline is None:
            return None
        _, top, _, bottom = outline.box
        margin = _LINE_HEIGHTS * (bottom - top)
        part = image.crop((0, max(top - margin, 0), image.width, min(bottom + margin, image.height))).convert("RGB")
        scale = min(_PAGE_WIDTH / part.width, 1.0)
        part = part.resize((round(part.width * scale), max(round(part.height * scale), 1)))
        border = outline.border
        frame = [(x * scale, (y - max(top - margin, 0)) * scale) for x, y in (*border, border[0])]
        ImageDraw.Draw(part).line(frame, fill=_FRAME, width=3)
        return part

    def _open(self, path: Path) -> Image.Image:
        """The page, which is kept for its other lines."""
        known, image = self._opened
        if image is None or known != path:
            image = open_image(path, max_pixels=MAX_PAGE_PIXELS)
            self._opened = path, image
        return image


@contextmanager
def find_surroundings(source: Path, source_format: str | None, places: Collection[str]) -> Iterator[Surroundings]:
    """Find the lines with these places in a source, for the duration of the block.

    Raises DataError if the source cannot be read, or has none of the lines.
    """
    pages: dict[str, tuple[Page, int]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="dsocr-check-") as folder,
        open_source(source, Path(folder, "unpacked")) as opened,
    ):
        for page in detect_format(opened.path, source_format, {}).read(opened.path, {}):
            if isinstance(page, Page):
                outlined = ((line.where, number) for number, line in enumerate(page.lines) if line.outline)
                pages |= {where: (page, number) for where, number in outlined if where in places}
        if places and not pages:
            message = "the source has none of the lines of the findings"
            hint = "name the folder or archive that the dataset was prepared from"
            raise DataError(message, code="source-differs", where=source, hint=hint)
        yield Surroundings(pages)


def render_page(findings: Findings, source: Path | None = None) -> str:
    """Render findings with their examples and images, and the distributions of the samples, as one HTML page.

    `source` is what the dataset was prepared from: the first examples then also show the page around their line.
    """
    if source is None:
        return _render(findings, None)
    first = {
        id_ for finding in findings for example in finding.examples[:_FIRST] for id_ in (example.sample, example.other)
    }
    places = {item.sample.source for item in findings.samples if item.sample.id in first and item.sample.source}
    source_format = findings.dataset.card.source_format if findings.dataset else None
    with find_surroundings(source, source_format, places) as surroundings:
        return _render(findings, surroundings)


def _render(findings: Findings, surroundings: Surroundings | None) -> str:
    samples = {item.sample.id: item.sample for item in findings.samples}
    thumbnails = Thumbnails(_THUMBNAIL, MAX_BYTES)
    listed = list(findings)
    # The first examples of every finding before the rest of any, because room for images is limited.
    first = [_examples(finding.examples[:_FIRST], samples, thumbnails, surroundings) for finding in listed]
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
        svg=lambda chart: plot_svg(chart.paint, chart.title, size=(4.4, 1.9)),
    )


def _splits(samples: Iterable[CheckedSample]) -> Iterator[tuple[str, list[int]]]:
    """Count samples, known writers, known pages and characters of each split."""
    parts: dict[str, list[Sample]] = {}
    for item in samples:
        parts.setdefault(item.sample.split, []).append(item.sample)
    for split, members in parts.items():
        writers, pages = ({getattr(sample, name) for sample in members} - {None} for name in ("writer", "page"))
        yield split, [len(members), len(writers), len(pages), sum(len(sample.text) for sample in members)]


def _anchor(finding: Finding) -> str:
    """Fragment identifier of a finding; several findings of one code differ by their message."""
    return f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}"


def _examples(
    examples: Iterable[Example],
    samples: dict[str, Sample],
    thumbnails: Thumbnails,
    surroundings: Surroundings | None = None,
) -> list[tuple[Example, list[tuple[Markup, str]]]]:
    """Each example with the images and texts of its sample and of the one it was compared with."""
    shown = []
    for example in examples:
        pair = [samples[id_] for id_ in (example.sample, example.other) if id_ in samples]
        images = [(Markup(thumbnails.of(sample.image)), sample.text) for sample in pair]  # noqa: S704 made by image_tag
        for sample in pair:
            if surroundings and (part := surroundings.of(sample.source)):
                images.append((thumbnails.draw(part, alt="the page around the line"), ""))
        shown.append((example, images))
    return shown


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown as their code point."""
    invisible = set(find_invisible(text))
    return [(sign in invisible, printable(sign) if sign in invisible else sign) for sign in text]
