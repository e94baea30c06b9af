"""A scorecard as plain text for a terminal."""

import math
import textwrap
from collections.abc import Iterable, Sequence

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


def render_table(card: Scorecard) -> str:
    """Base beside adapter, then the lines that cost most; ends with a newline."""
    blocks = [_scores(card), textwrap.fill(card.meaning, 88)]
    if card.worst:
        blocks.append("\n".join(["Lines with the most errors", *map(_line, card.worst)]))
    return "\n\n".join(blocks) + "\n"


def _scores(card: Scorecard) -> str:
    pair = (card.base, card.adapter)
    alone = next(iter(card.by_hands), None) if len(card.by_hands) == 1 else None
    title = f"{card.split} split" + (f", {HANDS[alone]}" if alone else "")
    rows = [(title, "base", "adapter"), *_rows("", pair)]
    groups = {} if alone else card.by_hands  # a single group would repeat the whole
    for hand, scores in groups.items():
        rows += [("", "", ""), (HANDS[hand], "", ""), *_rows("  ", (scores.base, scores.adapter))]
    return _aligned(rows)


def _rows(indent: str, pair: Sequence[Score | None]) -> Iterable[tuple[str, str, str]]:
    base, adapter = (_column(score) if score else {} for score in pair)
    for name in base | adapter:
        yield f"{indent}{name}", base.get(name, "-"), adapter.get(name, "-")


def _column(score: Score) -> dict[str, str]:
    seconds = {} if score.seconds is None else {"seconds": f"{score.seconds:.1f}"}
    return {
        "CER": _percent(score.cer),
        "WER": _percent(score.wer),
        "lines": str(score.lines),
        "exact": str(score.exact),
        "empty": str(score.empty),
        "runaway": str(score.runaway),
        **seconds,
    }


def _percent(errors: ErrorRate) -> str:
    return f"{errors.rate:.2%}" if math.isfinite(errors.rate) else "no text"


def _aligned(rows: Sequence[tuple[str, str, str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}".rstrip() for a, b, c in rows)
    return "\n".join(lines)


def _line(line: LineScore) -> str:
    facts = [f"{line.cer.errors} {'error' if line.cer.errors == 1 else 'errors'} in {line.cer.length} characters"]
    facts += [said for failure, said in FAILED.items() if getattr(line, failure)]
    texts = [f"    reference   {_shown(line.reference)}", f"    prediction  {_shown(line.prediction)}"]
    return "\n".join([f"  {line.id}: {', '.join(facts)}", *texts])


def _shown(text: str, longest: int = 160) -> str:
    """On one line, cut where a loop fills pages, and without the control characters that could drive a terminal."""
    text = "".join(character if character.isprintable() else "?" for character in comparable(text))
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"
