"""The folder beside a dataset that it is made in: it outlives a killed `prepare`, so that the next one goes on.

.mine.work/    journal.sqlite    what is done so far
               cut/              the samples' images
               unpacked/         the source, where it is an archive
               draft/            the dataset, until it is whole
               former/           the dataset that it replaces, while the two change places
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.database import full_in_sentences
from dsocr.data.journal import Journal
from dsocr.errors import DataError
from dsocr.sealing import disk_in_sentences

WORTH_KEEPING = 5.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """Where a dataset is being made, and what is known of it."""

    journal: Journal
    cut: Path
    unpacked: Path
    draft: Path


@contextmanager
def work_folder(out: Path) -> Iterator[Work]:
    """A place to make the dataset `out` in; when the block ends well, its draft takes the place of `out`.

    When it does not, whatever was cut stays for the next try, if it took long enough to be worth a folder more.
    """
    with disk_in_sentences(folder_beside(out).parent), full_in_sentences(out, "cut"), _working(out) as work:
        yield work


@contextmanager
def _working(out: Path) -> Iterator[Work]:
    began = time.monotonic()
    folder = folder_beside(out)
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.sqlite")
    work = Work(journal, folder / "cut", folder / "unpacked", folder / "draft")
    whole = False
    try:
        for unfinished in (work.unpacked, work.draft):
            shutil.rmtree(unfinished, ignore_errors=True)
        work.draft.mkdir()
        work.cut.mkdir(exist_ok=True)
        yield work
        exchange(work.draft, out, folder / "former")
        whole = True
    finally:
        done = whole or journal.is_empty or time.monotonic() - began < WORTH_KEEPING
        journal.close()
        if done:
            shutil.rmtree(folder, ignore_errors=True)


def recover(out: Path) -> None:
    """Ends what a `prepare` that was killed in its last moment left half done, so that `out` is there, and alone."""
    folder = folder_beside(out)
    former, is_moved = folder / "former", not (folder / "draft").exists()
    if not folder.exists() or not (is_moved or former.exists()):
        return
    try:
        Journal(folder / "journal.sqlite").close()
    except DataError:
        return  # Another process is at work there.
    if former.exists() and not out.exists():
        former.rename(out)
    if is_moved:
        shutil.rmtree(folder, ignore_errors=True)


def folder_beside(out: Path) -> Path:
    """The hidden folder beside `out` that it is made in."""
    out = out.resolve()
    return out.with_name(f".{out.name}.work")


def exchange(draft: Path, out: Path, former: Path) -> None:
    """Puts a draft, a folder or a file, in the place of `out`; what was there is at `former` then."""
    if out.exists():
        out.rename(former)
    try:
        draft.rename(out)
    except OSError:
        if former.exists():
            former.rename(out)
        raise
