"""The lines of a report: each with its picture, what stands there, and what every reading made of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from dsocr.document import PackedImage
from dsocr.evaluation.report.charts import kind_of
from dsocr.evaluation.report.choosing import Chapter, ReadLine
from dsocr.evaluation.report.marks import differences, shortened, visible
from dsocr.evaluation.scorecard import FAILED
from dsocr.evaluation.scores import LineScore
from dsocr.images import Thumbnails

MOST_PICTURES = 12 * 2**20
"""Bytes of all pictures together."""
MOST_TEXT = 5 * 2**20
"""Characters of HTML that lines without pictures may take."""

_THUMBNAIL = (960, 320)
_HANDS = {"known": "known hand", "new": "new hand"}

LEGEND = (
    '<p class="quiet">In each reading, <del>struck out</del> is what is written and was not read, and '
    "<ins>underlined</ins> what was read and is not written.</p>"
)

Images = Mapping[str, Path | PackedImage]
"""The image of each line, by its id."""


def render_chapters(
    chapters: Sequence[Chapter],
    lines: Sequence[ReadLine],
    names: Sequence[str],
    images: Images,
    tell: Callable[[int, int], None] | None = None,
) -> str:
    """All lines as HTML: the chapters with pictures, then the lines of no chapter, as text and as far as there is room.

    A line that stands in several chapters is shown in the first one; the others lead to it.
    """
    thumbnails = Thumbnails(_THUMBNAIL, MOST_PICTURES)
    kinds: dict[int, list[str]] = {}
    for chapter in chapters:
        for line in chapter.lines:
            kinds.setdefault(line.number, []).append(chapter.key)
    total, shown = len(kinds), set[int]()
    parts = [_filter(chapters, lines)]
    for chapter in chapters:
        articles = []
        for line in chapter.lines:
            if line.number in shown:
                articles.append(_pointer(line, names))
                continue
            shown.add(line.number)
            articles.append(_article(line, names, kinds[line.number], _picture(line, images, thumbnails)))
            if tell is not None:
                tell(len(shown), total)
        title = f'<h3 id="{chapter.key}">{escape(chapter.title)}</h3><p class="quiet">{escape(chapter.told)}</p>'
        parts.append(f'<section class="chapter">{title}{"".join(articles)}</section>')
    rest = [line for line in lines if line.number not in shown]
    return "\n".join([*parts, _rest(rest, names)])


def _filter(chapters: Iterable[Chapter], lines: Iterable[ReadLine]) -> str:
    """What the script filters by; hidden where no script runs."""
    kinds = "".join(f'<option value="{chapter.key}">{escape(chapter.title)}</option>' for chapter in chapters)
    writers = sorted({line.last.writer for line in lines if line.last.writer})
    # The value is what the script compares, to the last space, which a browser would take from the text.
    names = "".join(f'<option value="{escape(writer)}">{visible(writer)}</option>' for writer in writers)
    by_writer = f'<label>of <select name="writer"><option value="">all writers</option>{names}</select></label>'
    return (
        '<form id="filter" hidden>'
        f'<label>show <select name="kind"><option value="">all lines</option>{kinds}</select></label>'
        f"{by_writer if len(writers) > 1 else ''}"
        '<label>with <input type="search" name="words" placeholder="these words" size="14"></label>'
        '<output class="quiet"></output>'
        '<span class="quiet keys"><kbd>j</kbd> <kbd>k</kbd> next and previous line, <kbd>/</kbd> search</span></form>'
    )


def _article(line: ReadLine, names: Sequence[str], kinds: Sequence[str], picture: str) -> str:
    last = line.last
    facts = [visible(fact) for fact in (last.writer, last.page if last.page != last.id else None) if fact]
    facts += [_HANDS[last.hand]] if last.hand in _HANDS else []
    badges = "".join(f'<span class="badge">{FAILED[failure]}</span>' for failure in line.failures)
    head = (
        f'<header><a class="number" href="#l{line.number}">{line.number}</a> <span>{", ".join(facts)}</span>{badges}'
        f"<code>{visible(last.id)}</code></header>"
    )
    rows = [_row("written", "", f"{shortened(last.reference)}", "")]
    rows += [
        _row(name, kind_of(place), differences(score.reference, score.prediction), _errors(score))
        for place, (name, score) in enumerate(zip(names, line.scores, strict=True))
    ]
    return (
        f'<article class="line" id="l{line.number}" data-kinds="{" ".join(kinds)}" '
        f'data-writer="{escape(last.writer or "")}">{head}{picture}<dl>{"".join(rows)}</dl></article>'
    )


def _row(name: str, kind: str, text: str, errors: str) -> str:
    own = f' class="{kind}"' if kind else ""
    return (
        f'<dt{own}>{escape(name)}</dt><dd><span class="text" dir="auto">{text}</span>'
        f'<span class="errors">{errors}</span></dd>'
    )


def _errors(score: LineScore) -> str:
    if score.exact:
        return "right"
    return f"{score.cer.errors:,} {'error' if score.cer.errors == 1 else 'errors'} in {score.cer.length:,}"


def _picture(line: ReadLine, images: Images, thumbnails: Thumbnails) -> str:
    path = images.get(line.last.id)
    if path is None:
        return ""
    return thumbnails.of(path, alt=f"Line {line.number} as it was written", missing=_GONE)


_GONE = '<p class="quiet">its image cannot be opened</p>'


def _pointer(line: ReadLine, names: Sequence[str]) -> str:
    errors = ", ".join(f"{name} {_errors(score)}" for name, score in zip(names, line.scores, strict=True))
    return f'<p class="pointer"><a href="#l{line.number}">Line {line.number}</a>, shown above: {escape(errors)}</p>'


def _rest(lines: Sequence[ReadLine], names: Sequence[str]) -> str:
    """The lines of no chapter, those with the most errors first, until there is no more room."""
    if not lines:
        return ""
    articles, taken = [], 0
    for line in sorted(lines, key=lambda line: (-line.last.cer.errors, line.number)):
        articles.append(_article(line, names, ["rest"], ""))
        taken += len(articles[-1])
        if taken > MOST_TEXT:
            break
    left = len(lines) - len(articles)
    more = f" {left:,} more, with no more errors than these, stand in lines.jsonl." if left else ""
    title = f"All other lines: {len(articles):,} as text"
    return (
        f'<section class="chapter"><details><summary>{title}</summary>'
        f'<p class="quiet">Without pictures, most errors first.{more}</p>{"".join(articles)}</details></section>'
    )
