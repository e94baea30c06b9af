"""The folder beside a transcription that it is made in: it outlives a killed one, so that the next goes on.

.texts.jsonl.work/    journal.sqlite    what was read so far
                      unpacked/         inputs that are archives
                      draft             what is written, a file or a folder, until it is whole
                      former            what it replaces, while the two change places
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dsocr.data.database import full_in_sentences
from dsocr.data.work import WORTH_KEEPING, exchange, folder_beside
from dsocr.errors import DataError
from dsocr.inference.journal import ReadingJournal
from dsocr.sealing import disk_in_sentences

_WRITTEN = "written"
"""The empty file that says the draft is whole and about to take its place."""


@dataclass(frozen=True, slots=True)
class Work:
    """Where a transcription is made."""

    journal: ReadingJournal
    unpacked: Path
    draft: Path


@contextmanager
def work_folder(out: Path) -> Iterator[Work]:
    """A place to make `out` in; when the block ends well, its draft takes the place of `out`.

    When it does not, what was read stays for the next try, if it took long enough to be worth a folder more.
    """
    folder = folder_beside(out)
    with disk_in_sentences(folder.parent), full_in_sentences(out, "read"), _working(out, folder) as work:
        yield work


@contextmanager
def _working(out: Path, folder: Path) -> Iterator[Work]:
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    journal = ReadingJournal(folder / "journal.sqlite")
    went_on = not journal.is_empty
    work = Work(journal, folder / "unpacked", folder / "draft")
    former = folder / "former"
    whole = False
    try:
        # What was replaced before can be here still, where somebody had it open when it was to go.
        _remove(work.unpacked, work.draft, *([former] if out.exists() else []))
        yield work
        (folder / _WRITTEN).touch()
        exchange(work.draft, out, former)
        whole = True
    finally:
        brief = not went_on and time.monotonic() - began < WORTH_KEEPING
        done = whole or journal.is_empty or brief
        journal.close()
        if done:
            shutil.rmtree(folder, ignore_errors=True)


def recover(out: Path) -> None:
    """Ends what one that was killed in its last moment left half done, so that `out` is there, and alone."""
    folder = folder_beside(out)
    if not (folder / _WRITTEN).exists():
        return
    try:
        ReadingJournal(folder / "journal.sqlite").close()
    except DataError:
        return  # Another process is at work there.
    former = folder / "former"
    if former.exists() and not out.exists():
        former.rename(out)
    if (folder / "draft").exists():
        (folder / _WRITTEN).unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
