"""Read a source in one format, and say what came of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dsocr.document import Item, Note, Page, Skipped, SkipReason
from dsocr.formats import SOURCE_FORMATS


def read(format_: str, source: Path, columns: Mapping[str, str] | None = None) -> list[Item]:
    return list(SOURCE_FORMATS[format_].read(source, columns or {}))


def read_one(format_: str, source: Path, columns: Mapping[str, str] | None = None) -> Page:
    """The only page; no line is skipped."""
    (page,) = (item for item in read(format_, source, columns) if not isinstance(item, Note))
    assert isinstance(page, Page), page
    return page


def pages(items: Iterable[Item]) -> list[Page]:
    return [item for item in items if isinstance(item, Page)]


def texts(items: Iterable[Item]) -> list[str]:
    """The texts of all lines."""
    return [line.text for page in pages(items) for line in page.lines]


def skipped(items: Iterable[Item]) -> list[tuple[SkipReason, str]]:
    """Why and where items are skipped."""
    return [(item.reason, item.where) for item in items if isinstance(item, Skipped)]
