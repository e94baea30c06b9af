"""The findings of `dsocr check` as one page to look at: what is wrong, what to do, and the images it is wrong with.

The page is one file with everything in it, and nothing is fetched: its policy forbids it, as it forbids every script
but our own, which only hides and shows. Every text is escaped. Without the script the page shows everything.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from dsocr.data.checking.charts import columns, histogram, letter_columns
from dsocr.data.checking.findings import SEVERITIES, Checked, Finding
from dsocr.data.checking.letters import invisible
from dsocr.data.checking.texts import shown
from dsocr.data.checks import Survey
from dsocr.data.dataset import Dataset
from dsocr.data.thumbnails import Thumbnails
from dsocr.errors import DataError
from dsocr.pages.frame import packaged, render_frame
from dsocr.samples import Sample, Split

_THUMBNAIL = (800, 160)
MOST_BYTES = 12 * 2**20
"""Of embedded images; later examples are told without theirs."""
_WRITERS = 100
_LETTERS = 36


def write_page(path: Path, dataset: Dataset, survey: Survey) -> None:
    """Writes the page; an error says where it cannot be written."""
    try:
        path.write_text(render_page(dataset, survey), encoding="utf-8", newline="\n")
    except OSError as error:
        raise DataError(f"the page cannot be written: {error.strerror}", where=path) from error


def render_page(dataset: Dataset, survey: Survey) -> str:
    """The whole page as HTML."""
    name = dataset.folder.resolve().name
    samples = {item.sample.id: item.sample for item in survey.samples}
    pictures = Thumbnails(_THUMBNAIL, MOST_BYTES)
    body = "\n".join(
        [
            f"<h1>Check of {escape(name)}</h1>",
            f'<p class="lead">{_counts(survey.findings)}</p>',
            _splits(survey.samples),
            _overview(survey.findings),
            _filter(survey.findings),
            *(_finding(finding, samples, pictures) for finding in survey.findings),
            _charts(survey.samples),
        ]
    )
    style, script = packaged("dsocr.data.checking", "page.css"), packaged("dsocr.data.checking", "page.js")
    return render_frame(f"Check of {name}", body, style=style, script=script)


def _counts(findings: Iterable[Finding]) -> str:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.severity] += finding.count
    told = (f'<span class="{kind}"><span class="kind">{_many(counts[kind], kind)}</span></span>' for kind in SEVERITIES)
    return ", ".join(told) if counts else "Nothing to complain about."


def _many(count: int, kind: str) -> str:
    return f"{count:,} {kind}" if count == 1 else f"{count:,} {kind}s"


def _splits(samples: Iterable[Checked]) -> str:
    """Samples, known writers and pages, and characters of each split."""
    parts: dict[str, list[Sample]] = {}
    for item in samples:
        parts.setdefault(item.sample.split, []).append(item.sample)
    rows = "".join(
        _row(
            split,
            len(own),
            len(_known(sample.writer for sample in own)),
            len(_known(sample.page for sample in own)),
            sum(len(sample.text) for sample in own),
        )
        for split, own in parts.items()
    )
    head = "<tr><th>split</th><th>samples</th><th>writers</th><th>pages</th><th>characters</th></tr>"
    return f'<h2>Splits</h2><div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _row(name: str, *counts: int) -> str:
    return f"<tr><th>{name}</th>{''.join(f'<td>{count:,}</td>' for count in counts)}</tr>"


def _known(names: Iterable[str | None]) -> set[str]:
    return {name for name in names if name is not None}


def _overview(findings: Sequence[Finding]) -> str:
    """All kinds of findings at a glance, each a link to its place in the page."""
    if not findings:
        return ""
    rows = "".join(map(_overview_row, findings))
    splits = "".join(f"<th>{split}</th>" for split in Split)
    head = f'<tr><th></th><th class="words">what</th>{splits}<th>all</th></tr>'
    return f'<h2>Findings</h2><div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _overview_row(finding: Finding) -> str:
    link = f'<a href="#{_anchor(finding)}">{escape(_short(finding.message))}</a> <code>{escape(finding.code)}</code>'
    counts = "".join(f"<td>{_number(finding.by_split.get(split, 0))}</td>" for split in Split)
    kind = f'<td class="kind">{finding.severity}</td>'
    return f'<tr class="{finding.severity}">{kind}<td class="words">{link}</td>{counts}<td>{finding.count:,}</td></tr>'


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _short(message: str) -> str:
    """The message without its list of counts, which stands with the finding."""
    return message.partition(": ")[0] if len(message) > 90 else message


def _anchor(finding: Finding) -> str:
    """A place in the page; several findings of one code differ by their message."""
    return f"{finding.code}-{hashlib.sha256(finding.message.encode()).hexdigest()[:6]}"


def _filter(findings: Sequence[Finding]) -> str:
    """What the script filters by; hidden where no script runs."""
    if not findings:
        return ""
    kinds = "".join(_box("kind", kind) for kind in SEVERITIES if any(finding.severity == kind for finding in findings))
    splits = "".join(_box("split", split) for split in Split)
    codes = "".join(f"<option>{escape(code)}</option>" for code in sorted({finding.code for finding in findings}))
    select = f'<label>code <select><option value="">all</option>{codes}</select></label>'
    return f'<form id="filter" hidden>{kinds}{splits}{select}<output class="quiet"></output></form>'


def _box(name: str, value: str) -> str:
    return f'<label><input type="checkbox" name="{name}" value="{value}" checked> {value}</label>'


def _finding(finding: Finding, samples: dict[str, Sample], pictures: Thumbnails) -> str:
    times = f' <span class="quiet">{finding.count:,} times</span>' if finding.count > 1 else ""
    figures = "".join(_figures(finding, samples, pictures))
    rest = finding.count - len(finding.examples)
    more = f'<p class="quiet">and {rest:,} more</p>' if rest > 0 else ""
    return (
        f'<details open class="finding {finding.severity}" id="{_anchor(finding)}" data-kind="{finding.severity}" '
        f'data-code="{escape(finding.code)}" data-splits="{escape(" ".join(finding.by_split))}">'
        f'<summary><span class="kind">{finding.severity}</span> {escape(finding.message)}{times} '
        f"<code>{escape(finding.code)}</code></summary>"
        f'<p class="fix"><b>What to do:</b> {escape(finding.fix)}</p>{figures}{more}</details>'
    )


def _figures(finding: Finding, samples: dict[str, Sample], pictures: Thumbnails) -> Iterator[str]:
    for example, own, other in zip(finding.examples, finding.samples, finding.others, strict=True):
        concerned = [samples[id_] for id_ in (own, other) if id_ in samples]
        pairs = (f'{pictures.of(sample.image)}<p class="text">{_marked(sample.text)}</p>' for sample in concerned)
        where, _, detail = example.partition(": ")
        told = f"{escape(detail)} <code>{escape(where)}</code>" if detail else f"<code>{escape(where)}</code>"
        split = escape(samples[own].split if own in samples else where.partition("/")[0])
        yield f'<figure data-split="{split}">{"".join(pairs)}<figcaption>{told}</figcaption></figure>'


def _marked(text: str) -> str:
    """The text escaped, with what nobody sees shown by its number."""
    unseen = set(invisible(text))
    return "".join(
        f"<mark>{shown(character)}</mark>" if character in unseen else escape(character) for character in text
    )


def _charts(samples: Sequence[Checked]) -> str:
    """How the samples are distributed; what stands far out is worth a look, finding or not."""
    sized = [(item, *item.size) for item in samples if item.size]
    lengths = [len(item.sample.text) for item in samples]
    dense = [100 * len(item.sample.text) / item.look.ink for item, _, _ in sized if item.look]
    writers = Counter(item.sample.writer for item in samples if item.sample.writer).most_common()
    letters: Counter[str] = Counter()
    for item in samples:
        letters.update(item.sample.text)
    frequent = [("␣" if letter == " " else shown(letter), count) for letter, count in letters.most_common()]
    drawn = [
        histogram([width for _, width, _ in sized], "Width of the images", "pixels"),
        histogram([height for _, _, height in sized], "Height of the images", "pixels"),
        histogram(lengths, "Characters in a text", "characters"),
        histogram(dense, "Characters on 100 pixels of ink", "characters"),
        columns(writers[:_WRITERS], "Samples of each writer", f"{len(writers):,} writers"),
        letter_columns(frequent[:_LETTERS], "Most frequent characters", f"of {len(frequent):,}, logarithmic"),
        letter_columns(frequent[: -_LETTERS - 1 : -1], "Rarest characters", "rarest first, logarithmic"),
    ]
    return f'<h2>Distributions</h2><div class="charts">{"".join(drawn)}</div>'
