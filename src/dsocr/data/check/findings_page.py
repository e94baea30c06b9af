"""Render the findings of `dsocr check` as one page, with their images."""

import hashlib
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw

from dsocr.data.check.findings import SEVERITIES, CheckedSample, Example, Finding
from dsocr.data.check.text_checks import find_invisible, printable
from dsocr.data.dataset import Dataset
from dsocr.data.sources import open_source
from dsocr.document import Page, Sample, Split
from dsocr.errors import DataError
from dsocr.formats import detect_format
from dsocr.html import BAR, Plot, Thumbnails, render
from dsocr.images import MAX_PAGE_PIXELS, open_image, scale_outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHART = (4.4, 1.9)
"""Inches."""
_MOST_BINS = 36
_SHOWN = 0.995
"""Share of values drawn to scale; the last bar holds all larger ones."""
_WRITERS = 100
_NAMED = 6
"""With more writers, names do not fit below their bars."""
_LETTERS = 30
_THUMBNAIL = (800, 160)
MAX_BYTES = 12 * 2**20
"""Bytes of embedded images; later examples are listed without theirs."""
_FIRST = 10
"""Examples of a finding that are visible at once."""
_MAX_EXAMPLES = 1000
"""Examples of a finding on the page; JSON and CSV list all."""
_LINE_HEIGHTS = 3
"""Line heights of the page shown above and below a line."""
_PAGE_WIDTH = 900
"""Width in pixels of the page as shown."""
_FRAME = (214, 39, 40)


def distributions(samples: Sequence[CheckedSample]) -> list[Plot]:
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


def bar_chart(counts: Sequence[tuple[str, int]], title: str, note: str, *, is_log: bool = False) -> Plot | None:
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

    return Plot(title, paint, _CHART, note) if counts else None


class Surroundings:
    """Draws lines on their pages; `pages` has each line's page and number there, by its place in the source."""

    def __init__(self, pages: Mapping[str, tuple[Page, int]]) -> None:
        self._pages = pages
        self._open = lru_cache(1)(open_image)  # lines of a page mostly follow one another

    def of(self, source: str | None) -> Image.Image | None:
        """Return the part of the page around a line, which is framed; None if the source has no such line."""
        page, number = self._pages.get(source or "", (None, 0))
        if page is None:
            return None
        try:
            image = self._open(page.image, max_pixels=MAX_PAGE_PIXELS)
            outline = scale_outline(page.lines[number].outline, page, image.size)
        except DataError:  # named in the findings themselves
            return None
        if outline is None:
            return None
        _, top, _, bottom = outline.box
        margin = _LINE_HEIGHTS * (bottom - top)
        above = max(top - margin, 0)
        part = image.crop((0, above, image.width, min(bottom + margin, image.height))).convert("RGB")
        scale = min(_PAGE_WIDTH / part.width, 1.0)
        part = part.resize((round(part.width * scale), max(round(part.height * scale), 1)))
        frame = [(x * scale, (y - above) * scale) for x, y in (*outline.border, outline.border[0])]
        ImageDraw.Draw(part).line(frame, fill=_FRAME, width=3)
        return part


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
                lines = enumerate(page.lines)
                pages |= {line.where: (page, at) for at, line in lines if line.outline and line.where in places}
        if places and not pages:
            message = "the source has none of the lines of the findings"
            hint = "name the folder or archive that the dataset was prepared from"
            raise DataError(message, code="source-differs", where=source, hint=hint)
        yield Surroundings(pages)


def render_page(
    findings: Iterable[Finding],
    samples: Iterable[CheckedSample],
    dataset: Dataset | None = None,
    source: Path | None = None,
) -> str:
    """Render findings with their examples and images, and the distributions of the samples, as one HTML page.

    With `source`, which the dataset was prepared from, the first examples also show the page around their line.
    """
    findings, samples = list(findings), list(samples)
    by_id = {item.sample.id: item.sample for item in samples}
    splits: dict[str, list[Sample]] = defaultdict(list)
    for item in samples:
        splits[item.sample.split].append(item.sample)
    thumbnails = Thumbnails(_THUMBNAIL, MAX_BYTES)

    def illustrated(
        examples: Iterable[Example], around: Surroundings | None = None
    ) -> list[tuple[Example, list[tuple[Markup, str]]]]:
        """Pair examples with their images and the text below each."""
        shown = []
        for example in examples:
            pair = [by_id[id_] for id_ in (example.sample, example.other) if id_ in by_id]
            images = [(thumbnails.of(sample.image), sample.text) for sample in pair]
            for sample in pair:
                if around and (part := around.of(sample.source)):
                    images.append((thumbnails.draw(part, alt="the page around the line"), ""))
            shown.append((example, images))
        return shown

    shown = [example for finding in findings for example in finding.examples[:_FIRST]]
    ids = {id_ for example in shown for id_ in (example.sample, example.other) if id_ in by_id}
    places = {place for id_ in ids if (place := by_id[id_].source)}
    source_format = dataset.card.source_format if dataset else None
    with find_surroundings(source, source_format, places) if source else nullcontext() as around:
        # The first examples of every finding before the rest of any, because room for images is limited.
        first = [illustrated(finding.examples[:_FIRST], around) for finding in findings]
        rest = [illustrated(finding.examples[_FIRST:_MAX_EXAMPLES]) for finding in findings]
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
        charts=distributions(samples),
    )


def _marked(text: str) -> Sequence[tuple[bool, str]]:
    """Split a text into characters, each with whether it is invisible; those are shown as their code point."""
    invisible = set(find_invisible(text))
    return [(sign in invisible, printable(sign) if sign in invisible else sign) for sign in text]
