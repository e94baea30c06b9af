"""A scorecard as plain text for a terminal."""

import math
import textwrap
from collections.abc import Iterable, Sequence

from dsocr.evaluation.intervals import Interval
from dsocr.evaluation.metrics import ErrorRate
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import Hand, LineScore, Score
from dsocr.text import comparable

HANDS: dict[Hand, str] = {
    "known": "new lines of known hands",
    "new": "new hands",
    "unknown": "unknown hands",
}

FAILED = {
    "empty": "nothing was read",
    "truncated": "cut off before its end",
    "looping": "caught in a loop",
    "over_long": "far too long",
    "wrong_script": "in another script",
}

PROFILES = {
    "without_case": "without case",
    "without_punctuation": "without punctuation",
    "yo_as_e": "ё as е",
    "pre_reform": "old spelling as new",
    "digits_only": "numbers alone",
    "without_struck": "without struck-out text",
}

WIDTH = 88
Row = tuple[str, str, str]


def render_table(card: Scorecard) -> str:
    """Base beside adapter, then the lines that cost most; ends with a newline."""
    blocks = [_scores(card), *(_wrapped(sentence) for sentence in (*card.remarks, *card.certainty, card.meaning))]
    if card.worst:
        blocks.append("\n".join(["Lines with the most errors", *map(_line, card.worst[:5])]))
    return "\n\n".join(blocks) + "\n"


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH)


def _scores(card: Scorecard) -> str:
    pair = (card.base, card.adapter)
    alone = next(iter(card.by_hands), None) if len(card.by_hands) == 1 else None
    title = f"{card.split} split" + (f", {HANDS[alone]}" if alone else "")
    rows = [(title, "base", "adapter"), *_rows("", pair)]
    groups = {} if alone else card.by_hands  # a single group would repeat the whole
    for hand, scores in groups.items():
        rows += [("", "", ""), (HANDS[hand], "", ""), *_rows("  ", (scores.base, scores.adapter))]
    rows += [("", "", ""), ("CER by other counts", "", ""), *_other_counts(card)]
    return aligned(rows)


def _rows(indent: str, pair: Sequence[Score | None]) -> Iterable[Row]:
    base, adapter = (_column(score) if score else {} for score in pair)
    for name in dict.fromkeys([*base, *adapter]):
        none = "-" if name.strip().endswith("interval") else "0"
        yield f"{indent}{name}", base.get(name, none if base else "-"), adapter.get(name, none if adapter else "-")


def _column(score: Score) -> dict[str, str]:
    seconds = {} if score.seconds is None else {"seconds": f"{score.seconds:.1f}"}
    return {
        "CER": _percent(score.cer),
        **_interval(score.intervals.get("cer")),
        "WER": _percent(score.wer),
        "lines": str(score.lines),
        "exact": str(score.exact),
        "empty": str(score.empty),
        "runaway": str(score.runaway),
        **{name: str(score.failures[name]) for name in ("looping", "wrong_script") if score.failures[name]},
        **seconds,
    }


def _interval(interval: Interval | None) -> dict[str, str]:
    if interval is None or interval.low is None or interval.high is None:
        return {}
    return {f"  {interval.level:.0%} interval": f"{interval.low:.1%}-{interval.high:.1%}"}


def _other_counts(card: Scorecard) -> Iterable[Row]:
    """The CER under each profile that has text, and the macro mean over lines."""
    raw = card.profiles.get("raw", {})
    for name, title in PROFILES.items():
        both = card.profiles.get(name, {})
        changed = any(rates.cer != raw[model].cer for model, rates in both.items())
        if changed and any(rates.cer.length for rates in both.values()):
            cells = {model: _percent(rates.cer) for model, rates in both.items()}
            yield f"  {title}", cells.get("base", "-"), cells.get("adapter", "-")
    means = {model: averages.macro_over_lines.cer for model, averages in card.averages.items()}
    cells = {model: f"{mean:.2%}" for model, mean in means.items() if mean is not None}
    yield "  macro: mean over lines", cells.get("base", "-"), cells.get("adapter", "-")


def _percent(errors: ErrorRate) -> str:
    return f"{errors.rate:.2%}" if math.isfinite(errors.rate) else "no text"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = "<" + ">" * (len(widths) - 1)
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    )


def _line(line: LineScore) -> str:
    facts = [f"{line.cer.errors} {'error' if line.cer.errors == 1 else 'errors'} in {line.cer.length} characters"]
    facts += [said for failure, said in FAILED.items() if getattr(line, failure)]
    texts = [f"    reference   {shown(line.reference)}", f"    prediction  {shown(line.prediction)}"]
    return "\n".join([f"  {line.id}: {', '.join(facts)}", *texts])


def shown(text: str, longest: int = 160) -> str:
    """On one line, cut where a loop fills pages, and without the control characters that could drive a terminal."""
    text = "".join(character if character.isprintable() else "?" for character in comparable(text))
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
