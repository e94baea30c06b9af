"""The result in words that need no statistics: how many letters and words are wrong, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsocr.evaluation.metrics import percentage
from dsocr.evaluation.scorecard import Scorecard
from dsocr.evaluation.scores import Score
from dsocr.html import counted

_CHECKED = 0.1


def describe_in_words(card: Scorecard, confidence: Mapping[str, Any] | None) -> list[str]:
    """Describe what the adapter (else the base) reads wrong; `confidence` is the run's confidence.json, if any."""
    return [*_describe_scores(card), *_describe_writers(card), *_describe_checking(confidence)]


def _describe_scores(card: Scorecard) -> Iterator[str]:
    score = card.scores.final
    if not score.cer.length:
        return
    if not score.cer.errors:
        yield f"All {counted(score.lines, 'line')} are read without an error."
        return
    wrong = f"{one_in(score.cer.rate, 'letter')} and {one_in(score.wer.rate, 'word')} are wrong"
    before = ""
    if card.base and card.adapter and card.base.cer.errors:
        before = f", before training {one_in(card.base.cer.rate, 'letter')} and {one_in(card.base.wer.rate, 'word')}"
    yield f"{wrong[0].upper()}{wrong[1:]}{before}."
    perfect = "line is" if score.exact == 1 else "lines are"
    yield f"{score.exact:,} of {score.lines:,} {perfect} perfect{_also_failed(score)}."


def _also_failed(score: Score) -> str:
    failed = {"not read at all": score.failures["empty"], "run away": score.runaway}
    return "".join(f", {count:,} {'is' if count == 1 else 'are'} {what}" for what, count in failed.items() if count)


def _describe_writers(card: Scorecard) -> Iterator[str]:
    """Describe what to expect of a writer whom training never saw."""
    new = card.by_writer_status.get("new")
    if new is None:
        yield "No line is by a writer who is surely new, so this does not say how a new writer would be read."
        return
    score = new.final
    tested = counted(new.writers or 0, "new writer") + f", {counted(score.lines, 'line')}"
    found = one_in(score.cer.rate, "letter") if score.cer.errors else "no letter"
    bounds = score.interval.bounds if score.interval else None
    if bounds is None:
        yield f"On new writers {found} is wrong ({tested}): too few writers to say how the next one will be read."
        return
    best, worst = (one_in(end, "letter") for end in bounds)
    yield f"On new writers {found} is wrong ({tested}): on others like them, between {best} and {worst}."


def _describe_checking(confidence: Mapping[str, Any] | None) -> Iterator[str]:
    """Describe what checking the least confident lines brought, as it was measured."""
    curve: Sequence[Mapping[str, float]] = (confidence or {}).get("budget") or ()
    if len(curve) < 1 / _CHECKED or not curve[0]["rest"]:
        return
    point = curve[round(_CHECKED * (len(curve) - 1))]
    rest = f"{one_in(point['rest'], 'letter')} wrong in the others" if point["rest"] else "none in the others"
    share, found = percentage(point["share"], 0), percentage(point["found"], 0)
    yield f"Checking the least certain {share} of the lines finds {found} of all wrong letters, and leaves {rest}."


def one_in(rate: float, noun: str) -> str:
    """Describe a rate as one in so many, from two in three on as a share."""
    if rate > 0.4:
        return f"{100 * rate:.0f} of 100 {noun}s"
    count = 1 / rate
    return f"1 {noun} in {count:,.0f}" if count < 1000 else f"1 {noun} in {round(count, -2):,.0f}"
