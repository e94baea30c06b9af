"""Render the findings of `dsocr check` as one page, with the images they are about."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dsocr.data.checking.charts import distributions
from dsocr.data.checking.findings import SEVERITIES, Checked, Finding
from dsocr.data.checking.letters import invisible
from dsocr.data.checking.texts import shown
from dsocr.data.checks import Survey
from dsocr.data.dataset import Dataset
from dsocr.data.thumbnails import Thumbnails
from dsocr.errors import DataError
from dsocr.html import plot_svg, render
from dsocr.samples import Sample, Split

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
