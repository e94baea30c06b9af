"""Whole pages as units of a comparison: their texts, and their errors whatever the order and breaks of lines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dsocr.errors import DataError, first_few
from dsocr.evaluation.metrics import is_over_long
from dsocr.evaluation.page_metrics import bag_of_words_errors, flexible_character_errors
from dsocr.evaluation.scores import LineScore, WriterStatus
from dsocr.text import is_blank


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """A page as it is transcribed, a line of text for each line; the writer is None if it has several."""

    key: str
    text: str
    writer: str | None
    writer_status: WriterStatus


def written_pages(lines: Iterable[LineScore]) -> dict[str, WrittenPage]:
    """Join the references of lines into pages by key, in their order. Raises DataError if a line has no page."""
    found: dict[str, list[LineScore]] = {}
    for line in lines:
        if line.page is None:
            hint = "prepare the dataset from pages, or compare lines"
            raise DataError("a line belongs to no page", code="page-unknown", where=line.id, hint=hint)
        found.setdefault(line.page, []).append(line)
    pages = {}
    for key, own in found.items():
        writer, status = own[0].writer, own[0].writer_status
        if any(line.writer != writer for line in own):
            writer, status = None, "unknown"
        pages[key] = WrittenPage(key, "\n".join(line.reference for line in own), writer, status)
    return pages


def read_pages(lines: Sequence[LineScore]) -> list[LineScore]:
    """Join scored lines into pages, and score these."""
    texts: dict[str, list[str]] = {}
    for line in lines:
        texts.setdefault(line.page or "", []).append(line.prediction)
    return score_pages(written_pages(lines), {key: "\n".join(own) for key, own in texts.items()})


def score_pages(pages: Mapping[str, WrittenPage], texts: Mapping[str, str]) -> list[LineScore]:
    """Score the text that was read of each page, by key, as a single unit.

    Its `cer` is 1 - the flexible character accuracy, its `wer` the bag-of-words WER. Raises DataError if a page is
    missing.
    """
    if absent := [key for key in pages if key not in texts]:
        message = f"{len(absent)} of {len(pages)} pages have no text: {first_few(absent)}"
        raise DataError(message, code="prediction-missing", hint="--missing empty counts them as empty")
    return [_score(page, texts[page.key]) for page in pages.values()]


def _score(page: WrittenPage, text: str) -> LineScore:
    characters = flexible_character_errors(page.text, text)
    return LineScore(
        id=page.key,
        reference=page.text,
        prediction=text,
        cer=characters,
        wer=bag_of_words_errors(page.text, text),
        exact=not characters.errors,
        empty=is_blank(text),
        over_long=is_over_long(page.text, text),
        writer=page.writer,
        page=page.key,
        writer_status=page.writer_status,
    )
