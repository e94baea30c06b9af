"""The findings of `dsocr check` as one page to look at: what is wrong, what to do, and the images it is wrong with.

The page is one file with everything in it: no script, nothing fetched, every text escaped.
"""

import base64
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from dsocr.data.checking.findings import EXAMPLES, SEVERITIES, Finding
from dsocr.data.dataset import Dataset
from dsocr.data.images import open_image
from dsocr.errors import DataError
from dsocr.samples import PackedImage, Sample, Split

_THUMBNAIL = (480, 120)
_BARS = 24
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem; text-align: right }
th:first-child { text-align: left }
section { border-left: .4rem solid #999; padding: .1rem 1rem; margin: 1.5rem 0; background: #f7f7f7 }
section.error { border-color: #b3261e } section.warning { border-color: #c77700 } section.note { border-color: #4a6fa5 }
h2 { font-size: 1.1rem; margin: .5rem 0 } code { color: #555 } figure { margin: .8rem 0 }
img { max-width: 100%; display: block; border: 1px solid #ddd } figcaption { font-size: .9rem; overflow-wrap: anywhere }
.bars { display: flex; align-items: flex-end; height: 8rem; gap: 2px; border-bottom: 1px solid #999 }
.bars div { flex: 1; background: #4a6fa5 } .scale { display: flex; justify-content: space-between; font-size: .9rem }
"""


def write_page(path: Path, dataset: Dataset, findings: Sequence[Finding]) -> None:
    """Writes the page; an error says where it cannot be written."""
    try:
        path.write_text(render_page(dataset, findings), encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"the page cannot be written: {error.strerror}", where=path) from error


def render_page(dataset: Dataset, findings: Sequence[Finding]) -> str:
    """The whole page as HTML."""
    samples = {sample.id: sample for split in Split for sample in dataset.samples(split)}
    name = escape(dataset.folder.resolve().name)
    body = "\n".join(
        [
            f"<h1>Check of {name}</h1>",
            f"<p>{_counts(findings)}</p>",
            _splits(samples.values()),
            _histogram([len(sample.text) for sample in samples.values()]),
            *(_finding(finding, samples) for finding in findings),
        ]
    )
    head = f'<meta charset="utf-8"><title>Check of {name}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _counts(findings: Iterable[Finding]) -> str:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.severity] += finding.count
    return ", ".join(f"{counts[kind]} {kind}s" for kind in SEVERITIES) if counts else "Nothing to complain about."


def _splits(samples: Iterable[Sample]) -> str:
    """Samples, known writers and characters of each split."""
    parts: dict[str, list[Sample]] = {}
    for sample in samples:
        parts.setdefault(sample.split, []).append(sample)
    rows = "".join(
        f"<tr><th>{split}</th><td>{len(own)}</td><td>{len({sample.writer for sample in own} - {None})}</td>"
        f"<td>{sum(len(sample.text) for sample in own)}</td></tr>"
        for split, own in parts.items()
    )
    return f"<table><tr><th>split</th><th>samples</th><th>writers</th><th>characters</th></tr>{rows}</table>"


def _histogram(lengths: Sequence[int]) -> str:
    """How many texts are how long, as bars; the last one holds the longest."""
    if not lengths:
        return ""
    step = max(lengths) // _BARS + 1
    counts = Counter(length // step for length in lengths)
    most = max(counts.values())
    bars = "".join(
        f'<div style="height: {100 * counts[bar] / most:.1f}%" title="{bar * step}-{(bar + 1) * step - 1} characters: '
        f'{counts[bar]} texts"></div>'
        for bar in range(max(counts) + 1)
    )
    scale = f'<div class="scale"><span>0</span><span>{(max(counts) + 1) * step - 1}</span></div>'
    return f'<h2>Characters in a text</h2><div class="bars">{bars}</div>{scale}'


def _finding(finding: Finding, samples: dict[str, Sample]) -> str:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    title = f"{finding.severity}: {finding.message}{times}"
    figures = "".join(_figures(finding, samples))
    return (
        f'<section class="{finding.severity}"><h2>{escape(title)} <code>{escape(finding.code)}</code></h2>'
        f"<p>{escape(finding.fix)}</p>{figures}</section>"
    )


def _figures(finding: Finding, samples: dict[str, Sample]) -> Iterator[str]:
    for example, sample_id in list(zip(finding.examples, finding.samples, strict=True))[:EXAMPLES]:
        sample = samples.get(sample_id)
        picture = _thumbnail(sample.image) if sample else ""
        text = f"<br>{escape(sample.text)}" if sample else ""
        yield f"<figure>{picture}<figcaption><code>{escape(example)}</code>{text}</figcaption></figure>"


def _thumbnail(path: Path | PackedImage) -> str:
    """The image made small, inside the page; nothing where it cannot be opened, which a finding tells anyway."""
    try:
        image = open_image(path)
    except DataError:
        return ""
    image.thumbnail(_THUMBNAIL)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode("ascii")}">'
