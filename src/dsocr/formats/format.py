"""The declaration of a file format: how it is recognised, read and written."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from dsocr.document import Item, Page, ProcessingStep, Skipped, Unit

Columns = Mapping[str, str]
"""Role (`image`, `text`, `writer`, ...) -> column name, for the roles that are not to be guessed."""

SURROGATES = "\ud800-\udfff"
"""Unpaired surrogates, which JSON can express and UTF-8 cannot, as part of a regular expression."""

NOT_UTF8 = re.compile(f"[{SURROGATES}]")


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a page: the number of lines written, skipped items, and number of outlines moved."""

    lines: int
    skipped: Sequence[Skipped] = ()
    moved: int = 0


class DatasetWriter(Protocol):
    """Writes pages with their images into a folder, in one format."""

    def add(self, page: Page, stem: str) -> Written:
        """Write a page and its lines under a file stem that no other page has."""
        ...

    def close(self) -> None:
        """Finish writing; the folder is incomplete without it."""
        ...


def _unsupported(*_: object) -> NoReturn:
    raise NotImplementedError("the format does not support this")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A file format and what it can do: be read, be converted to, and hold transcribed pages.

    Reading: `find` lists the files of a source in this format, and `read` yields what is in them; `takes_columns` says
    that columns can be named. `example` follows `dsocr prepare` in the help. `unit` is what a transcription is of:
    lines can be joined to regions and pages, but a page cannot be split.

    Converting: `open_writer` takes a folder and the names of the source's own columns. `forbidden` matches what a text
    cannot contain. With `keeps_pages` the format has whole images with outlines, and keeps lines without a text; the
    others have line images. `keeps_writers` and `keeps_regions` say whether it has a place for them; page and document
    names go with writers, ids of regions and lines with regions. `columns` are the format's own column names, None if
    it has no place for other columns, and `origin_columns` those that it takes over from a source of line images.
    `next_step` says how to use the result.

    Transcribing: `write_pages` writes transcribed pages to a file ending in `suffix`, and takes them one at a time.
    With `one_page_per_file` several pages need a folder. In a folder each page has a file of its own, but the pages of
    a PDF stay together in formats that are `multipage`.
    """

    name: str
    title: str

    find: Callable[[Path, Columns], list[Path]] = _unsupported
    read: Callable[[Path, Columns], Iterator[Item]] = _unsupported
    example: str = ""
    takes_columns: bool = False
    unit: Unit = "line"

    open_writer: Callable[[Path, Sequence[str]], DatasetWriter] = _unsupported
    forbidden: re.Pattern[str] = NOT_UTF8
    keeps_pages: bool = False
    keeps_writers: bool = True
    keeps_regions: bool = False
    columns: tuple[str, ...] | None = None
    origin_columns: frozenset[str] = frozenset()
    next_step: str = ""

    write_pages: Callable[[Iterable[Page], Path, ProcessingStep], None] = _unsupported
    suffix: str = ""
    one_page_per_file: bool = False
    multipage: bool = False

    @property
    def can_read(self) -> bool:
        """True if sources can be in this format."""
        return self.read is not _unsupported

    @property
    def can_convert_to(self) -> bool:
        """True if a dataset can be converted to this format."""
        return self.open_writer is not _unsupported

    @property
    def can_write_pages(self) -> bool:
        """True if transcribed pages can be written in this format."""
        return self.write_pages is not _unsupported
