"""A comparison as plain text for a terminal."""

from collections.abc import Iterator, Sequence

from dsocr.evaluation.comparison import Comparison, Difference, Group, LineChange, ReadingScore
from dsocr.evaluation.scores import FAILURES
from dsocr.evaluation.table import FAILED, aligned, shown

_GROUPS, _LINES = 20, 5


def render_comparison(found: Comparison) -> str:
    """The verdicts, the readings beside each other, the writers, and the lines that changed most."""
    blocks = ["\n".join(_told(difference) for difference in found.differences)]
    if found.cautions:
        blocks.append("\n".join(f"note: {caution}" for caution in found.cautions))
    names = [reading.name for reading in found.readings]
    blocks.append(aligned([("", *names), *_rows(found.readings)]))
    if found.groups:
        blocks.append(_groups(found, names))
    for difference in found.differences:
        blocks += [text for text in (_lines("better", difference), _lines("worse", difference)) if text]
    remarks = [f"{reading.name}: {'; '.join(reading.remarks)}" for reading in found.readings if reading.remarks]
    return "\n\n".join([*blocks, "\n".join(remarks)]).rstrip() + "\n"


def _told(difference: Difference) -> str:
    """The sentence, and how often chance would do as much."""
    return "\n  ".join([difference.sentence, *difference.chances])


def _rows(readings: Sequence[ReadingScore]) -> Iterator[tuple[str, ...]]:
    for title, field in (("CER", "cer"), ("WER", "wer")):
        yield title, *(f"{getattr(reading.score, field).rate:.2%}" for reading in readings)
        yield "  95 % CI", *(_range(reading, field) for reading in readings)
    yield "lines", *(str(reading.score.lines) for reading in readings)
    yield "exact", *(str(reading.score.exact) for reading in readings)
    for failure in FAILURES:
        yield FAILED[failure], *(str(reading.score.failures[failure]) for reading in readings)


def _range(reading: ReadingScore, field: str) -> str:
    interval = reading.score.intervals[field]
    if interval.low is None or interval.high is None:
        return "cannot be told"
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def _groups(found: Comparison, names: Sequence[str]) -> str:
    groups = found.groups
    rows = [(found.unit, "lines", *names), *map(_group, groups[: _GROUPS // 2])]
    if len(groups) > _GROUPS:
        rows.append((f"... {len(groups) - _GROUPS} more ...", "", *("" for _ in names)))
    rest = groups[max(_GROUPS // 2, len(groups) - _GROUPS // 2) :]
    return aligned([*rows, *map(_group, rest)])


def _group(group: Group) -> tuple[str, ...]:
    cers = (f"{cer.rate:.1%}" if cer.length else "no text" for cer in group.cers)
    return shown(group.name, 40), str(group.lines), *cers


def _lines(kind: str, difference: Difference) -> str:
    changes = difference.better if kind == "better" else difference.worse
    if not changes:
        return ""
    count = f"{len(changes)} line{'' if len(changes) == 1 else 's'}"
    title = f"Read {kind} by {difference.second.name} than by {difference.first.name}: {count}"
    return "\n".join([title, *(_line(change, difference) for change in changes[:_LINES])])


def _line(change: LineChange, difference: Difference) -> str:
    names = ("reference", difference.first.name, difference.second.name)
    texts = (change.first.reference, change.first.prediction, change.second.prediction)
    width = max(map(len, names))
    errors = f"{change.first.cer.errors} -> {change.second.cer.errors} errors"
    told = (f"    {name:<{width}}  {shown(text)}" for name, text in zip(names, texts, strict=True))
    return "\n".join([f"  {change.first.id}: {errors}", *told])
