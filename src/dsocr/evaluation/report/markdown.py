"""The report of a run as Markdown, for a page of a repository or an issue: no pictures, the differences as marks."""

import re
from collections.abc import Iterator, Sequence

from dsocr.evaluation.metrics import marked_differences
from dsocr.evaluation.report.charts import Group, Rate
from dsocr.evaluation.report.choosing import ReadLine
from dsocr.evaluation.report.facts import commands, facts, settings
from dsocr.evaluation.report.groups import groups_of, rate_of
from dsocr.evaluation.report.material import Material
from dsocr.evaluation.report.verdict import sentences_of, title_of, what_of
from dsocr.evaluation.scorecard import FAILED
from dsocr.evaluation.scores import FAILURES

_MOST_LINES = 10
_LONGEST = 200
_CHAPTERS = ("worst", "failures")


def render_markdown(material: Material) -> str:
    """The whole report; every text that comes from a dataset or a model stands in a code span."""
    return "\n".join(_blocks(material)) + "\n"


def _blocks(material: Material) -> Iterator[str]:
    names = list(material.readings)
    yield f"# {_plain(title_of(material))}\n\n{_plain(what_of(material))}.\n"
    yield "".join(f"{_plain(sentence)}\n\n" for sentence in sentences_of(material))
    yield from _table(["", *names], _scores(material))
    yield "".join(f"\n> {_plain(warning)}\n" for warning in material.warnings)
    if len(writers := groups_of(material.card.groups.get("writer"), "writer", names)) > 1:
        yield "## Writers\n"
        yield from _table(["writer", "lines", *names], map(_group, writers))
        yield ""
    for aside in material.asides:
        yield f"## {aside.title}\n\n{_plain(aside.sentence)}\n"
        yield from _table(aside.head, ([code(row[0]), *map(_plain, row[1:])] for row in aside.rows))
        yield ""
    for chapter in material.chapters:
        if chapter.key in _CHAPTERS:
            yield f"## {chapter.title}\n\n`[-not read-]` `{{+read, not written+}}`\n"
            yield from (_line(line, names) for line in chapter.lines[:_MOST_LINES])
            yield ""
    yield "## Provenance\n"
    yield from _table(["", ""], ([_plain(name), code(value)] for name, value in _all_facts(material)))
    yield "\n## How to reproduce\n"
    yield from (f"    {command}" for command in commands(material))


def _all_facts(material: Material) -> Iterator[tuple[str, str]]:
    yield from facts(material)
    yield from settings(material)


def _scores(material: Material) -> Iterator[list[str]]:
    scores = [score for score in (material.card.base, material.card.adapter) if score is not None]
    yield ["CER", *(_with_interval(rate_of(score)) for score in scores)]
    yield ["WER", *(Rate.of(score.wer).told(2) for score in scores)]
    yield ["lines without an error", *(f"{score.exact:,} of {score.lines:,}" for score in scores)]
    for failure in FAILURES:
        yield [FAILED[failure], *(f"{score.failures[failure]:,}" for score in scores)]


def _with_interval(rate: Rate) -> str:
    return f"**{rate.told(2)}** ({rate.doubt})" if rate.interval else f"**{rate.told(2)}**"


def _group(group: Group) -> list[str]:
    return [code(group.name), f"{group.lines:,}", *(rate.told() if rate else "" for rate in group.rates)]


def _line(line: ReadLine, names: Sequence[str]) -> str:
    score = line.last
    failed = "".join(f", {FAILED[failure]}" for failure in line.failures)
    marked = code(marked_differences(score.reference, score.prediction))
    return f"- {code(score.id)}: {score.cer.errors:,} of {score.cer.length:,} by {names[-1]}{failed}  \n  {marked}"


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_plain, head))} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)  # a bar ends a cell even inside a code span
        yield f"| {' | '.join(cells)} |"


def code(text: str) -> str:
    """A text as a code span, in which nothing is markup: on one line, cut where it is long."""
    text = "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)"
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}"


def _plain(text: str) -> str:
    """A text of ours as Markdown would not change it."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>#" else sign for sign in text)
